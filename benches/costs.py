"""The GEMM kernels of LoKA's with what they are expected to cost, read from kernels/src: what `kernels/src/gemm/cost.rs`
computes, for scripts. Needs nothing but Python."""

import dataclasses
import functools
import math
import pathlib
import re

SOURCE = pathlib.Path(__file__).resolve().parent.parent / "kernels" / "src"
H200 = 132
"""Multiprocessors."""


@dataclasses.dataclass
class Told:
    """One line of TILINGS in gemm.rs or of STATIC_TILINGS in gemm/static_scale.rs."""

    entry: str
    rows: int
    columns: int
    stages: int
    splits: int
    x_bytes: int
    cost: list
    """Microseconds: stage, traffic, distinct, tile, launch."""

    @property
    def name(self) -> str:
        return self.entry if self.splits == 1 or "_split2_" in self.entry else f"{self.entry} by {self.splits}"

    def units(self, m: int, n: int) -> int:
        return -(-m // self.rows) * -(-n // self.columns) * self.splits

    def suits(self, m: int, n: int, k: int, multiprocessors: int = H200) -> bool:
        is_one_wave = self.splits > 1 or self.rows < 128
        unusable, least = (3 * max(0, self.splits - 2), self.splits) if self.x_bytes == 1 else (0, 2)
        return not is_one_wave or (self.units(m, n) + unusable <= multiprocessors and -(-k // 128) >= least)

    def wave(self, m: int, n: int, multiprocessors: int = H200) -> tuple:
        """Tiles that a whole wave has down and across."""
        down, across = -(-m // self.rows), -(-n // self.columns)
        tiles = min(self.units(m, n), multiprocessors) // self.splits
        high = min(down, max(1, round(math.sqrt(multiprocessors * self.columns / self.rows))))
        wide = min(across, max(1, -(-tiles // high)))
        return (min(down, -(-tiles // wide)) if wide == across else high), wide

    def expected(self, m: int, n: int, k: int, multiprocessors: int = H200) -> float:
        lines, store_us = map(constant, ("OF_LINES", "STORE_US"))
        stage_us, traffic_us, distinct_us, tile_us, launch_us = self.cost
        stages = -(-(-(-k // 128)) // self.splits)
        of_x = 1 + lines if self.x_bytes > 1 and k * self.x_bytes % 128 else 1
        x_kb, w_kb = 0.128 * self.rows * self.x_bytes * of_x, 0.128 * self.columns
        high, wide = self.wave(m, n, multiprocessors)
        distinct_mb = self.splits / 1e3 * (high * x_kb + wide * w_kb)
        waves, left = divmod(self.units(m, n), multiprocessors)

        def wave(tiles: int) -> float:
            waits = tiles / 1e3 * (x_kb + w_kb) * traffic_us + distinct_mb * distinct_us
            return stages * (stage_us + waits) + tile_us

        whole = waves * wave(multiprocessors) + (wave(left) if left else 0)
        return whole + 2e-6 * m * n * store_us + launch_us


@functools.cache
def gemms() -> list:
    """x and w in FP8."""
    pattern = r'tiling!\("(\w+)", \[(\d+), (\d+), (\d+)\], \[([^\]]*)\]\)'
    found = []
    for name, columns, stages, splits, cost in re.findall(pattern, (SOURCE / "gemm.rs").read_text()):
        for of_x in ("e4m3", "e5m2"):
            sizes = 128, int(columns), int(stages), int(splits)
            found.append(Told(f"sm90_{of_x}_gemm_{name}", *sizes, 1, [float(term) for term in cost.split(",")]))
    return found


@functools.cache
def static_gemms() -> list:
    """x in BF16, cast on its way in."""
    pattern = r'tiling\(\s*"(\w+)",\s*\[([\d, ]+)\],\s*\[([^\]]*)\],?\s*\)'
    text = (SOURCE / "gemm" / "static_scale.rs").read_text()
    return [Told(entry, *map(int, sizes.split(",")), 2, [float(term) for term in cost.split(",")])
            for entry, sizes, cost in re.findall(pattern, text)]  # fmt: skip


@functools.cache
def constant(name: str) -> float:
    return float(re.search(rf"const {name}: f64 = ([\d.]+);", (SOURCE / "gemm" / "cost.rs").read_text())[1])


def cast(m: int, k: int) -> float:
    """`cast_e4m3_static` of [m, k] in front of a GEMM."""
    return constant("LAUNCH_US") + 3e-6 * m * k * constant("TRAFFIC_US")


def geomean(values: list) -> float:
    return math.exp(sum(map(math.log, values)) / len(values))
