"""Proves the worker on a GPU: every kernel that is available, in every direction, through CUDA IPC and through
files, against an FP64 reference; then timed. Needs PyTorch and an NVIDIA GPU; plays LoKA's side of the protocol.

    python3 python/tests/gpu_check.py [OUT.json]

Prints a line a check and last `N passed, N failed`. Exit 1 when one fails, 2 without a GPU.
"""

import ctypes
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile

PYTHON = pathlib.Path(__file__).resolve().parents[1]
sys.path.insert(0, str(PYTHON))

SHAPES = ((512, 256, 384), (2048, 2048, 1024))
ODD = (512, 200, 384)
OPTIONS = {"samples": 20, "l2_bytes": 60 * 2**20, "target_us": 200}
# Relative L2 of FP8 on random data is 0.04, of E5M2 gradients 0.06, of BF16 0.003.
LIMITS = {"pytorch/bf16": 0.006}
LIMIT = 0.08


class Link:
    """LoKA's side: one request, one reply."""

    def __init__(self):
        path = os.pathsep.join([str(PYTHON), os.environ.get("PYTHONPATH", "")]).rstrip(os.pathsep)
        self.process = subprocess.Popen(
            [sys.executable, "-m", "loka.worker"],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, env={**os.environ, "PYTHONPATH": path},
        )
        self.next_id = 0

    def ask(self, do, **request):
        self.next_id += 1
        self.process.stdin.write(json.dumps({"id": self.next_id, "do": do, **request}).encode() + b"\n")
        self.process.stdin.flush()
        line = self.process.stdout.readline()
        if not line:
            raise SystemExit(f"the worker died ({self.process.wait()}) in {do} {request}")
        reply = json.loads(line)
        assert reply["id"] == self.next_id, reply
        return reply


class Allocation:
    """Device memory of this process that another one can open."""

    driver = None

    def __init__(self, torch, num_bytes):
        from loka.worker.memory import _IpcHandle, _Window

        torch.empty(1, device="cuda")
        Allocation.driver = Allocation.driver or ctypes.CDLL("libcuda.so.1")
        address, raw = ctypes.c_uint64(0), _IpcHandle()
        self.check(self.driver.cuMemAlloc_v2(ctypes.byref(address), ctypes.c_size_t(num_bytes)))
        self.check(self.driver.cuIpcGetMemHandle(ctypes.byref(raw), address))
        self.address, self.ipc = address, bytes(raw.reserved).hex()
        self.bytes = torch.as_tensor(_Window(address.value, num_bytes), device="cuda")

    @staticmethod
    def check(code):
        if code:
            raise RuntimeError(f"CUDA error {code}")

    def free(self):
        del self.bytes
        self.check(self.driver.cuMemFree_v2(self.address))


def reference(gemm, a, b):
    a, b = a.double(), b.double()
    return {"fprop": lambda: a @ b.t(), "dgrad": lambda: a @ b, "wgrad": lambda: a.t() @ b}[gemm]()


class Checks:
    def __init__(self, torch):
        self.torch = torch
        self.link = Link()
        self.passed = self.failed = 0
        self.record = []

    def tell(self, good, text):
        self.passed += good
        self.failed += not good
        print("ok  " if good else "FAIL", text, flush=True)

    def run(self, kernel, gemm, shape, place, folder):
        """One GEMM on poisoned memory, 256 bytes into each allocation; its error, or the reason."""
        from loka.worker.__main__ import stored_shapes

        torch = self.torch
        shape_a, shape_b, shape_out = stored_shapes(gemm, *shape)
        generator = torch.Generator(device="cuda").manual_seed(1)
        a, b = (torch.randn(s, device="cuda", generator=generator) + 0.1 for s in (shape_a, shape_b))
        poison = torch.full(shape_out, float("nan"), device="cuda", dtype=torch.bfloat16)
        tensors, kinds, held, handles = (a, b, poison), ("f32", "f32", "bf16"), [], []
        for index, (tensor, kind) in enumerate(zip(tensors, kinds)):
            raw = tensor.contiguous().view(torch.uint8).view(-1)
            handle = {"dtype": kind, "shape": list(tensor.shape)}
            if place == "ipc":
                held.append(Allocation(torch, raw.numel() + 256))
                held[-1].bytes[256:].copy_(raw)
                handle |= {"ipc": held[-1].ipc, "offset": 256, "bytes": raw.numel()}
            else:
                handle["file"] = str(pathlib.Path(folder) / f"{index}.bin")
                # torch.from_file keeps the size of a longer file that is there.
                pathlib.Path(handle["file"]).unlink(missing_ok=True)
                torch.from_file(handle["file"], shared=True, size=raw.numel(), dtype=torch.uint8).copy_(raw.cpu())
            handles.append(handle)
        torch.cuda.synchronize()
        m, k, n = shape
        reply = self.link.ask("run", kernel=kernel, gemm=gemm, m=m, k=k, n=n, a=handles[0], b=handles[1], out=handles[2])
        if place == "ipc":
            out = held[2].bytes[256:].clone().view(torch.bfloat16).view(shape_out)
        else:
            size = poison.numel() * 2
            out = torch.from_file(handles[2]["file"], size=size, dtype=torch.uint8).cuda().view(torch.bfloat16).view(shape_out)
        self.link.ask("release")
        for allocation in held:
            allocation.free()
        if not reply["ok"]:
            return None, reply["reason"]
        expected = reference(gemm, a, b)
        if reply["result"]["copied"] != (place == "file"):
            return None, f"copied is {reply['result']['copied']}"
        return float((out.double() - expected).norm() / expected.norm()), None

    def errors(self, kernel):
        with tempfile.TemporaryDirectory() as folder:
            for gemm in ("fprop", "dgrad", "wgrad"):
                for shape in SHAPES:
                    found = [self.run(kernel, gemm, shape, place, folder) for place in ("ipc", "file")]
                    (error, reason), (again, reason_again) = found
                    # Close, not equal: a GEMM that splits its reduction adds in any order.
                    good = None not in (error, again) and error < LIMITS.get(kernel, LIMIT) and abs(error - again) < 1e-3
                    self.tell(good, f"{kernel} {gemm} {shape}: rel L2 {error} {reason or reason_again or ''}")

    def times(self, kernel):
        for gemm in ("fprop", "dgrad", "wgrad"):
            m, k, n = SHAPES[-1]
            reply = self.link.ask("time", kernel=kernel, gemm=gemm, m=m, k=k, n=n, **OPTIONS)
            result = reply.get("result")
            good = reply["ok"] and all(us > 0 for us in result["latency_us"]) and len(result["latency_us"]) == OPTIONS["samples"]
            shown = reply.get("reason")
            if good:
                self.record.append({"kernel": kernel, "gemm": gemm, "m": m, "k": k, "n": n, **result})
                medians = {name: round(statistics.median(v), 2) for name, v in result.items() if isinstance(v, list) and v}
                shown = f"{medians} {result['note']}"
            self.tell(good, f"{kernel} {gemm} time: {shown}")


def main():
    try:
        import torch
    except ImportError:
        print("skipped: no PyTorch")
        sys.exit(2)
    if not torch.cuda.is_available():
        print("skipped: no CUDA device")
        sys.exit(2)
    checks = Checks(torch)
    hello = checks.link.ask("hello", protocol=1)["result"]
    print({key: value for key, value in hello.items() if key != "kernels"}, flush=True)
    for kernel in hello["kernels"]:
        if not kernel["available"]:
            print("--  ", kernel["kernel"], kernel["reason"], flush=True)
            continue
        checks.errors(kernel["kernel"])
        checks.times(kernel["kernel"])
        if kernel["kernel"] != "pytorch/bf16":
            m, k, n = ODD
            reply = checks.link.ask("time", kernel=kernel["kernel"], gemm="fprop", m=m, k=k, n=n, **OPTIONS)
            checks.tell(not reply["ok"], f"{kernel['kernel']} refuses {ODD}: {reply.get('reason')}")
    if len(sys.argv) > 1:
        pathlib.Path(sys.argv[1]).write_text(json.dumps({"hello": hello, "times": checks.record}))
    checks.link.ask("shutdown")
    print(f"{checks.passed} passed, {checks.failed} failed")
    sys.exit(checks.failed > 0)


if __name__ == "__main__":
    main()
