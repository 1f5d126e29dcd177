"""Takes traces and results, gives DataFrames: Polars where it is installed, else pandas."""

import importlib
import importlib.util
import json
import os
from typing import TYPE_CHECKING, Any, Dict, List, Literal, Optional, overload

from ..file_kind import kind_of
from .binary import LokaError
from .child import Path, run

if TYPE_CHECKING:
    import pandas
    import polars

Library = Literal["polars", "pandas"]

DataFrame = Any
"""A Polars or a pandas DataFrame: which one is known when it runs. Name the library to have its type."""


@overload
def load_results(path: Path, library: Literal["polars"]) -> "polars.DataFrame": ...


@overload
def load_results(path: Path, library: Literal["pandas"]) -> "pandas.DataFrame": ...


@overload
def load_results(path: Path, library: None = None) -> DataFrame: ...


def load_results(path: Path, library: Optional[Library] = None) -> DataFrame:
    """A `*.results.parquet` as a DataFrame, one row for each site, GEMM, kernel and mods.

    Raises LokaError where it is another kind of file, ImportError, in a line, where neither Polars nor pandas (with pyarrow) is installed."""
    module = _library("load_results", library)
    kind = kind_of(path)
    if kind != "a Parquet file":
        raise LokaError(f"not a Parquet file{f': it is {kind}' if kind else ''}: {os.fspath(path)}")
    try:
        return module.read_parquet(os.fspath(path))
    except ImportError:
        raise ImportError(
            "pandas reads Parquet through pyarrow, which is not installed: pip install pyarrow, or polars"
        ) from None


@overload
def load_trace(path: Path, library: Literal["polars"]) -> "polars.DataFrame": ...


@overload
def load_trace(path: Path, library: Literal["pandas"]) -> "pandas.DataFrame": ...


@overload
def load_trace(path: Path, library: None = None) -> DataFrame: ...


def load_trace(path: Path, library: Optional[Library] = None) -> DataFrame:
    """What a trace (a file, or a folder of shards) holds, one row a site: its name and shape, what follows it, which
    statistics there are, and the `problem` of one that cannot be used, as `loka info` has them.

    Raises LokaError where it is no trace, ImportError where neither Polars nor pandas is installed."""
    module = _library("load_trace", library)
    lines = [json.loads(line) for line in run(["--json", "info", path]).stdout.splitlines()]
    rows = [_row(line) for line in lines if "site" in line]
    if module.__name__ == "polars":
        return module.DataFrame(rows, infer_schema_length=None)
    return module.DataFrame(rows)


def _row(told: Dict[str, Any]) -> Dict[str, Any]:
    """Of a site: plain values only, so that a column has one type."""
    about = dict(told["site"])
    row: Dict[str, Any] = {"site": about.pop("id", about.pop("name", None))}
    for key, value in (*about.items(), *told.get("coverage", {}).items()):
        row[key] = _plain(value)
    row["problem"] = told.get("problem")
    return row


def _plain(value: Any) -> Any:
    if isinstance(value, list):
        return ", ".join(str(item["op"]) if isinstance(item, dict) and "op" in item else str(item) for item in value)
    return json.dumps(value) if isinstance(value, dict) else value


def _library(caller: str, wanted: Optional[Library]) -> Any:
    names: List[str] = ["polars", "pandas"] if wanted is None else [wanted]
    for name in names:
        if importlib.util.find_spec(name) is not None:
            return importlib.import_module(name)
    which = " or ".join(names)
    raise ImportError(f"loka.{caller} gives a DataFrame, and {which} is not installed: pip install {names[0]}")


__all__ = ["DataFrame", "Library", "load_results", "load_trace"]
