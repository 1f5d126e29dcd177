"""Eleven small rankers, each with something that is not plain: what recording, applying and freezing are tried on.

    case = models.CASES["sparse_moe"]
    model = case.model()
    *inputs, target = case.batch(40, seed=0)
    case.loss(model(*inputs), target).backward()

No example of a batch has anything to do with another one, so that a batch of one is that example's own loss.
"""

import dataclasses
from typing import Any, Callable, Dict, List, Tuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn


def dense(size: int, seed: int, features: int = 8) -> Tensor:
    return torch.randn(size, features, generator=torch.Generator().manual_seed(seed)) * 1.5 + 0.3


def ids(size: int, seed: int, *shape: int, high: int = 20) -> Tensor:
    return torch.randint(high, (size, *shape), generator=torch.Generator().manual_seed(seed + 1000))


def labels(x: Tensor, *shape: int) -> Tensor:
    score = x.float().flatten(1)[:, :1].expand(len(x), max(int(torch.tensor(shape).prod()), 1))
    return (score > score.median()).float().reshape(len(x), *shape)


def log_loss(output: Tensor, target: Tensor) -> Tensor:
    """The mean log loss of logits of the target's shape."""
    return F.binary_cross_entropy_with_logits(output.float(), target)


@dataclasses.dataclass(frozen=True)
class Case:
    """`make`, with the generator seeded, gives the model; `batch(size, seed)` its inputs and then the target."""

    make: Callable[[], nn.Module]
    batch: Callable[[int, int], Tuple[Tensor, ...]]
    loss: Callable[[Tensor, Tensor], Tensor] = log_loss

    def model(self, seed: int = 0) -> nn.Module:
        torch.manual_seed(seed)
        return self.make()


class DLRM(nn.Module):
    """Bottom MLP, embeddings, the products of all pairs, top MLP."""

    def __init__(self) -> None:
        super().__init__()
        self.bottom = nn.Sequential(nn.Linear(8, 16), nn.ReLU(inplace=True), nn.Linear(16, 6), nn.ReLU())
        self.tables = nn.ModuleList(nn.Embedding(20, 6) for _ in range(3))
        self.top = nn.Sequential(nn.Linear(12, 10), nn.ReLU(), nn.Linear(10, 1))

    def forward(self, x: Tensor, sparse: Tensor) -> Tensor:
        x = self.bottom(x)
        rows = torch.stack([x, *(table(sparse[:, i]) for i, table in enumerate(self.tables))], 1)
        i, j = torch.triu_indices(4, 4, 1).unbind()
        pairs = torch.bmm(rows, rows.mT)[:, i, j]
        return self.top(torch.cat([x, pairs], 1)).squeeze(1)


class TwoTower(nn.Module):
    """One tower that runs twice, for the user and for the item."""

    def __init__(self) -> None:
        super().__init__()
        self.tower = nn.Sequential(nn.Linear(8, 12), nn.SiLU(), nn.Linear(12, 6))

    def forward(self, user: Tensor, item: Tensor) -> Tensor:
        return (self.tower(user) * self.tower(item)).sum(1)


class Sequence(nn.Module):
    """Like HSTU: items of a session through attention of both kinds, a prediction at each position."""

    def __init__(self) -> None:
        super().__init__()
        self.items = nn.Embedding(20, 8)
        self.norm = nn.LayerNorm(8)
        self.uvqk = nn.Linear(8, 32)
        self.out = nn.Linear(8, 8)
        self.attention = nn.MultiheadAttention(8, 2, batch_first=True)
        self.cross = nn.MultiheadAttention(8, 2, batch_first=True, bias=False)
        self.head = nn.Linear(8, 1)

    def forward(self, sparse: Tensor) -> Tensor:
        x = self.items(sparse)
        u, v, q, k = F.silu(self.uvqk(self.norm(x))).chunk(4, -1)
        heads = [each.unflatten(-1, (2, 4)).transpose(1, 2) for each in (q, k, v)]
        mixed = F.scaled_dot_product_attention(*heads, is_causal=True).transpose(1, 2).flatten(2)
        x = x + self.out(u * mixed)
        x = x + self.attention(x, x, x, need_weights=False)[0]
        x = x + self.cross(x[:, -1:], x, x, need_weights=False)[0]
        return self.head(x).squeeze(-1)


class CrossNet(nn.Module):
    """DCNv2 on raw counters: x and dy of its layers depend on each other."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(8, 8) for _ in range(2))
        self.norm = nn.LayerNorm(8)
        self.head = nn.Linear(8, 1)

    def forward(self, counters: Tensor) -> Tensor:
        x = counters
        for layer in self.layers:
            x = counters * layer(x) * 0.01 + x
        return self.head(self.norm(x)).squeeze(1)


class MMoE(nn.Module):
    """Every expert sees every example; two tasks, each with its gate and its head."""

    def __init__(self) -> None:
        super().__init__()
        self.experts = nn.ModuleList(nn.Sequential(nn.Linear(8, 10), nn.ReLU(inplace=True)) for _ in range(3))
        self.gates = nn.ModuleList(nn.Linear(8, 3) for _ in range(2))
        self.heads = nn.ModuleList(nn.Sequential(nn.Linear(10, 6), nn.SiLU(), nn.Linear(6, 1)) for _ in range(2))

    def forward(self, x: Tensor) -> Tensor:
        found = torch.stack([expert(x) for expert in self.experts], 1)
        tasks = []
        for gate, head in zip(self.gates, self.heads):
            tasks.append(head((torch.softmax(gate(x), 1)[:, :, None] * found).sum(1)))
        return torch.cat(tasks, 1)


class SparseMoE(nn.Module):
    """Each example goes to one of the experts, which sees no others."""

    def __init__(self, experts: int = 4) -> None:
        super().__init__()
        self.bottom = nn.Linear(8, 10)
        self.router = nn.Linear(10, experts)
        self.experts = nn.ModuleList(
            nn.Sequential(nn.Linear(10, 12), nn.ReLU(), nn.Linear(12, 10)) for _ in range(experts)
        )
        self.head = nn.Linear(10, 1)

    def forward(self, x: Tensor) -> Tensor:
        x = torch.tanh(self.bottom(x))
        share, to = torch.softmax(self.router(x), 1).max(1)
        y = torch.zeros_like(x)
        for index, expert in enumerate(self.experts):
            rows = (to == index).nonzero().squeeze(1)
            if len(rows):
                y = y.index_add(0, rows, expert(x[rows]) * share[rows, None])
        return self.head(x + y).squeeze(1)


class Raw(nn.Module):
    """Parameters without modules: F.linear, @, einsum, and experts in one bmm; most of its FLOPs."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Parameter(torch.randn(12, 8) / 3)
        self.shift = nn.Parameter(torch.zeros(12))
        self.mix = nn.Parameter(torch.randn(12, 10) / 3)
        self.low = nn.Parameter(torch.randn(10, 6) / 3)
        self.experts = nn.Parameter(torch.randn(3, 6, 5) / 3)
        self.head = nn.Linear(5, 1)

    def forward(self, x: Tensor) -> Tensor:
        x = F.silu(F.linear(x, self.first, self.shift))
        x = F.silu(x @ self.mix)
        x = F.silu(torch.einsum("bi,io->bo", x, self.low))
        x = torch.bmm(x.expand(3, *x.shape), self.experts).mean(0)
        return self.head(x).squeeze(1)


class Stacked(nn.Module):
    """A weight for each of four tokens, read in every way that a stack of matrices is."""

    def __init__(self) -> None:
        super().__init__()
        self.up = nn.Parameter(torch.randn(4, 8, 8) / 3)
        self.shift = nn.Parameter(torch.zeros(4, 1, 8))
        self.turned = nn.Parameter(torch.randn(4, 7, 8) / 3)
        self.common = nn.Parameter(torch.zeros(1, 1, 7))
        self.each = nn.Parameter(torch.randn(4, 7, 5) / 3)
        self.every = nn.Parameter(torch.randn(4, 5, 6) / 3)
        self.one = nn.Parameter(torch.randn(1, 6, 3) / 3)
        self.head = nn.Linear(3, 1)

    def forward(self, x: Tensor) -> Tensor:
        tokens = x.unsqueeze(1).expand(-1, 4, -1).transpose(0, 1)
        tokens = F.silu(torch.baddbmm(self.shift, tokens, self.up))
        tokens = F.silu(torch.baddbmm(self.common, tokens, self.turned.transpose(1, 2))).transpose(0, 1)
        # A vector for each token of each example.
        tokens = F.silu(tokens.unsqueeze(2) @ self.each).squeeze(2)
        # All matrices by the same rows.
        tokens = F.silu(torch.matmul(tokens.mean(1), self.every))
        # One matrix of a stack by those of four: not a site.
        return self.head(torch.matmul(tokens, self.one).mean(0)).squeeze(1)


class Tied(nn.Module):
    """The output's weight is the embedding's; activations in place."""

    def __init__(self) -> None:
        super().__init__()
        self.items = nn.Embedding(20, 8)
        self.up = nn.Linear(8, 8)
        self.down = nn.Linear(8, 8)
        self.down.weight = self.up.weight
        self.score = nn.Linear(8, 20, bias=False)
        self.score.weight = self.items.weight

    def forward(self, sparse: Tensor) -> Tensor:
        x = self.items(sparse).sum(1)
        x = self.down(self.up(x).relu_()).relu_()
        return self.score(x)


class Lazy(nn.Module):
    """Its first layer learns its width from the first batch."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.LazyLinear(12)
        self.head = nn.Linear(12, 1)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(F.silu(self.first(x))).squeeze(1)


class LoRA(nn.Linear):
    """A linear with a forward of its own: frozen, with an adapter beside it."""

    def __init__(self, k: int, n: int, rank: int = 2) -> None:
        super().__init__(k, n)
        self.weight.requires_grad_(False)
        self.down = nn.Parameter(torch.randn(rank, k) / k**0.5)
        self.up = nn.Parameter(torch.randn(n, rank) * 0.1)

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x) + F.linear(F.linear(x, self.down), self.up)


class Adapted(nn.Module):
    """A weight norm and an adapter."""

    def __init__(self) -> None:
        super().__init__()
        self.normed = nn.utils.parametrizations.weight_norm(nn.Linear(8, 12))
        self.adapted = LoRA(12, 10)
        self.head = nn.Linear(10, 1)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(F.silu(self.adapted(F.silu(self.normed(x))))).squeeze(1)


class Norms(nn.Module):
    """A norm of each kind that looks at one example alone."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            nn.Linear(8, 12), nn.LayerNorm(12), nn.SiLU(),
            nn.Linear(12, 12), nn.RMSNorm(12), nn.Hardswish(),
            nn.Linear(12, 12), nn.GroupNorm(3, 12), nn.GELU(),
        )  # fmt: skip
        self.head = nn.Linear(12, 1)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.layers(x)).squeeze(1)


def _one(size: int, seed: int) -> Tuple[Tensor, ...]:
    x = dense(size, seed)
    return x, labels(x)


def _dlrm(size: int, seed: int) -> Tuple[Tensor, ...]:
    x = dense(size, seed)
    return x, ids(size, seed, 3), labels(x)


def _pair(size: int, seed: int) -> Tuple[Tensor, ...]:
    x = dense(size, seed)
    return x, dense(size, seed + 500), labels(x)


def _sequence(size: int, seed: int) -> Tuple[Tensor, ...]:
    sparse = ids(size, seed, 5)
    return sparse, (sparse > 9).float()


def _counters(size: int, seed: int) -> Tuple[Tensor, ...]:
    x = dense(size, seed).exp()
    return x, labels(x)


def _tied(size: int, seed: int) -> Tuple[Tensor, ...]:
    sparse = ids(size, seed, 3)
    return sparse, F.one_hot(sparse[:, 0], 20).float()


def _two(size: int, seed: int) -> Tuple[Tensor, ...]:
    x = dense(size, seed)
    return x, labels(x, 2)


CASES: Dict[str, Case] = {
    "dlrm": Case(DLRM, _dlrm),
    "two_tower": Case(TwoTower, _pair),
    "sequence": Case(Sequence, _sequence),
    "dcnv2": Case(CrossNet, _counters),
    "mmoe": Case(MMoE, _two),
    "sparse_moe": Case(SparseMoE, _one),
    "raw": Case(Raw, _one),
    "stacked": Case(Stacked, _one),
    "tied": Case(Tied, _tied),
    "lazy": Case(Lazy, _one),
    "adapted": Case(Adapted, _one),
    "norms": Case(Norms, _one),
}


def linears(model: nn.Module) -> Dict[str, nn.Linear]:
    return {name: each for name, each in model.named_modules() if isinstance(each, nn.Linear)}


def per_example(case: Case, model: nn.Module, batch: Tuple[Tensor, ...]) -> Dict[str, Dict[str, Any]]:
    """Of each linear that runs, from one forward and backward for each example alone: `rows`, `xs` `[rows, k]`, `gs`
    `[rows, n]` of the loss of that example by the output, and `G` `[examples, n, k]`, by the weight."""
    found: Dict[str, Dict[str, List[Tensor]]] = {}
    examples = len(batch[0])
    layers = linears(model)

    def watch(name: str) -> Callable[..., None]:
        def hook(_module: nn.Module, args: Tuple[Tensor, ...], output: Tensor) -> None:
            if not output.requires_grad:
                return
            x = args[0].detach().double().reshape(-1, args[0].shape[-1])

            def grad_hook(grad: Tensor) -> None:
                grad = grad.double().reshape(-1, grad.shape[-1])
                site = found.setdefault(name, {"xs": [], "gs": [], "at": []})
                site["xs"].append(x), site["gs"].append(grad), site["at"].append(current[0])

            output.register_hook(grad_hook)

        return hook

    current = [0]
    hooks = [layer.register_forward_hook(watch(name)) for name, layer in layers.items()]
    for current[0] in range(examples):
        *inputs, target = (each[current[0] : current[0] + 1] for each in batch)
        case.loss(model(*inputs), target).backward()
    for hook in hooks:
        hook.remove()
    model.zero_grad()
    result: Dict[str, Dict[str, Any]] = {}
    for name, site in found.items():
        n, k = site["gs"][0].shape[1], site["xs"][0].shape[1]
        weight = torch.zeros(examples, n, k, dtype=torch.float64)
        for x, grad, at in zip(site["xs"], site["gs"], site["at"]):
            weight[at] += grad.T @ x
        result[name] = {"xs": torch.cat(site["xs"]), "gs": torch.cat(site["gs"]), "G": weight}
    return result
