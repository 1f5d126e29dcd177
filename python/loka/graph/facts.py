"""What is known of a model's graph: the part of a trace's manifest that no statistic gives."""

from dataclasses import dataclass, field
from typing import Dict, List, Set

import torch


@dataclass
class GraphFacts:
    """Sites are named as `loka.names.linears` names them. A site that is not in `order` was not seen to run."""

    order: List[str] = field(default_factory=list)
    """Sites in forward order, by their first call."""
    tail: Dict[str, List[Dict[str, object]]] = field(default_factory=dict)
    """What follows, in order, as in a manifest: {"op": "layer_norm", "eps": 1e-5, "affine": True}."""
    feeds: Dict[str, List[str]] = field(default_factory=dict)
    """Sites later in `order` that read the output after its tail, unchanged."""
    head: Set[str] = field(default_factory=set)
    """Final prediction layers: no linear comes after, and they give few outputs or the model's result."""
    gamma: Dict[str, torch.Tensor] = field(default_factory=dict)
    """The gain of the tail's affine norm, [n]: the model's own parameter."""
    beta: Dict[str, torch.Tensor] = field(default_factory=dict)
    """Its shift, [n]."""
    names: Dict[str, List[str]] = field(default_factory=dict)
    """For each entry of the tail the module that does it; "" for a function."""
    unread: Set[str] = field(default_factory=set)
    """Sites whose tail could not be read to its end: one forward under `observe` reads them."""
    notes: List[str] = field(default_factory=list)
    """What could not be read and why, for people."""

    def filled(self, other: "GraphFacts") -> "GraphFacts":
        """These facts with what `other` knows of the sites that are unread or missing here."""
        take = {site for site in other.order if site in self.unread or site not in self.tail}
        order = other.order + [site for site in self.order if site not in other.order]
        facts = GraphFacts(order=order, notes=list(other.notes))
        for site in order:
            source = other if site in take else self
            for name in ("tail", "feeds", "gamma", "beta", "names"):
                if site in getattr(source, name):
                    getattr(facts, name)[site] = getattr(source, name)[site]
            for name in ("head", "unread"):
                if site in getattr(source, name):
                    getattr(facts, name).add(site)
        if facts.unread or not other.order:
            # What hindered these facts still matters.
            facts.notes = [note for note in self.notes if note not in other.notes] + other.notes
        place = {site: index for index, site in enumerate(order)}
        for site, feeds in facts.feeds.items():
            facts.feeds[site] = [fed for fed in feeds if place[fed] > place[site]]
        return facts


__all__ = ["GraphFacts"]
