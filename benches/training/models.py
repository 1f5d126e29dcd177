"""Takes a name and sizes; gives a click model: Wukong, a DHEN / DCNv2 ensemble, an InterFormer-like model.

Every dense product is an nn.Linear, norms and activations are plain modules, so that recorders, Mods and plans find
them. `norm`, `act` and `bias` build the modified model outright; `loka.mods.apply` makes the same of the plain one.
All linears have dims that are multiples of 16, but the head of width 1.
Forward: dense (B, inputs) f32, ids (B, tables) i64, past (B, T) i64 -> logits (B,).
"""

from dataclasses import dataclass
from typing import Dict, List, Type

import torch
from torch import Tensor, nn
from torch.nn import functional

BLOCK = 256
"""BlockNorm's width; a narrower layer is one block."""


@dataclass(frozen=True)
class ModelConfig:
    """Sizes of a click model. `tables`, `rows`, `inputs` and `past` come from the data."""

    family: str = "wukong"
    tables: int = 20
    rows: int = 8192
    inputs: int = 16
    past: int = 0
    dim: int = 32
    layers: int = 4
    hidden: int = 512
    norm: str = "ln"
    act: str = "swish"
    bias: bool = True


class BlockNorm(nn.Module):
    """(..., width) -> the same, each block of features over its root mean square; no gain."""

    def __init__(self, width: int, block: int = BLOCK) -> None:
        super().__init__()
        self.block = block if width % block == 0 else width

    def forward(self, x: Tensor) -> Tensor:
        blocks = x.reshape(-1, self.block)
        return functional.rms_norm(blocks, (self.block,), eps=1e-6).view(x.shape)


def make_norm(config: ModelConfig, width: int) -> nn.Module:
    """LayerNorm, or its Mod."""
    return nn.LayerNorm(width) if config.norm == "ln" else BlockNorm(width)


def make_act(config: ModelConfig) -> nn.Module:
    """Swish, or its Mod."""
    return nn.SiLU() if config.act == "swish" else nn.Hardswish()


def mlp(config: ModelConfig, widths: List[int]) -> nn.Sequential:
    """Linears with norm and activation after all but the last."""
    parts: List[nn.Module] = []
    for index, (width_in, width_out) in enumerate(zip(widths, widths[1:])):
        parts.append(nn.Linear(width_in, width_out, bias=config.bias))
        if index + 2 < len(widths):
            parts += [make_norm(config, width_out), make_act(config)]
    return nn.Sequential(*parts)


class Tokens(nn.Module):
    """Embeddings of the ids and a bottom MLP's view of the dense inputs: (B, tables + extra, dim)."""

    def __init__(self, config: ModelConfig, extra: int) -> None:
        super().__init__()
        self.dim, self.extra = config.dim, extra
        self.table = nn.Embedding(config.tables * config.rows, config.dim)
        nn.init.normal_(self.table.weight, std=config.dim**-0.5)
        self.register_buffer("offsets", torch.arange(config.tables) * config.rows, persistent=False)
        self.bottom = mlp(config, [config.inputs, config.hidden, extra * config.dim])

    def forward(self, dense: Tensor, ids: Tensor) -> Tensor:
        bottom = self.bottom(dense).view(-1, self.extra, self.dim)
        return torch.cat([self.table(ids + self.offsets), bottom], 1)


class Fmb(nn.Module):
    """Wukong's factorisation machine block: an MLP over X X^T Y. (B, n, dim) -> (B, n_out, dim)."""

    def __init__(self, config: ModelConfig, n: int, k: int, n_out: int) -> None:
        super().__init__()
        self.project = nn.Parameter(torch.randn(n, k) * n**-0.5)
        self.norm = make_norm(config, n * k)
        self.mlp = mlp(config, [n * k, config.hidden, config.hidden, n_out * config.dim])

    def forward(self, x: Tensor) -> Tensor:
        products = x @ (x.transpose(1, 2) @ self.project)
        return self.mlp(self.norm(products.flatten(1))).view(x.shape[0], -1, x.shape[2])


class WukongLayer(nn.Module):
    """LN(concat(FMB, LCB) + X); the residual is projected where the number of tokens changes."""

    def __init__(self, config: ModelConfig, n: int, k: int, n_fmb: int, n_lcb: int) -> None:
        super().__init__()
        self.fmb = Fmb(config, n, k, n_fmb)
        self.lcb = nn.Parameter(torch.randn(n_lcb, n) * n**-0.5)
        same = n == n_fmb + n_lcb
        self.residual = None if same else nn.Parameter(torch.randn(n_fmb + n_lcb, n) * n**-0.5)
        self.norm = make_norm(config, config.dim)

    def forward(self, x: Tensor) -> Tensor:
        mixed = torch.cat([self.fmb(x), self.lcb @ x], 1)
        return self.norm(mixed + (x if self.residual is None else self.residual @ x))


class Wukong(nn.Module):
    """arXiv 2403.02545 at a small size: 24 tokens of 32, then 16 a layer."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.tokens = Tokens(config, 4)
        n, layers = config.tables + 4, []
        for _ in range(config.layers):
            layers.append(WukongLayer(config, n, 16, 8, 8))
            n = 16
        self.layers = nn.Sequential(*layers)
        self.top = nn.Sequential(nn.Linear(n * config.dim, config.hidden, bias=config.bias), make_act(config))
        self.head = nn.Linear(config.hidden, 1)

    def forward(self, dense: Tensor, ids: Tensor, past: Tensor) -> Tensor:
        del past
        return self.head(self.top(self.layers(self.tokens(dense, ids)).flatten(1))).squeeze(1)


class DhenLayer(nn.Module):
    """An ensemble of a DCNv2 cross, an MLP and a linear compression over tokens: summed, residual, norm."""

    def __init__(self, config: ModelConfig, n: int) -> None:
        super().__init__()
        width = n * config.dim
        self.n = n
        self.cross = nn.Linear(width, width, bias=config.bias)
        self.deep = mlp(config, [width, config.hidden, width])
        self.lcb = nn.Linear(n, n, bias=config.bias)
        self.norm = make_norm(config, width)

    def forward(self, first: Tensor, x: Tensor) -> Tensor:
        tokens = x.view(x.shape[0], self.n, -1)
        compressed = self.lcb(tokens.transpose(1, 2)).transpose(1, 2).flatten(1)
        return self.norm(x + first * self.cross(x) + self.deep(x) + compressed)


class Dhen(nn.Module):
    """arXiv 2203.11014 with DCNv2 (2008.13535) crosses; the dense inputs come raw through the bottom MLP."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        extra = -config.tables % 16 or 4
        n = config.tables + extra
        self.tokens = Tokens(config, extra)
        self.start = make_norm(config, n * config.dim)
        self.layers = nn.ModuleList(DhenLayer(config, n) for _ in range(config.layers))
        self.top = mlp(config, [n * config.dim, config.hidden, config.hidden])
        self.head = nn.Linear(config.hidden, 1)

    def forward(self, dense: Tensor, ids: Tensor, past: Tensor) -> Tensor:
        del past
        first = x = self.start(self.tokens(dense, ids).flatten(1))
        for layer in self.layers:
            x = layer(first, x)
        return self.head(functional.relu(self.top(x))).squeeze(1)


class Attention(nn.Module):
    """Self-attention over past items, (B, T, dim) -> the same; four heads, each projection a linear."""

    def __init__(self, config: ModelConfig, heads: int = 4) -> None:
        super().__init__()
        self.heads = heads
        self.q, self.k, self.v, self.out = (nn.Linear(config.dim, config.dim, bias=config.bias) for _ in range(4))

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = (part(x).unflatten(2, (self.heads, -1)).transpose(1, 2) for part in (self.q, self.k, self.v))
        scores = torch.softmax(q @ k.transpose(2, 3) * q.shape[3] ** -0.5, 3)
        return self.out((scores @ v).transpose(1, 2).flatten(2))


class InterFormerLayer(nn.Module):
    """One exchange: the sequence attends under a gate from the tokens, the tokens interact with its summary."""

    def __init__(self, config: ModelConfig, n: int) -> None:
        super().__init__()
        width = n * config.dim
        self.gate = nn.Linear(width, config.dim, bias=config.bias)
        self.attention = Attention(config)
        self.norm_attention = make_norm(config, config.dim)
        self.feed = mlp(config, [config.dim, 2 * config.dim, config.dim])
        self.norm_sequence = make_norm(config, config.dim)
        self.interact = mlp(config, [width + config.dim, config.hidden, width])
        self.norm_tokens = make_norm(config, width)

    def forward(self, tokens: Tensor, sequence: Tensor, candidate: Tensor) -> "tuple[Tensor, Tensor]":
        gated = sequence * torch.sigmoid(self.gate(tokens)).unsqueeze(1)
        sequence = self.norm_attention(sequence + self.attention(gated))
        sequence = self.norm_sequence(sequence + self.feed(sequence))
        near = torch.softmax((sequence @ candidate.unsqueeze(2)) * candidate.shape[1] ** -0.5, 1)
        summary = (near * sequence).sum(1)
        tokens = self.norm_tokens(tokens + self.interact(torch.cat([tokens, summary], 1)))
        return tokens, sequence


class InterFormer(nn.Module):
    """After arXiv 2411.09852: past items and the other features learn from each other, layer by layer."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        n = config.tables + 4
        self.tokens = Tokens(config, 4)
        self.position = nn.Parameter(torch.randn(config.past, config.dim) * config.dim**-0.5)
        self.start = make_norm(config, n * config.dim)
        self.layers = nn.ModuleList(InterFormerLayer(config, n) for _ in range(config.layers))
        self.top = nn.Sequential(nn.Linear(n * config.dim, config.hidden, bias=config.bias), make_act(config))
        self.head = nn.Linear(config.hidden, 1)

    def forward(self, dense: Tensor, ids: Tensor, past: Tensor) -> Tensor:
        tokens = self.tokens(dense, ids)
        candidate = tokens[:, 0]
        sequence = self.tokens.table(past) + self.position
        x = self.start(tokens.flatten(1))
        for layer in self.layers:
            x, sequence = layer(x, sequence, candidate)
        return self.head(self.top(x)).squeeze(1)


FAMILIES: Dict[str, Type[nn.Module]] = {"wukong": Wukong, "dhen": Dhen, "interformer": InterFormer}


def build(config: ModelConfig, seed: int) -> nn.Module:
    """A model on the CPU whose parameters depend on the seed and the sizes alone."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return FAMILIES[config.family](config)
