"""Takes what wants to hear of optimizer steps; calls it before or after each step of any torch.optim optimizer.

A step within a backward, as of optimizers that step as soon as a gradient is there, is told of at the end of that backward: till then
others of the same backward are to come, and what it has saved may not change.

One hook of each kind for the whole process, however many listen. What they do must never be compiled into an optimizer's step:
there it is called through a wrapper of PyTorch's, which takes the host 4 us and more, and which eager steps go without.
"""

import itertools
from typing import Any, Callable, Dict, Tuple

import torch
from torch.optim import Optimizer
from torch.optim.optimizer import register_optimizer_step_post_hook, register_optimizer_step_pre_hook

Listener = Callable[[Optimizer, Any, Any], Any]
"""Of the optimizer, and of a step's arguments and keywords; before a step it may give others, `(args, kwargs)`."""


class Handle:
    """One that listens, until `remove`."""

    def __init__(self, side: "_Side", listener: Listener) -> None:
        self._side, self._number = side, side.add(listener)

    def remove(self) -> None:
        """Nothing is heard from here on. Again: nothing."""
        self._side.drop(self._number)


class _Side:
    """Those that listen before steps, or after."""

    def __init__(self, register: Callable[[Any], Any], is_after: bool) -> None:
        self._register = register
        self._is_after = is_after
        self._late: Dict[int, Tuple[Optimizer, Any, Any]] = {}
        self._backward = -1
        self._listeners: Dict[int, Listener] = {}
        # Not changed but replaced: who is told may stop to listen.
        self._told: Tuple[Listener, ...] = ()
        self._numbers = itertools.count()
        self._hook: Any = None
        self._tell_uncompiled: Listener = self._tell

    def __len__(self) -> int:
        return len(self._listeners)

    def add(self, listener: Listener) -> int:
        number = next(self._numbers)
        self._listeners[number] = listener
        self._told = tuple(self._listeners.values())
        if self._hook is None:
            # A count that changes would compile an optimizer's step again every time.
            self._tell_uncompiled = torch.compiler.disable(self._tell)  # pyright: ignore
            self._hook = self._register(self._hear)
        return number

    def drop(self, number: int) -> None:
        self._listeners.pop(number, None)
        self._told = tuple(self._listeners.values())
        if not self._listeners and self._hook is not None:
            self._hook.remove()
            self._hook = None

    def _hear(self, optimizer: Optimizer, args: Any, kwargs: Any) -> Any:
        if torch.compiler.is_dynamo_compiling():
            self._tell_uncompiled(optimizer, args, kwargs)
            return None
        if self._is_after and (backward := torch._C._current_graph_task_id()) >= 0:
            self._wait(backward, optimizer, args, kwargs)
            return None
        given = None
        for listener in self._told:
            given = listener(optimizer, *(given or (args, kwargs))) or given
        return given

    def _wait(self, backward: int, optimizer: Optimizer, args: Any, kwargs: Any) -> None:
        if backward != self._backward:
            # Of one that raised nothing is left.
            self._late, self._backward = {}, backward
            engine: Any = torch.autograd.Variable._execution_engine
            engine.queue_callback(self._backward_ended)
        self._late[id(optimizer)] = optimizer, args, kwargs

    def _backward_ended(self) -> None:
        late, self._late, self._backward = self._late, {}, -1
        for told in late.values():
            self._tell(*told)

    def _tell(self, optimizer: Optimizer, args: Any, kwargs: Any) -> None:
        for listener in self._told:
            listener(optimizer, args, kwargs)


_BEFORE, _AFTER = _Side(register_optimizer_step_pre_hook, False), _Side(register_optimizer_step_post_hook, True)


def listening() -> int:
    """How many listen."""
    return len(_BEFORE) + len(_AFTER)


def before_steps(listener: Listener) -> Handle:
    """Calls it before each step of every optimizer, in the order in which they began to listen."""
    return Handle(_BEFORE, listener)


def after_steps(listener: Listener) -> Handle:
    """Calls it after each step of every optimizer, in the order in which they began to listen."""
    return Handle(_AFTER, listener)


__all__ = ["Handle", "Listener", "after_steps", "before_steps", "listening"]
