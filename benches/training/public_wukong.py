"""Takes a public shape of Wukong; gives the interaction stack alone: random embeddings (B, n, dim) in, logits (B,) out.

The shapes are those of arXiv 2403.02545's ladder. Per layer X' = LN(concat(FMB(X), LCB(X)) + X), with
FMB = MLP(LN(flatten(X X^T Y))) and LCB = W_L X; the residual is projected where the number of tokens changes.
"""

from dataclasses import dataclass
from typing import Dict

import torch
from torch import Tensor, nn

from models import ModelConfig, make_act, make_norm


@dataclass(frozen=True)
class PublicShape:
    """`tokens` x `dim` in; per layer `n_fmb` + `n_lcb` tokens out; the FMB's MLP is `depth` x `hidden`."""

    layers: int
    n_fmb: int
    n_lcb: int
    k: int
    hidden: int
    batch: int = 6144
    depth: int = 3
    tokens: int = 128
    dim: int = 160


PUBLIC_SHAPES: Dict[str, PublicShape] = {
    "2.1G": PublicShape(layers=8, n_fmb=32, n_lcb=32, k=24, hidden=2048),
    "5.6G": PublicShape(layers=8, n_fmb=48, n_lcb=48, k=48, hidden=4096),
    "tiny": PublicShape(layers=2, n_fmb=4, n_lcb=4, k=8, hidden=64, batch=64, depth=2, tokens=16, dim=16),
}
"""By GFLOP an example, forward; `tiny` is for trying things on a CPU."""


class PublicFmb(nn.Module):
    """(B, n, dim) -> (B, n_fmb, dim)."""

    def __init__(self, shape: PublicShape, n: int, config: ModelConfig) -> None:
        super().__init__()
        self.n_out = shape.n_fmb
        self.project = nn.Parameter(torch.randn(n, shape.k) * n**-0.5)
        self.norm = make_norm(config, n * shape.k)
        width, parts = n * shape.k, []
        for _ in range(shape.depth):
            parts.append(nn.Linear(width, shape.hidden, bias=config.bias))
            parts += [make_norm(config, shape.hidden), make_act(config)]
            width = shape.hidden
        parts.append(nn.Linear(width, shape.n_fmb * shape.dim, bias=config.bias))
        self.mlp = nn.Sequential(*parts)

    def forward(self, x: Tensor) -> Tensor:
        products = x @ (x.transpose(1, 2) @ self.project)
        return self.mlp(self.norm(products.flatten(1))).view(-1, self.n_out, x.shape[2])


class PublicLayer(nn.Module):
    """(B, n, dim) -> (B, n_fmb + n_lcb, dim)."""

    def __init__(self, shape: PublicShape, n: int, config: ModelConfig) -> None:
        super().__init__()
        n_out = shape.n_fmb + shape.n_lcb
        self.fmb = PublicFmb(shape, n, config)
        self.lcb = nn.Parameter(torch.randn(shape.n_lcb, n) * n**-0.5)
        self.residual = nn.Parameter(torch.randn(n_out, n) * n**-0.5) if n != n_out else None
        self.norm = make_norm(config, shape.dim)

    def forward(self, x: Tensor) -> Tensor:
        mixed = torch.cat([self.fmb(x), self.lcb @ x], 1)
        return self.norm(mixed + (x if self.residual is None else self.residual @ x))


class PublicWukong(nn.Module):
    """The stack and its top MLP; with `mods`, the three Mods are built in."""

    def __init__(self, shape: PublicShape, mods: bool = False) -> None:
        super().__init__()
        config = ModelConfig(norm="block", act="hswish", bias=False) if mods else ModelConfig()
        n, layers = shape.tokens, []
        for _ in range(shape.layers):
            layers.append(PublicLayer(shape, n, config))
            n = shape.n_fmb + shape.n_lcb
        self.layers = nn.Sequential(*layers)
        self.top = nn.Sequential(nn.Linear(n * shape.dim, 512), nn.ReLU(), nn.Linear(512, 1))

    def forward(self, x: Tensor) -> Tensor:
        return self.top(self.layers(x).flatten(1)).squeeze(1)
