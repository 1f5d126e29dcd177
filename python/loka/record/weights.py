"""Takes weights as they change; gives what a trace keeps of them: the last snapshot, a matrix normal, or a low rank.

Matrix normal (LoKA, section III-A): vec(W) ~ N(vec(Mean), V (x) U), updated at each recorded step with a moving
average of momentum m. With W_c = W - Mean: U' = W_c V^-1 W_c^T / k, V' = W_c^T U^-1 W_c / n, by Cholesky factors and
triangular solves of V + eI and U + eI; then U is scaled to a mean diagonal of one and V takes the scale.
"""

from typing import Any, Dict, List, Optional, Sequence

import torch
from torch import Tensor

from loka.record.sketch import test_matrix

_EPSILON = 1e-6


class MatrixNormal:
    """`MN(mean [n,k], row_cov [n,n], col_cov [k,k])` of one weight, in FP32 on its device (FP64 on the CPU)."""

    def __init__(self, momentum: float) -> None:
        self.momentum = momentum
        self.updates = 0
        self.mean: Optional[Tensor] = None
        self.row: Optional[Tensor] = None
        self.col: Optional[Tensor] = None

    def update(self, weight: Tensor) -> None:
        """Takes in the weight `[n, k]` after a step."""
        weight = weight.detach().to(torch.float64 if weight.device.type == "cpu" else torch.float32)
        if self.mean is None or self.row is None or self.col is None:
            n, k = weight.shape
            options: Any = {"dtype": weight.dtype, "device": weight.device}
            self.mean = weight.clone()
            self.row, self.col = torch.eye(n, **options), torch.eye(k, **options)
            return
        self.updates += 1
        centred = weight - self.mean
        # While few were seen their plain average: the first guess, an identity, is forgotten at once.
        keep = min(self.momentum, (self.updates - 1) / self.updates)
        self.row = _moved(self.row, _given(centred, self.col), keep)
        self.col = _moved(self.col, _given(centred.T, self.row), keep)
        scale = self.row.diagonal().mean().clamp(min=torch.finfo(weight.dtype).tiny)
        self.row, self.col = self.row / scale, self.col * scale
        self.mean = torch.lerp(weight, self.mean, self.momentum)

    def state(self) -> Dict[str, Tensor]:
        """The trace's tensors of this weight, once there were two."""
        if self.updates == 0 or self.mean is None or self.row is None or self.col is None:
            return {}
        return {"weight.mean": self.mean, "weight.row_cov": self.row, "weight.col_cov": self.col}


def _given(centred: Tensor, other: Tensor) -> Tensor:
    """`centred other^-1 centred^T` over the columns: `[rows, rows]`."""
    floor = torch.eye(len(other), dtype=other.dtype, device=other.device)
    tiny = torch.finfo(other.dtype).tiny
    lower, _ = torch.linalg.cholesky_ex(other + (_EPSILON * other.diagonal().mean()).clamp(min=tiny) * floor)
    whitened = torch.linalg.solve_triangular(lower, centred.T, upper=False)
    return whitened.T @ whitened / centred.shape[1]


def _moved(old: Tensor, new: Tensor, keep: float) -> Tensor:
    moved = keep * old + (1.0 - keep) * new
    moved = 0.5 * (moved + moved.T)
    moved.diagonal().add_(_EPSILON * moved.diagonal().mean())
    return moved


def low_rank(weight: Tensor, rank: int, oversample: int, seed: int) -> Dict[str, Tensor]:
    """A weight `[n, k]` as a matrix normal of some `2 rank (n + k)` bytes: its leading `rank` singular pairs in BF16 as
    the mean, and what they leave as independent values, of the variance of its row times that of its column.

    The singular pairs come from a randomized range finder with two power iterations (Halko, Martinsson, Tropp 2011,
    algorithm 4.4)."""
    n, k = weight.shape
    weight = weight.float()
    width = min(rank + oversample, n, k)
    basis = torch.linalg.qr(weight @ test_matrix(k, width, seed).float()).Q
    for _ in range(2):
        basis = torch.linalg.qr(weight @ torch.linalg.qr(weight.T @ basis).Q).Q
    inner, values, right = torch.linalg.svd(basis.T @ weight, full_matrices=False)
    root = values[:rank].sqrt()
    left = ((basis @ inner)[:, :rank] * root).bfloat16()
    right = (right[:rank].T * root).bfloat16()
    rest = (weight - left.float() @ right.float().T).square_()
    row, col = rest.mean(1), rest.mean(0)
    # E rest^2 = row col / mean: the rows take the scale, so that theirs has a mean of one.
    row = row / row.mean().clamp(min=torch.finfo(row.dtype).tiny)
    return {
        "weight.mean_left": left,
        "weight.mean_right": right,
        "weight.row_cov_diag": row,
        "weight.col_cov_diag": col,
    }


def is_sharded(parameter: Tensor) -> bool:
    """Whether this rank holds a part of it only (DTensor)."""
    return hasattr(parameter, "full_tensor")


def holders(parameter: Tensor) -> Optional[List[int]]:
    """The ranks that hold its shards; None of one that is whole."""
    mesh: Any = getattr(parameter, "device_mesh", None)
    return None if mesh is None else sorted(mesh.mesh.flatten().tolist())


def whole(parameter: Tensor) -> Tensor:
    """The parameter, gathered from all ranks if it is sharded: then all ranks must call this."""
    detached: Any = parameter.detach()
    return detached.full_tensor() if is_sharded(parameter) else detached


def local(parameter: Tensor) -> Tensor:
    """This rank's part of it."""
    detached: Any = parameter.detach()
    return detached.to_local() if is_sharded(parameter) else detached


def magnitudes(parameters: Sequence[Optional[Tensor]], order: float) -> Optional[Tensor]:
    """The norm of each, `[len]` FP32 on the first one's device; -1 where there is none. None if there are none.

    One launch for all. `order`: 2, or infinity for the largest absolute value; of a sharded one this rank's."""
    present = [(i, local(each)) for i, each in enumerate(parameters) if each is not None and local(each).numel()]
    if not present:
        return None
    device = present[0][1].device
    norms: List[Tensor] = [torch.full((), -1.0, device=device)] * len(parameters)
    for (i, _), norm in zip(present, torch._foreach_norm([each for _, each in present], order, torch.float32)):
        norms[i] = norm.to(device)
    return torch.stack(norms)


__all__ = ["MatrixNormal", "holders", "is_sharded", "local", "low_rank", "magnitudes", "whole"]
