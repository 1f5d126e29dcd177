"""Takes training steps as they come; times them by turns with the plan and in BF16, and gives what a step takes in each.

On the GPU's clock, from the end of one step to the end of the next: with whatever the loop does in between, which is what
training pays. Each turn begins with an idle GPU, so that a host that ran ahead in one is not counted for the other.
"""

import statistics
from typing import Any, Callable, Dict, List, NamedTuple, Optional

import torch

ROUNDS, SKIPPED, TIMED = 3, 5, 15
"""Rounds of one turn each, steps of a turn that are not timed (in the first, BF16 is compiled), and those that are."""

STEPS = 2 * ROUNDS * (SKIPPED + TIMED)
"""What a trial takes."""


class Times(NamedTuple):
    """Median milliseconds of a step."""

    plan: float
    bf16: float

    def __str__(self) -> str:
        return f"{_ms(self.plan)} ms a step by the plan, {_ms(self.bf16)} in BF16"


class Trial:
    """Begins by the plan. `turn(True)` has the steps that follow run in BF16."""

    def __init__(self, turn: Callable[[bool], None], event: Callable[[], Any]) -> None:
        self._turn, self._event = turn, event
        self._steps = 0
        self._marks: List[Any] = []
        self._taken: Dict[bool, List[float]] = {False: [], True: []}

    @property
    def in_bf16(self) -> bool:
        return self._steps // (SKIPPED + TIMED) % 2 == 1

    def end_step(self) -> Optional[Times]:
        """A step has ended. The times, once all turns are over; the last turn is in BF16. Waits for the GPU at the end of
        a turn."""
        at = self._steps % (SKIPPED + TIMED) + 1
        if at >= SKIPPED:
            mark = self._event()
            mark.record()
            self._marks.append(mark)
        if at == SKIPPED + TIMED:
            self._marks[-1].synchronize()
            taken = [before.elapsed_time(after) for before, after in zip(self._marks, self._marks[1:])]
            self._taken[self.in_bf16] += taken
            self._marks = []
        was = self.in_bf16
        self._steps += 1
        if self._steps == STEPS:
            return Times(*(statistics.median(self._taken[in_bf16]) for in_bf16 in (False, True)))
        if self.in_bf16 != was:
            self._turn(self.in_bf16)
        return None


def timing_event() -> Any:
    return torch.cuda.Event(enable_timing=True)


def _ms(value: float) -> str:
    return f"{value:.3g}" if value < 100 else f"{value:.0f}"


__all__ = ["ROUNDS", "SKIPPED", "STEPS", "TIMED", "Times", "Trial", "timing_event"]
