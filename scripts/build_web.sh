#!/usr/bin/env bash
# Builds the workbench as a page that any web server can serve: index.html, its scripts, the program, and each beside
# itself as .gz for servers that send it so.
#
#     scripts/build_web.sh [--here] [OUT]
#
# OUT: $CARGO_TARGET_DIR/web without it. Fails when what a browser fetches is more than 4 MB compressed. What did not
# change is not built again.
#
# --here: for browsers on this machine, which fetch it over no network, into $CARGO_TARGET_DIR/web-here. What only makes it
# small is left out: link-time optimisation, wasm-opt (and with it Node) and zopfli.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/setup.sh"
profile=page name=web
if [ "${1:-}" = --here ]; then
    profile=page-here name=web-here
    shift
fi
out=${1:-$CARGO_TARGET_DIR/$name}
most=4000000
# -O1: a tenth less to fetch. -Os and -Oz take minutes for the same compressed size. Functions that are called most come first:
# their numbers are short, and that packs 3 % smaller (see docs/guide/web.md). The features are those that Rust compiles for.
optimise=(-O1 --merge-similar-functions --reorder-functions --enable-bulk-memory --enable-multivalue --enable-mutable-globals --enable-nontrapping-float-to-int
    --enable-reference-types --enable-sign-ext)

need_linux "the page"
# ./test lints what it compiles; a page is not linted, and is the same page.
unset RUSTC_WORKSPACE_WRAPPER
need_rust
need_wasm
if [ $profile = page ]; then
    need_wasm_opt
    plain_paths wasm32-unknown-unknown
fi
cargo build --manifest-path "$root/Cargo.toml" $quiet --profile $profile --target wasm32-unknown-unknown --package loka >&2
need_wasm_bindgen
program=$CARGO_TARGET_DIR/wasm32-unknown-unknown/$profile/loka.wasm
pages=$root/app/web

# What it is made of, and by what: the same again needs no work.
recipe=$({ cat "$root/scripts/bindgen/Cargo.lock"; [ -z "${wasm_opt:-}" ] || "$wasm_opt" --version; echo "${optimise[@]}"
    cat "$program" "$pages"/* "${BASH_SOURCE[0]}"; } | sha256sum)
if [ "$(cat "$out/.recipe" 2>/dev/null)" = "$recipe" ]; then
    say "The page is up to date: $out"
    exit 0
fi

# Made beside its place and moved there whole: a server that reads it meanwhile sees the old page or the new one.
mkdir -p "$(dirname "$out")"
made=$(mktemp -d "$(dirname "$out")/.web-XXXXXX")
trap 'rm -rf "$made"' EXIT
chmod 755 "$made"
"$wasm_bindgen" "$program" "$made"
if [ $profile = page ]; then
    "$wasm_opt" "${optimise[@]}" "$made/loka_bg.wasm" -o "$made/small.wasm"
    mv "$made/small.wasm" "$made/loka_bg.wasm"
fi
cp "$pages"/* "$made"
# The page shows how much has come: a compressed answer does not say how long it is unpacked.
sed -i "s/name=\"loka-bytes\" content=\"0\"/name=\"loka-bytes\" content=\"$(stat -c %s "$made/loka_bg.wasm")\"/" "$made/index.html"
# Four in a hundred less to fetch than by gzip -9, for a minute of work; the last 600 bytes are of 15 turns instead of 5.
[ $profile = page-here ] || need_packages zopfli
for file in "$made"/*; do
    if [ $profile = page-here ]; then gzip -1 --keep --no-name "$file"
    elif command -v zopfli >/dev/null; then zopfli --i15 "$file"
    else gzip -9 --keep --no-name "$file"; fi
done
raw=$(cat "$made"/*[!z] | wc -c)
packed=$(cat "$made"/*.gz | wc -c)
[ "$packed" -le "$most" ] || [ $profile = page-here ] || die "the page is $packed bytes compressed, more than $most: $made"
echo "$recipe" >"$made/.recipe"
rm -rf "$out"
mv "$made" "$out"
trap - EXIT
say "The page: $raw bytes, $packed compressed: $out"
