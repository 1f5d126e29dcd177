#!/usr/bin/env bash
# Fuzzes what strangers send, for so many seconds:
#
#     scripts/fuzz.sh wire|trace|results|documents [SECONDS [OPTION OF LIBFUZZER...]]
#     scripts/fuzz.sh build                                    # compiles all of them
#
# A crash is kept in fuzz/artifacts, with the command that plays it again. What was found to be worth trying stays in the
# user's cache, so that every run goes on from the last. FUZZ_PROFILE=--dev compiles in a third of the time what is slower then.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/setup.sh"
target=$1
seconds=${2:-60}
need_fuzz || exit 2
cd "$root"
export CARGO_TARGET_DIR=$CARGO_TARGET_DIR/fuzz RUSTUP_TOOLCHAIN=nightly
# ./test lints what it compiles, by the lints of another compiler.
unset RUSTC_WORKSPACE_WRAPPER
# The name that cargo gives a subcommand comes first.
[ "$target" != build ] || exec "$fuzz" fuzz build ${FUZZ_PROFILE:-}
corpus=$cache/loka-fuzz/corpus/$target
mkdir -p "$corpus"
"$fuzz" fuzz run ${FUZZ_PROFILE:-} "$target" "$corpus" "fuzz/seeds/$target" \
    -- -max_total_time="$seconds" -timeout=10 -rss_limit_mb=2048 -max_len=65536 -verbosity=0 "${@:3}"
