"""Takes a module; gives the torch.fx graph of its forward, with what cannot be traced left as opaque modules.

Differs from torch.fx's own tracer: linears and what a tail knows are leaves, whatever class they are of; hooks and
wrappers (torch.compile, checkpointing, FSDP) are stepped over; a module whose forward cannot be traced becomes a
leaf and the rest is traced again; attributes that forward sets are let through (`untouched` takes them back).
"""

import inspect
from typing import Any, Dict, Optional, Tuple

import torch
from torch import fx, nn
from torch.utils import _pytree as pytree

from .ops import is_known
from .transformers import forward_of

_INSIDE = ("_orig_mod", "_checkpoint_wrapped_module", "_fsdp_wrapped_module")
MAX_OPAQUE = 64
"""Modules that are given up on before the whole is: each costs a trace."""


class Untraceable(Exception):
    """The module's own forward cannot be traced."""


def inside(module: nn.Module) -> nn.Module:
    """The module that a wrapper wraps."""
    while True:
        held = next((module._modules[name] for name in _INSIDE if module._modules.get(name) is not None), None)
        if held is None and isinstance(module, (nn.parallel.DistributedDataParallel, nn.DataParallel)):
            held = module.module
        if held is None:
            return module
        module = held


def contains_linear(module: nn.Module) -> bool:
    return any(isinstance(inner, nn.Linear) for inner in module.modules())


def taken_whole(module: nn.Module) -> bool:
    """True for a module that is one operation, and not the operations inside it."""
    if isinstance(module, (nn.Linear, nn.MultiheadAttention)) or is_known(module):
        return True
    if isinstance(module, (nn.Sequential, nn.ModuleList, nn.ModuleDict)):
        return False
    return type(module).__module__.startswith("torch.nn.modules.") and not contains_linear(module)


class SiteTracer(fx.Tracer):
    """One attempt. `called` holds the module of each call_module node; `failed` the innermost module that broke."""

    proxy_buffer_attributes = True

    def __init__(self, opaque: Dict[nn.Module, str]):
        super().__init__()
        self.opaque = opaque
        self.called: Dict[fx.Node, nn.Module] = {}
        self.failed: Optional[nn.Module] = None

    def is_leaf(self, module: nn.Module) -> bool:
        return module in self.opaque or taken_whole(module)

    def call_module(self, m: nn.Module, forward: Any, args: Tuple[Any, ...], kwargs: Dict[str, Any]) -> Any:
        m = inside(m)
        if self.is_leaf(m):
            proxy = self.create_proxy("call_module", type(m).__name__, args, kwargs)
            self.called[proxy.node] = m
            return proxy
        try:
            # Not through hooks: FSDP's would gather weights, a recorder's would see proxies.
            return forward_of(m)(*args, **kwargs)
        except Exception:
            self.failed = self.failed or m
            raise

    def create_arg(self, a: Any) -> Any:
        try:
            return super().create_arg(a)
        except NotImplementedError:
            # An object of the user's that holds tensors: what it holds is read, whatever it is.
            held = vars(a).values() if hasattr(a, "__dict__") else ()
            return tuple(value.node for value in held if isinstance(value, fx.Proxy))


def trace(
    root: nn.Module, example: Optional[Tuple[Any, ...]], opaque: Dict[nn.Module, str]
) -> Tuple[fx.Graph, SiteTracer]:
    """The graph of `root`'s forward. Adds to `opaque` what had to be given up on, with the reason, and raises
    `Untraceable` when that is `root` itself."""
    attributes_through = _AttributesThrough()
    for _ in range(MAX_OPAQUE):
        tracer = SiteTracer(opaque)
        try:
            with attributes_through:
                return tracer.trace(root, _concrete(root, example)), tracer
        except Exception as error:  # whatever a user's forward raises when it is given no data
            if tracer.failed is None or tracer.failed is root:
                raise Untraceable(_first_line(error)) from error
            opaque[tracer.failed] = _first_line(error)
    raise Untraceable(f"more than {MAX_OPAQUE} of its modules cannot be traced")


def _first_line(error: Exception) -> str:
    text = (str(error).strip().splitlines() or [""])[0]
    return f"{type(error).__name__}: {text}"[:160]


def _concrete(root: nn.Module, example: Optional[Tuple[Any, ...]]) -> Any:
    """Arguments that are no tensors, by name: the example's, else the defaults. A proxy in place of a `None` would
    take the wrong branch."""
    concrete: Dict[str, Any] = {}
    parameters = list(inspect.signature(root.forward).parameters.values())
    if example and all(p.kind in (p.VAR_POSITIONAL, p.VAR_KEYWORD) for p in parameters):
        return tuple(map(_placeholder, example))
    for index, parameter in enumerate(parameters):
        if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
            break
        if example is not None and index < len(example):
            value = example[index]
            if not isinstance(value, torch.Tensor):
                concrete[parameter.name] = pytree.tree_map(_placeholder, value)
        elif parameter.default is not parameter.empty:
            concrete[parameter.name] = parameter.default
    return concrete


def _placeholder(value: Any) -> Any:
    return fx.PH if isinstance(value, torch.Tensor) else value  # type: ignore[attr-defined]  # its documentation names it so


class _AttributesThrough:
    """Lets a forward set a buffer or parameter's name to a proxy (`self.steps += 1`), which nn.Module refuses."""

    def __enter__(self) -> None:
        self.original = original = nn.Module.__setattr__

        def set_attribute(module: nn.Module, name: str, value: Any) -> None:
            if isinstance(value, fx.Proxy):
                module.__dict__[name] = value
            else:
                original(module, name, value)

        nn.Module.__setattr__ = set_attribute  # type: ignore[method-assign, assignment]

    def __exit__(self, *_: object) -> None:
        nn.Module.__setattr__ = self.original  # type: ignore[method-assign]


__all__ = ["SiteTracer", "Untraceable", "contains_linear", "inside", "taken_whole", "trace"]
