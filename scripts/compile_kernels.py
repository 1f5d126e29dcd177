"""Compiles every kernel of kernels/cu for each architecture that its first line names, with NVRTC.

Takes kernels/cu/*.cu; gives a table of registers, spills and sizes, and with --out the cubins as
<entry>.<architecture>.cubin. Exit 1 on an error, a warning or a spill. Needs no GPU and no CUDA toolkit:

    python -m pip install -r tests/requirements.txt
    python scripts/compile_kernels.py --out DIR
"""

import argparse
import ctypes
import pathlib
import re
import sys
import sysconfig
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
SOURCES = ROOT / "kernels" / "cu"


def find_nvrtc() -> pathlib.Path:
    """libnvrtc of the PyPI package: nvidia/cu13/lib, or nvidia/cuda_nvrtc/lib in older ones."""
    site = pathlib.Path(sysconfig.get_paths()["purelib"])
    found = sorted(site.glob("nvidia/*/lib/libnvrtc.so.*"))
    if not found:
        sys.exit("no libnvrtc: python -m pip install -r tests/requirements.txt, or name it with --nvrtc")
    return found[-1]


class Nvrtc:
    """The few calls of libnvrtc that compiling takes."""

    def __init__(self, path: pathlib.Path) -> None:
        # NVRTC opens its builtins by bare name, and some versions do not look beside themselves: load them first,
        # so that the loader already knows the name.
        for builtins in path.parent.glob("libnvrtc-builtins.so.*"):
            ctypes.CDLL(str(builtins))
        self.library = ctypes.CDLL(str(path))
        self.library.nvrtcGetErrorString.restype = ctypes.c_char_p
        major, minor = ctypes.c_int(), ctypes.c_int()
        self.check(self.library.nvrtcVersion(ctypes.byref(major), ctypes.byref(minor)))
        self.version = f"{major.value}.{minor.value}"

    def check(self, status: int) -> None:
        if status != 0:
            raise RuntimeError(self.library.nvrtcGetErrorString(status).decode())

    def text(self, program: ctypes.c_void_p, what: str) -> bytes:
        """nvrtcGet<what>: the log or the cubin."""
        size = ctypes.c_size_t()
        self.check(getattr(self.library, f"nvrtcGet{what}Size")(program, ctypes.byref(size)))
        buffer = ctypes.create_string_buffer(size.value)
        self.check(getattr(self.library, f"nvrtcGet{what}")(program, buffer))
        return buffer.raw

    def compile(self, source: pathlib.Path, headers: dict[str, str], architecture: str) -> tuple[bytes | None, str]:
        """The cubin, or None on errors; and the log, which carries what ptxas says of the registers."""
        names = (ctypes.c_char_p * len(headers))(*(name.encode() for name in headers))
        texts = (ctypes.c_char_p * len(headers))(*(text.encode() for text in headers.values()))
        program = ctypes.c_void_p()
        self.check(self.library.nvrtcCreateProgram(
            ctypes.byref(program), source.read_bytes(), source.name.encode(), len(headers), texts, names))
        options = [f"--gpu-architecture={architecture}", "--std=c++17", "--ptxas-options=-v"]
        array = (ctypes.c_char_p * len(options))(*(option.encode() for option in options))
        status = self.library.nvrtcCompileProgram(program, len(options), array)
        log = self.text(program, "ProgramLog").rstrip(b"\0").decode()
        cubin = self.text(program, "CUBIN") if status == 0 else None
        self.library.nvrtcDestroyProgram(ctypes.byref(program))
        return cubin, log


def architectures(source: pathlib.Path) -> list[str]:
    first = source.read_text().splitlines()[0]
    if not first.startswith("// architectures: "):
        sys.exit(f"{source.relative_to(ROOT)}: the first line must read `// architectures: sm_..`")
    return first.removeprefix("// architectures: ").split()


def number(pattern: str, log: str) -> int:
    """Sum of what the pattern finds; a log without it is a changed compiler, not a zero."""
    found = re.findall(pattern, log)
    if not found:
        raise RuntimeError(f"nothing like {pattern!r} in the log:\n{log}")
    return sum(int(value) for value in found)


def compile_one(nvrtc: Nvrtc, source: pathlib.Path, headers: dict[str, str], architecture: str,
                out: pathlib.Path | None) -> bool:
    """Prints a line of the table; True if the kernel is fit to ship."""
    start = time.perf_counter()
    cubin, log = nvrtc.compile(source, headers, architecture)
    seconds = time.perf_counter() - start
    if cubin is None:
        print(f"{source.stem:<24} {architecture:<9} error\n{log}")
        return False
    registers = number(r"Used (\d+) registers", log)
    spills = number(r"(\d+) bytes spill stores", log) + number(r"(\d+) bytes spill loads", log)
    stack = number(r"(\d+) bytes stack frame", log)
    warned = "warning" in log.lower()
    print(f"{source.stem:<24} {architecture:<9} {registers:>9} {spills:>7} {stack:>6} {len(cubin):>8} {seconds:>8.2f}")
    if warned:
        print(log)
    if out is not None:
        (out / f"{source.stem}.{architecture}.cubin").write_bytes(cubin)
    return spills == 0 and not warned


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nvrtc", type=pathlib.Path, help="libnvrtc.so.*; else the one of this Python's packages")
    parser.add_argument("--out", type=pathlib.Path, help="folder for the cubins")
    arguments = parser.parse_args()
    if arguments.out is not None:
        arguments.out.mkdir(parents=True, exist_ok=True)
    nvrtc = Nvrtc(arguments.nvrtc or find_nvrtc())
    headers = {str(path.relative_to(SOURCES)): path.read_text() for path in sorted(SOURCES.glob("common/*.cuh"))}
    print(f"NVRTC {nvrtc.version}")
    print(f"{'kernel':<24} {'arch':<9} {'registers':>9} {'spills':>7} {'stack':>6} {'bytes':>8} {'seconds':>8}")
    fit = [compile_one(nvrtc, source, headers, architecture, arguments.out)
           for source in sorted(SOURCES.glob("*.cu")) for architecture in architectures(source)]
    if not fit:
        sys.exit(f"no kernels in {SOURCES}")
    print(f"{sum(fit)} of {len(fit)} fit")
    return 0 if all(fit) else 1


if __name__ == "__main__":
    sys.exit(main())
