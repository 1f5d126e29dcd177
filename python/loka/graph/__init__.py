"""What follows each linear of a model and who reads it. Takes a model; gives `GraphFacts`.

    facts = loka.graph.read(model)                # from a symbolic trace: no data is run
    facts = loka.graph.read(model, (batch,))      # what that could not read, from one forward of the example

    with loka.graph.observe(model) as seen:       # or from a forward that runs anyway
        model(batch)
    facts = facts.filled(seen.facts())

The pipeline: `tracer` and `trace`, or `observe`, give a flow of `calls`, told apart by `ops`; `tails` gives the facts.
"""

from typing import Any, Dict, Optional, Tuple

import torch
from torch import nn

from loka import names

from .blocks import BlockFacts, Reading, agreed, blocks_of
from .facts import GraphFacts
from .observe import Observation
from .tails import facts_of
from .trace import traced
from .untouched import untouched


def read(model: nn.Module, example: Optional[Tuple[Any, ...]] = None) -> GraphFacts:
    """The facts of `model`. Never raises: what cannot be read is in `unread` and `notes`.

    `example` holds the positional arguments of one forward. It tells the trace which arguments are no tensors, and
    it is run once, without gradients, only where the trace leaves something unread. The model, its buffers and the
    random generators are afterwards as before.
    """
    if isinstance(example, torch.Tensor):
        example = (example,)
    root = names.unwrapped(model)
    facts = _by_trace(root, example)
    if example is not None and facts.unread:
        facts = facts.filled(_by_example(root, example))
    _note_unseen(root, facts)
    return facts


def blocks(model: nn.Module, block: int, eps: float) -> Tuple[Dict[str, BlockFacts], Dict[str, str]]:
    """(site -> its block, site -> why it has none) of the forward with its default arguments, in training and in
    evaluation alike. No data is run, and nothing is raised: a model that cannot be traced has what its parts have."""
    root = names.unwrapped(model)
    try:
        return agreed(*(_blocks_of(root, training, block, eps) for training in (True, False)))
    except Exception as error:
        reason = f"the model's graph cannot be read: {type(error).__name__}: {error}"
        return {}, {site: reason for site, _ in names.linears(root)}


def _blocks_of(root: nn.Module, training: bool, block: int, eps: float) -> Reading:
    with untouched(root):
        for module in root.modules():
            module.training = training
        return blocks_of(traced(root, None), block, eps)


def observe(model: nn.Module) -> Observation:
    """A context in which one forward of `model` is followed; its `facts()` are those of that forward."""
    return Observation(model)


def _by_trace(root: nn.Module, example: Optional[Tuple[Any, ...]]) -> GraphFacts:
    try:
        with untouched(root):
            return facts_of(traced(root, example))
    except Exception as error:  # a model must never fail to train because it could not be read
        sites = [site for site, _ in names.linears(root)]
        facts = GraphFacts(order=sites, unread=set(sites))
        for site in sites:
            facts.tail[site], facts.feeds[site], facts.names[site] = [], [], []
        facts.notes.append(f"the model's graph cannot be read: {type(error).__name__}: {error}")
        return facts


def _by_example(root: nn.Module, example: Tuple[Any, ...]) -> GraphFacts:
    seen = Observation(root)
    try:
        with untouched(root, buffers=True), seen:
            root(*example)
        return seen.facts()
    except Exception as error:
        return GraphFacts(notes=[f"the example does not run: {type(error).__name__}: {error}"])


def _note_unseen(root: nn.Module, facts: GraphFacts) -> None:
    attention = [module for module in root.modules() if isinstance(module, nn.MultiheadAttention)]
    fused = {inner for module in attention for inner in module.modules()}
    for site, module in names.linears(root):
        if module in fused:
            facts.notes.append(f"{site} is never called: nn.MultiheadAttention has a function of its own for it")
        elif site not in facts.order:
            facts.notes.append(f"{site} is not called in the forward that was read")


__all__ = ["BlockFacts", "GraphFacts", "Observation", "blocks", "observe", "read"]
