"""Takes a model; gives what `loka.graph` reads of it, from its structure or, where that is not enough, from the first
forward that runs in eager mode anyway."""

from typing import Any, List, Optional

import torch
from torch import nn

from loka import graph
from loka.names import unwrapped
from loka.record.coverage import Hook
from loka.record.raised import Raised


class GraphReader:
    """`facts`: a `loka.graph.GraphFacts`."""

    def __init__(self, model: nn.Module) -> None:
        self._root = unwrapped(model)
        self._observation: Any = None
        self._stale: Any = None
        """An observation of a forward that raised, whose hooks are still there."""
        self._raised = Raised()
        self._hooks: List[Any] = []
        self.facts: Any = graph.read(model)

    def watch(self) -> None:
        """Follows the next forward, if there is something that its structure does not tell."""
        if self.facts.unread and not self._hooks:
            self._hooks = [
                self._root.register_forward_pre_hook(Hook(self._before)),
                # Also after a forward that raised: what follows it must not be watched.
                self._root.register_forward_hook(Hook(self._after), always_call=True),
            ]

    def unwatch(self) -> None:
        """Takes the hooks away."""
        self._clean()
        for hook in self._hooks:
            hook.remove()
        self._hooks = []

    def _clean(self) -> None:
        if self._stale is not None:
            self._stale.stop()
            self._stale = None

    def _before(self, *_: Any) -> None:
        # A compiler that traces this forward would trace the observer too.
        if torch.compiler.is_compiling() or self._observation is not None:
            return
        self._clean()
        self._raised.begin()
        try:
            # Begun and ended inside one call: modes that the caller enters in between would be ended instead.
            self._observation = graph.observe(self._root).start()
        except Exception as error:
            self.facts.notes.append(f"a forward could not be followed: {type(error).__name__}: {error}")
            self.unwatch()

    def _after(self, *_: Any) -> None:
        observation: Optional[Any] = self._observation
        if torch.compiler.is_compiling() or observation is None:
            return
        self._observation = None
        if self._raised:
            # The next one is followed.
            observation.pause()
            self._stale = observation
            return
        self.unwatch()
        observation.stop()
        if observation.done:
            self.facts = self.facts.filled(observation.facts())


__all__ = ["GraphReader"]
