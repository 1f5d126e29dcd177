#!/usr/bin/env bash
# Runs python/'s tests in one cell of Python 3.10 to 3.14 x PyTorch 2.6 to the newest: a piece is one cell, small enough for a
# CI job, and runs alone.
#
#   scripts/python_matrix.sh --list                  the cells, one a line, and which interpreters are here
#   scripts/python_matrix.sh 3.12 2.6                that cell: all tests
#   scripts/python_matrix.sh 3.12 newest             the newest PyTorch on the index
#   scripts/python_matrix.sh 3.12 2.6 test_apply test_freeze     some of them
#
# CPU builds of PyTorch (some 200 MB a version), from LOKA_TORCH_INDEX if it is set, else from pip's own index, which may
# give CUDA's. An environment a cell, kept in the user's cache; LOKA_MATRIX_PYTHON names one that has PyTorch already, which
# is then used as it is. LOKA_BIN, where set, is the program that the tests use.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
source "$here/setup.sh"

pythons=(3.10 3.11 3.12 3.13 3.14)
# The last patch release of each.
torches=(2.6 2.7 2.8 2.9 2.10 2.11 2.12 2.13 2.14 newest)

# fits PYTHON TORCH: whether that PyTorch has wheels for that Python.
fits() {
    case $1-$2 in
        3.14-2.[678]) return 1 ;;
        *) return 0 ;;
    esac
}

# interpreter PYTHON: the path of one that starts, on PATH or pyenv's.
interpreter() {
    local candidate
    for candidate in "python$1" "${PYENV_ROOT:-$HOME/.pyenv}"/versions/"$1".*/bin/python; do
        if "$candidate" -c "import sys; sys.exit('%d.%d' % sys.version_info[:2] != '$1')" 2>/dev/null; then
            command -v "$candidate"
            return 0
        fi
    done
    return 1
}

list() {
    local version torch where
    for version in "${pythons[@]}"; do
        where=$(interpreter "$version") || where="not here"
        for torch in "${torches[@]}"; do
            if fits "$version" "$torch"; then echo "$version $torch  # $where"; fi
        done
    done
}

# prepare PYTHON TORCH: sets $python, an environment with that PyTorch.
prepare() {
    if [ -n "${LOKA_MATRIX_PYTHON:-}" ]; then
        python=$LOKA_MATRIX_PYTHON
        return 0
    fi
    local found environment=$cache/loka-matrix-$1-$2 wanted=torch
    [ "$2" = newest ] || wanted="torch==$2.*"
    found=$(interpreter "$1") || die "there is no Python $1 here: install it (pyenv install $1), or name one in LOKA_MATRIX_PYTHON"
    python=$environment/bin/python
    [ -e "$environment/ready" ] && return 0
    say "installing $wanted for Python $1 (once, into $environment)"
    "$found" -m venv "$environment" || die "could not make a Python environment in $environment"
    local index=()
    [ -z "${LOKA_TORCH_INDEX:-}" ] || index=(--index-url "$LOKA_TORCH_INDEX")
    "$python" -m pip install -q --disable-pip-version-check "${index[@]}" "$wanted" >&2 ||
        die "could not install $wanted for Python $1: there may be no wheel"
    # setuptools: Triton and PyTorch's C++ backend of some versions import it, and environments of 3.12 on have none.
    "$python" -m pip install -q --disable-pip-version-check numpy ml_dtypes "safetensors[numpy]>=0.4.3" setuptools >&2 ||
        die "could not install what the tests need for Python $1"
    touch "$environment/ready"
}

case ${1:-} in
    --list) list ;;
    3.*)
        [ $# -ge 2 ] || die "which PyTorch? scripts/python_matrix.sh $1 2.6, or newest"
        fits "$1" "$2" || die "PyTorch $2 has no wheels for Python $1"
        prepare "$1" "$2"
        tests=("${@:3}")
        [ ${#tests[@]} -gt 0 ] || tests=(discover)
        cd "$here/../python/tests"
        export PYTHONPATH=$here/../python
        "$python" -c 'import sys, torch; print("Python %d.%d.%d" % sys.version_info[:3] + ", PyTorch " + torch.__version__)'
        exec "$python" -W ignore -m unittest "${tests[@]}" --quiet
        ;;
    *) die "usage: scripts/python_matrix.sh --list | PYTHON TORCH [TEST...]" ;;
esac
