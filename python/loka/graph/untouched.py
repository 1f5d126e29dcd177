"""Takes a model; gives a block of code in which its forward may run and after which nothing of it shows."""

import contextlib
import copy
import random
import sys
import warnings
from typing import Any, Dict, Iterator, List, Tuple

import torch
from torch import nn

_CONTAINERS = (list, dict, set)


@contextlib.contextmanager
def untouched(model: nn.Module, buffers: bool = False) -> Iterator[None]:
    """Attributes of every module (and what their lists, dicts and sets hold), with `buffers` the buffers' values
    too, gradients of autograd off, the weights that autocast keeps cast, and the random generators of PyTorch, Python and NumPy: all
    as before."""
    kept = [_attributes(module) for module in model.modules()]
    values = [(buffer, buffer.clone()) for buffer in model.buffers()] if buffers else []
    numpy = sys.modules.get("numpy")
    states = random.getstate(), numpy.random.get_state() if numpy else None
    devices = range(torch.cuda.device_count()) if torch.cuda.is_initialized() else []
    with torch.random.fork_rng(devices=devices), torch.no_grad(), _uncached(), eager(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            yield
        finally:
            for attributes in kept:
                _restore(*attributes)
            for buffer, value in values:
                buffer.copy_(value)
            random.setstate(states[0])
            if numpy:
                numpy.random.set_state(states[1])


@contextlib.contextmanager
def _uncached() -> Iterator[None]:
    """Autocast keeps no cast of a weight: one without values would be what the rest of the user's block computes with."""
    caches = torch.is_autocast_cache_enabled()
    torch.set_autocast_cache_enabled(False)
    try:
        yield
    finally:
        torch.set_autocast_cache_enabled(caches)


@contextlib.contextmanager
def eager() -> Iterator[None]:
    """What torch.compile compiled runs as it was written: a compiled region hides what happens in it."""
    # Importing the compiler takes seconds; where nobody did, nothing is compiled.
    if "torch._dynamo" not in sys.modules:
        yield
        return
    # The second is for a forward that is itself compiled: it refuses proxies, stance or not.
    with torch.compiler.set_stance("force_eager"), torch._dynamo.config.patch(error_on_nested_fx_trace=False):
        yield


def _attributes(module: nn.Module) -> Tuple[Dict[str, Any], Dict[str, Any], List[Tuple[Any, Any]]]:
    held = [(value, copy.copy(value)) for value in vars(module).values() if type(value) in _CONTAINERS]
    return vars(module), dict(vars(module)), held


def _restore(attributes: Dict[str, Any], before: Dict[str, Any], held: List[Tuple[Any, Any]]) -> None:
    # Only what differs is written: the dict of a module that was left alone is not touched at all.
    for name in [name for name in attributes if name not in before]:
        del attributes[name]
    for name, value in before.items():
        if attributes.get(name) is not value:
            attributes[name] = value
    for container, contents in held:
        if len(container) == len(contents) and _same(container, contents):
            continue
        container.clear()
        (container.extend if isinstance(container, list) else container.update)(contents)


def _same(container: Any, contents: Any) -> bool:
    if isinstance(container, dict):
        return all(key in container and container[key] is value for key, value in contents.items())
    if isinstance(container, set):
        return bool(container == contents)
    return all(one is other for one, other in zip(container, contents))


__all__ = ["eager", "untouched"]
