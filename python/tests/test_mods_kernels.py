"""BlockNorm's Triton kernels in Triton's interpreter, on the CPU, against FP64. Needs Triton, no GPU."""

import pathlib
import sys
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))

from triton_support import interpreted, needs_triton

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
    @needs_triton
    def test_both_directions(self):
        interpreted(self, SCRIPT, "agreed")


if __name__ == "__main__":
    unittest.main()
