"""Takes handles, gives tensors; takes a result, puts it where the handle says.

A handle is `{"ipc": 128 hex digits, "offset", "bytes", "dtype", "shape"}`: memory of the LoKA process,
opened here and not copied. Where CUDA IPC is refused it is `{"file": path, "dtype", "shape"}`: raw values,
little endian, copied through the host.
"""

import ctypes
import math
from typing import Any, Dict, List, Optional

from .protocol import BadRequest, Refused, one_line

ITEM_BYTES = {"f32": 4, "bf16": 2, "f8e4m3": 1, "u8": 1}
LAZY_ENABLE_PEER_ACCESS = 1


class Handle:
    """One checked handle."""

    def __init__(self, raw: Any) -> None:
        if not isinstance(raw, dict):
            raise BadRequest("a handle is a JSON object")
        dtype = raw.get("dtype")
        if dtype not in ITEM_BYTES:
            raise BadRequest(f"unknown dtype '{dtype}' ({', '.join(ITEM_BYTES)})")
        self.dtype: str = dtype
        shape = raw.get("shape")
        whole = isinstance(shape, list) and all(isinstance(size, int) and size > 0 for size in shape)
        if not whole or not shape:
            raise BadRequest("a handle's shape is a list of whole numbers from 1")
        self.shape = tuple(shape)
        self.num_bytes = math.prod(shape) * ITEM_BYTES[self.dtype]
        self.path: Any = raw.get("file")
        self.ipc = b""
        self.offset = 0
        if self.path is not None:
            if not isinstance(self.path, str) or not self.path:
                raise BadRequest("a handle's file is a path")
            return
        try:
            self.ipc = bytes.fromhex(raw["ipc"])
        except (KeyError, TypeError, ValueError):
            raise BadRequest("a handle has 'ipc' in hex, or 'file'") from None
        if len(self.ipc) != 64:
            raise BadRequest(f"a CUDA IPC handle has 64 bytes, not {len(self.ipc)}")
        self.offset = raw.get("offset", 0)
        if not isinstance(self.offset, int) or self.offset < 0:
            raise BadRequest("a handle's offset is a whole number from 0")
        if raw.get("bytes") != self.num_bytes:
            found = raw.get("bytes")
            raise BadRequest(f"a handle of shape {shape} in {self.dtype} has {self.num_bytes} bytes, not {found}")

    @property
    def is_copied(self) -> bool:
        return self.path is not None


class _IpcHandle(ctypes.Structure):
    # c_ubyte, not c_char: ctypes would cut the bytes at the first zero.
    _fields_ = [("reserved", ctypes.c_ubyte * 64)]


class _Window:
    """Device memory of another process, as `torch.as_tensor` takes it without a copy."""

    def __init__(self, address: int, num_bytes: int) -> None:
        self.__cuda_array_interface__ = {
            "shape": (num_bytes,),
            "typestr": "|u1",
            "data": (address, False),
            "strides": None,
            "version": 3,
        }


class Memory:
    """Every allocation of the other process that is open here, each once."""

    def __init__(self, torch: Any, on_gpu: bool) -> None:
        self.torch = torch
        self.device = torch.device("cuda", torch.cuda.current_device()) if on_gpu else torch.device("cpu")
        self.open: Dict[bytes, int] = {}
        self.driver: Any = None

    def dtype(self, name: str) -> Any:
        torch = self.torch
        return {"f32": torch.float32, "bf16": torch.bfloat16, "f8e4m3": torch.float8_e4m3fn, "u8": torch.uint8}[name]

    def tensor(self, handle: Handle) -> Any:
        """The handle's tensor on the GPU: its memory itself, or a copy of its file."""
        flat = self._from_file(handle) if handle.is_copied else self._from_ipc(handle)
        return flat.view(self.dtype(handle.dtype)).view(handle.shape)

    def put(self, handle: Handle, result: Any) -> None:
        """Writes `result` where the handle says, as the handle's type, and waits until it is there."""
        if tuple(result.shape) != handle.shape:
            raise Refused(f"the library gave shape {list(result.shape)}, not {list(handle.shape)}")
        torch = self.torch
        if not handle.is_copied:
            self.tensor(handle).copy_(result)
            torch.cuda.synchronize()
            return
        values = result.to(self.dtype(handle.dtype)).contiguous().cpu().view(torch.uint8).view(-1)
        with open(handle.path, "wb") as file:
            file.truncate(handle.num_bytes)
        torch.from_file(handle.path, shared=True, size=handle.num_bytes, dtype=torch.uint8).copy_(values)

    def release(self, handles: Optional[List[bytes]] = None) -> int:
        """Closes these allocations (bytes), or all; gives how many. Their owner may free them only after."""
        chosen = list(self.open) if handles is None else [handle for handle in handles if handle in self.open]
        if chosen:
            self.torch.cuda.synchronize()
        for handle in chosen:
            address = self.open.pop(handle)
            self._check(self._driver().cuIpcCloseMemHandle(ctypes.c_uint64(address)), "cuIpcCloseMemHandle")
        return len(chosen)

    def _from_file(self, handle: Handle) -> Any:
        torch = self.torch
        try:
            with open(handle.path, "rb") as file:
                found = file.seek(0, 2)
        except OSError as error:
            raise Refused(f"{error.strerror}: {handle.path}") from None
        if found != handle.num_bytes:
            raise Refused(f"{found} bytes where {handle.num_bytes} were expected: {handle.path}")
        return torch.from_file(handle.path, shared=False, size=found, dtype=torch.uint8).to(self.device, copy=True)

    def _from_ipc(self, handle: Handle) -> Any:
        address = self.open.get(handle.ipc)
        if address is None:
            address = self._open(handle.ipc)
            self.open[handle.ipc] = address
        tensor = self.torch.as_tensor(_Window(address + handle.offset, handle.num_bytes), device=self.device)
        if tensor.data_ptr() != address + handle.offset:
            # A copy would be written to, and LoKA would read its own poison back.
            raise Refused(f"the memory is on another GPU than {self.device}")
        return tensor

    def _open(self, ipc: bytes) -> int:
        # PyTorch makes its context current in this thread on its first use of the GPU, and the driver
        # opens the handle in the current context.
        self.torch.empty(1, device=self.device)
        raw = _IpcHandle((ctypes.c_ubyte * 64)(*ipc))
        address = ctypes.c_uint64(0)
        call = self._driver().cuIpcOpenMemHandle_v2
        call.argtypes = [ctypes.POINTER(ctypes.c_uint64), _IpcHandle, ctypes.c_uint]
        self._check(call(ctypes.byref(address), raw, LAZY_ENABLE_PEER_ACCESS), "cuIpcOpenMemHandle")
        return address.value

    def _driver(self) -> Any:
        if self.driver is None:
            try:
                self.driver = ctypes.CDLL("libcuda.so.1")
            except OSError as error:
                raise Refused(f"no CUDA driver: {one_line(error)}") from None
        return self.driver

    def _check(self, code: int, call: str) -> None:
        if code != 0:
            name = ctypes.c_char_p()
            self._driver().cuGetErrorName(code, ctypes.byref(name))
            raise Refused(f"{call} failed: {(name.value or b'?').decode()} ({code})")
