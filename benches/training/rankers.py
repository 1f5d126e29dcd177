"""Takes a name; gives a ranker and the clicks that it learns from: the four models of `end_to_end.py`.

Every ranker is embeddings of the clicks (`embed`) and a dense part (`stack`) that ends in one logit an example; the
linears of the stack are what a plan is about. `small` has the same structure at tens of features, for a CPU.
"""

from dataclasses import dataclass, replace
from typing import Callable, Dict, List, Tuple

import torch
from torch import Tensor, nn

from clicks import ClickConfig
from public_wukong import PUBLIC_SHAPES, PublicShape, PublicWukong

PARAMETERS = ("fp32", "bf16")
"""FP32 parameters under BF16 autocast, or BF16 parameters. Embedding tables are FP32 in both."""


class Tables(nn.Module):
    """ids (B, tables) -> (B, tables, dim), all tables in one parameter."""

    def __init__(self, data: ClickConfig, dim: int) -> None:
        super().__init__()
        self.weight = nn.Embedding(data.tables * data.rows, dim)
        nn.init.normal_(self.weight.weight, std=dim**-0.5)
        self.register_buffer("offsets", torch.arange(data.tables) * data.rows, persistent=False)

    def forward(self, ids: Tensor) -> Tensor:
        return self.weight(ids + self.offsets)


class FlatEmbeddings(nn.Module):
    """(dense, ids) -> the dense inputs as they are, and (B, tables, dim)."""

    def __init__(self, data: ClickConfig, dim: int) -> None:
        super().__init__()
        self.tables = Tables(data, dim)

    def forward(self, dense: Tensor, ids: Tensor) -> Tuple[Tensor, ...]:
        return dense, self.tables(ids)


class TokenEmbeddings(nn.Module):
    """(dense, ids) -> (B, tokens, dim): several tokens an id, and one a dense feature, its value times a vector."""

    def __init__(self, data: ClickConfig, tokens: int, dim: int) -> None:
        super().__init__()
        self.dim, self.per_id = dim, (tokens - data.dense) // data.tables
        if self.per_id * data.tables + data.dense != tokens:
            raise ValueError(f"{data.tables} ids and {data.dense} dense features do not make {tokens} tokens")
        self.tables = Tables(data, self.per_id * dim)
        nn.init.normal_(self.tables.weight.weight)
        self.directions = nn.Parameter(torch.randn(data.dense, dim))

    def forward(self, dense: Tensor, ids: Tensor) -> Tuple[Tensor, ...]:
        tokens = self.tables(ids).view(dense.shape[0], -1, self.dim)
        return (torch.cat([tokens, dense.unsqueeze(2) * self.directions], 1),)


@dataclass(frozen=True)
class DcnShape:
    """Widths of the DCNv2 ranker. The input of the crosses is `tables` x `dim` and the bottom MLP's last."""

    dim: int = 128
    bottom: Tuple[int, ...] = (13, 512, 256)
    rank: int = 512
    crosses: int = 3
    tower: Tuple[int, ...] = (4096, 4096, 2048)


class Cross(nn.Module):
    """A low-rank cross layer: x0 * u(v(x)) + x."""

    def __init__(self, width: int, rank: int) -> None:
        super().__init__()
        self.v = nn.Linear(width, rank, bias=False)
        self.u = nn.Linear(rank, width)

    def forward(self, first: Tensor, x: Tensor) -> Tensor:
        return first * self.u(self.v(x)) + x


class Dcn(nn.Module):
    """DCNv2 (2008.13535), crosses then tower: dense (B, 13), embeddings (B, tables, dim) -> (B,)."""

    def __init__(self, shape: DcnShape, tables: int) -> None:
        super().__init__()
        self.bottom = nn.Sequential(*activated(shape.bottom, nn.SiLU, norm=False))
        width = tables * shape.dim + shape.bottom[-1]
        self.crosses = nn.ModuleList(Cross(width, shape.rank) for _ in range(shape.crosses))
        self.tower = nn.Sequential(*activated((width, *shape.tower), nn.SiLU, norm=True))
        self.head = nn.Linear(shape.tower[-1], 1)

    def forward(self, dense: Tensor, embeddings: Tensor) -> Tensor:
        first = x = torch.cat([embeddings.flatten(1), self.bottom(dense)], 1)
        for cross in self.crosses:
            x = cross(first, x)
        return self.head(self.tower(x)).squeeze(1)


@dataclass(frozen=True)
class DlrmShape:
    """Widths of the DLRM. The 26 fields are two users' (the viewer's, the author's) and two lists' of items."""

    dim: int = 128
    dense: int = 16
    users: int = 6
    items: int = 7
    tower: Tuple[int, ...] = (2048, 1024)
    bottom: Tuple[int, ...] = (1024, 1024)
    top: Tuple[int, ...] = (2048, 2048, 1024)


class Dlrm(nn.Module):
    """DLRM (1906.00091): a user and an item tower, each used twice, dot interaction of what they give as vectors of
    `dim`, top MLP. dense (B, 16), embeddings (B, 26, dim) -> (B,). ReLU, no norms."""

    def __init__(self, shape: DlrmShape) -> None:
        super().__init__()
        self.shape = shape
        self.bottom = nn.Sequential(*activated((shape.dense, *shape.bottom), nn.ReLU, norm=False))
        self.user = nn.Sequential(*activated((shape.users * shape.dim, *shape.tower), nn.ReLU, norm=False))
        self.item = nn.Sequential(*activated((shape.items * shape.dim, *shape.tower), nn.ReLU, norm=False))
        vectors = (4 * shape.tower[-1] + shape.bottom[-1]) // shape.dim
        pairs = torch.tril_indices(vectors, vectors, -1)
        self.register_buffer("pairs", pairs[0] * vectors + pairs[1], persistent=False)
        width = pairs.shape[1] + shape.bottom[-1]
        # Padded with zeros to a multiple of 16, as NVIDIA's DLRM does: tensor cores want it.
        self.padding = -width % 16
        self.top = nn.Sequential(*activated((width + self.padding, *shape.top), nn.ReLU, norm=False))
        self.head = nn.Linear(shape.top[-1], 1)
        for part in self.modules():
            if isinstance(part, nn.Linear):
                # The reference DLRM's; PyTorch's own shrinks every layer, and nothing here normalises.
                nn.init.normal_(part.weight, std=(2 / (part.in_features + part.out_features)) ** 0.5)

    def forward(self, dense: Tensor, embeddings: Tensor) -> Tensor:
        users, items = self.shape.users, self.shape.items
        viewer, author, seen, shown = (part.flatten(1) for part in embeddings.split([users, users, items, items], 1))
        bottom = self.bottom(dense)
        parts = [bottom, self.user(viewer), self.user(author), self.item(seen), self.item(shown)]
        vectors = torch.cat(parts, 1).view(dense.shape[0], -1, self.shape.dim)
        # Over the root of dim, so that sums of products stay of the size of what they join.
        dots = (vectors @ vectors.transpose(1, 2)).flatten(1).index_select(1, self.pairs) * self.shape.dim**-0.5
        joined = torch.cat([bottom, dots.to(bottom.dtype), bottom.new_zeros(bottom.shape[0], self.padding)], 1)
        return self.head(self.top(joined)).squeeze(1)


def activated(widths: Tuple[int, ...], act: Callable[[], nn.Module], norm: bool) -> List[nn.Module]:
    """Linears, each with an activation, and with a LayerNorm before it."""
    parts: List[nn.Module] = []
    for width_in, width_out in zip(widths, widths[1:]):
        parts += [nn.Linear(width_in, width_out), *([nn.LayerNorm(width_out)] if norm else []), act()]
    return parts


class Ranker(nn.Module):
    """dense (B, inputs) f32, ids (B, tables) i64 -> logits (B,): the stack over the embeddings."""

    def __init__(self, embed: nn.Module, stack: nn.Module) -> None:
        super().__init__()
        self.embed, self.stack = embed, stack

    def forward(self, dense: Tensor, ids: Tensor) -> Tensor:
        return self.stack(*self.embedded(dense, ids))

    def embedded(self, dense: Tensor, ids: Tensor) -> Tuple[Tensor, ...]:
        """What the stack reads, in BF16 where its parameters are."""
        parts = self.embed(dense, ids)
        low = next(self.stack.parameters()).dtype == torch.bfloat16
        return tuple(part.bfloat16() for part in parts) if low else parts


@dataclass(frozen=True)
class RankerConfig:
    """A model of the study: its data, batch, and how it is trained. `quality_batch`: of the loss runs alone, smaller
    where 2,000 steps at the full batch would take hours; the plan is the same."""

    name: str
    family: str
    data: ClickConfig
    batch: int
    quality_batch: int
    lr: float
    head: str
    make: Callable[[], Tuple[nn.Module, nn.Module]]
    mods: Tuple[str, ...] = ()
    without_mods: Tuple[str, ...] = ()
    """Modules that keep their norms and activations where there are Mods."""


MODS = ("no_bias", "block_norm", "hard_swish")


_WUKONG_RATES = {"2.1G": 5e-4, "5.6G": 2e-4}
"""At 5e-4 the larger one's loss leaps in one run of five, in BF16: its head has 15,360 inputs (`leaps.py`)."""


def _wukong(size: str, small: bool) -> RankerConfig:
    small_shapes = {
        "2.1G": PublicShape(layers=2, n_fmb=4, n_lcb=4, k=8, hidden=64, depth=2, tokens=16, dim=16),
        "5.6G": PublicShape(layers=2, n_fmb=8, n_lcb=8, k=16, hidden=96, depth=2, tokens=16, dim=16),
    }
    shape = small_shapes[size] if small else PUBLIC_SHAPES[size]
    data = _SMALL_DATA if small else ClickConfig()
    data = replace(data, tables=8, dense=8) if small else replace(data, tables=28, dense=16, rows=4096)
    return RankerConfig(
        name=f"wukong-{size}", family="wukong", data=data, batch=shape.batch, quality_batch=512, lr=_WUKONG_RATES[size],
        head="stack.top.2", mods=MODS, without_mods=("stack.top",),
        make=lambda: (TokenEmbeddings(data, shape.tokens, shape.dim), PublicWukong(shape)),
    )  # fmt: skip


def _dcnv2(small: bool) -> RankerConfig:
    shape = DcnShape(dim=16, bottom=(13, 64, 32), rank=64, tower=(128, 128, 64)) if small else DcnShape()
    data = replace(_SMALL_DATA if small else ClickConfig(), tables=26, dense=13)
    return RankerConfig(
        name="dcnv2", family="dcn", data=data, batch=8192, quality_batch=8192, lr=1e-3, head="stack.head",
        make=lambda: (FlatEmbeddings(data, shape.dim), Dcn(shape, data.tables)),
    )  # fmt: skip


def _dlrm(small: bool) -> RankerConfig:
    sizes = dict(dim=16, tower=(96, 64), bottom=(64, 64), top=(128, 128, 64))
    shape = DlrmShape(**sizes) if small else DlrmShape()  # type: ignore[arg-type]
    data = replace(_SMALL_DATA if small else ClickConfig(), tables=26, dense=shape.dense)
    return RankerConfig(
        name="dlrm", family="dlrm", data=data, batch=16384, quality_batch=16384, lr=1e-3, head="stack.head",
        make=lambda: (FlatEmbeddings(data, shape.dim), Dlrm(shape)),
    )  # fmt: skip


_SMALL_DATA = ClickConfig(rows=512, ids=4000)
_SMALL_BATCH = 256

RANKERS: Dict[str, Callable[[bool], RankerConfig]] = {
    "wukong-2.1G": lambda small: _wukong("2.1G", small),
    "wukong-5.6G": lambda small: _wukong("5.6G", small),
    "dcnv2": _dcnv2,
    "dcnv2-mods": lambda small: replace(_dcnv2(small), name="dcnv2-mods", mods=MODS),
    "dlrm": _dlrm,
}
"""By name; the argument is `small`."""


def config_of(name: str, small: bool) -> RankerConfig:
    """The model's configuration."""
    config = RANKERS[name](small)
    return replace(config, batch=_SMALL_BATCH, quality_batch=_SMALL_BATCH) if small else config


def build(config: RankerConfig, parameters: str, seed: int, device: torch.device) -> Ranker:
    """A fresh ranker with its Mods, the same numbers for the same seed on the same kind of device; `parameters` is one
    of PARAMETERS. Made on the device: a CPU takes seconds to draw half a billion numbers."""
    with torch.random.fork_rng(devices=[device] if device.type == "cuda" else []), device:
        torch.manual_seed(seed)
        ranker = Ranker(*config.make())
    if config.mods:
        import loka

        loka.mods.apply(ranker, list(config.mods), keep=config.without_mods, everywhere=True)
    ranker.to(device)
    if parameters == "bf16":
        ranker.stack.bfloat16()
    return ranker
