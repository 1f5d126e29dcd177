"""Takes a model and its sites' statistics; gives the manifest and what the file holds of the model itself."""

import datetime
from typing import Any, Dict, Iterable, List, Mapping, Optional, Set

import torch
from torch import Tensor, nn
from torch.nn.parameter import is_lazy

from loka.names import unwrapped
from loka.record import facts as model_facts
from loka.record import run_id
from loka.record.graph_reader import GraphReader
from loka.record.options import Options
from loka.record.site import SiteStats
from loka.record.taps import DGRAD, WGRAD
from loka.record.weights import MatrixNormal, is_sharded, whole


class Entries:
    """What a trace says of the model: read when recording begins, once more when it is saved."""

    def __init__(self, model: nn.Module, name: str, options: Options, sites: List[str]) -> None:
        self._model = model
        self.name = name
        self._options = options
        self._sites = sites
        self._sources = model_facts.sources(model)
        self._facts: Optional[model_facts.Facts] = None
        self._graph: Optional[GraphReader] = None
        self._run_id = options.run_id
        self.notes: List[str] = []
        self.recorded_ranks: Optional[int] = None
        """How many record, where that is not all."""
        self.weights_rank: Optional[int] = None
        """The rank whose file has the weights, where this one's does not."""
        self.pace: Optional[Dict[str, Any]] = None
        """What plain steps took, where that is known."""

    @property
    def run_id(self) -> Optional[str]:
        """Known once the run was named."""
        return self._run_id

    def name_run(self) -> None:
        """Agrees with the other ranks on the run's id: also on a rank that records nothing, since rank 0 makes it."""
        if self._run_id is None:
            self._run_id, note = run_id.shared_id()
            self.notes.extend([note] if note else [])

    def open(self) -> None:
        """Reads the model's structure, and where that does not tell, prepares to follow its first eager forward."""
        self.name_run()
        if self._graph is None:
            self._graph = GraphReader(self._model)
        self._graph.watch()

    def close(self) -> None:
        """Ends it."""
        if self._graph is not None:
            self._graph.unwatch()

    def add(self, site: str) -> None:
        """A site that nobody knew of when recording began."""
        self._sites.append(site)

    def heads(self) -> Set[str]:
        """The sites that are known to be heads so far."""
        found = None if self._graph is None else self._graph.facts
        return set(self._options.heads) | (set() if found is None else set(found.head))

    def order(self) -> List[str]:
        """All sites, in forward order where that is known."""
        known = self._read().order
        return known + [site for site in self._sites if site not in set(known)]

    def unread(self) -> List[str]:
        """Sites whose tail is not known to its end, nor given."""
        found = None if self._graph is None else self._graph.facts
        unknown = set() if found is None else set(found.unread) - set(self._options.tails)
        return [site for site in self._sites if site in unknown]

    def tensors(
        self, site: str, parameters: List[Optional[Tensor]], normal: Optional[MatrixNormal]
    ) -> Dict[str, Tensor]:
        """Weight, bias, gamma and beta of a site as the trace names them, gathered from all ranks if sharded. Of a
        weight that another rank's file has, the shape alone: a tensor on "meta"."""
        weight, bias = parameters
        found: Dict[str, Tensor] = {}
        if self.weights_rank is None and normal is not None:
            found = normal.state()
        if not found and weight is not None:
            found["weight"] = self._stored(whole(weight)) if self.weights_rank is None else self._elsewhere(weight)
        facts = self._read()
        affine = {"bias": bias, "tail.gamma": facts.gamma.get(site), "tail.beta": facts.beta.get(site)}
        found.update({key: self._stored(whole(value)).flatten() for key, value in affine.items() if value is not None})
        return found

    @staticmethod
    def _elsewhere(weight: Tensor) -> Tensor:
        if is_sharded(weight):
            # Whose file has it cannot gather it alone.
            whole(weight)
        return torch.empty(weight.shape, dtype=weight.dtype, device="meta")

    def _stored(self, parameter: Tensor) -> Tensor:
        wanted = self._options.weight_dtype
        if wanted is None:
            wanted = parameter.dtype if parameter.dtype == torch.bfloat16 else torch.float32
        return parameter.to(wanted)

    def entry(self, stats: SiteStats, tensors: Mapping[str, Tensor], ran: Set[str]) -> Dict[str, Any]:
        """The site's entry in the manifest. `ran`: the sites that have statistics; others cannot be fed."""
        facts = self._read()
        n = next(len(tensors[key]) for key in ("weight", "weight.mean") if key in tensors)
        entry: Dict[str, Any] = {
            "id": stats.name,
            "class": model_facts.class_name(stats.module),
            "m": stats.rows_of_a_call(),
            "k": 0 if stats.input is None else stats.input.features,
            "n": n,
            "dtype": stats.dtype,
            "bias": "bias" in tensors,
            "head": stats.name in facts.head,
            "tail": self._tail(stats.name, n, tensors),
            "feeds": [to for to in facts.feeds.get(stats.name, ()) if to in ran],
            "calls": stats.calls_a_step(),
            "examples": stats.examples_of_a_forward(),
            "grads": {"input": bool(stats.needs & DGRAD), "weight": bool(stats.needs & WGRAD)},
        }
        if stats.module is not None and model_facts.own_forward(stats.module):
            entry["forward"] = "own"
        if stats.by_function:
            entry["forward"] = stats.by_function
        if (rows := list(stats.step_rows.values())) and set(rows) != {entry["m"] * entry["calls"]}:
            mean = sum(rows) / len(rows)
            entry["rows"] = {"min": min(rows), "mean": round(mean, 3), "max": max(rows), "steps": len(rows)}
        if stats.noise is not None:
            entry["noise"] = {"unit": stats.noise.unit}
        source = self._sources.get(stats.name) or self._sources.get(stats.name.rpartition(".")[0])
        return {**entry, "source": source} if source else entry

    def _tail(self, site: str, n: int, tensors: Mapping[str, Tensor]) -> List[Dict[str, Any]]:
        """The tail, ended where an affine norm has no gain that fits: guessing one would be wrong numbers."""
        tail: List[Dict[str, Any]] = []
        for op in self._read().tail.get(site, ()):
            gamma = tensors.get("tail.gamma")
            if op.get("affine") and (gamma is None or len(gamma) != n):
                self.notes.append(f"{site}: the gain of its {op.get('op')} is not known, so its tail ends there")
                return [*tail, {"op": "other"}]
            tail.append(dict(op))
        return tail

    def manifest(
        self, step: int, never_ran: Iterable[str], failed: Mapping[str, str], more: Iterable[str]
    ) -> Dict[str, Any]:
        """The manifest but for sites, loss and probabilities."""
        rank, world = run_id.place()
        options = self._options
        model: Dict[str, Any] = {
            "name": self.name,
            "family": options.family,
            "framework": f"pytorch {torch.__version__}",
            "parameters": sum(each.numel() for each in unwrapped(self._model).parameters() if not is_lazy(each)),
        }
        if options.note:
            model["note"] = options.note
        run: Dict[str, Any] = {"id": self._run_id, "rank": rank, "world_size": world, "step": step}
        run["every"] = options.every
        if self.recorded_ranks is not None:
            run["recorded_ranks"] = self.recorded_ranks
        if self.weights_rank is not None:
            run["weights_in"] = {"rank": self.weights_rank, "file": file_name(self.name, self.weights_rank)}
        if self.pace is not None:
            run["pace"] = self.pace
        run["device"] = self._device()
        run["recorded_at"] = datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds")
        manifest: Dict[str, Any] = {"version": 1, "model": model, "run": run}
        if never := list(never_ran):
            manifest["never_ran"] = never
        if failed:
            manifest["failed"] = dict(failed)
        if notes := [*self._read().notes, *self.notes, *more]:
            manifest["notes"] = list(dict.fromkeys(notes))
        return manifest

    def gpu(self) -> Optional[torch.device]:
        """Where the model is; None of one that is on no GPU."""
        device = next((each.device for each in self._model.parameters()), None)
        return device if device is not None and device.type == "cuda" else None

    def _device(self) -> str:
        device = next((each.device for each in self._model.parameters()), torch.device("cpu"))
        return torch.cuda.get_device_name(device) if device.type == "cuda" else device.type

    def refresh(self) -> None:
        """Before a save: what a forward has told of the graph since the last one."""
        self._facts = None

    def _read(self) -> model_facts.Facts:
        if self._facts is None:
            found = None if self._graph is None else self._graph.facts
            self._facts = model_facts.gather(found, self._sites, self._options)
        return self._facts

    @staticmethod
    def unsharded(parameter: Optional[Tensor]) -> Optional[Tensor]:
        """The parameter, or None where this rank holds a part of it only."""
        return None if parameter is None or is_sharded(parameter) else parameter


def file_name(model: str, rank: int, suffix: str = ".trace.safetensors") -> str:
    """What a rank's file is called."""
    return f"{model}-rank{rank}{suffix}"


__all__ = ["Entries", "file_name"]
