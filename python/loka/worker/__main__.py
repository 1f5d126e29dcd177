"""The worker: reads requests until LoKA closes the pipe, answers each with one line.

    python3 -m loka.worker

Requests: hello, describe, run, time, compile, sites, release, shutdown. A request that fails is answered with the reason;
one after which the GPU no longer answers ends the worker, and LoKA starts another.
"""

import os
import sys
from typing import Any, List, Optional, Tuple

if sys.version_info < (3, 10):
    sys.exit("Python 3.10 or later is needed, this is %d.%d" % sys.version_info[:2])

from . import protocol
from .adapters import Adapter, Environment, adapters
from .memory import Handle, Memory
from .protocol import BadRequest, Refused, Request, Shape, reason_of

GPU_LOST = 3
"""Exit status after a CUDA error that stays."""


class Worker:
    """What lasts from one request to the next."""

    def __init__(self) -> None:
        self.environment: Optional[Environment] = None
        self.adapters: List[Adapter] = []
        self.memory: Optional[Memory] = None

    def answer(self, request: Request) -> Request:
        """Gives the result of one request, or raises."""
        handlers = {
            "hello": self.hello,
            "describe": self.describe,
            "run": self.run,
            "time": self.time,
            "compile": self.compile,
            "sites": self.sites,
            "release": self.release,
        }
        handler = handlers.get(request["do"])
        if handler is None:
            raise BadRequest(f"unknown request '{request['do']}'")
        return handler(request)

    def hello(self, request: Request) -> Request:
        wanted = request.get("protocol")
        if wanted == protocol.VERSION:
            # Loads PyTorch: only now, so that a mismatch is told at once.
            self._load(request.get("device"))
        environment = self.environment
        return {
            "protocol": protocol.VERSION,
            "python": sys.version.split()[0],
            "torch": environment and environment.torch_version,
            "cuda": environment and environment.cuda_version,
            "device": environment and environment.device_name,
            "kernels": [self._kernel(adapter, name) for adapter in self.adapters for name in adapter.kernels],
        }

    def describe(self, request: Request) -> Request:
        kernel, adapter = self._adapter(request)
        result = self._kernel(adapter, kernel)
        if result["available"] and "gemm" in request:
            gemm, shape = protocol.gemm_of(request), self._shape(request)
            result["reason"] = adapter.refuses(kernel, gemm, *shape)
        return result

    def run(self, request: Request) -> Request:
        kernel, adapter = self._usable(request)
        gemm, shape = protocol.gemm_of(request), self._shape(request)
        self._take(adapter.refuses(kernel, gemm, *shape))
        a, b, out = (Handle(request.get(name)) for name in ("a", "b", "out"))
        m, k, n = shape
        for name, handle, expected in zip(("a", "b", "out"), (a, b, out), stored_shapes(gemm, m, k, n)):
            if handle.shape != expected:
                raise BadRequest(f"{name} has shape {list(handle.shape)}, expected {list(expected)}")
        assert self.memory is not None, "a usable kernel has PyTorch"
        with self.memory.torch.no_grad():
            result = adapter.run(kernel, gemm, self.memory.tensor(a), self.memory.tensor(b))
            self.memory.put(out, result)
        return {"copied": a.is_copied or b.is_copied or out.is_copied}

    def time(self, request: Request) -> Request:
        from .timing import time_kernel

        kernel, adapter = self._usable(request)
        gemm, shape = protocol.gemm_of(request), self._shape(request)
        self._take(adapter.refuses(kernel, gemm, *shape))
        options = {name: protocol.size_of(request, name) for name in ("samples", "l2_bytes", "target_us")}
        return time_kernel(adapter.torch, adapter, self.adapters[0], kernel, gemm, shape, options)

    def compile(self, request: Request) -> Request:
        from .sites import compile_sites

        return compile_sites(*self._sites(request))

    def sites(self, request: Request) -> Request:
        from .sites import time_sites

        return time_sites(*self._sites(request))

    def _sites(self, request: Request) -> Tuple[Any, Request, bool]:
        """PyTorch, what is to be timed, and whether by emulation."""
        environment = self._load(None)
        torch, emulate = environment.torch, request.get("emulate") is True
        # Emulation is for tests of the protocol: no GPU is needed, and nothing it gives is a figure.
        self._take(environment.reason if torch is None or not emulate else None)
        triples = protocol.triples_of(request)
        sizes = {name: protocol.size_of(request, name) for name in ("m", "k", "n", "samples", "l2_bytes", "target_us")}
        return torch, {**sizes, "runtime": protocol.text_of(request, "runtime"), "triples": triples}, emulate

    def release(self, request: Request) -> Request:
        handles = request.get("ipc")
        if handles is not None:
            try:
                handles = [bytes.fromhex(handle) for handle in handles]
            except (TypeError, ValueError):
                raise BadRequest("'ipc' is a list of handles in hex") from None
        return {"released": 0 if self.memory is None else self.memory.release(handles)}

    def gpu_is_lost(self) -> bool:
        """True when CUDA answers every call with the same error: nothing more will run in this process."""
        environment = self.environment
        if environment is None or environment.reason is not None:
            return False
        try:
            environment.torch.cuda.synchronize()
        except Exception:
            return True
        return False

    def _load(self, device: Any) -> Environment:
        if self.environment is None:
            self.environment = Environment(device)
            self.adapters = adapters(self.environment)
            if self.environment.torch is not None:
                self.memory = Memory(self.environment.torch, on_gpu=self.environment.reason is None)
        return self.environment

    def _kernel(self, adapter: Adapter, name: str) -> Request:
        reason = adapter.why_not(name)
        remedy = None if reason is None else adapter.remedy_of(name)
        return {
            "kernel": name, "available": reason is None, "reason": reason, "remedy": remedy,
            "library_version": adapter.version(),
        }

    def _adapter(self, request: Request) -> Tuple[str, Adapter]:
        self._load(None)
        kernel = protocol.text_of(request, "kernel")
        for adapter in self.adapters:
            if kernel in adapter.kernels:
                return kernel, adapter
        raise BadRequest(f"unknown kernel '{kernel}'")

    def _usable(self, request: Request) -> Tuple[str, Adapter]:
        kernel, adapter = self._adapter(request)
        self._take(adapter.why_not(kernel))
        return kernel, adapter

    @staticmethod
    def _take(reason: Optional[str]) -> None:
        if reason is not None:
            raise Refused(reason)

    @staticmethod
    def _shape(request: Request) -> Shape:
        m, k, n = (protocol.size_of(request, name) for name in ("m", "k", "n"))
        return m, k, n


def stored_shapes(gemm: str, m: int, k: int, n: int) -> Tuple[Tuple[int, int], ...]:
    """(a, b, out) as the model stores them."""
    return {
        "fprop": ((m, k), (n, k), (m, n)),
        "dgrad": ((m, n), (n, k), (m, k)),
        "wgrad": ((m, n), (m, k), (n, k)),
    }[gemm]


def serve(channel: protocol.Channel, worker: Worker) -> int:
    """Answers until the pipe closes; gives the exit status."""
    for line in channel:
        identity = -1
        try:
            request = protocol.parse(line)
            identity = request["id"]
            if request["do"] == "shutdown":
                channel.send(protocol.reply(identity, {}))
                return 0
            channel.send(protocol.reply(identity, worker.answer(request)))
        except (Refused, BadRequest) as error:
            channel.send(protocol.refusal(identity, reason_of(error)))
        except Exception as error:
            lost = worker.gpu_is_lost()
            channel.send(protocol.refusal(identity, reason_of(error), fatal=lost))
            if lost:
                return GPU_LOST
    return 0


def main() -> None:
    channel = protocol.Channel.take()
    # Compiling in this process only: helpers of Inductor would outlive a worker that is killed.
    os.environ.setdefault("TORCHINDUCTOR_COMPILE_THREADS", "1")
    status = serve(channel, Worker())
    sys.stdout.flush()
    sys.stderr.flush()
    # Not sys.exit: libraries' exit handlers may hang on a lost GPU.
    os._exit(status)


if __name__ == "__main__":
    main()
