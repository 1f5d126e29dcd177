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
from ranker import PLAN, Ranker, batch

WORLD = 2


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


def apply(model):
    found = loka.apply(model, PLAN, emulate=True)
    assert found.num_fp8 == 3 and not found.problems, found
    return model


def ddp(model):
    return nn.parallel.DistributedDataParallel(model)


CASES = {
    "ddp, then the plan": lambda: apply(ddp(Ranker())),
    "the plan, then ddp": lambda: ddp(apply(Ranker())),
    "fsdp, then the plan": lambda: apply(shard(Ranker(), each_linear=False)),
    "the plan, then fsdp": lambda: shard(apply(Ranker()), each_linear=False),
    "fsdp of each linear, then the plan": lambda: apply(shard(Ranker(), each_linear=True)),
    "the plan, then fsdp of each linear": lambda: shard(apply(Ranker()), each_linear=True),
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


def check(rank, make, losses, gradients):
    model = make()
    assert loka.resolved(model).num_fp8 == 3
    loss = loss_of(model, rank)
    loss.backward()
    assert abs(loss.item() - losses[rank]) < 1e-7, (loss.item(), losses[rank])
    for name, parameter in model.named_parameters():
        grad = parameter.grad.full_tensor() if hasattr(parameter.grad, "full_tensor") else parameter.grad
        torch.testing.assert_close(grad, gradients[name.removeprefix("module.")], rtol=1e-5, atol=1e-8)
    loka.unapply(model)
    plain = loss_of(Ranker(), rank)
    torch.testing.assert_close(loss_of(model, rank), plain, rtol=0, atol=0)
    assert loss.item() != plain.item()


def work(rank, folder):
    warnings.simplefilter("ignore", FutureWarning)
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{folder}/rendezvous", rank=rank, world_size=WORLD)
    try:
        losses, gradients = expected()
        factor = fsdp_factor(rank) if FSDP2_ON_CPU else 1.0
        under_fsdp = {name: factor * grad for name, grad in gradients.items()}
        for name, make in CASES.items():
            if "fsdp" in name and not FSDP2_ON_CPU:
                continue
            try:
                check(rank, make, losses, under_fsdp if "fsdp" in name else gradients)
            except Exception as error:
                raise AssertionError(f"{name}: {type(error).__name__}: {error}") from error
        dist.barrier()
        pathlib.Path(folder, f"done-{rank}").write_text(" ".join(map(str, losses)))
        # Not through Python's own end: gloo's threads may still run then, and abort the process.
        os._exit(0)
    finally:
        dist.destroy_process_group()


@unittest.skipUnless(dist.is_available() and dist.is_gloo_available(), "PyTorch without gloo")
class Distributed(unittest.TestCase):
    def test_two_processes(self):
        os.environ.setdefault("OMP_NUM_THREADS", "1")
        with tempfile.TemporaryDirectory() as folder:
            torch.multiprocessing.spawn(work, (folder,), nprocs=WORLD)
            self.assertEqual(sorted(os.listdir(folder))[:WORLD], [f"done-{rank}" for rank in range(WORLD)])
        with self.subTest("fsdp"):
            if not FSDP2_ON_CPU:
                self.skipTest(f"FSDP2 of PyTorch {torch.__version__} does not run on the CPU")


if __name__ == "__main__":
    unittest.main()
