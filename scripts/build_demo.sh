#!/usr/bin/env bash
# Builds a demo: a folder with the page, the sample as it was recorded on an H200, and its rows as they were measured there. Any static
# host can serve it, under any address; there is no server of LoKA's behind it. Everything but a probe works: policies, thresholds,
# mods whose rows are there, overrides, the exported plan.
#
#     scripts/build_demo.sh [OUT]       # OUT: a folder, demo/ in $CARGO_TARGET_DIR without it; what was there is replaced
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/setup.sh"
out=$(realpath -m "${1:-$CARGO_TARGET_DIR/demo}")
sample=dcnv2-ranker
if [ -e "$out" ] && [ ! -e "$out/samples/$sample.trace.safetensors" ]; then
    die "something else is there, and would be replaced: $out"
fi
"$root/scripts/build_web.sh"

mkdir -p "$(dirname "$out")"
made=$(mktemp -d "$(dirname "$out")/.demo-XXXXXX")
trap 'rm -rf "$made"' EXIT
chmod 755 "$made"
cp "$CARGO_TARGET_DIR"/web/* "$made"
mkdir "$made/samples"
cp "$root/sample-traces/$sample".{trace.safetensors,results.parquet} "$made/samples"
# Rows before the trace: they are what is looked at, and 60 times smaller.
files="samples/$sample.results.parquet samples/$sample.trace.safetensors"
sed -i "s|name=\"loka-open\" content=\"\"|name=\"loka-open\" content=\"$files\"|" "$made/index.html"
grep -q "content=\"$files\"" "$made/index.html" || die "app/web/index.html has no place for the names of files"
gzip -9 --force --keep --no-name "$made/index.html"
rm -rf "$out"
mv "$made" "$out"
trap - EXIT
say "The demo: $(du -sh "$out" | cut -f1), of which a browser fetches $(cat "$out"/*.gz "$out"/samples/* | wc -c) bytes: $out"
