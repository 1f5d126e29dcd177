"""`loka.open`: the workbench on a trace, results or a plan, in a window or for a browser."""

import atexit
import json
import os
import subprocess
import sys
from html import escape
from typing import List, Optional

from .binary import LokaError, find_binary
from .child import Path, end, one_line, scratch_file

STARTS_S = 0.6
"""A window that is refused is refused within that."""


class Workbench:
    """A workbench that runs. `link`: what to open in a browser, None where it is a window. It ends with `close()`, with
    this process, or, as a context manager, with its block."""

    def __init__(self, process: "subprocess.Popen[str]", link: Optional[str]) -> None:
        self._process = process
        self.link = link
        atexit.register(self.close)

    @property
    def is_open(self) -> bool:
        return self._process.poll() is None

    def close(self) -> None:
        atexit.unregister(self.close)
        if self.is_open:
            end(self._process)
        if self._process.stdout is not None:
            self._process.stdout.close()

    def __enter__(self) -> "Workbench":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        where = "in a window" if self.link is None else f"at {self.link}"
        return f"Workbench({where}{'' if self.is_open else ', closed'})"

    def _repr_html_(self) -> Optional[str]:
        if self.link is None or not self.is_open:
            return None
        link = escape(self.link, quote=True)
        return f'<a href="{link}" target="_blank" rel="noopener">Open the workbench</a>'


def open(*files: Path, window: Optional[bool] = None, listen: str = "127.0.0.1:0") -> Workbench:
    """Starts the workbench and goes on; print the result for its address.

    `files`: a trace, results or a plan. `window`: True for a window, False to serve browsers (one trace, or a folder);
    by default a window where there is a display and no notebook. `listen`: where to serve, by default a free port of
    this machine; others reach it only where they are let in (`loka serve --help`).

    Raises LokaError, with the program's one line, where it does not start."""
    in_window = _has_display() if window is None else window
    if not in_window and len(files) != 1:
        raise LokaError(f"a workbench for browsers serves one trace or one folder, {len(files)} were given")
    arguments = ["open", *files] if in_window else ["--json", "serve", *files, "--listen", listen]
    said = scratch_file(".stderr")
    with said.open("w", encoding="utf-8") as stderr:
        process = subprocess.Popen(
            [str(find_binary()), *(os.fspath(argument) for argument in arguments)], stdin=subprocess.DEVNULL, stderr=stderr,
            stdout=subprocess.DEVNULL if in_window else subprocess.PIPE, encoding="utf-8",
        )  # fmt: skip
    link = None
    try:
        if in_window:
            _wait(process)
        else:
            assert process.stdout is not None
            told = process.stdout.readline()
            link = json.loads(told)["link"] if told else None
            if link is None:
                process.wait(timeout=5)
    except BaseException:
        end(process)
        raise
    if process.poll() not in (None, 0):
        if process.stdout is not None:
            process.stdout.close()
        lines: List[str] = said.read_text(encoding="utf-8", errors="replace").splitlines()
        raise LokaError(one_line(lines, process.returncode))
    return Workbench(process, link)


def _wait(process: "subprocess.Popen[str]") -> None:
    try:
        process.wait(timeout=STARTS_S)
    except subprocess.TimeoutExpired:
        # It is still there: the window opened.
        pass


def _has_display() -> bool:
    if "ipykernel" in sys.modules:
        return False
    return sys.platform in ("darwin", "win32") or any(os.environ.get(name) for name in ("DISPLAY", "WAYLAND_DISPLAY"))


__all__ = ["Workbench", "open"]
