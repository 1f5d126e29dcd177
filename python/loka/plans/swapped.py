"""Takes a module; puts a class of ours over its own, whose forward, or whatever methods are named, then come first, and takes it off
again. The module stays the same object, and what wrappers made of its class meanwhile stays.
"""

from typing import Any, Callable, Dict, Tuple, Type

from torch import nn
from torch.nn.modules import module as of_all


class Over(nn.Module):
    """Base of the classes that are put over others."""

    _loka_over: Type["Over"]
    _loka_base: Type[nn.Module] = nn.Module
    """The class that it was put over."""
    _loka_methods: Tuple[str, ...] = ()
    """Those of that class before which `_loka_method` comes."""

    @staticmethod
    def _loka_method(name: str, own: Callable[..., Any]) -> Callable[..., Any]:
        """What is called in place of that method of the class below."""
        return own

    def __reduce_ex__(self, protocol: Any) -> Any:
        """By the class it was made of: classes made while the program runs have no name to be loaded by."""
        cls = type(self)
        return (_blank, (cls._loka_over, cls._loka_base, cls._loka_methods), *super().__reduce_ex__(2)[2:])


_CLASSES: Dict[Tuple[Type[Over], Type[nn.Module], Tuple[str, ...]], Type[Over]] = {}


def _class_of(over: Type[Over], base: Type[nn.Module], methods: Tuple[str, ...]) -> Type[Over]:
    """The same one each time: torch.compile guards on the class itself."""
    key = over, base, methods
    if key not in _CLASSES:
        members: Dict[str, Any] = {name: over._loka_method(name, getattr(base, name)) for name in methods}
        members.update(_loka_over=over, _loka_base=base, _loka_methods=methods, __module__=over.__module__, __doc__=over.__doc__)
        _CLASSES[key] = type(base.__name__, (over, base), members)
    return _CLASSES[key]


def _blank(over: Type[Over], base: Type[nn.Module], methods: Tuple[str, ...]) -> Over:
    cls = _class_of(over, base, methods)
    return cls.__new__(cls)


def put_over(module: nn.Module, over: Type[Over], methods: Tuple[str, ...] = ()) -> None:
    if not isinstance(module, over):
        module.__class__ = _class_of(over, type(module), methods)


def take_off(module: nn.Module, over: Type[Over]) -> None:
    cls = type(module)
    if issubclass(cls, over) and _CLASSES.get((over, cls._loka_base, cls._loka_methods)) is cls:
        module.__class__ = cls._loka_base


def hooks_of_all() -> bool:
    """Whether any module's call is more than its forward."""
    return bool(
        of_all._global_forward_pre_hooks or of_all._global_forward_hooks
        or of_all._global_backward_hooks or of_all._global_backward_pre_hooks
    )


__all__ = ["Over", "hooks_of_all", "put_over", "take_off"]
