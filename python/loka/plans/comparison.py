"""Takes a model that a plan is applied to and the loss of a batch; gives how far the plan's gradient is from BF16's.

Of the same parameters and the same batch, so that nothing but the kernels differs. Where a loss leaps under a plan, this says
whether FP8 made it: what is wrong in BF16's gradient too is the model's, its learning rate's or the batch's.
"""

import contextlib
import math
from dataclasses import dataclass
from typing import Callable, Dict, Iterator, List, Optional, Tuple

import torch
from torch import Tensor, nn

from ..kernels import Watch
from ..names import clean, unwrapped
from ..tables import html_table, text_table
from .canary import WATCH
from .error import PlanError, one_line
from .gemm_health import short
from .linear import LokaLinear, known_scales
from .parameters import linears
from .paused import is_paused, pause, resume
from .report import applied_to

SHOWN = 12
"""Parameters in the printed table; `rows` has all."""

HEAD = ("parameter", "norm", "in BF16", "apart", "share")


@dataclass(frozen=True)
class GradientRow:
    """The gradient of one parameter. L2 norms: by the plan, in BF16, and of what lies between them."""

    parameter: str
    norm: float
    reference_norm: float
    difference: float

    @property
    def apart(self) -> float:
        """The difference, relative to BF16's; 0 where both are zero."""
        return _relative(self.difference, self.reference_norm)


@dataclass(frozen=True)
class Comparison:
    """A step's loss and gradient by a plan and in BF16. `print` it. `rows`: a parameter each, what differs most first."""

    plan: str
    digest: str
    loss: float
    reference_loss: float
    rows: Tuple[GradientRow, ...]

    @property
    def norm(self) -> float:
        """L2 of the whole gradient by the plan."""
        return math.hypot(*(row.norm for row in self.rows))

    @property
    def reference_norm(self) -> float:
        """The same in BF16."""
        return math.hypot(*(row.reference_norm for row in self.rows))

    @property
    def apart(self) -> float:
        """L2 of the difference of both, relative to BF16's."""
        return _relative(math.hypot(*(row.difference for row in self.rows)), self.reference_norm)

    def __repr__(self) -> str:
        return f"Comparison(plan '{one_line(self.plan)}', gradients {_percent(self.apart)} apart; print it for the table)"

    def __str__(self) -> str:
        rows = [HEAD, *self._cells(SHOWN)]
        more = len(self.rows) - SHOWN
        rest = [f"and {more} more, which differ less"] if more > 0 else []
        return "\n".join([self._title(), *text_table(rows, numbers=range(1, 5)), *rest])

    def _repr_html_(self) -> str:
        return html_table(self._title(), HEAD, self._cells(len(self.rows)), numbers=range(1, 5))

    def _title(self) -> str:
        return (
            f"plan '{one_line(self.plan)}' {self.digest[:19]} against BF16: loss {self.loss:.6g} and"
            f" {self.reference_loss:.6g}, gradient {short(self.norm, 3)} and {short(self.reference_norm, 3)},"
            f" {_percent(self.apart)} apart"
        )

    def _cells(self, most: int) -> List[Tuple[str, ...]]:
        """`share`: of the whole difference, squared."""
        whole = sum(row.difference**2 for row in self.rows)
        return [
            (one_line(row.parameter), short(row.norm, 3), short(row.reference_norm, 3), _percent(row.apart),
             _percent(_relative(row.difference**2, whole)))
            for row in self.rows[:most]
        ]  # fmt: skip


def compare(model: nn.Module, loss: Callable[[], Tensor]) -> Comparison:
    """How far a plan's gradient is from BF16's, of the same parameters and batch.

        print(loka.compare(model, lambda: loss_of(model(x), target)))

    `loss` runs the forward, under your autocast, and gives what `backward` is called on: by GradScaler's scale, if you train with
    one. It is called twice, by the plan and in BF16, with the same random numbers. Afterwards all is as before: gradients,
    buffers, scales, the canary's sums and random numbers. It wants the memory of a gradient besides, and under
    torch.distributed every rank has to call it; shards are compared as each rank has them.

    Raises PlanError where no plan is applied, where the loss is no scalar of this model's, or no parameter gets a gradient."""
    inner = unwrapped(model)
    applied = applied_to(inner)
    paused = is_paused(inner)
    try:
        with _untouched(inner):
            resume(inner)
            by_plan, found = _gradients(inner, loss)
        with _untouched(inner):
            pause(inner)
            in_bf16, truth = _gradients(inner, loss)
    finally:
        (pause if paused else resume)(inner)
    if not truth:
        raise PlanError("no parameter of the model got a gradient: give compare() a loss of this model")
    rows = [_row(name, found.get(name), truth.get(name)) for name in {**truth, **found}]
    rows.sort(key=lambda row: -math.inf if math.isnan(row.difference) else -row.difference)
    return Comparison(applied.name, applied.digest, by_plan, in_bf16, tuple(rows))


def _gradients(model: nn.Module, loss: Callable[[], Tensor]) -> Tuple[float, Dict[str, Tensor]]:
    """The loss, and the gradient of every parameter that gets one."""
    value = loss()
    if not isinstance(value, Tensor) or value.numel() != 1 or not value.requires_grad:
        raise PlanError("loss() must give a tensor of one number that backward can be called on")
    value.backward()
    found = {clean(name): _local(parameter.grad) for name, parameter in model.named_parameters() if parameter.grad is not None}
    return float(value.detach()), found


def _local(grad: Tensor) -> Tensor:
    """Of a sharded gradient this rank's part; of a sparse one the sum of its rows."""
    to_local: Optional[Callable[[], Tensor]] = getattr(grad, "to_local", None)
    local = grad if to_local is None else to_local()
    return local.coalesce() if local.is_sparse else local


@contextlib.contextmanager
def _untouched(model: nn.Module) -> Iterator[None]:
    """Whatever a forward and a backward change besides the loss is put back."""
    grads = [(parameter, parameter.grad) for parameter in model.parameters()]
    values = [*model.buffers(), *_noted(model)]
    kept = [value.detach().clone() for value in values]
    devices = sorted({value.device.index or 0 for value in model.parameters() if value.is_cuda})
    for parameter, _ in grads:
        parameter.grad = None
    try:
        with torch.random.fork_rng(devices):
            yield
    finally:
        for parameter, grad in grads:
            parameter.grad = grad
        with torch.no_grad():
            for value, before in zip(values, kept):
                value.copy_(before)


def _noted(model: nn.Module) -> Iterator[Tensor]:
    """What the plan's kernels note of their operands, and the canary's sums: both are of the batches that steps are made of."""
    for _, module in linears(model):
        if isinstance(module, LokaLinear):
            watch: Optional[Watch] = module.__dict__.get(WATCH)
            yield from () if watch is None else watch.stats.values()
            for scale in known_scales(module):
                yield scale.amax
                yield scale.saturated


def _row(name: str, mine: Optional[Tensor], truth: Optional[Tensor]) -> GradientRow:
    """One that only either way has a gradient counts as zero the other way."""
    if mine is None or truth is None:
        norms = (_norm(mine), _norm(truth))
        return GradientRow(name, *norms, max(norms))
    return GradientRow(name, _norm(mine), _norm(truth), _norm(mine - truth))


def _norm(value: Optional[Tensor]) -> float:
    """In FP32 at least: sums of squares of FP16 overflow."""
    if value is None:
        return 0.0
    if value.is_sparse:
        value = value.coalesce().values()
    wide = torch.float64 if value.dtype == torch.float64 else torch.float32
    return float(torch.linalg.vector_norm(value.detach(), dtype=wide))


def _relative(part: float, whole: float) -> float:
    return part / whole if whole else (0.0 if part == 0 else math.inf)


def _percent(value: float) -> str:
    return f"{short(100 * value)} %" if math.isfinite(value) else "not finite"


__all__ = ["Comparison", "GradientRow", "compare"]
