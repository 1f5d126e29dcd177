"""Takes small rankers on a CPU; gives what an attached `loka.Recorder` costs a plain step, and a recorded one.

    python benches/recorder_overhead.py [--out overhead.json] [--profile dlrm]

A machine with other work on it is noisy, and a copy of a model that lies elsewhere in memory is a percent or two faster or
slower by that alone. So it is one model, a recorder attached to it and detached in turns of a hundred steps: plain,
attached, plain. Of each such three the ratio of the attached median to that of the plain ones, and, as a control, of the second plain
median to the first; medians of both, with the interval that holds the middle 95 % of 1,000 resamples. Recorded steps are of
a second model that records every step. Times are of the thread (`--wall`: of the clock).

What that noise hides is timed alone, first: what an attached recorder adds to one call of a linear and to one step's end,
the fastest of many runs with it and without.
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


BATCHES = 10
"""Made beforehand, and used again."""

WARM = 20
"""Steps of each turn that are not counted: what a recorder looks at in its first forward, caches, and the interpreter, which
takes some calls to know that a linear's class is another."""


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


def timed(loop, batch, clock):
    begin = clock()
    loop.step(batch)
    return clock() - begin


def interval(ratios):
    generator = random.Random(0)
    found = sorted(statistics.median(generator.choices(ratios, k=len(ratios))) for _ in range(1000))
    return found[25], found[974]


def measure(name, turns, steps, recorded_steps, clock):
    case, size = SETTINGS[name]
    batches = [case.batch(size, seed) for seed in range(BATCHES)]
    attached, control, plain_times, attached_times = [], [], [], []
    with tempfile.TemporaryDirectory() as folder:
        loop = Loop(case, 10**9, folder, torch.optim.Adam)
        recorder = loop.recorder

        def block(attach):
            # Also before plain steps: what attaching touches is in the caches, and what it took from the heap.
            recorder.attach()
            if attach:
                loop.recorder = recorder
            else:
                recorder.detach()
            for step in range(min(WARM, steps)):
                loop.step(batches[step % BATCHES])
            times = [timed(loop, batches[step % BATCHES], clock) for step in range(steps)]
            if attach:
                recorder.detach()
                loop.recorder = None
            return times

        for batch in batches:
            # The first step is the one that is recorded.
            loop.step(batch)
        recorder.detach()
        loop.recorder = None
        for _ in range(turns):
            before, during, after = block(False), block(True), block(False)
            attached.append(statistics.median(during) / statistics.median(before + after))
            control.append(statistics.median(after) / statistics.median(before))
            plain_times += before + after
            attached_times += during
        recording = Loop(case, 1, folder, torch.optim.Adam)
        for batch in batches[:4]:
            recording.step(batch)
        recorded = [timed(recording, batches[step % BATCHES], clock) for step in range(recorded_steps)]
        recording.recorder.detach()
    plain, recorded_ms = statistics.median(plain_times) * 1e3, statistics.median(recorded) * 1e3
    return {
        "model": name, "examples": size, "plain_ms": plain, "attached_ms": statistics.median(attached_times) * 1e3,
        "attached_ratio": statistics.median(attached), "attached_interval": interval(attached),
        "control_ratio": statistics.median(control), "control_interval": interval(control),
        "recorded_ms": recorded_ms, "recorded_ratio": recorded_ms / plain,
    }  # fmt: skip


def fastest(call, count=2000, runs=25):
    """Microseconds of one call."""
    found = []
    for _ in range(runs):
        begin = time.process_time()
        for _ in range(count):
            call()
        found.append((time.process_time() - begin) / count * 1e6)
    return min(found)


def added():
    """Microseconds that an attached recorder adds to a linear's forward, and to a step: its loss and its optimizer."""
    model, x = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 1)), torch.randn(2, 4)
    optimizer = torch.optim.SGD(model.parameters(), 1e-9)
    with tempfile.TemporaryDirectory() as folder:
        recorder = loka.Recorder(model, folder, every=10**9, save_on_sigterm=False).attach()
        found = []
        for _ in range(2):
            loss = recorder.loss(model(x).sum())
            loss.backward()
            optimizer.step()
            ends = fastest(lambda: (recorder.loss(loss), optimizer.step()))
            found.append((fastest(lambda: model[0](x)), ends))
            recorder.detach()
    return [during - after for during, after in zip(*found)]


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
    parser.add_argument("--turns", type=int, default=40, help="of plain, attached and plain steps")
    parser.add_argument("--steps", type=int, default=100, help="of each part of a turn")
    parser.add_argument("--wall", action="store_true", help="time by the clock, not of the thread")
    parser.add_argument("--recorded", type=int, default=60)
    parser.add_argument("--models", nargs="*", default=list(SETTINGS), choices=list(SETTINGS))
    parser.add_argument("--profile", choices=list(SETTINGS))
    parser.add_argument("--out", type=pathlib.Path)
    options = parser.parse_args()
    torch.set_num_threads(1)
    if options.profile:
        return profile(options.profile)
    call, step = added()
    print(f"an attached recorder adds {call:.2f} us to a linear's call and {step:.2f} us to a step", flush=True)
    rows = []
    for name in options.models:
        clock = time.perf_counter if options.wall else time.process_time
        rows.append(row := measure(name, options.turns, options.steps, options.recorded, clock))
        ratios = "   ".join(
            f"{kind} x{row[f'{kind}_ratio']:.4f} ({row[f'{kind}_interval'][0]:.4f} to {row[f'{kind}_interval'][1]:.4f})"
            for kind in ("attached", "control")
        )
        print(
            f"{row['model']:9} plain {row['plain_ms']:7.2f} ms   {ratios}   recorded {row['recorded_ms']:7.2f} ms, "
            f"x{row['recorded_ratio']:.2f}",
            flush=True,
        )
    if options.out is not None:
        found = {"torch": torch.__version__, "threads": 1, "turns": options.turns, "steps": options.steps, "added_us": [call, step], "rows": rows}
        options.out.write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
