"""Takes what a user asks of a recorder; gives it checked, with the defaults filled in."""

import dataclasses
from typing import Any, Mapping, Optional, Sequence, Union

import torch
from torch import nn

QUANTILE_PROBS = (0.001, 0.01, 0.1, 0.25, 0.5, 0.75, 0.9, 0.99, 0.999)
"""Probabilities of every `*.quantiles`: symmetric, and the outermost within what 1,024 rows can tell."""

QUANTILE_ROWS = 1024
"""Rows that a batch's quantiles are taken from: .001 and .999 are then its two outermost rows."""


@dataclasses.dataclass(frozen=True)
class Options:
    """What `loka.Recorder` was asked for; see there for what each means."""

    every: int = 100
    save_every: int = 10_000
    save_seconds: Optional[float] = 1800.0
    rows: int = 2048
    limit: int = 1024
    rank: int = 48
    oversample: int = 16
    factor_above: Optional[int] = None
    weights: str = "snapshot"
    weight_dtype: Optional[torch.dtype] = None
    momentum: float = 0.95
    held_out: int = 0
    cross_cov: Union[bool, int] = False
    cross_rank: int = 16
    quantile_every: int = 4
    history: str = "recent"
    loss_reduction: Union[str, float] = "mean"
    loss_name: str = "loss"
    loss_value: Optional[float] = None
    run_id: Optional[str] = None
    family: str = ""
    note: Optional[str] = None
    tails: Mapping[str, Sequence[Mapping[str, Any]]] = dataclasses.field(default_factory=dict)
    feeds: Mapping[str, Sequence[str]] = dataclasses.field(default_factory=dict)
    heads: Sequence[str] = ()
    functional: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    seed: int = 0
    ranks: Union[None, int, Sequence[int]] = None
    extremes: bool = False

    def __post_init__(self) -> None:
        for name in ("every", "save_every", "rows", "limit", "rank", "quantile_every"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} is {getattr(self, name)}, expected at least 1")
        for name in ("held_out", "oversample", "cross_rank"):
            if getattr(self, name) < 0:
                raise ValueError(f"{name} is {getattr(self, name)}, expected at least 0")
        if self.save_seconds is not None and not self.save_seconds >= 0:
            raise ValueError(f"save_seconds is {self.save_seconds}, expected at least 0")
        if self.rows < 2:
            raise ValueError("rows is 1: a covariance needs two")
        if self.weights not in ("snapshot", "matrix_normal", "low_rank"):
            raise ValueError(f"weights is {self.weights!r}, expected 'snapshot', 'matrix_normal' or 'low_rank'")
        if self.history not in ("recent", "all"):
            raise ValueError(f"history is {self.history!r}, expected 'recent' or 'all'")
        if not 0.0 < self.momentum < 1.0:
            raise ValueError(f"momentum is {self.momentum}, expected to be in (0, 1)")
        self._check_loss()
        self._check_ranks()

    def _check_ranks(self) -> None:
        given = self.ranks
        if given is None:
            return
        numbers, least = ([given], 1) if isinstance(given, int) else (list(given), 0)
        if not numbers or any(isinstance(each, bool) or not isinstance(each, int) or each < least for each in numbers):
            raise ValueError(f"ranks is {given!r}, expected how many, at least 1, or the numbers of those that record")

    def recording_ranks(self, world: int) -> Sequence[int]:
        """Of so many, which record: all, so many of them evenly spread, or those that were named. ValueError for one that
        there is not."""
        if self.ranks is None:
            return range(world)
        if isinstance(self.ranks, int):
            count = min(self.ranks, world)
            # Spread over hosts and over what shards the data.
            return [i * world // count for i in range(count)]
        beyond = [each for each in self.ranks if each >= world]
        if beyond:
            raise ValueError(f"ranks names rank {beyond[0]}, and there are {world}")
        return sorted(set(self.ranks))

    def _check_loss(self) -> None:
        reduction = self.loss_reduction
        known = reduction in ("mean", "sum") if isinstance(reduction, str) else reduction > 0
        if not known:
            raise ValueError(f"loss_reduction is {reduction!r}, expected 'mean', 'sum' or what a sum is multiplied by")
        if self.loss_value is not None and not self.loss_value >= 0:
            raise ValueError(f"loss_value is {self.loss_value}, expected a loss of at least 0")

    def per_example(self, examples: int) -> float:
        """What a gradient of the reduced loss over `examples` is multiplied by to be one example's own."""
        if self.loss_reduction == "mean":
            return float(examples)
        return 1.0 if self.loss_reduction == "sum" else 1.0 / float(self.loss_reduction)

    def mean_loss(self, examples: int) -> float:
        """What a reduced loss over `examples` is multiplied by to be their mean."""
        return self.per_example(examples) / max(examples, 1)

    def sketched(self, features: int) -> bool:
        """Whether so many features are past the limit of an exact covariance."""
        return features > self.limit

    def factored(self, features: int) -> bool:
        """Whether a covariance of so many features is stored as factor and diagonal."""
        above = self.limit if self.factor_above is None else min(self.factor_above, self.limit)
        return features > above

    def crossed(self, n: int, k: int) -> bool:
        """Whether the covariance of a site's output gradient with its input is kept."""
        if self.cross_cov is True:
            return max(n, k) <= self.limit
        return n * k <= int(self.cross_cov)


Functional = Mapping[str, Union[nn.Parameter, Sequence[Optional[nn.Parameter]]]]
"""Weight, or weight and bias, of each linear that runs without a module."""
