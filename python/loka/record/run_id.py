"""Takes this process's place among the ranks; gives rank, world size and an id of the run that all ranks share."""

import datetime
import itertools
import uuid
from typing import Optional, Tuple

import torch.distributed as dist

_PATIENCE = datetime.timedelta(seconds=60)
_recorders = itertools.count()


def place() -> Tuple[int, int]:
    """(rank, world size) of torch.distributed, or (0, 1)."""
    if dist.is_available() and dist.is_initialized():
        return dist.get_rank(), dist.get_world_size()
    return 0, 1


def shared_id() -> Tuple[str, Optional[str]]:
    """A random id that rank 0 makes and the others are told, and what went wrong with that, if anything.

    Through the process group's store, not a collective: a recorder on one rank alone must not wait for the others."""
    mine = uuid.uuid4().hex[:12]
    rank, world = place()
    key = f"loka/run/{next(_recorders)}"
    if world == 1:
        return mine, None
    try:
        store = dist.distributed_c10d._get_default_store()
        if rank == 0:
            store.set(key, mine)
            return mine, None
        store.wait([key], _PATIENCE)
        return store.get(key).decode(), None
    except Exception as error:
        return mine, f"the ranks have no run id in common, give run_id: {type(error).__name__}: {error}"


__all__ = ["place", "shared_id"]
