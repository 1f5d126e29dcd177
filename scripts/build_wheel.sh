#!/usr/bin/env bash
# Builds a wheel with everything: the Python package, the program with the page in it, and libloka.so. Then
#
#     pip install loka-*.whl            # loka on PATH, python -m loka, import loka; PyTorch is your own, or loka[torch]
#
#     scripts/build_wheel.sh [OUT]      # OUT: a folder, dist/ in $CARGO_TARGET_DIR without it
#
# Its tag says the oldest glibc that the two binaries run with, as they were linked here: build it on the oldest system that
# it is for. Uploading it is a person's step: `twine upload` of the file that it prints. Fails above 90 MB.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/setup.sh"
out=${1:-$CARGO_TARGET_DIR/dist}
most=90000000
[ "$(uname -s)" = Linux ] || die "wheels are built on Linux so far: this is $(uname -s)"

need_rust
command -v objdump >/dev/null || need_packages binutils
need_environment loka-wheel "$root/scripts/wheel-requirements.txt"
say "the page"
"$root/scripts/build_web.sh"
say "the program and libloka, in release (a quarter of an hour the first time)"
LOKA_PAGE=$CARGO_TARGET_DIR/web cargo build --manifest-path "$root/Cargo.toml" --release --package loka >&2
cargo build --manifest-path "$root/Cargo.toml" --release --package loka_capi >&2

made=$(mktemp -d)
trap 'rm -rf "$made"' EXIT
# Of what git has: no __pycache__, no library of another build.
mkdir "$made/python"
git -C "$root" ls-files -z python | (cd "$root" && xargs -0 cp --parents -t "$made")
strip -o "$made/python/loka/libloka.so" "$CARGO_TARGET_DIR/release/libloka.so"
cp "$root/LICENSE-MIT" "$root/LICENSE-APACHE" "$made/python/"
(cd "$made/python" && "$python" -m pip wheel -q --no-deps --no-build-isolation --wheel-dir "$made" .)
(cd "$made" && "$python" -m wheel unpack loka-*.whl >/dev/null)
version=$(sed -n 's/^version = "\(.*\)"$/\1/p' "$root/python/pyproject.toml" | head -1)
tree=$made/loka-$version
mkdir -p "$tree/loka-$version.data/scripts"
strip -o "$tree/loka-$version.data/scripts/loka" "$CARGO_TARGET_DIR/release/loka"
chmod 755 "$tree/loka-$version.data/scripts/loka"

# The newest symbol version of the C library that either of them wants.
glibc=$(objdump -T "$tree/loka-$version.data/scripts/loka" "$tree/loka/libloka.so" |
    sed -n 's/.*GLIBC_\([0-9]*\)\.\([0-9]*\).*/\1 \2/p' | sort -k1,1n -k2,2n | tail -1)
tag="py3-none-manylinux_${glibc// /_}_$(uname -m)"
sed -i -e 's/^Root-Is-Purelib: .*/Root-Is-Purelib: false/' -e "s/^Tag: .*/Tag: $tag/" "$tree/loka-$version.dist-info/WHEEL"
mkdir -p "$out"
rm -f "$out"/loka-*.whl
"$python" -m wheel pack --dest-dir "$out" "$tree" >/dev/null
wheel=$(ls "$out"/loka-*.whl)
size=$(stat -c %s "$wheel")
[ "$size" -le "$most" ] || die "the wheel has $size bytes, more than $most: $wheel"
say "$size bytes"
echo "$wheel"
