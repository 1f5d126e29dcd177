"""Runs the `loka` program: takes its arguments, gives what it printed and noted, or raises its one line."""

import atexit
import functools
import json
import os
import pathlib
import signal
import subprocess
import sys
import tempfile
from typing import Callable, List, NamedTuple, Optional, Sequence, Union

from .binary import LokaError, find_binary

Path = Union[str, "os.PathLike[str]"]

OnProgress = Callable[[float, float], None]
"""Told the share that is done, 0 to 1, and the seconds so far."""

ERROR = "loka: "
WARNING = "warning: "


class Ended(NamedTuple):
    """What a run that went well said. `warnings`: without that word in front; `notes`: the other lines of stderr."""

    stdout: str
    warnings: List[str]
    notes: List[str]


def run(
    arguments: Sequence[Path], on_progress: Optional[OnProgress] = None, *, dies_with_parent: bool = False
) -> Ended:
    """Runs the program to its end. Whatever ends the wait, KeyboardInterrupt above all, ends the program too.
    `dies_with_parent`: even where this process is killed, as schedulers kill workers (Linux alone can do so).

    Raises LokaError with its line where it refuses or fails."""
    command = [str(find_binary()), *(os.fspath(argument) for argument in arguments)]
    stderr: List[str] = []
    # A file, not a pipe: only one of the two streams can be waited for.
    with tempfile.TemporaryFile("w+", encoding="utf-8") as stdout:
        child = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=stdout, stderr=subprocess.PIPE, encoding="utf-8", errors="replace",
            preexec_fn=_ask_for_end if dies_with_parent and sys.platform == "linux" else None,
        )  # fmt: skip
        try:
            assert child.stderr is not None
            for line in child.stderr:
                if not _took_progress(line, on_progress):
                    stderr.append(line.rstrip())
            code = child.wait()
        except BaseException:
            end(child)
            raise
        finally:
            if child.stderr is not None:
                child.stderr.close()
        if code != 0:
            raise LokaError(one_line(stderr, code))
        stdout.seek(0)
        warnings = [line[len(WARNING) :] for line in stderr if line.startswith(WARNING)]
        notes = [line for line in stderr if line and not line.startswith(WARNING)]
        return Ended(stdout.read(), warnings, notes)


def _ask_for_end() -> None:
    """In the child, before the program: the kernel ends it when the thread that started it ends."""
    import ctypes

    set_parent_death_signal = 1
    ctypes.CDLL(None).prctl(set_parent_death_signal, signal.SIGKILL)


def _took_progress(line: str, on_progress: Optional[OnProgress]) -> bool:
    if not line.startswith('{"progress"'):
        return False
    told = json.loads(line)
    if on_progress is not None:
        on_progress(float(told["progress"]), float(told["seconds"]))
    return True


def one_line(stderr: Sequence[str], code: int) -> str:
    """The program's own line of why it ended."""
    said = next((line[len(ERROR) :] for line in reversed(stderr) if line.startswith(ERROR)), None)
    # Bad use is told by the reader of its arguments: "error: ...", then the usage.
    said = said or next((line[len("error: ") :] for line in stderr if line.startswith("error: ")), None)
    if said is not None:
        return said
    how = f"was ended by signal {-code}" if code < 0 else f"ended with {code}"
    return f"the loka program {how}" + (f": {stderr[-1]}" if stderr else " and said nothing")


def end(child: "subprocess.Popen[str]") -> None:
    """Asks, then insists."""
    child.terminate()
    try:
        child.wait(timeout=5)
    except subprocess.TimeoutExpired:
        child.kill()
        child.wait()


@functools.lru_cache(maxsize=None)
def scratch() -> pathlib.Path:
    """A folder for what nobody named a file for; gone when the process ends."""
    folder = tempfile.TemporaryDirectory(prefix="loka-")
    atexit.register(folder.cleanup)
    return pathlib.Path(folder.name)


def scratch_file(end_of_name: str) -> pathlib.Path:
    """The path of a new file there."""
    handle, name = tempfile.mkstemp(suffix=end_of_name, dir=scratch())
    os.close(handle)
    return pathlib.Path(name)


__all__ = ["Ended", "OnProgress", "Path", "end", "one_line", "run", "scratch", "scratch_file"]
