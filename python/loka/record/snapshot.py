"""Takes a recorder's statistics on the device; gives copies on the host that later steps do not change.

On CUDA the copies go to pinned memory on the current stream, after the step's work and before the next one's, and
nobody waits but the thread that writes.
"""

import dataclasses
from typing import Any, Dict, List, Optional, Set

import torch
from torch import Tensor

from loka.record.options import Options
from loka.record.site import SiteStats


class HostCopies:
    """Copies on their way to the host; whole after `wait()`."""

    def __init__(self) -> None:
        self._devices: Set[torch.device] = set()
        self._events: List[Any] = []

    def of(self, tensor: Tensor) -> Tensor:
        """A copy of `tensor` on the host."""
        tensor = tensor.detach()
        if tensor.device.type == "cpu":
            return tensor.clone()
        if tensor.device.type != "cuda":
            return tensor.cpu()
        copy = torch.empty(tensor.shape, dtype=tensor.dtype, pin_memory=True)
        copy.copy_(tensor, non_blocking=True)
        self._devices.add(tensor.device)
        return copy

    def seal(self) -> None:
        """Marks where on each device the copies end."""
        for device in self._devices:
            with torch.cuda.device(device):
                event = torch.cuda.Event()
                event.record()
                self._events.append(event)

    def wait(self) -> None:
        """Until all of them are there."""
        for event in self._events:
            event.synchronize()


@dataclasses.dataclass
class SiteCopy:
    """One site's manifest entry and statistics, on the host. `moments` by the trace's name of each tensor."""

    entry: Dict[str, Any]
    moments: Dict[str, Dict[str, Tensor]]
    cross: Dict[str, Tensor]
    """The state of a `Cross`, if there is one."""
    noise: Optional[Tensor]
    """The sums of a `Noise`; `missed`: see `SiteStats`."""
    magnitudes: Optional[Tensor]
    """The sums of a `Magnitudes`."""
    missed: int
    tensors: Dict[str, Tensor]
    """Those that go into the file as they are, without the site's name."""
    series: Dict[str, Tensor]


@dataclasses.dataclass
class Snapshot:
    """Everything of one save. `losses` `[steps, 2]`: sum and number of each recorded step's losses; `loss_weight`: how many times a log loss
    they are, where that is known and not once."""

    manifest: Dict[str, Any]
    sites: List[SiteCopy]
    steps: List[int]
    losses: Optional[Tensor]
    loss_weight: Optional[float]
    options: Options
    copies: HostCopies


def copy_site(
    stats: SiteStats, entry: Dict[str, Any], tensors: Dict[str, Tensor], series: Dict[str, Tensor], copies: HostCopies,
    steps: int,
) -> SiteCopy:  # fmt: skip
    """The site's copy; `tensors` and `series` as in `SiteCopy`, on the host already."""
    moments = {
        name: {part: copies.of(value) for part, value in state.items()} for name, state in stats.moments().items()
    }
    noise, magnitudes = stats.noises()
    samples = {f"sample.{name}": copies.of(rows) for name, rows in stats.samples.items()}
    own = {name: copies.of(track.values(steps)[:, 0]) for name, track in stats.tracks.items()}
    return SiteCopy(
        entry=entry,
        moments=moments,
        cross={part: copies.of(value) for part, value in stats.crossed().items()},
        noise=None if noise is None else copies.of(noise),
        magnitudes=None if magnitudes is None else copies.of(magnitudes),
        missed=stats.missed,
        tensors={**samples, **tensors},
        series={**own, **series},
    )


__all__ = ["HostCopies", "SiteCopy", "Snapshot", "copy_site"]
