"""Takes optimizer steps; gives which of them are looked at (recorded, or checked), and says when one has ended."""

import weakref
from typing import Any, Callable, List, Optional, Protocol

from torch.optim import Optimizer

from .listeners import Handle, after_steps

FOREIGN_STEPS = 100
"""Steps of optimizers that hold none of the weights, and of no other, after which it is asked whether anybody ends a
step."""


class Active(Protocol):
    """What says whether the step at hand is recorded: the only thing compiled code looks at."""

    active: bool


class Steps:
    """Counts training steps. Step s, from 0, is recorded when `s % every == 0`, with all its micro-batches: then
    `switch.active`.

    A step ends with that of the first optimizer that `owns` says holds a recorded weight, or with `end()`, after
    which optimizers are not listened to. `ended(recorded)` is called after each; `unowned()` now and then where
    other optimizers step and none of these does."""

    def __init__(
        self, every: int, switch: Active, owns: Callable[[Optimizer], bool], ended: Callable[[bool], None],
        unowned: Callable[[], None] = lambda: None,
    ) -> None:
        self.every = every
        self.finished = 0
        self.recorded: List[int] = []
        self.switch = switch
        self._owns = owns
        self._ended = ended
        self._unowned = unowned
        self._foreign = 0
        self._resting = 0
        self._by_hand = False
        self._hook: Optional[Handle] = None
        self._owner: Optional["weakref.ref[Optimizer]"] = None
        self._others: "weakref.WeakSet[Optimizer]" = weakref.WeakSet()

    @property
    def index(self) -> int:
        """How many steps were recorded before this one: the place of this one in every series."""
        return len(self.recorded)

    def is_owner(self, optimizer: Optimizer) -> bool:
        """Whether its steps are those that are counted, as far as is known."""
        return self._owner is not None and self._owner() is optimizer

    def start(self) -> None:
        """Begins to listen."""
        # Of all optimizers: the one that trains this model may not exist yet.
        self._hook = after_steps(self._stepped)
        self._aim()

    def stop(self) -> None:
        """Nothing is recorded from here on."""
        if self._hook is not None:
            self._hook.remove()
            self._hook = None
        self._resting = 0
        self.switch.active = False

    def end(self) -> None:
        """The caller's own end of a step."""
        self._by_hand = True
        self._advance()

    def rest(self, steps: int) -> None:
        """The next `steps` are counted and `ended` is not called after them, as far as none of them is followed by one that is
        recorded."""
        self._resting = max(0, min(steps, -self.finished % self.every - 1))

    def again(self) -> None:
        """The step at hand is recorded too, whatever its number."""
        self._resting = 0
        self.switch.active = self._hook is not None

    def close_open(self, saw: bool) -> bool:
        """Ends the step at hand, as one that no optimizer will end. Whether it was one that recorded something, if it
        `saw` anything."""
        recorded = self.switch.active and saw
        if recorded:
            self.recorded.append(self.finished)
        self.switch.active = False
        return recorded

    def _stepped(self, optimizer: Optimizer, _args: Any, _kwargs: Any) -> None:
        if self._by_hand:
            return
        if self._resting and self._owner is not None and self._owner() is optimizer:
            # Nearly every step of a run: what it takes here is what an attached recorder costs.
            self._resting -= 1
            self.finished += 1
            return
        if self._counts(optimizer):
            self._advance()
        elif self._owner is None:
            self._foreign += 1
            if self._foreign % FOREIGN_STEPS == 0:
                self._unowned()

    def _counts(self, optimizer: Optimizer) -> bool:
        owner = None if self._owner is None else self._owner()
        if owner is not None:
            return owner is optimizer
        if optimizer in self._others:
            return False
        if self._owns(optimizer):
            self._owner = weakref.ref(optimizer)
            return True
        self._others.add(optimizer)
        return False

    def _advance(self) -> None:
        if self._resting:
            self._resting -= 1
            self.finished += 1
            return
        recorded = self.switch.active
        if recorded:
            self.recorded.append(self.finished)
        self.finished += 1
        self._aim()
        self._ended(recorded)

    def _aim(self) -> None:
        self.switch.active = self._hook is not None and self.finished % self.every == 0


__all__ = ["Active", "FOREIGN_STEPS", "Steps"]
