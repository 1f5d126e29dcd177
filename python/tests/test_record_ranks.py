"""Two ranks, on the CPU over gloo: DDP and FSDP2, one shard each, merged by the `loka` program.

With LOKA_BACKEND=nccl the same on two GPUs, and as many as LOKA_RANKS says for what has more ranks.
"""

import contextlib
import os
import pathlib
import tempfile
import unittest
from unittest import mock

from ranks_support import joined
from record_support import batch, loka, loka_binary, loss_of, read, small_model

import numpy as np
import torch
import torch.distributed as dist
import torch.multiprocessing as mp

import loka as package
from loka.record import replicas


BACKEND = os.environ.get("LOKA_BACKEND", "gloo")


def batch_on(device, size, seed):
    """`batch`, on a device."""
    return [part.to(device) for part in batch(size, seed)]


def shards(rank, folder, how):
    """One rank's training: rank r sees batches of seed 10 r + step."""
    with joined(rank, folder, 2, BACKEND) as device:
        model = small_model().to(device)
        recorder = package.Recorder(model, f"{folder}/run", every=1, save_every=2, name="small", history="all")
        if how == "fsdp2 after attach":
            recorder.attach()
        if how == "ddp":
            wrapped = torch.nn.parallel.DistributedDataParallel(model)
        elif how == "apart":
            wrapped = model
        else:
            from torch.distributed.fsdp import fully_shard

            for layer in (model[0], model[3]):
                fully_shard(layer)
            wrapped = fully_shard(model)
        optimizer = torch.optim.SGD(wrapped.parameters(), 0.05)
        if how != "fsdp2 after attach":
            recorder = package.Recorder(wrapped, f"{folder}/run", every=1, save_every=2, name="small", history="all").attach()
        for step in range(3):
            x, target = batch_on(device, 20, 10 * rank + step)
            recorder.loss(loss_of(wrapped(x), target)).backward()
            optimizer.step()
            optimizer.zero_grad()
        recorder.close()
        assert recorder.warnings == [], recorder.warnings
        # Another one finds the model free again.
        package.Recorder(wrapped, f"{folder}/other").attach().detach()


def chosen(rank, folder, given):
    """Two ranks, of which `given` record."""
    with joined(rank, folder, 2, BACKEND) as device:
        model = small_model().to(device)
        wrapped = torch.nn.parallel.DistributedDataParallel(model)
        plain = [type(module) for module in model.modules()]
        optimizer = torch.optim.SGD(wrapped.parameters(), 0.05)
        with package.Recorder(wrapped, f"{folder}/run", every=1, save_every=2, name="small", ranks=given, history="all") as recorder:
            # What does not record is not touched at all.
            assert ([type(module) for module in model.modules()] == plain) == (rank == 0)
            for step in range(3):
                x, target = batch_on(device, 20, 10 * rank + step)
                recorder.loss(loss_of(wrapped(x), target)).backward()
                optimizer.step()
                optimizer.zero_grad()
        assert recorder.warnings == [], recorder.warnings
        text = str(recorder.report())
        assert ("small: 3 sites" in text) == (rank == 1), text
        assert ("warning: rank 0 of 2 records nothing, by ranks=: 1 do" in text) == (rank == 0), text
        try:
            package.Recorder(wrapped, folder, ranks=[2]).attach()
        except ValueError as error:
            assert str(error) == "ranks names rank 2, and there are 2", error
        else:
            raise AssertionError("a rank that there is not")


def without_the_first(rank, folder):
    """Two ranks that record, of which the second one alone saves."""
    with joined(rank, folder, 2, BACKEND) as device:
        replicas.PATIENCE_S = 0.2
        model = small_model().to(device)
        wrapped = torch.nn.parallel.DistributedDataParallel(model)
        recorder = package.Recorder(wrapped, f"{folder}/run", every=1, save_every=100, name="small")
        with recorder if rank == 1 else contextlib.nullcontext():
            if rank == 0:
                recorder._record.entries.name_run()
            x, target = batch_on(device, 20, rank)
            loss_of(wrapped(x), target).backward()
            recorder.step()
        dist.barrier()


def kept_as(rank, folder, how):
    """Two ranks of DDP that keep weights in another way than as they are."""
    with joined(rank, folder, 2, BACKEND) as device:
        torch.manual_seed(0)
        layers = [torch.nn.Linear(6, 32), torch.nn.SiLU(), torch.nn.Linear(32, 32), torch.nn.Linear(32, 1)]
        model = torch.nn.Sequential(*layers).to(device)
        wrapped = torch.nn.parallel.DistributedDataParallel(model)
        optimizer = torch.optim.SGD(wrapped.parameters(), 0.05)
        with package.Recorder(wrapped, folder, every=1, save_every=2, name="small", weights=how, rank=4) as recorder:
            for step in range(3):
                x, target = batch_on(device, 20, 10 * rank + step)
                recorder.loss(loss_of(wrapped(x), target)).backward()
                optimizer.step()
                optimizer.zero_grad()


WIDE = 50.0
"""How much wider the last rank's batches are, in `extremes`."""

MANY = int(os.environ.get("LOKA_RANKS", "4"))
"""Its ranks: eight take two cores half a minute more."""


def extremes(rank, folder, given):
    """Many ranks, of which `given` record and the others keep extremes; the batches of the last are wider."""
    with joined(rank, folder, MANY, BACKEND) as device:
        model = small_model().to(device)
        wrapped = torch.nn.parallel.DistributedDataParallel(model)
        optimizer = torch.optim.SGD(wrapped.parameters(), 1e-4)
        options = dict(every=1, save_every=2, name="small", ranks=given, extremes=True, history="all")
        with package.Recorder(wrapped, f"{folder}/run", **options) as recorder:
            for step in range(3):
                x, target = batch_on(device, 20, 10 * rank + step)
                recorder.loss(loss_of(wrapped(x * WIDE if rank == MANY - 1 else x), target)).backward()
                optimizer.step()
                optimizer.zero_grad()
        assert recorder.warnings == [], recorder.warnings
        text = str(recorder.report())
        alone = given is not None and rank not in given
        assert (f"rank {rank} of {MANY} records extremes alone, by ranks=: 0, 2 do" in text) == alone, text
        assert ("small: 3 sites" in text) != alone, text


class Lists(torch.nn.Module):
    """A cross layer whose kernels are in lists."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.down = torch.nn.ParameterList([torch.nn.Parameter(torch.randn(4, 6) / 2)])
        self.up = torch.nn.ParameterList([torch.nn.Parameter(torch.randn(4, 6) / 2)])

    def forward(self, x):
        return x * (torch.nn.functional.linear(x, self.down[0]) @ self.up[0]) + x


def lists(rank, folder):
    """Parameters that functions read are whole ones, while the module that multiplies runs."""
    from torch.distributed.fsdp import fully_shard

    with joined(rank, folder, 2, BACKEND) as device:
        model = torch.nn.Sequential(Lists(), torch.nn.Linear(6, 1)).to(device)
        fully_shard(model[0])
        fully_shard(model)
        optimizer = torch.optim.SGD(model.parameters(), 0.05)
        with package.Recorder(model, f"{folder}/run", every=1, name="lists") as recorder:
            for step in range(2):
                x, target = batch_on(device, 20, 10 * rank + step)
                recorder.loss(loss_of(model(x), target)).backward()
                optimizer.step()
                optimizer.zero_grad()
        assert recorder.sites == ["1", "0.down.0", "0.up.0"], recorder.sites
        assert recorder.coverage["sites"] == recorder.coverage["flops"], recorder.coverage


def sharded(rank, folder, given):
    """Sharded weights are gathered from all ranks at a save: those that do not record join it."""
    from torch.distributed.fsdp import fully_shard

    with joined(rank, folder, MANY, BACKEND) as device:
        model = small_model().to(device)
        later = package.Recorder(model, f"{folder}/later", every=1, name="small", ranks=given, history="all").attach()
        wrapped = fully_shard(model)
        recorder = package.Recorder(wrapped, f"{folder}/run", every=1, save_every=2, name="small", ranks=given, history="all")
        optimizer = torch.optim.SGD(wrapped.parameters(), 0.05)

        def step(recorder, seed):
            x, target = batch_on(device, 20, seed)
            recorder.loss(loss_of(wrapped(x), target)).backward()
            optimizer.step()
            optimizer.zero_grad()

        step(later, rank)
        later.close()
        assert [text.split(":")[0] for text in later.warnings] == [
            "weights were sharded after attach(), and ranks= records on some ranks alone"
        ][: int(rank in given)], later.warnings
        recorder.attach()
        for at in range(3):
            step(recorder, 10 * rank + at)
        recorder.close()
        assert recorder.warnings == [], recorder.warnings
        alone = f"rank {rank} of {MANY} records extremes alone, by ranks=: {', '.join(map(str, given))} do"
        assert (alone in str(recorder.report())) == (rank not in given), recorder.report()
        # What was sharded, whole: the file has to have it.
        weights = {name: value.full_tensor().cpu() for name, value in wrapped.state_dict().items()}
        if rank == 0:
            torch.save(weights, f"{folder}/weights.pt")


class Ranks(unittest.TestCase):
    def setUp(self):
        if not dist.is_available() or not dist.is_gloo_available():
            self.skipTest("no gloo")
        if BACKEND == "nccl" and torch.cuda.device_count() < MANY:
            self.skipTest(f"{MANY} ranks over NCCL want as many GPUs")
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)

    def check(self, how):
        folder = self.folder / how
        folder.mkdir()
        mp.spawn(shards, (str(folder), how), nprocs=2)
        files = [folder / "run" / f"small-rank{rank}.trace.safetensors" for rank in (0, 1)]
        (one, mine), (other, theirs) = [read(path) for path in files]
        self.assertEqual(one["run"]["id"], other["run"]["id"])
        self.assertEqual([run["run"]["rank"] for run in (one, other)], [0, 1])
        self.assertEqual((one["run"]["world_size"], one["run"]["step"]), (2, 3))
        for rank, tensors in enumerate((mine, theirs)):
            rows = torch.cat([batch(20, 10 * rank + step)[0] for step in range(3)]).double().numpy()
            self.assertEqual(tensors["0/input.count"].tolist(), [60])
            np.testing.assert_allclose(tensors["0/input.mean"], rows.mean(0), rtol=1e-9 if BACKEND == "gloo" else 1e-6)
            self.assertIn("3/grad_output.cov", tensors)
        self.assertEqual(tuple(mine["0/weight"].shape), (10, 6))
        weights = {f"{site}/weight{part}" for site in (0, 3, 5) for part in ("", ".hist", ".amax")}
        self.assertLessEqual(weights, set(mine))
        self.assertNotIn("weights_in", one["run"])
        # All hold the same, or shards of the same, and the first one's file has it.
        self.assertEqual(other["run"]["weights_in"], {"rank": 0, "file": files[0].name})
        self.assertEqual(set(mine) - set(theirs), weights)
        self.assertEqual([site["n"] for site in other["sites"]], [10, 8, 1])
        if loka_binary() is None:
            self.skipTest("no loka binary: set LOKA_BIN")
        merged = folder / "merged.trace.safetensors"
        result = loka("merge", *files, "--out", merged)
        self.assertEqual(result.returncode, 0, result.stderr)
        _, tensors = read(merged)
        rows = torch.cat([batch(20, seed)[0] for seed in (0, 1, 2, 10, 11, 12)]).double().numpy()
        self.assertEqual(tensors["0/input.count"].tolist(), [120])
        np.testing.assert_allclose(tensors["0/input.cov"], np.cov(rows.T), rtol=1e-4, atol=1e-5)
        self.assertTrue(torch.equal(tensors["0/weight"], mine["0/weight"]))
        self.check_joined(folder / "run", merged, files)

    def check_joined(self, run, merged, files):
        """A folder is what is merged of it; a shard without weights says where they are, and so does a folder without
        that shard."""
        told = [loka("--json", "info", path) for path in (run, merged)]
        self.assertEqual([each.returncode for each in told], [0, 0], told)
        said = "it has no weights: they are in small-rank0.trace.safetensors, rank 0's; take both, or their folder"
        alone = loka("info", files[1])
        self.assertEqual((alone.returncode, alone.stderr), (2, f"loka: {said}: {files[1]}\n"))
        files[0].unlink()
        self.assertEqual(loka("info", run).stderr, f"loka: {said}: {files[1]}\n")
        lost = loka("merge", files[1], "--out", merged)
        self.assertEqual((lost.returncode, lost.stderr), (2, f"loka: {said}: {files[1]}\n"))

    def test_what_ranks_hold_of_their_own_is_in_each_file(self):
        """Nothing says whether plain parameters are replicas: here each rank trains by itself."""
        mp.spawn(shards, (str(self.folder), "apart"), nprocs=2)
        for rank in (0, 1):
            manifest, tensors = read(self.folder / "run" / f"small-rank{rank}.trace.safetensors")
            self.assertNotIn("weights_in", manifest["run"])
            self.assertIn("0/weight", tensors)

    def test_weights_that_part_later_are_each_ranks_own(self):
        """Experts that begin alike on all ranks, say: they differ once they have learned something."""
        store, weight = dist.HashStore(), torch.ones(2, 3)
        with mock.patch.object(dist.distributed_c10d, "_get_default_store", lambda: store):
            with mock.patch.object(replicas.run_id, "place", side_effect=[(rank, 3) for rank in range(3)]):
                first, same, other = (replicas.Replicas("run", "model", 0) for _ in range(3))

            def elsewhere(step, values, who=(first, same, other)):
                return [of.elsewhere(step, [("a", weight + add)], False) for of, add in zip(who, values)]

            self.assertEqual(elsewhere(1, (0, 0, 0)), [False, True, True])
            # Saved by a rank's own clock: what was known stands.
            self.assertEqual(elsewhere(5, (1, 1), (same, other)), [True, True])
            self.assertEqual(elsewhere(10, (1, 1, 2)), [False, True, False])
            self.assertEqual(elsewhere(20, (1, 1, 1)), [False, True, False])

    def test_a_first_rank_that_saves_nothing_is_not_waited_for(self):
        mp.spawn(without_the_first, (str(self.folder),), nprocs=2)
        self.assertIn("0/weight", read(self.folder / "run" / "small-rank1.trace.safetensors")[1])

    def test_each_way_of_keeping_weights(self):
        for how in ("matrix_normal", "low_rank"):
            with self.subTest(how):
                folder = self.folder / how
                folder.mkdir()
                mp.spawn(kept_as, (str(folder), how), nprocs=2)
                (_, mine), (_, theirs) = [read(folder / f"small-rank{rank}.trace.safetensors") for rank in (0, 1)]
                gone = set(mine) - set(theirs)
                self.assertEqual({name.partition("/")[2].split(".")[0] for name in gone}, {"weight"})
                self.assertFalse([name for name in theirs if "/weight" in name])

    def test_chosen_ranks(self):
        for given in ([1],):
            folder = self.folder / str(given)
            folder.mkdir()
            mp.spawn(chosen, (str(folder), given), nprocs=2)
            files = sorted(path.name for path in (folder / "run").iterdir())
            self.assertEqual(files, ["small-rank1.trace.safetensors"])
            manifest, tensors = read(folder / "run" / files[0])
            self.assertEqual([manifest["run"][key] for key in ("rank", "world_size", "recorded_ranks", "step")], [1, 2, 1, 3])
            self.assertEqual(tensors["0/input.count"].tolist(), [60])
            if loka_binary() is not None:
                result = loka("info", folder / "run")
                self.assertEqual(result.returncode, 0, result.stderr)

    def test_the_rank_that_reaches_beyond_the_others(self):
        """Whether all record or two do: every rank's largest values are there, and the same."""
        kept = {}
        for given in (None, [0, 2]):
            folder = self.folder / str(given)
            folder.mkdir()
            mp.spawn(extremes, (str(folder), given), nprocs=MANY)
            suffixes = ["trace" if given is None or rank in given else "extremes" for rank in range(MANY)]
            files = sorted(path.name for path in (folder / "run").iterdir())
            self.assertEqual(files, [f"small-rank{rank}.{suffix}.safetensors" for rank, suffix in enumerate(suffixes)])
            sizes = [path.stat().st_size for path in (folder / "run").glob("*.extremes.safetensors")]
            self.assertLess(sum(sizes), 10_000 * max(1, len(sizes)))
            if loka_binary() is None:
                self.skipTest("no loka binary: set LOKA_BIN")
            merged = folder / "merged.trace.safetensors"
            result = loka("merge", folder / "run", "--out", merged)
            self.assertEqual(result.returncode, 0, result.stderr)
            for path in (folder / "run", merged):
                result = loka("info", path)
                self.assertEqual(result.returncode, 0, result.stderr)
                line = next(line for line in result.stdout.splitlines() if line.startswith("rank"))
                self.assertRegex(line, rf"^rank {MANY - 1} stands out at \d sites?: at 0 its x reaches [45]\d(\.\d)? times the median")
            kept[str(given)] = read(merged)[1]
        whole, some = kept.values()
        rows = [torch.cat([batch(20, 10 * rank + step)[0] for step in range(3)]) for rank in range(MANY)]
        amax = [float(of.abs().max()) for of in [*rows[:-1], WIDE * rows[-1]]]
        np.testing.assert_allclose(whole["0/ranks.input_amax"], amax, rtol=1e-6)
        self.assertEqual(whole["0/ranks.rank"].tolist(), list(range(MANY)))
        names = sorted(name for name in whole if "/ranks." in name)
        self.assertEqual(names, sorted(name for name in some if "/ranks." in name))
        self.assertEqual(len(names), 3 * 5)
        for name in names:
            np.testing.assert_allclose(some[name], whole[name], rtol=1e-5, err_msg=name)

    def test_sharded_weights_of_some_ranks(self):
        """The first that records has the weights, whole; a second one says where they are; the others have extremes."""
        if BACKEND == "gloo" and not hasattr(torch.cpu.Stream, "record_event"):
            self.skipTest(f"FSDP2 of PyTorch {torch.__version__} does not run on the CPU")
        mp.spawn(sharded, (str(self.folder), [0, 2]), nprocs=MANY)
        run = self.folder / "run"
        suffixes = ["trace" if rank in (0, 2) else "extremes" for rank in range(MANY)]
        files = sorted(path.name for path in run.iterdir())
        self.assertEqual(files, [f"small-rank{rank}.{suffix}.safetensors" for rank, suffix in enumerate(suffixes)])
        (one, mine), (other, theirs) = [read(run / f"small-rank{rank}.trace.safetensors") for rank in (0, 2)]
        self.assertEqual([each["run"]["recorded_ranks"] for each in (one, other)], [2, 2])
        self.assertEqual(other["run"]["weights_in"], {"rank": 0, "file": files[0]})
        self.assertEqual({name.partition("/")[2].split(".")[0] for name in set(mine) - set(theirs)}, {"weight"})
        weights = torch.load(self.folder / "weights.pt")
        for site in ("0", "3", "5"):
            self.assertTrue(torch.equal(mine[f"{site}/weight"], weights[f"{site}.weight"]), site)
        if loka_binary() is not None:
            result = loka("merge", run, "--out", self.folder / "merged.trace.safetensors")
            self.assertEqual(result.returncode, 0, result.stderr)
            merged = read(self.folder / "merged.trace.safetensors")[1]
            self.assertEqual(merged["0/ranks.rank"].tolist(), list(range(MANY)))
            self.assertTrue(torch.equal(merged["0/weight"], mine["0/weight"]))

    def test_which_ranks(self):
        from loka.record.options import Options

        def which(given, world):
            return list(Options(ranks=given).recording_ranks(world))

        self.assertEqual(which(8, 256), [0, 32, 64, 96, 128, 160, 192, 224])
        self.assertEqual(which(3, 4), [0, 1, 2])
        self.assertEqual([which(given, 2) for given in (None, 5, [1, 0, 1])], [[0, 1]] * 3)
        for wrong in (0, -1, [], [-1], True, ["0"], 1.5):
            with self.subTest(wrong), self.assertRaises((ValueError, TypeError)):
                Options(ranks=wrong)

    def test_ddp(self):
        self.check("ddp")

    def test_parameters_in_lists_that_are_sharded(self):
        if BACKEND == "gloo" and not hasattr(torch.cpu.Stream, "record_event"):
            self.skipTest(f"FSDP2 of PyTorch {torch.__version__} does not run on the CPU")
        with tempfile.TemporaryDirectory() as folder:
            torch.multiprocessing.spawn(lists, (folder,), nprocs=2)

    def test_fsdp2(self):
        if BACKEND == "gloo" and not hasattr(torch.cpu.Stream, "record_event"):
            self.skipTest(f"FSDP2 of PyTorch {torch.__version__} does not run on the CPU")
        for how in ("fsdp2", "fsdp2 after attach"):
            with self.subTest(how):
                self.check(how)


if __name__ == "__main__":
    unittest.main()
