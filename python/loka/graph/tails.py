"""Takes a flow of calls; gives the facts of every site: its tail, whom it feeds, whether it is a head."""

from dataclasses import dataclass, field
from typing import Dict, List, Optional, Set

import torch

from .calls import ACTIVATIONS, LEAVES, NORMS, OPAQUE, OUTPUT, RESHAPE, SAME, SITE, STRUCTURE, Call, Flow, Op
from .facts import GraphFacts
from .ops import keeps_each_prediction

SMALL_HEAD = 16
"""Outputs up to which a linear that no other follows counts as a prediction, wherever its result goes."""

_ROWWISE = (*NORMS, *ACTIVATIONS)
_KEEPS = (SAME, RESHAPE, *ACTIVATIONS, "other")


def facts_of(flow: Flow) -> GraphFacts:
    """The facts of a flow."""
    graph, facts = _Readers(flow), GraphFacts(notes=list(flow.notes))
    walks: Dict[str, List[_Walk]] = {}
    for call in flow.calls:
        if call.op.kind == SITE:
            walks.setdefault(call.site, []).append(_Walk(graph, call).run())
    facts.order = list(walks)
    place = {site: index for index, site in enumerate(facts.order)}
    for site, calls in walks.items():
        walk = _agreed(site, calls, facts)
        facts.tail[site] = [op.entry() for op in walk.tail]
        facts.names[site] = walk.names
        facts.feeds[site] = [fed for fed in walk.feeds if place[fed] > place[site]]
        affine = next((op for op in walk.tail if op.gamma is not None), None)
        if affine is not None and affine.gamma is not None:
            facts.gamma[site] = affine.gamma
            if affine.beta is not None:
                facts.beta[site] = affine.beta
        if any(call.unread for call in calls):
            facts.unread.add(site)
        if all(graph.is_head(call.start) for call in calls):
            facts.head.add(site)
    return facts


class _Readers:
    """Who reads each value, among the calls that the result depends on."""

    def __init__(self, flow: Flow):
        self.flow = flow
        self.readers: Dict[int, List[Call]] = {}
        wanted: Set[int] = set()
        for call in reversed(flow.calls):
            # A check of a value (`isnan().any()`) or a copy put aside is no part of what follows a linear.
            if call.op.kind in (SITE, OPAQUE, OUTPUT, LEAVES) or wanted.intersection(call.values):
                wanted.update(call.reads)
                for value in dict.fromkeys(call.reads):
                    self.readers.setdefault(value, []).insert(0, call)

    def of(self, value: int) -> List[Call]:
        return self.readers.get(value, [])

    def only(self, value: int) -> Optional[Call]:
        found = self.of(value)
        return found[0] if len(found) == 1 else None

    def is_head(self, site: Call) -> bool:
        """No linear after it; and few outputs, or nothing but the result's own form after it."""
        seen: Set[Call] = set()
        todo = list(site.values)
        while todo:
            for call in self.of(todo.pop()):
                if call.op.kind == SITE or call.inner:
                    return False
                if call not in seen:
                    seen.add(call)
                    todo.extend(call.values)
        if any(call.op.kind == LEAVES for call in seen):
            # Who reads it is unknown: one output is a prediction, more may be features.
            return self.width(site) == 1
        return self.width(site) <= SMALL_HEAD or (bool(seen) and all(map(_keeps_each_prediction, seen)))

    def width(self, site: Call) -> int:
        return self.flow.features.get(site.values[0], 1 << 30)


def _keeps_each_prediction(call: Call) -> bool:
    """True for the result itself, and for what gives each prediction in another form, or its loss."""
    if call.op.kind == OUTPUT or keeps_each_prediction(call.op.function):
        return True
    return call.op.kind in _KEEPS and len(call.reads) == 1


@dataclass
class _Walk:
    """What follows one call of a site, followed as long as one reader reads it."""

    graph: _Readers
    start: Call
    tail: List[Op] = field(default_factory=list)
    names: List[str] = field(default_factory=list)
    feeds: List[str] = field(default_factory=list)
    unread: bool = False
    second_gain: bool = False
    unknown_width: bool = False

    def run(self) -> "_Walk":
        self.value: Optional[int] = self.start.values[0]
        self.features = self.graph.flow.features.get(self.value)
        self.block: Optional[int] = None
        """Features of one group, while the rows are viewed as groups."""
        self.pending: List[Call] = []
        """What was done to the groups: part of the tail once they are rows again."""
        while self.value is not None:
            self.value = self.step(self.value)
        return self

    def step(self, value: int) -> Optional[int]:
        """The next value to follow, or None at the end."""
        readers = self.graph.of(value)
        only = readers[0] if len(readers) == 1 else None
        if only is None or only.op.kind == SITE:
            swish = _swish(self.graph, value, readers)
            if swish is not None:
                return self.take(swish, Op("swish"))
            self.unread = any(reader.op.kind in (OPAQUE, LEAVES) for reader in readers)
            if self.block is None:
                reading = [reader for reader in readers if reader.op.kind == SITE and reader.reads[0] == value]
                self.feeds = list(dict.fromkeys(reader.site for reader in reading))
            return None
        kind = only.op.kind
        if kind == SAME:
            return only.values[0]
        if kind == RESHAPE:
            return self.reshape(only)
        if kind in NORMS:
            return self.norm(only)
        if kind in ACTIVATIONS or (kind in ("residual", "other") and self.block is None):
            following = self.take(only, only.op)
            return None if kind == "other" else following
        self.unread = kind in (OPAQUE, LEAVES)
        return None

    def take(self, call: Call, op: Op) -> int:
        if self.block is not None:
            self.pending.append(Call(op, (), (), name=call.name))
        else:
            self.tail.append(op)
            self.names.append(call.name)
        return call.values[0]

    def reshape(self, call: Call) -> Optional[int]:
        width, value = call.op.features, call.values[0]
        if width is None or self.features is None:
            self.unread = self.unknown_width = self.width_matters(value)
            return None
        if self.block is not None:
            if width != self.features:
                return None
            self.tail += [pending.op for pending in self.pending]
            self.names += [pending.name for pending in self.pending]
            self.block, self.pending = None, []
            return value
        if self.is_block_norm(value, width, self.features):
            self.block = width
            return value
        return value if width == self.features else None

    def width_matters(self, value: int) -> bool:
        """False where nothing of a tail could follow, whatever the width after a reshape."""
        readers = self.graph.of(value)
        ends = (STRUCTURE, OUTPUT) if len(readers) == 1 else (STRUCTURE, OUTPUT, "residual", "other", *_ROWWISE)
        return any(reader.op.kind not in ends for reader in readers)

    def is_block_norm(self, value: int, width: int, features: int) -> bool:
        """True for BlockNorm written by hand: view(-1, b), rms_norm without a gain, view back."""
        norm = self.graph.only(value)
        if norm is None or norm.op.kind != "rms_norm" or norm.op.gamma is not None or norm.op.features != width:
            return False
        after = self.graph.only(norm.values[0])
        # Rows that are not cut are an RMS norm, unless they are viewed back.
        return features % width == 0 and (width != features or (after is not None and after.op.kind == RESHAPE))

    def norm(self, call: Call) -> Optional[int]:
        op = call.op
        if self.block is not None:
            if op.kind == "rms_norm" and op.gamma is None and op.features == self.block:
                return self.take(call, Op("block_norm", eps=op.eps, block=self.block))
            return None
        gains = [taken for taken in self.tail if taken.gamma is not None]
        if op.features not in (None, self.features) or (op.features is None and op.kind != "block_norm"):
            self.take(call, Op("other"))
            return None
        if gains and op.gamma is not None:
            # A trace has one gain a site: a second would be read as the first.
            self.second_gain = True
            self.take(call, Op("other"))
            return None
        return self.take(call, op)


def _swish(graph: _Readers, value: int, readers: List[Call]) -> Optional[Call]:
    """The multiplication of `x * sigmoid(x)`, where that is all that reads `x`."""
    gates = [reader for reader in readers if reader.op.kind == "sigmoid"]
    products = [reader for reader in readers if reader.op.function == "mul"]
    if len(readers) == 2 and len(gates) == len(products) == 1:
        gate = gates[0].values[0]
        if set(products[0].reads) == {value, gate} and graph.only(gate) is products[0]:
            return products[0]
    return None


def _agreed(site: str, calls: List[_Walk], facts: GraphFacts) -> _Walk:
    """What holds for every call of a module that is called more than once."""
    first = calls[0]
    if any(call.second_gain for call in calls):
        facts.notes.append(f"{site}: a second norm with a gain ends its tail")
    if any(call.unknown_width for call in calls):
        facts.notes.append(f"{site}: the width after a reshape of its output is only known when a forward runs")
    if all(_same(first, other) for other in calls[1:]):
        fed = [name for name in first.feeds if all(name in other.feeds for other in calls)]
        return _Walk(first.graph, first.start, first.tail, first.names, fed)
    facts.notes.append(f"{site} is called {len(calls)} times and followed by different operations: no tail is kept")
    return _Walk(first.graph, first.start)


def _same(one: _Walk, other: _Walk) -> bool:
    def gains(walk: _Walk) -> List[Optional[torch.Tensor]]:
        return [tensor for op in walk.tail for tensor in (op.gamma, op.beta)]

    same_gains = all(a is b for a, b in zip(gains(one), gains(other)))
    return [op.entry() for op in one.tail] == [op.entry() for op in other.tail] and same_gains


__all__ = ["facts_of"]
