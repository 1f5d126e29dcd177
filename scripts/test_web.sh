#!/usr/bin/env bash
# Builds the page and opens it in Chromium, without a display: what it must do, and pictures of it.
#
#     scripts/test_web.sh [PICTURES]
#
# PICTURES: a folder for them; without it they are thrown away.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/setup.sh"
need_page
pictures=${1:-$scratch/pictures}
mkdir -p "$pictures"
node "$root/tests/web/smoke.mjs" "$CARGO_TARGET_DIR/web" "$scratch" "$CARGO_TARGET_DIR/debug/loka" "$playwright" "$pictures"
