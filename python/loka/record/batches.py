"""Takes the calls of sites as they run; gives how many examples each forward has, which gradients are scaled by.

A loss is a mean over the model's examples, not over the rows that a layer happens to see: a routed expert sees some of
them, an attention's projection several rows of each. So the number is that of an anchor, a site whose leading dimension
was the examples' in the forward that was followed, the head if there is one.
"""

from typing import Callable, Mapping, Optional, Set

from loka.record.coverage import Forward, Seen
from loka.record.site import SiteStats
from loka.record.taps import Batch


class Batches:
    """The forwards of one model. `heads()`: the sites that are known to be heads, `warn(key, text)` says a thing once."""

    def __init__(
        self, sites: Mapping[str, SiteStats], heads: Callable[[], Set[str]], warn: Callable[[str, str], None]
    ) -> None:
        self._sites = sites
        self._heads = heads
        self._warn = warn
        self._anchors: Optional[Set[str]] = None
        self._seen: Optional[Seen] = None
        self._batch = Batch()
        self._last = 0
        self.forward: Optional[Forward] = None

    def followed(self, seen: Seen) -> None:
        """The first forward has ended. What it tells is read later, once the graph is known too."""
        self._seen = seen
        for name, stats in self._sites.items():
            stats.calls_a_forward = max(seen.calls[name], 1)

    def called(self, stats: SiteStats, leading: int) -> Batch:
        """A call of a site, forward."""
        if self.forward is not None and self.forward.following:
            return self._batch
        anchors = self._settle()
        batch = self._batch
        if batch.calls.get(stats.name, 0) >= stats.calls_a_forward:
            batch = self._batch = Batch()
        batch.calls[stats.name] = batch.calls.get(stats.name, 0) + 1
        if stats.name in anchors:
            self._anchor(stats.name, batch, leading)
        return batch

    def examples(self, stats: SiteStats, leading: int, known: int) -> Optional[int]:
        """Of the forward that a call was part of, at its backward; `known` then, or 0. None: nothing tells."""
        anchors = self._settle()
        if not known and stats.name in anchors:
            # Compiled: its forward did not come by.
            self._anchor(stats.name, None, leading)
        return known or self._last or None

    def _anchor(self, name: str, batch: Optional[Batch], leading: int) -> None:
        if batch is not None and self._seen is None and batch.examples not in (0, leading):
            self._warn("heads", f"{name} has {leading} rows, another head {batch.examples}: gradients are scaled by the last")
        self._last = leading
        if batch is not None:
            batch.examples = leading

    def _settle(self) -> Set[str]:
        """The anchors, as far as is known by now."""
        seen = self._seen
        if seen is None:
            if self._anchors is None:
                self._anchors = self._heads() & set(self._sites)
            return self._anchors
        if self._anchors is not None and self._settled is seen:
            return self._anchors
        heads = self._heads()
        examples = seen.examples(heads) or 0
        anchors = [name for name, sizes in seen.leading.items() if sizes == {examples}]
        self._anchors = set(anchors) & heads or set(anchors[-1:])
        self._last = self._batch.examples = examples
        self._settled = seen
        return self._anchors

    _settled: Optional[Seen] = None


__all__ = ["Batches"]
