"""Takes a package's public names and the module that each is in; gives what loads them when they are first asked for
(PEP 562)."""

import importlib
from typing import Any, Callable, Dict, Mapping


def lazily(package: Dict[str, Any], home: Mapping[str, str]) -> Callable[[str], Any]:
    """The `__getattr__` of a package, of which `package` are the globals. `home`: a name's module, in full; the name may be
    that module's own."""

    def load(name: str) -> Any:
        module_name = home.get(name)
        if module_name is None:
            raise AttributeError(f"module '{package['__name__']}' has no attribute '{name}'")
        try:
            module = importlib.import_module(module_name)
        except ModuleNotFoundError as error:
            if error.name != "torch":
                raise
            raise ImportError(f"loka.{name} needs PyTorch: pip install 'loka[torch]', or your own build of it") from None
        is_module = module_name == f"{package['__name__']}.{name}"
        package[name] = value = module if is_module else getattr(module, name)
        return value

    return load


__all__ = ["lazily"]
