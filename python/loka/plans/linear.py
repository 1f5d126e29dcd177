"""Takes an nn.Linear and three kernels, makes it a linear whose GEMMs these kernels run, and back.

The module stays the same object: its class is replaced by a subclass. So its parameters, their names, hooks,
state_dict, and whatever an optimizer, DDP or FSDP holds of it stay as they were.
"""

import weakref
from typing import Any, Dict, Iterable, List, Optional, Protocol, Tuple, Type

import torch
from torch import nn
from torch.optim import Optimizer

from .. import kernels as routing
from ..names import GEMMS

Kernels = Tuple[str, str, str]
"""The kernels of fprop, dgrad and wgrad, each `library/recipe`."""

Scales = Tuple[Optional[float], Optional[float]]
"""Of x and of dy, for kernels that want them beforehand; None: to be found in the first step. dy's always is: a plan's
number is for gradients of single examples, and a loss may divide them by any batch."""


PAUSED = "_loka_paused"
"""In the `__dict__` of a linear: it runs in high precision for now (`paused`), by PyTorch's own GEMMs."""


def is_transformed() -> bool:
    """Whether torch.func takes gradients or maps over examples here: that goes into each operation, and FP8's GEMMs are one
    that it cannot look into."""
    return not torch.compiler.is_compiling() and bool(torch._C._are_functorch_transforms_active())


class Keeper(Protocol):
    """What makes the codes of weights (`weights.Weights`)."""

    def loaded(self, module: "LokaLinear", codes: routing.WeightCodes) -> None:
        """A state_dict was loaded into the linear, which had these codes."""


KEEPERS: "weakref.WeakSet[Keeper]" = weakref.WeakSet()


class LokaLinear(nn.Linear):
    """An nn.Linear, y[..., n] = x[..., k] W[n, k]^T + bias[n], whose three GEMMs run the kernels of a plan.

    Made by `loka.apply` out of a model's linears, not by hand. Without kernels it is the linear it was made of.
    """

    _loka_kernels: Optional[Kernels] = None
    _loka_options: routing.Options = routing.Options()
    _loka_scales: routing.Scales = (None, None)
    _loka_watch: Optional[routing.Watch] = None
    _loka_codes: Optional[routing.WeightCodes] = None
    _loka_frozen: bool = False
    """The codes are of the weight as it is for good."""
    _loka_paused: bool = False
    _loka_base: Type[nn.Linear] = nn.Linear
    _loka_block: Optional[Any] = None
    """What runs as one with it (`blocks.Block`): then it gives the output of the whole block."""
    _loka_feeder: Optional[Any] = None
    """The block that gives it E4M3 codes in inference."""
    _loka_tap: Optional[Any] = None
    """A Recorder's."""
    columns: bool = False
    """The parameter that it reads is [k, n]."""

    @property
    def _loka_stored(self) -> torch.Tensor:
        """The parameter that it reads, as an optimizer has it."""
        return self.weight

    def forward(self, input: torch.Tensor) -> torch.Tensor:
        kernels = self._loka_kernels
        if kernels is None:
            return super().forward(input)
        if self._loka_paused or kernels == routing.BF16 or (self._loka_block is None and is_transformed()):
            return routing.bf16_linear(input, self.weight, self.bias)
        return self._loka_product(input, self.bias, kernels)

    def _loka_product(
        self, input: torch.Tensor, bias: Optional[torch.Tensor], kernels: Kernels, takes_codes: bool = False,
        gives: Optional[routing.Scale] = None, tail: str = "", dropout: float = 0.0, norm: Optional[routing.Norm] = None,
        wide: bool = False,
    ) -> torch.Tensor:
        """By the plan's kernels. The rest: of `kernels.linear`."""
        scales, options, watch = self._loka_scales, self._loka_options, self._loka_watch
        # By name, neither replaced nor cut: PyTorch 2.6 cannot compile that of a named tuple.
        settled = options.settled
        codes: Optional[routing.WeightCodes] = None
        if any(scale is not None and scale.scale.device != input.device for scale in scales):
            # No buffers: these would be cast with the model, and broadcast by DDP, count and all.
            of_x, of_dy = (None if one is None else one.to(input.device) for one in scales)
            scales = self._loka_scales = (of_x, of_dy)
        if watch is not None and watch.switch.active and self.training:
            # One compiled variant serves the first step, where neither scales nor codes are there yet, and the checks.
            settled = False
        else:
            watch = None
            if self.training or self._loka_frozen:
                # Not in evaluation: other weights may have taken their place for a while, such as averaged ones.
                codes = self._loka_codes
        block, stored = self._loka_block, None
        if kernels[0] == routing.BLOCK:
            if block is None or not block.is_fused():
                kernels = (routing.UNFUSED, *kernels[1:])
            elif block.hands_on():
                stored = block.stored_on(input.device)
        if stored is not None or (self._loka_feeder is not None and input.dtype == torch.float8_e4m3fn):
            x_scale: Any = scales[0]
            return routing.in_codes(
                input, self.weight, bias, kernels[0], x_scale, options.emulate, stored, codes
            )
        return routing.linear(
            input, self.weight, bias, kernels, options.emulate, scales, settled, options.stretch, watch, codes,
            self.columns, takes_codes, gives, tail, dropout, norm, wide,
        )

    def _load_from_state_dict(self, *args: Any, **kwargs: Any) -> None:
        super()._load_from_state_dict(*args, **kwargs)
        self._loka_loaded()

    def _loka_loaded(self) -> None:
        """A state_dict has been loaded into whoever has its weight."""
        # They are of the weight that was there.
        codes: Optional[routing.WeightCodes] = self.__dict__.pop("_loka_codes", None)
        if codes is not None:
            for keeper in list(KEEPERS):
                keeper.loaded(self, codes)

    def extra_repr(self) -> str:
        kernels = self._loka_kernels
        return super().extra_repr() + ("" if kernels is None else ", kernels=" + " | ".join(kernels))

    def __reduce_ex__(self, protocol: Any) -> Any:
        """By the class it was made of: classes made while the program runs have no name to be loaded by. Without FP8 of its
        weight, which nobody would make again in a copy."""
        parts: Any = super().__reduce_ex__(2)
        state, *items = parts[2:]
        return (_blank, (type(self)._loka_base,), {**state, "_loka_codes": None}, *items)


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
    """The kernels of a plan that run this linear, or None; also while the plan is paused."""
    return module._loka_kernels if isinstance(module, LokaLinear) and not module._loka_paused else None


def route(
    module: nn.Linear, kernels: Kernels, emulate: bool, scales: Scales = (None, None),
    device: Optional[torch.device] = None, stretch: int = 0,
) -> None:
    """From now on these kernels run the linear's GEMMs. `device`: where it will run, as far as is known."""
    if not isinstance(module, LokaLinear):
        module.__class__ = routed_class(type(module))
    device = module.weight.device if device is None else device
    needed = zip(wanted_scales(kernels), scales)
    made = tuple(routing.Scale.of(scale, device) if wanted else None for wanted, scale in needed)
    options = routing.Options(emulate, made == (None, None), stretch)
    # Past nn.Module's __setattr__, which has nothing to say of plain values.
    # `PAUSED` too: compiled code that found it in the class would be compiled again once it is in the module.
    module.__dict__.update({PAUSED: False}, _loka_kernels=kernels, _loka_options=options, _loka_scales=made)


def wanted_scales(kernels: Kernels) -> Tuple[bool, bool]:
    """Whether any of the kernels wants a scale of x, and of dy, beforehand."""
    fprop, dgrad, wgrad = (routing.numerics(kernel, gemm) for kernel, gemm in zip(kernels, GEMMS))
    x, dy = (fprop.a, wgrad.b), (dgrad.a, wgrad.a)
    wants_x, wants_dy = (any(cast.granularity == "static" for cast in casts) for casts in (x, dy))
    return wants_x, wants_dy


def known_scales(module: nn.Module) -> List[routing.Scale]:
    """Those of x and dy that the linear's kernels want beforehand."""
    scales = module._loka_scales if isinstance(module, LokaLinear) else ()
    return [scale for scale in scales if scale is not None]


def is_settled(module: nn.Module) -> bool:
    """Whether all of them are known."""
    return not isinstance(module, LokaLinear) or module._loka_options.settled


def settle(module: LokaLinear) -> None:
    """From the next call on no scale is looked for: compiled code is compiled once more."""
    module.__dict__["_loka_options"] = module._loka_options._replace(settled=True)


def saturated_of(module: nn.Module) -> Dict[str, int]:
    """GEMM -> how many elements were beyond its scale so far, of kernels that count them. Waits for the device."""
    if not isinstance(module, LokaLinear) or module._loka_kernels is None:
        return {}
    counted = zip(GEMMS, module._loka_kernels, module._loka_scales)
    return {gemm: int(scale.saturated) for gemm, kernel, scale in counted if scale is not None and counts(kernel)}


def holds(optimizer: Optimizer, modules: Iterable[LokaLinear]) -> bool:
    """Whether the optimizer has the weight of any of them."""
    weights = {id(module._loka_stored) for module in modules}
    return any(id(parameter) in weights for group in optimizer.param_groups for parameter in group["params"])


def follows(kernel: str) -> bool:
    """Whether the scale of x follows x too, and is not the plan's for good."""
    return kernel in routing.KERNELS and routing.numerics(kernel, "wgrad").b.granularity == "static"


DELAYED = frozenset(kernel for kernel in routing.KERNELS if follows(kernel))
"""Their scales are known beforehand, and follow what they are of where something is trained."""


def counts(kernel: str) -> bool:
    """LoKA's own kernels count what saturates as they cast; of the others the canary looks at a sample."""
    return kernel.startswith("loka/")


def unroute(module: nn.Linear) -> None:
    """The linear is what it was. Where FSDP made its own subclass of ours meanwhile, that class stays, and does
    what nn.Linear does."""
    for name in ("_loka_kernels", "_loka_options", "_loka_scales", "_loka_watch", "_loka_codes", "_loka_frozen", PAUSED):
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
    "DELAYED", "Kernels", "LokaLinear", "PAUSED", "Scales", "follows", "holds", "is_recorded", "is_settled", "is_transformed", "kernels_of", "known_scales", "routed_class",
    "route", "saturated_of", "settle", "unroute", "wanted_scales", "why_not_routable",
]
