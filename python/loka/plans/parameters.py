"""Takes a model's parameters that its code multiplies by with functions; puts kernels under these products, and takes them away.

Each is a linear that is no module of the model (`ParameterLinear`): the module whose forward multiplies by it keeps it beside
itself, in no state_dict, and hands it the products that come (`loka.products`). The parameter stays where and what it was.
The output projection of nn.MultiheadAttention is a module, and nobody calls it: the attention hands it its product likewise.
"""

from typing import Any, Dict, Iterator, Mapping, Optional, Tuple, Type

import torch
from torch import Tensor, nn
from torch.nn.modules.linear import NonDynamicallyQuantizableLinear
from torch.nn.parameter import is_lazy

from ..names import clean, unwrapped
from ..products import TRACEABLE, Hooks, Plain, Product, Products, read_attention
from .document import Site
from .linear import LokaLinear, is_recorded, is_transformed, kernels_of, why_not_routable

LAYOUTS = {"linear": False, "matmul": True}
"""The plan's word for how the model reads a parameter -> whether it is [k, n]."""

READ = "of a parameter that a function reads"

NOT_CALLED = "its parent reads its weight and never calls it"


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

    def multiply(self, x: Tensor, bias: Optional[Tensor], plain: Plain, _examples: int, /) -> Tensor:
        """By the plan's kernels, unless the plan is paused, or torch.func runs it."""
        kernels = self._loka_kernels
        if kernels is None or self._loka_paused or is_transformed():
            return plain()
        return self._loka_product(x, bias, kernels)

    def __reduce_ex__(self, protocol: Any) -> Any:
        parts: Any = object.__reduce_ex__(self, 2)
        state, *items = parts[2:]
        return (_blank, (), {**state, "_loka_codes": None}, *items)


def _blank() -> ParameterLinear:
    return ParameterLinear.__new__(ParameterLinear)


_READ = "_loka_read"
"""In the `__dict__` of a module with parameters that functions read: {site: ParameterLinear}."""


def _after_loading(owner: nn.Module, _keys: Any) -> None:
    """A state_dict has been loaded into it: nothing is called of the linears that its parameters are. A function of this file, so
    that a model with such a hook can be pickled."""
    for product in owner.__dict__.get(_READ, {}).values():
        product._loka_loaded()


class _Projection:
    """The product with an attention's output projection, by the kernels of that module (`loka.products.Product`)."""

    columns = False

    def __init__(self, module: nn.Linear) -> None:
        self._module = module

    @property
    def parameter(self) -> Tensor:
        return self._module.weight

    def multiply(self, x: Tensor, bias: Optional[Tensor], plain: Plain, _examples: int, /) -> Tensor:
        # Not by the module's call, which a Recorder taps: it would take an attention's positions for examples.
        return plain() if kernels_of(self._module) is None else LokaLinear.forward(self._module, x)  # type: ignore[arg-type]


_PRODUCTS = "_loka_products"
"""In the `__dict__` of a module whose forward multiplies by parameters: {site: Product}."""


class Multiplies(nn.Module):
    """Put before the class of a module whose forward multiplies by parameters."""

    _loka_products: Mapping[str, Product] = {}
    _loka_multiplies: Type[nn.Module] = nn.Module

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        products = self._loka_products
        # An attention takes nested tensors in evaluation alone, by a kernel of its own that it does not use under a mode.
        if not products or (torch.compiler.is_compiling() and not TRACEABLE) or any(map(_is_nested, args)):
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


def _is_nested(value: Any) -> bool:
    return isinstance(value, Tensor) and value.is_nested


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


def is_projection(module: object) -> bool:
    """Whether it is the output projection of an nn.MultiheadAttention, which reads its weight and never calls it."""
    return isinstance(module, NonDynamicallyQuantizableLinear)


def is_read(module: object) -> bool:
    """Whether a function multiplies by its weight, and nobody calls it."""
    return isinstance(module, ParameterLinear) or is_projection(module)


def why_not(product: nn.Linear, model: nn.Module) -> Optional[str]:
    """Why kernels cannot be put under a product, one that `is_read`; None where they can."""
    caller = _caller(product, model)
    if caller is None:
        return NOT_CALLED if is_projection(product) else "no module of the model's own has it"
    if is_recorded(caller):
        return "it is being recorded: detach the Recorder first"
    if "forward" in caller.__dict__:
        return f"the forward of {type(caller).__name__} was replaced on the object itself"
    return why_not_routable(product) if is_projection(product) else None


def _caller(product: nn.Linear, model: nn.Module) -> Optional[nn.Module]:
    """The module whose forward multiplies by it: the nearest around it that is an attention or has a forward that is no
    container's or layer's of PyTorch. Of a projection, its attention."""
    inside: Dict[nn.Module, nn.Module] = {}
    for module in unwrapped(model).modules():
        for child in module.children():
            inside.setdefault(child, module)
    if not isinstance(product, ParameterLinear):
        around = inside.get(product)
        return around if isinstance(around, nn.MultiheadAttention) else None
    owner: Any = product._loka_owner
    at: Optional[nn.Module] = owner
    while at is not None and not isinstance(at, nn.MultiheadAttention) and type(at).__module__.startswith("torch.nn.modules."):
        at = inside.get(at)
    return at


def put(site: str, product: nn.Linear, model: nn.Module) -> None:
    """From now on the products with its weight come to one that `is_read`."""
    caller = _caller(product, model)
    assert caller is not None, "there is none for `why_not`"
    if not isinstance(caller, Multiplies):
        caller.__class__ = _class_of(type(caller))
    if isinstance(product, ParameterLinear):
        owner = product._loka_owner
        if _READ not in owner.__dict__:
            owner.register_load_state_dict_post_hook(_after_loading)
        owner.__dict__[_READ] = {**owner.__dict__.get(_READ, {}), site: product}
    taken = product if isinstance(product, ParameterLinear) else _Projection(product)
    caller.__dict__[_PRODUCTS] = {**caller.__dict__.get(_PRODUCTS, {}), site: taken}
    read_attention()


def remove(model: nn.Module) -> None:
    """All modules of the model are what they were. Where FSDP made its own subclass of ours meanwhile, that class stays."""
    for module in unwrapped(model).modules():
        module.__dict__.pop(_PRODUCTS, None)
        if module.__dict__.pop(_READ, None) is not None:
            for number, hook in list(module._load_state_dict_post_hooks.items()):
                if hook is _after_loading:
                    del module._load_state_dict_post_hooks[number]
        cls = type(module)
        if issubclass(cls, Multiplies) and _CLASSES.get(cls._loka_multiplies) is cls:
            module.__class__ = cls._loka_multiplies


def linears(model: nn.Module) -> Iterator[Tuple[str, nn.Linear]]:
    """(site, module) of every nn.Linear of the model, and of the products with parameters that kernels of a plan run."""
    for name, module in unwrapped(model).named_modules(remove_duplicate=True):
        if isinstance(module, nn.Linear):
            yield clean(name), module
        products = module.__dict__.get(_PRODUCTS, {})
        yield from ((site, product) for site, product in products.items() if isinstance(product, ParameterLinear))


__all__ = ["ParameterLinear", "READ", "found", "is_projection", "is_read", "linears", "put", "remove", "why_not"]
