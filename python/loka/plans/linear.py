"""Takes an nn.Linear and three kernels, makes it a linear whose GEMMs these kernels run, and back.

The module stays the same object: its class is replaced by a subclass. So its parameters, their names, hooks,
state_dict, and whatever an optimizer, DDP or FSDP holds of it stay as they were.
"""

from typing import Any, Dict, Optional, Tuple, Type

import torch
from torch import nn

from .. import kernels as routing

Kernels = Tuple[str, str, str]
"""The kernels of fprop, dgrad and wgrad, each `library/recipe`."""

Scales = Tuple[Optional[float], Optional[float]]
"""Of x in fprop and of dy in dgrad, for kernels that want them beforehand."""


class LokaLinear(nn.Linear):
    """An nn.Linear, y[..., n] = x[..., k] W[n, k]^T + bias[n], whose three GEMMs run the kernels of a plan.

    Made by `loka.apply` out of a model's linears, not by hand. Without kernels it is the linear it was made of.
    """

    _loka_kernels: Optional[Kernels] = None
    _loka_emulate: bool = False
    _loka_statics: routing.Statics = (None, None)
    _loka_base: Type[nn.Linear] = nn.Linear

    def forward(self, input: torch.Tensor) -> torch.Tensor:
        if self._loka_kernels is None:
            return super().forward(input)
        statics = self._loka_statics
        if any(static is not None and static.scale.device != input.device for static in statics):
            # No buffers: these would be cast with the model, and broadcast by DDP, count and all.
            statics = self._loka_statics = tuple(None if one is None else one.to(input.device) for one in statics)
        return routing.linear(input, self.weight, self.bias, self._loka_kernels, self._loka_emulate, statics)

    def extra_repr(self) -> str:
        kernels = self._loka_kernels
        return super().extra_repr() + ("" if kernels is None else ", kernels=" + " | ".join(kernels))

    def __reduce_ex__(self, protocol: Any) -> Any:
        """By the class it was made of: classes made while the program runs have no name to be loaded by."""
        return (_blank, (type(self)._loka_base,), *super().__reduce_ex__(2)[2:])


_CLASSES: Dict[Type[nn.Linear], Type[LokaLinear]] = {nn.Linear: LokaLinear}


def routed_class(base: Type[nn.Linear]) -> Type[LokaLinear]:
    """The subclass of `base` that LokaLinear is for nn.Linear; the same one each time."""
    if base not in _CLASSES:
        members = {"_loka_base": base, "__module__": __name__, "__doc__": LokaLinear.__doc__}
        _CLASSES[base] = type(f"Loka{base.__name__}", (LokaLinear, base), members)
    return _CLASSES[base]


def _blank(base: Type[nn.Linear]) -> LokaLinear:
    cls = routed_class(base)
    return cls.__new__(cls)


def kernels_of(module: nn.Module) -> Optional[Kernels]:
    """The kernels of a plan that run this linear, or None."""
    return module._loka_kernels if isinstance(module, LokaLinear) else None


def route(module: nn.Linear, kernels: Kernels, emulate: bool, scales: Scales, device: torch.device) -> None:
    """From now on these kernels run the linear's GEMMs. `device`: where it will run, as far as is known."""
    if not isinstance(module, LokaLinear):
        module.__class__ = routed_class(type(module))
    statics = tuple(None if scale is None else routing.Static.of(scale, device) for scale in scales)
    # Past nn.Module's __setattr__, which has nothing to say of plain values.
    module.__dict__.update(_loka_kernels=kernels, _loka_emulate=emulate, _loka_statics=statics)


def saturated_of(module: nn.Module) -> Dict[str, int]:
    """GEMM -> how many elements were beyond its static scale so far. Waits for the device."""
    statics = module._loka_statics if isinstance(module, LokaLinear) else ()
    return {gemm: int(one.saturated) for gemm, one in zip(("fprop", "dgrad"), statics) if one is not None}


def unroute(module: nn.Linear) -> None:
    """The linear is what it was. Where FSDP made its own subclass of ours meanwhile, that class stays, and does
    what nn.Linear does."""
    for name in ("_loka_kernels", "_loka_emulate", "_loka_statics"):
        module.__dict__.pop(name, None)
    cls = type(module)
    if issubclass(cls, LokaLinear) and _CLASSES.get(cls._loka_base) is cls:
        module.__class__ = cls._loka_base


def why_not_routable(module: nn.Linear) -> Optional[str]:
    """Why a subclass of LokaLinear would not do what this linear does; None where it would."""
    if _is_recorded(type(module)):
        return "it is being recorded: detach the Recorder first, or attach it after the plan"
    if isinstance(module, nn.LazyLinear):
        return "it is lazy: its size is not known before it has run once"
    if isinstance(module, LokaLinear):
        return None
    if type(module).forward is not nn.Linear.forward or "forward" in module.__dict__:
        return f"its class {type(module).__name__} has a forward of its own, which a kernel would bypass"
    return None


def is_recorded(module: nn.Module) -> bool:
    """True where a Recorder has put its class over the linear's."""
    return _is_recorded(type(module))


def _is_recorded(cls: type) -> bool:
    return any(base.__module__.startswith("loka.record") for base in cls.__mro__)


__all__ = [
    "Kernels", "LokaLinear", "Scales", "is_recorded", "kernels_of", "routed_class", "route", "saturated_of", "unroute",
    "why_not_routable",
]
