"""Takes a module; gives the children and activations that its forward, or another method, calls one behind the other, where that is all
it ever does:

    return self.w2(self.dropout(F.silu(self.w1(x))))

No branch, no loop, no other function, one argument, each result read once: so what is between two of its children nobody else
sees, as in an nn.Sequential. The forward's own code is run once, on stand-ins that refuse everything else; no data is needed.
"""

import dis
import types
from functools import lru_cache
from typing import Any, Callable, Dict, List, Optional, Tuple, Type, Union

import torch
from torch import nn
from torch.nn import functional

Step = Union[str, Callable[..., Any]]
"""The name of a child, or an activation that is a function."""

ACTIVATIONS: Dict[Callable[..., Any], str] = {
    torch.relu: "relu", functional.relu: "relu", functional.silu: "swish", functional.gelu: "gelu",
    functional.hardswish: "hard_swish",
}  # fmt: skip
"""By the words of a trace's tail."""

_OF_ALL = frozenset(dir(nn.Module))


def methods_of(cls: Type[nn.Module]) -> List[str]:
    """Those of a class besides its forward that may be as straight, such as `_ff_block` of an nn.TransformerEncoderLayer."""
    names = (name for base in cls.__mro__ for name, found in vars(base).items() if isinstance(found, types.FunctionType))
    return [name for name in dict.fromkeys(names) if name not in _OF_ALL and not name.startswith("__")]


def steps_of(module: nn.Module, method: str = "forward") -> Optional[Tuple[Step, ...]]:
    """What that method calls, in order; None where it does anything else."""
    cls = type(module)
    forward: Any = getattr(cls, method)
    own = (cls.__call__, cls.__getattr__, cls.__getattribute__) == (nn.Module.__call__, nn.Module.__getattr__, object.__getattribute__)
    if not own or method in module.__dict__ or not isinstance(forward, types.FunctionType):
        return None
    code = forward.__code__
    if not _is_straight(code):
        return None
    calls = _Calls()
    names: Dict[str, Any] = {"__builtins__": {}}
    for name in code.co_names:
        found: Any = forward.__globals__.get(name)
        if isinstance(found, types.ModuleType):
            names[name] = _Library(calls, found)
        elif _is_known(found):
            names[name] = _Function(calls, found)
    try:
        result = types.FunctionType(code, names)(_Self(calls, module), calls.first)
    except Exception:  # It asked for something that is not known: whatever that is, it is more than calls.
        return None
    return tuple(calls.steps) if result is calls.last and calls.steps else None


@lru_cache(maxsize=None)
def _is_straight(code: types.CodeType) -> bool:
    """One argument, and every instruction behind the one before it. Once for all layers of a kind."""
    if (code.co_argcount, code.co_kwonlyargcount, code.co_freevars, code.co_cellvars) != (2, 0, (), ()):
        return False
    takes_more = code.co_flags & (0x04 | 0x08 | 0x20 | 0x80 | 0x200)
    return not takes_more and not any(_may_leap(each.opname) for each in dis.get_instructions(code))


def _may_leap(opname: str) -> bool:
    """Whether it goes elsewhere than to the next one, or leaves something behind."""
    others = ("FOR_", "SETUP_", "SEND", "YIELD", "RAISE", "IMPORT_", "STORE_ATTR", "STORE_GLOBAL", "DELETE_")
    return "JUMP" in opname or opname.startswith(others)


def _is_known(found: Any) -> bool:
    return callable(found) and any(found is known for known in ACTIVATIONS)


class _Value:
    """Stands for a tensor, of which nothing is known."""

    __slots__ = ()


class _Calls:
    def __init__(self) -> None:
        self.first = self.last = _Value()
        self.steps: List[Step] = []

    def call(self, step: Step, *inputs: Any) -> _Value:
        if len(inputs) != 1 or inputs[0] is not self.last:
            raise ValueError("not what the call before it gave")
        self.steps.append(step)
        self.last = _Value()
        return self.last


class _Function:
    __slots__ = ("calls", "step")

    def __init__(self, calls: _Calls, step: Step) -> None:
        self.calls, self.step = calls, step

    def __call__(self, *inputs: Any) -> _Value:
        return self.calls.call(self.step, *inputs)


class _Library:
    """torch, torch.nn.functional: its activations, and libraries within."""

    __slots__ = ("_calls", "_module")

    def __init__(self, calls: _Calls, module: types.ModuleType) -> None:
        self._calls, self._module = calls, module

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._module, name)
        if isinstance(found, types.ModuleType):
            return _Library(self._calls, found)
        if _is_known(found):
            return _Function(self._calls, found)
        raise AttributeError(name)


class _Self:
    """The module: its children, and activations that are attributes of it."""

    __slots__ = ("_calls", "_module")

    def __init__(self, calls: _Calls, module: nn.Module) -> None:
        self._calls, self._module = calls, module

    def __getattr__(self, name: str) -> _Function:
        module = self._module
        # What the class has by that name comes first.
        if not hasattr(type(module), name):
            if module._modules.get(name) is not None or _is_known(module.__dict__.get(name)):
                return _Function(self._calls, name)
        raise AttributeError(name)


__all__ = ["ACTIVATIONS", "Step", "methods_of", "steps_of"]
