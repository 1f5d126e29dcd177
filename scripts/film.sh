#!/usr/bin/env bash
# Makes a moving picture of the real window under Xvfb, by a scenario of assets/films. No GPU, a minute or some.
#
#     scripts/film.sh                                   # the README's own: the first minute
#     scripts/film.sh open-to-export OUT.webp           # two and a half minutes: a sample from open to a signed plan
#     scripts/film.sh NAME OUT.webp --list              # what can be touched at the end, to write the next step by
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/setup.sh"
need_rust
need_packages xvfb xdotool imagemagick mesa-vulkan-drivers libvulkan1 libx11-6 libx11-xcb1 libxcursor1 libxi6 libxrandr2 libxkbcommon-x11-0
need_environment loka-film "$root/scripts/film-requirements.txt"
cargo build --manifest-path "$root/Cargo.toml" --workspace --lib --bin loka $quiet >&2
film=${1:-first-minute}
[ -n "${2:-}" ] || [ "$film" = first-minute ] || die "say where it goes: scripts/film.sh $film OUT.webp"
out=${2:-$root/assets/screenshots/$film.webp}
"$python" "$root/scripts/film.py" "$CARGO_TARGET_DIR/debug/loka" "$root/assets/films/$film.json" "$out" "${@:3}"
size=$(stat -c %s "$out")
[ "$film" != first-minute ] || [ "$size" -le 3000000 ] || die "the picture has $size bytes, more than a README should: $out"
