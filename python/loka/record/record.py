"""Takes the calls and the ends of recorded steps; gives snapshots of everything recorded so far."""

from typing import Any, Callable, Dict, List, Optional, Sequence, Set, Tuple, Type

import torch
from torch import Tensor, nn
from torch.nn.parameter import is_lazy
from torch.optim import Optimizer

from loka import names
from loka.record import era
from loka.record.batches import Batches
from loka.record.coverage import Forward, Seen
from loka.record.entries import Entries
from loka.record.extremes import ExtremesSnapshot, SiteExtremes
from loka.record.loss import LossTap
from loka.record.loss_weight import TOLERANCE as LOSS_WEIGHT_TOLERANCE
from loka.record.loss_weight import loss_weight
from loka.record.options import Options
from loka.record.parameters import Reader
from loka.record.replicas import Replicas
from loka.record.site import SiteStats
from loka.record.snapshot import HostCopies, SiteCopy, Snapshot, copy_site
from loka.record.track import Track
from loka.record.weights import MatrixNormal, is_sharded, magnitudes
from loka.steps import Active

_NO_END = (
    "a step has a second forward and no end so far: right where a torch.optim optimizer runs several (LBFGS, SAM); after any other "
    "one call `recorder.step()`, or every iteration is recorded, as if all were one step"
)

OPEN_STEP_CALLS = 4096
"""Calls of one site in one step after which surely no optimizer step was seen."""


class Record:
    """All sites of one model. `warn(key, text)` says a thing once for each key; `switch`: whether this step is recorded;
    `late(root, parameters)` taps parameters that turn out to be read by functions."""

    def __init__(
        self, model: nn.Module, name: str, options: Options, warn: Callable[[str, str], None],
        switch: Active, late: Callable[[nn.Module, List[str]], None],
    ) -> None:  # fmt: skip
        self._options = options
        self._warn = warn
        self._tap_late = late
        modules: Dict[str, Optional[nn.Module]] = dict(names.linears(model))
        for each in options.functional:
            if each in modules:
                raise ValueError(f"functional names {each}, which is a module of the model")
            modules[each] = None
        self.sites = {
            name: SiteStats(name, module, options, turn) for turn, (name, module) in enumerate(modules.items())
        }
        self._kind: Type[SiteStats] = SiteStats
        self.entries = Entries(model, name, options, list(modules))
        self.batches = Batches(self.sites, self.entries.heads, warn)
        self._reads: Dict[str, List[str]] = {}
        """The sites that products with a parameter are, by its full name."""
        self.readers: List[Reader] = []
        self._root = names.unwrapped(model)
        self._functional = self._functional_parameters()
        self._late: Set[str] = set()
        self._forward = Forward(model, modules, switch, self._followed, self._covers)
        self.batches.forward = self._forward
        self._ended = False
        """Whether a step was seen to end, or it was looked for."""
        self._first_calls: Dict[str, Tuple[int, int]] = {}
        """The weight's version, and which backward it was, in the first call of a step."""
        self.coverage: Optional[Dict[str, Any]] = None
        """As in the manifest of the last snapshot."""
        self._failed: Dict[str, str] = {}
        self._norms: Dict[str, Track] = {}
        self._normals: Dict[str, MatrixNormal] = {}
        self._replicas: Optional[Replicas] = None

    def keep_extremes_alone(self) -> None:
        """On a rank that is not to record: before any site is tapped."""
        self._kind = SiteExtremes
        for name, stats in self.sites.items():
            self.sites[name] = SiteExtremes(name, stats.module, self._options, stats.turn)

    def compare_weights(self, recording: Sequence[int]) -> None:
        """Of the ranks that record, the first one's file is to have the weights, where all hold the same. Once the run
        has its id."""
        run = self.entries.run_id
        if self._replicas is None and run is not None and len(recording) > 1:
            self._replicas = Replicas(run, self.entries.name, recording[0])

    def extremes(self, step: int) -> ExtremesSnapshot:
        """A copy of what `keep_extremes_alone` keeps, after `step` steps."""
        run = self.entries.manifest(step, (), {}, ())["run"]
        return ExtremesSnapshot(run, {name: stats for name, stats in self.sites.items() if self._ran(name)})

    @torch.no_grad()
    def gather(self) -> None:
        """On a rank that keeps extremes alone: its part of a save, in which sharded weights are gathered from all ranks, site by site."""
        self.entries.refresh()
        for stats in self.sites.values():
            self.entries.tensors(stats.name, self._parameters(stats), None)

    def open(self) -> None:
        """Reads the model's structure, and prepares to follow its first forward."""
        self.entries.open()
        self._forward.watch()

    def close(self) -> None:
        """Ends that."""
        self.entries.close()
        self._forward.unwatch()

    def parameter_site(
        self, parameter: str, name: str, tensors: Callable[[], List[Optional[Tensor]]], forward: str
    ) -> SiteStats:
        """The site of a function's product with a parameter, or with a part of it; `forward`: as the manifest has it."""
        if name not in self.sites:
            self.sites[name] = self._kind(name, None, self._options, len(self.sites))
            self.entries.add(name)
        stats = self.sites[name]
        stats.by_function = forward
        if stats.module is None:
            stats.reads = tensors
        if name not in self._reads.setdefault(parameter, []):
            self._reads[parameter].append(name)
        return stats

    def _followed(self, seen: Seen) -> None:
        """The first forward is over."""
        self.batches.followed(seen)
        names_seen = {each.name for each in seen.unseen.values() if each.name and each.inside is None}
        known = {reader.full_name(path) for reader in self.readers for path in reader.paths}
        # The weight of an embedding that scores items too, say: only now is it known that a function reads it.
        weights = {name for name in names_seen - known if name.rpartition(".")[0] not in self.sites}
        if weights and self._root not in {stats.module for stats in self.sites.values()}:
            self._late |= weights
            self._tap_late(self._root, sorted(weights))

    def _covers(self, parameter: Optional[str]) -> Optional[str]:
        running = {reader.running for reader in self.readers} - {None}
        if parameter is None:
            return next(iter(running), None)
        return parameter if parameter in self._functional or parameter in running else None

    def _functional_parameters(self) -> Dict[str, str]:
        """The sites that the user named, by the full names of their weights."""
        given = {}
        for site, each in self._options.functional.items():
            given[id(each[0] if isinstance(each, (tuple, list)) else each)] = site
        found = ((names.clean(name), each) for name, each in self._root.named_parameters())
        return {name: given[id(each)] for name, each in found if id(each) in given}

    def fail(self, site: str, reason: str) -> None:
        """From here on nothing of `site` is recorded or saved."""
        self._failed[site] = reason
        self._warn(f"failed {site}", f"{site} is not recorded: {reason}")

    def take(
        self, stats: SiteStats, x: Tensor, grad: Optional[Tensor], index: int, loss: LossTap, needs: int, known: int
    ) -> None:
        """One call's tensors in recorded step `index`. Whatever goes wrong costs this site, not the training step."""
        if stats.name in self._failed:
            return
        try:
            if x.is_cuda and torch.cuda.is_current_stream_capturing():
                self._warn("capture", "a step captured in a CUDA graph is not recorded")
                return
            if not self._ended:
                self._look_for_end(stats)
            examples = self.batches.examples(stats, len(x) if x.dim() > 1 else 1, known)
            stats.add(x, grad, index, loss.scale(x.device), examples, needs)
        except Exception as error:
            # Half of a batch may be in: such statistics are not to be saved.
            self.fail(stats.name, f"{type(error).__name__}: {error}")
            return
        if stats.calls_this_step == OPEN_STEP_CALLS:
            self._warn("open", _NO_END)

    def _look_for_end(self, stats: SiteStats) -> None:
        """Says, in the second forward of the first step, that nobody ends it, if the weights tell: gradients that are
        accumulated are still there by then, and weights as they were. Calls of one backward are one forward's, or of several that
        are learnt from together."""
        weight = getattr(stats.module, "weight", None)
        if weight is None or not weight.requires_grad or not weight.is_leaf:
            return
        backward = torch._C._current_graph_task_id()
        if stats.calls_this_step == 0:
            self._first_calls[stats.name] = weight._version, backward
            return
        version, first = self._first_calls.get(stats.name, (weight._version, backward))
        if stats.calls_this_step >= stats.calls_a_forward and (backward != first or backward < 0) and not self.sharded():
            if weight._version != version or weight.grad is None or not bool(weight.grad.any()):
                self._warn("open", _NO_END)
            # Once is enough, whatever was found: it may wait for the device.
            self._ended = True

    def ran(self) -> bool:
        """Whether any site has statistics."""
        return any(self._ran(name) for name in self.sites)

    def sharded(self) -> bool:
        """Whether a save gathers weights from other ranks."""
        return any(is_sharded(each) for each in self._root.parameters())

    def open_calls(self) -> int:
        """Calls since the last recorded step ended."""
        return sum(stats.calls_this_step for stats in self.sites.values())

    def owns(self, optimizer: Optimizer) -> bool:
        """Whether `optimizer` trains a weight of a site."""
        recorded = {id(each) for stats in self.sites.values() for each in self._parameters(stats)}
        recorded |= {identity for reader in self.readers for identity in reader.held()}
        return any(id(each) in recorded for group in optimizer.param_groups for each in group["params"])

    @torch.no_grad()
    def end_step(self, index: int, loss: LossTap) -> None:
        """The end of recorded step `index`: series of weights and biases, after the step's update."""
        if self._kind is SiteExtremes:
            loss.end_step(max((stats.examples for stats in self.sites.values()), default=1))
            self._ended = True
            for stats in self.sites.values():
                stats.end_step(index, 0)
            return
        pairs = [self._parameters(stats) for stats in self.sites.values()]
        for name, values, order in (
            ("weight_amax", [pair[0] for pair in pairs], torch.inf),
            ("bias_norm", [self.entries.unsharded(pair[1]) for pair in pairs], 2.0),
        ):
            norms = magnitudes(values, order)
            if norms is not None:
                track = self._norms.setdefault(name, Track(len(norms), norms.device))
                track.widen(len(norms))
                track.row(index).copy_(norms)
        if self._options.weights == "matrix_normal" and self.entries.weights_rank is None:
            self._update_normals(pairs)
        loss.end_step(max((stats.examples for stats in self.sites.values()), default=1))
        self._ended = True
        examples = max((stats.examples_this_step for stats in self.sites.values()), default=0)
        for stats in self.sites.values():
            stats.end_step(index, examples)
        self._say_routed()
        self._forward.look_around()

    def _say_routed(self) -> None:
        routed = [name for name, stats in self.sites.items() if stats.routed]
        if routed:
            some = ", ".join(routed[:4]) + (", ..." if len(routed) > 4 else "")
            said = "their gradients are scaled by the examples of the whole model's result, not by their own rows"
            self._warn("routed", f"the rows of {len(routed)} linears change from call to call ({some}): {said}")

    @torch.no_grad()
    def snapshot(
        self, step: int, recorded: Sequence[int], loss: LossTap, say: bool = True, patient: bool = True
    ) -> Snapshot:
        """A copy of everything after `step` steps, of which `recorded` were recorded, on its way to the host. `say` what
        is missing: not yet, where few steps were recorded. `patient`: see `Replicas`."""
        self.entries.refresh()
        self._place_weights(step, patient)
        copies, steps = HostCopies(), list(recorded)
        # One site at a time: a sharded model may not fit one device whole. In the same order on every rank, also of
        # sites that did not run on this one: gathering is a collective.
        model = {name: self._model_tensors(stats, copies) for name, stats in self.sites.items()}
        for name, stats in self.sites.items():
            if self._ran(name) and (reason := stats.misfit(model[name])):
                self.fail(name, reason)
        ran = [name for name in self._order() if self._ran(name)]
        sites = [self._site_copy(self.sites[name], model[name], set(ran), copies, len(steps)) for name in ran]
        losses = loss.values()
        losses = None if losses is None else copies.of(losses)
        copies.seal()
        never = [name for name, stats in self.sites.items() if stats.input is None and name not in self._failed]
        if say:
            self._say(never if ran else [])
        manifest = self.entries.manifest(step, never, self._failed, self._forward.reasons() if say else self._forward.notes)
        if self._options.history == "recent" and steps:
            manifest["run"]["since"] = steps[era.first_of(len(steps))]
        if "notes" in manifest:
            # What PyTorch's attention does by a function is recorded all the same.
            never_called = tuple(f"{name} is never called" for name in ran)
            manifest["notes"] = [note for note in manifest["notes"] if not note.startswith(never_called)]
        if self._forward.seen is not None:
            manifest["coverage"] = self.coverage = self._coverage(self._forward.seen)
        return Snapshot(manifest, sites, steps, losses, self._loss_weight(), self._options, copies)

    def _coverage(self, seen: Seen) -> Dict[str, Any]:
        recorded = {name: self._why_not(name) for name in self.sites}
        for parameter, sites in self._reads.items():
            recorded[parameter] = min(map(self._why_not, sites))
        recorded.update({parameter: self._why_not(site) for parameter, site in self._functional.items()})
        # On shapes alone nothing was tapped: what compiled code has recorded since is known by its sites.
        late = self._late | (set(self._reads) if seen.how == "fake" else set())
        return seen.entry(recorded, late)

    def _why_not(self, name: str) -> str:
        """Why a site is not in the trace; nothing if it is."""
        if name in self._failed:
            return self._failed[name]
        return "" if self._ran(name) else "no backward came by it in a recorded step"

    def _order(self) -> List[str]:
        """All sites in forward order. Of those without a module only a forward tells where they belong."""
        order, seen = self.entries.order(), self._forward.seen
        if seen is None or not self._reads:
            return order
        place: Dict[str, int] = {}
        for name in seen.order:
            for site in self._reads.get(name, [name]):
                place.setdefault(site, len(place))
        return sorted(order, key=lambda site: place.get(site, len(place)))

    def _say(self, never: Sequence[str]) -> None:
        if never:
            some = ", ".join(never[:4]) + (", ..." if len(never) > 4 else "")
            self._warn("never ran", f"{len(never)} of {len(self.sites)} linears never ran: {some}")
        for note in self.entries.notes:
            self._warn(note, note)
        short = {name: stats.held_short for name, stats in self.sites.items() if stats.held_short is not None}
        if short:
            name, (kept, rows) = next(iter(short.items()))
            more = f", and {len(short) - 1} more sites" if len(short) > 1 else ""
            said = f"held_out={self._options.held_out} takes calls of {2 * self._options.held_out + 2} rows"
            self._warn("held out", f"{said}: {name} has {rows}, of which {kept} are kept{more}")
        if unread := self.entries.unread():
            some = ", ".join(unread[:4]) + (", ..." if len(unread) > 4 else "")
            linears = "1 linear" if len(unread) == 1 else f"{len(unread)} linears"
            said = "their errors are told at their own outputs; tails={name: [...]} says it"
            self._warn("unread", f"what follows {linears} is not fully known ({some}): {said}")

    def _loss_weight(self) -> Optional[float]:
        """How many times a log loss of what the heads predict the loss is; None where it is once, or of another kind."""
        heads = (name for name in self.entries.heads() if name in self.sites and self._ran(name))
        weight = loss_weight([self.sites[name].loss_weight for name in heads])
        return None if weight is None or abs(weight - 1.0) <= LOSS_WEIGHT_TOLERANCE else weight

    def _parameters(self, stats: SiteStats) -> List[Optional[Tensor]]:
        """[weight, bias], of this moment: FSDP and others put new ones in place."""
        if stats.module is not None:
            found = [getattr(stats.module, "weight", None), getattr(stats.module, "bias", None)]
            return [None if each is None or is_lazy(each) else each for each in found]
        if stats.reads is not None:
            return [*stats.reads()]
        given = self._options.functional[stats.name]
        return [*given, None][:2] if isinstance(given, (tuple, list)) else [given, None]

    def _update_normals(self, pairs: List[List[Optional[Tensor]]]) -> None:
        for name, (weight, _) in zip(self.sites, pairs):
            if weight is None or max(weight.shape) > self._options.limit or self.entries.unsharded(weight) is None:
                self._warn("matrix normal", "weights past the limit, or sharded, are kept as snapshots")
                continue
            self._normals.setdefault(name, MatrixNormal(self._options.momentum)).update(weight)

    def _place_weights(self, step: int, patient: bool) -> None:
        """Finds out whose file has the weights."""
        self.entries.weights_rank = None
        if self._replicas is None:
            return
        weights = [(name, self._parameters(stats)[0]) for name, stats in self.sites.items()]
        if self._replicas.elsewhere(step, weights, patient):
            self.entries.weights_rank = self._replicas.first
            self._normals.clear()

    def _model_tensors(self, stats: SiteStats, copies: HostCopies) -> Dict[str, Tensor]:
        found = self.entries.tensors(stats.name, self._parameters(stats), self._normals.get(stats.name))
        if not self._ran(stats.name):
            return {}
        return {name: value if value.is_meta else copies.of(value) for name, value in found.items()}

    def _site_copy(
        self, stats: SiteStats, model: Dict[str, Tensor], ran: Set[str], copies: HostCopies, steps: int
    ) -> SiteCopy:
        place = list(self.sites).index(stats.name)
        norms = {key: copies.of(track.values(steps)[:, place]) for key, track in self._norms.items()}
        norms["rows"] = torch.tensor([float(stats.step_rows.get(index, 0)) for index in range(steps)])
        if "bias" not in model:
            norms.pop("bias_norm", None)
        entry = self.entries.entry(stats, model, ran)
        tensors = {key: value for key, value in model.items() if not value.is_meta}
        return copy_site(stats, entry, tensors, norms, copies, steps)

    def _ran(self, name: str) -> bool:
        return self.sites[name].ran and name not in self._failed


__all__ = ["OPEN_STEP_CALLS", "Record"]
