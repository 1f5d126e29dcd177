"""Takes a model and a stream of clicks; trains it, and gives the log loss of every step and of held-out examples.

Progressive evaluation: each batch's loss is taken before the batch is trained on, as online training does. Parameters
are FP32 and products TF32 (`high`), unless the model itself says otherwise. On a GPU the whole step is one CUDA graph
over the compiled model, captured once and used again for the next seed: small models are bound by launches otherwise.
"""

import argparse
import json
import math
import sys
import time
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Callable, Dict, List, Optional

import torch
from torch import Tensor, nn
from torch.nn import functional

from clicks import SMALL, Batch, ClickConfig, Clicks, floor_of
from models import FAMILIES, ModelConfig, build


@dataclass(frozen=True)
class TrainConfig:
    """How to train. Learning rates are Adam's; `window` and `warmup` are in steps; with `decay` the rate falls to a
    hundredth over the last third (a cosine), else it stays: online training never ends."""

    steps: int = 4000
    batch: int = 8192
    lr: float = 1e-3
    warmup: int = 200
    weight_decay: float = 1e-5
    decay: bool = False
    window: int = 250
    held_out: int = 128
    compile: bool = True


def rate_at(config: TrainConfig, step: int) -> float:
    """The learning rate of a step."""
    rate = config.lr * min(1.0, (step + 1) / config.warmup)
    start = 2 * config.steps // 3
    if config.decay and step > start:
        rate *= 0.01 + 0.99 * 0.5 * (1 + math.cos(math.pi * (step - start) / (config.steps - start)))
    return rate


def log_loss(logits: Tensor, label: Tensor) -> Tensor:
    """Mean log loss in FP32, whatever the logits come in."""
    return functional.binary_cross_entropy_with_logits(logits.float(), label)


class Trainer:
    """One model, its optimizer and (on CUDA) the captured step. `reset` starts another seed in the same graph."""

    def __init__(self, model: nn.Module, config: TrainConfig, device: torch.device) -> None:
        self.model, self.config, self.device = model.to(device), config, device
        self.called: Callable[..., Tensor] = torch.compile(self.model, dynamic=False) if config.compile else self.model
        self.rate = torch.tensor(config.lr, device=device)
        # A rate in a tensor, so that a captured graph sees the warm-up.
        self.optimizer = torch.optim.AdamW(
            self.model.parameters(),
            lr=self.rate,
            weight_decay=config.weight_decay,
            capturable=device.type == "cuda",
            fused=device.type == "cuda",
        )
        self.static: Optional[Batch] = None
        self.loss = torch.zeros((), device=device)
        self.graph: Optional["torch.cuda.CUDAGraph"] = None

    def reset(self, state: Dict[str, Tensor]) -> None:
        """Parameters from a state dict and an optimizer that has seen nothing, in place."""
        with torch.no_grad():
            for name, value in self.model.state_dict().items():
                value.copy_(state[name])
            for values in self.optimizer.state.values():
                for value in values.values():
                    value.zero_()
        if any(hasattr(module, "_loka_kernels") for module in self.model.modules()):
            import loka

            # Weights that are cast once a step were changed outside of one.
            loka.refresh(self.model)

    def train(self, batch: Batch, step: int, wrap: Optional[Callable[[Tensor], Tensor]] = None) -> Tensor:
        """One step; gives the loss before it (overwritten by the next step). With `wrap` (a recorder's `loss`) the step
        is eager: what a CUDA graph replays, a recorder does not see."""
        self.rate.fill_(rate_at(self.config, step))
        if wrap is not None or self.device.type != "cuda":
            self._step(batch, wrap)
            return self.loss
        if self.graph is None:
            self._capture(batch)
        assert self.graph is not None and self.static is not None
        self.static.copy_from(batch)
        self.graph.replay()
        return self.loss

    def _step(self, batch: Batch, wrap: Optional[Callable[[Tensor], Tensor]] = None) -> None:
        called = self.called if wrap is None else self.model
        loss = log_loss(called(batch.dense, batch.ids, batch.past), batch.label)
        (loss if wrap is None else wrap(loss)).backward()
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)
        self.loss.copy_(loss.detach())

    def _capture(self, batch: Batch) -> None:
        """Warms up (which compiles), captures a step, then puts back what the warm-up changed."""
        before = {name: value.clone() for name, value in self.model.state_dict().items()}
        self.static = batch.clone()
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            for _ in range(3):
                self._step(self.static)
        torch.cuda.current_stream().wait_stream(side)
        torch.cuda.synchronize()
        self.graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(self.graph):
            self._step(self.static)
        self.reset(before)

    def evaluate(self, batches: List[Batch]) -> List[float]:
        """Sum of the log loss of each held-out batch (summed in FP64, so that paired differences keep their digits)."""
        sums = []
        self.model.eval()
        with torch.no_grad():
            for batch in batches:
                logits = self.model(batch.dense, batch.ids, batch.past).double()
                sums.append(functional.binary_cross_entropy_with_logits(logits, batch.label.double(), reduction="sum"))
        self.model.train()
        return torch.stack(sums).tolist()


@dataclass
class Run:
    """What a training run leaves: mean loss of each window, the whole, the last tenth; held-out sums per batch."""

    seed: int
    windows: List[float]
    whole: float
    last_tenth: float
    held_out: List[float]
    held_out_loss: float
    seconds: float
    finite: bool


def run(trainer: Trainer, clicks: Clicks, state: Dict[str, Tensor], note: str = "") -> Run:
    """Trains from `state` over the stream of `clicks`."""
    config = trainer.config
    trainer.reset(state)
    history = torch.zeros(config.steps, device=trainer.device)
    started = last = time.monotonic()
    for step in range(config.steps):
        history[step].copy_(trainer.train(clicks.at(step), step))
        if time.monotonic() - last > 10:
            last = time.monotonic()
            left = (last - started) / (step + 1) * (config.steps - step - 1)
            print(f"{note} step {step + 1}/{config.steps}, {left:.0f} s left", file=sys.stderr, flush=True)
    losses = history.double().cpu()
    seconds = time.monotonic() - started
    held_out = []
    for batch in clicks.held_out(config.steps, config.held_out):
        held_out += trainer.evaluate([batch])
    whole = config.steps // config.window * config.window
    return Run(
        seed=clicks.seed,
        windows=losses[:whole].view(-1, config.window).mean(1).tolist(),
        whole=float(losses.mean()),
        last_tenth=float(losses[-max(1, config.steps // 10) :].mean()),
        held_out=held_out,
        held_out_loss=sum(held_out) / max(1, len(held_out) * config.batch),
        seconds=seconds,
        finite=bool(losses.isfinite().all()),
    )


def sizes(parser: argparse.ArgumentParser) -> None:
    """The arguments that every script here shares: family, sizes, data, training."""
    parser.add_argument("--family", choices=sorted(FAMILIES), default="wukong")
    parser.add_argument("--steps", type=int, default=4000)
    parser.add_argument("--batch", type=int, default=8192)
    parser.add_argument("--lr", type=float, default=4e-3)
    parser.add_argument("--hidden", type=int, default=512)
    parser.add_argument("--layers", type=int, default=4)
    parser.add_argument("--counters", type=int, default=0, help="raw counters among the dense inputs (0, 16, ...)")
    parser.add_argument("--held-out", type=int, default=128, help="held-out batches at the end")
    parser.add_argument("--decay", action="store_true", help="let the learning rate fall over the last third")
    parser.add_argument("--eager", action="store_true", help="do not compile")
    parser.add_argument("--small", action="store_true", help="tiny sizes, for trying things on a CPU")
    parser.add_argument("--gpu", action="store_true", help="train on the CUDA device")


FAMILY_DATA = {"wukong": dict(), "dhen": dict(tables=12), "interformer": dict(tables=8, past=16)}
FAMILY_DIM = {"wukong": 32, "dhen": 16, "interformer": 32}


def configs(args: argparse.Namespace) -> "tuple[ClickConfig, ModelConfig, TrainConfig]":
    """The three configurations that the arguments ask for."""
    data = replace(SMALL if args.small else ClickConfig(), counters=args.counters, **FAMILY_DATA[args.family])
    if data.inputs % 16:
        raise SystemExit(f"dense {data.dense} + counters {data.counters} is not a multiple of 16, which FP8 needs")
    hidden, layers = (64, min(2, args.layers)) if args.small else (args.hidden, args.layers)
    model = ModelConfig(
        family=args.family, tables=data.tables, rows=data.rows, inputs=data.inputs, past=data.past,
        dim=16 if args.small else FAMILY_DIM[args.family], hidden=hidden, layers=layers,
    )  # fmt: skip
    steps, batch = (min(args.steps, 40), min(args.batch, 64)) if args.small else (args.steps, args.batch)
    train = TrainConfig(
        steps=steps, batch=batch, lr=args.lr, decay=args.decay, compile=not args.eager and not args.small,
        held_out=min(args.held_out, 4) if args.small else args.held_out,
        window=10 if args.small else 250, warmup=10 if args.small else 200,
    )  # fmt: skip
    return data, model, train


def device_of(args: argparse.Namespace) -> torch.device:
    """The CUDA device when asked for, with TF32 products; else the CPU."""
    torch.set_float32_matmul_precision("high")
    if args.gpu and not torch.cuda.is_available():
        raise SystemExit("--gpu: no CUDA device")
    return torch.device("cuda" if args.gpu else "cpu")


def main() -> None:
    parser = argparse.ArgumentParser(description="Trains one family on drifting clicks and prints its log-loss curve.")
    sizes(parser)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0])
    parser.add_argument("--mods", action="store_true", help="build with all three Mods")
    parser.add_argument("--out", type=Path, help="results as JSON")
    parser.add_argument("--save", type=Path, help="state of the last seed's model, for prediction.py")
    args = parser.parse_args()
    device = device_of(args)
    data, model, config = configs(args)
    if args.mods:
        model = replace(model, norm="block", act="hswish", bias=False)
    trainer: Optional[Trainer] = None
    runs = []
    print(f"{'seed':>5} {'whole':>9} {'last 10%':>9} {'held out':>9} {'floor':>8} {'ms/step':>8}")
    for seed in args.seeds:
        fresh = build(model, seed).to(device)
        trainer = trainer or Trainer(build(model, seed), config, device)
        clicks = Clicks(data, seed, config.batch, device)
        result = run(trainer, clicks, fresh.state_dict(), f"seed {seed}")
        floor = floor_of(clicks.held_out(config.steps, 16))
        runs.append({**asdict(result), "floor": floor})
        print(f"{seed:>5} {result.whole:>9.5f} {result.last_tenth:>9.5f} {result.held_out_loss:>9.5f} {floor:>8.4f}"
              f" {result.seconds / config.steps * 1e3:>8.2f}", flush=True)  # fmt: skip
    settings = {"data": asdict(data), "model": asdict(model), "train": asdict(config)}
    if args.out:
        args.out.write_text(json.dumps({**settings, "torch": torch.__version__, "runs": runs}))
    if args.save and trainer:
        torch.save({**settings, "seed": args.seeds[-1], "state": trainer.model.state_dict()}, args.save)


if __name__ == "__main__":
    main()
