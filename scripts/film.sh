#!/usr/bin/env bash
# Makes the README's moving picture: plays assets/screenshots/first-minute.json in the real window under Xvfb. No GPU, a minute or two.
#
#     scripts/film.sh [OUT.webp [--list]]       # --list: what can be touched at the end, to write the next step by
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/setup.sh"
need_rust
need_packages xvfb xdotool imagemagick mesa-vulkan-drivers libvulkan1 libx11-6 libx11-xcb1 libxcursor1 libxi6 libxrandr2 libxkbcommon-x11-0
need_environment loka-film "$root/scripts/film-requirements.txt"
cargo build --manifest-path "$root/Cargo.toml" --workspace --lib --bin loka $quiet >&2
pictures=$root/assets/screenshots
out=${1:-$pictures/first-minute.webp}
"$python" "$root/scripts/film.py" "$CARGO_TARGET_DIR/debug/loka" "$pictures/first-minute.json" "$out" "${@:2}"
size=$(stat -c %s "$out")
[ "$size" -le 3000000 ] || die "the picture has $size bytes, more than a README should: $out"
