"""libloka as PyTorch's dispatcher calls it, without Python in between: what comes back, what is refused, what is left behind.

Without a GPU: the ops are registered for CPU tensors of a namespace of their own, and libcuda and libnvrtc are stand-ins
that say "done" and print launches (capi/tests). What kernels compute is tested on a GPU (`gpu_kernels.py`).
"""

import json
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))

from loka.kernels import native

ROOT = pathlib.Path(__file__).resolve().parents[2]

CALLS = '''
import json, sys
import torch
from loka.kernels import native, native_ops

there = torch.library.Library("loka_there", "DEF")
for name in ("fp8_cast", "static_cast", "fp8_gemm", "static_gemm", "block_gemm", "block_tail", "block_backward"):
    there.define(str(getattr(torch.ops.loka, name).default._schema).replace("loka::", ""))
native._folders = lambda: sys.argv[1]
why = native.registered("loka_there", "CPU")
ops, E4M3 = torch.ops.loka_there, torch.float8_e4m3fn
x, w, bias = torch.randn(32, 256).bfloat16(), torch.randn(512, 256).to(E4M3), torch.zeros(512).bfloat16()
one, rows, count = torch.ones(1), torch.ones(512, 1), torch.zeros(1, dtype=torch.int64)
calls = {
    "tail": lambda to: to.block_tail(x),
    "tail, strided": lambda to: to.block_tail(torch.randn(256, 32).bfloat16().t()),
    "tail, empty": lambda to: to.block_tail(x[:0]),
    "tail of FP32": lambda to: to.block_tail(x.float()),
    "backward": lambda to: to.block_backward(x, x),
    "backward of two shapes": lambda to: to.block_backward(x[:4], x),
    "gemm": lambda to: to.fp8_gemm(x.to(E4M3), one, w, rows, True),
    "gemm of a tiling": lambda to: to.fp8_gemm(x.to(E4M3), torch.ones(32, 1), w, one, False, 0),
    "gemm of BF16": lambda to: to.fp8_gemm(x, one, w, rows, True),
    "gemm by a wrong scale": lambda to: to.fp8_gemm(x.to(E4M3), torch.ones(32), w, rows, True),
    "gemm of k = 200": lambda to: to.fp8_gemm(x[:, :200].to(E4M3), one, w[:, :200], rows, True),
    "static": lambda to: to.static_gemm(x, one, w, rows, None, count),
    "static, bias": lambda to: to.static_gemm(x, one, w, rows, bias, count),
    "static, short bias": lambda to: to.static_gemm(x, one, w, rows, bias[:5], count),
    "block": lambda to: to.block_gemm(x, one, w, rows, bias, count, None, True),
    "block, codes": lambda to: to.block_gemm(x.to(E4M3), one, w, rows, None, count, one, False),
    "block of n = 128": lambda to: to.block_gemm(x, one, w[:128], rows[:128], None, count, None, True),
    "cast by rows": lambda to: to.fp8_cast(x, "row", "e4m3", False, True, True),
    "cast of a tensor": lambda to: to.fp8_cast(x, "tensor", "e5m2", True, True, True),
    "cast turned": lambda to: to.fp8_cast(x, "tensor", "e4m3", False, False, True),
    "cast, empty": lambda to: to.fp8_cast(x[:0], "row", "e4m3", True, True, False),
    "cast of three dimensions": lambda to: to.fp8_cast(x.view(4, 8, 256), "row", "e4m3", True, True, False),
    "static cast": lambda to: to.static_cast(x.view(4, 8, 256), one, count),
}


def told(call, to):
    try:
        made = call(to)
    except RuntimeError as error:
        return str(error).splitlines()[0]
    return [[list(each.shape), str(each.dtype), each.is_contiguous()] for each in (made if isinstance(made, tuple) else (made,))]


def resident():
    return int(open("/proc/self/statm").read().split()[1]) * 4096


def work():
    ops.block_gemm(large, one, w, rows, bias, count, one, True)
    ops.fp8_cast(large, "tensor", "e5m2", True, True, True)
    told(lambda to: to.block_tail(one), ops)


large = torch.zeros(4096, 256).bfloat16()
for _ in range(50):
    work()
before = resident()
for _ in range(300):
    work()
found = {name: [told(call, ops), told(call, torch.ops.loka)] for name, call in calls.items()}
print("\\n" + json.dumps({"why": why, "found": found, "grown": resident() - before}))
'''


def libloka():
    return next((path for path in native.candidates() if path.exists()), None)


@unittest.skipIf(libloka() is None, "no libloka.so: cargo build -p loka_capi")
class Registered(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(folder.cleanup)
        at = pathlib.Path(folder.name)
        # What the libraries have beyond the stand-ins of capi/tests.
        source = (ROOT / "capi/tests/stand_ins.c").read_text(encoding="utf-8")
        for file in ("driver.rs", "nvrtc.rs"):
            for line in (ROOT / "core/src/engine/cuda" / file).read_text(encoding="utf-8").splitlines():
                name = line.strip().removeprefix("fn ").partition("(")[0]
                if line.strip().startswith("fn cu") or line.strip().startswith("fn nvrtc"):
                    if name != "cubin" and f"int {name}(" not in source:
                        source += f"\nint {name}() {{ return 0; }}"
        (at / "stand_ins.c").write_text(source, encoding="utf-8")
        for name in ("libcuda.so.13", "libnvrtc.so.13"):
            # PyTorch has loaded the real libnvrtc of that name: whoever asks for it later gets this one.
            flags = ["-shared", "-fPIC", "-w", f"-Wl,-soname,{name}", "-o", str(at / name)]
            subprocess.run(["cc", *flags, str(at / "stand_ins.c")], check=True)
        where = {"LD_PRELOAD": str(at / "libnvrtc.so.13"), "LD_LIBRARY_PATH": str(at), "XDG_CACHE_HOME": str(at)}
        paths = os.pathsep.join([str(ROOT / "python"), os.environ.get("PYTHONPATH", "")])
        env = {**os.environ, **where, "PYTHONPATH": paths, "LOKA_LIBRARY": str(libloka())}
        ran = subprocess.run(
            [sys.executable, "-W", "ignore", "-c", CALLS, str(at)], env=env, capture_output=True, text=True, check=False
        )
        if ran.returncode != 0:
            raise AssertionError(ran.stdout[-2000:] + ran.stderr[-2000:])
        cls.told = json.loads(ran.stdout.strip().splitlines()[-1])
        cls.launches = ran.stdout

    def test_it_is_taken(self):
        self.assertIsNone(self.told["why"])

    def test_shapes_types_and_refusals_are_those_of_python(self):
        """On a CPU the same op is Python's: what comes back looks the same, and so do most refusals."""
        for name, (mine, pythons) in self.told["found"].items():
            with self.subTest(name):
                if isinstance(pythons, str):
                    self.assertIsInstance(mine, str)
                    self.assertEqual(mine.startswith("expected "), True, mine)
                    self.assertEqual(mine.rpartition(", not ")[2], pythons.rpartition(", not ")[2])
                else:
                    self.assertEqual(mine, pythons)

    def test_what_is_launched(self):
        for kernel in ("block_norm_hard_swish", "block_backward", "_gemm_fast_", "_gemm_static_", "_block_all_", "cast_e4m3_static"):
            self.assertIn(kernel, self.launches)

    def test_nothing_is_left_behind(self):
        """300 rounds of outputs of 11 MB, refused calls among them."""
        self.assertLess(self.told["grown"], 200 << 20)


if __name__ == "__main__":
    unittest.main()
