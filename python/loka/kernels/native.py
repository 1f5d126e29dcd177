"""Takes tensors on a GPU; runs LoKA's own kernels on them through libloka, the C library of `capi/loka.h`.

No build but Rust's: `cargo build --release -p loka_capi` makes libloka.so. It is looked for in LOKA_LIBRARY, beside this
package, and where cargo puts it. Kernels are compiled by NVRTC when first used, once a machine. Every call launches on
PyTorch's current stream and returns; after a first call of its kind it may be captured in a CUDA graph.
"""

import ctypes
import functools
import os
import pathlib
import struct
import sys
import threading
from typing import Any, Callable, Dict, Iterator, List, Optional, Tuple

import torch
from torch import Tensor

ABI_VERSION = 3
"""Of the library that this file is written for."""

BUILD = "cargo build --release -p loka_capi builds it; LOKA_LIBRARY names it elsewhere"

FAST, X_E5M2, X_ROW_SCALES, W_ROW_SCALES, X_E4M3 = 1, 2, 4, 8, 16
POWER_OF_TWO, AS_E5M2 = 1, 2


class NativeError(RuntimeError):
    """libloka is not there, or refused a call; the text says why."""


class Operand(ctypes.Structure):
    """`loka_operand`."""

    _fields_ = [(name, ctypes.c_void_p) for name in ("x", "codes", "scales", "codes_t", "scales_t", "partials")]
    _fields_ += [("partials_bytes", ctypes.c_uint64)]
    _fields_ += [(name, ctypes.c_uint32) for name in ("rows", "cols", "flags", "pitch", "pitch_t", "reserved")]


_I32, _U32, _U64, _AT = ctypes.c_int32, ctypes.c_uint32, ctypes.c_uint64, ctypes.c_void_p
_CAST = [_I32, ctypes.POINTER(Operand), _U32, _AT]
SIGNATURES = {
    "loka_open": [_I32, ctypes.c_char_p],
    "loka_partials_bytes": [_I32, _U32, _U32, ctypes.POINTER(_U64)],
    "loka_cast_rowwise": _CAST,
    "loka_cast_columnwise": _CAST,
    "loka_cast_tensorwise": _CAST,
    "loka_cast_static": [_I32, _AT, _AT, _AT, _AT, _U64, _AT],
    "loka_fp8_gemm": [_I32, *[_AT] * 5, *[_U32] * 6, _I32, _AT],
    "loka_fp8_static_gemm": [_I32, *[_AT] * 7, *[_U32] * 6, _I32, _AT],
    "loka_fp8_block": [_I32, *[_AT] * 10, *[_U32] * 6, _AT],
    "loka_block_norm_hard_swish": [_I32, *[_AT] * 4, _U32, _U32, _AT],
    "loka_block_backward": [_I32, *[_AT] * 5, _U32, _U32, _AT],
}
"""Arguments of each function; all give a number."""


def candidates() -> Iterator[pathlib.Path]:
    """Where libloka.so may be, the most wanted first."""
    named = os.environ.get("LOKA_LIBRARY")
    if named:
        # Whoever names one wants that one.
        yield pathlib.Path(named)
        return
    package = pathlib.Path(__file__).resolve().parents[1]
    yield package / "libloka.so"
    root = package.parents[1]
    if (root / "Cargo.toml").exists():
        named = os.environ.get("CARGO_TARGET_DIR")
        for target in (*([pathlib.Path(named)] if named else []), root / "target"):
            for profile in ("release", "debug"):
                yield target / profile / "libloka.so"


def _folders() -> str:
    """Where pip keeps NVIDIA's libraries for this Python, newest CUDA first: this process may run without a PATH that
    leads to it."""
    found: List[str] = []
    for folder in sys.path:
        packages = pathlib.Path(folder, "nvidia")
        if folder and packages.is_dir():
            found += sorted((str(path) for path in packages.glob("*/lib")), reverse=True)
    return ":".join(dict.fromkeys(found))


@functools.lru_cache(maxsize=None)
def library() -> ctypes.CDLL:
    """libloka, loaded. Raises NativeError where there is none, or one of another version."""
    tried = list(candidates())
    path = next((path for path in tried if path.exists()), None)
    if path is None:
        where = f": there is no {tried[0]}" if len(tried) == 1 else ""
        raise NativeError(f"libloka.so was not found{where} ({BUILD})")
    try:
        loaded = ctypes.CDLL(str(path))
        found = loaded.loka_version()
    except (OSError, AttributeError) as error:
        raise NativeError(f"{path} is no libloka: {error}") from None
    if found != ABI_VERSION:
        raise NativeError(f"{path} has ABI {found}, this loka calls {ABI_VERSION} ({BUILD})")
    for name, arguments in SIGNATURES.items():
        function = getattr(loaded, name)
        function.argtypes, function.restype = arguments, _I32
    loaded.loka_last_error.restype = ctypes.c_char_p
    if hasattr(loaded, REGISTER):
        getattr(loaded, REGISTER).argtypes = [ctypes.c_char_p] * 4
    return loaded


REGISTER = "loka_torch_register"


@functools.lru_cache(maxsize=None)
def registered(ns: str = "loka", key: str = "CUDA") -> Optional[str]:
    """Has PyTorch's dispatcher call libloka itself for the ops of that namespace, from now on: what Python does around a
    call takes the host longer than the call. Why that is not so, in words; then `native_ops` goes on doing it."""
    torch_folder = pathlib.Path(torch.__file__).parent / "lib"
    libraries = [torch_folder / f"libtorch_{part}.so" for part in ("cpu", "cuda")]
    there = [str(path) for path in libraries if path.exists()]
    loaded = library()
    if not there or not hasattr(loaded, REGISTER):
        return "this libloka registers no ops" if there else f"there is no {libraries[0]}"
    given = (":".join(there), ns, key, _folders())
    if getattr(loaded, REGISTER)(*(text.encode() for text in given)) != 0:
        return str(loaded.loka_last_error().decode(errors="replace"))
    return None


def _check(code: int) -> None:
    if code != 0:
        raise NativeError(library().loka_last_error().decode(errors="replace"))


_functions: Dict[int, Dict[str, Callable[..., int]]] = {}
"""Device -> the library's functions by name, once it is open: what a call looks up."""
_opening = threading.Lock()


def opened(device: int) -> Dict[str, Callable[..., int]]:
    """libloka's functions with that GPU open."""
    found = _functions.get(device)
    if found is None:
        with _opening:
            loaded = library()
            _check(loaded.loka_open(device, _folders().encode()))
            registered()
            found = _functions[device] = {name: getattr(loaded, name) for name in SIGNATURES}
    return found


def why_not(device: torch.device) -> Optional[str]:
    """Why LoKA's own kernels do not run on that GPU, in words; None when they do."""
    try:
        opened(torch.cuda.current_device() if device.index is None else device.index)
    except NativeError as error:
        return str(error)
    return None


def runs(x: Tensor) -> bool:
    """Whether the library is what runs on x's device."""
    return x.is_cuda


def with_rows(x: Tensor) -> Tensor:
    """A matrix as the copy engine reads it: rows without gaps in them, each from a multiple of 16 bytes on."""
    fits = x.stride(1) == 1 and x.stride(0) >= x.shape[1] and x.stride(0) * x.element_size() % 16 == 0
    return x if fits and x.data_ptr() % 16 == 0 else ready(x)


def pitch(x: Tensor) -> int:
    """From one of these rows to the next, in elements."""
    return max(x.stride(0), x.shape[1])


def ready(x: Tensor) -> Tensor:
    """Rows behind one another, from a multiple of 16 bytes."""
    if not x.is_contiguous():
        x = x.contiguous()
    return x if x.data_ptr() % 16 == 0 else x.clone()


device_of = Tensor.get_device
"""A GPU's number."""

stream_of: Callable[[int], int] = getattr(torch._C, "_cuda_getCurrentRawStream", lambda device: 0)
"""A GPU's number -> its current stream, as an address. A PyTorch without CUDA has none, and no tensor to ask for."""


def call(name: str, x: Tensor, *arguments: Any) -> None:
    """The function of that name on x's device and its current stream; tensors by their addresses."""
    device = device_of(x)
    functions = _functions.get(device) or opened(device)
    values = [value.data_ptr() if isinstance(value, Tensor) else value for value in arguments]
    code = functions[name](device, *values, stream_of(device))
    if code != 0:
        _check(code)


_PACKED = struct.Struct("@7Q6I")
"""The fields of `loka_operand`, in order."""


class _Scratch(threading.local):
    """A thread's own operand: the library has read it when a call returns."""

    def __init__(self) -> None:
        self.operand = Operand()
        self.pointer = ctypes.byref(self.operand)


_scratch = _Scratch()
_partials: Dict[Tuple[int, int, int], int] = {}
MAX_SHAPES = 4096
"""Shapes whose scratch size is kept."""


def _partials_bytes(device: int, rows: int, cols: int) -> int:
    found = _partials.get((device, rows, cols))
    if found is None:
        needed = _U64()
        _check(opened(device)["loka_partials_bytes"](device, rows, cols, ctypes.byref(needed)))
        if len(_partials) >= MAX_SHAPES:
            _partials.clear()
        found = _partials[device, rows, cols] = needed.value
    return found


def cast(
    kind: str, x: Tensor, codes: Optional[Tensor], scales: Optional[Tensor], codes_t: Optional[Tensor],
    scales_t: Optional[Tensor], flags: int,
) -> None:
    """BF16 x [rows, cols] by `loka_cast_<kind>`; outputs as `loka_operand` has them, codes in `spaced` rows or others."""
    device, (rows, cols) = device_of(x), x.shape
    functions = _functions.get(device) or opened(device)
    partials, needed = None, 0
    if kind != "rowwise":
        needed = _partials_bytes(device, rows, cols)
        # PyTorch's allocator keeps it for the next one, on this stream.
        partials = x.new_empty(needed, dtype=torch.uint8)
    at = [0 if part is None else part.data_ptr() for part in (codes, scales, codes_t, scales_t, partials)]
    scratch = _scratch
    pitches = [0 if part is None else pitch(part) for part in (codes, codes_t)]
    _PACKED.pack_into(scratch.operand, 0, x.data_ptr(), *at, needed, rows, cols, flags, *pitches, 0)
    code = functions[_CASTS[kind]](device, scratch.pointer, 1, stream_of(device))
    if code != 0:
        _check(code)


_CASTS = {kind: f"loka_cast_{kind}" for kind in ("rowwise", "columnwise", "tensorwise")}

__all__ = ["NativeError", "call", "candidates", "cast", "library", "opened", "pitch", "ready", "runs", "why_not", "with_rows"]
