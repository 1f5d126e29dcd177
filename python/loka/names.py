"""Takes a model; gives its linear layers by the names that traces and plans use.

A name is the module's full name in the model as its author wrote it: what wrappers add (`_orig_mod` of
torch.compile, `module` of DDP, ...) is taken out, so that a plan fits whatever the model is wrapped in.
"""

from typing import Iterator, Tuple

from torch import nn

from .catalogue import GEMMS

_WRAPPERS = ("_orig_mod", "_checkpoint_wrapped_module", "_fsdp_wrapped_module")


def clean(name: str) -> str:
    """The name without what wrappers added."""
    return ".".join(part for part in name.split(".") if part not in _WRAPPERS)


def unwrapped(model: nn.Module) -> nn.Module:
    """The model inside torch.compile's, DDP's and DataParallel's wrappers, which rename every module."""
    while True:
        if isinstance(model, (nn.parallel.DistributedDataParallel, nn.DataParallel)):
            model = model.module
        elif isinstance(inner := getattr(model, "_orig_mod", None), nn.Module):
            model = inner
        else:
            return model


def linears(model: nn.Module) -> Iterator[Tuple[str, nn.Linear]]:
    """(site, module) of every nn.Linear in the order of definition. A module that is used under two names is
    one site, by its first name."""
    for name, module in unwrapped(model).named_modules(remove_duplicate=True):
        if isinstance(module, nn.Linear):
            yield clean(name), module


def root_name(model: nn.Module) -> str:
    """What to call a model that was given no name: its class's."""
    return author_class(type(unwrapped(model))).__name__


def author_class(cls: type) -> type:
    """The class that its author wrote: FSDP2 puts one of its own, `FSDPDLRM`, in the place of `DLRM`."""
    made = any(base.__name__ == "FSDPModule" and base.__module__.startswith("torch.distributed") for base in cls.__bases__)
    return next((base for base in cls.__bases__ if base.__name__ != "FSDPModule"), cls) if made else cls


__all__ = ["GEMMS", "author_class", "clean", "linears", "root_name", "unwrapped"]
