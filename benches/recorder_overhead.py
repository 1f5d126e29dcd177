"""Takes small rankers on a CPU; gives what an attached `loka.Recorder` costs a plain step, and a recorded one.

    python benches/recorder_overhead.py [--out overhead.json] [--profile dlrm]

A machine with other work on it is noisy, so three loops take turns, a step each: without a recorder, attached but not
recording, and recording every step. Each has its own copy of the model; all see the same batches. Medians of each, and of
the ratios of steps side by side, with the interval that holds the middle 95 % of 1,000 resamples of blocks of ten.
"""

import argparse
import cProfile
import json
import pathlib
import pstats
import random
import statistics
import sys
import tempfile
import time

import torch
from torch import nn

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "python"))
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "python" / "tests"))

import models

import loka


def tower(*widths):
    layers = []
    for k, n in zip(widths, widths[1:]):
        layers += [nn.Linear(k, n), nn.LayerNorm(n), nn.SiLU()]
    return nn.Sequential(*layers, nn.Linear(widths[-1], 1), nn.Flatten(0))


def one(size, seed, features):
    x = models.dense(size, seed, features)
    return x, models.labels(x)


SETTINGS = {
    "dlrm": (models.CASES["dlrm"], 512),
    "sequence": (models.CASES["sequence"], 256),
    "mlp-256": (models.Case(lambda: tower(256, 256, 256), lambda size, seed: one(size, seed, 256)), 1024),
    "mlp-512": (models.Case(lambda: tower(512, 512, 512), lambda size, seed: one(size, seed, 512)), 2048),
}
"""Model and examples of a step."""


class Loop:
    """One model in training. `every` None: no recorder."""

    def __init__(self, case, every, folder, optimizer):
        self.case = case
        self.model = case.model()
        self.optimizer = optimizer(self.model.parameters(), 1e-3)
        self.recorder = None
        if every is not None:
            options = {"every": every, "save_every": 10**9, "save_seconds": None, "save_on_sigterm": False}
            self.recorder = loka.Recorder(self.model, folder, name=f"every{every}", **options).attach()

    def step(self, batch):
        *inputs, target = batch
        loss = self.case.loss(self.model(*inputs), target)
        if self.recorder is not None:
            loss = self.recorder.loss(loss)
        loss.backward()
        self.optimizer.step()
        self.optimizer.zero_grad()


def timed(loop, batch):
    begin = time.perf_counter()
    loop.step(batch)
    return time.perf_counter() - begin


def interval(ratios, blocks=10):
    generator = random.Random(0)
    parts = [ratios[i : i + blocks] for i in range(0, len(ratios), blocks)]
    found = sorted(
        statistics.median([each for part in generator.choices(parts, k=len(parts)) for each in part])
        for _ in range(1000)
    )
    return found[25], found[974]


def measure(name, steps, recorded_steps):
    case, size = SETTINGS[name]
    batches = [case.batch(size, seed) for seed in range(8)]
    with tempfile.TemporaryDirectory() as folder:
        plain, attached = (Loop(case, every, folder, torch.optim.Adam) for every in (None, 10**9))
        recording = Loop(case, 1, folder, torch.optim.Adam)
        for batch in batches[:4]:
            for loop in (plain, attached, recording):
                loop.step(batch)
        times = {"plain": [], "attached": [], "recorded": []}
        for step in range(steps):
            batch = batches[step % len(batches)]
            pair = [("plain", plain), ("attached", attached)]
            # Who goes second finds the batch in the cache.
            for kind, loop in pair if step % 2 else pair[::-1]:
                times[kind].append(timed(loop, batch))
            if step < recorded_steps:
                times["recorded"].append(timed(recording, batch))
        for loop in (attached, recording):
            loop.recorder.detach()
    ratios = [after / before for before, after in zip(times["plain"], times["attached"])]
    low, high = interval(ratios)
    medians = {kind: statistics.median(values) * 1e3 for kind, values in times.items()}
    return {
        "model": name, "examples": size, "plain_ms": medians["plain"], "attached_ms": medians["attached"],
        "attached_ratio": statistics.median(ratios), "attached_low": low, "attached_high": high,
        "recorded_ms": medians["recorded"], "recorded_ratio": medians["recorded"] / medians["plain"],
    }  # fmt: skip


def profile(name, steps=20):
    case, size = SETTINGS[name]
    batches = [case.batch(size, seed) for seed in range(8)]
    with tempfile.TemporaryDirectory() as folder:
        loop = Loop(case, 1, folder, torch.optim.Adam)
        for batch in batches:
            loop.step(batch)
        profiler = cProfile.Profile()
        profiler.enable()
        for step in range(steps):
            loop.step(batches[step % len(batches)])
        profiler.disable()
        loop.recorder.detach()
    pstats.Stats(profiler).sort_stats("tottime").print_stats(28)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=400)
    parser.add_argument("--recorded", type=int, default=60)
    parser.add_argument("--models", nargs="*", default=list(SETTINGS), choices=list(SETTINGS))
    parser.add_argument("--profile", choices=list(SETTINGS))
    parser.add_argument("--out", type=pathlib.Path)
    options = parser.parse_args()
    torch.set_num_threads(1)
    if options.profile:
        return profile(options.profile)
    rows = []
    for name in options.models:
        rows.append(row := measure(name, options.steps, options.recorded))
        print(
            f"{row['model']:9} plain {row['plain_ms']:7.2f} ms   attached x{row['attached_ratio']:.4f} "
            f"({row['attached_low']:.4f} to {row['attached_high']:.4f})   recorded {row['recorded_ms']:7.2f} ms, "
            f"x{row['recorded_ratio']:.2f}",
            flush=True,
        )
    if options.out is not None:
        options.out.write_text(json.dumps({"torch": torch.__version__, "threads": 1, "rows": rows}, indent=1) + "\n")


if __name__ == "__main__":
    main()
