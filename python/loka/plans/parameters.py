"""Takes a model's parameters that its code multiplies by with functions; puts kernels under these products, and takes them away.

Each is a linear that is no module of the model (`ParameterLinear`): the module whose forward multiplies by it keeps it beside
itself, in no state_dict, and hands it the products that come (`loka.products`). The parameter stays where and what it was.
"""

from typing import Any, Dict, Iterator, Mapping, Optional, Tuple, Type

import torch
from torch import Tensor, nn
from torch.nn.parameter import is_lazy

from ..names import clean, unwrapped
from ..products import TRACEABLE, Hooks, Plain, Products
from .document import Site
from .linear import LokaLinear, is_recorded

LAYOUTS = {"linear": False, "matmul": True}
"""The plan's word for how the model reads a parameter -> whether it is [k, n]."""

READ = "of a parameter that a function reads"


class ParameterLinear(LokaLinear):
    """y[..., n] = x[..., k] W[n, k]^T, W being `owner.name` of the model, or with `columns` its transpose. A bias is whoever calls
    it to add."""

    _loka_owner: nn.Module
    _loka_name: str

    def __init__(self, owner: nn.Module, name: str, columns: bool) -> None:
        nn.Module.__init__(self)
        self.register_parameter("bias", None)
        # Past nn.Module's __setattr__: the owner is no part of this.
        self.__dict__.update(_loka_owner=owner, _loka_name=name, columns=columns)
        self.out_features, self.in_features = self.weight.shape

    @property
    def parameter(self) -> Tensor:
        """As the model has it at the moment: FSDP2 and others put new ones in place."""
        found = self._loka_owner._parameters[self._loka_name]
        assert found is not None, "it was there when the plan was applied"
        return found

    @property
    def weight(self) -> Any:  # type: ignore[override]
        """[n, k]."""
        return self.parameter.t() if self.columns else self.parameter

    @property
    def _loka_stored(self) -> Tensor:
        return self.parameter

    def multiply(self, x: Tensor, bias: Optional[Tensor], plain: Plain) -> Tensor:
        """By the plan's kernels, unless the plan is paused."""
        if self._loka_kernels is None or self._loka_paused:
            return plain()
        y: Tensor = self(x)
        return y if bias is None else y + bias.to(y.dtype)

    def __reduce_ex__(self, protocol: Any) -> Any:
        parts: Any = object.__reduce_ex__(self, 2)
        state, *items = parts[2:]
        return (_blank, (), {**state, "_loka_codes": None}, *items)


def _blank() -> ParameterLinear:
    return ParameterLinear.__new__(ParameterLinear)


_PRODUCTS = "_loka_products"
"""In the `__dict__` of a module whose forward multiplies by parameters: {site: ParameterLinear}."""


class Multiplies(nn.Module):
    """Put before the class of a module whose forward multiplies by parameters."""

    _loka_products: Mapping[str, ParameterLinear] = {}
    _loka_multiplies: Type[nn.Module] = nn.Module

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        products = self._loka_products
        if not products or (torch.compiler.is_compiling() and not TRACEABLE):
            return super().forward(*args, **kwargs)
        if torch.compiler.is_compiling():
            with Products(list(products.values())):
                return super().forward(*args, **kwargs)
        Hooks.count()
        try:
            with Products(list(products.values())):
                return super().forward(*args, **kwargs)
        finally:
            Hooks.stop()

    def __reduce_ex__(self, protocol: Any) -> Any:
        """By the class it was: classes made while the program runs have no name to be loaded by."""
        parts: Any = super().__reduce_ex__(2)
        return (_blank_of, (type(self)._loka_multiplies,), *parts[2:])


_CLASSES: Dict[Type[nn.Module], Type[nn.Module]] = {}


def _class_of(plain: Type[nn.Module]) -> Type[nn.Module]:
    # Kept: torch.compile guards on the class itself.
    if plain not in _CLASSES:
        members = {"_loka_multiplies": plain, "__module__": plain.__module__, "__doc__": plain.__doc__}
        made = type(plain.__name__, (Multiplies, plain), members)
        made.__qualname__ = plain.__qualname__
        _CLASSES[plain] = made
    return _CLASSES[plain]


def _blank_of(plain: Type[nn.Module]) -> nn.Module:
    cls = _class_of(plain)
    return cls.__new__(cls)


def found(site: Site, model: nn.Module) -> Optional[ParameterLinear]:
    """The product that a site of a plan is, where it is one; nothing of the model is changed."""
    if site.forward not in LAYOUTS:
        return None
    for prefix, owner in unwrapped(model).named_modules():
        for name, parameter in owner._parameters.items():
            if parameter is not None and clean(f"{prefix}.{name}" if prefix else name) == site.site:
                is_matrix = not is_lazy(parameter) and parameter.dim() == 2
                return ParameterLinear(owner, name, LAYOUTS[site.forward]) if is_matrix else None
    return None


def why_not(product: ParameterLinear, model: nn.Module) -> Optional[str]:
    """Why kernels cannot be put under a product; None where they can."""
    caller = _caller(product, model)
    if caller is None:
        return "no module of the model's own has it"
    if is_recorded(caller):
        return "it is being recorded: detach the Recorder first"
    if "forward" in caller.__dict__:
        return f"the forward of {type(caller).__name__} was replaced on the object itself"
    return None


def _caller(product: ParameterLinear, model: nn.Module) -> Optional[nn.Module]:
    """The module whose forward multiplies by it: the nearest around it with a forward that is no container's or layer's of
    PyTorch."""
    inside: Dict[nn.Module, nn.Module] = {}
    for module in unwrapped(model).modules():
        for child in module.children():
            inside.setdefault(child, module)
    owner: Any = product._loka_owner
    at: Optional[nn.Module] = owner
    while at is not None and type(at).__module__.startswith("torch.nn.modules."):
        at = inside.get(at)
    return at


def put(site: str, product: ParameterLinear, model: nn.Module) -> None:
    """From now on the products with the parameter come by here."""
    caller = _caller(product, model)
    assert caller is not None, "there is none for `why_not`"
    if not isinstance(caller, Multiplies):
        caller.__class__ = _class_of(type(caller))
    caller.__dict__[_PRODUCTS] = {**caller.__dict__.get(_PRODUCTS, {}), site: product}


def remove(model: nn.Module) -> None:
    """All modules of the model are what they were. Where FSDP made its own subclass of ours meanwhile, that class stays."""
    for module in unwrapped(model).modules():
        module.__dict__.pop(_PRODUCTS, None)
        cls = type(module)
        if issubclass(cls, Multiplies) and _CLASSES.get(cls._loka_multiplies) is cls:
            module.__class__ = cls._loka_multiplies


def linears(model: nn.Module) -> Iterator[Tuple[str, nn.Linear]]:
    """(site, module) of every nn.Linear of the model, and of the products with parameters that kernels of a plan run."""
    for name, module in unwrapped(model).named_modules(remove_duplicate=True):
        if isinstance(module, nn.Linear):
            yield clean(name), module
        yield from module.__dict__.get(_PRODUCTS, {}).items()


__all__ = ["ParameterLinear", "READ", "found", "linears", "put", "remove", "why_not"]
