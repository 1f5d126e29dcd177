"""Takes what one linear layer saw in a recorded step; gives that site's running statistics.

The input and the gradient of the output of one call come together, from that call's backward, so that every row of
one has its row in the other: for cross_cov, for held-out rows, and when a shared layer is called twice.
"""

import collections
from typing import Counter, Dict, Mapping, Optional, Tuple

import torch
from torch import Tensor, nn

from loka.record.moments import Batch, Moments, all_finite, full_precision
from loka.record.options import Options
from loka.record.track import Track

_DTYPES = {torch.float32: "f32", torch.float64: "f32", torch.bfloat16: "bf16", torch.float16: "f16"}


class SiteStats:
    """The statistics of one site `y[m,n] = x[m,k] W[n,k]^T + bias[n]`, made at its first call on that call's device."""

    def __init__(self, name: str, module: Optional[nn.Module], options: Options, turn: int = 0) -> None:
        self.name = name
        self.turn = turn
        self.module = module
        self.options = options
        self.input: Optional[Moments] = None
        self.grad: Optional[Moments] = None
        self.cross: Optional[Tensor] = None
        self.samples: Dict[str, Tensor] = {}
        self.tracks: Dict[str, Track] = {}
        self.batches: Counter[int] = collections.Counter()
        self.dtype: Optional[str] = None
        self.examples = 1
        self.calls_this_step = 0

    def add(self, x: Tensor, grad: Optional[Tensor], index: int, scale: Tensor) -> None:
        """Takes in one call of recorded step `index`: `x` `[..., k]`, `grad` `[..., n]` of the same rows.

        `scale` `[1]` FP32: d total / d loss. Values are changed to per-example gradients by the number of examples,
        the leading dimension of the call (of rows, when it has two)."""
        if x.numel() == 0 or (grad is not None and grad.numel() == 0):
            return
        self.examples = x.shape[0] if x.dim() > 1 else 1
        x = _rows(x)
        grad = None if grad is None else _rows(grad)
        self.dtype = _DTYPES.get((x if grad is None else grad).dtype, str(x.dtype))
        self.batches[len(x)] += 1
        unit = torch.ones_like(scale)
        factor = unit if grad is None else self.options.per_example(self.examples) / scale
        self._make(x, grad)
        assert self.input is not None
        self.input.scan(x)
        if grad is not None and self.grad is not None:
            self.grad.scan(grad)
        # One answer for both: skipping only one would part rows that belong together.
        finite = all_finite(factor, self.input, None if grad is None else self.grad)
        x, grad = self._hold_out(x, grad, factor, finite)
        mine = self._take(self.input, "input_amax", x, unit, finite, index)
        if grad is not None and self.grad is not None:
            other = self._take(self.grad, "grad_amax", grad, factor, finite, index)
            self._cross(mine, other)
        self.calls_this_step += 1

    def misfit(self, tensors: Mapping[str, Tensor]) -> Optional[str]:
        """Why what was seen is not of a linear with the weight among `tensors`, if so."""
        weight = tensors.get("weight", tensors.get("weight.mean"))
        if weight is None or weight.dim() != 2:
            return "its weight is not there as a matrix"
        n, k = weight.shape
        assert self.input is not None, "it ran"
        outputs = n if self.grad is None else self.grad.features
        if (outputs, self.input.features) != (n, k):
            return f"its weight is [{n}, {k}], but it read {self.input.features} features and gave {outputs}"
        return None

    def _make(self, x: Tensor, grad: Optional[Tensor]) -> None:
        if self.input is None:
            self.input = Moments(x.shape[1], self.options, x.device)
            self.tracks["input_amax"] = Track(1, x.device)
        if grad is not None and self.grad is None:
            self.grad = Moments(grad.shape[1], self.options, x.device)
            self.tracks["grad_amax"] = Track(1, x.device)
            if self.options.crossed(grad.shape[1], x.shape[1]):
                self.cross = torch.zeros(grad.shape[1], x.shape[1], dtype=self.input.wide, device=x.device)

    def _take(self, moments: Moments, series: str, rows: Tensor, factor: Tensor, finite: Tensor, index: int) -> Batch:
        some = self._some(rows, index)
        batch = moments.add(some, factor, finite)
        if self._sorts(index):
            moments.add_quantiles(some, factor, finite)
        moments.finish(len(some), factor, finite, self.tracks[series].row(index))
        return batch

    def _some(self, rows: Tensor, index: int) -> Tensor:
        """At most `rows` of them, evenly spread, starting elsewhere at each recorded step."""
        limit = self.options.rows
        stride = max(len(rows) // limit, 1)
        return rows[index % stride :: stride][:limit]

    def _sorts(self, index: int) -> bool:
        """Sorting costs most: after the first step the sites take turns."""
        return index == 0 or (index + self.turn) % self.options.quantile_every == 0

    def _cross(self, mine: Batch, other: Batch) -> None:
        if self.cross is None:
            return
        with full_precision():
            self.cross.addmm_(other.z[:-1].T, mine.z[:-1])
        self.cross.addcmul_(other.correction[:, None], mine.z[-1:], value=-1.0)

    def _hold_out(self, x: Tensor, grad: Optional[Tensor], factor: Tensor, finite: Tensor) -> Tuple[Tensor, Optional[Tensor]]:
        """Keeps the first rows of the latest call apart from the statistics, which they are to test."""
        held = self.options.held_out
        if not held or grad is None or len(x) < 2 * held + 2:
            return x, grad
        for name, rows in (("input", x[:held].float()), ("grad_output", grad[:held].float() * factor)):
            if name not in self.samples:
                self.samples[name] = torch.full_like(rows, torch.nan)
            self.samples[name] = torch.where(finite, rows, self.samples[name])
        return x[held:], grad[held:]


def _rows(values: Tensor) -> Tensor:
    values = values.detach()
    return values if values.dim() == 2 else values.reshape(-1, values.shape[-1])


__all__ = ["SiteStats"]
