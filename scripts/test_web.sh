#!/usr/bin/env bash
# Builds the page and opens it in Chromium, without a display: what it must do, and pictures of it.
#
#     scripts/test_web.sh [PICTURES]
#
# PICTURES: a folder for them; without it they are thrown away.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/setup.sh"
need_packages chromium
need_playwright
"$root/scripts/build_web.sh"
cargo build --manifest-path "$root/Cargo.toml" --quiet --package loka >&2
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
pictures=${1:-$scratch/pictures}
mkdir -p "$pictures"
cp "$root/sample-traces/wukong-clicks.trace.safetensors" "$scratch/sample.trace.safetensors"
"$CARGO_TARGET_DIR/debug/loka" probe "$scratch/sample.trace.safetensors" --out "$scratch/sample.results.parquet" >/dev/null
node "$root/tests/web/smoke.mjs" "$CARGO_TARGET_DIR/web" "$scratch" "$CARGO_TARGET_DIR/debug/loka" "$playwright" "$pictures"
