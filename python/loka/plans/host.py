"""Takes a model that a plan was applied to; where the GPU waits for its host, finds out in real steps whether the plan is
slower than BF16 there, and has the model run in BF16 then.

A plan's times are the GPU's. A host that launches more slowly than the GPU works gains nothing by faster GEMMs, and pays
for each launch that the plan adds: one that promised 1.1x made steps .72x as fast (docs/engineering/training.md).
"""

import weakref
from dataclasses import replace
from typing import Callable, List, Optional

import torch
import torch.distributed as dist
from torch import nn
from torch.optim import Optimizer

from ..kernels import Switch
from ..lag import BOUND
from ..names import unwrapped
from ..steps import Steps
from ..weakly import weakly
from .linear import LokaLinear, holds
from .pace import Pace
from .parameters import linears
from .paused import is_paused, pause, resume
from .report import RECORD, record_of
from .trial import Times, Trial, timing_event
from .warned import say

WORDS = ("bf16", "warn")
"""What to do about a slow host."""

SLOWER = 1.01
"""A plan whose steps take so many times what BF16's take loses. Less is noise."""

REMEDY = (
    "Capture the step in CUDA graphs, as torch.compile(..., mode='reduce-overhead') does: there the plan pays by its GPU time"
)


class HostWatch:
    """Looks at the steps of one model."""

    def __init__(self, model: nn.Module, do: str) -> None:
        self.do = do
        self.notes: List[str] = []
        self._model = weakref.ref(model)
        self._steps = Steps(1, Switch(), weakly(self._owns), weakly(self._ended))
        self._pace = Pace(self._steps, weakly(self._on_gpu), weakly(self._waits))
        self._trial: Optional[Trial] = None
        self._event = timing_event
        self._room: Callable[[torch.device], bool] = has_room
        self._steps.start()
        self._pace.start()
        weakref.finalize(self, _stop, self._steps, self._pace).atexit = False

    def stop(self) -> None:
        """Nothing is looked at from here on. A plan that is being tried goes on."""
        _stop(self._steps, self._pace)
        model = self._model()
        if self._trial is not None and model is not None:
            self._trial = None
            resume(model)

    def end_step(self) -> None:
        """The end of a step, by hand."""
        self._steps.end()

    def _routed(self) -> List[LokaLinear]:
        model = self._model()
        found = [] if model is None else [module for _, module in linears(model)]
        return [module for module in found if isinstance(module, LokaLinear)]

    def _owns(self, optimizer: Optimizer) -> bool:
        return holds(optimizer, self._routed())

    def _on_gpu(self) -> bool:
        return self._device() is not None

    def _device(self) -> Optional[torch.device]:
        devices = (module.weight.device for module in self._routed() if module.weight is not None)
        return next((device for device in devices if device.type == "cuda"), None)

    def _ended(self, _recorded: bool) -> None:
        if self._trial is None:
            self._pace.end_step()
            return
        times = self._trial.end_step()
        if times is not None:
            self._trial = None
            self._decide(times)

    def _waits(self, share: float) -> None:
        """The GPU had caught up with the host in that share of some steps."""
        if share < BOUND:
            return
        # Whatever comes of it is found once: it costs steps, and BF16 may wait for its host as well.
        self._pace.stop()
        device = self._device()
        if self.do == "bf16" and device is not None:
            if self._room(device):
                self._trial = Trial(self._turned, self._event)
                return
            self._tell(
                "the GPU waits for the host in most steps, and there is no memory to try whether BF16 is faster: faster GEMMs gain "
                f"nothing there. {REMEDY}"
            )
            return
        self._tell(f"the GPU waits for the host in most steps: faster GEMMs gain nothing there. {REMEDY}")

    def _turned(self, in_bf16: bool) -> None:
        model = self._model()
        if model is not None:
            (pause if in_bf16 else resume)(model)

    def _decide(self, times: Times) -> None:
        """After the last turn, which was in BF16."""
        model = self._model()
        if model is None:
            return
        self._steps.stop()
        if times.plan <= times.bf16 * SLOWER:
            resume(model)
            if times.bf16 <= times.plan * SLOWER:
                self._tell(f"the GPU waits for the host in most steps, and the plan gains nothing there ({times}). {REMEDY}")
            else:
                self.notes.append(f"the GPU waits for the host in most steps; the plan is faster all the same: {times}")
            return
        applied = record_of(model)
        if applied is not None:
            setattr(model, RECORD, replace(applied, slower=f"in BF16 since step {self._steps.finished}: slow host, {times}"))
        self._tell(
            f"this host launches more slowly than the GPU works, and the plan makes steps slower ({times}): the model runs in "
            f"BF16 from here on (on_slow_host='warn' keeps the plan). {REMEDY}"
        )

    def _tell(self, text: str) -> None:
        self.notes.append(text)
        if not (dist.is_available() and dist.is_initialized()) or dist.get_rank() == 0:
            say(text)


def has_room(device: torch.device) -> bool:
    """Whether BF16 surely fits where the plan does: what a step has beyond what lies there between steps may double, since
    FP8 keeps half of what BF16 keeps for the backward."""
    between, most = torch.cuda.memory_allocated(device), torch.cuda.max_memory_allocated(device)
    free, _ = torch.cuda.mem_get_info(device)
    return between + 2 * (most - between) <= free + torch.cuda.memory_reserved(device)


def _stop(steps: Steps, pace: Pace) -> None:
    steps.stop()
    pace.stop()


_watched: "weakref.WeakKeyDictionary[nn.Module, HostWatch]" = weakref.WeakKeyDictionary()


def watch_host(model: nn.Module, do: str) -> None:
    """From now on a slow host is found out. A model that is looked at already, in this way, stays as it is; one that came
    out of a file or a copy in BF16 runs by its plan again: this host was not tried."""
    model = unwrapped(model)
    there = _watched.get(model)
    if there is not None and there.do == do:
        return
    leave_host(model)
    if is_paused(model):
        applied = record_of(model)
        if applied is not None:
            setattr(model, RECORD, replace(applied, slower=""))
        resume(model)
    # The model may come to the GPU later; where there is none, there is nothing to look at.
    if torch.cuda.is_available() and any(isinstance(module, LokaLinear) for _, module in linears(model)):
        _watched[model] = HostWatch(model, do)


def leave_host(model: nn.Module) -> None:
    """The host is looked at no more. What was decided stays."""
    found = _watched.pop(unwrapped(model), None)
    if found is not None:
        found.stop()


def host_watch(model: nn.Module) -> Optional[HostWatch]:
    """What looks at the host; None where nothing does."""
    return _watched.get(unwrapped(model))


__all__ = ["BOUND", "HostWatch", "REMEDY", "SLOWER", "WORDS", "has_room", "host_watch", "leave_host", "watch_host"]
