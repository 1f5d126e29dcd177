#!/usr/bin/env bash
# Makes a source distribution: what `pip install` builds from where there is no wheel for a platform. It has the sources of the
# program and of the package, and the page ready made; it needs Rust 1.95 and a C compiler, and says so in one sentence where
# they are not (scripts/sdist/loka_build.py).
#
#     scripts/build_sdist.sh [OUT]      # OUT: a folder, dist/ in $CARGO_TARGET_DIR without it
#     scripts/build_sdist.sh --without-page OUT      # for tests of the distribution itself: `loka serve` has no page then
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/setup.sh"
need_linux "a source distribution"
page=yes
[ "${1:-}" != --without-page ] || { page=; shift; }
out=${1:-$CARGO_TARGET_DIR/dist}
most=40000000
version=$(sed -n 's/^__version__ = "\(.*\)"$/\1/p' "$root/python/loka/__init__.py")
made=$(mktemp -d)
trap 'rm -rf "$made"' EXIT
tree=$made/loka-$version
mkdir -p "$tree/page"
# What cargo and setuptools read, and what is compiled in.
git -C "$root" ls-files -z -- Cargo.toml Cargo.lock rust-toolchain.toml LICENSE-MIT LICENSE-APACHE README.md app core kernels capi stores query python \
    assets/kernels/source assets/schema docs/concepts/README.md ':!python/tests' ':!python/examples' |
    tar -C "$root" --null --files-from - --create --file - | tar -C "$tree" --extract --file -
# The crate of tests is not part of it.
sed -i 's/, "tests"\]/]/' "$tree/Cargo.toml"
grep -q '^members = .*"tests"' "$tree/Cargo.toml" && die "the crate of tests is still a member of the workspace"
cp "$root/scripts/sdist/pyproject.toml" "$root/scripts/sdist/loka_build.py" "$tree/"
cp "$root/LICENSE-MIT" "$root/LICENSE-APACHE" "$tree/python/"
if [ -n "$page" ]; then
    "$root/scripts/build_web.sh"
    cp "$CARGO_TARGET_DIR"/web/* "$tree/page/"
fi
cat >"$tree/PKG-INFO" <<INFO
Metadata-Version: 2.4
Name: loka
Version: $version
Summary: $(sed -n 's/^description = "\(.*\)"$/\1/p' "$root/python/pyproject.toml")
License-Expression: MIT OR Apache-2.0
Requires-Python: $(sed -n 's/^requires-python = "\(.*\)"$/\1/p' "$root/python/pyproject.toml")
INFO
mkdir -p "$out"
# The same sources are the same bytes.
tar -C "$made" --sort=name --owner=0 --group=0 --numeric-owner --mtime='2020-01-01 00:00Z' --create --file - "loka-$version" |
    gzip -9 --no-name >"$out/loka-$version.tar.gz"
size=$(stat -c %s "$out/loka-$version.tar.gz")
[ "$size" -le "$most" ] || die "the source distribution has $size bytes, more than $most: $out/loka-$version.tar.gz"
say "$size bytes"
echo "$out/loka-$version.tar.gz"
