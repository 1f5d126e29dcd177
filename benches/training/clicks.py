"""Takes a seed and a step; gives a batch of synthetic clicks, made on the device and never stored.

What is planted, and why it is there:
  ids        hash-like, popular ones far more often (Zipf); each is replaced by a fresh one once in `life` steps, and
             hashing into `rows` makes some collide: embeddings never finish learning
  effects    of single ids, of pairs (dot products), of triples, of dense features and their products, of a dense
             feature through an id, of raw counters and their ratio, of the past items against the candidate
  drift      the strength of every effect turns with the step, each with a period of its own
  noise      the label is drawn from its probability, so the log loss has a floor, which is known: `probability`
  counters   heavy-tailed raw counts (Pareto impressions and a part of them as clicks), not normalised, as careless
             pipelines feed them
The same (seed, step) gives the same batch on the same kind of device. Held-out batches come from a stream of their own.
"""

import argparse
import math
from dataclasses import dataclass, replace
from typing import Dict, Iterator, List, Tuple

import torch
from torch import Tensor
from torch.nn import functional

TRAIN, HELD_OUT, CALIBRATION = 0, 1, 2
CHUNK_STEPS = 16
"""Steps generated together, since many small launches cost more than one large one. Part of what a seed means."""

_TEACHER_ROWS = 1 << 16
_SHARES = {"single": 0.25, "pairs": 0.2, "triples": 0.05, "dense": 0.3, "counters": 0.1, "past": 0.1}
"""Share of the logit's variance that each effect has at step 0, before the absent ones are left out."""


@dataclass(frozen=True)
class ClickConfig:
    """What the data looks like. Counts are of features, `life` and `period` are in steps."""

    tables: int = 20
    rows: int = 8192
    ids: int = 200_000
    dense: int = 16
    counters: int = 0
    past: int = 0
    latent: int = 8
    pairs: int = 24
    triples: int = 6
    life: int = 6000
    period: int = 8000
    counter_alpha: float = 0.9
    counter_max: float = 1e6
    spread: float = 2.2
    offset: float = -0.7

    @property
    def inputs(self) -> int:
        """Width of `Batch.dense`: the normalised features, then the counters."""
        return self.dense + self.counters


@dataclass
class Batch:
    """dense (B, inputs) f32, ids (B, tables) and past (B, past) i64 rows, label and probability (B,) f32."""

    dense: Tensor
    ids: Tensor
    past: Tensor
    label: Tensor
    probability: Tensor

    def rows(self, first: int, count: int) -> "Batch":
        """Some of the rows, as views."""
        return Batch(*(value[first : first + count] for value in vars(self).values()))

    def copy_from(self, other: "Batch") -> None:
        """Overwrites the tensors in place: a CUDA graph reads fixed addresses."""
        for mine, theirs in zip(vars(self).values(), vars(other).values()):
            mine.copy_(theirs)

    def clone(self) -> "Batch":
        """A copy with storage of its own."""
        return Batch(*(value.clone() for value in vars(self).values()))


def hashed(ids: Tensor, salt: Tensor) -> Tensor:
    """A non-negative 63-bit hash of each id; int64 products wrap, which is what is wanted."""
    mixed = (ids + salt * 0x1F123BB5) * 0x2545F4914F6CDD1D
    mixed = (mixed ^ ((mixed >> 29) & 0x7FFFFFFFF)) * 0x369DEA0F31A53F85
    return (mixed ^ ((mixed >> 32) & 0xFFFFFFFF)) & 0x7FFFFFFFFFFFFFFF


class Clicks:
    """Batches of one seed. Batch sizes are fixed per object, since a chunk is drawn at once."""

    def __init__(self, config: ClickConfig, seed: int, batch: int, device: torch.device) -> None:
        self.config, self.seed, self.batch, self.device = config, seed, batch, torch.device(device)
        teacher = torch.Generator().manual_seed(seed * 7919 + 17)
        self._latents = torch.randn(_TEACHER_ROWS, config.latent, generator=teacher).to(self.device)
        fields = torch.stack([torch.randperm(config.tables, generator=teacher) for _ in range(config.pairs)])
        self._pairs = fields[:, :2].to(self.device)
        fields = torch.stack([torch.randperm(config.tables, generator=teacher) for _ in range(config.triples)])
        self._triples = fields[:, :3].to(self.device)
        self._strength = torch.randn(256, generator=teacher).to(self.device)
        self._phase = (torch.rand(256, generator=teacher) * 2 * math.pi).to(self.device)
        self._period = (config.period * (0.5 + torch.rand(256, generator=teacher))).to(self.device)
        self._salt = torch.arange(1, config.tables + 1, device=self.device) + 1009 * seed
        self._norm: Dict[str, Tuple[float, float]] = {}
        self._norm = self._calibrated()
        self._chunk_key, self._chunk = (-1, -1), None

    def at(self, step: int, stream: int = TRAIN) -> Batch:
        """The batch of a step (views into a chunk: copy what must outlive the next call)."""
        key = (stream, step // CHUNK_STEPS)
        if self._chunk is None or key != self._chunk_key:
            self._chunk, self._chunk_key = self._drawn(key[1] * CHUNK_STEPS, key[1], stream, CHUNK_STEPS), key
        return self._chunk.rows(step % CHUNK_STEPS * self.batch, self.batch)

    def held_out(self, step: int, batches: int) -> Iterator[Batch]:
        """Batches of the disjoint stream, all from the distribution at `step`."""
        for first in range(0, batches, CHUNK_STEPS):
            chunk = self._drawn(step, (step << 20) + first, HELD_OUT, CHUNK_STEPS, drifting=False)
            for index in range(min(CHUNK_STEPS, batches - first)):
                yield chunk.rows(index * self.batch, self.batch)

    def _drawn(self, step: int, chunk: int, stream: int, steps: int, drifting: bool = True) -> Batch:
        """`steps` batches in one tensor of rows, drawn from (seed, stream, chunk) alone."""
        config, rows = self.config, steps * self.batch
        generator = torch.Generator(self.device).manual_seed((self.seed * 3 + stream) * (1 << 40) + chunk)
        time = torch.full((rows,), float(step), device=self.device)
        if drifting:
            time += torch.arange(steps, device=self.device).repeat_interleave(self.batch)
        widths = [config.tables, config.past, config.counters, 1]
        uniform = torch.rand(rows, sum(widths), generator=generator, device=self.device)
        normal = torch.randn(rows, config.dense + config.counters, generator=generator, device=self.device)
        popular, recent, tail, coin = uniform.split(widths, 1)
        raw = self._raw_ids(popular, time)
        raw_past = self._raw_ids(recent, time)
        counters = self._counters(tail, normal[:, config.dense :])
        logit = self._logit(raw, raw_past, normal[:, : config.dense], counters, time)
        probability = torch.sigmoid(config.offset + config.spread * logit)
        return Batch(
            dense=torch.cat([normal[:, : config.dense], counters], 1),
            ids=hashed(raw, self._salt) % config.rows,
            past=hashed(raw_past, self._salt[:1]) % config.rows,
            label=(coin[:, 0] < probability).float(),
            probability=probability,
        )

    def _raw_ids(self, uniform: Tensor, time: Tensor) -> Tensor:
        """Zipf ranks from uniform numbers, then which fresh id holds that rank at this time."""
        rank = torch.exp(uniform * math.log(self.config.ids)).long()
        birth = hashed(rank, torch.zeros_like(rank)) % self.config.life
        return rank + ((time.long()[:, None] + birth) // self.config.life) * (1 << 24)

    def _counters(self, tail: Tensor, normal: Tensor) -> Tensor:
        """Even columns: Pareto counts (impressions). Odd columns: a part of the one before (clicks)."""
        counts = ((1.0 - tail).clamp_min(1e-9) ** (-1.0 / self.config.counter_alpha)).clamp_max(self.config.counter_max)
        shares = torch.sigmoid(normal - 1.0)
        clicks = counts[:, 0::2] * shares[:, 1::2]
        return torch.stack([counts[:, 0::2], clicks], 2).flatten(1).floor()

    def _turned(self, first: int, count: int, time: Tensor) -> Tensor:
        """(rows, count) strengths of effects `first`... at each row's time: half fixed, half turning."""
        pick = slice(first, first + count)
        turn = torch.cos(2 * math.pi * time[:, None] / self._period[pick] + self._phase[pick])
        return self._strength[pick].sign() * (0.6 + 0.4 * turn) * (0.5 + self._strength[pick].abs())

    def _logit(self, raw: Tensor, raw_past: Tensor, dense: Tensor, counters: Tensor, time: Tensor) -> Tensor:
        """(rows,) the true logit before spread and offset: unit variance at step 0."""
        latent = self._latents[hashed(raw, self._salt + 65537) % _TEACHER_ROWS]
        parts = self._id_effects(latent, time)
        parts["dense"] = self._dense_effect(dense, latent, time)
        if self.config.counters:
            parts["counters"] = self._counter_effect(counters, time)
        if self.config.past:
            past = self._latents[hashed(raw_past, self._salt[:1] + 65537) % _TEACHER_ROWS]
            parts["past"] = self._past_effect(past, latent[:, 0], time)
        if not self._norm:
            self._parts = parts
            return time
        total = sum(_SHARES[name] for name in parts)
        weights = {name: math.sqrt(_SHARES[name] / total) / self._norm[name][1] for name in parts}
        return sum((part - self._norm[name][0]) * weights[name] for name, part in parts.items())

    def _id_effects(self, latent: Tensor, time: Tensor) -> Dict[str, Tensor]:
        """Effects of ids alone from their latents (rows, tables, latent)."""
        config = self.config
        pairs = (latent[:, self._pairs[:, 0]] * latent[:, self._pairs[:, 1]]).sum(2)
        triples = latent[:, self._triples[:, 0]] * latent[:, self._triples[:, 1]] * latent[:, self._triples[:, 2]]
        return {
            "single": (latent[:, :, 0] * self._turned(0, config.tables, time)).sum(1),
            "pairs": (pairs * self._turned(64, config.pairs, time)).sum(1),
            "triples": (triples.sum(2) * self._turned(128, config.triples, time)).sum(1),
        }

    def _dense_effect(self, dense: Tensor, latent: Tensor, time: Tensor) -> Tensor:
        """Linear, products of neighbours, and each of the first features through an id."""
        width = dense.shape[1]
        linear = (dense * self._turned(144, width, time)).sum(1)
        products = (dense[:, :-1] * dense[:, 1:] * self._turned(144 + width, width - 1, time)).sum(1)
        through = min(width, latent.shape[1])
        gated = (dense[:, :through] * latent[:, :through, 1]).sum(1)
        return linear + 0.7 * products + 0.7 * gated

    def _counter_effect(self, counters: Tensor, time: Tensor) -> Tensor:
        """Logarithms of the counts, and of each pair's ratio (a click-through rate), both roughly centred so that
        the drift of their strengths does not carry the click rate away."""
        logs = torch.log1p(counters)
        ratio = logs[:, 1::2] - torch.log1p(counters[:, 0::2] + 1.0) + 1.2
        logs = logs - 1.3
        width = ratio.shape[1]
        counts, rates = logs[:, 0::2] * self._turned(208, width, time), ratio * self._turned(220, width, time)
        return counts.sum(1) + 2 * rates.sum(1)

    def _past_effect(self, past: Tensor, candidate: Tensor, time: Tensor) -> Tensor:
        """Likeness of the candidate to past items (rows, past, latent), newest first: the nearest decides, the recent
        count more, and two alike in a row add to it."""
        likeness = torch.einsum("btl,bl->bt", past, candidate) / math.sqrt(past.shape[2])
        decay = 0.8 ** torch.arange(past.shape[1], device=past.device)
        order = (past[:, :-1] * past[:, 1:]).sum(2) * decay[1:] / math.sqrt(past.shape[2])
        turned = self._turned(240, 3, time)
        nearest = likeness.amax(1) - 1.5
        return turned[:, 0] * nearest + turned[:, 1] * (likeness * decay).sum(1) + 0.5 * turned[:, 2] * order.sum(1)

    def _calibrated(self) -> Dict[str, Tuple[float, float]]:
        """Mean and deviation of each effect at step 0, so that shares of the variance are what they say."""
        fixed, self.batch = self.batch, 8192
        self._drawn(0, 0, CALIBRATION, 4, drifting=False)
        self.batch = fixed
        return {name: (float(part.mean()), max(float(part.std()), 1e-9)) for name, part in self._parts.items()}


def floor_of(batches: Iterator[Batch]) -> float:
    """The log loss of the truth itself: no model can do better."""
    losses: List[Tensor] = []
    for batch in batches:
        losses.append(functional.binary_cross_entropy(batch.probability.clamp(1e-7, 1 - 1e-7), batch.probability))
    return float(torch.stack(losses).mean())


SMALL = ClickConfig(tables=12, rows=512, ids=4000, dense=16)
"""A preset for trying things on a CPU."""


def main() -> None:
    parser = argparse.ArgumentParser(description="Prints what the clicks look like: floor, rate, drift, counters.")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--batch", type=int, default=8192)
    parser.add_argument("--counters", type=int, default=8)
    parser.add_argument("--past", type=int, default=16)
    parser.add_argument("--steps", type=int, nargs="+", default=[0, 1000, 4000])
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    args = parser.parse_args()
    config = replace(ClickConfig(), counters=args.counters, past=args.past)
    clicks = Clicks(config, args.seed, args.batch, torch.device(args.device))
    print(f"{'step':>8} {'floor':>8} {'rate':>7} {'logit sd':>9} {'amax':>10}")
    for step in args.steps:
        batches = list(clicks.held_out(step, 4))
        logit = torch.logit(torch.cat([batch.probability for batch in batches]), eps=1e-6)
        rate = torch.cat([batch.label for batch in batches]).mean()
        amax = max(float(batch.dense.amax()) for batch in batches)
        print(f"{step:>8} {floor_of(iter(batches)):>8.4f} {rate:>7.4f} {logit.std():>9.3f} {amax:>10.0f}")


if __name__ == "__main__":
    main()
