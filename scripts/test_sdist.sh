#!/usr/bin/env bash
# Installs a source distribution of scripts/build_sdist.sh as somebody would who has no Rust, an old one, or no C compiler: one
# sentence each time, and no traceback. With --build it is built and installed too, by the profile `dev`, which is quicker than
# what a user waits for and takes the same way.
#
#     scripts/test_sdist.sh SDIST [--build]
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/setup.sh"
sdist=$(realpath "$1")
away=$(mktemp -d)
trap 'rm -rf "$away"' EXIT
python3 -m venv "$away/env"

# tool NAME LINES: a program of that name that prints them.
tool() {
    mkdir -p "$away/$1"
    printf '#!/bin/sh\necho "%s"\n' "$3" >"$away/$1/$2"
    chmod 755 "$away/$1/$2"
}

# refused WHY PATH: pip ends with that sentence, once, and nothing of Python's own.
refused() {
    local said sentence
    sentence="Building LoKA from source needs Rust 1.95 or later (https://rustup.rs) and a C compiler, and takes a quarter of an hour or more, where a wheel needs neither: $1."
    if said=$(env -i HOME="$away" PATH="$2" LANG=C.UTF-8 "$away/env/bin/pip" install --disable-pip-version-check --no-input "$sdist" 2>&1); then
        die "it was installed, where it should have been refused: $1"
    fi
    [ "$(grep -c "Building LoKA from source needs" <<<"$said")" -eq 1 ] || die "not one sentence: $said"
    grep -qF "$sentence" <<<"$said" || die "another sentence than '$sentence': $said"
    ! grep -q "Traceback" <<<"$said" || die "a traceback: $said"
    say "refused: $1"
}

refused "no cargo was found" /nowhere
tool old cargo ""
tool old rustc "rustc 1.80.1 (3f5fd8dd4 2024-08-06)"
refused "this is Rust 1.80" "$away/old"
tool new cargo ""
tool new rustc "rustc 1.95.0 (made up)"
refused "no C compiler was found" "$away/new"
if [ "${2:-}" = --build ]; then
    need_rust
    say "building it by the profile dev"
    LOKA_PROFILE=dev "$away/env/bin/pip" install -q --disable-pip-version-check "$sdist" >&2
    cd "$away"
    env -i HOME="$away" PATH=/nowhere LANG=C.UTF-8 env/bin/loka --version
    env -i HOME="$away" PATH=/nowhere LANG=C.UTF-8 env/bin/loka selftest | tail -n 1
    env -i HOME="$away" PATH=/nowhere LANG=C.UTF-8 env/bin/python -c 'import loka; print(loka.__version__, loka.find_binary())'
fi
say "the source distribution says what it needs: $sdist"
