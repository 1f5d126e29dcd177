"""Takes a linear, the BlockNorm and the hard swish behind it; makes them one block, which the linear runs in one kernel
while the other two hand on what they get. And back.

All three stay the same objects: classes change, parameters, names, hooks and state_dict do not. A hook that reads what
is in between would see the wrong tensor: while there is one, and in steps that a Recorder records, each runs for
itself. In inference a block may give E4M3 codes to the linears that read it.
"""

import copy
import weakref
from dataclasses import dataclass, replace
from typing import Any, Collection, Dict, List, Mapping, Optional, Tuple

import torch
from torch import nn

from .. import graph
from ..kernels import BLOCK as KERNEL
from ..kernels import UNFUSED, Scale
from ..mods.norm import BLOCK, EPS
from ..names import clean, linears, unwrapped
from .document import Plan
from .error import one_line
from .linear import DELAYED, kernels_of
from .report import Entry
from .swapped import Over, hooks_of_all, put_over, take_off

ATTRIBUTE = "_loka_block"
"""In the `__dict__` of the three modules."""

INPUT_SCALE = "loka_input_scale"
"""A buffer of a frozen linear: its scale of x, FP32 as 32-bit whole numbers, which stands still from then on."""

READERS = (KERNEL, UNFUSED, *DELAYED)
"""Kernels that may get x as codes."""

FEEDER = "_loka_feeder"
"""In the `__dict__` of a linear that a block gives codes to: that block."""


class Block:
    """Three modules that run as one. Held by each of them, outside of nn.Module's registries."""

    def __init__(self, root: nn.Module, linear: Any, norm: nn.Module, activation: nn.Module):
        self.linear, self.norm, self.activation = linear, norm, activation
        self.readers: Tuple[nn.Linear, ...] = ()
        """The linears that get codes in inference; none: it gives BF16."""
        self.stored: Optional[Scale] = None
        """The scale of these codes, as their readers have it too."""
        self.is_whole = True
        """False in a copy of one of the three without the model."""
        self._root: Optional["weakref.ref[nn.Module]"] = weakref.ref(root)

    def is_fused(self) -> bool:
        """Whether the linear gives the block's output in this call. Asked by all three, who must agree."""
        if not self.is_whole or not _runs_by(self.linear, (KERNEL,)):
            return False
        return not (self.is_recorded() or hooks_of_all() or self.hooked())

    def is_recorded(self) -> bool:
        tap: Any = self.linear._loka_tap
        return tap is not None and bool(tap.switch.active)

    def hooked(self) -> str:
        """Which of the three has a hook that sees what a fused block does not make."""
        linear, norm, activation = self.linear, self.norm, self.activation
        if linear._forward_hooks or linear._backward_hooks or linear._backward_pre_hooks:
            return "linear"
        if norm._forward_pre_hooks or norm._forward_hooks or norm._backward_hooks or norm._backward_pre_hooks:
            return "BlockNorm"
        if activation._forward_pre_hooks or activation._backward_hooks:
            return "hard swish"
        return ""

    def hands_on(self) -> bool:
        """Whether it gives codes in this call: nobody but its readers must see them."""
        if not self.readers or torch.is_grad_enabled() or self.activation._forward_hooks:
            return False
        for reader in self.readers:
            if reader._forward_pre_hooks or reader._forward_hooks or reader._loka_tap is not None:
                return False
            if not _runs_by(reader, READERS) or (_runs_by(reader, DELAYED) and INPUT_SCALE not in reader._buffers):
                return False
        return True

    def stored_on(self, device: torch.device) -> torch.Tensor:
        """The scale of the codes that it gives."""
        assert self.stored is not None, "who hands codes on has their scale"
        if self.stored.scale.device != device:
            self.stored = self.stored.to(device)
        return self.stored.scale

    def why_not(self) -> str:
        """Why the three run for themselves now, in words; nothing where they run as one."""
        if self.hooked():
            return f"a hook on its {self.hooked()} reads what is in between"
        if not self.is_whole:
            return "this is a copy without the model"
        if not _runs_by(self.linear, (KERNEL,)):
            return "its forward GEMM runs by another kernel now"
        if self.is_recorded():
            return "a Recorder reads what is in between"
        return "hooks of all modules read what is in between" if hooks_of_all() else ""

    def __deepcopy__(self, memo: Dict[int, Any]) -> "Block":
        """A copy of the model has copies of its blocks; in a copy of a part each module does what it does by itself."""
        made = memo[id(self)] = Block.__new__(Block)
        root = None if self._root is None else self._root()
        made.__dict__.update(self.__dict__, is_whole=self.is_whole and (root is None or id(root) in memo), _root=None)
        if made.is_whole:
            for name in ("linear", "norm", "activation", "readers"):
                setattr(made, name, copy.deepcopy(getattr(self, name), memo))
            made._root = None if root is None else weakref.ref(memo[id(root)])
        return made

    def __getstate__(self) -> Dict[str, Any]:
        return {**self.__dict__, "_root": None}


def _runs_by(linear: nn.Linear, wanted: Collection[str]) -> bool:
    """Whether its forward GEMM still runs by one of these: it may have gone back to BF16 since."""
    kernels = kernels_of(linear)
    return kernels is not None and kernels[0] in wanted


class HandsOn(Over):
    """A BlockNorm or hard swish that gives what it gets while its block runs in the linear's kernel."""

    _loka_block: Optional[Block] = None

    def forward(self, input: torch.Tensor) -> torch.Tensor:
        block = self._loka_block
        if block is not None and block.is_fused():
            return input
        result: torch.Tensor = super().forward(input)
        return result


@dataclass(frozen=True)
class Found:
    """What can run as one: site -> (norm, activation, sites that alone read the output); and why the others cannot."""

    blocks: Mapping[str, Tuple[nn.Module, nn.Module, Tuple[str, ...]]]
    reasons: Mapping[str, str]


def find(model: nn.Module) -> Found:
    """The blocks of a model, by its graph."""
    facts, reasons = graph.blocks(model, BLOCK, EPS)
    modules = {clean(name): module for name, module in unwrapped(model).named_modules()}
    blocks = {}
    for site, block in facts.items():
        names = (site, block.norm, block.activation)
        reason = _unfit(*(modules.get(name) for name in names))
        if len({_parent(name) for name in names}) > 1:
            # Whoever calls one of these modules by itself would get another's output.
            reason = "its BlockNorm and hard swish are in other modules than it is"
        if reason:
            reasons[site] = reason
            continue
        readers = tuple(name for name in block.readers or () if _parent(name) == _parent(site))
        blocks[site] = (modules[block.norm], modules[block.activation], readers if readers == block.readers else ())
    return Found(blocks, reasons)


def _parent(name: str) -> str:
    return name.rpartition(".")[0]


def _unfit(*modules: Optional[nn.Module]) -> str:
    if any(module is None for module in modules):
        return "its modules are inside wrappers"
    if any("forward" in module.__dict__ for module in modules if module is not None):
        return "a forward was put on one of its modules"
    return ""


def fuse(model: nn.Module, site: nn.Linear, norm: nn.Module, activation: nn.Module) -> None:
    """From now on the three run as one. The linear has the block's kernels already."""
    block = Block(unwrapped(model), site, norm, activation)
    for module in (site, norm, activation):
        module.__dict__[ATTRIBUTE] = block
        if module is not site:
            put_over(module, HandsOn)


def hand_on(block: Block, readers: List[nn.Linear], scale: float) -> None:
    """In inference the block gives E4M3 codes of that scale, which these linears read."""
    block.readers, block.stored = tuple(readers), Scale.of(scale, block.linear.weight.device)
    for reader in readers:
        reader.__dict__[FEEDER] = block


def keep_scale(reader: nn.Linear) -> None:
    """Of a linear whose scale of x stands still now: where training has moved it, nobody hands it codes of another."""
    feeder, scale = reader.__dict__.get(FEEDER), reader._buffers.get(INPUT_SCALE)
    if feeder is not None and scale is not None and feeder.stored is not None:
        if float(scale.view(torch.float32)) != float(feeder.stored.scale):
            feeder.readers = ()


def block_of(module: nn.Module) -> Optional[Block]:
    """The block that a linear runs as one with what is behind it."""
    return module.__dict__.get(ATTRIBUTE)


def unfuse(model: nn.Module) -> None:
    """All modules of the model are what they were."""
    for module in unwrapped(model).modules():
        module.__dict__.pop(ATTRIBUTE, None)
        module.__dict__.pop(FEEDER, None)
        take_off(module, HandsOn)


def put(model: nn.Module, planned: "Planned") -> None:
    """Makes blocks and chains of linears that have their kernels already."""
    modules = dict(linears(model))
    for site, (norm, activation) in planned.blocks.items():
        fuse(model, modules[site], norm, activation)
    for site, (readers, scale) in planned.chains.items():
        hand_on(modules[site].__dict__[ATTRIBUTE], [modules[reader] for reader in readers], scale)


@dataclass(frozen=True)
class Planned:
    """What a plan makes of a model's blocks. `blocks`: site -> its BlockNorm and hard swish; `chains`: site -> who reads
    its codes in inference, and their scale; `entries`: of all sites, as they run and with what is said of them."""

    entries: Dict[str, Entry]
    blocks: Mapping[str, Tuple[nn.Module, nn.Module]]
    chains: Mapping[str, Tuple[Tuple[str, ...], float]]


def planned(model: nn.Module, plan: Plan, entries: Mapping[str, Entry]) -> Planned:
    """By the model's graph, where the plan has a block at all."""
    entries = dict(entries)
    wanted = [site for site, entry in entries.items() if entry.kernels and entry.kernels[0] == KERNEL]
    if not wanted:
        return Planned(entries, {}, {})
    found = find(model)
    blocks = {}
    for site in wanted:
        if site in found.blocks:
            blocks[site] = found.blocks[site][:2]
        else:
            reason = found.reasons.get(site, "the model's forward does not call it")
            _, dgrad, wgrad = entries[site].kernels or (UNFUSED,) * 3
            apart = replace(entries[site], kernels=(UNFUSED, dgrad, wgrad))
            entries[site] = said(apart, f"not one kernel with what follows: {reason}")
    chains: Dict[str, Tuple[Tuple[str, ...], Any]] = {}
    for stores in plan.sites:
        name, chain = stores.site, stores.chain or {}
        if "e4m3" not in chain.get("stores", ()) or entries.get(name, _NONE).kernels is None:
            continue
        readers = found.blocks[name][2] if name in blocks else ()
        why_not = _unchained(name, chain, readers, plan, entries, name in blocks)
        if why_not is None:
            chains[name] = (readers, chain["store_scale"])
            entries[name] = said(entries[name], "in inference its output is codes")
        else:
            entries[name] = said(entries[name], f"codes are not handed on here: {why_not}")
    return Planned(entries, blocks, chains)


_NONE = Entry(None, ())


def said(entry: Entry, text: str) -> Entry:
    """The entry, with that behind its note."""
    return replace(entry, note="; ".join(filter(None, (entry.note, one_line(text, limit=400)))))


def _unchained(
    site: str, chain: Mapping[str, Any], readers: Tuple[str, ...], plan: Plan, entries: Mapping[str, Entry],
    is_block: bool,
) -> Optional[str]:
    """Why a block gives BF16 where the plan has it store codes."""
    if not is_block:
        return "it does not run as one kernel"
    if not readers:
        return "its output is read by more than linears beside it"
    by_name = {other.site: other for other in plan.sites}
    scale = chain["store_scale"]
    for name in readers:
        reads = by_name[name].chain if name in by_name else None
        kernels = entries.get(name, _NONE).kernels
        if reads is None or reads["reads"] != "e4m3" or reads.get("from") != site:
            return f"'{one_line(name)}' reads BF16"
        if kernels is None or kernels[0] not in READERS:
            return f"'{one_line(name)}' does not run by a kernel that reads codes"
        if kernels[0] in DELAYED and plan.runtime != "inference":
            return f"'{one_line(name)}' has a scale that training moves"
        if scale is None or entries[name].scales[0] != scale:
            return f"'{one_line(name)}' has another scale"
    return None


__all__ = [
    "INPUT_SCALE", "Block", "Found", "HandsOn", "Planned", "block_of", "find", "fuse", "hand_on", "keep_scale", "planned",
    "put", "said", "unfuse",
]
