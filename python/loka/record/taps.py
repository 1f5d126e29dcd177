"""Takes a linear layer; gives the same layer whose calls reach a recorder in recorded steps.

A tapped layer keeps its object, name, parameters and hooks; only its class becomes a subclass of what it was, whose
forward reads one Python flag. torch.compile guards on the class and on the flag, and so compiles two variants: one
with nothing of ours in it, and one for recorded steps.

In a recorded step the output passes an identity that saves the input (which the layer saves for its own backward
anyway) and whose backward hands input and output gradient to one opaque operator. So a forward that activation
checkpointing repeats counts once, one without a backward does not count, and rows stay paired.
"""

import copyreg
import os
import pathlib
import sys
import threading
import types
import warnings
from typing import TYPE_CHECKING, Any, Callable, Dict, Optional, Protocol, Tuple, cast

import torch
from torch import Tensor, nn

import loka
from loka.steps import Active

ATTRIBUTE = "_loka_tap"
"""Key in a tapped module's `__dict__`: not an attribute of nn.Module's kinds, so state_dict and others miss it."""


class Sink(Protocol):
    """Where a tap's tensors go."""

    def take(self, x: Tensor, grad: Optional[Tensor], needs: int, examples: int, /) -> None:
        """One call's input, and its output's gradient unless nothing upstream needs one. `needs`: DGRAD and WGRAD,
        where these ran. `examples`: of the forward that the call was part of, 0 where that is not known."""
        ...

    def called(self, leading: int, /) -> "Batch":
        """A call runs forward, on a leading dimension of so many; gives the forward that it is part of. Compiled code
        does not come by here."""
        ...


class Batch:
    """One forward of the model: its number of examples, once that is known."""

    def __init__(self) -> None:
        self.examples = 0
        self.calls: Dict[str, int] = {}


DGRAD, WGRAD = 1, 2
"""Bits of what the backward of a call computes."""


_sinks: Dict[int, Sink] = {}
_lock = threading.Lock()


class Switch:
    """Whether this step is recorded. Shared by all taps of a recorder; the only thing compiled code looks at."""

    def __init__(self) -> None:
        self.active = False


class Tap:
    """What a tapped module knows of its recorder: plain values, which compiled code reads as constants."""

    def __init__(self, switch: Active, sink: Sink) -> None:
        self.switch = switch
        self.copies = False
        """Whether inputs are copied, because something changes them before the backward."""
        self.in_place = False
        """Whether the layer's own backward surely needs no output, as that of F.linear: else the identity is a copy."""
        # An operator that gives nothing back is said to change this; otherwise compilers would drop the call. On the CPU,
        # where that costs no launch, and keeps older compilers, which know no tag, from making a CUDA graph of it.
        # Whose call it is lies in here too, as data: a number would be a constant to compilers, and each of a model's
        # layers one more variant of the same forward, until they give up (`recompile_limit`).
        with _lock:
            self.slot = next(i for i in range(len(_sinks) + 1) if i not in _sinks)
            _sinks[self.slot] = sink
        self.sink = sink
        self.marker = torch.tensor([self.slot, 0], dtype=torch.int64)

    def release(self) -> None:
        """Calls that still come go nowhere."""
        with _lock:
            _sinks.pop(self.slot, None)


def _deliver(marker: Tensor, x: Tensor, grad: Optional[Tensor], needs: int, examples: int) -> None:
    sink = _sinks.get(int(marker[0]))
    if sink is not None:
        with torch.no_grad():
            sink.take(x, grad, needs, examples)


# Kept out of CUDA graphs: what it keeps must not lie in a graph's own memory, and a replay would not run it again.
_UNGRAPHED: Dict[str, Any] = {"tags": (torch.Tag.cudagraph_unsafe,)} if hasattr(torch.Tag, "cudagraph_unsafe") else {}


@torch.library.custom_op("loka::record", mutates_args=("marker",), **_UNGRAPHED)
def _record(x: Tensor, grad: Tensor, marker: Tensor, needs: int, examples: int) -> None:
    marker[1] += 1
    _deliver(marker, x, grad, needs, examples)


@torch.library.custom_op("loka::recorded", mutates_args=(), **_UNGRAPHED)
def _recorded(x: Tensor, grad: Tensor, marker: Tensor, needs: int, examples: int) -> Tensor:
    # What comes back is what keeps compilers from dropping the call. Nothing is changed: the marker is saved for a backward, and another
    # call of the same layer may have its own before that.
    _deliver(marker, x, grad, needs, examples)
    return grad.clone()


@torch.library.custom_op("loka::record_input", mutates_args=("marker",), **_UNGRAPHED)
def _record_input(x: Tensor, marker: Tensor) -> None:
    marker[1] += 1
    _deliver(marker, x, None, 0, 0)


@_record.register_fake
def _(x: Tensor, grad: Tensor, marker: Tensor, needs: int, examples: int) -> None:
    return None


@_recorded.register_fake
def _(x: Tensor, grad: Tensor, marker: Tensor, needs: int, examples: int) -> Tensor:
    return torch.empty_like(grad)


@_record_input.register_fake
def _(x: Tensor, marker: Tensor) -> None:
    return None


class _Tapped(torch.autograd.Function):
    """Identity on `y`; its backward records `x` with the gradient of `y`."""

    @staticmethod
    def forward(ctx: Any, y: Tensor, x: Tensor, tap: Tap, needs: int, batch: Batch) -> Tensor:
        ctx.save_for_backward(x)
        ctx.tap, ctx.needs, ctx.batch = tap, needs, batch
        # Never a view, which an in-place activation after the layer could not change.
        if not tap.in_place:
            return y.clone()
        ctx.mark_dirty(y)
        return y

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Tuple[Tensor, None, None, None, None]:
        try:
            (x,) = ctx.saved_tensors
        except RuntimeError as error:
            if "modified by an inplace operation" not in str(error):
                raise
            # The layer itself allows that when it saved a copy in another type (autocast), or nothing (frozen): this
            # call is lost, and the next ones keep a copy.
            ctx.tap.copies = True
        else:
            torch.ops.loka.record(x, grad, ctx.tap.marker, ctx.needs, ctx.batch.examples)
        return grad, None, None, None, None


class _CompiledTapped(torch.autograd.Function):
    """The same for compilers: no in-place identity, no Python object, and a copy that they fuse away."""

    @staticmethod
    def forward(ctx: Any, y: Tensor, x: Tensor, marker: Tensor, needs: int) -> Tensor:
        ctx.save_for_backward(x, marker)
        ctx.needs = needs
        return y.clone()

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Tuple[Tensor, None, None, None]:
        x, marker = ctx.saved_tensors
        return torch.ops.loka.recorded(x, grad, marker, ctx.needs, 0), None, None, None


def tapped(y: Tensor, x: Tensor, tap: Tap, weight: Optional[Tensor] = None) -> Tensor:
    """`y`, recorded with the layer's input `x` when it is differentiated."""
    # Subclasses (DTensor of tensor parallelism, nested tensors) hold rows in ways that a plain operator cannot see.
    if not torch.is_grad_enabled() or type(y) is not Tensor or type(x) not in (Tensor, nn.Parameter):
        return y
    needs = DGRAD * x.requires_grad + WGRAD * (weight is None or weight.requires_grad)
    if torch.compiler.is_compiling():
        if y.requires_grad:
            return _CompiledTapped.apply(y, x.detach(), tap.marker, needs)
        torch.ops.loka.record_input(x.detach(), tap.marker)
        return y
    if torch._C._are_functorch_transforms_active():
        # torch.func differentiates one example at a time, which is not how the layer runs in training.
        return y
    x = x.detach()
    batch = tap.sink.called(len(x) if x.dim() > 1 else 1)
    if y.requires_grad:
        return _Tapped.apply(y, x.clone() if tap.copies else x, tap, needs, batch)
    # Frozen so far: no backward comes by here.
    torch.ops.loka.record_input(x, tap.marker)
    return y


if TYPE_CHECKING:
    # What a tapped class is put before is a module's.
    _Mixin = nn.Module
else:
    _Mixin = object


class Untapped(_Mixin):
    """What a tapped module is when it is copied."""

    def __reduce_ex__(self, protocol: Any) -> Any:
        """A copy, and a pickle, is of the layer as it was: without a tap."""
        reduced: Any = super().__reduce_ex__(protocol)
        made, args, state, *rest = reduced
        if isinstance(state, dict):
            state = {key: value for key, value in state.items() if key != ATTRIBUTE}
        if made is vars(copyreg)["__newobj__"] and args == (type(self),):
            # pickle insists that this way of making objects is given the object's own class.
            made, args = vars(copyreg)["_reconstructor"], (plain_class(type(self)), object, None)
        return (made, args, state, *rest)


class TappedLinear(Untapped):
    """Put before a linear's class: its forward, and the tap when this step is recorded."""

    _loka_tap: Optional[Tap] = None
    """In the module's own `__dict__` while a recorder is attached."""

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        y = super().forward(*args, **kwargs)
        tap = self._loka_tap
        if tap is not None and tap.switch.active and self.training:
            # The first argument, whatever a subclass calls it.
            # A weight that is computed (`torch.nn.utils.parametrize`) is not computed again to be asked.
            weight = None if "parametrizations" in self._modules else getattr(self, "weight", None)
            return tapped(y, args[0] if args else next(iter(kwargs.values())), tap, weight)
        return y


class TappedPlainLinear(TappedLinear):
    """The same of nn.Linear itself, which most are: less is asked in steps that are not recorded."""

    def forward(self, input: Tensor) -> Tensor:
        tap = self._loka_tap
        if tap is None or not tap.switch.active:
            y: Tensor = nn.Linear.forward(self, input)  # type: ignore[arg-type]
            return y
        return cast(Tensor, TappedLinear.forward(self, input))


_classes: Dict[type, type] = {}


def tapped_class(plain: type, mixin: type = TappedLinear) -> type:
    """The class of a tapped module that was of the class `plain`."""
    # Kept: torch.compile guards on the class itself, and a new one each time would compile again.
    if plain not in _classes:
        mixin = TappedPlainLinear if plain is nn.Linear and mixin is TappedLinear else mixin
        made = type(plain.__name__, (mixin, plain), {"__module__": plain.__module__, "__doc__": plain.__doc__})
        made.__qualname__ = plain.__qualname__
        _classes[plain] = made
    return _classes[plain]


def plain_class(cls: type) -> type:
    """The class that a tapped layer's was made from; any other class itself."""
    return next((plain for plain, made in _classes.items() if made is cls), cls)


def install(module: nn.Module, tap: Tap) -> None:
    """Taps `module`. TypeError where its class cannot be changed, or does not run."""
    if "forward" in module.__dict__:
        raise TypeError("its forward was replaced on the object itself")
    tap.in_place = type(module).forward is nn.Linear.forward
    if not isinstance(module, TappedLinear):
        module.__class__ = tapped_class(type(module))
    module.__dict__[ATTRIBUTE] = tap


def install_reader(module: nn.Module, reader: Any, mixin: type) -> None:
    """Makes `module` one whose forward asks `reader`."""
    if ATTRIBUTE not in module.__dict__:
        module.__class__ = tapped_class(type(module), mixin)
    module.__dict__[ATTRIBUTE] = reader


def run_as_written(*hooks: Callable[..., Any]) -> None:
    """Keeps compilers from taking our own functions for places to begin at. In a forward that they trace these are traced
    too; but past a graph break each call would begin one of its own, a variant for each shape of a layer, until there
    are `recompile_limit` and PyTorch gives up. The layers by themselves, without us, are not compiled there either."""
    if "torch._dynamo" not in sys.modules:
        return
    try:
        from torch._dynamo.eval_frame import skip_code
    except ImportError:  # Not a public name: without it compilers only do more than they need to.
        return
    for function in (TappedLinear.forward, TappedPlainLinear.forward, tapped, _Tapped.forward, *hooks):
        skip_code(function.__code__)


def remove(module: nn.Module) -> None:
    """Gives `module` its class back. If something built another class on ours since (as FSDP2 does), that stays, and
    without a tap it runs as before."""
    module.__dict__.pop(ATTRIBUTE, None)
    module.__class__ = plain_class(type(module))


def is_tapped(module: nn.Module) -> bool:
    """Whether a recorder is attached here."""
    return ATTRIBUTE in module.__dict__


def warn(text: str) -> None:
    """A warning that cannot end a training job, even where warnings are errors."""
    try:
        warnings.warn(f"loka.Recorder: {text}", RuntimeWarning, stacklevel=_level_of_user())
    except Warning:
        pass


_OURS = tuple(f"{pathlib.Path(file).parent.resolve()}{os.sep}" for file in (loka.__file__, torch.__file__))


def _level_of_user() -> int:
    """The `stacklevel`, from the caller, of the first frame that is neither LoKA's nor PyTorch's: what a reader can find in
    their own code, and not the line of ours that says it. The caller's own where there is none, as in autograd's threads."""
    frame: Optional[types.FrameType] = sys._getframe(1)
    level = 1
    while frame is not None and frame.f_code.co_filename.startswith((*_OURS, "<frozen ")):
        frame, level = frame.f_back, level + 1
    return 1 if frame is None else level


__all__ = [
    "Batch", "DGRAD", "Sink", "Switch", "Tap", "TappedLinear", "Untapped", "WGRAD", "install", "install_reader",
    "is_tapped", "plain_class", "remove", "run_as_written", "tapped", "tapped_class",
    "warn",
]
