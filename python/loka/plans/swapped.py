"""Takes a module; puts a class of ours over its own, whose forward then comes first, and takes it off again. The module stays the
same object, and what wrappers made of its class meanwhile stays.
"""

from typing import Any, Dict, Tuple, Type

from torch import nn
from torch.nn.modules import module as of_all


class Over(nn.Module):
    """Base of the classes that are put over others."""

    _loka_over: Type["Over"]
    _loka_base: Type[nn.Module] = nn.Module
    """The class that it was put over."""

    def __reduce_ex__(self, protocol: Any) -> Any:
        """By the class it was made of: classes made while the program runs have no name to be loaded by."""
        cls = type(self)
        return (_blank, (cls._loka_over, cls._loka_base), *super().__reduce_ex__(2)[2:])


_CLASSES: Dict[Tuple[Type[Over], Type[nn.Module]], Type[Over]] = {}


def _class_of(over: Type[Over], base: Type[nn.Module]) -> Type[Over]:
    """The same one each time: torch.compile guards on the class itself."""
    if (over, base) not in _CLASSES:
        members = {"_loka_over": over, "_loka_base": base, "__module__": over.__module__, "__doc__": over.__doc__}
        _CLASSES[over, base] = type(base.__name__, (over, base), members)
    return _CLASSES[over, base]


def _blank(over: Type[Over], base: Type[nn.Module]) -> Over:
    cls = _class_of(over, base)
    return cls.__new__(cls)


def put_over(module: nn.Module, over: Type[Over]) -> None:
    if not isinstance(module, over):
        module.__class__ = _class_of(over, type(module))


def take_off(module: nn.Module, over: Type[Over]) -> None:
    cls = type(module)
    if issubclass(cls, over) and _CLASSES.get((over, cls._loka_base)) is cls:
        module.__class__ = cls._loka_base


def hooks_of_all() -> bool:
    """Whether any module's call is more than its forward."""
    return bool(
        of_all._global_forward_pre_hooks or of_all._global_forward_hooks
        or of_all._global_backward_hooks or of_all._global_backward_pre_hooks
    )


__all__ = ["Over", "hooks_of_all", "put_over", "take_off"]
