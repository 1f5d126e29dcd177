"""Takes a site's inputs and output gradients of one forward; gives the noise of its weight's gradient.

G_i = the gradient of example i's own loss by the weight, zero where the example does not come here. Kept are E |G_i|^2
and |E G_i|^2, so that a batch of B has tr Cov(G) = (E |G_i|^2 - |E G_i|^2) / B. No G_i is formed unless that is less
work: |sum_r g_r x_r^T|^2 = sum_rs (g_r . g_s)(x_r . x_s).
"""

from typing import Dict, Sequence, Tuple

import torch
from torch import Tensor

from loka.record.moments import full_precision

EXAMPLES, SQUARES, PAIRS, PAIR_EXAMPLES = range(4)
"""Places in `Noise.sums`: examples; sum of |G_i|^2; sum of examples times the unbiased |E G|^2 of their forward, and
the examples of those forwards (a forward of one example has no pairs)."""

_LARGEST = 1 << 24
"""Values of a temporary, at most: products of a wide site are taken in pieces."""


class Noise:
    """The running sums of one site on one device."""

    def __init__(self, device: torch.device, rows: int) -> None:
        self.sums = torch.zeros(4, dtype=torch.float64, device=device)
        self.rows = rows
        self.unit = "example"

    def fresh(self) -> "Noise":
        """The same without examples."""
        made = Noise(self.sums.device, self.rows)
        made.unit = self.unit
        return made

    def add(self, pairs: Sequence[Tuple[Tensor, Tensor]], examples: int, factor: Tensor, finite: Tensor) -> Tensor:
        """Takes in the calls `(x [..., k], g [..., n])` of one forward of `examples` examples; g times `factor` is
        per example. Gives sum_i |G_i|^2 of them, without the factor."""
        units = [(_units(x), _units(grad)) for x, grad in pairs]
        whole = all(len(x) == examples for x, _ in units)
        if whole and len(units) > 1:
            # A module that is called several times: each example's gradient is the sum of its calls'.
            units = [(torch.cat([x for x, _ in units], 1), torch.cat([grad for _, grad in units], 1))]
        if not whole:
            self.unit = "row"
        counted = [self._squares(x, grad) for x, grad in units]
        squares = torch.stack([square for square, _ in counted]).sum()
        pairs_of = torch.stack([pair for _, pair in counted]).sum()
        if self.sums.device.type == "cpu":
            # The host decides, and adds: nothing is waited for there.
            if finite:
                known = float(factor) ** 2
                self.sums[EXAMPLES] += examples
                self.sums[SQUARES] += squares * known
                if examples > 1:
                    self.sums[PAIRS] += pairs_of * (known / (examples - 1))
                    self.sums[PAIR_EXAMPLES] += examples
            return squares
        scale = factor.double().square().reshape(()) * finite.double().reshape(())
        some = finite.double().reshape(())
        added = [some * examples, squares * scale]
        if examples > 1:
            # Sums over pairs of different units, over all pairs of different examples. Units of two calls that are
            # not known to be the same examples are taken as different ones, and left out of the pairs.
            added += [pairs_of * scale / (examples - 1), some * examples]
        else:
            added += [torch.zeros_like(some)] * 2
        self.sums += torch.where(finite.reshape(()), torch.stack(added), 0.0)
        return squares

    def absent(self, examples: int) -> None:
        """Examples of a step that did not come here."""
        self.sums[EXAMPLES] += examples
        self.sums[PAIR_EXAMPLES] += examples

    def _squares(self, x: Tensor, grad: Tensor) -> Tuple[Tensor, Tensor]:
        """sum_u |G_u|^2 and sum_{u != v} <G_u, G_v> over all units of `[units, rows, features]`, from a part of them
        where there are more rows than `rows`."""
        units, per = x.shape[:2]
        limit = max(self.rows // max(per, 1), 2)
        stride = max(units // limit, 1)
        x, grad = x[::stride][:limit].float(), grad[::stride][:limit].float()
        used = len(x)
        with full_precision():
            own = _each(x, grad)
            total = _all(x.flatten(0, 1), grad.flatten(0, 1))
        pairs = (total - own) * (units * (units - 1) / (used * (used - 1))) if used > 1 else torch.zeros_like(own)
        return own * (units / used), pairs


def _units(rows: Tensor) -> Tensor:
    """`[units, rows of each, features]`."""
    rows = rows.detach()
    if rows.dim() == 1:
        return rows[None, None]
    return rows[:, None] if rows.dim() == 2 else rows.flatten(1, -2)


def _each(x: Tensor, grad: Tensor) -> Tensor:
    """sum_u |grad_u^T x_u|_F^2."""
    units, per, k = x.shape
    n = grad.shape[-1]
    if per == 1:
        return (x.square().sum((1, 2)) * grad.square().sum((1, 2))).sum().double()
    gram = per * (n + k) <= n * k
    step = max(_LARGEST // (per * per if gram else n * k), 1)
    found = x.new_zeros((), dtype=torch.float64)
    for start in range(0, units, step):
        a, b = x[start : start + step], grad[start : start + step]
        if gram:
            found += ((a @ a.mT) * (b @ b.mT)).sum().double()
        else:
            found += (b.mT @ a).square().sum().double()
    return found


def _all(x: Tensor, grad: Tensor) -> Tensor:
    """|grad^T x|_F^2 over all rows."""
    (rows, k), n = x.shape, grad.shape[-1]
    if rows * (n + k) <= n * k:
        return ((x @ x.T) * (grad @ grad.T)).sum().double()
    step = max(_LARGEST // max(k, 1), 1)
    found = x.new_zeros((), dtype=torch.float64)
    for start in range(0, n, step):
        found += (grad[:, start : start + step].T @ x).square().sum().double()
    return found


def tensors(sums: Tensor, missed: int) -> Dict[str, Tensor]:
    """The trace's tensors, from `sums` and the examples that came before the site's first call."""
    count, pair_count = float(sums[EXAMPLES]) + missed, float(sums[PAIR_EXAMPLES]) + missed
    # Not finite: rows so large that their products are past FP32's range.
    if float(sums[EXAMPLES]) < 1 or float(sums[PAIR_EXAMPLES]) < 1 or not bool(torch.isfinite(sums).all()):
        return {}
    return {
        "noise.count": torch.tensor([round(count)]),
        "noise.xg2": sums[SQUARES : SQUARES + 1] / count,
        "noise.mean2": sums[PAIRS : PAIRS + 1] / pair_count,
    }


__all__ = ["EXAMPLES", "Noise", "PAIRS", "SQUARES", "tensors"]
