"""Takes a tensor that a model keeps as long as it lives; tells torch.compile so."""

import torch
from torch import Tensor


def still(tensor: Tensor) -> Tensor:
    """The same, in one place for good: CUDA graphs of torch.compile may keep its address. Its sizes never change: under
    dynamic=True one that is the batch's as well would be taken for it."""
    torch._dynamo.mark_static_address(tensor, guard=False)
    torch._dynamo.mark_static(tensor)
    return tensor


__all__ = ["still"]
