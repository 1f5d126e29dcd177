#!/usr/bin/env bash
# The clipboard under Wayland: LoKA in a compositor without a screen (sway), "Copy the layout" by keys, and what another
# program pastes. Minutes at most; needs no GPU. X11 is in tests/tests/parity.
#
#   scripts/test_wayland.sh [LOKA]        the program; without it this checkout's release build
#
# Needs sway, wl-clipboard and wtype, which come from the system's packages where that may be. As root it goes on as nobody,
# since sway runs as root nowhere.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
if [ -z "${LOKA_WAYLAND:-}" ]; then
    source "$here/setup.sh"
    need_packages sway wl-clipboard wtype
    folder=$(mktemp -d)
    trap 'rm -rf "$folder"' EXIT
    mkdir -m 700 "$folder/run" "$folder/home"
    cp "${1:-$CARGO_TARGET_DIR/release/loka}" "$folder/loka"
    cp "$here/../sample-traces/dcnv2-ranker.results.parquet" "$here/test_wayland.sh" "$folder"
    as=()
    if [ "$(id -u)" = 0 ]; then
        chown -R nobody "$folder"
        as=(setpriv --reuid nobody --regid nogroup --clear-groups)
    fi
    LOKA_WAYLAND=$folder HOME=$folder/home XDG_RUNTIME_DIR=$folder/run timeout 180 "${as[@]}" bash "$folder/test_wayland.sh"
    exit
fi

cd "$LOKA_WAYLAND"
unset DISPLAY WAYLAND_DISPLAY
printf 'output HEADLESS-1 mode 1400x900\n' >sway.conf
WLR_BACKENDS=headless WLR_LIBINPUT_NO_DEVICES=1 WLR_RENDERER=pixman sway -c sway.conf >sway.log 2>&1 &
trap 'kill $(jobs -p) 2>/dev/null' EXIT
for _ in $(seq 50); do
    WAYLAND_DISPLAY=$(cd "$XDG_RUNTIME_DIR" && ls | grep -E '^wayland-[0-9]+$' || true)
    [ -z "$WAYLAND_DISPLAY" ] || break
    sleep 0.2
done
[ -n "$WAYLAND_DISPLAY" ] || { cat sway.log; exit 1; }
export WAYLAND_DISPLAY
./loka open dcnv2-ranker.results.parquet >loka.log 2>&1 &
until swaymsg -s "$XDG_RUNTIME_DIR"/sway-ipc.* -t get_tree | grep -q '"name": "LoKA"'; do sleep 1; done
# Keys that come before the window has the keyboard are lost: once more then.
for _ in 1 2 3 4 5 6; do
    sleep 4
    wtype -k Escape -s 200 -k Escape -s 500 -M ctrl -k k -m ctrl -s 2000 "copy the layout" -s 2000 -k Return -s 4000 &
    sleep 7
    # While there is a keyboard: the compositor takes what was copied with the last one.
    pasted=$(timeout 3 wl-paste 2>/dev/null | head -c 8 || true)
    wait $!
    if [ "$pasted" = '{"tree":' ]; then
        echo "another program pastes what was copied: $pasted…"
        exit 0
    fi
done
cat loka.log
echo "nothing was pasted"
exit 1
