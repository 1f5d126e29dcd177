#!/usr/bin/env bash
# Builds the page and measures it in Chromium, without a display: how soon it is there with the sample and with 10,000
# sites, and the CPU time of its frames while 10,000 sites are scrolled, pulled and filtered.
#
#     scripts/bench_web.sh [FRAMES [PART]]
#
# FRAMES: of one gesture, 60 without it. PART: of the names of measures as they are printed, to take those alone: "start",
# "pull the threshold 1280". Drawn by software all of them take a quarter of an hour and more: a frame of 10,000 sites at
# 1920 x 1080 takes seconds.
# Drawing by software takes the processor from whatever else is measured: do nothing else on the machine.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/setup.sh"
need_page
cargo run --manifest-path "$root/Cargo.toml" --quiet --package loka_tests --example big_results -- \
    10000 "$scratch/big.results.parquet" >&2
node "$root/tests/web/bench.mjs" "$CARGO_TARGET_DIR/web" "$scratch" "$playwright" "${1:-60}" "${2:-}"
