"""Takes a module; gives the children and activations that its forward, or another method, calls one behind the other, where that is all
it ever does:

    return self.w2(self.dropout(F.silu(self.w1(x))))

No branch, no loop, no other function, one argument, each result read once: so what is between two of its children nobody else
sees, as in an nn.Sequential. But two linears may read the same where their results, or what an activation makes of these, are multiplied:

    return self.w2(F.silu(self.w1(x)) * self.w3(x))

The forward's own code is run once, on stand-ins that refuse everything else; no data is needed.
"""

import dis
import types
from functools import lru_cache
from typing import Any, Callable, Dict, List, NamedTuple, Optional, Tuple, Type, Union

import torch
from torch import nn
from torch.nn import functional

Call = Union[str, Callable[..., Any]]
"""The name of a child, or an activation that is a function."""


class Fork(NamedTuple):
    """Two linears that read the same, each with an activation behind it or none, in the order in which they are called; what comes of them
    is multiplied. By `Call`, or the modules and functions themselves."""

    first: Tuple[Any, ...]
    second: Tuple[Any, ...]


Step = Union[Call, Fork]

ACTIVATIONS: Dict[Callable[..., Any], str] = {
    torch.relu: "relu", functional.relu: "relu", functional.silu: "swish", functional.gelu: "gelu",
    functional.hardswish: "hard_swish", torch.sigmoid: "sigmoid", functional.sigmoid: "sigmoid",
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
    calls = _Calls(module)
    names: Dict[str, Any] = {"__builtins__": {}}
    for name in code.co_names:
        found: Any = forward.__globals__.get(name)
        if isinstance(found, types.ModuleType):
            names[name] = _Library(calls, found)
        elif _is_known(found):
            names[name] = _Function(calls, found)
    try:
        return calls.steps_to(types.FunctionType(code, names)(_Self(calls, module), calls.first))
    except Exception:  # It asked for something that is not known: whatever that is, it is more than calls.
        return None


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
    """Stands for a tensor, of which nothing is known but what made it, and of which other one."""

    __slots__ = ("_calls", "read", "step")

    def __init__(self, calls: "_Calls", step: Optional[Step], read: Optional["_Value"]) -> None:
        self._calls, self.step, self.read = calls, step, read

    def __mul__(self, other: Any) -> "_Value":
        return self._calls.multiply(self, other)


class _Calls:
    def __init__(self, module: nn.Module) -> None:
        self._module = module
        self.first = _Value(self, None, None)
        self._made: List[_Value] = []

    def call(self, step: Call, *inputs: Any) -> _Value:
        (read,) = inputs
        if not isinstance(read, _Value):
            raise TypeError("not what a call before it gave")
        return self._new(step, read)

    def multiply(self, one: Any, other: Any) -> _Value:
        first, second = sorted((self._branch(one), self._branch(other)), key=lambda branch: self._made.index(branch[0]))
        if first[0] is second[0] or first[0].read is not second[0].read:
            raise ValueError("no two linears that read the same")
        return self._new(Fork(*(tuple(value.step for value in branch) for branch in (first, second))), first[0].read)

    def _new(self, step: Step, read: Optional[_Value]) -> _Value:
        self._made.append(_Value(self, step, read))
        return self._made[-1]

    def _branch(self, value: Any) -> List[_Value]:
        """What a linear gave, and that value, where it was made of it."""
        branch = [value] if self._is_of_linear(value) else [value.read, value]
        if not self._is_of_linear(branch[0]):
            raise ValueError("of no linear")
        return branch

    def _is_of_linear(self, value: Any) -> bool:
        return isinstance(value.step, str) and isinstance(self._module._modules.get(value.step), nn.Linear)

    def steps_to(self, value: Any) -> Optional[Tuple[Step, ...]]:
        """What made that value of the first one; None where anything else was made, too: somebody may read it."""
        steps: List[Step] = []
        while value is not self.first:
            steps.insert(0, value.step)
            value = value.read
        made = sum(1 + len(step.first) + len(step.second) if isinstance(step, Fork) else 1 for step in steps)
        return tuple(steps) if steps and made == len(self._made) else None


class _Function:
    __slots__ = ("calls", "step")

    def __init__(self, calls: _Calls, step: Call) -> None:
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


__all__ = ["ACTIVATIONS", "Call", "Fork", "Step", "methods_of", "steps_of"]
