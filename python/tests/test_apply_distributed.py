"""A plan under DDP and FSDP2: two processes on the CPU, against one process that sees both halves of the batch."""

import os
import pathlib
import sys
import tempfile
import unittest
import warnings

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))

import torch
import torch.distributed as dist
import torch.multiprocessing
from torch import nn

import loka
from ranker import PLAN, Ranker, batch, forged
from ranks_support import joined

WORLD = 2
DELAYED = "cublaslt/fp8-delayed"


def loss_of(model, rank):
    return model(batch(rows=16, seed=rank)).square().mean()


def expected():
    """Loss of each rank and the mean of their gradients, without any wrapper."""
    model = Ranker()
    loka.apply(model, PLAN, emulate=True)
    losses = []
    for rank in range(WORLD):
        loss = loss_of(model, rank)
        (loss / WORLD).backward()
        losses.append(loss.item())
    return losses, {name: parameter.grad for name, parameter in model.named_parameters()}


def shard(model, each_linear):
    from torch.distributed.fsdp import fully_shard

    for part in (model.bottom, model.top):
        for module in part if each_linear else ():
            if isinstance(module, nn.Linear):
                fully_shard(module)
        fully_shard(part)
    return fully_shard(model)


def apply(model, plan=PLAN):
    found = loka.apply(model, plan, emulate=True)
    assert found.num_fp8 == 3 and not found.problems, found
    return model


def following_plan(folder):
    """The plan whose two lower sites go by scales that follow x and dy."""

    def change(plan):
        for site in plan["sites"][:2]:
            for gemm in ("fprop", "dgrad", "wgrad"):
                site[gemm]["kernel"] = DELAYED

    return forged(folder, change)


def ddp(model):
    return nn.parallel.DistributedDataParallel(model)


CASES = {
    "ddp, then the plan": lambda apply: apply(ddp(Ranker())),
    "the plan, then ddp": lambda apply: ddp(apply(Ranker())),
    "fsdp, then the plan": lambda apply: apply(shard(Ranker(), each_linear=False)),
    "the plan, then fsdp": lambda apply: shard(apply(Ranker()), each_linear=False),
    "fsdp of each linear, then the plan": lambda apply: apply(shard(Ranker(), each_linear=True)),
    "the plan, then fsdp of each linear": lambda apply: shard(apply(Ranker()), each_linear=True),
}


# PyTorch 2.6 shards there, and its forward then asks for an event that the CPU's streams do not have.
FSDP2_ON_CPU = hasattr(torch.cpu.Stream, "record_event")


def fsdp_factor(rank):
    """What FSDP2 gives of the mean over ranks without any plan: over gloo PyTorch 2.7 and 2.8 give the sum."""
    plain, sharded = Ranker(), shard(Ranker(), each_linear=False)
    for seed in range(WORLD):
        (loss_of(plain, seed) / WORLD).backward()
    loss_of(sharded, rank).backward()
    pairs = zip(sharded.parameters(), plain.parameters())
    factors = {round(float(of.grad.full_tensor().norm() / mean.grad.norm()), 4) for of, mean in pairs}
    assert factors in ({1.0}, {float(WORLD)}), factors
    return factors.pop()


def whole(grad):
    return grad.full_tensor() if hasattr(grad, "full_tensor") else grad


def check(rank, make, losses, gradients):
    model = make(apply)
    assert loka.resolved(model).num_fp8 == 3
    loss = loss_of(model, rank)
    loss.backward()
    assert abs(loss.item() - losses[rank]) < 1e-7, (loss.item(), losses[rank])
    for name, parameter in model.named_parameters():
        torch.testing.assert_close(whole(parameter.grad), gradients[name.removeprefix("module.")], rtol=1e-5, atol=1e-8)
    loka.unapply(model)
    plain = loss_of(Ranker(), rank)
    torch.testing.assert_close(loss_of(model, rank), plain, rtol=0, atol=0)
    assert loss.item() != plain.item()


FOLLOWED_STEPS, FOLLOWED_ROWS = 3, 4096


def followed_loss(model, rank, step):
    """Rank 1's is four times as large for the same outputs, and everybody's doubles from step to step."""
    x = batch(FOLLOWED_ROWS, seed=rank)
    loss = nn.functional.binary_cross_entropy_with_logits(model(x), (x[:, 0] > 0).float())
    return loss * 4**rank * 2**step


def scales_of(model):
    """Of x and dy, of both sites whose scales follow."""
    modules = dict((model.module if hasattr(model, "module") else model).named_modules())
    return [[float(scale.scale) for scale in modules[name]._loka_scales] for name in ("bottom.0", "bottom.3")]


def gradients_of(model):
    return {name.removeprefix("module."): whole(parameter.grad).clone() for name, parameter in model.named_parameters()}


def followed(model, rank):
    """The gradients of each step, and the scales after it. Weights stay as they are."""
    optimizer = torch.optim.SGD(model.parameters(), lr=0.0)
    steps = []
    for step in range(FOLLOWED_STEPS):
        optimizer.zero_grad()
        followed_loss(model, rank, step).backward()
        gradients = gradients_of(model)
        optimizer.step()
        steps.append((gradients, scales_of(model)))
    return steps


def mean(one, other):
    return {name: (one[name] + other[name]) / WORLD for name in one}


def alone(plan):
    """Without ranks, step by step: the mean of the gradients by the plan, that without one, the scales that each rank's batches lead to."""
    found = []
    ranks = [followed(apply(Ranker(), plan), rank) for rank in range(WORLD)]
    for step, by_rank in enumerate(zip(*ranks)):
        plain = []
        for rank in range(WORLD):
            model = Ranker()
            followed_loss(model, rank, step).backward()
            plain.append(gradients_of(model))
        found.append((mean(*(gradients for gradients, _ in by_rank)), mean(*plain), [scales for _, scales in by_rank]))
    # What is compared below changes from rank to rank, and from step to step.
    of_dy = [[scales[rank][0][1] for _, _, scales in found] for rank in range(WORLD)]
    assert of_dy[1] > of_dy[0] and all(len(set(steps)) == FOLLOWED_STEPS for steps in of_dy), of_dy
    return found


def check_following(rank, make, plan, expected, factor):
    """Each rank's scales follow what this rank sees; gradients are what they are without ranks, weights' within 10 % of
    those without a plan."""
    model = make(lambda model: apply(model, plan))
    for (gradients, scales), (by_plan, plain, by_rank) in zip(followed(model, rank), expected):
        assert scales == by_rank[rank], (scales, by_rank)
        for name, gradient in gradients.items():
            torch.testing.assert_close(gradient, factor * by_plan[name], rtol=1e-5, atol=1e-7)
            error = float((gradient / factor - plain[name]).norm() / plain[name].norm())
            assert error < 0.1 or name.endswith("bias"), (name, error)
    assert loka.health(model).off == (), loka.health(model)


def work(rank, folder, plan):
    warnings.simplefilter("ignore", FutureWarning)
    torch.set_num_threads(1)
    with joined(rank, folder, WORLD):
        losses, gradients = expected()
        following = alone(plan)
        factor = fsdp_factor(rank) if FSDP2_ON_CPU else 1.0
        under_fsdp = {name: factor * grad for name, grad in gradients.items()}
        for name, make in CASES.items():
            if "fsdp" in name and not FSDP2_ON_CPU:
                continue
            try:
                check(rank, make, losses, under_fsdp if "fsdp" in name else gradients)
                check_following(rank, make, plan, following, factor if "fsdp" in name else 1.0)
            except Exception as error:
                raise AssertionError(f"{name}: {type(error).__name__}: {error}") from error
        pathlib.Path(folder, f"done-{rank}").write_text(" ".join(map(str, losses)))


@unittest.skipUnless(dist.is_available() and dist.is_gloo_available(), "PyTorch without gloo")
class Distributed(unittest.TestCase):
    def test_two_processes(self):
        os.environ.setdefault("OMP_NUM_THREADS", "1")
        with tempfile.TemporaryDirectory() as folder:
            torch.multiprocessing.spawn(work, (folder, following_plan(folder)), nprocs=WORLD)
            self.assertEqual(sorted(os.listdir(folder))[:WORLD], [f"done-{rank}" for rank in range(WORLD)])
        with self.subTest("fsdp"):
            if not FSDP2_ON_CPU:
                self.skipTest(f"FSDP2 of PyTorch {torch.__version__} does not run on the CPU")


if __name__ == "__main__":
    unittest.main()
