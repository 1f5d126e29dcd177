"""BlockNorm's Triton kernels in Triton's interpreter, on the CPU, against FP64. Needs Triton, no GPU."""

import importlib.util
import os
import pathlib
import subprocess
import sys
import unittest

PYTHON = pathlib.Path(__file__).resolve().parents[1]

SCRIPT = """
import torch
from loka.mods import kernels

def reference(x, grad, block, eps, hard_swish):
    x = x.double().requires_grad_()
    groups = x.view(-1, block)
    y = (groups / (groups.square().mean(1, keepdim=True) + eps).sqrt()).view(x.shape)
    y = torch.nn.functional.hardswish(y) if hard_swish else y
    y.backward(grad.double())
    return y.detach(), x.grad

torch.manual_seed(0)
# Blocks that fill a program and one that is ragged; more blocks than a program takes, and an odd number of them.
for shape, block in (((7, 512), 256), ((3, 2, 300), 300), ((35, 96), 32)):
    # The interpreter cuts BF16 where a GPU rounds: twice the error.
    for dtype, tolerance in ((torch.float32, 2e-5), (torch.float16, 2**-11), (torch.bfloat16, 2**-7)):
        for hard_swish in (False, True):
            x, grad = (torch.randn(shape) * 3).to(dtype), torch.randn(shape).to(dtype)
            out, grad_input = torch.full_like(x, float("nan")), torch.full_like(x, float("nan"))
            kernels.forward(x, out, block, 1e-3, hard_swish)
            kernels.backward(x, grad, grad_input, block, 1e-3, hard_swish)
            for found, expected in zip((out, grad_input), reference(x, grad, block, 1e-3, hard_swish)):
                error = ((found.double() - expected).abs() / (expected.abs() + 1e-2)).max().item()
                assert error <= tolerance * 1.01, (shape, block, dtype, hard_swish, error)
print("agreed")
"""


class Kernels(unittest.TestCase):
    @unittest.skipUnless(importlib.util.find_spec("triton"), "no Triton")
    def test_both_directions(self):
        # In a process of its own: what it sets changes how Triton reads every kernel.
        path = os.pathsep.join([str(PYTHON), os.environ.get("PYTHONPATH", "")]).rstrip(os.pathsep)
        environment = {**os.environ, "PYTHONPATH": path, "TRITON_INTERPRET": "1"}
        ended = subprocess.run([sys.executable, "-c", SCRIPT], env=environment, capture_output=True, text=True)
        self.assertEqual(ended.stdout.strip(), "agreed", ended.stderr)


if __name__ == "__main__":
    unittest.main()
