"""Takes rows of text, gives a table for a terminal, or in HTML for a notebook. Whatever a name says is text."""

from html import escape
from typing import Iterable, List, Sequence

MAX_ROWS = 500
"""A notebook keeps every output: of more rows the rest is counted."""


def text_table(rows: Sequence[Sequence[str]], numbers: Sequence[int] = ()) -> List[str]:
    """Lines in columns, the head the first of `rows`. `numbers`: the columns that stand to the right."""
    widths = [max(map(len, column)) for column in zip(*rows)]
    return [
        "  ".join(
            cell.rjust(width) if column in numbers else cell.ljust(width)
            for column, (cell, width) in enumerate(zip(row, widths))
        ).rstrip()
        for row in rows
    ]


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


__all__ = ["MAX_ROWS", "html_table", "text_table"]
