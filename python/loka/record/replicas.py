"""Takes the weights of a rank that records; gives which rank's file is to have them, where several hold the same.

Under DDP every rank has all weights, and one file of a run is enough for them. Nobody says so, though: a rank may as
well hold experts or slices of its own as plain parameters. So the ranks compare, at each save: the first one that
records leaves a digest of its weights' largest values, which no order of summation changes, in the process group's
store, and another leaves its weights out as long as it has the same. Of a sharded weight it is the ranks that hold its
shards: they are of one tensor. Through the store, not a collective: a rank that never comes must not hold up the others.
"""

import hashlib
import time
from typing import List, Optional, Sequence, Tuple

import torch
import torch.distributed as dist
from torch import Tensor

from loka.record import run_id
from loka.record.weights import holders, is_sharded, magnitudes

PATIENCE_S = 10.0
"""How long a rank waits at its first save for the first one's digest, which comes in the same step where ranks keep
step. Then it writes weights of its own, from then on."""

LATER_S = 1.0
"""The same at a later save, which may be due by a rank's own clock: then what was found out before stands."""


def digest(step: int, weights: Sequence[Tuple[str, Optional[Tensor]]]) -> str:
    """Of the names, shapes and largest absolute values of `weights`, after `step` steps. Waits for the device."""
    found = magnitudes([None if weight is None or is_sharded(weight) else weight for _, weight in weights], torch.inf)
    values: List[float] = [] if found is None else found.tolist()
    shapes = [(name, None if weight is None else (tuple(weight.shape), holders(weight))) for name, weight in weights]
    return hashlib.sha256(repr((step, shapes, [value.hex() for value in values])).encode()).hexdigest()


class Replicas:
    """Whether this rank's weights are those of `first`, the first of the ranks that record."""

    def __init__(self, run: str, model: str, first: int) -> None:
        self.first = first
        self._mine = run_id.place()[0] == first
        self._keys = f"loka/weights/{run}/{model}"
        self._known: Optional[bool] = None

    def elsewhere(self, step: int, weights: Sequence[Tuple[str, Optional[Tensor]]], patient: bool) -> bool:
        """Whether the first rank's file has these weights, so that this one's need not. Asked at each save, after
        `step` steps. Not `patient`: whoever is not first does not wait."""
        if self._known is False and not self._mine:
            # What once differed is the rank's own.
            return False
        wait_s = PATIENCE_S if self._known is None else LATER_S
        found = self._compare(step, digest(step, weights), wait_s if patient else 0.0)
        if found is not None or self._known is None:
            self._known = bool(found)
        return self._known

    def _compare(self, step: int, mine: str, wait_s: float) -> Optional[bool]:
        """Whether they are the same; None: the first rank has left nothing of that step."""
        key = f"{self._keys}/{step}"
        try:
            store = dist.distributed_c10d._get_default_store()
            if self._mine:
                store.set(key, mine)
                return False
            until = time.monotonic() + wait_s
            # Looked for again and again: a store that waits answers nobody else of this process meanwhile.
            while not store.check([key]):
                if time.monotonic() >= until:
                    return None
                time.sleep(0.005)
            return store.get(key).decode() == mine
        except Exception:  # A store that cannot be asked: the file is whole with weights.
            return None


__all__ = ["LATER_S", "PATIENCE_S", "Replicas", "digest"]
