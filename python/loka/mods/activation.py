"""Hard swish: takes x, gives x ReLU6(x + 3) / 6 in place of x sigmoid(x) (LoKA §IV-C)."""

import torch
from torch import nn


class HardSwish(nn.Module):
    """One operation in eager mode already, forward and backward, computed in FP32 for 16-bit types."""

    loka_op = {"op": "hard_swish"}

    def __init__(self, inplace: bool = False):
        super().__init__()
        self.inplace = inplace

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return nn.functional.hardswish(x, self.inplace)

    def extra_repr(self) -> str:
        return "inplace=True" if self.inplace else ""


__all__ = ["HardSwish"]
