#!/usr/bin/env bash
# Builds docs/ as a site that any static host can serve. A link that leads nowhere, or a page that nothing lists, is an error.
#
#     scripts/build_docs.sh [OUT]       # OUT: a folder, docs/ in $CARGO_TARGET_DIR without it
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/setup.sh"
out=$(realpath -m "${1:-$CARGO_TARGET_DIR/docs}")
need_docs
# Not --quiet: what is not logged is not counted by --strict.
said=$(cd "$root" && "$python" -m mkdocs build --strict --site-dir "$out" 2>&1) || die "$said"
say "The documentation: $(find "$out" -name '*.html' | wc -l) pages: $out/index.html"
