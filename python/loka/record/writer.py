"""Takes a job that makes a shard, and its path; gives the file, written whole or not at all, on a thread."""

import os
import pathlib
import stat
import threading
from typing import Callable, Dict, Optional, Tuple

from safetensors.torch import save_file
from torch import Tensor

Content = Tuple[Dict[str, Tensor], Dict[str, str]]
"""Tensors and metadata of a file."""


class Writer:
    """Writes one file at a time in the background. `failed` gets the text of what goes wrong, on the thread."""

    def __init__(self, failed: Callable[[str], None]) -> None:
        self._failed = failed
        self._thread: Optional[threading.Thread] = None

    def write(self, path: pathlib.Path, make: Callable[[], Content]) -> None:
        """Runs `make` and writes what it gives to `path`, after the file before is done."""
        # Waiting, rather than skipping this one, is the same decision on every rank.
        self.wait()
        # Not a daemon: an interpreter that exits finishes the file first.
        self._thread = threading.Thread(target=self._run, args=(path, make), name="loka-writer")
        self._thread.start()

    def wait(self) -> None:
        """Until nothing is being written."""
        if self._thread is not None:
            self._thread.join()
            self._thread = None

    def _run(self, path: pathlib.Path, make: Callable[[], Content]) -> None:
        try:
            tensors, metadata = make()
            replace(path, tensors, metadata)
        except Exception as error:  # A full disk, a bad statistic: training goes on whatever it is.
            self._failed(f"{type(error).__name__}: {error}: {path.name} was not saved")


def replace(path: pathlib.Path, tensors: Dict[str, Tensor], metadata: Dict[str, str]) -> None:
    """Writes a safetensors file so that whoever opens `path` finds the old one or the new one, whole."""
    path.parent.mkdir(parents=True, exist_ok=True)
    # Not the suffix of a trace: a folder of shards must not take it for one.
    partial = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        # safetensors makes its file readable by the owner alone; a trace is for the team, as far as umask has it.
        partial.touch()
        mode = stat.S_IMODE(partial.stat().st_mode)
        save_file(tensors, partial, metadata=metadata)
        partial.chmod(mode)
        _sync(partial)
        os.replace(partial, path)
        _sync(path.parent)
    except BaseException:
        partial.unlink(missing_ok=True)
        raise


def _sync(path: pathlib.Path) -> None:
    """To the disk: a rename can otherwise outlive the data it names."""
    if os.name == "nt" and path.is_dir():
        return
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


__all__ = ["Content", "Writer", "replace"]
