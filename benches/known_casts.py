"""Takes nothing; times the cast by a scale that is known, in both layouts, against a copy of as many bytes, tile by tile.

    python3 benches/known_casts.py [--shapes 6144x2048,8192x3584] [--tiles 64x64x4,64x128x8] [--format e4m3]

`cold`: operands beyond the L2, as many as fit into 300 MB; `hot`: one operand again and again, as a gradient is that the
kernel before has just written. Medians of nine CUDA graphs. Each tile's codes are first compared bit for bit with PyTorch's.
Needs PyTorch with Triton and an NVIDIA GPU with FP8. The fastest tile is `_BOTH_KNOWN` in loka/kernels/triton_casts.py.
"""

import argparse
import pathlib
import statistics
import sys
from typing import Callable, List, Tuple

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "python"))

import torch
import triton

from loka.kernels import triton_casts, triton_kernels
from loka.kernels.delayed import codes

COLD_BYTES = 300_000_000
REPLAYS = 9
HOT_CALLS = 30
FORMATS = {"e4m3": torch.float8_e4m3fn, "e5m2": torch.float8_e5m2}
Tile = Tuple[int, ...]


def microseconds(calls: List[Callable[[], object]]) -> float:
    """Of one call among these, as one graph."""
    for call in calls:
        call()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for call in calls:
            call()
    graph.replay()
    times = []
    for _ in range(REPLAYS):
        begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        begin.record()
        graph.replay()
        end.record()
        torch.cuda.synchronize()
        times.append(begin.elapsed_time(end) * 1e3 / len(calls))
    return statistics.median(times)


class Operands:
    """As many operands of one shape as lie beyond the L2, with room for what is made of them."""

    def __init__(self, rows: int, cols: int, format: str) -> None:
        count = max(2, COLD_BYTES // (4 * rows * cols))
        self.rows, self.cols, self.format = rows, cols, format
        self.inverse = torch.tensor([4096.0], device="cuda")
        make = lambda dtype, *shape: [torch.empty(shape, device="cuda", dtype=dtype) for _ in range(count)]
        self.x = [torch.randn(rows, cols, device="cuda", dtype=torch.bfloat16) * 0.01 for _ in range(count)]
        self.copies = make(torch.bfloat16, rows, cols)
        self.straight, self.turned = make(FORMATS[format], rows, cols), make(FORMATS[format], cols, rows)
        self.maxima = make(torch.float32, triton.cdiv(rows, 16) * triton.cdiv(cols, 16))

    def copy(self, at: int) -> None:
        self.copies[at].copy_(self.x[at])

    def cast(self, at: int, tile: Tile) -> None:
        down, across, warps = tile
        nothing = [self.maxima[at], self.maxima[at], 0] * 2
        triton_kernels.cast_known_kernel[(triton.cdiv(self.rows, down) * triton.cdiv(self.cols, across),)](
            self.x[at], self.inverse, self.straight[at], self.turned[at], self.maxima[at], *nothing, self.rows, self.cols, self.rows,
            self.straight[at].stride(0), self.turned[at].stride(0), NOTED=0, STRAIGHT=True, TURNED=True, TILE_ROWS=down, TILE_COLS=across, num_warps=warps,
        )  # fmt: skip

    def check(self, tile: Tile) -> None:
        self.straight[0].view(torch.uint8).fill_(1)
        self.turned[0].view(torch.uint8).fill_(1)
        self.cast(0, tile)
        wanted = codes(self.x[0], self.inverse, self.format).float()
        if not (torch.equal(self.straight[0].float(), wanted) and torch.equal(self.turned[0].float(), wanted.t())):
            raise SystemExit(f"{self.rows}x{self.cols} by tiles of {tile}: other codes than PyTorch's")

    def cold(self, call: Callable[[int], None]) -> float:
        return microseconds([lambda at=at: call(at) for at in range(len(self.x))])

    def hot(self, call: Callable[[int], None]) -> float:
        return microseconds([lambda: call(0)] * HOT_CALLS)


def sizes(text: str) -> List[Tile]:
    return [tuple(int(part) for part in item.split("x")) for item in text.split(",")]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--shapes", type=sizes, default=sizes("6144x512,6144x1024,6144x2048,8192x3584,32768x2048"))
    parser.add_argument("--tiles", type=sizes, help="rows x columns x warps",
                        default=sizes("32x64x2,32x128x4,64x64x2,64x64x4,64x128x4,64x128x8,128x64x4,128x128x8"))  # fmt: skip
    parser.add_argument("--format", choices=list(FORMATS), default="e4m3")
    args = parser.parse_args()
    if not torch.cuda.is_available():
        raise SystemExit("no NVIDIA GPU")
    chosen = triton_casts._BOTH_KNOWN
    print(f"{torch.cuda.get_device_name()}, PyTorch {torch.__version__}, Triton {triton.__version__}, {args.format}")
    print("us: cold, share of a copy's speed; hot, share of a copy's speed. *: what LoKA takes")
    for rows, cols in args.shapes:
        operands = Operands(rows, cols, args.format)
        cold, hot = operands.cold(operands.copy), operands.hot(operands.copy)
        print(f"{rows} x {cols}: a copy takes {cold:.2f} and {hot:.2f}")
        for tile in args.tiles:
            operands.check(tile)
            call = lambda at, tile=tile: operands.cast(at, tile)
            of_cold, of_hot = operands.cold(call), operands.hot(call)
            name = "x".join(map(str, tile)) + (" *" if tile == chosen else "")
            print(f"  {name:12} {of_cold:7.2f} {cold / of_cold:5.2f}   {of_hot:7.2f} {hot / of_hot:5.2f}", flush=True)
        del operands


if __name__ == "__main__":
    main()
