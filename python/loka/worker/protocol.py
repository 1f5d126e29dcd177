"""Takes lines from LoKA, gives requests; takes replies, gives lines. Needs nothing but the standard library.

A request is `{"id": 7, "do": "run", ...}`, its reply `{"id": 7, "ok": true, "result": {...}}` or
`{"id": 7, "ok": false, "reason": "..."}`. With `"fatal": true` the worker ends after the reply: the GPU
no longer answers this process.
"""

import json
import os
import sys
from io import FileIO
from typing import Any, BinaryIO, Dict, Iterator, List, Tuple, Union

Request = Dict[str, Any]
"""A JSON object: a request, a reply or the result in one."""

Shape = Tuple[int, int, int]
"""m, k, n."""

VERSION = 2
"""Raised whenever a request or a reply changes its meaning."""

GEMMS = ("fprop", "dgrad", "wgrad")
MAX_REASON = 400


class BadRequest(Exception):
    """A request that no version of this worker understands."""


class Refused(Exception):
    """A library is missing, too old, or does not take a shape. Data for the user, not a failure."""


def one_line(text: object, limit: int = MAX_REASON) -> str:
    """The first line of `text` that says something, cut: libraries raise pages."""
    for line in str(text).splitlines():
        line = " ".join(line.split())
        if line:
            return line if len(line) <= limit else line[: limit - 1] + "…"
    return ""


def reason_of(error: BaseException) -> str:
    """One line that says what happened. An exception without a text gives its type."""
    text = one_line(error)
    if isinstance(error, (Refused, BadRequest)):
        return text
    name = type(error).__name__
    return f"{name}: {text}" if text else name


def parse(line: Union[str, bytes]) -> Request:
    """Gives the request in a line, or raises BadRequest. Its `id` is an integer, its `do` a string."""
    try:
        request = json.loads(line)
    except (ValueError, UnicodeDecodeError) as error:
        raise BadRequest(f"not JSON: {one_line(error)}") from None
    if not isinstance(request, dict):
        raise BadRequest("a request is a JSON object")
    identity = request.get("id")
    if not isinstance(identity, int) or isinstance(identity, bool):
        raise BadRequest("a request has an integer id")
    if not isinstance(request.get("do"), str):
        raise BadRequest("a request says what to do")
    return request


def text_of(request: Request, key: str) -> str:
    value = request.get(key)
    if not isinstance(value, str) or not value:
        raise BadRequest(f"'{key}' must be a text")
    return value


def size_of(request: Request, key: str) -> int:
    value = request.get(key)
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        raise BadRequest(f"'{key}' must be a whole number from 1")
    return value


def gemm_of(request: Request) -> str:
    gemm = text_of(request, "gemm")
    if gemm not in GEMMS:
        raise BadRequest(f"unknown GEMM '{gemm}' ({', '.join(GEMMS)})")
    return gemm


def triples_of(request: Request) -> List[List[str]]:
    """[[fprop, dgrad, wgrad], ...]: kernels by name."""
    triples = request.get("triples")
    if not isinstance(triples, list) or not triples:
        raise BadRequest("'triples' must be a list of three kernels each")
    for triple in triples:
        if not isinstance(triple, list) or len(triple) != 3 or not all(isinstance(name, str) and name for name in triple):
            raise BadRequest("'triples' must be a list of three kernels each")
    return triples


def reply(identity: int, result: Any) -> Request:
    return {"id": identity, "ok": True, "result": result}


def refusal(identity: int, reason: str, fatal: bool = False) -> Request:
    answer = {"id": identity, "ok": False, "reason": reason}
    if fatal:
        answer["fatal"] = True
    return answer


class Channel:
    """The two pipes to LoKA. After `take` nothing else in the process can write to the one or read from
    the other: a library that prints, in Python, in C or in a child process, prints to stderr."""

    def __init__(self, requests: BinaryIO, replies: FileIO) -> None:
        self.requests = requests
        self.replies = replies

    @classmethod
    def take(cls) -> "Channel":
        # os.dup gives descriptors that children do not inherit.
        replies = os.fdopen(os.dup(1), "wb", buffering=0)
        requests = os.fdopen(os.dup(0), "rb")
        sys.stdout.flush()
        os.dup2(2, 1)
        empty = os.open(os.devnull, os.O_RDONLY)
        os.dup2(empty, 0)
        os.close(empty)
        sys.stdout = os.fdopen(os.dup(2), "w", buffering=1, errors="backslashreplace")
        return cls(requests, replies)

    def __iter__(self) -> Iterator[bytes]:
        return iter(self.requests)

    def send(self, answer: Request) -> None:
        # allow_nan=False: NaN is no JSON, and the other side would call it rubbish.
        line = json.dumps(answer, allow_nan=False, ensure_ascii=True) + "\n"
        data = memoryview(line.encode("ascii"))
        while data:
            data = data[self.replies.write(data) :]
