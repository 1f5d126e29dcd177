"""Runs the compiled cast kernels on a GPU, compares them bit for bit with the rule computed here, then times them.

Takes a folder of cubins (scripts/compile_kernels.py --out) and tests/golden; gives JSON lines and a last line
`N passed, N failed`. Exit 1 when a check fails, 2 when there is no CUDA device. Needs an NVIDIA driver and
Python 3.9, nothing else: a GPU host often has no compiler and no numpy.

    python3 scripts/check_kernels_gpu.py CUBINS
    python3 scripts/check_kernels_gpu.py --host-only        # checks the rule against the goldens, without a GPU
"""

import argparse
import array
import bisect
import csv
import ctypes
import json
import math
import pathlib
import random
import struct
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
GOLDEN = ROOT / "tests" / "golden"
NAN_CODE = 0x7F
# Bytes around every output: a kernel that writes past its end changes them.
GUARD = 256
SCALE_FLOOR = struct.unpack("<f", struct.pack("<f", 1e-12))[0]


# ---- The rule, on the host ----------------------------------------------------------------------
# Written from the table of values rather than from bits, so that it shares no mistake with the kernels.

def f32(value: float) -> float:
    """Rounded to FP32. Of a quotient or product of two FP32 it is what FP32 arithmetic gives: a double has more
    than twice the digits, so rounding twice is harmless."""
    try:
        return struct.unpack("<f", struct.pack("<f", value))[0]
    except OverflowError:
        return math.copysign(math.inf, value)


def f32_bits(value: float) -> int:
    return struct.unpack("<I", struct.pack("<f", value))[0]


def f32_of_bits(bits: int) -> float:
    return struct.unpack("<f", struct.pack("<I", bits))[0]


def bf16_value(bits: int) -> float:
    return f32_of_bits(bits << 16)


def bf16_bits(value: float) -> int:
    """Nearest even; NaN keeps its sign."""
    bits = f32_bits(value)
    if math.isnan(value):
        return bits >> 16 | 0x40
    return (bits + 0x7FFF + (bits >> 16 & 1)) >> 16 & 0xFFFF


def e4m3_decode(code: int) -> float:
    exponent, mantissa = code >> 3, code & 7
    return mantissa * 2.0**-9 if exponent == 0 else (8 + mantissa) * 2.0 ** (exponent - 10)


VALUES = [e4m3_decode(code) for code in range(0x7F)]
MIDPOINTS = [(low + high) / 2 for low, high in zip(VALUES, VALUES[1:])]


def e4m3_encode(value: float) -> int:
    if math.isnan(value):
        return NAN_CODE
    sign = 0x80 if math.copysign(1.0, value) < 0 else 0
    magnitude = abs(value)
    code = bisect.bisect_left(MIDPOINTS, magnitude)  # midpoints below the magnitude
    if code < len(MIDPOINTS) and MIDPOINTS[code] == magnitude and code % 2 == 1:
        code += 1  # a tie goes to the even code
    return sign | code


def scale_from_amax(amax: float, power_of_two: bool) -> float:
    if math.isnan(amax):
        return math.nan
    scale = max(f32(amax / 448.0), SCALE_FLOOR)
    if not power_of_two or math.isinf(scale):
        return scale
    mantissa, exponent = math.frexp(scale)
    return scale if mantissa == 0.5 else math.ldexp(1.0, exponent)


def quotient(value: float, scale: float) -> float:
    if math.isnan(value) or math.isnan(scale) or (math.isinf(value) and math.isinf(scale)):
        return math.nan
    return f32(value / scale)


def amax_of(values) -> float:
    magnitudes = [abs(value) for value in values]
    return math.nan if any(map(math.isnan, magnitudes)) else max(magnitudes, default=0.0)


def cast_rowwise(x: array.array, rows: int, cols: int, power_of_two: bool) -> tuple[list[float], bytearray]:
    """Scales and codes of BF16 bits, row by row."""
    scales, codes = [], bytearray()
    for row in range(rows):
        bits = x[row * cols:(row + 1) * cols]
        scale = scale_from_amax(amax_of(map(bf16_value, set(bits))), power_of_two)
        table = {value: e4m3_encode(quotient(bf16_value(value), scale)) for value in set(bits)}
        scales.append(scale)
        codes += bytes(map(table.__getitem__, bits))
    return scales, codes


def cast_static(x: array.array, scale: float) -> tuple[bytearray, int]:
    """Codes, and how many elements lie beyond 448."""
    quotients = {bits: quotient(bf16_value(bits), scale) for bits in set(x)}
    table = {bits: e4m3_encode(value) for bits, value in quotients.items()}
    beyond = {bits: abs(value) > 448.0 for bits, value in quotients.items()}
    return bytearray(map(table.__getitem__, x)), sum(map(beyond.__getitem__, x))


# ---- Results ------------------------------------------------------------------------------------

class Results:
    """Counts; prints each failure at once, and a line for each group of checks."""

    def __init__(self) -> None:
        self.passed = self.failed = 0

    def add(self, name: str, differences: list[str]) -> None:
        if differences:
            self.failed += 1
            report(check=name, ok=False, differences=len(differences), first=differences[:5])
        else:
            self.passed += 1

    def group(self, name: str, before: tuple[int, int]) -> None:
        report(group=name, passed=self.passed - before[0], failed=self.failed - before[1])


def report(**fields) -> None:
    print(json.dumps(fields), flush=True)


def compare_codes(found: bytes, wanted: bytes, x, cols: int) -> list[str]:
    if found == wanted:
        return []
    differences = []
    for at, (is_code, should) in enumerate(zip(found, wanted)):
        # The sign of a NaN is nobody's business.
        if is_code != should and not (is_code & 0x7F == NAN_CODE and should & 0x7F == NAN_CODE):
            differences.append(f"[{at // cols}, {at % cols}] x=0x{x[at]:04x}: code 0x{is_code:02x}, not 0x{should:02x}")
    return differences


def compare_scales(found: list[float], wanted: list[float]) -> list[str]:
    return [f"row {row}: scale {is_scale!r}, not {should!r}"
            for row, (is_scale, should) in enumerate(zip(found, wanted))
            if f32_bits(is_scale) != f32_bits(should) and not (math.isnan(is_scale) and math.isnan(should))]


# ---- Cases --------------------------------------------------------------------------------------

def goldens():
    """(name, x as FP32, rows, cols, power_of_two, scales, codes) of every rowwise E4M3 golden."""
    data = (GOLDEN / "scaling.bin").read_bytes()
    with open(GOLDEN / "scaling.csv", newline="") as lines:
        for case in csv.DictReader(lines):
            if case["format"] != "e4m3" or case["granularity"] != "row":
                continue
            rows, cols = int(case["rows"]), int(case["cols"])
            x = array.array("f", data[int(case["x_offset"]):][:4 * rows * cols])
            scales = array.array("f", data[int(case["scales_offset"]):][:4 * rows])
            codes = data[int(case["codes_offset"]):][:rows * cols]
            yield case["matrix"], x, rows, cols, case["power_of_two"] == "1", list(scales), codes


def check_host(results: Results) -> None:
    """The rule above against the goldens made with PyTorch and ml_dtypes, before it judges a kernel."""
    before = results.passed, results.failed
    inputs = array.array("f", (GOLDEN / "cast_inputs.f32.bin").read_bytes())
    bits = array.array("I", inputs.tobytes())
    wanted = (GOLDEN / "cast_e4m3.u8.bin").read_bytes()
    found = bytes(map(e4m3_encode, inputs))
    results.add("host rule: cast_e4m3", [f"0x{bits[at]:08x}: 0x{a:02x}, not 0x{b:02x}" for at, (a, b)
                in enumerate(zip(found, wanted)) if a != b and not (a & 0x7F == NAN_CODE == b & 0x7F)])
    wanted = array.array("H", (GOLDEN / "cast_bf16.u16.bin").read_bytes())
    results.add("host rule: bf16", [f"0x{bits[at]:08x}: 0x{bf16_bits(value):04x}, not 0x{wanted[at]:04x}" for at, value
                in enumerate(inputs) if not math.isnan(value) and bf16_bits(value) != wanted[at]])
    for name, x, rows, cols, power_of_two, scales, codes in goldens():
        found_scales, found_codes = [], bytearray()
        for row in range(rows):
            values = x[row * cols:(row + 1) * cols]
            found_scales.append(scale_from_amax(amax_of(values), power_of_two))
            found_codes += bytes(e4m3_encode(quotient(value, found_scales[-1])) for value in values)
        differences = compare_scales(found_scales, scales)
        differences += [f"[{at // cols}, {at % cols}]: 0x{a:02x}, not 0x{b:02x}"
                        for at, (a, b) in enumerate(zip(found_codes, codes)) if a != b]
        results.add(f"host rule: {name} power_of_two={power_of_two}", differences)
    results.group("host rule against the goldens", before)


def special_rows(cols: int, draw: random.Random) -> array.array:
    """BF16 rows that are not ordinary, one after the other; the number of rows follows from the length."""
    normal = [draw.gauss(0, 1) for _ in range(cols)]
    last = cols - 1

    def with_value(value: float, at: int) -> list[float]:
        return normal[:at] + [value] + normal[at + 1:]

    smallest = 2.0**-133
    rows = [
        [0.0] * cols, [-0.0] * cols, [1.0] * cols, [-3.5] * cols, [448.0] * cols,
        [-0.0 if at % 2 else 0.0 for at in range(cols)],
        [value * 1e-20 for value in normal],         # all below the floor
        [value * 4e-10 for value in normal],         # around the floor: 448e-12
        [value * 2.0**-126 for value in normal],     # subnormal
        [smallest * (at % 7 - 3) for at in range(cols)],
        [value * 1e37 for value in normal],          # scales above 1e30
        [3.38e38 if at % 3 else -3.38e38 for at in range(cols)],
        with_value(3e38, last),                      # everything else far below the smallest step
        with_value(-1e-30, 0),
        with_value(math.nan, 0), with_value(math.nan, last), [math.nan] * cols,
        with_value(math.inf, last), with_value(-math.inf, 0), [math.inf] * cols,
        [math.inf] * last + [math.nan],
        [2.0 ** (at % 40 - 30) for at in range(cols)],
        [448.0] + [VALUES[at % 127] for at in range(last)],       # scale 1: values on the grid
        [448.0] + [MIDPOINTS[at % 126] for at in range(last)],    # and every tie
    ]
    return array.array("H", (bf16_bits(value) for row in rows for value in row))


def rowwise_cases(draw: random.Random):
    """(name, BF16 bits, rows, cols)"""
    seen = set()
    for name, x, rows, cols, *_ in goldens():
        if name not in seen:
            seen.add(name)
            yield f"golden {name}", array.array("H", map(bf16_bits, x)), rows, cols
    # Every BF16 once: a row is 256 neighbours, so rows of NaN, of infinity and of each exponent.
    yield "every BF16", array.array("H", range(65536)), 256, 256
    for cols in (8, 256, 1000, 1003):
        x = special_rows(cols, draw)
        yield "special rows", x, len(x) // cols, cols
    # One column, odd and even tails, one warp and two, the last length kept in registers and the first
    # that is read twice (32768), scalar rows of the same lengths.
    for cols in (1, 2, 7, 8, 9, 16, 127, 128, 129, 1016, 1024, 1032, 4096, 4104, 4099,
                 32760, 32768, 32776, 40000, 40001):
        rows = 5 if cols < 8000 else 2
        scale = 2.0 ** draw.uniform(-20, 20)
        values = (draw.gauss(0, scale) for _ in range(rows * cols))
        yield "random", array.array("H", map(bf16_bits, values)), rows, cols


def static_cases(draw: random.Random):
    """(name, BF16 bits, scale)"""
    every = array.array("H", range(65536))
    for scale in (1e-12, 3.3e-9, 2.0**-20, 0.0123, 1 / 448, 0.9999999, 1.0, 1.0000001, 3.0, 7e8, 1.1e30, 7.6e35,
                  2.0**120, math.inf, math.nan):
        yield "every BF16", every, f32(scale)
    for count in (1, 7, 8, 9, 255, 2048, 8191, 8192, 8193, 100_003):
        x = array.array("H", (bf16_bits(draw.gauss(0, 1)) for _ in range(count)))
        yield f"random {count}", x, f32(amax_of(map(bf16_value, x)) / 448 * draw.uniform(0.2, 1.5) or 1.0)


# ---- The driver ---------------------------------------------------------------------------------

class NoDevice(Exception):
    pass


class Driver:
    """libcuda through ctypes: the calls needed, every status checked, every address 64 bits wide."""

    def __init__(self) -> None:
        try:
            self.library = ctypes.CDLL("libcuda.so.1")
        except OSError as error:
            raise NoDevice(str(error)) from error
        status = self.library.cuInit(0)
        if status != 0:
            raise NoDevice(f"cuInit: {self.error_name(status)}")
        device, context = ctypes.c_int(), ctypes.c_void_p()
        self.call("cuDeviceGet", ctypes.byref(device), 0)
        self.device = device
        # The primary context: the other ways to make one changed their signatures between CUDA 12 and 13.
        self.call("cuDevicePrimaryCtxRetain", ctypes.byref(context), device)
        self.call("cuCtxSetCurrent", context)
        # An ordinary stream waits for the uploads and fills before it; one that does not block would overtake them.
        self.stream = ctypes.c_void_p()
        self.call("cuStreamCreate", ctypes.byref(self.stream), 0)

    def error_name(self, status: int) -> str:
        name = ctypes.c_char_p()
        if self.library.cuGetErrorName(status, ctypes.byref(name)) != 0 or not name.value:
            return f"CUDA error {status}"
        return name.value.decode()

    def call(self, function: str, *arguments) -> None:
        status = getattr(self.library, function)(*arguments)
        if status != 0:
            raise RuntimeError(f"{function}: {self.error_name(status)}")

    def attribute(self, which: int) -> int:
        value = ctypes.c_int()
        self.call("cuDeviceGetAttribute", ctypes.byref(value), which, self.device)
        return value.value

    def describe(self) -> dict:
        name, version = ctypes.create_string_buffer(256), ctypes.c_int()
        self.call("cuDeviceGetName", name, 256, self.device)
        self.call("cuDriverGetVersion", ctypes.byref(version))
        return dict(device=name.value.decode(), driver_cuda=f"{version.value // 1000}.{version.value % 1000 // 10}",
                    compute_capability=f"{self.attribute(75)}.{self.attribute(76)}",
                    multiprocessors=self.attribute(16), l2_mb=round(self.attribute(38) / 1e6))

    def kernel(self, cubins: pathlib.Path, entry: str) -> ctypes.c_void_p:
        """The cubin made for this GPU, or for an older one of the same major version that also runs here."""
        major, minor = self.attribute(75), self.attribute(76)
        names = [f"{entry}.sm_{major}{minor}a.cubin"] + [f"{entry}.sm_{major}{m}.cubin" for m in range(minor, -1, -1)]
        for name in names:
            if (cubins / name).exists():
                break
        else:
            raise RuntimeError(f"none of {', '.join(names)} in {cubins}")
        module, function = ctypes.c_void_p(), ctypes.c_void_p()
        try:
            self.call("cuModuleLoadData", ctypes.byref(module), (cubins / name).read_bytes())
        except RuntimeError as error:
            raise RuntimeError(f"{name}: {error} (if the driver is older than the compiler, compile with an older "
                               "nvidia-cuda-nvrtc, e.g. 13.0.88)") from error
        self.call("cuModuleGetFunction", ctypes.byref(function), module, entry.encode())
        report(kernel=entry, cubin=name)
        return function

    def allocate(self, num_bytes: int) -> int:
        address = ctypes.c_uint64()
        self.call("cuMemAlloc_v2", ctypes.byref(address), ctypes.c_size_t(max(num_bytes, 1)))
        return address.value

    def free(self, address: int) -> None:
        self.call("cuMemFree_v2", ctypes.c_uint64(address))

    def upload(self, address: int, data: bytes) -> None:
        self.call("cuMemcpyHtoD_v2", ctypes.c_uint64(address), data, ctypes.c_size_t(len(data)))

    def download(self, address: int, num_bytes: int) -> bytes:
        buffer = ctypes.create_string_buffer(max(num_bytes, 1))
        self.call("cuMemcpyDtoH_v2", buffer, ctypes.c_uint64(address), ctypes.c_size_t(num_bytes))
        return buffer.raw[:num_bytes]

    def fill(self, address: int, byte: int, num_bytes: int) -> None:
        self.call("cuMemsetD8_v2", ctypes.c_uint64(address), ctypes.c_ubyte(byte), ctypes.c_size_t(num_bytes))

    def copy(self, to: int, source: int, num_bytes: int) -> None:
        self.call("cuMemcpyDtoDAsync_v2", ctypes.c_uint64(to), ctypes.c_uint64(source), ctypes.c_size_t(num_bytes),
                  self.stream)

    def launch(self, function, blocks: int, threads: int, *arguments) -> None:
        pointers = (ctypes.c_void_p * len(arguments))(
            *(ctypes.cast(ctypes.pointer(value), ctypes.c_void_p) for value in arguments))
        self.call("cuLaunchKernel", function, blocks, 1, 1, threads, 1, 1, 0, self.stream, pointers, None)

    def wait(self) -> None:
        self.call("cuStreamSynchronize", self.stream)

    def graph(self, work) -> ctypes.c_void_p:
        """What `work` puts on the stream, recorded to be replayed at once: Python is too slow to keep a GPU busy."""
        graph, replay = ctypes.c_void_p(), ctypes.c_void_p()
        self.call("cuStreamBeginCapture_v2", self.stream, 1)
        work()
        self.call("cuStreamEndCapture", self.stream, ctypes.byref(graph))
        self.call("cuGraphInstantiateWithFlags", ctypes.byref(replay), graph, ctypes.c_uint64(0))
        self.call("cuGraphDestroy", graph)
        return replay


def ceil_div(value: int, by: int) -> int:
    return -(-value // by)


def u32(value: int) -> ctypes.c_uint32:
    return ctypes.c_uint32(value)


def u64(value: int) -> ctypes.c_uint64:
    return ctypes.c_uint64(value)


# ---- Launching: the rules of kernels/src/lib.rs --------------------------------------------------

def launch_rowwise(cuda: Driver, function, x: int, codes: int, scales: int, rows: int, cols: int,
                   power_of_two: bool) -> None:
    threads = min(max(ceil_div(ceil_div(cols, 32), 32) * 32, 32), 1024)
    cuda.launch(function, rows, threads, u64(x), u64(codes), u64(scales), u32(cols), u32(power_of_two))


def launch_static(cuda: Driver, function, x: int, scale: int, codes: int, saturated: int, count: int,
                  multiprocessors: int) -> None:
    blocks = min(ceil_div(count, 8192), 8 * multiprocessors)
    cuda.launch(function, blocks, 256, u64(x), u64(scale), u64(codes), u64(saturated), u64(count))


# ---- Checks on the GPU --------------------------------------------------------------------------

class Output:
    """Device memory for a result, poisoned, between guards. `shift` bytes off alignment."""

    def __init__(self, cuda: Driver, num_bytes: int, poison: int, shift: int = 0) -> None:
        self.cuda, self.num_bytes, self.poison, self.shift = cuda, num_bytes, poison, shift
        self.base = cuda.allocate(num_bytes + shift + 2 * GUARD)
        cuda.fill(self.base, poison, num_bytes + shift + 2 * GUARD)
        self.address = self.base + GUARD + shift

    def take(self) -> tuple[bytes, list[str]]:
        """What was written, and complaints about the guards; frees the memory."""
        data = self.cuda.download(self.base, self.num_bytes + self.shift + 2 * GUARD)
        self.cuda.free(self.base)
        first, last = GUARD + self.shift, GUARD + self.shift + self.num_bytes
        touched = [at for at, byte in enumerate(data) if byte != self.poison and not first <= at < last]
        return data[first:last], [f"written outside the output, at byte {at - first}" for at in touched]


def check_rowwise(cuda: Driver, function, results: Results, draw: random.Random) -> None:
    before = results.passed, results.failed
    for name, x, rows, cols in rowwise_cases(draw):
        for power_of_two in (False, True):
            wanted_scales, wanted_codes = cast_rowwise(x, rows, cols, power_of_two)
            # Two poisons: an element never written equals one of them by accident, not both. The last run is off
            # alignment, which must change nothing.
            for poison, shift in ((0x55, 0), (0xAA, 0), (0x55, 2)):
                source = cuda.allocate(len(x) * 2 + shift)
                cuda.upload(source + shift, x.tobytes())
                codes, scales = Output(cuda, rows * cols, poison, shift), Output(cuda, rows * 4, poison)
                launch_rowwise(cuda, function, source + shift, codes.address, scales.address, rows, cols, power_of_two)
                cuda.wait()
                found_codes, differences = codes.take()
                found_scales, more = scales.take()
                cuda.free(source)
                differences += more + compare_scales(list(array.array("f", found_scales)), wanted_scales)
                differences += compare_codes(found_codes, wanted_codes, x, cols)
                results.add(f"rowwise {name} [{rows}, {cols}] power_of_two={power_of_two} poison=0x{poison:02x} "
                            f"shift={shift}", differences)
    results.group("cast_e4m3_rowwise", before)


def check_static(cuda: Driver, function, results: Results, draw: random.Random) -> None:
    before = results.passed, results.failed
    start = 1 << 33  # the counter is added to, and is wider than 32 bits
    for name, x, scale in static_cases(draw):
        wanted, wanted_count = cast_static(x, scale)
        for poison, shift in ((0x55, 0), (0xAA, 0), (0x55, 2)):
            source, scale_at, counter = cuda.allocate(len(x) * 2 + shift), cuda.allocate(4), cuda.allocate(8)
            cuda.upload(source + shift, x.tobytes())
            cuda.upload(scale_at, struct.pack("<f", scale))
            cuda.upload(counter, struct.pack("<Q", start))
            codes = Output(cuda, len(x), poison, shift)
            # Few multiprocessors, so that a small case strides too.
            launch_static(cuda, function, source + shift, scale_at, codes.address, counter, len(x), 1 if shift else 132)
            cuda.wait()
            found, differences = codes.take()
            count = struct.unpack("<Q", cuda.download(counter, 8))[0] - start
            for address in (source, scale_at, counter):
                cuda.free(address)
            if count != wanted_count:
                differences.append(f"{count} saturated, not {wanted_count}")
            differences += compare_codes(found, wanted, x, len(x))
            results.add(f"static {name} scale={scale!r} poison=0x{poison:02x} shift={shift}", differences)
    results.group("cast_e4m3_static", before)


# ---- Timing -------------------------------------------------------------------------------------

def quantile(samples: list[float], q: float) -> float:
    ordered = sorted(samples)
    return ordered[min(int(q * len(ordered)), len(ordered) - 1)]


class Operand:
    """One set of buffers: x, codes, scales; and, for the copy, as much memory read and written."""

    def __init__(self, cuda: Driver, pattern: bytes, rows: int, cols: int) -> None:
        count = rows * cols
        self.x, self.codes, self.scales = cuda.allocate(2 * count), cuda.allocate(count), cuda.allocate(4 * rows)
        cuda.upload(self.x, pattern[:2 * count])
        filled = min(len(pattern), 2 * count)
        while filled < 2 * count:  # doubling: gigabytes over the bus would take longer than the timing
            step = min(filled, 2 * count - filled)
            cuda.copy(self.x + filled, self.x, step)
            filled += step
        cuda.wait()
        self.copy_bytes = 3 * count // 2
        self.copy_to = cuda.allocate(self.copy_bytes)

    def free(self, cuda: Driver) -> None:
        for address in (self.x, self.codes, self.scales, self.copy_to):
            cuda.free(address)


def check_large(cuda: Driver, results: Results, operand: Operand, rows: int, cols: int, draw: random.Random) -> None:
    """Sixteen rows of the matrix that was timed: fast and wrong is easy."""
    differences = []
    for row in sorted(draw.sample(range(rows), 14) + [0, rows - 1]):
        x = array.array("H", cuda.download(operand.x + 2 * row * cols, 2 * cols))
        scales, codes = cast_rowwise(x, 1, cols, False)
        found = array.array("f", cuda.download(operand.scales + 4 * row, 4))
        differences += [f"row {row}: {text}" for text in compare_scales(list(found), scales)
                        + compare_codes(cuda.download(operand.codes + row * cols, cols), codes, x, cols)]
    results.add(f"rowwise large [{rows}, {cols}]", differences)


def time_all(cuda: Driver, rowwise, static, results: Results, rows: int, cols: int, num_samples: int,
             draw: random.Random) -> None:
    count, multiprocessors = rows * cols, cuda.attribute(16)
    # Random data, never zeros: zeros run faster. An odd number of elements, so that rows differ.
    pattern = array.array("H", (bf16_bits(draw.gauss(0, 1)) for _ in range((1 << 19) + 8))).tobytes()
    # Together at least four times the L2, so that nothing is still there when its turn comes again.
    num_sets = max(2, ceil_div(4 * cuda.attribute(38), 3 * count))
    sets = [Operand(cuda, pattern, rows, cols) for _ in range(num_sets)]
    scale_at, counter = cuda.allocate(4), cuda.allocate(8)
    cuda.upload(scale_at, struct.pack("<f", 0.01))
    cuda.upload(counter, bytes(8))
    # Many launches a sample: what it costs to start a replay is spread over them.
    num_repeats = max(1, 48 // num_sets)
    num_launches = num_repeats * num_sets

    def repeated(one):
        return lambda: [one(operand) for _ in range(num_repeats) for operand in sets]

    work = {
        "cast_e4m3_rowwise": (3 * count + 4 * rows, lambda s: launch_rowwise(
            cuda, rowwise, s.x, s.codes, s.scales, rows, cols, False)),
        "cast_e4m3_static": (3 * count, lambda s: launch_static(
            cuda, static, s.x, scale_at, s.codes, counter, count, multiprocessors)),
        # Reads and writes as many bytes in total as a cast does, one half each way.
        "copy": (2 * (3 * count // 2), lambda s: cuda.copy(s.copy_to, s.x, s.copy_bytes)),
    }
    graphs = {name: cuda.graph(repeated(one)) for name, (_, one) in work.items()}
    start, end = ctypes.c_void_p(), ctypes.c_void_p()
    cuda.call("cuEventCreate", ctypes.byref(start), 0)
    cuda.call("cuEventCreate", ctypes.byref(end), 0)
    samples = {name: [] for name in graphs}
    # Interleaved, so that a drift of the clocks hits all alike; the first fifth still pays for their ramp-up.
    warm_up = num_samples // 5 + 1
    for turn in range(warm_up + num_samples):
        for name, replay in graphs.items():
            cuda.call("cuEventRecord", start, cuda.stream)
            cuda.call("cuGraphLaunch", replay, cuda.stream)
            cuda.call("cuEventRecord", end, cuda.stream)
            cuda.call("cuEventSynchronize", end)
            elapsed_ms = ctypes.c_float()
            cuda.call("cuEventElapsedTime", ctypes.byref(elapsed_ms), start, end)
            if turn >= warm_up:
                samples[name].append(elapsed_ms.value * 1e3 / num_launches)
    copy_us = quantile(samples["copy"], 0.5)
    for name, (num_bytes, _) in work.items():
        median = quantile(samples[name], 0.5)
        report(time=name, rows=rows, cols=cols, buffers=num_sets, launches_a_sample=num_launches, samples=num_samples,
               median_us=round(median, 2), p10_us=round(quantile(samples[name], 0.1), 2),
               p90_us=round(quantile(samples[name], 0.9), 2), bytes=num_bytes,
               gb_per_s=round(num_bytes / median / 1e3, 1), of_copy=round(copy_us / median, 3))
    # The static cast wrote the codes last: cast rowwise once more before looking at them.
    cuda.fill(sets[0].codes, 0x55, count)
    launch_rowwise(cuda, rowwise, sets[0].x, sets[0].codes, sets[0].scales, rows, cols, False)
    cuda.wait()
    check_large(cuda, results, sets[0], rows, cols, draw)
    for replay in graphs.values():
        cuda.call("cuGraphExecDestroy", replay)
    for operand in sets:
        operand.free(cuda)
    for address in (scale_at, counter):
        cuda.free(address)


def check_gpu(results: Results, arguments: argparse.Namespace) -> None:
    cuda = Driver()
    report(**cuda.describe())
    rowwise = cuda.kernel(arguments.cubins, "cast_e4m3_rowwise")
    static = cuda.kernel(arguments.cubins, "cast_e4m3_static")
    draw = random.Random(1)
    check_rowwise(cuda, rowwise, results, draw)
    check_static(cuda, static, results, draw)
    for shape in [] if arguments.no_timing else arguments.shapes:
        rows, cols = map(int, shape.split("x"))
        time_all(cuda, rowwise, static, results, rows, cols, arguments.samples, draw)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("cubins", nargs="?", type=pathlib.Path, help="folder of <entry>.<architecture>.cubin")
    parser.add_argument("--host-only", action="store_true", help="check the rule against the goldens, and stop")
    parser.add_argument("--no-timing", action="store_true")
    parser.add_argument("--shapes", nargs="+", default=["8192x4096", "65536x4096"], metavar="ROWSxCOLS")
    parser.add_argument("--samples", type=int, default=50)
    arguments = parser.parse_args()
    if arguments.cubins is None and not arguments.host_only:
        parser.error("name the folder of cubins, or --host-only")
    results = Results()
    check_host(results)
    device = True
    if not arguments.host_only:
        try:
            check_gpu(results, arguments)
        except NoDevice as reason:
            device = False
            report(skipped=f"no CUDA device: {reason}")
        except Exception as error:  # an illegal address ends the context: say so, and still print the counts
            results.add("run", [f"{type(error).__name__}: {error}"])
    print(f"{results.passed} passed, {results.failed} failed")
    return 1 if results.failed else 0 if device else 2


if __name__ == "__main__":
    sys.exit(main())
