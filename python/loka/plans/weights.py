"""Takes a model that a plan was applied to; has its weights cast to FP8 once an optimizer step instead of once a forward.

The codes are made after each step of an optimizer that holds a weight, and of a linear into which a state_dict is loaded.
Nobody tells us of other changes: they show in the weight's version before the next step, and in checked
steps in the codes themselves. Then a warning says so, and the model's weights are cast in every forward again.
"""

import functools
import warnings
import weakref
from typing import Any, Callable, Dict, FrozenSet, List, NamedTuple, Optional, Tuple

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from ..capturing import is_capturing
from ..kernels import Wanted, WeightCache, WeightCodes, can_keep, weight_casts
from ..listeners import Handle, after_steps, before_steps
from ..names import unwrapped
from ..weakly import weakly
from .error import one_line
from .linear import KEEPERS, Kernels, LokaLinear
from .parameters import linears

CODES = "_loka_codes"
"""In the `__dict__` of a linear: FP8 of its weight, as of the last optimizer step."""


class StaleWeights(RuntimeWarning):
    """A weight changed outside of an optimizer's step, and FP8 GEMMs read what it was before."""


class _Group(NamedTuple):
    """Weights of one device that the same optimizers change."""

    cache: WeightCache
    codes: List[WeightCodes]
    """As each linear reads them."""
    names: List[str]
    modules: List["weakref.ReferenceType[LokaLinear]"]
    """A product with a parameter knows whose it is, which may be the model: it would be kept by what is kept for it."""
    parameters: List[Tensor]
    kernels: List[Optional[Kernels]]
    owners: FrozenSet[int]

    def is_current(self, index: int) -> bool:
        """Whether that linear has the weight that is cast, at its place, and runs by the same kernels."""
        module, weight = self.modules[index](), self.parameters[index]
        if module is None:
            return False
        there = module._loka_stored is weight and module._loka_kernels is self.kernels[index]
        kept = module.__dict__.get(CODES) is self.codes[index]
        return there and kept and weight.data_ptr() == self.cache.weights[index].data_ptr()


class Weights:
    """The codes of one model's weights. Lives as long as the model does, or until `stop`."""

    def __init__(self, model: nn.Module) -> None:
        self._model = weakref.ref(model)
        self._groups: List[_Group] = []
        self._versions: Dict[int, int] = {}
        """Of each weight, by its id, when its codes were made."""
        self._owned: "weakref.WeakKeyDictionary[Optimizer, Tuple[int, FrozenSet[int]]]" = weakref.WeakKeyDictionary()
        """A number for each optimizer, and the ids of our weights that it holds."""
        self._hooks: List[Handle] = [before_steps(weakly(self._before)), after_steps(weakly(self._after))]
        weakref.finalize(self, _remove, self._hooks).atexit = False
        self._rests = False
        KEEPERS.add(self)

    def stop(self) -> None:
        """Weights are cast in every forward from here on."""
        _remove(self._hooks)
        self._forget()

    def rest(self, rests: bool) -> None:
        """While it does, no codes are made: nothing reads them. Then all of them are."""
        self._rests = rests
        if not rests and self._groups:
            self.refresh()

    def refresh(self, owner: Optional[int] = None) -> None:
        """Makes the codes of what the weights are now; `owner`: of those that this optimizer holds."""
        if not self._hooks or self._rests:
            return
        if self._moved():
            self._gather()
            owner = None
        for group in self._groups:
            if owner is None or owner in group.owners:
                self._make(group)

    def _make(self, group: _Group) -> None:
        group.cache.refresh()
        self._versions.update((id(weight), weight._version) for weight in group.parameters)

    def loaded(self, module: LokaLinear, codes: WeightCodes) -> None:
        """Makes the codes of what was loaded, so that compiled code need not be made for a linear without. Where another weight
        took the old one's place it has none until the next step."""
        if not self._hooks or self._rests or is_capturing():
            return
        for group in self._groups:
            for index, (known, kept) in enumerate(zip(group.modules, group.codes)):
                if known() is not module or kept is not codes:
                    continue
                module.__dict__[CODES] = codes
                if not group.is_current(index):
                    del module.__dict__[CODES]
                    return
                group.cache.refresh_one(index)
                self._versions[id(group.parameters[index])] = group.parameters[index]._version

    def stale(self) -> List[str]:
        """The linears whose codes are not those of their weights. Waits for the device, and takes longer than casting
        all of them."""
        if self._moved():
            return []
        return [group.names[index] for group in self._groups for index in group.cache.differing()]

    def _routed(self) -> List[Tuple[str, LokaLinear]]:
        model = self._model()
        found = [] if model is None else linears(model)
        return [(name, module) for name, module in found if isinstance(module, LokaLinear)]

    def _before(self, optimizer: Optimizer, args: Any, kwargs: Any) -> Any:
        """An optimizer's step begins: whatever has changed a weight since its codes were made was not one."""
        if self._rests:
            return None
        number, held = self._owned_by(optimizer)
        if not self._groups or not held or is_capturing():
            return None
        changed = self._changed(number)
        # Not every change leaves a mark; the checks look at the codes.
        if changed or (self._is_checked() and (changed := self.stale())):
            self._give_up(changed)
            return None
        if "closure" in kwargs and callable(kwargs["closure"]):
            return args, {**kwargs, "closure": self._followed(kwargs["closure"], number)}
        if len(args) > 1 and callable(args[1]):
            return (args[0], self._followed(args[1], number), *args[2:]), kwargs
        return None

    def _changed(self, owner: int) -> List[str]:
        """The linears whose weights, of those that the optimizer holds, show that they have changed since they were cast."""
        return [
            name for group in self._groups if owner in group.owners
            for name, module, weight in zip(group.names, group.modules, group.parameters)
            if weight._version != self._versions.get(id(weight)) and getattr(module(), CODES, None) is not None
        ]

    def _followed(self, closure: Callable[..., Any], owner: int) -> Callable[..., Any]:
        """What a step calls for a loss: LBFGS and SAM do so of weights that they have changed within the step."""
        weights = weakref.ref(self)

        @functools.wraps(closure)
        def run(*args: Any, **kwargs: Any) -> Any:
            here = weights()
            if here is not None and here._changed(owner):
                here.refresh(owner)
            return closure(*args, **kwargs)

        return run

    def _is_checked(self) -> bool:
        watches = (getattr(module(), "_loka_watch", None) for group in self._groups for module in group.modules)
        return any(watch is not None and watch.switch.active for watch in watches)

    def _give_up(self, changed: List[str]) -> None:
        more = f" and {len(changed) - 1} more" if len(changed) > 1 else ""
        warnings.warn(
            f"{one_line(changed[0])}{more}: the weight was changed outside of an optimizer's step, and FP8 GEMMs read what "
            "it was before; from now on weights are cast in every forward. Call loka.refresh(model) after such a change, or "
            'apply the plan with cast_weights="forward"',
            StaleWeights, stacklevel=2,
        )
        self.stop()

    def _after(self, optimizer: Optimizer, _args: Any, _kwargs: Any) -> None:
        if self._rests:
            return
        if is_capturing():
            self._captured(optimizer)
            return
        number, held = self._owned_by(optimizer)
        if held:
            self.refresh(number)

    def _captured(self, optimizer: Optimizer) -> None:
        """The step is going into a CUDA graph: what makes the codes goes along, or every replay would read those of the
        last step before the capture. No codes are begun in there, and none are dropped: the graph reads them."""
        held = {id(parameter) for group in optimizer.param_groups for parameter in group["params"]}
        for group in self._groups:
            if any(id(weight) in held for weight in group.parameters):
                self._make(group)

    def _owned_by(self, optimizer: Optimizer) -> Tuple[int, FrozenSet[int]]:
        known = self._owned.get(optimizer)
        if known is None:
            weights = {id(module._loka_stored) for _, module in self._routed()}
            held = (id(parameter) for group in optimizer.param_groups for parameter in group["params"])
            known = self._owned[optimizer] = (len(self._owned), frozenset(weights.intersection(held)))
            if known[1] and self._groups:
                # One more that changes some of them: each group is made again when one of its own has stepped.
                self._forget()
        return known

    def _forget(self) -> None:
        for _, module in self._routed():
            module.__dict__.pop(CODES, None)
        self._groups = []

    def _moved(self) -> bool:
        """Whether a linear has another weight than the one that is cast, runs by other kernels, or lost its codes."""
        current = (group.is_current(index) for group in self._groups for index in range(len(group.names)))
        return not self._groups or not all(current)

    def _gather(self) -> None:
        self._forget()
        together: Dict[Tuple[torch.device, FrozenSet[int]], List[Tuple[str, LokaLinear, Wanted]]] = {}
        for name, module in self._routed():
            wanted, weight = _wanted(module), module._loka_stored
            runs = weight.is_cuda or module._loka_options.emulate
            if wanted is not None and runs and can_keep(weight, wanted):
                owners = frozenset(number for number, held in self._owned.values() if id(weight) in held)
                together.setdefault((weight.device, owners), []).append((name, module, wanted))
        for (_, owners), found in together.items():
            names, modules = [name for name, _, _ in found], [module for _, module, _ in found]
            weights = [module._loka_stored for module in modules]
            cache = WeightCache(weights, [wanted for _, _, wanted in found])
            # Of a parameter [k, n] what is straight is W turned.
            every = [codes.turned() if module.columns else codes for module, codes in zip(modules, cache.codes)]
            for module, codes in zip(modules, every):
                module.__dict__[CODES] = codes
            kernels = [module._loka_kernels for module in modules]
            weak = [weakref.ref(module) for module in modules]
            self._groups.append(_Group(cache, every, names, weak, weights, kernels, owners))


def _wanted(module: LokaLinear) -> Optional[Wanted]:
    kernels = module._loka_kernels
    wanted = None if kernels is None else weight_casts(kernels, module._loka_options.emulate)
    return (wanted[1], wanted[0]) if wanted is not None and module.columns else wanted


def _remove(hooks: List[Handle]) -> None:
    while hooks:
        hooks.pop().remove()


_kept: "weakref.WeakKeyDictionary[nn.Module, Weights]" = weakref.WeakKeyDictionary()


def keep(model: nn.Module) -> Weights:
    """From now on the model's weights are cast once an optimizer step."""
    made = _kept[unwrapped(model)] = Weights(unwrapped(model))
    return made


def drop(model: nn.Module) -> None:
    found = _kept.pop(unwrapped(model), None)
    if found is not None:
        found.stop()


def kept(model: nn.Module) -> Optional[Weights]:
    """What casts the model's weights; None where every forward does, as in a copy."""
    return _kept.get(unwrapped(model))


__all__ = ["StaleWeights", "Weights", "drop", "keep", "kept"]
