"""Takes a model that a plan was applied to; makes it one to serve: every weight is cast to FP8 once. And back.

Codes and scales are buffers beside the weight, kept as bytes and whole numbers: `model.half()` and `model.to(dtype)` cast
what floats, and would spoil them. They are in no state_dict unless asked for.
"""

from dataclasses import replace
from typing import Any, Dict, List, Literal, Optional, Tuple, Type

import torch
from torch import nn
from torch.nn.functional import pad

from .. import kernels as routing
from ..kernels.cast_once import cast_weight, forward_by_codes, why_not_once
from ..kernels.casts import Quantized
from ..names import unwrapped
from . import canary
from .blocks import INPUT_SCALE, keep_scale
from .error import PlanError, listed, one_line
from .following import unfollow
from .host import leave_host
from .linear import KEEPERS, LokaLinear, is_recorded, routed_class
from .paused import resume
from .parameters import is_read, linears
from .precision import fp8_gemms
from .report import RECORD, Resolved, record_of, resolved
from .weights import drop

CODES, SCALE = "loka_weight_codes", "loka_weight_scale"
"""The buffers: FP8 as bytes, FP32 as 32-bit whole numbers."""

CAST_ONCE = "weight cast once"


class FrozenLinear(LokaLinear):
    """A linear for inference, made by `loka.freeze` out of a `LokaLinear`: its forward GEMM reads codes of the weight
    that were made once."""

    _loka_dtype: torch.dtype
    _loka_saved: bool
    _loka_format: torch.dtype

    def forward(self, input: torch.Tensor) -> torch.Tensor:
        if self.training:
            raise RuntimeError("a frozen model is for inference: model.eval(), or loka.unapply(model) to train it")
        kernels = self._loka_kernels
        assert kernels is not None, "frozen by a plan"
        # No gradient goes through codes: better none than one that leaves them out.
        x, device = input.detach(), input.device.type
        in_codes = x.dtype == torch.float8_e4m3fn
        dtype = torch.get_autocast_dtype(device) if torch.is_autocast_enabled(device) else x.dtype
        if dtype != self._loka_dtype and not in_codes:
            raise RuntimeError(
                f"this linear was frozen for {self._loka_dtype} and is asked for {dtype}: its weight would have other "
                f"codes; loka.freeze(model, dtype={dtype})"
            )
        rows = x.reshape(-1, x.shape[-1])
        if rows.shape[0] == 0:
            y = rows.new_zeros((0, self.out_features), dtype=self._loka_dtype)
        else:
            codes, x_scale = self._codes(), self._input_scale()
            rows = rows if in_codes else rows.to(self._loka_dtype)
            if codes.bits.shape[1] > rows.shape[1]:
                rows = pad(rows, (0, codes.bits.shape[1] - rows.shape[1]))
            emulate, stretch = self._loka_options.emulate, self._loka_options.stretch
            if torch.is_autocast_enabled(device):
                with torch.autocast(device, enabled=False):
                    y = forward_by_codes(kernels[0], rows, codes, x_scale, emulate, stretch)
            else:
                y = forward_by_codes(kernels[0], rows, codes, x_scale, emulate, stretch)
            y = y.to(self._loka_dtype)
        y = routing.cut(y, self.out_features).view(*x.shape[:-1], self.out_features)
        return y if self.bias is None else y + self.bias.to(self._loka_dtype)

    def _codes(self) -> Quantized:
        codes, scale = self._buffers[CODES], self._buffers[SCALE]
        assert codes is not None and scale is not None
        return Quantized(codes.view(self._loka_format), scale.view(torch.float32))

    def _input_scale(self) -> Optional[torch.Tensor]:
        scale = self._buffers.get(INPUT_SCALE)
        return None if scale is None else scale.view(torch.float32)

    def _load_from_state_dict(self, *args: Any, **kwargs: Any) -> None:
        """Another weight has other codes."""
        super()._load_from_state_dict(*args, **kwargs)
        if self._parameters.get("weight") is not None:
            _cast_into(self)

    def extra_repr(self) -> str:
        return super().extra_repr() + f", {CAST_ONCE}"

    def __reduce_ex__(self, protocol: Any) -> Any:
        """By the class it was made of: classes made while the program runs have no name to be loaded by."""
        return (_blank, (type(self)._loka_base,), *super().__reduce_ex__(2)[2:])


_CLASSES: Dict[Type[nn.Linear], Type[FrozenLinear]] = {nn.Linear: FrozenLinear}


def _frozen_class(base: Type[nn.Linear]) -> Type[FrozenLinear]:
    if base not in _CLASSES:
        members = {"_loka_base": base, "__module__": __name__, "__doc__": FrozenLinear.__doc__}
        _CLASSES[base] = type(f"Frozen{base.__name__}", (FrozenLinear, base), members)
    return _CLASSES[base]


def _blank(base: Type[nn.Linear]) -> FrozenLinear:
    cls = _frozen_class(base)
    return cls.__new__(cls)


def freeze(
    model: nn.Module,
    *,
    dtype: Optional[torch.dtype] = None,
    save_codes: bool = False,
    weights: Literal["keep", "drop"] = "keep",
) -> Resolved:
    """Casts every weight of an applied plan to FP8 once, for inference; returns what every linear became. Print it.

    The model is put in evaluation, and gives bit for bit what it gave there before. torch.compile and torch.export take
    it; scales known beforehand stay as they are now, and nothing counts or checks any more (`loka.saturated`,
    `loka.health`).

    `dtype`: what the linears are asked for in: torch.bfloat16 of a model that runs under BF16 autocast; by default their
    weights' own. In another one a frozen linear refuses to run.
    `save_codes`: codes and scales are in the state_dict, as bytes and whole numbers beside the weights.
    `weights`: "drop" gives their memory back; the model can then be neither unapplied nor trained, and `save_codes` is
    wanted.
    `load_state_dict` casts what it loads anew.

    Left as they are, and listed with the reason: linears whose forward is in high precision, other libraries' kernels, and
    `loka.linear` by name. Blocks that run as one kernel, and products with parameters, keep their weights, and their codes are in no
    state_dict. Raises PlanError, with the model unchanged, where no plan is applied, a Recorder is attached, or a scale is not known
    yet."""
    applied = record_of(model)
    if applied is None:
        raise PlanError("no plan is applied to this model: loka.apply(model, plan) before loka.freeze(model)")
    if weights not in ("keep", "drop"):
        raise PlanError(f"weights is {weights!r}, it must be one of keep, drop")
    if weights == "drop" and not save_codes:
        raise PlanError('weights="drop" without save_codes=True: the model\'s state_dict would have no weights at all')
    chosen, reasons = _chosen(model)
    # What a slow host lost by in training is no reason here.
    leave_host(model)
    resume(model)
    canary.stop(model)
    unfollow(model)
    drop(model)
    # The weights of frozen ones may be gone: what they are frozen for stays.
    fresh = [(name, module) for name, module in chosen if not isinstance(module, FrozenLinear)]
    for _, module in fresh:
        if _is_block(module) or is_read(module):
            keep_codes(module)
            continue
        freeze_linear(module, dtype or module.weight.dtype, save_codes)
        if weights == "drop":
            module.register_parameter("weight", None)
    model.eval()
    notes = {**{name: CAST_ONCE for name, _ in chosen}, **reasons}
    entries = {
        name: replace(entry, note="; ".join(filter(None, (entry.note, notes.get(name, "")))))
        if notes.get(name, "") not in entry.note else entry
        for name, entry in applied.entries.items()
    }  # fmt: skip
    setattr(unwrapped(model), RECORD, replace(applied, entries=entries, slower="", forward_only=True))
    return resolved(model)


def _chosen(model: nn.Module) -> Tuple[List[Tuple[str, LokaLinear]], Dict[str, str]]:
    """(the linears whose weights can be cast once, why those of the others are not). PlanError before anything changed."""
    chosen: List[Tuple[str, LokaLinear]] = []
    reasons: Dict[str, str] = {}
    wrong: List[str] = []
    for name, module in linears(model):
        if not isinstance(module, LokaLinear) or module._loka_kernels is None or not any(fp8_gemms(module._loka_kernels)):
            continue
        kernels = module._loka_kernels
        why_not = why_not_once(kernels[0])
        if why_not is not None:
            reasons[name] = f"weight not cast once: {why_not}"
        elif is_recorded(module):
            wrong.append(f"'{one_line(name)}' is being recorded: detach the Recorder first")
        elif _is_unknown(module):
            wrong.append(f"'{one_line(name)}' has no scale of x yet: the plan gives none, and no training step found it")
        else:
            chosen.append((name, module))
    if wrong:
        raise PlanError(listed("the model cannot be frozen", "", wrong))
    return chosen, reasons


def _wants_scale(module: LokaLinear) -> bool:
    kernels = module._loka_kernels
    return kernels is not None and routing.numerics(kernels[0], "fprop").a.granularity == "static"


def _is_unknown(module: LokaLinear) -> bool:
    scale = module._loka_scales[0]
    return _wants_scale(module) and (scale is None or not bool(scale.scale > 0))


def _is_block(module: LokaLinear) -> bool:
    kernels = module._loka_kernels
    return kernels is not None and kernels[0] == routing.BLOCK


def keep_codes(module: LokaLinear) -> None:
    """Of a block, which runs as one kernel with what follows, and of a product with a parameter: its codes are kept beside the
    weight, and in no state_dict. Those of an FP32 weight are what BF16 autocast reads."""
    kernels, emulate = module._loka_kernels, module._loka_options.emulate
    casts = None if kernels is None else routing.weight_casts(kernels, emulate)
    wanted = (None if casts is None else casts[0], None)
    weight = module.weight.contiguous()
    if routing.can_keep(weight, wanted):
        cache = routing.WeightCache([weight], [wanted])
        cache.refresh()
        module.__dict__.update(_loka_codes=cache.codes[0], _loka_frozen=True)


class _Kept:
    """What makes such codes anew once another weight is loaded."""

    def loaded(self, module: LokaLinear, codes: routing.WeightCodes) -> None:
        if module._loka_frozen:
            keep_codes(module)


_KEPT = _Kept()
KEEPERS.add(_KEPT)


def freeze_linear(module: LokaLinear, dtype: torch.dtype, save_codes: bool = False) -> None:
    """Makes one linear a frozen one, for x of that type."""
    module.__class__ = _frozen_class(type(module)._loka_base)
    assert isinstance(module, FrozenLinear)
    module.__dict__.update(_loka_dtype=dtype, _loka_saved=save_codes)
    _cast_into(module)
    scale = module._loka_scales[0]
    if _wants_scale(module) and scale is not None:
        module.register_buffer(INPUT_SCALE, scale.scale.clone().view(torch.int32), persistent=save_codes)
        keep_scale(module)


@torch.no_grad()
def _cast_into(module: FrozenLinear) -> None:
    kernels = module._loka_kernels
    assert kernels is not None, "frozen by a plan"
    weight = module.weight.detach().to(module._loka_dtype)
    short_n, short_k = routing.short_of(kernels[:1], *weight.shape)
    if short_n or short_k:
        weight = pad(weight, (0, short_k, 0, short_n))
    made = cast_weight(kernels[0], weight, module._loka_options.emulate)
    module.__dict__["_loka_format"] = made.bits.dtype
    saved = module._loka_saved
    # Who writes a state to a file may want no gaps in it.
    bits = made.bits.contiguous() if saved else made.bits
    module.register_buffer(CODES, bits.view(torch.uint8), persistent=saved)
    module.register_buffer(SCALE, made.scale.float().contiguous().view(torch.int32), persistent=saved)


def refuse_dropped(model: nn.Module) -> None:
    """PlanError where the weights of a frozen model are gone."""
    gone = [name for name, module in linears(model) if isinstance(module, FrozenLinear) and module.weight is None]
    if gone:
        raise PlanError(
            f"{len(gone)} linears have no weights any more, '{one_line(gone[0])}' among them: they were frozen with "
            'weights="drop"'
        )


def thaw(module: nn.Module) -> None:
    """A frozen linear is the plan's again."""
    for name in ("_loka_codes", "_loka_frozen"):
        module.__dict__.pop(name, None)
    if not isinstance(module, FrozenLinear):
        return
    for name in (CODES, SCALE, INPUT_SCALE):
        if name in module._buffers:
            delattr(module, name)
    for name in ("_loka_dtype", "_loka_saved", "_loka_format"):
        module.__dict__.pop(name, None)
    plans_own: Any = routed_class(type(module)._loka_base)
    module.__class__ = plans_own


__all__ = ["CAST_ONCE", "FrozenLinear", "freeze", "freeze_linear", "keep_codes", "refuse_dropped", "thaw"]
