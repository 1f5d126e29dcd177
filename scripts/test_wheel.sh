#!/usr/bin/env bash
# Installs a wheel of scripts/build_wheel.sh as a stranger would: into a new environment, without Rust, PyTorch, GPU or
# display, away from the checkout. Probes, plans, checks, serves; says how long the first page took. Then beside a PyTorch,
# where LOKA_TORCH_PYTHON names a Python that has one: records, plans and trains, FP8 emulated.
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

# By itself, too: there is no display, so that it prints an address.
for command in (["serve", "--json", "--no-token", "--listen", "127.0.0.1:0", "."], ["--json"]):
    started = time.monotonic()
    server = subprocess.Popen([loka.find_binary(), *command], stdout=subprocess.PIPE)
    try:
        link = json.loads(server.stdout.readline())["link"]
        # The token of the address becomes a cookie.
        browser = urllib.request.build_opener(urllib.request.HTTPCookieProcessor())
        page = browser.open(link, timeout=10).read()
        assert b"<canvas" in page, page[:200]
        print(f"loka {command[0]}: the workbench's page, {len(page)} bytes, after {time.monotonic() - started:.1f} s")
    finally:
        server.terminate()
        server.wait()
PYTHON
if [ -n "${LOKA_TORCH_PYTHON:-}" ]; then
    "$LOKA_TORCH_PYTHON" -m venv "$away/torch"
    "$away/torch/bin/pip" install -q --disable-pip-version-check "$wheel" >&2
    "$LOKA_TORCH_PYTHON" -c 'import pathlib, torch; print(pathlib.Path(torch.__file__).parents[1])' \
        >"$("$away/torch/bin/python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))')/beside.pth"
    clean torch/bin/python -W ignore - <<'PYTHON'
import subprocess

import loka
import torch
from torch import nn


def made():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 1))


def train(model, recorder=None, steps=10):
    optimizer = torch.optim.Adam(model.parameters(), 1e-3)
    for step in range(steps):
        x = torch.randn(256, 64, generator=torch.Generator().manual_seed(step))
        with torch.autocast("cpu", torch.bfloat16):
            out = model(x)
        loss = nn.functional.binary_cross_entropy_with_logits(out.squeeze(-1).float(), (x[:, 0] > 0).float())
        (recorder.loss(loss) if recorder else loss).backward()
        optimizer.step()
        optimizer.zero_grad()
    return float(loss.detach())


model = made()
with loka.Recorder(model, out=".", name="own", every=2) as recorder:
    train(model, recorder)
loka.probe(recorder.path, out="own.results.parquet", kernels=["cublaslt/*"], max_draws=4)
forced = [f"--override=0:{gemm}=cublaslt/fp8-delayed" for gemm in ("fprop", "wgrad")]
subprocess.run([loka.find_binary(), "plan", "own.results.parquet", "--out", "own.plan.json", *forced], check=True, stdout=subprocess.DEVNULL)
model = made()
loka.apply(model, "own.plan.json", emulate=True)
print(f"PyTorch {torch.__version__}: loss {train(model):.4f} by a plan, {train(made()):.4f} without;", str(loka.health(model)).splitlines()[-1])
PYTHON
fi
say "the wheel works: $wheel"
