#!/usr/bin/env bash
# Installs a wheel of scripts/build_wheel.sh as a stranger would: into a new environment, without Rust, PyTorch, GPU or
# display, away from the checkout. Probes, plans, checks, serves; says how long the first page took.
#
#     scripts/test_wheel.sh WHEEL [PYTHON]
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/setup.sh"
wheel=$(realpath "$1")
sample=$root/sample-traces/wukong-drift.trace.safetensors
away=$(mktemp -d)
trap 'rm -rf "$away"' EXIT
"${2:-python3}" -m venv "$away/env"
"$away/env/bin/pip" install -q --disable-pip-version-check "$wheel" >&2
cp "$sample" "$away/sample.trace.safetensors"
cd "$away"
# Nothing of this machine but its C library.
clean() { env -i HOME="$away" PATH=/nowhere LANG=C.UTF-8 "$@"; }
clean env/bin/loka --version
clean env/bin/python -m loka --version
clean env/bin/loka selftest
clean env/bin/python - <<'PYTHON'
import sys

import loka

results = loka.probe("sample.trace.safetensors", out="sample.results.parquet", kernels=["cublaslt/*"], max_draws=4)
plan = loka.plan(results, out="sample.plan.json")
print(loka.find_binary(), plan, loka.load_plan("sample.plan.json").policy["name"])
assert "torch" not in sys.modules
try:
    loka.apply
except ImportError as error:
    print(error)
PYTHON
clean env/bin/loka check sample.plan.json --results sample.results.parquet
clean env/bin/python - <<'PYTHON'
import json
import subprocess
import time
import urllib.request

import loka

started = time.monotonic()
server = subprocess.Popen([loka.find_binary(), "serve", "--json", "--no-token", "--listen", "127.0.0.1:0", "."], stdout=subprocess.PIPE)
try:
    link = json.loads(server.stdout.readline())["link"]
    page = urllib.request.urlopen(link, timeout=10).read()
    assert b"<canvas" in page, page[:200]
    print(f"the workbench's page, {len(page)} bytes, after {time.monotonic() - started:.1f} s")
finally:
    server.terminate()
PYTHON
say "the wheel works: $wheel"
