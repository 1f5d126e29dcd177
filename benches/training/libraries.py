"""Takes a `loka` binary; gives the losses of a small ranker that trains under plans whose kernels are the user's libraries',
each alone and mixed, beside BF16's of the same seeds and batches.

    python3 benches/training/libraries.py --loka LOKA --out FOLDER [--steps 200] [--cpu]

Five linears of 1,024 by 1,024 with LayerNorm and SiLU between them and a head with one output, 2,048 examples a step,
FP32 parameters under BF16 autocast. It is recorded for ten steps, probed with the libraries themselves, planned with
overrides for all GEMMs of a library, and trained from the same start under each plan by `loka.apply`, launched eagerly; on a slow
host too, since it is the losses that are asked for. --compile compiles model and loss, as people train; --width and --rows make it as
large as a GPU wants it.
--cpu emulates the kernels' numerics: for tests of this script.
"""

import argparse
import json
import pathlib
import subprocess
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "python"))

import torch
from torch import nn

import loka

WIDTH, DEPTH, ROWS = 1024, 5, 2048
KERNELS = (
    "fbgemm/rowwise", "te/current", "te/blockwise", "deepgemm/blockwise", "torchao/tensorwise", "torchao/rowwise",
    "torchao/rowwise_with_gw_hp",
)
MIXED = {
    "0:*": "te/current", "1:*": "deepgemm/blockwise", "2:*": "fbgemm/rowwise", "3:*": "torchao/rowwise",
    # Three libraries at one linear.
    "4:fprop": "fbgemm/rowwise", "4:dgrad": "te/blockwise", "4:wgrad": "deepgemm/blockwise",
}


class Ranker(nn.Module):
    def __init__(self, width, seed):
        super().__init__()
        torch.manual_seed(seed)
        self.layers = nn.ModuleList(nn.Linear(width, width) for _ in range(DEPTH))
        self.norms = nn.ModuleList(nn.LayerNorm(width) for _ in range(DEPTH))
        self.head = nn.Linear(width, 1)

    def forward(self, x):
        for linear, norm in zip(self.layers, self.norms):
            x = x + nn.functional.silu(norm(linear(x)))
        return self.head(x).squeeze(-1)


class Batches:
    """Inputs of unit variance and clicks of a fixed random network of them: the same for the same step."""

    def __init__(self, width, rows, device):
        self.width, self.rows, self.device = width, rows, device
        generator = torch.Generator(device).manual_seed(1)
        self.first, self.second = (
            torch.randn(width, size, device=device, generator=generator) * width**-0.5 for size in (64, 64)
        )

    def __call__(self, step):
        generator = torch.Generator(self.device).manual_seed(1000 + step)
        x = torch.randn(self.rows, self.width, device=self.device, generator=generator)
        logit = 2 * (torch.tanh(x @ self.first) * torch.tanh(x @ self.second)).sum(1) / 4 + x[:, :8].sum(1) / 4
        return x, (torch.rand(self.rows, device=self.device, generator=generator) < torch.sigmoid(logit)).float()


def train(args, plan, steps, recorder=None):
    """Losses of each step, seconds a step, and what `loka.apply` said."""
    device = "cpu" if args.cpu else "cuda"
    width, rows = args.width, args.rows
    model, batches = Ranker(width, 0).to(device), Batches(width, rows, device)
    said = None
    if recorder is not None:
        recorder = loka.Recorder(model, out=str(args.out), name="libraries", every=1)
    if plan is not None:
        said = str(loka.apply(model, str(plan), emulate=args.cpu, on_slow_host="warn"))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    losses, begin = [], None
    bce = nn.functional.binary_cross_entropy_with_logits
    loss_of = lambda x, clicked: bce(model(x).float(), clicked)
    if args.compile and recorder is None:
        torch._dynamo.reset()
        loss_of = torch.compile(loss_of, dynamic=False)

    def step(number):
        x, clicked = batches(number)
        with torch.autocast(device, torch.bfloat16):
            loss = loss_of(x, clicked)
        if recorder is not None:
            loss = recorder.loss(loss)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        return loss.detach()

    def run():
        nonlocal begin
        for number in range(steps):
            if number == min(20, steps // 2):
                if not args.cpu:
                    torch.cuda.synchronize()
                begin = time.monotonic(), number
            losses.append(step(number))

    if recorder is None:
        run()
    else:
        with recorder:
            run()
    losses = torch.stack(losses).tolist()
    seconds = (time.monotonic() - begin[0]) / max(1, steps - begin[1])
    found = None if recorder is None else str(recorder.path)
    return {"losses": losses, "seconds_a_step": seconds, "said": said, "trace": found}


def command(args, *words):
    line = [str(args.loka), *map(str, words)]
    done = subprocess.run(line, capture_output=True, text=True)
    if done.returncode:
        said = (done.stderr.strip() or done.stdout.strip()).splitlines() or ["nothing was said"]
        raise RuntimeError(f"loka {words[0]}: exit {done.returncode}: {said[-1]}")
    return done.stdout


def tail(losses, count=20):
    return sum(losses[-count:]) / len(losses[-count:])


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--loka", type=pathlib.Path, required=True)
    parser.add_argument("--out", type=pathlib.Path, required=True)
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--kernels", action="append", help="only these, instead of every library's and the mixed plan")
    parser.add_argument("--compile", action="store_true", help="model and loss, in every arm")
    parser.add_argument("--width", type=int, help="of every linear (1,024)")
    parser.add_argument("--rows", type=int, help="examples a step (2,048)")
    parser.add_argument("--cpu", action="store_true")
    args = parser.parse_args()
    width, rows = (256, 256) if args.cpu else (WIDTH, ROWS)
    args.width, args.rows = args.width or width, args.rows or rows
    args.out.mkdir(parents=True, exist_ok=True)
    report = {
        "torch": torch.__version__, "device": "cpu" if args.cpu else torch.cuda.get_device_name(), "steps": args.steps,
        "width": args.width, "rows": args.rows, "compiled": args.compile, "arms": {},
    }

    def keep(name, found):
        report["arms"][name] = found
        (args.out / "training.json").write_text(json.dumps(report, indent=1) + "\n")

    trace = train(args, None, 10, recorder=True)["trace"]
    results = args.out / "libraries.results.parquet"
    arms = {kernel: {"*:*": kernel} for kernel in args.kernels or KERNELS}
    if args.kernels is None:
        arms["mixed"] = MIXED
    named = [word for kernel in KERNELS for word in ("--kernels", kernel)]
    how = ["--engine", "cpu"] if args.cpu else ["--engine", "cuda", "--libraries", "--python", sys.executable]
    begin = time.monotonic()
    command(args, "probe", trace, *how, *named, "--kernels", "cublaslt/bf16", "--min-draws", 4, "--max-draws", 4, "--out", results)
    print(f"probed in {time.monotonic() - begin:.0f} s", flush=True)
    before = train(args, None, args.steps)
    keep("bf16", before)
    print(f"{'plan':28s} {'last 20 losses':>14s} {'over BF16':>10s} {'first step':>11s} {'ms a step':>10s}")
    show = lambda name, found: print(
        f"{name:28s} {tail(found['losses']):14.5f} {tail(found['losses']) / tail(before['losses']) - 1:+10.2%}"
        f" {found['losses'][0] - before['losses'][0]:+11.2e} {1e3 * found['seconds_a_step']:10.2f}", flush=True,
    )
    show("bf16", before)
    for name, chosen in arms.items():
        plan = args.out / f"{name.replace('/', '-')}.plan.json"
        overrides = [word for at, kernel in chosen.items() for word in ("--override", f"layers.{at}={kernel}")]
        try:
            command(args, "plan", results, "--out", plan, "--name", name.replace("/", "-"), *overrides)
            found = train(args, plan, args.steps)
            keep(name, found)
            show(name, found)
        except Exception as error:
            keep(name, {"failed": f"{type(error).__name__}: {error}"})
            print(f"{name:28s} failed: {type(error).__name__}: {error}", flush=True)


if __name__ == "__main__":
    main()
