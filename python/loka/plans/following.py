"""Takes a model whose kernels want scales beforehand; moves these scales on after every optimizer step.

Within a step nothing moves: all its micro-batches, and both calls of a shared layer, go by the same scales. In the first
step a scale that the plan does not give is taken from the tensor itself; once it is known, compiled code that looks for
none takes over.
"""

import weakref
from typing import Dict, Iterable, List, Optional, Tuple

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from ..capturing import is_capturing
from ..kernels import History, Overflow, Scales, Switch
from ..names import unwrapped
from ..steps import Steps
from ..weakly import weakly
from .linear import LokaLinear, holds, is_settled, known_scales, settle
from .parameters import linears

Weak = weakref.ReferenceType[LokaLinear]


class Following:
    """The scales of one model. Lives as long as the model does, or until `stop`."""

    def __init__(self, model: nn.Module) -> None:
        self._model = weakref.ref(model)
        self._histories: List[History] = []
        # Weakly, all of them: a product with a parameter knows whose it is, which may be the model itself, and the model would
        # keep what follows it, and be kept by it.
        self._followed: List[Tuple[Weak, Scales]] = []
        self._places: List[List[Tuple[Weak, str]]] = []
        """The linear and the operand of every scale of each history."""
        self._taken: Dict[Tuple[str, str], Overflow] = {}
        self._unsettled: List[Weak] = []
        self._rests = False
        self._steps = Steps(1, Switch(), weakly(self._owns), weakly(self._advance))
        self._steps.start()
        weakref.finalize(self, self._steps.stop).atexit = False
        # Before anything is compiled.
        self._gather()

    @property
    def steps(self) -> int:
        """How many have ended."""
        return self._steps.finished

    def overflows(self) -> Dict[Tuple[str, str], Overflow]:
        """Site and operand ("x", "dy") -> in how many steps it lay beyond its scale, since it follows. Waits for the device."""
        return self._with_taken(self._counted())

    def take_overflows(self) -> Dict[Tuple[str, str], Overflow]:
        """The same since they were taken the last time."""
        found = self._counted()
        self._taken = self._with_taken(found)
        for history in self._histories:
            history.overflow.zero_()
        return found

    def _with_taken(self, found: Dict[Tuple[str, str], Overflow]) -> Dict[Tuple[str, str], Overflow]:
        return {place: self._taken.get(place, Overflow()).and_then(one) for place, one in found.items()}

    def _counted(self) -> Dict[Tuple[str, str], Overflow]:
        model = self._model()
        names = {} if model is None else {id(module): name for name, module in linears(model)}
        found = {}
        for history, places in zip(self._histories, self._places):
            for (module, operand), (steps, most) in zip(places, history.overflow.tolist()):
                if id(module()) in names:
                    found[names[id(module())], operand] = Overflow(int(steps), most)
        return found

    def stop(self) -> None:
        """Scales stay as they are."""
        self._steps.stop()

    def advance(self) -> None:
        """The end of a step, by hand: optimizers are not listened to from here on."""
        self._steps.end()

    def rest(self, rests: bool) -> None:
        """While it does, scales stay as they are: nothing reads them, and nothing notes maxima."""
        self._rests = rests

    def _owns(self, optimizer: Optimizer) -> bool:
        """Whether the optimizer changes a weight of a linear that has scales."""
        return holds(optimizer, self._modules())

    def _advance(self, _recorded: bool) -> None:
        if self._rests:
            return
        if self._moved():
            self._gather()
        for history in self._histories:
            history.advance()
        if self._unsettled and self._looks():
            for module in _alive(self._unsettled):
                if all(bool(scale.scale > 0) for scale in known_scales(module)):
                    settle(module)
            self._unsettled = [weakref.ref(module) for module in _alive(self._unsettled) if not is_settled(module)]

    def _moved(self) -> bool:
        """Whether a module has other scales than those that are followed: it went to another device, or other kernels
        run it."""
        followed = ((module(), scales) for module, scales in self._followed)
        return any(module is not None and module._loka_scales is not scales for module, scales in followed)

    def _gather(self) -> None:
        """Puts the scales of a device together. What they say is what is known."""
        before = self._rows()
        self._histories, self._followed, self._places = [], [], []
        by_device: Dict[torch.device, List[LokaLinear]] = {}
        for module in self._modules():
            by_device.setdefault(known_scales(module)[0].scale.device, []).append(module)
        for modules in by_device.values():
            history = History(scale for module in modules for scale in known_scales(module))
            places = [(weakref.ref(module), operand) for module in modules for operand in _operands(module)]
            for place, row in zip(places, history.overflow):
                if place in before:
                    row.copy_(before[place])
            self._histories.append(history)
            self._places.append(places)
            together = iter(history.scales)
            for module in modules:
                of_x, of_dy = (None if scale is None else next(together) for scale in module._loka_scales)
                scales = (of_x, of_dy)
                module.__dict__["_loka_scales"] = scales
                self._followed.append((weakref.ref(module), scales))
        followed = _alive(module for module, _ in self._followed)
        self._unsettled = [weakref.ref(module) for module in followed if not is_settled(module)]

    def _rows(self) -> Dict[Tuple[Weak, str], Tensor]:
        """What has been counted of every scale."""
        both = zip(self._histories, self._places)
        return {place: row for history, places in both for place, row in zip(places, history.overflow)}

    def _looks(self) -> bool:
        """Whether to look, which waits for the device, for scales that have become known: in the first steps, then
        less and less often. Nothing depends on it but speed."""
        if is_capturing():
            return False
        return self.steps & (self.steps - 1) == 0

    def _modules(self) -> List[LokaLinear]:
        model = self._model()
        found = [] if model is None else [module for _, module in linears(model)]
        return [module for module in found if isinstance(module, LokaLinear) and known_scales(module)]


def _alive(modules: Iterable[Weak]) -> List[LokaLinear]:
    return [module for module in (weak() for weak in modules) if module is not None]


def _operands(module: LokaLinear) -> List[str]:
    """Those that have a scale, in `known_scales`' order."""
    return [operand for operand, scale in zip(("x", "dy"), module._loka_scales) if scale is not None]


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


__all__ = ["Following", "follow", "following", "unfollow"]
