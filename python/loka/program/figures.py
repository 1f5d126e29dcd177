"""A figure of the report, by itself: shows in a notebook, saves as HTML."""

import os
import pathlib
from typing import Union


class Figure:
    """`html`: SVG with its legend and its own style, which reaches nothing around it; light or dark by the reader's
    system."""

    def __init__(self, name: str, html: str) -> None:
        self.name = name
        self.html = html

    def save(self, path: Union[str, "os.PathLike[str]"]) -> None:
        """Writes a page of its own."""
        head = f'<!DOCTYPE html><html lang="en"><meta charset="utf-8"><title>LoKA {self.name}</title>'
        pathlib.Path(path).write_text(f"{head}{self.html}</html>", encoding="utf-8")

    def __repr__(self) -> str:
        return f"Figure({self.name}, {len(self.html):,} characters of HTML; .save(path))"

    def _repr_html_(self) -> str:
        return self.html


__all__ = ["Figure"]
