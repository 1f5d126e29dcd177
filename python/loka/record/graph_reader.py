"""Takes a model; gives what `loka.graph` reads of it, from its structure or, where that is not enough, from the first
forward that runs in eager mode anyway."""

import importlib
from typing import Any, List, Optional

import torch
from torch import nn

from loka.names import unwrapped


class GraphReader:
    """`facts`: a `loka.graph.GraphFacts`, or None where the model cannot be read at all."""

    def __init__(self, model: nn.Module) -> None:
        self._root = unwrapped(model)
        self._graph = _module()
        self._observation: Any = None
        self._hooks: List[Any] = []
        self.facts: Any = None
        if self._graph is not None:
            self.facts = self._graph.read(model)

    def watch(self) -> None:
        """Follows the next forward, if there is something that its structure does not tell."""
        if self.facts is not None and self.facts.unread and not self._hooks:
            self._hooks = [
                self._root.register_forward_pre_hook(self._before),
                # Also after a forward that raised: what follows it must not be watched.
                self._root.register_forward_hook(self._after, always_call=True),
            ]

    def unwatch(self) -> None:
        """Takes the hooks away."""
        for hook in self._hooks:
            hook.remove()
        self._hooks = []

    def _before(self, *_: Any) -> None:
        # A compiler that traces this forward would trace the observer too.
        if torch.compiler.is_compiling() or self._observation is not None:
            return
        try:
            # Begun and ended inside one call: modes that the caller enters in between would be ended instead.
            self._observation = self._graph.observe(self._root).start()
        except Exception as error:
            self.facts.notes.append(f"a forward could not be followed: {type(error).__name__}: {error}")
            self.unwatch()

    def _after(self, *_: Any) -> None:
        observation: Optional[Any] = self._observation
        if torch.compiler.is_compiling() or observation is None:
            return
        self._observation = None
        self.unwatch()
        observation.stop()
        if observation.done:
            self.facts = self.facts.filled(observation.facts())


def _module() -> Any:
    """The reader of model structure, where it is part of this installation."""
    try:
        return importlib.import_module("loka.graph")
    except ImportError:
        return None


__all__ = ["GraphReader"]
