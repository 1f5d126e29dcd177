"""Takes rows of text, gives an HTML table for a notebook. Whatever a name says is text."""

from html import escape
from typing import Iterable, Sequence

MAX_ROWS = 500
"""A notebook keeps every output: of more rows the rest is counted."""


def html_table(
    caption: str, head: Sequence[str], rows: Sequence[Sequence[str]], notes: Iterable[str] = (), numbers: Sequence[int] = ()
) -> str:
    """`numbers`: the columns that stand to the right."""
    sides = ["right" if column in numbers else "left" for column in range(len(head))]

    def line(tag: str, cells: Sequence[str]) -> str:
        made = (f'<{tag} style="text-align:{side}">{escape(cell)}</{tag}>' for side, cell in zip(sides, cells))
        return f"<tr>{''.join(made)}</tr>"

    body = "".join(line("td", row) for row in rows[:MAX_ROWS])
    if len(rows) > MAX_ROWS:
        body += f'<tr><td colspan="{len(head)}">and {len(rows) - MAX_ROWS:,} more</td></tr>'
    said = "".join(f"<div>{escape(note)}</div>" for note in notes)
    return (
        f'<table><caption style="text-align:left">{escape(caption)}</caption>'
        f"<thead>{line('th', head)}</thead><tbody>{body}</tbody></table>{said}"
    )


__all__ = ["MAX_ROWS", "html_table"]
