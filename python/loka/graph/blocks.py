"""Takes a flow of calls; gives where a linear, a BlockNorm and a hard swish follow one another and nobody else looks.

Stricter than a tail: every call counts, also those whose results go nowhere, and nothing may come in between.
"""

from dataclasses import dataclass
from typing import Dict, List, Optional, Tuple

from .calls import OUTPUT, SITE, Call, Flow


@dataclass(frozen=True)
class BlockFacts:
    """Of one site: the names of the two modules behind it, and who reads the block's output. `readers`: sites of which
    it is the input, unchanged; None where anything else reads it too."""

    norm: str
    activation: str
    readers: Optional[Tuple[str, ...]]


def blocks_of(flow: Flow, block: int, eps: float) -> Tuple[Dict[str, BlockFacts], Dict[str, str]]:
    """(site -> its block, site -> why it has none): BlockNorm of `block` columns and that epsilon, to a thousandth."""
    look = _Look(flow, block, eps)
    found: Dict[str, BlockFacts] = {}
    reasons: Dict[str, str] = {}
    for site in dict.fromkeys(call.site for call in flow.calls if call.op.kind == SITE):
        try:
            found[site] = look.at(site)
        except _NoBlock as reason:
            reasons[site] = str(reason)
    return found, reasons


Reading = Tuple[Dict[str, BlockFacts], Dict[str, str]]
"""What was found of each site, and why nothing was of the others."""


def agreed(one: Reading, other: Reading) -> Reading:
    """What two readings of the same model both say."""
    found: Dict[str, BlockFacts] = {}
    reasons = {**one[1], **other[1]}
    for site, facts in one[0].items():
        there = other[0].get(site)
        if there is None or (there.norm, there.activation) != (facts.norm, facts.activation):
            reasons.setdefault(site, "what follows it is not the same in training and in evaluation")
        else:
            found[site] = facts if facts == there else BlockFacts(facts.norm, facts.activation, None)
    return found, reasons


class _NoBlock(Exception):
    """The reason."""


class _Look:
    def __init__(self, flow: Flow, block: int, eps: float):
        self.flow, self.block, self.eps = flow, block, eps
        self.readers: Dict[int, List[Call]] = {}
        for call in flow.calls:
            for value in dict.fromkeys(call.reads):
                self.readers.setdefault(value, []).append(call)

    def at(self, site: str) -> BlockFacts:
        calls = [call for call in self.flow.calls if call.op.kind == SITE and call.site == site]
        norms = [self.only(call, "block_norm", "its output") for call in calls]
        for norm in norms:
            if norm.op.block != self.block or norm.op.eps is None or abs(norm.op.eps / self.eps - 1) > 1e-3:
                raise _NoBlock(f"its BlockNorm has blocks of {norm.op.block} and eps {norm.op.eps}")
        activations = [self.only(norm, "hard_swish", "its BlockNorm's output") for norm in norms]
        names = self.one_name(norms, "BlockNorm"), self.one_name(activations, "hard swish")
        return BlockFacts(*names, self.sites_that_read(activations))

    def only(self, call: Call, kind: str, what: str) -> Call:
        """What reads the call's result, where that is one module of that kind and nothing else."""
        value = call.values[0]
        readers = self.readers.get(value, [])
        wanted = kind.replace("_", " ")
        if value in self.flow.held:
            raise _NoBlock(f"{what} is kept as an attribute of a module")
        if len(readers) != 1:
            raise _NoBlock(f"{what} is read by {len(readers)}, not by a {wanted} alone")
        (reader,) = readers
        if reader.op.kind != kind or reader.reads[0] != value:
            raise _NoBlock(f"{what} is read by {_words(reader)}, not by a {wanted}")
        if not reader.name:
            raise _NoBlock(f"its {wanted} is a function: there is no module that can stand aside")
        return reader

    def one_name(self, calls: List[Call], what: str) -> str:
        """Of the module that all of these are calls of, and that has no others."""
        name = calls[0].name
        if any(call.name != name for call in calls):
            raise _NoBlock(f"it is called {len(calls)} times, with another {what} behind it")
        if sum(call.name == name for call in self.flow.calls) != len(calls):
            raise _NoBlock(f"its {what} '{name}' is used elsewhere too")
        return name

    def sites_that_read(self, calls: List[Call]) -> Optional[Tuple[str, ...]]:
        values = [call.values[0] for call in calls]
        readers = [reader for value in values for reader in self.readers.get(value, [])]
        if any(value in self.flow.held for value in values) or not readers:
            return None
        if any(reader.op.kind != SITE or reader.reads[0] not in values for reader in readers):
            return None
        return tuple(dict.fromkeys(reader.site for reader in readers))


def _words(call: Call) -> str:
    if call.op.kind == OUTPUT:
        return "whoever called the model"
    if call.op.kind == SITE:
        return f"'{call.site}'"
    said = call.op.kind if call.op.kind not in ("other", "structure", "same") else call.op.function or call.op.kind
    return f"{said} '{call.name}'" if call.name else said


__all__ = ["BlockFacts", "agreed", "blocks_of"]
