"""Takes launches on a GPU that are the same every time; makes them, from the third time on as a replayed CUDA graph.

What runs beside every optimizer step (casts of weights, scales that move on) is a few launches of Triton's, which take the
host some 60 us each, and a replayed graph some 10. A host that is slower than its GPU loses by that what FP8 gains.
"""

from typing import Callable, Optional, Sequence

import torch

from ..capturing import is_capturing

_FIRST = 2
"""Calls before the capture: the first compiles, and what it loads must not be captured."""


class Replayed:
    """Launches on one device that allocate nothing and read and write the same addresses each time. They go to the
    current stream of the device, in order."""

    def __init__(self, launches: Sequence[Callable[[], None]], device: torch.device) -> None:
        self._launches, self._device = tuple(launches), device
        self._calls = 0
        self._graph: Optional[torch.cuda.CUDAGraph] = None

    def __call__(self) -> None:
        if self._device.type != "cuda" or is_capturing():
            # Into somebody's graph they go one by one.
            self._launch()
            return
        with torch.cuda.device(self._device):
            if self._graph is not None:
                self._graph.replay()
                return
            self._launch()
            self._calls += 1
            if self._calls == _FIRST:
                self._graph = _captured(self._launch)

    def _launch(self) -> None:
        for launch in self._launches:
            launch()


def _captured(launch: Callable[[], None]) -> Optional[torch.cuda.CUDAGraph]:
    """None where this process cannot capture: then they are launched as before."""
    # Not `torch.cuda.graph`: that waits for the device and gives back the memory that PyTorch keeps.
    graph, beside = torch.cuda.CUDAGraph(), torch.cuda.Stream()
    beside.wait_stream(torch.cuda.current_stream())
    try:
        with torch.cuda.stream(beside):
            # Other threads, such as those that load data, may do what a capture forbids.
            graph.capture_begin(capture_error_mode="thread_local")
            try:
                launch()
            finally:
                graph.capture_end()
    except RuntimeError:
        return None
    torch.cuda.current_stream().wait_stream(beside)
    return graph


__all__ = ["Replayed"]
