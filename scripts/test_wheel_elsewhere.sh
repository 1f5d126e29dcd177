#!/usr/bin/env bash
# Installs a wheel in bare systems of their own, as scripts/test_wheel.sh does in this one: each is a Debian that debootstrap makes, with
# the Python that it has and nothing else. No Rust, no PyTorch, no GPU, no display, and no network: what the wheel asks for is
# brought along. As root. And by every Python of pyenv's, in this system.
#
#     scripts/test_wheel_elsewhere.sh WHEEL [SUITE...]      # SUITE: bookworm trixie sid without any
#
# Made systems stay in the user's cache (some 300 MB each).
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/setup.sh"
need_linux "a bare system"
wheel=$(realpath "$1")
suites=("${@:2}")
[ ${#suites[@]} -gt 0 ] || suites=(bookworm trixie sid)
[ "$(id -u)" -eq 0 ] || die "making a system wants root"
need_packages debootstrap debian-archive-keyring util-linux
# What this machine's own packages come from.
mirror=$(sed -n 's/^URIs: *//p; s/^deb \(\[[^]]*\] \)\?\([^ ]*debian\/\?\) .*/\2/p' /etc/apt/sources.list.d/*.sources /etc/apt/sources.list 2>/dev/null | head -1 || true)
failed=()

# system SUITE: makes one where there is none. Sets $system.
system() {
    system=$cache/loka-systems/$1
    [ -e "$system/.ready" ] && return 0
    say "making a bare $1 (once)"
    rm -rf "$system"
    mkdir -p "$system"
    # Suites without a script of their own are like sid.
    local script=/usr/share/debootstrap/scripts/$1
    [ -e "$script" ] || script=/usr/share/debootstrap/scripts/sid
    debootstrap --variant=minbase --include=python3,python3-venv "$1" "$system" "${mirror:-http://deb.debian.org/debian}" "$script" \
        >"$system.log" 2>&1 || { tail -n 5 "$system.log" >&2; return 1; }
    touch "$system/.ready"
}

for suite in "${suites[@]}"; do
    system "$suite" || { failed+=("$suite (not made)"); continue; }
    version=$(chroot "$system" python3 -c 'import sys; print("%d.%d" % sys.version_info[:2])')
    say "== $suite: $(. "$system/etc/os-release"; echo "$PRETTY_NAME"), $(chroot "$system" ldd --version | head -1), Python $version"
    rm -rf "$system/checkout" "$system/wheels"
    mkdir -p "$system/checkout/sample-traces" "$system/wheels"
    cp -r "$root/scripts" "$system/checkout/"
    cp "$root/sample-traces/wukong-drift.trace.safetensors" "$system/checkout/sample-traces/"
    cp "$wheel" "$system/wheels/"
    python3 -m pip download -q --disable-pip-version-check --only-binary=:all: --python-version "$version" --no-deps \
        --dest "$system/wheels" safetensors numpy >&2 || { failed+=("$suite (no NumPy for Python $version)"); continue; }
    # Mounts and the network are this one process's, and end with it.
    unshare --mount --net --fork bash -c "
        mount -t proc proc '$system/proc' && ip link set lo up 2>/dev/null || true
        exec env -i HOME=/root PATH=/usr/sbin:/usr/bin:/sbin:/bin LANG=C.UTF-8 PIP_NO_INDEX=1 PIP_FIND_LINKS=/wheels \
            chroot '$system' bash /checkout/scripts/test_wheel.sh /wheels/$(basename "$wheel")
    " || failed+=("$suite")
done

for python in "${PYENV_ROOT:-$HOME/.pyenv}"/versions/3.*/bin/python; do
    "$python" -c 'import sys; sys.exit(sys.version_info < (3, 10))' 2>/dev/null || continue
    say "== this system, $("$python" --version)"
    "$(dirname "${BASH_SOURCE[0]}")/test_wheel.sh" "$wheel" "$python" || failed+=("$python")
done
[ ${#failed[@]} -eq 0 ] || die "it does not work: ${failed[*]}"
say "the wheel works everywhere"
