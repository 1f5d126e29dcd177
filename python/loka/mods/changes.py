"""What `apply` did to a model, a row each; prints as a table."""

from dataclasses import dataclass, field
from typing import List, NamedTuple, Tuple

from ..tables import html_table


class Change(NamedTuple):
    """One module under one mod. `left_alone` is the reason why nothing was done, or nothing."""

    module: str
    mod: str
    before: str
    after: str
    left_alone: str = ""


@dataclass(repr=False)
class Changes:
    """Rows by mod, then in the model's order. `notes` say what of the model could not be read."""

    rows: List[Change] = field(default_factory=list)
    notes: List[str] = field(default_factory=list)

    @property
    def changed(self) -> List[Change]:
        """The rows that changed the model."""
        return [row for row in self.rows if not row.left_alone]

    def __str__(self) -> str:
        cells = [HEAD, *self._cells()]
        widths = [max(len(row[column]) for row in cells) for column in range(3)]
        lines = ["  ".join([*(text.ljust(width) for text, width in zip(row, widths)), row[3]]) for row in cells]
        return "\n".join([*lines, *self._said()])

    def __repr__(self) -> str:
        return f"Changes({self._count()}; print it for the table)"

    def _repr_html_(self) -> str:
        return html_table("mods", HEAD, self._cells(), self._said())

    def _cells(self) -> List[Tuple[str, str, str, str]]:
        return [
            (row.module, row.mod, row.before, f"left alone: {row.left_alone}" if row.left_alone else row.after)
            for row in self.rows
        ]

    def _said(self) -> List[str]:
        trained = ["Mods change the model: it must be trained with them."] if self.changed else []
        return [self._count(), *(f"note: {note}" for note in self.notes), *trained]

    def _count(self) -> str:
        return f"{len(self.changed)} changed, {len(self.rows) - len(self.changed)} left alone"


HEAD = ("module", "mod", "before", "after")


__all__ = ["Change", "Changes"]
