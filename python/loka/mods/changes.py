"""What `apply` did to a model, a row each; prints as a table."""

from dataclasses import dataclass, field
from typing import List, NamedTuple


class Change(NamedTuple):
    """One module under one mod. `left_alone` is the reason why nothing was done, or nothing."""

    module: str
    mod: str
    before: str
    after: str
    left_alone: str = ""


@dataclass
class Changes:
    """Rows by mod, then in the model's order. `notes` say what of the model could not be read."""

    rows: List[Change] = field(default_factory=list)
    notes: List[str] = field(default_factory=list)

    @property
    def changed(self) -> List[Change]:
        """The rows that changed the model."""
        return [row for row in self.rows if not row.left_alone]

    def __str__(self) -> str:
        cells = [("module", "mod", "before", "after")]
        for row in self.rows:
            after = f"left alone: {row.left_alone}" if row.left_alone else row.after
            cells.append((row.module, row.mod, row.before, after))
        widths = [max(len(row[column]) for row in cells) for column in range(3)]
        lines = ["  ".join([*(text.ljust(width) for text, width in zip(row, widths)), row[3]]) for row in cells]
        lines.append(f"{len(self.changed)} changed, {len(self.rows) - len(self.changed)} left alone")
        lines += [f"note: {note}" for note in self.notes]
        if self.changed:
            lines.append("Mods change the model: it must be trained with them.")
        return "\n".join(lines)


__all__ = ["Change", "Changes"]
