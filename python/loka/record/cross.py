"""Takes the centred rows of a site's calls; gives the covariance of output gradient with input, whole or in low rank.

In low rank it is never formed: C `[n, k]` is known by C Omega and Psi^T C alone, with fixed random Omega `[k, s]` and
Psi `[n, l]` (Tropp, Yurtsever, Udell, Cevher 2017, "Practical sketching algorithms for low-rank matrix approximation",
algorithm 4). Where the whole matrix is no larger than the two, it is kept, and cut to the rank when it is stored.
"""

from typing import Any, Dict

import torch
from torch import Tensor

from loka.record.moments import Batch, full_precision
from loka.record.sketch import test_matrix


class Cross:
    """The running sums over rows of `grad [n]` x `input [k]`, centred as the rows are."""

    def __init__(self, n: int, k: int, rank: int, seed: int, dtype: torch.dtype, device: torch.device) -> None:
        options: Any = {"dtype": dtype, "device": device}
        self._made_of = (n, k, rank, seed, dtype, device)
        width, height = min(2 * rank + 1, k), min(4 * rank + 3, n)
        self.whole = rank == 0 or n * k <= n * width + k * height
        if self.whole:
            self.state: Dict[str, Tensor] = {"whole": torch.zeros(n, k, **options)}
            return
        self.omega = test_matrix(k, width, seed).to(**options)
        self.psi = test_matrix(n, height, seed + 1).to(**options)
        self.state = {"right": torch.zeros(n, width, **options), "left": torch.zeros(height, k, **options)}

    def fresh(self) -> "Cross":
        """The same without rows."""
        return Cross(*self._made_of)

    def of_one(self, grad: Tensor, x: Tensor) -> Dict[str, Tensor]:
        """The state of `grad [n]` by `x [k]` alone."""
        column, row = grad[:, None], x[None, :]
        with full_precision():
            if self.whole:
                return {"whole": column @ row}
            return {"right": column @ (row @ self.omega), "left": (self.psi.T @ column) @ row}

    def add(self, mine: Batch, other: Batch) -> None:
        """Takes in one call's rows of the input, `mine`, and of the gradient, `other`."""
        x, xbar, grad, correction = mine.z[:-1], mine.z[-1:], other.z[:-1], other.correction[:, None]
        with full_precision():
            if self.whole:
                self.state["whole"].addmm_(grad.T, x).addcmul_(correction, xbar, value=-1.0)
                return
            self.state["right"].addmm_(grad.T, x @ self.omega).addcmul_(correction, xbar @ self.omega, value=-1.0)
            self.state["left"].addmm_((grad @ self.psi).T, x).addcmul_(self.psi.T @ correction, xbar, value=-1.0)


def factors(state: Dict[str, Tensor], rank: int, seed: int) -> Dict[str, Tensor]:
    """Left `[n, r]` and right `[k, r]` of the sum, in FP64: its leading singular pairs."""
    if "whole" in state:
        left, values, right = torch.linalg.svd(state["whole"].double(), full_matrices=False)
    else:
        sketch, coarse = state["right"].double(), state["left"].double()
        psi = test_matrix(len(sketch), len(coarse), seed + 1)
        basis = torch.linalg.qr(sketch).Q
        core = torch.linalg.pinv(psi.T @ basis) @ coarse
        inner, values, right = torch.linalg.svd(core, full_matrices=False)
        left = basis @ inner
    root = values[:rank].sqrt()
    return {"cross_cov_left": left[:, :rank] * root, "cross_cov_right": right[:rank].T * root}


__all__ = ["Cross", "factors"]
