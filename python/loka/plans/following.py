"""Takes a model whose kernels want scales beforehand; moves these scales on after every optimizer step.

Within a step nothing moves: all its micro-batches, and both calls of a shared layer, go by the same scales. In the first
step a scale that the plan does not give is taken from the tensor itself; once it is known, compiled code that looks for
none takes over.
"""

import weakref
from typing import Any, Dict, List, Optional, Tuple

import torch
from torch import nn
from torch.optim import Optimizer
from torch.optim.optimizer import register_optimizer_step_post_hook

from ..kernels import History, Scales
from ..names import linears, unwrapped
from .linear import LokaLinear, is_settled, known_scales, settle


class Following:
    """The scales of one model. Lives as long as the model does, or until `stop`."""

    def __init__(self, model: nn.Module) -> None:
        self._model = weakref.ref(model)
        self._histories: List[History] = []
        self._followed: List[Tuple[LokaLinear, Scales]] = []
        self._unsettled: List[LokaLinear] = []
        self._optimizers: "weakref.WeakKeyDictionary[Optimizer, bool]" = weakref.WeakKeyDictionary()
        self.steps = 0
        # Of all optimizers: the one that trains this model may not exist yet. Never compiled into an optimizer's step.
        me = weakref.ref(self)
        self._hook: Optional[Any] = register_optimizer_step_post_hook(torch.compiler.disable(_stepped(me)))  # pyright: ignore
        weakref.finalize(self, self._hook.remove)
        # Before anything is compiled.
        self._gather()

    def stop(self) -> None:
        """Scales stay as they are."""
        if self._hook is not None:
            self._hook.remove()
            self._hook = None

    def owns(self, optimizer: Optimizer) -> bool:
        """Whether the optimizer changes a weight of a linear that has scales."""
        known = self._optimizers.get(optimizer)
        if known is None:
            weights = {id(module.weight) for module in self._modules()}
            held = (parameter for group in optimizer.param_groups for parameter in group["params"])
            known = self._optimizers[optimizer] = any(id(parameter) in weights for parameter in held)
        return known

    def advance(self) -> None:
        """The end of a step."""
        if self._moved():
            self._gather()
        for history in self._histories:
            history.advance()
        self.steps += 1
        if self._unsettled and self._looks():
            for module in self._unsettled:
                if all(bool(scale.scale > 0) for scale in known_scales(module)):
                    settle(module)
            self._unsettled = [module for module in self._unsettled if not is_settled(module)]

    def _moved(self) -> bool:
        """Whether a module has other scales than those that are followed: it went to another device, or other kernels
        run it."""
        return any(module._loka_scales is not scales for module, scales in self._followed)

    def _gather(self) -> None:
        """Puts the scales of a device together. What they say is what is known."""
        self._histories, self._followed = [], []
        by_device: Dict[torch.device, List[LokaLinear]] = {}
        for module in self._modules():
            by_device.setdefault(known_scales(module)[0].scale.device, []).append(module)
        for modules in by_device.values():
            history = History(scale for module in modules for scale in known_scales(module))
            self._histories.append(history)
            together = iter(history.scales)
            for module in modules:
                of_x, of_dy = (None if scale is None else next(together) for scale in module._loka_scales)
                scales = (of_x, of_dy)
                module.__dict__["_loka_scales"] = scales
                self._followed.append((module, scales))
        self._unsettled = [module for module, _ in self._followed if not is_settled(module)]

    def _looks(self) -> bool:
        """Whether to look, which waits for the device, for scales that have become known: in the first steps, then
        less and less often. Nothing depends on it but speed."""
        if torch.cuda.is_available() and torch.cuda.is_current_stream_capturing():
            return False
        return self.steps & (self.steps - 1) == 0

    def _modules(self) -> List[LokaLinear]:
        model = self._model()
        found = [] if model is None else [module for _, module in linears(model)]
        return [module for module in found if isinstance(module, LokaLinear) and known_scales(module)]


_followed: "weakref.WeakKeyDictionary[nn.Module, Following]" = weakref.WeakKeyDictionary()


def follow(model: nn.Module) -> None:
    """From now on the scales of the model's linears, if any wants such, follow what its training steps see."""
    model = unwrapped(model)
    if any(known_scales(module) for _, module in linears(model)):
        _followed[model] = Following(model)


def unfollow(model: nn.Module) -> None:
    found = _followed.pop(unwrapped(model), None)
    if found is not None:
        found.stop()


def following(model: nn.Module) -> Optional[Following]:
    """What moves the model's scales on; None where nothing does, as in a copy."""
    return _followed.get(unwrapped(model))


def _stepped(following: "weakref.ref[Following]") -> Any:
    def hook(optimizer: Optimizer, _args: Any, _kwargs: Any) -> None:
        alive = following()
        if alive is not None and alive.owns(optimizer):
            alive.advance()

    return hook


__all__ = ["Following", "follow", "following", "unfollow"]
