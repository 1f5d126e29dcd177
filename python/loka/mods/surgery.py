"""Takes a model and mods; changes the model in place and gives a table of what changed and what was left alone."""

from dataclasses import dataclass
from typing import Any, Callable, Dict, Iterator, List, Mapping, Optional, Sequence, Set, Tuple, Union

from torch import nn

from loka import graph, names

from .activation import HardSwish
from .changes import Change, Changes
from .kept import checked_mods, kept_modules, near
from .norm import BLOCK, BlockNorm, block_of

MODS = ("no_bias", "block_norm", "hard_swish")

Edits = Union[Sequence[str], Mapping[str, Sequence[str]]]

Make = Callable[[Any], Tuple[Optional[nn.Module], str, str]]
"""From a module: what replaces it, its text for the table, and the reason when nothing does."""


def apply(
    model: nn.Module,
    mods: Edits,
    keep: Sequence[Union[str, nn.Module]] = (),
    *,
    block: int = BLOCK,
    everywhere: bool = False,
    example: Optional[Tuple[Any, ...]] = None,
) -> Changes:
    """Changes `model` in place. Before the optimizer is made and before torch.compile, DDP and FSDP.

    `mods` are names of `MODS` for the whole model, or a plan's mapping {site: [mods]}.

    - no_bias: linears lose their bias, but for final prediction layers (`loka.graph` finds them), also where a
      mapping names one: a plan names no_bias for every site, and was measured with the heads' biases there. So does a
      frozen linear, such as the base under an adapter.
    - block_norm: an nn.LayerNorm or nn.RMSNorm that follows a linear becomes `BlockNorm` with blocks of `block`
      features; with `everywhere` each norm over the last dimension does. A width that is no multiple of `block` is
      one block.
    - hard_swish: an nn.SiLU becomes `HardSwish`; of a mapping's sites only those that follow the site.

    `keep` names modules (names, fnmatch patterns, modules) that stay as they are, with all that is in them; what
    follows a kept linear stays too. `example` holds the arguments of a forward, for models that can only be read by
    running them. Modules keep their names; norms' gains and dropped biases leave the state_dict.

    Raises ValueError, with the model as it was: a mod, a site or a pattern of `keep` that there is not; a model that
    is distributed already.
    """
    if isinstance(mods, str):
        mods = [mods]
    if block < 1:
        raise ValueError(f"a block of {block} features")
    _refuse_distributed(model)
    root = names.unwrapped(model)
    asked = _asked(root, mods)
    surgery = _Surgery(root, asked, kept_modules(root, keep), block, everywhere, example)
    return surgery.run()


@dataclass
class _Asked:
    """What is to be done: for the whole model, or by site."""

    mods: List[str]
    sites: Optional[Dict[str, List[str]]]

    def wants(self, mod: str, site: str) -> bool:
        return mod in (self.mods if self.sites is None else self.sites.get(site, ()))


def _asked(root: nn.Module, mods: Edits) -> _Asked:
    if not isinstance(mods, Mapping):
        return _Asked(checked_mods(mods, MODS), None)
    sites = {site: checked_mods(wanted, MODS) for site, wanted in mods.items()}
    known = [site for site, _ in names.linears(root)]
    missing = [f"'{site}'{near(site, known)}" for site in sites if site not in known]
    if missing:
        raise ValueError(f"the model has no linear {'; no '.join(missing)}")
    return _Asked([mod for mod in MODS if any(mod in wanted for wanted in sites.values())], sites)


def _refuse_distributed(model: nn.Module) -> None:
    for module in model.modules():
        if type(module).__name__.startswith("FSDP") or isinstance(
            module, (nn.parallel.DistributedDataParallel, nn.DataParallel)
        ):
            raise ValueError(f"the model is in {type(module).__name__}, which keeps its parameters: apply mods before")


class _Surgery:
    """One application."""

    def __init__(
        self, root: nn.Module, asked: _Asked, kept: Set[nn.Module], block: int, everywhere: bool, example: Any
    ):
        self.root, self.asked, self.kept, self.block, self.everywhere = root, asked, kept, block, everywhere
        self.facts = graph.read(root, example)
        self.linears = dict(names.linears(root))
        self.modules = {names.clean(name): module for name, module in root.named_modules()}
        self.names: Dict[nn.Module, str] = {}
        for name, module in self.modules.items():
            self.names.setdefault(module, name)
        self.followed: Dict[nn.Module, List[str]] = {}
        """The sites that a module is in the tail of."""
        for site, tail in self.facts.names.items():
            for name in filter(None, tail):
                self.followed.setdefault(self.modules[name], []).append(site)
        self.changes = Changes(notes=list(self.facts.notes))

    def run(self) -> Changes:
        if "no_bias" in self.asked.mods:
            for site, linear in self.linears.items():
                self.no_bias(site, linear)
        if "block_norm" in self.asked.mods:
            self.replace("block_norm", (nn.LayerNorm, nn.RMSNorm), (BlockNorm,), self.block_norm)
            self.functions("block_norm", ("layer_norm", "rms_norm"))
        if "hard_swish" in self.asked.mods:
            self.replace("hard_swish", (nn.SiLU,), (HardSwish, nn.Hardswish), self.hard_swish)
            self.functions("hard_swish", ("swish",))
        return self.changes

    def row(self, module: str, mod: str, before: str, after: str = "", left_alone: str = "") -> None:
        self.changes.rows.append(Change(module, mod, before, after, left_alone))

    def no_bias(self, site: str, linear: nn.Linear) -> None:
        if self.asked.sites is not None and not self.asked.wants("no_bias", site):
            return
        why_not = ""
        if linear.bias is None:
            why_not = "already without"
        elif linear in self.kept:
            why_not = "kept"
        elif site in self.facts.head:
            why_not = "a final prediction layer keeps its bias"
        elif isinstance(linear, nn.modules.linear.NonDynamicallyQuantizableLinear):
            why_not = "nn.MultiheadAttention uses it in a function of its own"
        elif "bias" not in linear._parameters:
            why_not = "its bias is parametrized"
        elif not (linear.weight.requires_grad and linear.bias.requires_grad):
            why_not = "it is frozen: nothing would learn to do without its bias"
        before = f"{type(linear).__name__}({linear.in_features}, {linear.out_features}, bias={linear.bias is not None})"
        if not why_not:
            linear.register_parameter("bias", None)
        self.row(site, "no_bias", before, before.replace("bias=True", "bias=False"), why_not)

    def replace(self, mod: str, old: Tuple[Any, ...], new: Tuple[Any, ...], make: Make) -> None:
        """A row for each module of the types `old` and `new`; the former replaced by what `make` gives."""
        for module, name in list(self.names.items()):
            if not isinstance(module, (*old, *new)):
                continue
            sites = self.followed.get(module, [])
            if self.asked.sites is not None and not any(self.asked.wants(mod, site) for site in sites):
                continue
            if not isinstance(module, old):
                self.row(name, mod, _text(module), left_alone=f"already {mod.replace('_', ' ')}")
                continue
            made, after, why_not = make(module)
            why_not = self.stays(module, sites) or why_not
            if made is not None and not why_not:
                made.train(module.training)
                for parent, key in self.places(module):
                    parent._modules[key] = made
            self.row(name, mod, _text(module), after, why_not)

    def stays(self, module: nn.Module, sites: List[str]) -> str:
        if module in self.kept:
            return "kept"
        kept = [site for site in sites if self.linears.get(site) in self.kept]
        if kept:
            return f"it follows {kept[0]}, which is kept"
        if any(hasattr(parent, "_orig_mod") for parent, _ in self.places(module)):
            return "it is compiled on its own: apply mods before torch.compile"
        return ""

    def places(self, module: nn.Module) -> Iterator[Tuple[nn.Module, str]]:
        """Every (parent, name) under which a module, which may be shared, is found."""
        for parent in self.root.modules():
            for key, child in parent._modules.items():
                if child is module:
                    yield parent, key

    def block_norm(self, norm: Any) -> Tuple[Optional[nn.Module], str, str]:
        if len(norm.normalized_shape) != 1:
            return None, "", f"it normalises {len(norm.normalized_shape)} dimensions"
        if norm not in self.followed and not self.everywhere:
            unread = " that could be read" if self.facts.unread else ""
            return None, "", f"it follows no linear{unread} (everywhere=True takes it too)"
        dim = norm.normalized_shape[0]
        made = BlockNorm(dim, self.block)
        ragged = block_of(dim, self.block) != self.block
        return made, _text(made) + (f": {dim} is not a multiple of {self.block}, one block" if ragged else ""), ""

    def hard_swish(self, swish: Any) -> Tuple[Optional[nn.Module], str, str]:
        made = HardSwish(swish.inplace)
        return made, _text(made), ""

    def functions(self, mod: str, ops: Sequence[str]) -> None:
        """Rows for what no module does, which surgery cannot reach, and for sites asked for in vain."""
        already = f"already {mod.replace('_', ' ')}"
        for site in filter(lambda site: self.asked.wants(mod, site), self.linears):
            tail = list(zip(self.facts.tail.get(site, ()), self.facts.names.get(site, ())))
            found = [(str(entry["op"]), name) for entry, name in tail if entry["op"] in (*ops, mod)]
            for op, name in found:
                if not name:
                    why_not = already if op == mod else "functional: there is no module to replace"
                    self.row(f"after {site}", mod, f"{op} function", left_alone=why_not)
            if self.asked.sites is not None and not found:
                self.row(site, mod, "", left_alone=self.nothing(mod, site))

    def nothing(self, mod: str, site: str) -> str:
        if site not in self.facts.tail or site in self.facts.unread:
            return "what follows it could not be read"
        return "no norm in its tail" if mod == "block_norm" else "no swish in its tail"


def _text(module: nn.Module) -> str:
    """A module in a table: its class and its size."""
    shape = getattr(module, "normalized_shape", None)
    inner = ", ".join(map(str, shape)) if shape is not None else module.extra_repr()
    return f"{type(module).__name__}({inner})"


__all__ = ["MODS", "apply"]
