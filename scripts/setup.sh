# Sourced by ./run and ./test: finds or installs what a bare Debian 12 with Rust and Python lacks.

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
cache=${XDG_CACHE_HOME:-$HOME/.cache}
# One target folder for all checkouts, outside of them: a cold build takes a quarter of an hour.
export CARGO_TARGET_DIR=${CARGO_TARGET_DIR:-$cache/loka-target}

say() { printf '%s\n' "$*" >&2; }
die() { say "$*"; exit 2; }

# need_packages PACKAGE...: installs the missing ones when root, else says in one line what to install.
need_packages() {
    command -v dpkg-query >/dev/null || return 0
    local missing=() package
    for package in "$@"; do
        dpkg-query -W -f '${Status}' "$package" 2>/dev/null | grep -q 'install ok installed' || missing+=("$package")
    done
    [ ${#missing[@]} -eq 0 ] && return 0
    if [ "$(id -u)" -eq 0 ]; then
        say "installing ${missing[*]}"
        apt-get update -qq >&2 || die "apt-get update failed; install by hand: ${missing[*]}"
        DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "${missing[@]}" >&2 ||
            die "could not install: ${missing[*]}"
    else
        die "please install: sudo apt-get install ${missing[*]}"
    fi
}

need_rust() {
    command -v cargo >/dev/null || die "please install Rust 1.95: https://rustup.rs"
    command -v cc >/dev/null || need_packages build-essential
}

need_wasm() {
    [ -d "$(cd "$root" && rustc --print sysroot)/lib/rustlib/wasm32-unknown-unknown" ] && return 0
    command -v rustup >/dev/null || die "please install the target wasm32-unknown-unknown of Rust"
    (cd "$root" && rustup target add wasm32-unknown-unknown >&2) || die "could not add the wasm32 target"
}

# need_environment NAME REQUIREMENTS: a virtual environment with pinned packages, kept across checkouts and
# made again only when the list changes. Sets $python.
need_environment() {
    local environment=$cache/$1 wanted=$2
    python=$environment/bin/python
    cmp -s "$wanted" "$environment/requirements.txt" && return 0
    command -v python3 >/dev/null || need_packages python3
    python3 -m venv "$environment" 2>/dev/null || {
        need_packages python3-venv
        python3 -m venv "$environment" || die "could not make a Python environment in $environment"
    }
    "$environment/bin/pip" install -q --disable-pip-version-check -r "$wanted" >&2 ||
        die "could not install the packages of $wanted"
    cp "$wanted" "$environment/requirements.txt"
}

# need_python: what the tests and checks of the Rust side need. Sets $python.
need_python() { need_environment loka-python "$root/tests/requirements.txt"; }

# need_torch: PyTorch (some 3 GB to fetch the first time, minutes), by itself so that nothing else waits
# for it. Sets $python.
need_torch() {
    [ -e "$cache/loka-torch/requirements.txt" ] || say "installing PyTorch for the tests of python/ (once)"
    need_environment loka-torch "$root/python/requirements-test.txt"
}
