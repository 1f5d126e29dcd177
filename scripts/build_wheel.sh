#!/usr/bin/env bash
# Builds a wheel with everything: the Python package, the program with the page in it, and libloka.so. Then
#
#     pip install loka-*.whl            # loka on PATH, python -m loka, import loka; PyTorch is your own, or loka[torch]
#
#     scripts/build_wheel.sh [--native] [OUT]      # OUT: a folder, dist/ in $CARGO_TARGET_DIR without it
#
# The two binaries are linked by zig against the symbols of glibc 2.28, so that they run on any Linux of 2018 or later (Debian 10,
# RHEL 8, Ubuntu 20.04), whatever this machine has; the tag is what they really ask for, and more than 2.28 is an error. --native links
# by this machine's own linker against its own glibc, in the release build that ./run has made already. Uploading the wheel is a
# person's step: `twine upload` of the file that it prints. Fails above 90 MB.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/setup.sh"
native=
[ "${1:-}" != --native ] || { native=yes; shift; }
out=${1:-$CARGO_TARGET_DIR/dist}
most=90000000
oldest_glibc=2.28
need_linux "a wheel"

need_rust
command -v objdump >/dev/null || need_packages binutils
need_environment loka-wheel "$root/scripts/wheel-requirements.txt"
say "the page"
"$root/scripts/build_web.sh"
say "the program and libloka, in release (a quarter of an hour the first time)"
triple=$(uname -m)-unknown-linux-gnu
# What was built from: git's word, and whether something was not committed.
commit=$(git -C "$root" log -1 --abbrev=9 --format='%h, %cs' 2>/dev/null || true)
[ -z "$commit" ] || git -C "$root" diff --quiet HEAD -- || commit="$commit, changed"
# zig and cargo-zigbuild come as packages of this environment.
how=(zigbuild --target "$triple.$oldest_glibc") built=$CARGO_TARGET_DIR/$triple/release
[ -z "$native" ] || how=(build) built=$CARGO_TARGET_DIR/release
# Where this machine keeps sources is nobody's who installs it: panics name crates and files of this project.
if [ -z "$native" ]; then
    cargo fetch --manifest-path "$root/Cargo.toml" $quiet >&2
    flags="--remap-path-prefix=$root=loka"
    for folder in "${CARGO_HOME:-$HOME/.cargo}"/registry/src/*; do flags="$flags --remap-path-prefix=$folder=crates"; done
    export RUSTFLAGS="${RUSTFLAGS:-} $flags"
fi
release() { PATH=$(dirname "$python"):$PATH cargo "${how[@]}" --manifest-path "$root/Cargo.toml" $quiet --release "$@" >&2; }
LOKA_COMMIT=$commit LOKA_PAGE=$CARGO_TARGET_DIR/web release --package loka --bin loka --features query
release --package loka_capi

made=$(mktemp -d)
trap 'rm -rf "$made"' EXIT
# Of what git has: no __pycache__, no library of another build.
mkdir "$made/python"
git -C "$root" ls-files -z python | (cd "$root" && xargs -0 cp --parents -t "$made")
strip -o "$made/python/loka/libloka.so" "$built/libloka.so"
cp "$root/LICENSE-MIT" "$root/LICENSE-APACHE" "$made/python/"
(cd "$made/python" && "$python" -m pip wheel -q --no-deps --no-build-isolation --wheel-dir "$made" .)
(cd "$made" && "$python" -m wheel unpack loka-*.whl >/dev/null)
version=$(sed -n 's/^__version__ = "\(.*\)"$/\1/p' "$root/python/loka/__init__.py")
tree=$made/loka-$version
mkdir -p "$tree/loka-$version.data/scripts"
strip -o "$tree/loka-$version.data/scripts/loka" "$built/loka"
chmod 755 "$tree/loka-$version.data/scripts/loka"

# The newest symbol version of the C library that either of them wants.
glibc=$(objdump -T "$tree/loka-$version.data/scripts/loka" "$tree/loka/libloka.so" |
    sed -n 's/.*GLIBC_\([0-9]*\)\.\([0-9]*\).*/\1 \2/p' | sort -k1,1n -k2,2n | tail -1)
[ -n "$native" ] || [ "$(printf '%s\n' "${glibc/ /.}" "$oldest_glibc" | sort -V | tail -1)" = "$oldest_glibc" ] ||
    die "the binaries want glibc ${glibc/ /.}, more than $oldest_glibc"
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
