"""Takes what one linear layer saw in a recorded step; gives that site's running statistics.

The input and the gradient of the output of one call come together, from that call's backward, so that every row of
one has its row in the other: for cross_cov, for held-out rows, and when a shared layer is called twice.
"""

import collections
import statistics
from typing import Callable, Counter, Dict, List, Mapping, Optional, Tuple

import torch
from torch import Tensor, nn

from loka.record import era
from loka.record.cross import Cross
from loka.record.era import Era
from loka.record.gradient_norm import GradientNorm
from loka.record.loss_weight import WIDEST, LossWeight
from loka.record.magnitudes import Magnitudes
from loka.record.moments import Batch, Moments, all_finite
from loka.record.noise import Noise
from loka.record.options import Options
from loka.record.track import Track
from loka.record.weights import is_sharded

_DTYPES = {torch.float32: "f32", torch.float64: "f32", torch.bfloat16: "bf16", torch.float16: "f16"}


class SiteStats:
    """The statistics of one site `y[m,n] = x[m,k] W[n,k]^T + bias[n]`, made at its first call on that call's device."""

    def __init__(self, name: str, module: Optional[nn.Module], options: Options, turn: int = 0) -> None:
        self.name = name
        self.turn = turn
        self.module = module
        self.options = options
        self.reads: Optional[Callable[[], List[Optional[Tensor]]]] = None
        """Weight and bias of a site that is no module but a function's product with a parameter."""
        self.by_function = ""
        self.input: Optional[Moments] = None
        self.grad: Optional[Moments] = None
        self.products: Optional[Cross] = None
        self.noise: Optional[Noise] = None
        self.gradient_norm: Optional[GradientNorm] = None
        self.magnitudes: Optional[Magnitudes] = None
        self.before: Optional[Era] = None
        """The sums of the steps before those of the five above, which are of the last ones alone (`era`)."""
        self.calls_this_era = 0
        self.samples: Dict[str, Tensor] = {}
        self.loss_weight: Optional[LossWeight] = None
        """Of what may be a head."""
        self.held_short: Optional[Tuple[int, int]] = None
        """Rows that are held out, and those of a call that had fewer than were asked for."""
        self.tracks: Dict[str, Track] = {}
        self.batches: Counter[int] = collections.Counter()
        self.dtype: Optional[str] = None
        self.examples = 1
        self.needs = 0
        self.calls_this_step = 0
        self.rows_this_step = 0
        self.examples_this_step = 0
        self.missed = 0
        """Examples of recorded steps before the first call: of a routed expert, say."""
        self.ran_unseen = False
        """Whether it ran in the step at hand before it was tapped, with examples that are not known to have missed it."""
        self.calls_a_forward = 1
        self._waiting: List[Tuple[Tensor, Tensor]] = []
        self._waiting_finite: Optional[Tensor] = None
        self._waiting_factor: Optional[Tensor] = None
        self.leading: Counter[Tuple[int, int]] = collections.Counter()
        """Calls by (their leading dimension, the examples of their forward)."""
        self.calls: Counter[int] = collections.Counter()
        """Recorded steps by the number of calls in them."""
        self.step_rows: Dict[int, int] = {}
        """Rows of each recorded step that called this."""

    @property
    def ran(self) -> bool:
        """Whether any call of it came by in a recorded step."""
        return self.input is not None

    def add(
        self, x: Tensor, grad: Optional[Tensor], index: int, scale: Tensor, examples: Optional[int] = None,
        needs: int = 0,
    ) -> None:  # fmt: skip
        """Takes in one call of recorded step `index`: `x` `[..., k]`, `grad` `[..., n]` of the same rows.

        `scale` `[1]` FP32: d total / d loss. Values are changed to per-example gradients by the number of `examples`
        that the loss is a mean over; not known, by the leading dimension of the call (of rows, when it has two)."""
        if x.numel() == 0 or (grad is not None and grad.numel() == 0):
            return
        leading = x.shape[0] if x.dim() > 1 else 1
        self.examples = leading if examples is None else examples
        self.leading[leading, self.examples] += 1
        self.needs |= needs
        whole_x, whole_grad = x, grad
        x = rows_of(x)
        grad = None if grad is None else rows_of(grad)
        self.dtype = _DTYPES.get((x if grad is None else grad).dtype, str(x.dtype))
        self.batches[len(x)] += 1
        self.rows_this_step += len(x)
        unit = torch.ones_like(scale)
        factor = unit if grad is None else self.options.per_example(self.examples) / scale
        self._make(x, grad)
        assert self.input is not None
        self.input.scan(x)
        if grad is not None and self.grad is not None:
            self.grad.scan(grad)
        # One answer for both: skipping only one would part rows that belong together.
        finite = all_finite(factor, self.input, None if grad is None else self.grad)
        if whole_grad is not None:
            self._noise(whole_x, whole_grad, factor, finite, index)
            assert grad is not None and self.magnitudes is not None, "made with the noise"
            self.magnitudes.add(x, grad, factor, finite, index)
            self._weigh_loss(x, grad, factor)
        x, grad = self._hold_out(x, grad, factor, finite)
        mine = self._take(self.input, "input_amax", x, unit, finite, index)
        if grad is not None and self.grad is not None:
            other = self._take(self.grad, "grad_amax", grad, factor, finite, index)
            if self.products is not None:
                self.products.add(mine, other)
        self.calls_this_step += 1
        self.calls_this_era += 1

    def end_step(self, index: int, examples: int) -> None:
        """The end of recorded step `index`, of so many examples in all."""
        self._flush(index)
        missed = 0 if self.ran_unseen else examples - self.examples_this_step
        self.ran_unseen = False
        if missed > 0 and self.noise is not None:
            self.noise.absent(missed)
        elif missed > 0:
            self.missed += missed
        if self.calls_this_step:
            self.calls[self.calls_this_step] += 1
            self.step_rows[index] = self.rows_this_step
        self.calls_this_step = self.rows_this_step = self.examples_this_step = 0
        # Of a routed expert there may be nothing yet that the earlier rows could make way for.
        if self.options.history == "recent" and era.begins(index + 1) and self.calls_this_era:
            if self.before is not None:
                # Forgotten with the steps that they were of.
                self.missed = 0
            self.before = self._era()
            after = self.before.next()
            self.input, self.grad, self.products = after.input, after.grad, after.products
            self.noise, self.magnitudes = after.noise, after.magnitudes
            self.calls_this_era = 0

    def _era(self) -> Era:
        return Era(self.input, self.grad, self.products, self.noise, self.magnitudes)

    def moments(self) -> Dict[str, Dict[str, Tensor]]:
        """The state of `input` and `grad_output`, as far as they are there, as it is saved: `Moments.state`."""
        before = self.before or Era()
        found = {"input": (before.input, self.input), "grad_output": (before.grad, self.grad)}
        return {name: era.moments(old, new) for name, (old, new) in found.items() if new is not None}

    def crossed(self) -> Dict[str, Tensor]:
        """The state of their products; nothing where there are none."""
        return era.products(self.before, self._era())

    def noises(self) -> Tuple[Optional[Tensor], Optional[Tensor]]:
        """The sums of the noise, and of the magnitudes."""
        if self.noise is None or self.magnitudes is None:
            return None, None
        before = self.before
        if before is None or before.noise is None or before.magnitudes is None:
            return self.noise.sums, self.magnitudes.sums
        return before.noise.sums + self.noise.sums, before.magnitudes.sums + self.magnitudes.sums

    @property
    def routed(self) -> bool:
        """Whether the leading dimension changes in another way than the number of examples does."""
        return len({leading * 1_000_000 // max(examples, 1) for leading, examples in self.leading}) > 1

    def rows_of_a_call(self) -> int:
        """The most common number, if half of the calls have it (all but a last batch that is smaller, say); of equally common ones
        the largest, so that ranks agree. Else the rows change from call to call (a routed expert, histories padded to the longest of
        their batch), and this is their median."""
        usual = max(self.batches, key=lambda size: (self.batches[size], size))
        if self.routed or 2 * self.batches[usual] < self.batches.total():
            return statistics.median_high(self.batches.elements())
        return usual

    def examples_of_a_forward(self) -> int:
        """The most common number; of equally common ones the largest."""
        counts: Counter[int] = collections.Counter()
        for (_, examples), calls in self.leading.items():
            counts[examples] += calls
        return max(counts, key=lambda size: (counts[size], size)) if counts else 1

    def calls_a_step(self) -> int:
        """The median over recorded steps that have any."""
        return statistics.median_high(self.calls.elements()) if self.calls else 1

    @property
    def cross(self) -> Optional[Tensor]:
        """Sums of gradient by input `[n, k]`, centred, where these are kept whole."""
        return None if self.products is None else self.products.state.get("whole")

    def _noise(self, x: Tensor, grad: Tensor, factor: Tensor, finite: Tensor, index: int) -> None:
        if self.noise is None:
            self.noise = Noise(x.device, self.options.rows)
            self.magnitudes = Magnitudes(x.device, self.options.rows)
            self.gradient_norm = GradientNorm(x.device, self.options.seed)
            self.tracks.update(self.gradient_norm.tracks)
        if self.calls_a_forward == 1:
            self._weigh([(x, grad)], factor, finite, index)
            return
        # Their examples are the same: kept until the last call of this forward is there.
        self._waiting.append((x.detach(), grad.detach()))
        before = self._waiting_finite
        self._waiting_finite = finite if before is None else before & finite
        self._waiting_factor = factor
        if len(self._waiting) >= self.calls_a_forward:
            self._flush(index)

    def _flush(self, index: int) -> None:
        if self._waiting:
            factor, finite = self._waiting_factor, self._waiting_finite
            assert factor is not None and finite is not None, "they came with what waits"
            self._weigh(self._waiting, factor, finite, index)
        self._waiting, self._waiting_finite = [], None

    def _weigh(self, pairs: List[Tuple[Tensor, Tensor]], factor: Tensor, finite: Tensor, index: int) -> None:
        """The noise and the size of the weight's gradient of one forward."""
        assert self.noise is not None and self.gradient_norm is not None, "made before anything waits"
        squares = self.noise.add(pairs, self.examples, factor, finite)
        self.gradient_norm.add(pairs, self.examples, squares, factor, finite, index)
        self.examples_this_step += self.examples

    def _weigh_loss(self, x: Tensor, grad: Tensor, factor: Tensor) -> None:
        if grad.shape[1] > WIDEST:
            return
        weight, bias = (getattr(self.module, name, None) for name in ("weight", "bias"))
        if not isinstance(weight, Tensor) or is_sharded(weight) or weight.device != x.device:
            return
        if weight.shape == (grad.shape[1], x.shape[1]):
            self.loss_weight = self.loss_weight or LossWeight()
            self.loss_weight.add(x, grad, factor, weight, bias)

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
            n, k = grad.shape[1], x.shape[1]
            rank = 0 if self.options.crossed(n, k) else self.options.cross_rank
            if rank or self.options.crossed(n, k):
                self.products = Cross(n, k, rank, self.options.seed, self.input.wide, x.device)

    def _take(self, moments: Moments, series: str, rows: Tensor, factor: Tensor, finite: Tensor, index: int) -> Batch:
        some = self._some(rows, index)
        batch = moments.add(some, factor, finite)
        # Sorting costs most: after the first step the sites take turns.
        if not moments.sorted or (index + self.turn) % self.options.quantile_every == 0:
            moments.add_quantiles(some, factor, finite)
        moments.finish(len(some), factor, finite, self.tracks[series].row(index))
        return batch

    def _some(self, rows: Tensor, index: int) -> Tensor:
        """At most `rows` of them, evenly spread, starting elsewhere at each recorded step."""
        limit = self.options.rows
        stride = max(len(rows) // limit, 1)
        return rows[index % stride :: stride][:limit]

    def _hold_out(
        self, x: Tensor, grad: Optional[Tensor], factor: Tensor, finite: Tensor
    ) -> Tuple[Tensor, Optional[Tensor]]:
        """Keeps the first rows of the latest call apart from the statistics, which they are to test: never as many as
        are left, and never fewer than are kept already."""
        if not self.options.held_out or grad is None:
            return x, grad
        held = min(self.options.held_out, max(len(x) - 2, 0) // 2)
        known = len(self.samples.get("input", ()))
        if held < self.options.held_out:
            self.held_short = (max(held, known), len(x))
        if held == 0 or held < known:
            return x, grad
        for name, rows in (("input", x[:held].float()), ("grad_output", grad[:held].float() * factor)):
            if len(self.samples.get(name, ())) != held:
                self.samples[name] = torch.full_like(rows, torch.nan)
            self.samples[name] = torch.where(finite, rows, self.samples[name])
        return x[held:], grad[held:]


def rows_of(values: Tensor) -> Tensor:
    """`[rows, features]` of a call's values."""
    values = values.detach()
    return values if values.dim() == 2 else values.reshape(-1, values.shape[-1])


__all__ = ["SiteStats", "rows_of"]
