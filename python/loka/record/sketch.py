"""Takes exact or sketched scatter matrices; gives covariances as factor and diagonal, in FP64.

A covariance of many features is never formed: its scatter S is known by Y = S Omega alone, with a fixed random
Omega of few columns (single-pass Nystrom: Tropp, Yurtsever, Udell, Cevher 2017, algorithm 3). What the factor
leaves of each variance, which is known exactly, becomes the diagonal.
"""

import functools
from typing import Tuple

import torch
from torch import Tensor


@functools.lru_cache(maxsize=64)
def test_matrix(features: int, width: int, seed: int) -> Tensor:
    """Omega `[features, width]`, FP64 with orthonormal columns: the same on every rank and device, for any
    recorder with this seed, so that a sketch can be finished by whoever has it."""
    generator = torch.Generator().manual_seed(seed * 1_000_003 + features)
    omega = torch.randn(features, width, generator=generator, dtype=torch.float64)
    return torch.linalg.qr(omega).Q


def from_sketch(sketch: Tensor, omega: Tensor, variance: Tensor, rank: int, eps: float) -> Tuple[Tensor, Tensor]:
    """Factor `[k, rank]` and diagonal `[k]` of a covariance.

    `sketch` `[k, width]`: the covariance times `omega`; `variance` `[k]`: its diagonal. `eps`: relative rounding
    of the sketch as it was accumulated. The shift by `nu` keeps the small matrix positive under that rounding,
    and is taken from the eigenvalues again.
    """
    sketch, variance = sketch.double(), variance.double()
    scale = float(torch.linalg.matrix_norm(sketch))
    if scale == 0.0:
        return sketch.new_zeros(len(sketch), rank), variance.clamp(min=0.0)
    nu = eps * scale * len(sketch) ** 0.5
    shifted = sketch + nu * omega
    core = omega.T @ shifted
    values, vectors = torch.linalg.eigh(0.5 * (core + core.T))
    # Directions that rounding has emptied would divide by nothing.
    kept = values > values[-1].clamp(min=0.0) * 1e-13
    half = shifted @ (vectors[:, kept] * values[kept].rsqrt())
    left, singular, _ = torch.linalg.svd(half, full_matrices=False)
    eigenvalues = (singular.square() - nu).clamp(min=0.0)
    return _with_diagonal(left, eigenvalues, variance, rank)


def from_covariance(cov: Tensor, rank: int) -> Tuple[Tensor, Tensor]:
    """Factor `[k, rank]` and diagonal `[k]` of a covariance `[k, k]`: its leading eigenvectors."""
    cov = cov.double()
    values, vectors = torch.linalg.eigh(0.5 * (cov + cov.T))
    return _with_diagonal(vectors.flip(1), values.flip(0).clamp(min=0.0), cov.diagonal(), rank)


def _with_diagonal(vectors: Tensor, values: Tensor, variance: Tensor, rank: int) -> Tuple[Tensor, Tensor]:
    factor = vectors[:, :rank] * values[:rank].sqrt()
    if factor.shape[1] < rank:
        factor = torch.nn.functional.pad(factor, (0, rank - factor.shape[1]))
    explained = factor.square().sum(1)
    # A sketch can explain more of a feature than it varies: then its row is shrunk, the variance is what is known.
    over = (variance.clamp(min=0.0) / explained.clamp(min=1e-300)).clamp(max=1.0).sqrt()
    factor = factor * over[:, None]
    return factor, (variance - factor.square().sum(1)).clamp(min=0.0)


__all__ = ["from_covariance", "from_sketch", "test_matrix"]
