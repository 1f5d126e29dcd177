"""Makes the golden tables of this folder from PyTorch's and ml_dtypes' casts.

Takes nothing but an optional folder to write to (this one by default); gives the .bin and .csv files that
README.md lays out. Every cast is done twice, by PyTorch and by ml_dtypes, and the script stops where the two
disagree, save for what `compare_unclamped` prints. Nothing here shares code with LoKA's Rust.

    python make_goldens.py [FOLDER]

Needs numpy, ml_dtypes (tests/requirements.txt) and PyTorch on the CPU; the tables are committed, so the
tests need none of them. Same output on every run: the seed is fixed.
"""

import csv
import sys
from pathlib import Path

import ml_dtypes
import numpy as np
import torch

F32 = np.ndarray
FORMATS = {
    "e4m3": (torch.float8_e4m3fn, ml_dtypes.float8_e4m3fn, np.float32(448.0)),
    "e5m2": (torch.float8_e5m2, ml_dtypes.float8_e5m2, np.float32(57344.0)),
}
STATIC_EXPONENTS = (-20, -4, 3)
SCALE_FLOOR = np.float32(1e-12)
BLOCK = 128


# --- casts -------------------------------------------------------------------------------------------


def cast_torch(x: F32, name: str) -> np.ndarray:
    """Codes of a saturating cast, as torchao does it: clamp to the largest value, then PyTorch's cast."""
    dtype, _, largest = FORMATS[name]
    clamped = torch.from_numpy(x).clamp(-float(largest), float(largest))
    return clamped.to(dtype).view(torch.uint8).numpy()


def cast_ml_dtypes(x: F32, name: str) -> np.ndarray:
    _, dtype, largest = FORMATS[name]
    return np.clip(x, -largest, largest).astype(dtype).view(np.uint8)


def saturating_cast(x: F32, name: str) -> np.ndarray:
    codes, other = cast_torch(x, name), cast_ml_dtypes(x, name)
    differ = np.flatnonzero((codes != other).ravel())
    # Both keep NaN; a NaN's sign and payload are the library's own business.
    real = [i for i in differ if not np.isnan(x.ravel()[i])]
    assert not real, f"{name}: PyTorch and ml_dtypes differ at {x.ravel()[real[:5]]}"
    if len(differ):
        print(f"{name}: {len(differ)} NaN inputs get another NaN code from ml_dtypes than from PyTorch")
    return codes


def decode(codes: np.ndarray, name: str) -> F32:
    by_torch = torch.from_numpy(codes.copy()).view(FORMATS[name][0]).float().numpy()
    by_ml_dtypes = codes.view(FORMATS[name][1]).astype(np.float32)
    assert np.array_equal(by_torch, by_ml_dtypes, equal_nan=True), name
    return by_torch


def to_bf16(x: F32) -> np.ndarray:
    codes = torch.from_numpy(x).to(torch.bfloat16).view(torch.int16).numpy().view(np.uint16)
    other = x.astype(ml_dtypes.bfloat16).view(np.uint16)
    assert np.array_equal(codes[~np.isnan(x)], other[~np.isnan(x)])
    return codes


def to_tf32(x: F32) -> F32:
    """Nearest even at 10 mantissa bits, by integer arithmetic; checked by scaled rounding in FP64."""
    bits = x.view(np.uint32).astype(np.int64)
    quotient, rest = bits >> 13, bits & 0x1FFF
    quotient += (rest > 0x1000) | ((rest == 0x1000) & (quotient & 1 == 1))
    out = np.where(np.isnan(x), bits, quotient << 13).astype(np.uint32).view(np.float32)

    finite = np.isfinite(x)
    wide = x[finite].astype(np.float64)
    exponent = np.maximum(np.frexp(wide)[1] - 1, -126)
    with np.errstate(over="ignore"):
        check = np.ldexp(np.rint(np.ldexp(wide, 10 - exponent)), exponent - 10).astype(np.float32)
    assert np.array_equal(out[finite].view(np.uint32), check.view(np.uint32))
    return out


# --- inputs of the cast tables -----------------------------------------------------------------------


def cast_inputs(rng: np.random.Generator) -> F32:
    """Where casts go wrong: grid values, midpoints and their neighbours, subnormals, overflow, specials."""
    parts: list[np.ndarray] = []
    for _, dtype, largest in FORMATS.values():
        grid = np.arange(256, dtype=np.uint8).view(dtype).astype(np.float64)
        grid = np.unique(grid[np.isfinite(grid)])
        beyond = np.array([1.0, 1.03125, 1.0625, 1.0703125, 1.125, 1.25, 1.5, 2.0, 1e3]) * float(largest)
        midpoints = ((grid[1:] + grid[:-1]) / 2).astype(np.float32)
        marks = np.concatenate([grid.astype(np.float32), midpoints, beyond.astype(np.float32)])
        up, down = np.nextafter(marks, np.float32(np.inf)), np.nextafter(marks, np.float32(-np.inf))
        parts += [marks, up, down]
    # BF16 and TF32: ties at every exponent (FP32's subnormals included), even and odd, one ulp around.
    for low, tie in ((16, 0x8000), (13, 0x1000)):
        exponents = np.repeat(np.arange(255, dtype=np.uint32) << 23, 6)
        kept = (rng.integers(0, 1 << 23, exponents.size, dtype=np.uint32) >> low) << low
        for near in (tie - 1, tie, tie + 1):
            parts.append((exponents | kept | near).view(np.float32))
    subnormal = rng.integers(1, 1 << 23, 500, dtype=np.uint32).view(np.float32)
    specials = np.array([0x0000_0000, 0x7F80_0000, 0x7FC0_0000, 0x7F7F_FFFF, 0x0000_0001, 0x007F_FFFF, 0x0080_0000,
                         0x7F80_0001, 0x7FBF_FFFF, 0x7FFF_FFFF], dtype=np.uint32).view(np.float32)
    near_range = np.exp2(rng.uniform(-20, 18, 9000)).astype(np.float32)
    everywhere = np.exp2(rng.uniform(-149, 127.9, 4000)).astype(np.float32)
    x = np.concatenate([*parts, subnormal, specials, near_range, everywhere]).view(np.uint32)
    return np.unique(np.concatenate([x & 0x7FFF_FFFF, x | 0x8000_0000])).view(np.float32)


def compare_unclamped(x: F32) -> None:
    """What each library does without the clamp: worth knowing, and no golden."""
    for name, (dtype, ml, largest) in FORMATS.items():
        with np.errstate(invalid="ignore", over="ignore"):
            a, b = torch.from_numpy(x).to(dtype).view(torch.uint8).numpy(), x.astype(ml).view(np.uint8)
        differ = a != b
        nan = np.isnan(x)
        print(f"{name} unclamped, torch {torch.__version__} against ml_dtypes {ml_dtypes.__version__}: "
              f"{(differ & ~nan).sum()} of {x.size} differ, {(differ & nan).sum()} of {nan.sum()} NaN")
        for value in (largest, largest * np.float32(1.0625), largest * np.float32(1.125), np.inf, np.nan):
            one = np.array([value], dtype=np.float32)
            with np.errstate(invalid="ignore", over="ignore"):
                codes = torch.from_numpy(one).to(dtype).view(torch.uint8).item(), one.astype(ml).view(np.uint8).item()
            print(f"    {value}: torch 0x{codes[0]:02X}, ml_dtypes 0x{codes[1]:02X}")


# --- scaling -----------------------------------------------------------------------------------------


def matrices(rng: np.random.Generator) -> dict[str, F32]:
    normal = rng.standard_normal((48, 256))
    heavy = rng.standard_t(2, (160, 256))
    ragged = rng.standard_normal((130, 200)) * np.exp(rng.normal(0, 3, (130, 1))) + 0.5
    ragged[7] = 0.0
    ragged[128:, 128:] = 0.0
    tiny = rng.standard_normal((32, 128)) * np.exp2(rng.uniform(-60, -25, (32, 1)))
    # Nearer to FP32's largest value, rounding up would make the dequantised value infinite.
    huge = np.clip(rng.standard_normal((32, 128)) * 1e38, -3e38, 3e38)
    huge[3] *= 1e-30
    huge[4, 0] = 3e38
    every = {"normal": normal, "heavy": heavy, "ragged": ragged, "tiny": tiny, "huge": huge}
    return {name: x.astype(np.float32) for name, x in every.items()}


def amax_of(x: F32, granularity: str) -> F32:
    """[number of scale rows, number of scale columns]; ragged blocks at the ends are short."""
    high, wide = {"tensor": x.shape, "row": (1, x.shape[1]), "1x128": (1, BLOCK), "128x128": (BLOCK, BLOCK)}[granularity]
    magnitude = np.abs(x)
    rows = np.maximum.reduceat(magnitude, np.arange(0, x.shape[0], high), axis=0)
    return np.maximum.reduceat(rows, np.arange(0, x.shape[1], wide), axis=1)


def scale_of(amax: F32, largest: np.float32, power_of_two: bool) -> F32:
    scale = np.maximum(amax / largest, SCALE_FLOOR)
    assert scale.dtype == np.float32
    by_torch = (torch.from_numpy(amax) / float(largest)).clamp(min=1e-12).numpy()
    assert np.array_equal(scale, by_torch)
    if not power_of_two:
        return scale
    mantissa, exponent = np.frexp(scale)
    up = np.ldexp(np.float32(1), np.where(mantissa == 0.5, exponent - 1, exponent)).astype(np.float32)
    # torchao: the multiplier largest / amax (FP64, then FP32) rounded down to a power of two.
    multiplier = (float(largest) / torch.from_numpy(amax).double().clamp(min=1e-12)).float()
    torchao = torch.exp2(torch.floor(torch.log2(multiplier))).numpy()
    floored = amax / largest <= SCALE_FLOOR
    differ = (up != 1 / torchao) & ~floored
    assert not differ.any(), f"torchao's power of two differs for amax {amax[differ]}"
    return up


def spread(scales: F32, shape: tuple[int, int], granularity: str) -> F32:
    high, wide = {"tensor": shape, "row": (1, shape[1]), "1x128": (1, BLOCK), "128x128": (BLOCK, BLOCK)}[granularity]
    return np.repeat(np.repeat(scales, high, axis=0), wide, axis=1)[: shape[0], : shape[1]]


def write_scaling(folder: Path, rng: np.random.Generator) -> None:
    blob = bytearray()

    def put(array: np.ndarray) -> int:
        blob.extend(b"\0" * (-len(blob) % 4))
        start = len(blob)
        blob.extend(array.astype(array.dtype.newbyteorder("<")).tobytes())
        return start

    rows = []
    for matrix, x in matrices(rng).items():
        x_offset = put(x)
        for name, granularity in (*(("e4m3", g) for g in ("tensor", "row", "1x128", "128x128")), ("e5m2", "tensor")):
            for power_of_two in (False, True):
                scales = scale_of(amax_of(x, granularity), FORMATS[name][2], power_of_two)
                divided = x / spread(scales, x.shape, granularity)
                codes = saturating_cast(divided, name)
                back = decode(codes, name) * spread(scales, x.shape, granularity)
                assert np.isfinite(back).all(), (matrix, name, granularity)
                assert not power_of_two or np.abs(divided).max() <= FORMATS[name][2], "rounding the scale up never saturates"
                rows.append([matrix, *x.shape, name, granularity, int(power_of_two), x_offset,
                             put(scales), *scales.shape, put(codes)])
    (folder / "scaling.bin").write_bytes(blob)
    header = "matrix rows cols format granularity power_of_two x_offset scales_offset scales_rows scales_cols codes_offset"
    with (folder / "scaling.csv").open("w", newline="") as file:
        csv.writer(file, lineterminator="\n").writerows([header.split(), *rows])


def write_static(folder: Path, x: F32) -> None:
    """Every cast input by scales known beforehand: values beyond 448 * scale saturate, infinities too."""
    codes = []
    for exponent in STATIC_EXPONENTS:
        with np.errstate(over="ignore"):
            scaled = x * np.ldexp(np.float32(1), -exponent)
            assert np.array_equal(scaled, x / np.ldexp(np.float32(1), exponent), equal_nan=True)
        codes.append(saturating_cast(scaled, "e4m3"))
    (folder / "static_e4m3.u8.bin").write_bytes(np.concatenate(codes).tobytes())


# --- accumulation ------------------------------------------------------------------------------------


def binary_exponent(x: np.ndarray) -> np.ndarray:
    """e of x = m 2^e with 1 <= m < 2; far below everything for zeros."""
    return np.where(x == 0, -1000, np.frexp(x)[1] - 1)


def accumulate(a: F32, b: F32, add_every: int | None, promoted: bool = False) -> F32:
    """`fast` as an H200 sums: in each instruction 32 products and the accumulator are aligned to the largest exponent
    among them, each cut towards zero to a multiple of 2^-13 of it, and summed exactly. `promoted` as LoKA models the inside of 128:
    32 products summed exactly, the running sum cut to 14 significant bits."""
    total = np.zeros((a.shape[0], b.shape[0]), np.float32)
    register = np.zeros(total.shape)
    for start in range(0, a.shape[1], 32):
        products = a[:, None, start : start + 32].astype(np.float64) * b[None, :, start : start + 32].astype(np.float64)
        if promoted:
            register += products.sum(axis=2)
            last_bit = binary_exponent(register) - 13
            register = np.ldexp(np.trunc(np.ldexp(register, -last_bit)), last_bit)
        else:
            terms = np.concatenate([products, register[:, :, None]], axis=2)
            last_bit = binary_exponent(terms).max(axis=2, keepdims=True) - 13
            register = np.ldexp(np.trunc(np.ldexp(terms, -last_bit)), last_bit).sum(axis=2)
        assert np.array_equal(register, register.astype(np.float32)), "FP32 holds the accumulator"
        if add_every and (start + 32) % add_every == 0:
            total, register = total + register.astype(np.float32), np.zeros(total.shape)
    return total + register.astype(np.float32)


def write_accumulation(folder: Path, rng: np.random.Generator) -> None:
    """First operands small enough that 32 products sum exactly in FP32 in any order, for all three accumulations; then
    any codes of both FP8 formats, for the fast one."""
    rows, cols, depth = 7, 13, 1120
    grid = np.arange(-16, 17) / 8.0
    a = rng.choice(grid, (rows, depth)).astype(np.float32)
    b = rng.choice(grid, (cols, depth)).astype(np.float32)
    a[:4], b[:6] = np.abs(a[:4]), np.abs(b[:6])  # sums that grow, so that bits are lost
    for operand in (a, b):
        assert np.array_equal(decode(saturating_cast(operand, "e4m3"), "e4m3"), operand)
    fast, promoted = accumulate(a, b, None), accumulate(a, b, BLOCK, promoted=True)
    exact = (a.astype(np.float64) @ b.astype(np.float64).T).astype(np.float32)
    assert (fast != exact).any() and (promoted != fast).any()
    arrays = [a, b, exact, promoted, fast]
    for name in FORMATS:
        # Wide apart and near each other, every exponent of the format.
        a = rng.standard_normal((rows, depth)) * np.exp2(rng.integers(-20, 20, (rows, depth)) * rng.integers(0, 2, (rows, 1)))
        b = rng.standard_normal((cols, depth)) + rng.integers(0, 3, (cols, 1))
        a, b = decode(saturating_cast(a.astype(np.float32), name), name), decode(saturating_cast(b.astype(np.float32), "e4m3"), "e4m3")
        arrays += [a, b, accumulate(a, b, None)]
    (folder / "accumulation.bin").write_bytes(b"".join(m.astype("<f4").tobytes() for m in arrays))


def main() -> None:
    folder = Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).parent
    rng = np.random.default_rng(20261120)
    every_code = np.arange(256, dtype=np.uint8)
    x = cast_inputs(rng)
    compare_unclamped(x)
    for name in FORMATS:
        (folder / f"decode_{name}.f32.bin").write_bytes(decode(every_code, name).astype("<f4").tobytes())
        (folder / f"cast_{name}.u8.bin").write_bytes(saturating_cast(x, name).tobytes())
    (folder / "cast_inputs.f32.bin").write_bytes(x.astype("<f4").tobytes())
    (folder / "cast_bf16.u16.bin").write_bytes(to_bf16(x).astype("<u2").tobytes())
    (folder / "cast_tf32.f32.bin").write_bytes(to_tf32(x).astype("<f4").tobytes())
    write_static(folder, x)
    write_scaling(folder, rng)
    write_accumulation(folder, rng)
    print(f"{x.size} cast inputs")


if __name__ == "__main__":
    main()
