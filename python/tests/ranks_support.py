"""What tests of several ranks share: a process that is one of them, from the group's beginning to the process's end."""

import contextlib
import os
import sys
from typing import Iterator

import torch
import torch.distributed as dist


@contextlib.contextmanager
def joined(rank: int, folder: object, world: int, backend: str = "gloo") -> Iterator[torch.device]:
    """In the process group of `world` ranks that meet in the folder; gives the device of this rank, which is the current one. Without an
    error the process ends behind it, once all ranks are there."""
    device = torch.device("cuda", rank) if backend == "nccl" else torch.device("cpu")
    if device.type == "cuda":
        torch.cuda.set_device(device)
    dist.init_process_group(backend, init_method=f"file://{folder}/rendezvous", rank=rank, world_size=world)
    try:
        yield device
        dist.barrier()
        sys.stdout.flush()
        sys.stderr.flush()
        # Not through Python's own end: gloo's threads may still run then, and abort the process.
        os._exit(0)
    finally:
        dist.destroy_process_group()
