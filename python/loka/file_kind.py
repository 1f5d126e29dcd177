"""Takes a file; gives what its beginning says that it is, so that whoever passes a checkpoint for a plan is told so."""

import os
from typing import Optional, Union

_HEAD_BYTES = 512

_KNOWN = (
    (b"PAR1", "a Parquet file"),
    (b"PK\x03\x04", "a ZIP archive, as PyTorch checkpoints are"),
    (b"\x80\x02", "a Python pickle, as old PyTorch checkpoints are"),
    (b"\x80\x04", "a Python pickle"),
    (b"\x80\x05", "a Python pickle"),
    (b"\x1f\x8b", "a gzip archive"),
    (b"\x28\xb5\x2f\xfd", "a Zstandard archive"),
    (b"\x89HDF", "an HDF5 file"),
    (b"\x93NUMPY", "a NumPy array"),
    (b"ARROW1", "an Arrow file"),
    (b"SQLite format 3\x00", "an SQLite database"),
    (b"\x7fELF", "a program"),
)
"""In the words of the program (core/src/model/file_magic.rs)."""


def kind_of(path: Union[str, "os.PathLike[str]"]) -> Optional[str]:
    """In words for "it is …"; None: nothing that is known. OSError where it cannot be read."""
    with open(path, "rb") as file:
        head = file.read(_HEAD_BYTES)
    if not head:
        return "empty"
    if head[8:9] == b"{" and 2 <= int.from_bytes(head[:8], "little") < 1 << 32:
        return "a LoKA trace" if b'"loka.trace"' in head else "a safetensors file without a trace"
    for magic, what in _KNOWN:
        if head.startswith(magic):
            return what
    try:
        text = head.decode("utf-8")
    except UnicodeDecodeError as error:
        if len(head) < _HEAD_BYTES or error.start < len(head) - 3:
            return None
        text = head[: error.start].decode("utf-8")
    if any(not character.isprintable() and character not in "\n\r\t\ufeff" for character in text):
        return None
    return "JSON" if text.lstrip("\ufeff \n\r\t").startswith(("{", "[")) else "a text file"


__all__ = ["kind_of"]
