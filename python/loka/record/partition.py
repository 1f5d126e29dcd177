"""Keeps compilers from cutting recorded steps into several CUDA graphs, as long as a recorder is attached.

Under `mode="reduce-overhead"`, PyTorch (2.11, seen on an H200) cuts a graph at our operator and makes a CUDA graph of
each piece; in the backward a later piece then reads what an earlier one's memory was given up for, and training stops
with "accessing tensor output of CUDAGraphs that has been overwritten". Uncut, a graph with the operator runs without
CUDA graphs, in recorded steps alone.
"""

import threading
from typing import Any

import torch

_lock = threading.Lock()
_attached = 0
_before: Any = None


def forbid() -> None:
    """While one recorder or more is attached; each call wants one `allow`."""
    global _attached, _before
    with _lock:
        _attached += 1
        config = _config()
        if _attached == 1 and config is not None:
            _before, config.graph_partition = config.graph_partition, False


def allow() -> None:
    """As it was before the first `forbid`, once the last recorder is detached."""
    global _attached
    with _lock:
        _attached -= 1
        config = _config()
        if _attached == 0 and config is not None:
            config.graph_partition = _before


def _config() -> Any:
    """Inductor's settings; None where there is nothing to cut: no GPU, or a PyTorch that never cuts."""
    if not torch.cuda.is_available():
        return None
    from torch._inductor import config

    return config if hasattr(config, "graph_partition") else None


__all__ = ["allow", "forbid"]
