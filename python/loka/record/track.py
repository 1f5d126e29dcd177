"""Takes one row of values a recorded step; gives the series of them, on the device, growing as needed."""

import torch
from torch import Tensor


class Track:
    """`[steps, width]` FP32 on one device; a row that nothing was written to is NaN when read."""

    def __init__(self, width: int, device: torch.device) -> None:
        self._values = torch.full((64, width), -1.0, dtype=torch.float32, device=device)

    def row(self, index: int) -> Tensor:
        """The values of recorded step `index`, to write to. -1 means none yet: all series are of magnitudes."""
        if index >= len(self._values):
            more = torch.full((index + 1, self._values.shape[1]), -1.0, dtype=torch.float32, device=self._values.device)
            self._values = torch.cat([self._values, more])
        return self._values[index]

    def widen(self, width: int) -> None:
        """More columns, with nothing written to them so far."""
        steps, before = self._values.shape
        if width > before:
            more = torch.full((steps, width - before), -1.0, dtype=torch.float32, device=self._values.device)
            self._values = torch.cat([self._values, more], 1)

    def values(self, steps: int) -> Tensor:
        """`[steps, width]`, with NaN where nothing was seen."""
        self.row(max(steps - 1, 0))
        found = self._values[:steps]
        return torch.where(found < 0, torch.nan, found)


__all__ = ["Track"]
