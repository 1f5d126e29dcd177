"""Finds the `loka` program, and says how to get it where it is not."""

import os
import pathlib
import shutil
import sysconfig
from typing import Iterator, Optional

_CHECKOUT = pathlib.Path(__file__).resolve().parents[3]
"""The folder that holds `python/`, where the package was not copied elsewhere by pip."""

HOW_TO_GET_IT = (
    "the loka program was not found: this package was installed without it. A wheel has it (scripts/build_wheel.sh in a "
    "checkout of LoKA); else cargo build --release --package loka there, then put it on PATH or name it in LOKA_BIN"
)


class LokaError(RuntimeError):
    """The program is not there, or refused what it was asked for: its one line, cause first, file last."""


def find_binary() -> pathlib.Path:
    """The program: `LOKA_BIN`, else the one that was installed with this package, else `loka` on PATH, else what cargo
    built of the checkout that this package is in (release before debug; in `CARGO_TARGET_DIR`, the checkout's `target`, or
    where `./run` builds).

    Raises LokaError, with what to do, where there is none."""
    named = os.environ.get("LOKA_BIN")
    if named:
        path = shutil.which(named)
        if path is None:
            raise LokaError(f"LOKA_BIN names no program: {named}")
        return pathlib.Path(path)
    found = _installed() or shutil.which("loka") or _built()
    if found is None:
        raise LokaError(HOW_TO_GET_IT)
    return pathlib.Path(found)


def _installed() -> Optional[str]:
    """Of this package's version, also where its environment is not activated."""
    if (_CHECKOUT / "Cargo.toml").is_file():
        return None
    folders = (sysconfig.get_path("scripts"), sysconfig.get_path("scripts", f"{os.name}_user"))
    return next((path for path in (shutil.which("loka", path=folder) for folder in folders) if path), None)


def _built() -> Optional[str]:
    names = [folder / kind for folder in _targets() for kind in ("release", "debug")]
    return next((path for path in (shutil.which("loka", path=str(name)) for name in names) if path), None)


def _targets() -> Iterator[pathlib.Path]:
    if not (_CHECKOUT / "Cargo.toml").is_file():
        return
    if "CARGO_TARGET_DIR" in os.environ:
        yield pathlib.Path(os.environ["CARGO_TARGET_DIR"])
    yield _CHECKOUT / "target"
    cache = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    # scripts/setup.sh: one target folder for all checkouts.
    yield pathlib.Path(cache) / "loka-target"


__all__ = ["HOW_TO_GET_IT", "LokaError", "find_binary"]
