"""Takes one real forward in eager mode; gives its flow by following the tensors from call to call.

For models that cannot be traced without data. Modules are seen by hooks, functions by a TorchFunctionMode, tensors
are told apart by identity (weakly: nothing is kept alive). Numbers are not read.
"""

import contextlib
import functools
from dataclasses import fields, is_dataclass
from typing import Any, Callable, Dict, Iterator, List, Mapping, Optional, Sequence, Tuple

import torch
from torch import nn
from torch.overrides import TorchFunctionMode
from torch.utils.weak import WeakIdKeyDictionary

from loka import names

from .calls import OUTPUT, RESHAPE, SITE, Call, Flow, Op
from .facts import GraphFacts
from .ops import Look, of_function, of_module
from .tails import facts_of
from .trace import function_name, is_named_linear
from .tracer import inside, taken_whole
from .untouched import eager


class Observation:
    """One forward of `model`, from `start` to the end of it (or `stop`). `facts` gives what was seen.

    The forward must run as written: `start` makes PyTorch's compiler stand aside until `stop`.
    """

    def __init__(self, model: nn.Module):
        self.root = names.unwrapped(model)
        self.flow = Flow()
        self.done = False
        self._sites: Dict[nn.Module, str] = {module: site for site, module in names.linears(model)}
        self._values: WeakIdKeyDictionary = WeakIdKeyDictionary()
        self._stack = contextlib.ExitStack()
        self._hooks = contextlib.ExitStack()
        self._depth = 0
        self._inputs: List[Tuple[int, ...]] = []
        self._look = Look(self._num_values, lambda *_: None, self._parameter, self._width)

    def start(self) -> "Observation":
        """From here calls are followed."""
        self._stack.enter_context(eager())
        for name, module in self.root.named_modules():
            if taken_whole(module):
                module_name = names.clean(name)
                before = module.register_forward_pre_hook(self._before, with_kwargs=True)
                after = module.register_forward_hook(functools.partial(self._after, module_name), always_call=True)
                self._hooks.callback(before.remove)
                self._hooks.callback(after.remove)
        self._hooks.callback(self.root.register_forward_hook(self._ended).remove)
        self._stack.enter_context(_Watch(self))
        return self

    def pause(self) -> None:
        """Follows nothing any more, and leaves the hooks: for a hook of the model's own, after a forward that raised.
        PyTorch goes through the hooks as they are then, and one less would be an error in place of the user's."""
        self._stack.close()
        self.done = True

    def stop(self) -> None:
        """Takes away every hook. Twice is as good as once."""
        self._stack.close()
        self._hooks.close()

    def facts(self) -> GraphFacts:
        """What was seen; notes say what went wrong."""
        if not self.done:
            self.flow.note("the forward that was to be observed did not end")
        return facts_of(self.flow)

    def __enter__(self) -> "Observation":
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.stop()

    @classmethod
    def hooks(cls) -> Sequence[Callable[..., None]]:
        """What runs in a forward: not for compilers."""
        return cls._before, cls._after, cls._ended

    # Modules.

    def _before(self, module: nn.Module, args: Tuple[Any, ...], kwargs: Dict[str, Any]) -> None:
        if self._depth == 0 and not self.done:
            self._inputs.append(())
            with self._noted():
                self._inputs[-1] = self._reads((args, kwargs))
        self._depth += 1

    def _after(self, name: str, module: nn.Module, args: Tuple[Any, ...], output: Any) -> None:
        self._depth -= 1
        if self._depth == 0 and not self.done and self._inputs:
            reads = self._inputs.pop()
            with self._noted():
                self._module(module, name, reads, output)

    def _module(self, module: nn.Module, name: str, reads: Tuple[int, ...], output: Any) -> None:
        site = self._sites.get(inside(module), "")
        op = Op(SITE) if site else of_module(inside(module))
        self._append(op, reads, output, site=site, name="" if site else name)

    def _ended(self, module: nn.Module, args: Any, output: Any) -> None:
        if not self.done:
            self.done = True
            with self._noted():
                self.flow.calls.append(Call(Op(OUTPUT), self._reads(output), ()))

    # Functions.

    def function(self, function: Any, args: Sequence[Any], kwargs: Mapping[str, Any], reads: Any, output: Any) -> None:
        """One torch function or method, called outside of the modules that are followed whole."""
        if is_named_linear(function):
            return self._append(Op(SITE), reads, output, site=str(kwargs.get("name")))
        op = of_function(function_name(function), args, kwargs, self._look)
        if op.function == "linear":
            self.flow.note("a functional linear is not a site: loka.linear(..., name=...) makes it one")
        if op.kind == RESHAPE:
            op = Op(RESHAPE, features=output.shape[-1] if output.dim() else None, function=op.function)
            reads = reads[:1]
        self._append(op, reads, output)

    def _append(self, op: Op, reads: Tuple[int, ...], output: Any, site: str = "", name: str = "") -> None:
        values = []
        for tensor in _tensors(output):
            value = self.flow.new_value(tensor.shape[-1] if tensor.dim() else None)
            # In place: the same tensor, a new value.
            self._values[tensor] = value
            values.append(value)
        if values:
            self.flow.calls.append(Call(op, reads, tuple(values), site=site, name=name))

    def _reads(self, held: Any) -> Tuple[int, ...]:
        found = []
        for tensor in _tensors(held):
            if isinstance(tensor, nn.Parameter):
                continue
            if tensor not in self._values:
                self._values[tensor] = self.flow.new_value(tensor.shape[-1] if tensor.dim() else None)
            found.append(self._values[tensor])
        return tuple(dict.fromkeys(found))

    def _num_values(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> int:
        return len(self._reads((args, kwargs)))

    @staticmethod
    def _parameter(arg: Any) -> Optional[torch.Tensor]:
        return arg if isinstance(arg, nn.Parameter) else None

    @staticmethod
    def _width(arg: Any) -> Optional[int]:
        if isinstance(arg, (tuple, list)):
            return int(arg[0]) if len(arg) == 1 else None
        return arg if isinstance(arg, int) else None

    @contextlib.contextmanager
    def _noted(self) -> Iterator[None]:
        """A call that cannot be followed must not break the user's forward."""
        try:
            yield
        except Exception as error:
            self.flow.note(f"a call could not be followed: {type(error).__name__}: {error}")


class _Watch(TorchFunctionMode):
    """Tells an observation of every torch function that is called."""

    def __init__(self, observation: Observation):
        super().__init__()
        self.seen = observation

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        seen = self.seen
        if seen.done or seen._depth > 0:
            return func(*args, **kwargs)
        reads: Tuple[int, ...] = ()
        with seen._noted():
            reads = seen._reads((args, kwargs))
        output = func(*args, **kwargs)
        with seen._noted():
            seen.function(func, args, kwargs, reads, output)
        return output


def _tensors(held: Any) -> Iterator[torch.Tensor]:
    if isinstance(held, torch.Tensor):
        yield held
    elif isinstance(held, (list, tuple, set)):
        for item in held:
            yield from _tensors(item)
    elif isinstance(held, dict):
        for item in held.values():
            yield from _tensors(item)
    elif is_dataclass(held) and not isinstance(held, type):
        for item in fields(held):
            yield from _tensors(getattr(held, item.name))


__all__ = ["Observation"]
