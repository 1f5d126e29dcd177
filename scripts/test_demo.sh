#!/usr/bin/env bash
# Builds the demo (scripts/build_demo.sh) and opens it in Chromium as a visitor would, served by nothing but files.
#
#     scripts/test_demo.sh [PICTURES]   # PICTURES: a folder for them; without it they are thrown away
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/setup.sh"
need_packages chromium
need_playwright
# With the features of the whole workspace, as ./test builds it.
cargo build --manifest-path "$root/Cargo.toml" --quiet --workspace --lib --bin loka >&2
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
"$root/scripts/build_demo.sh" "$scratch/demo"
pictures=${1:-$scratch/pictures}
mkdir -p "$pictures"
node "$root/tests/web/demo.mjs" "$scratch/demo" "$CARGO_TARGET_DIR/debug/loka" "$playwright" "$pictures"
