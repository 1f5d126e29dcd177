"""Takes a model that trains; gives a trace file of it, every so many steps: `loka.Recorder`."""

import contextlib
import functools
import pathlib
import time
import types
from typing import Any, Callable, Dict, Iterator, List, Mapping, Optional, Sequence, Set, Tuple, Type, Union

import torch
from torch import Tensor, nn
from torch.nn.parameter import is_lazy
from torch.optim import Optimizer

from loka import names
from loka.graph.observe import Observation
from loka.record import functional as functional_linears
from loka.record import partition, preempt
from loka.record import run_id as ranks_of_run
from loka.record import taps
from loka.record.clock import Clock
from loka.record.coverage import Hook
from loka.record.entries import file_name
from loka.record.extremes import SUFFIX
from loka.record.host import HostPace
from loka.record.loss import LossTap
from loka.record.options import Functional, Options
from loka.record.parameters import Reader, TappedReader, paths, readers
from loka.record.record import Record
from loka.record.report import RecordReport, report_of
from loka.record.shard import make
from loka.record.site import SiteStats
from loka.record.snapshot import Snapshot
from loka.record.writer import Content, Writer
from loka.steps import Steps
from loka.variants import make_room

UNSEEN = 30
"""Plain steps that pass without a look at the clock, after one that was timed."""

WORTH_A_WARNING = 0.01
"""Share of a model's matmul FLOPs, in weights that are not recorded, from which on there is a warning."""


class Recorder:
    """Records the linear layers of `model` while it trains, into `out/NAME-rankR.trace.safetensors`.

        with loka.Recorder(model, out="run/", every=100, save_every=10_000) as recorder:
            for batch in data:
                loss = recorder.loss(criterion(model(batch), target))
                loss.backward()
                optimizer.step()

    Recorded of each linear, at one of `every` steps and on at most `rows` rows of it: second-order statistics of the
    input `[m, k]` and of the per-example gradient of the output `[m, n]`, never the rows (but see `held_out`).

    Args:
        model: as it is trained: wrapped or not in torch.compile, DDP or FSDP2, before or after this.
        out: folder of the trace; one file a rank, overwritten whole at each save.
        every, save_every: steps between recordings and between saves. A step is one optimizer step: that of the
            first optimizer that holds a recorded weight, or a call of `step()`.
        save_seconds: seconds after which it is saved anyway, at the end of a step (None: never). The first save comes
            after the first recorded step. Sharded weights, whose save takes all ranks, are saved by steps alone.
        save_on_sigterm: save when the job is told to end, before the handler that was there; again not sharded weights.
        name: the model's name in the trace; by default its class's.
        rows: rows used of a call, evenly spread.
        limit: features up to which a covariance is exact; past it a sketch of `rank` (+ `oversample`) columns.
        rank, oversample, factor_above: rank of a factored covariance; features past `factor_above` (default `limit`)
            are stored factored, which makes small files.
        weights: `snapshot`, or `matrix_normal` for weights up to `limit` in both dimensions, with `momentum`; or
            `low_rank`: the last snapshot's leading `rank` singular pairs, and of the rest the variance of each row and
            column, for a trace that has to be small. Weights are then drawn, and errors are those of normal values.
            Of ranks that hold the same weights, as under DDP, the first that records has them in its file; the others' say so.
        weight_dtype: type of the snapshot; by default BF16 of a BF16 weight, else FP32.
        held_out: raw rows a site to keep in the trace, from the latest recorded step. User data: 0 by default.
        cross_cov: covariance of gradient with input where both have at most `limit` features (True), or at most so
            many products. Elsewhere its leading `cross_rank` singular pairs, from a sketch (0: nothing).
        quantile_every: a site's quantiles are taken at the first recorded step and then at one of so many.
        history: `recent`: statistics are of the last half of the recorded steps, at least, since gradients shrink by orders of
            magnitude while a model trains; or `all`: of all of them. Series are of every recorded step.
        loss_reduction: `mean` over examples (the leading dimension of the layer's output), `sum`, or the factor that
            a sum over examples is multiplied by: what makes output gradients those of one example. Give 1 / examples
            where rows of several positions are flattened into the leading dimension, and 1 / (examples * T) where the loss is a mean
            over T tasks or tokens of each example as well: without it loss costs are T times too low.
        loss_name, loss_value: of the loss in the manifest; by default the mean of what `loss()` was given.
        run_id: the same on all ranks; by default random, from rank 0.
        family, note: of the model, for the manifest.
        tails, feeds, heads: by site, instead of what is read from the model.
        functional: `{name: weight}` or `{name: (weight, bias)}` of each `loka.linear(..., name=name)`.
        seed: of the sketch.
        ranks: of torch.distributed, which record: so many of them, evenly spread, or those of these numbers; by default all.
            The others train as without a Recorder, which every rank makes all the same; with sharded weights, whose save takes all
            ranks, they join it, and keep extremes.
        extremes: with `ranks`, the others keep the largest values and histograms of x and dy, in a small file each: a rank
            whose values reach beyond those of all others may be any. They then run recorded steps as the others do.

    Nothing here ends a training job after `attach()`: errors are counted, warned of once, and in `warnings`.
    Not recorded: activations that are DTensors, torch.func transforms, steps that the caller captures in a CUDA graph.
    """

    def __init__(
        self,
        model: nn.Module,
        out: Union[str, pathlib.Path],
        *,
        every: int = 100,
        save_every: int = 10_000,
        save_seconds: Optional[float] = 1800.0,
        save_on_sigterm: bool = True,
        name: Optional[str] = None,
        rows: int = 2048,
        limit: int = 1024,
        rank: int = 48,
        oversample: int = 16,
        factor_above: Optional[int] = None,
        weights: str = "snapshot",
        weight_dtype: Optional[torch.dtype] = None,
        momentum: float = 0.95,
        held_out: int = 0,
        cross_cov: Union[bool, int] = False,
        cross_rank: int = 16,
        quantile_every: int = 4,
        history: str = "recent",
        loss_reduction: Union[str, float] = "mean",
        loss_name: str = "loss",
        loss_value: Optional[float] = None,
        run_id: Optional[str] = None,
        family: str = "",
        note: Optional[str] = None,
        tails: Optional[Mapping[str, Sequence[Mapping[str, Any]]]] = None,
        feeds: Optional[Mapping[str, Sequence[str]]] = None,
        heads: Sequence[str] = (),
        functional: Optional[Functional] = None,
        seed: int = 0,
        ranks: Union[None, int, Sequence[int]] = None,
        extremes: bool = False,
    ) -> None:
        if not isinstance(model, nn.Module):
            raise TypeError(f"model is a {type(model).__name__}, expected a torch.nn.Module")
        self.options = Options(
            every=every, save_every=save_every, save_seconds=save_seconds, rows=rows, limit=limit, rank=rank, oversample=oversample,
            factor_above=factor_above, weights=weights, weight_dtype=weight_dtype, momentum=momentum,
            held_out=held_out, cross_cov=cross_cov, cross_rank=cross_rank, quantile_every=quantile_every, history=history, loss_reduction=loss_reduction,
            loss_name=loss_name, loss_value=loss_value, run_id=run_id, family=family, note=note, tails=tails or {},
            feeds=feeds or {}, heads=heads, functional=functional or {}, seed=seed, ranks=ranks, extremes=extremes,
        )  # fmt: skip
        self.model = model
        self.out = pathlib.Path(out)
        self.name = name or names.root_name(model)
        self.warnings: List[str] = []
        self._warned: Set[str] = set()
        self._taps: Dict[str, taps.Tap] = {}
        switch = taps.Switch()
        self._record = Record(model, self.name, self.options, self._warn, switch, self._read)
        self._steps = Steps(self.options.every, switch, self._owns, self._step_ended)
        self._read_by: Dict[nn.Module, Reader] = {}
        self._lazy: List[SiteStats] = []
        self._loss = LossTap(self.options, self._steps.switch)
        self._writer = Writer(self._write_failed)
        self._saved_at: Optional[Tuple[int, int]] = None
        self._saved_time: Optional[float] = None
        self._on_sigterm = save_on_sigterm
        self._busy = 0
        self._terminating = False
        self._clock = Clock()
        self._host = HostPace(self._steps, self._record.entries.gpu)
        self._was_attached = False
        self._silent = False
        """Attached, and of those ranks that record nothing."""
        self._extremes_alone = False
        """Of those that record nothing but extremes."""
        self._joins = False
        """Whether weights were sharded at `attach()`, so that those join each save."""
        self._others = ""
        """Which ranks record, where this one does not."""

    # Life

    def attach(self) -> "Recorder":
        """Starts to record, at this step. RuntimeError when a recorder is attached to the model already."""
        if self._taps or self._silent:
            raise RuntimeError("this recorder is attached already")
        self._was_attached = True
        if not self._records_here():
            if not self.options.extremes and not self._joins:
                self._silent = True
                self._record.entries.name_run()
                return self
            if not self._extremes_alone:
                self._extremes_alone = True
                self._record.keep_extremes_alone()
        sites = self._record.sites
        taken = [name for name, stats in sites.items() if stats.module is not None and taps.is_tapped(stats.module)]
        taken += [name for name in self.options.functional if name in functional_linears.named]
        if taken:
            raise RuntimeError(f"another recorder is attached to this model, at {taken[0]}: detach it first")
        # Before the taps, which a symbolic trace would meet.
        self._record.open()
        if not self._extremes_alone:
            self._record.compare_weights(self.options.recording_ranks(ranks_of_run.place()[1]))
        for stats in sites.values():
            if stats.reads is None:
                self._tap(stats)
        for _, module in readers(self.model):
            self._read(module, paths(module))
        self._loss.open()
        if self._taps:
            partition.forbid()
            # A step that is recorded has a variant of its own.
            make_room(2 * len(self._taps))
        self._steps.start()
        self._clock.start()
        taps.run_as_written(Hook.__call__, *Observation.hooks())
        if self._on_sigterm:
            preempt.add(self._save_now)
        self._look_at_folder()
        return self

    def detach(self) -> None:
        """Stops to record, and leaves the model as it was. What was recorded is kept, for `save()`."""
        self._silent = False
        self._steps.stop()
        self._clock.stop()
        self._host.stop()
        preempt.remove(self._save_now)
        self._record.close()
        self._loss.release()
        for name, tap in self._taps.items():
            module = self._record.sites[name].module
            if module is None:
                functional_linears.named.pop(name, None)
            else:
                taps.remove(module)
            tap.release()
        if self._taps:
            partition.allow()
        self._taps.clear()
        for module, reader in self._read_by.items():
            taps.remove(module)
            reader.release()
        self._read_by.clear()
        self._lazy.clear()
        self._record.readers.clear()

    def close(self) -> None:
        """Detaches, saves what is new, and waits for the file."""
        if self._silent:
            self.detach()
            return
        if self._steps.close_open(self._record.open_calls() > 0):
            self._record.end_step(self._steps.index - 1, self._loss)
        self.detach()
        # What is still being written may fail, and is then worth another try.
        self._writer.wait()
        if self._saved_at != self._now():
            self.save()
        self._writer.wait()
        self._say_coverage()

    def __enter__(self) -> "Recorder":
        return self.attach()

    def __exit__(
        self,
        kind: Optional[Type[BaseException]],
        error: Optional[BaseException],
        trace: Optional[types.TracebackType],
    ) -> None:
        try:
            self.close()
        except Exception as failure:  # Of the two, the one in training is what its user must see.
            self._warn("close", f"{type(failure).__name__}: {failure}")

    # While training

    def step(self) -> None:
        """Ends a step by hand, from then on instead of the optimizer's. Call it on every rank alike."""
        self._say_if_unattached()
        self._steps.end()

    def loss(self, value: Tensor) -> Tensor:
        """The loss, unchanged: a reduced one, of one value, as it is before gradient accumulation or a GradScaler
        divide or multiply it. Those factors are then taken out of the gradients, and its mean goes into the trace."""
        self._say_if_unattached()
        return self._loss.of(value) if self._steps.switch.active else value

    @property
    def sites(self) -> List[str]:
        """The linears of the model, in order of definition, then the functional ones."""
        return list(self._record.sites)

    @property
    def steps(self) -> int:
        """Steps that have ended since `attach()`."""
        return self._steps.finished

    @property
    def coverage(self) -> Optional[Dict[str, Any]]:
        """`{flops, sites, how, unseen}` of one forward: which of the model's matrix products are recorded, as in the
        trace's manifest (docs/reference/trace.md). None as long as no training forward of the whole model was counted and saved."""
        return self._record.coverage

    @property
    def path(self) -> pathlib.Path:
        """The file of this rank."""
        suffix = SUFFIX if self._extremes_alone else ".trace.safetensors"
        return self.out / file_name(self.name, ranks_of_run.place()[0], suffix)

    def save(self) -> None:
        """Copies what was recorded and writes it in the background. With sharded weights: on all ranks at once."""
        with self._uninterrupted():
            self._save()

    def _save(self, say: bool = True, patient: bool = True) -> None:
        if self._silent:
            return
        if self._record.entries.recorded_ranks is not None and self._record.sharded() and not self._joins:
            self._warn("sharded", "weights were sharded after attach(), and ranks= records on some ranks alone: nothing was saved")
            return
        if self._record.sharded():
            # One that fails is not tried again: the other ranks would not come.
            self._saved_at, self._saved_time = self._now(), time.monotonic()
        if self._extremes_alone:
            self._save_extremes()
            return
        self._record.entries.pace = self._host.found()
        try:
            snapshot = self._record.snapshot(self._steps.finished, self._steps.recorded, self._loss, say, patient)
        except Exception as error:
            self._warn("save", f"{type(error).__name__}: {error}: nothing was saved")
            return
        self._saved_at, self._saved_time = self._now(), time.monotonic()
        if not snapshot.sites:
            self._say_if_unattached()
            if self._was_attached:
                self._warn("empty", "nothing was recorded: no linear ran forward and backward while attached")
            return
        self._writer.write(self.path, functools.partial(self._content, snapshot))

    def _save_extremes(self) -> None:
        try:
            if self._joins:
                self._record.gather()
            if not self._record.ran():
                return
            snapshot = self._record.extremes(self._steps.finished)
        except Exception as error:
            self._warn("save", f"{type(error).__name__}: {error}: nothing was saved")
            return
        self._saved_at, self._saved_time = self._now(), time.monotonic()
        self._writer.write(self.path, snapshot.content)

    def report(self) -> RecordReport:
        """What this rank's trace holds and lacks, and the next command to type; after `close()`. Print it."""
        host = all(each.device.type == "cpu" for each in self.model.parameters())
        share, plain_s = (self._clock.share, self._clock.plain_s) if host else (None, None)
        counts = (len(self._steps.recorded), self.steps)
        seconds = (self._clock.spent / max(counts[0], 1), plain_s)
        said = [*filter(None, (self._others,)), *self.warnings]
        return report_of(self.path, self.name, self.sites, said, share, counts, seconds)

    def __repr__(self) -> str:
        state = "attached" if self._taps else "not attached"
        return f"Recorder('{self.name}', {len(self.sites)} sites, {self.steps} steps, {state}, {str(self.path)!r})"

    def _repr_html_(self) -> str:
        return self.report()._repr_html_()

    # Inside

    def _records_here(self) -> bool:
        """Whether this rank is to record. On all ranks alike: ValueError for ranks that there are not."""
        rank, world = ranks_of_run.place()
        chosen = self.options.recording_ranks(world)
        if len(chosen) == world:
            return True
        self._joins = self._record.sharded()
        self._record.entries.recorded_ranks = len(chosen)
        some = ", ".join(map(str, chosen[:8])) + (", ..." if len(chosen) > 8 else "")
        nothing = "extremes alone" if self.options.extremes or self._joins else "nothing"
        self._others = "" if rank in chosen else f"rank {rank} of {world} records {nothing}, by ranks=: {some} do"
        return not self._others

    def _tap(self, stats: SiteStats) -> None:
        if _is_lazy(stats.module):
            # Its first forward changes its class, and would find ours in the way.
            self._lazy.append(stats)
            self._warn("lazy", f"{stats.name} has no weight before its first forward: it is recorded from the next step on")
            return
        tap = taps.Tap(self._steps.switch, _Sink(self, stats))
        if stats.module is None:
            tap.in_place = True
            functional_linears.named[stats.name] = tap
        else:
            try:
                taps.install(stats.module, tap)
            except TypeError as error:
                tap.release()
                self._record.fail(stats.name, str(error))
                return
        self._taps[stats.name] = tap

    def _read(self, module: nn.Module, paths: List[str]) -> None:
        """Taps what functions read of the parameters `paths` of `module`."""
        if module in self._read_by:
            self._read_by[module].paths += paths
            self._read_by[module].read(paths)
            return
        name = next(name for name, each in names.unwrapped(self.model).named_modules() if each is module)
        reader = Reader(self._steps.switch, module, names.clean(name), self._parameter_sink, paths)
        try:
            taps.install_reader(module, reader, TappedReader)
        except TypeError as error:  # A class that cannot be changed: its products are listed as not seen.
            self._warn(f"read {name}", f"{name}: {error}: what it reads by functions is not recorded")
            return
        self._read_by[module] = reader
        self._record.readers.append(reader)

    def _parameter_sink(
        self, parameter: str, name: str, tensors: Callable[[], List[Optional[Tensor]]], forward: str
    ) -> taps.Sink:
        return _Sink(self, self._record.parameter_site(parameter, name, tensors, forward))

    def _take(self, stats: SiteStats, x: Tensor, grad: Optional[Tensor], needs: int, examples: int) -> None:
        with self._uninterrupted(), self._clock.spending():
            self._record.take(stats, x, grad, self._steps.index, self._loss, needs, examples)

    def _owns(self, optimizer: Optimizer) -> bool:
        """Whether its steps are those that are counted. An error of ours ends nobody's training."""
        try:
            return self._record.owns(optimizer)
        except Exception as error:
            self._warn("owner", f"{type(error).__name__}: {error}: which optimizer ends a step is not known: call recorder.step()")
            return False

    def _tap_lazy(self) -> None:
        ready = [stats for stats in self._lazy if not _is_lazy(stats.module)]
        if ready:
            self._lazy = [stats for stats in self._lazy if stats not in ready]
            for stats in ready:
                self._tap(stats)
                # Its weight came in this step, so it ran.
                stats.ran_unseen = True
            # Not `every` steps from now: the first one is often what a team looks at.
            self._steps.again()

    def _step_ended(self, recorded: bool) -> None:
        # Most steps end here: what they pay is what an attached recorder costs a run.
        if not recorded and not self._lazy and not self._is_save_due():
            looked = self._host.end()
            if looked is None:
                looked = self._clock.plain_step() and not self._times_next()
            if looked:
                self._steps.rest(min(UNSEEN, -self._steps.finished % self.options.save_every - 1))
            return
        with self._uninterrupted(), self._clock.spending():
            try:
                if self._lazy:
                    self._tap_lazy()
                if recorded:
                    self._record.end_step(self._steps.index - 1, self._loss)
                if self._steps.recorded:
                    self._save_if_due(recorded)
            except Exception as error:
                self._warn("step", f"{type(error).__name__}: {error}")
        self._host.stop()
        self._clock.other_step()

    def _times_next(self) -> bool:
        """Whether what the host takes to launch the step at hand is looked at: not of one that is recorded. The first one behind
        a recorded step, which the clock has, takes longer than others."""
        return not self._steps.switch.active and self._host.begin()

    def _is_save_due(self) -> bool:
        """Whether steps or seconds since the last save ask for another one."""
        if self._steps.finished % self.options.save_every == 0:
            return True
        seconds, saved = self.options.save_seconds, self._saved_time
        return seconds is not None and saved is not None and time.monotonic() - saved > seconds

    def _save_if_due(self, recorded: bool) -> None:
        if self._steps.finished % self.options.save_every == 0:
            self._save()
        elif self._saved_time is None:
            # Early: what is wrong with a run's recording shows in its first step, and a job may not see its 10,000th.
            if recorded and self._record.ran():
                self._save(say=False)
        elif self._is_save_due() and not self._record.sharded():
            self._save()

    def _save_now(self) -> bool:
        """Saves, the job being about to end. False in the middle of something, after which the signal comes again."""
        if self._busy:
            self._terminating = True
            return False
        if self._record.sharded():
            # A collective that the other ranks may never come to.
            self._warn("sigterm", "weights are sharded: SIGTERM saves nothing, the last save stays")
        elif self._record.ran() and self._saved_at != self._now():
            self._save(patient=False)
        self._writer.wait()
        return True

    @contextlib.contextmanager
    def _uninterrupted(self) -> Iterator[None]:
        """No save on SIGTERM in between, where statistics are half of one step and half of the next."""
        self._busy += 1
        try:
            yield
        finally:
            self._busy -= 1
            if self._terminating and not self._busy:
                self._terminating = False
                preempt.again()

    def _say_coverage(self) -> None:
        """Says what is not recorded of what could be a linear's: attention, say, has no weight, and no site could be it."""
        coverage = self.coverage
        weights = [each for each in coverage["unseen"] if "name" in each] if coverage else []
        # The report names each place; a warning is for what a plan would miss.
        if not coverage or not weights or sum(each["flops"] for each in weights) < WORTH_A_WARNING * coverage["flops"]:
            return
        some = [f"{each['name']} ({each.get('where', each['op'])}, {each['flops'] / coverage['flops']:.1%})" for each in weights]
        more = f", and {len(some) - 4} more" if len(some) > 4 else ""
        share = f"sites are {coverage['sites'] / coverage['flops']:.1%} of the model's matmul FLOPs"
        self._warn("coverage", f"{share}; not recorded: {', '.join(some[:4])}{more}: see `recorder.coverage`")

    def _look_at_folder(self) -> None:
        """Says that there are shards of another run, which `loka` would take for ranks of this one."""
        try:
            others = sorted(path.name for path in self.out.glob("*.trace.safetensors") if not self._is_ours(path.name))
        except OSError:
            return
        if others:
            remedy = "give each run a folder of its own, or `loka` single files"
            self._warn("folder", f"{self.out} holds {others[0]}, of another run or model: {remedy}")

    def _is_ours(self, name: str) -> bool:
        """Whether this run writes that file: any of its ranks."""
        prefix, suffix = f"{self.name}-rank", ".trace.safetensors"
        rank = name[len(prefix) : -len(suffix)] if name.startswith(prefix) else ""
        return rank.isdigit() and int(rank) < ranks_of_run.place()[1]

    def _now(self) -> Tuple[int, int]:
        return self._steps.finished, self._steps.index

    def _content(self, snapshot: Snapshot) -> Content:
        content, notes = make(snapshot)
        for note in notes:
            # A count grows from save to save: one warning for all of them.
            self._warn(note if "not finite" not in note else note.split(":")[0], note)
        return content

    def _write_failed(self, text: str) -> None:
        self._saved_at = None
        self._warn("write", text)

    def _say_if_unattached(self) -> None:
        if not self._was_attached:
            how = "use `with loka.Recorder(...) as recorder:`, or recorder.attach()"
            self._warn("unattached", f"nothing is recorded: it was never attached: {how}")

    def _warn(self, key: str, text: str) -> None:
        if key not in self._warned:
            self._warned.add(key)
            self.warnings.append(text)
            taps.warn(text)


def _is_lazy(module: Optional[nn.Module]) -> bool:
    """Whether it gets its weight in its first forward."""
    weight = getattr(module, "weight", None)
    return weight is not None and is_lazy(weight)


class _Sink:
    """A site's end of its tap."""

    def __init__(self, recorder: Recorder, stats: SiteStats) -> None:
        self._recorder = recorder
        self._stats = stats
        # Never compiled: past a graph break it runs where a compiler looks for places to begin.
        called = functools.partial(recorder._record.batches.called, stats)
        self.called: Callable[[int], taps.Batch] = torch.compiler.disable(called)  # pyright: ignore

    def take(self, x: Tensor, grad: Optional[Tensor], needs: int, examples: int) -> None:
        self._recorder._take(self._stats, x, grad, needs, examples)


__all__ = ["Recorder"]
