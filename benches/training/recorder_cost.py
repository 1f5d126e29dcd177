"""Takes a Wukong stack on a GPU; gives what `loka.Recorder` costs its training step in time and peak memory.

    python benches/training/recorder_cost.py --out recorder_cost.json

Per configuration, compiled and in BF16: the step without a recorder before and after, then the same steps with one.
A recorded step's extra time is the mean of recorded steps less the median plain one; `every` steps share it.
"""

import argparse
import gc
import json
import pathlib
import statistics
import sys
import tempfile
import time

import torch

import loka
from public_wukong import PUBLIC_SHAPES, PublicWukong

CONFIGS = ("2.1G", "5.6G")
LIMITS = {"time": 0.01, "memory": 0.05}
"""Of a step's time and of peak memory, at most."""


class Training:
    """One compiled model and its step, forward and backward, as `wukong_step.py` has it."""

    def __init__(self, shape):
        torch._dynamo.reset()
        torch.manual_seed(0)
        batch = shape.batch
        self.model = PublicWukong(shape).cuda().bfloat16()
        self.x = torch.randn(batch, shape.tokens, shape.dim, device="cuda", dtype=torch.bfloat16)
        self.y = torch.rand(batch, device="cuda").round()
        self.compiled = torch.compile(self.model)
        self.recorder = None

    def step(self):
        loss = torch.nn.functional.binary_cross_entropy_with_logits(self.compiled(self.x).float(), self.y)
        if self.recorder is not None:
            loss = self.recorder.loss(loss)
        loss.backward()
        for parameter in self.model.parameters():
            parameter.grad = None
        if self.recorder is not None:
            self.recorder.step()


def step_times(training, steps):
    """Milliseconds of each step by CUDA events, whole wall time, and peak bytes."""
    torch.cuda.synchronize()
    torch.cuda.reset_peak_memory_stats()
    marks = [torch.cuda.Event(enable_timing=True) for _ in range(steps + 1)]
    begin = time.perf_counter()
    marks[0].record()
    for mark in marks[1:]:
        training.step()
        mark.record()
    torch.cuda.synchronize()
    wall = (time.perf_counter() - begin) * 1e3
    times = [a.elapsed_time(b) for a, b in zip(marks, marks[1:])]
    return times, wall, torch.cuda.max_memory_allocated()


def measure(shape, every, steps):
    training = Training(shape)
    for _ in range(5):
        training.step()
    before, wall_before, peak_plain = step_times(training, steps)
    with tempfile.TemporaryDirectory() as folder:
        training.recorder = loka.Recorder(training.model, folder, every=every, save_every=10**9)
        training.recorder.attach()
        for _ in range(every + 1):
            # The first recorded steps compile and allocate; then `steps` begins with a plain one.
            training.step()
        times, wall, peak = step_times(training, steps)
        every_step = _many_recorded(training)
        frequent = statistics.mean(every_step)
        saves = [_save(training.recorder) for _ in range(2)]
        training.recorder.close()
        size = training.recorder.path.stat().st_size
        problems = training.recorder.warnings
    training.recorder = None
    after, wall_after, _ = step_times(training, steps)
    plain = statistics.median(before + after)
    extra = frequent - plain
    return {
        "plain_ms": plain,
        "recorded_ms": frequent,
        "recorded_ms_samples": every_step,
        "extra_ms": extra,
        "share_of_time": extra / every / plain,
        "wall_ms": [wall_before / steps, wall / steps, wall_after / steps],
        "recorded_in_run": sum(each > plain + extra / 2 for each in times),
        "peak_plain_gb": peak_plain / 1e9,
        "peak_gb": peak / 1e9,
        "share_of_memory": peak / peak_plain - 1,
        "saves": saves,
        "trace_mb": size / 1e6,
        "warnings": problems,
    }


def _many_recorded(training, count=24):
    """Milliseconds of recorded steps, every other one: enough of them for a mean over the turns that sites take."""
    steps = training.recorder._steps
    steps.every, usual = 2, steps.every
    if steps.finished % 2:
        training.step()
    steps._aim()
    times, _, _ = step_times(training, 2 * count)
    steps.every = usual
    steps._aim()
    return times[0::2]


def _save(recorder):
    """Milliseconds that training stands still for a save, and those until the file is there."""
    torch.cuda.synchronize()
    begin = time.perf_counter()
    recorder.save()
    torch.cuda.synchronize()
    stopped = time.perf_counter() - begin
    recorder._writer.wait()
    return {"stopped_ms": stopped * 1e3, "written_ms": (time.perf_counter() - begin) * 1e3}


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--configs", nargs="*", default=CONFIGS, choices=CONFIGS)
    parser.add_argument("--every", type=int, default=100)
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--out", type=pathlib.Path)
    options = parser.parse_args()
    if not torch.cuda.is_available():
        sys.exit("no CUDA device")
    torch.set_float32_matmul_precision("high")
    report = {"device": torch.cuda.get_device_name(), "torch": torch.__version__, "every": options.every}
    report.update(steps=options.steps, limits=LIMITS, rows={})
    for name in options.configs:
        gc.collect()
        torch.cuda.empty_cache()
        row = report["rows"][name] = measure(PUBLIC_SHAPES[name], options.every, options.steps)
        print(
            f"{name}: step {row['plain_ms']:.2f} ms, recorded {row['recorded_ms']:.2f} ms (+{row['extra_ms']:.2f}), "
            f"{row['share_of_time']:.3%} of time; wall {[round(each, 3) for each in row['wall_ms']]} ms a step; "
            f"peak {row['peak_plain_gb']:.3f} -> {row['peak_gb']:.3f} GB ({row['share_of_memory']:+.2%}); "
            f"trace {row['trace_mb']:.0f} MB, a save stops {row['saves'][1]['stopped_ms']:.0f} ms "
            f"(first {row['saves'][0]['stopped_ms']:.0f}); {row['warnings'] or 'no warnings'}",
            flush=True,
        )
        if options.out:
            # After each: a run that is cut short keeps what it measured.
            options.out.write_text(json.dumps(report, indent=1) + "\n")
    over = [name for name, row in report["rows"].items() if any(row[f"share_of_{key}"] > LIMITS[key] for key in LIMITS)]
    sys.exit(f"over the limit: {', '.join(over)}" if over else 0)


if __name__ == "__main__":
    main()
