"""Takes a model; gives, of one training forward of it, the FLOPs of all matrix products, those of the sites, and where
the others are.

Products are seen below autograd, as PyTorch's operators run (TorchDispatchMode): whatever called them, none is missed.
A compiled model is not run uncompiled for this, which might not fit its memory, but once more on shapes alone.
"""

import contextlib
import dataclasses
import gc
import math
import os
import sys
import types
from collections import Counter
from typing import Any, Callable, Dict, List, Mapping, Optional, Sequence, Set, Tuple

import torch
from torch import Tensor, nn
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import TorchDispatchMode

import loka
from loka.graph.untouched import untouched
from loka.names import clean, unwrapped
from loka.record.raised import Raised
from loka.steps import Active

_OUTSIDE = tuple(os.path.dirname(os.path.abspath(module.__file__ or "")) + os.sep for module in (torch, loka))
"""Code that is not the user's."""

_ADDED = ("addmm", "baddbmm", "addmv")
"""The first argument is added, the next two are multiplied."""

_ATTENTION = "scaled_dot_product"

_MOST_LOOKS = 4
"""How often objects are searched for a compiled model (about a tenth of a second each): it is compiled before its first steps, or never."""


class Hook:
    """A hook that a copy or a pickle of the model has none of: it becomes one that does nothing."""

    def __init__(self, function: Callable[..., None]) -> None:
        self.function = function

    def __call__(self, *args: Any) -> None:
        self.function(*args)

    def __reduce__(self) -> Any:
        return Hook, (_nothing,)


def _nothing(*_: Any) -> None:
    """Instead of a hook."""


@dataclasses.dataclass
class Unseen:
    """Products of one place that no site is."""

    op: str
    where: Optional[str]
    name: Optional[str]
    reason: str
    flops: int = 0
    inside: Optional[str] = None
    """The site whose forward it is part of."""


@dataclasses.dataclass
class Seen:
    """What one forward did."""

    how: str
    flops: int = 0
    sites: Dict[str, int] = dataclasses.field(default_factory=dict)
    unseen: Dict[Tuple[str, Optional[str], Optional[str]], Unseen] = dataclasses.field(default_factory=dict)
    order: Dict[str, None] = dataclasses.field(default_factory=dict)
    """What ran, by its first call: sites, and parameters that functions read."""
    calls: Counter[str] = dataclasses.field(default_factory=Counter)
    leading: Dict[str, Set[int]] = dataclasses.field(default_factory=dict)
    """The leading dimension of each call of each site."""
    inputs: List[int] = dataclasses.field(default_factory=list)
    outputs: List[int] = dataclasses.field(default_factory=list)
    """Leading dimensions of the tensors that the model was given, and gave."""

    def entry(self, recorded: Mapping[str, str], late: Set[str]) -> Dict[str, Any]:
        """The manifest's `coverage`. `recorded`: site, or parameter of one -> nothing, or why nothing of it is in the
        trace. `late`: parameters that were only tapped after this forward."""
        unseen = {key: dataclasses.replace(each) for key, each in self.unseen.items()}
        covered = 0
        for key in [key for key in unseen if key[2] in late and recorded.get(key[2]) == ""]:
            covered += unseen.pop(key).flops
        for site, flops in self.sites.items():
            reason = recorded.get(site, "it is not recorded")
            if not reason:
                covered += flops
            else:
                unseen["linear", site, None] = Unseen("linear", None, site, reason, flops)
        entries = sorted(unseen.values(), key=lambda each: (-each.flops, each.where or "", each.name or "", each.op))
        keys = ("op", "flops", "where", "name", "reason")
        rows = [{key: getattr(each, key) for key in keys if getattr(each, key) is not None} for each in entries]
        return {"flops": self.flops, "sites": covered, "how": self.how, "unseen": rows}

    def examples(self, heads: Set[str]) -> Optional[int]:
        """How many examples this forward had: what the model's result, its heads and what it was given agree on."""
        votes: Counter[int] = Counter()
        for size in self.outputs[:1]:
            votes[size] += 2
        for size in {size for head in heads for size in self.leading.get(head, ())}:
            votes[size] += 2
        for size in self.inputs:
            votes[size] += 1
        most = Counter(size for sizes in self.leading.values() for size in sizes).most_common(1)
        for size, _ in most:
            votes[size] += 1
        # Of equal votes the first cast: a dict keeps the order.
        return max(votes, key=lambda size: votes[size]) if votes else None


class Forward:
    """Follows the first training forward of `model` after `watch`, in a recorded step (`switch.active`); `seen`
    is None until then, `notes` say why it stays so. `done` is told of it. `covers(name)`: the parameter
    of the product that runs, if it is recorded; a name of None is not known, as of sharded ones that are gathered for a while."""

    def __init__(
        self, model: nn.Module, sites: Mapping[str, Optional[nn.Module]], switch: Active,
        done: Callable[[Seen], None], covers: Callable[[Optional[str]], Optional[str]],
    ) -> None:  # fmt: skip
        self._model = model
        self._root = unwrapped(model)
        self._sites = {module: name for name, module in sites.items() if module is not None}
        self._switch = switch
        self._done = done
        self._covers = covers
        self._hooks: List[Any] = []
        self._watched: List[nn.Module] = []
        """What has the hooks."""
        self._in_place: Optional[Tuple[Callable[..., Any], Callable[..., Any]]] = None
        """What `model.compile()` made, and what stands in its place."""
        self._looks = 0
        self._stack: Optional[contextlib.ExitStack] = None
        self._count: Optional[_Count] = None
        self._on_sites = contextlib.ExitStack()
        """Takes the hooks of the sites away."""
        self._raised = Raised()
        self.seen: Optional[Seen] = None
        self.notes: List[str] = []

    @property
    def following(self) -> bool:
        """Whether that forward is running."""
        return self._stack is not None

    def watch(self) -> None:
        """Begins to wait for a forward."""
        if self.seen is None and not self._hooks:
            self._hook(self._model)
            self.look_around()

    def look_around(self) -> None:
        """Waits for a forward of what torch.compile made of the model, too: where that is called, the hooks of a model that was
        given uncompiled are traced, and never run."""
        if self.seen is not None or not self._hooks or self._looks == _MOST_LOOKS:
            return
        self._looks += 1
        for compiled in _compiled(self._root):
            if compiled not in self._watched:
                self._hook(compiled)
        if self._in_place is None and (inner := self._root._compiled_call_impl) is not None:
            # `model.compile()`: its hooks are inside.
            def call(*args: Any, **kwargs: Any) -> Any:
                self._before(self._root, args, kwargs)
                return inner(*args, **kwargs)

            self._in_place = inner, call
            self._root._compiled_call_impl = call

    def reasons(self) -> List[str]:
        """Why there is no count yet."""
        if self.seen is not None or self.notes:
            return self.notes
        remedy = "; if torch.compile runs it, give the Recorder what torch.compile returned" if "torch._dynamo" in sys.modules else ""
        return [f"the model's FLOPs were not counted: no training forward of all of it was seen in a recorded step{remedy}"]

    def unwatch(self) -> None:
        """Takes the hooks away."""
        self._clean()
        for hook in self._hooks:
            hook.remove()
        self._hooks, self._watched = [], []
        if self._in_place is not None:
            inner, call = self._in_place
            if self._root._compiled_call_impl is call:
                self._root._compiled_call_impl = inner
            self._in_place = None

    def _hook(self, called: nn.Module) -> None:
        self._watched.append(called)
        self._hooks += [
            called.register_forward_pre_hook(Hook(self._before), with_kwargs=True),
            called.register_forward_hook(Hook(self._after), always_call=True),
        ]

    def _before(self, called: nn.Module, args: Tuple[Any, ...], kwargs: Dict[str, Any]) -> None:
        if torch.compiler.is_compiling() or self._stack is not None:
            return
        if not (self._switch.active and self._root.training and torch.is_grad_enabled()) or torch._C._are_functorch_transforms_active():
            return
        try:
            if _is_compiled(called):
                self._end(self._faked(args, kwargs))
                return
            stack = contextlib.ExitStack()
            self._clean()
            self._raised.begin()
            self._count = self._counting(Seen("forward", inputs=_leading((args, kwargs))), stack, self._on_sites)
            self._stack = stack
            if self._model in self._sites:
                # Its hooks are being called: one that is added now is not.
                self._count.enters(self._sites[self._model])(self._model, args, kwargs)
        except Exception as error:
            self._give_up(error)

    def _after(self, _module: nn.Module, _args: Any, output: Any) -> None:
        if torch.compiler.is_compiling() or self._stack is None or self._count is None:
            return
        if self._model in self._sites:
            self._count.leaves(self._model, output)
        self._stack.close()
        self._stack = None
        seen, error = self._count.seen, self._count.error
        if self._raised:
            # A forward that raised: the next one is looked at. PyTorch goes through a module's hooks as they are then, and
            # one less would be an error in place of the user's.
            return
        self._clean()
        if error is not None:
            self._give_up(error)
        elif output is not None or seen.flops:
            seen.outputs = _leading(output)
            self._end(seen)

    def _clean(self) -> None:
        self._on_sites.close()

    def _end(self, seen: Seen) -> None:
        self.unwatch()
        self.seen = seen
        self._done(seen)

    def _give_up(self, error: Exception) -> None:
        self.unwatch()
        text = (str(error).strip().splitlines() or [""])[0][:160]
        self.notes.append(f"the model's FLOPs were not counted: {type(error).__name__}: {text}")

    def _counting(
        self, seen: Seen, stack: contextlib.ExitStack, on_sites: contextlib.ExitStack, fake: Any = None
    ) -> "_Count":
        count = _Count(seen, self._covers)
        for name, parameter in self._root.named_parameters():
            if not torch.nn.parameter.is_lazy(parameter):
                count.knows(parameter, clean(name))
                if fake is not None:
                    # What views it then is on shapes alone too.
                    count.knows(fake.from_tensor(parameter), clean(name))
        for module, name in self._sites.items():
            before = module.register_forward_pre_hook(count.enters(name), with_kwargs=True)
            after = module.register_forward_hook(count.leaves, always_call=True)
            on_sites.callback(before.remove)
            on_sites.callback(after.remove)
        stack.enter_context(count)
        return count

    def _faked(self, args: Tuple[Any, ...], kwargs: Dict[str, Any]) -> Seen:
        from torch._subclasses.fake_tensor import FakeTensorMode

        if any(hasattr(each, "full_tensor") for each in self._root.parameters()):
            raise NotImplementedError("a compiled model with sharded weights cannot run on shapes alone")
        fake = FakeTensorMode(allow_non_fake_inputs=True)
        shapes = pytree.tree_map_only(Tensor, fake.from_tensor, (args, kwargs))
        with untouched(self._root), contextlib.ExitStack() as stack:
            # Nothing of this is to be recorded.
            stack.callback(setattr, self._switch, "active", self._switch.active)
            self._switch.active = False
            # The counter inside: it is to see operators before they become those on shapes.
            stack.enter_context(fake)
            count = self._counting(Seen("fake", inputs=_leading((args, kwargs))), stack, stack, fake)
            # Past `model.compile()`.
            count.seen.outputs = _leading(self._root._call_impl(*shapes[0], **shapes[1]))
        if count.error is not None:
            raise count.error
        return count.seen


class _Count(TorchDispatchMode):
    """Counts what runs while it is entered."""

    supports_higher_order_operators = True

    def __init__(self, seen: Seen, covers: Callable[[Optional[str]], Optional[str]]) -> None:
        super().__init__()
        self.seen = seen
        self.error: Optional[Exception] = None
        self._storages: Dict[int, str] = {}
        self._covers = covers
        self._kept: List[Tensor] = []
        self._inside: List[_Inside] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        if self.error is None:
            try:
                self._ran(func, args, result)
            except Exception as error:  # A user's forward must not end because it was counted.
                self.error = error
        return result

    def knows(self, tensor: Tensor, name: str) -> None:
        """`tensor`, and what views it, is the parameter `name`."""
        self._storages[_storage(tensor)] = name
        # Or its place might become another tensor's.
        self._kept.append(tensor)

    def enters(self, site: str) -> Callable[..., None]:
        """A hook before the site's forward."""

        def hook(module: nn.Module, args: Tuple[Any, ...], kwargs: Dict[str, Any]) -> None:
            self._inside.append(_Inside(site, module, args, kwargs))

        return hook

    def leaves(self, module: nn.Module, *rest: Any) -> None:
        """A hook after it; the last argument is the output."""
        if not self._inside:
            return
        call, output = self._inside.pop(), rest[-1]
        if call.plain and call.flops and output is not None:
            self._add(call.site, call.flops)
        if call.leading is not None and output is not None:
            self.seen.calls[call.site] += 1
            self.seen.leading.setdefault(call.site, set()).add(call.leading)

    def _add(self, site: str, flops: int) -> None:
        self.seen.order.setdefault(site, None)
        self.seen.flops += flops
        self.seen.sites[site] = self.seen.sites.get(site, 0) + flops

    def _ran(self, func: Any, args: Sequence[Any], result: Any) -> None:
        name = func._overloadpacket.__name__ if isinstance(func, torch._ops.OpOverload) else ""
        if name in ("_to_copy", "clone") and (parameter := self._name(args[0])):
            # Autocast's copy is the parameter still, and that of a matmul which needs it once for each example.
            self.knows(result, parameter)
        if self._inside and self._inside[-1].plain:
            return
        flops = _flops(name, args)
        if not flops:
            return
        factors = args[1:] if name in _ADDED else args
        parameter = next((found for each in factors if (found := self._name(each))), None)
        inside = self._inside[-1] if self._inside else None
        if inside is not None and not inside.counted and flops == inside.flops and inside.reads(parameter):
            inside.counted = True
            return self._add(inside.site, flops)
        if covered := self._covers(parameter):
            return self._add(covered, flops)
        self.seen.flops += flops
        self.seen.order.setdefault(parameter or "", None)
        key = ("scaled_dot_product_attention" if _ATTENTION in name else name, _where(), parameter)
        if key not in self.seen.unseen:
            reason = _reason(name, parameter, inside, self.seen.how)
            self.seen.unseen[key] = Unseen(*key, reason, inside=inside.site if inside else None)
        self.seen.unseen[key].flops += flops

    def _name(self, tensor: Any) -> Optional[str]:
        return self._storages.get(_storage(tensor)) if isinstance(tensor, Tensor) else None


class _Inside:
    """One call of a site's module."""

    def __init__(self, site: str, module: nn.Module, args: Tuple[Any, ...], kwargs: Dict[str, Any]) -> None:
        from loka.record.facts import own_forward

        self.site = site
        self.plain = not own_forward(module)
        self.counted = False
        x = args[0] if args else next(iter(kwargs.values()), None)
        self.leading: Optional[int] = None
        self.flops = 0
        if isinstance(x, Tensor) and x.dim() > 0:
            self.leading = x.shape[0] if x.dim() > 1 else 1
            self.flops = 2 * x.numel() * getattr(module, "out_features")

    def reads(self, parameter: Optional[str]) -> bool:
        """Whether a product of the site's size that reads `parameter` is its own: that of its weight, or of what was
        computed from it."""
        return parameter is None or parameter.rpartition(".")[0] == self.site


def _flops(name: str, args: Sequence[Any]) -> int:
    """2 m k n of each matrix product."""
    if name in ("mm", "bmm", "mv", "_grouped_mm", "_scaled_mm"):
        return 2 * args[0].numel() * (args[1].shape[-1] if args[1].dim() > 1 else 1)
    if name in _ADDED:
        return 2 * args[1].numel() * (args[2].shape[-1] if args[2].dim() > 1 else 1)
    if _ATTENTION in name:
        query, key, value = args[:3]
        return 2 * math.prod(query.shape[:-1]) * key.shape[-2] * (query.shape[-1] + value.shape[-1])
    return 0


def _reason(op: str, parameter: Optional[str], inside: Optional[_Inside], how: str) -> str:
    if inside is not None:
        return f"inside of {inside.site}, whose forward is its own"
    if _ATTENTION in op:
        return "attention: neither operand is a weight"
    if parameter is None:
        return "neither operand is a parameter of the model"
    if how == "fake":
        return "compiled code reads this parameter in a way that cannot be followed: use F.linear, `x @ w` or an nn.Linear"
    return "read by a function in a way that is not a linear's: use an nn.Linear, or `loka.linear` and `functional=`"


def _where() -> Optional[str]:
    """`file.py:line` of the innermost line outside of PyTorch and of this package."""
    frame: Optional[types.FrameType] = sys._getframe(1)
    while frame is not None:
        name = frame.f_code.co_filename
        if not name.startswith(_OUTSIDE) and not name.startswith("<"):
            # The name alone: folders are of the machine it was recorded on.
            return f"{os.path.basename(name)}:{frame.f_lineno}"
        frame = frame.f_back
    return None


def _storage(tensor: Tensor) -> int:
    try:
        return tensor.untyped_storage()._cdata
    except (NotImplementedError, RuntimeError):  # Of a kind that has none.
        return -id(tensor)


def _leading(held: Any) -> List[int]:
    return [each.shape[0] for each in pytree.tree_leaves(held) if isinstance(each, Tensor) and each.dim() > 0]


def _compiled(root: nn.Module) -> List[nn.Module]:
    """What torch.compile returned for it, or for DDP of it."""
    if "torch._dynamo" not in sys.modules:
        return []
    from torch._dynamo.eval_frame import OptimizedModule

    # The class of each object and nothing else: to ask a proxy or a lazy module for more may load what is behind it.
    made = [each for each in gc.get_objects() if issubclass(type(each), OptimizedModule)]
    return [each for each in made if unwrapped(each) is root]


def _is_compiled(model: nn.Module) -> bool:
    if "torch._dynamo" not in sys.modules:
        return False
    return any(hasattr(each, "_orig_mod") or each._compiled_call_impl is not None for each in model.modules())


__all__ = ["Forward", "Hook", "Seen"]
