"""Takes a ranker and a number of steps; gives, for rules by which a scale may follow its tensor, how often a step leaves the scale's range
and how much of the format's range is left unused.

A scale that follows is made of the steps before. A step whose largest value is beyond it saturates: every code there is 448 and the error
is a clip, not a rounding. More headroom and a longer memory make that rarer, and put more small values below the format's least. Trains the
ranker in high precision, keeps the largest |x| and |dy| of every linear in every step, and plays each rule on them.

    python benches/training/following.py --model wukong-5.6G --steps 2000
    python benches/training/following.py --replay wukong-5.6G.pt        # the rules alone, on what a run kept
"""

import argparse
import time
from collections import deque
from pathlib import Path
from typing import Callable, Dict, List, Tuple

import torch
from torch import Tensor, nn

from clicks import Clicks
from rankers import RANKERS, Ranker, build, config_of
from stages import WARMUP, log_loss

LARGEST = 448.0
"""E4M3's."""

OCTAVES = 18
"""From E4M3's largest value down to its least: beyond them a value becomes zero."""


def trained(name: str, steps: int, batch: int, small: bool, device: torch.device, every: int) -> Dict[str, object]:
    """The largest |x| and |dy| of every linear, [steps, 2 x linears], and the loss of every step."""
    config = config_of(name, small)
    ranker = build(config, "fp32", 0, device)
    linears = [(path, part) for path, part in ranker.named_modules() if isinstance(part, nn.Linear)]
    seen = torch.zeros(steps, 2 * len(linears), device=device)
    losses = torch.zeros(steps, device=device)
    now = [0]
    for at, (_, linear) in enumerate(linears):
        listen(linear, seen, now, 2 * at)
    optimizer = torch.optim.Adam(ranker.parameters(), lr=config.lr)
    clicks = Clicks(config.data, 0, batch or config.batch, device)
    began = time.monotonic()
    for step in range(steps):
        now[0] = step
        for group in optimizer.param_groups:
            group["lr"] = config.lr * min(1.0, (step + 1) / WARMUP)
        losses[step] = step_of(ranker, clicks, step, optimizer)
        if step % every == every - 1:
            mean = float(losses[step + 1 - every : step + 1].mean())
            print(f"step {step + 1}: loss {mean:.4f}, {time.monotonic() - began:.0f} s", flush=True)
    names = [f"{path} {operand}" for path, _ in linears for operand in ("x", "dy")]
    return {"model": name, "names": names, "seen": seen.cpu(), "losses": losses.cpu()}


def step_of(ranker: Ranker, clicks: Clicks, step: int, optimizer: torch.optim.Optimizer) -> Tensor:
    """Forward, loss, backward, optimizer."""
    batch = clicks.at(step)
    loss = log_loss(ranker.stack(*ranker.embedded(batch.dense, batch.ids)), batch.label)
    loss.backward()
    optimizer.step()
    optimizer.zero_grad(set_to_none=True)
    return loss.detach()


def listen(linear: nn.Linear, seen: Tensor, now: List[int], column: int) -> None:
    """Notes the largest |x| and |dy| of every call."""

    def note(at: int, value: Tensor) -> None:
        row = seen[now[0]]
        row[at] = torch.maximum(row[at], value.detach().abs().amax().float())

    linear.register_forward_pre_hook(lambda _, args: note(column, args[0]))
    linear.register_full_backward_hook(lambda _, __, given: note(column + 1, given[0]))


Rule = Callable[[Tensor], Tensor]
"""[steps, tensors] of largest values -> the largest value that each step's scale holds, of which the first step's is its own."""


def above(value: Tensor) -> Tensor:
    """The smallest power of two above each."""
    return torch.exp2(torch.floor(torch.log2(value.clamp_min(1e-38))) + 1)


def decaying(headroom: float, decay: float) -> Rule:
    """The largest value so far, less `decay` a step; a power of two."""

    def rule(seen: Tensor) -> Tensor:
        out, most = torch.empty_like(seen), seen[0].clone()
        out[0] = LARGEST * above(most * headroom / LARGEST)
        for step in range(1, len(seen)):
            out[step] = LARGEST * above(most * headroom / LARGEST)
            most = torch.maximum(seen[step], most * decay)
        return out

    return rule


def window(headroom: float, length: int) -> Rule:
    """The largest of the last steps, any number: what Transformer Engine's delayed scaling does with a history of 1,024."""

    def rule(seen: Tensor) -> Tensor:
        out, past = torch.empty_like(seen), deque([seen[0]], maxlen=length)
        for step in range(len(seen)):
            out[step] = headroom * torch.stack(tuple(past)).amax(0)
            past.append(seen[step])
        return out

    return rule


RULES: Dict[str, Rule] = {
    **{f"decay {decay}, headroom {headroom}": decaying(headroom, decay)
       for headroom in (1.0, 2.0, 4.0, 8.0) for decay in (0.9, 0.99, 0.999)},
    "the last step, headroom 2": window(2.0, 1),
    "largest of 16, headroom 1": window(1.0, 16),
    "largest of 1,024, headroom 1": window(1.0, 1024),
}  # fmt: skip


def played(seen: Tensor, rule: Rule) -> Tuple[float, float, float, float]:
    """(share of steps in which some tensor saturates, share of a tensor's steps, how far beyond at most, octaves unused in the
    mean)."""
    held = rule(seen)
    some = seen > 0
    beyond = (seen > held) & some
    over = torch.where(some, seen / held, 0.0)
    unused = torch.log2(torch.where(some, held / seen.clamp_min(1e-38), 1.0)).clamp_min(0.0)
    return (float(beyond.any(1).float().mean()), float(beyond.sum() / some.sum()), float(over.max()), float(unused[some].mean()))


def table(kept: Dict[str, object], skip: int) -> None:
    seen, losses = kept["seen"], kept["losses"]
    assert isinstance(seen, Tensor) and isinstance(losses, Tensor)
    leaps = (losses[1:] > losses[:-1] * 1.2).sum()
    print(f"\n{kept['model']}: {seen.shape[1]} tensors, {len(seen)} steps, {int(leaps)} of which have a loss 1.2 times the last one's")
    print(f"{'rule':<32} {'steps that saturate':>20} {'of all tensors':>15} {'beyond at most':>15} {'octaves unused':>15}")
    for name, rule in RULES.items():
        of_steps, of_tensors, over, unused = played(seen[skip:], rule)
        print(f"{name:<32} {of_steps:>20.2%} {of_tensors:>15.3%} {over:>14.1f}x {unused:>15.2f}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", choices=sorted(RANKERS), default="wukong-5.6G")
    parser.add_argument("--steps", type=int, default=2000)
    parser.add_argument("--batch", type=int, default=0, help="instead of the model's own")
    parser.add_argument("--small", action="store_true", help="the same structure at tens of features, for a CPU")
    parser.add_argument("--cpu", action="store_true")
    parser.add_argument("--skip", type=int, default=0, help="steps at the beginning that rules are not played on")
    parser.add_argument("--out", type=Path, help="keeps what was seen")
    parser.add_argument("--replay", type=Path, nargs="+", help="what runs kept: trains nothing")
    args = parser.parse_args()
    if args.replay:
        for path in args.replay:
            table(torch.load(path), args.skip)
        return
    device = torch.device("cpu" if args.cpu else "cuda")
    kept = trained(args.model, args.steps, args.batch, args.small, device, max(1, args.steps // 10))
    if args.out:
        torch.save(kept, args.out)
    table(kept, args.skip)


if __name__ == "__main__":
    main()
