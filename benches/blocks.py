"""What mlp_block.py and mlp_block_training.py share: LoKA's fused blocks and the kernels around them, launched as
kernels/src does, PyTorch's perceptrons, references, and times with a cold L2.

Takes a GPU of compute capability 9.0 and PyTorch; no program by itself.
"""

import ctypes as C
import math
import statistics
import types

import torch
import torch.nn.functional as F
from torch import nn

import fp8_gemm as fp8
import static_gemm as static
from fp8_gemm import GUARD, SMS, TILE_K, Y_BOX, check, cuda
from static_gemm import CastOperand, address, cast, e4m3, launcher

BLOCK, H_SCALE, EPS = 256, 2.0**-4, 2.0**-23
"""|BlockNorm| <= 16, and 448 * 2^-4 = 28."""
STORE_Z, STORE_H, STORE_CODES = 1, 2, 4
CHAINS = [(1024, 1024, 1024), (1024, 2048, 2048), (2048, 2048, 2048), (1024, 4096, 4096), (6144, 2048, 2048),
          (12288, 2048, 2048), (6144, 4096, 4096)]  # fmt: skip
"""Batch, k, n, the one that takes least time first."""


class Block:
    """One kernel, sized as in kernels/src/gemm/block.rs. `h_type`: bf16, e4m3, or all, which stores z, h and codes."""

    def __init__(self, x_type: str, h_type: str, rows: int) -> None:
        self.entry, self.rows = f"sm90_{x_type}_block_{h_type}_{rows}x256", rows
        self.is_codes, self.gives_codes, self.gives_all = x_type == "e4m3", h_type == "e4m3", h_type == "all"
        stages = 4 if self.is_codes or rows == 64 else 3
        x_bytes = rows * TILE_K * (1 if self.is_codes else 2)
        squares = 0 if rows == 128 else 1024 if self.is_codes else 512
        turns = 0 if self.is_codes else 16
        self.shared = stages * (x_bytes + BLOCK * TILE_K + 32) + 8 * 2 * 16 * 64 * 2 + 8 * BLOCK + turns + squares
        self.function = fp8.load(self.entry)
        check(cuda.cuFuncSetAttribute(self.function, 8, self.shared), "shared memory")

    def units(self, m: int, n: int) -> int:
        return -(-m // self.rows) * (n // BLOCK)

    def suits(self, m: int, n: int, k: int) -> bool:
        return self.rows == 128 or self.is_codes or (k > TILE_K and self.units(m, n) <= SMS)

    def prepare(self, x, w, h, x_scale, w_scales, h_scale, saturated, bias=None, z=None, codes=None):
        """Of a kernel that stores all: each of z, h and codes that is not None. `w_scales`: one a row of w, or one."""
        (m, k), n = x.shape, w.shape[0]
        group = max(1, round(math.sqrt(SMS * BLOCK / self.rows)))
        stores = sum(bit for bit, to in ((STORE_Z, z), (STORE_H, h), (STORE_CODES, codes)) if to is not None)
        bias_at = 0 if bias is None else bias.data_ptr()
        shape = static.Shape(m, n, k, -(-m // self.rows), n // BLOCK, group, stores, w_scales.numel() > 1, bias_at)
        arguments = [fp8.tensor_map(x, self.rows, TILE_K if self.is_codes else 64), fp8.tensor_map(w, BLOCK, TILE_K)]
        if self.gives_all:
            boxes = ((z, Y_BOX), (h, Y_BOX), (codes, (16, 128)))
            # Nothing reads the map of what is not stored.
            arguments += [fp8.Map() if to is None else fp8.tensor_map(to, *box) for to, box in boxes]
        else:
            arguments.append(fp8.tensor_map(h, *((16, 128) if self.gives_codes else Y_BOX)))
        arguments += [address(x_scale), address(w_scales), address(h_scale), address(saturated), shape]
        return launcher(self.function, min(self.units(m, n), SMS), 384, self.shared, arguments)


def chosen(blocks: list, x_type: str, h_type: str, m: int, n: int, k: int) -> Block:
    """As kernels/src/gemm/block.rs chooses."""
    named = [block for block in blocks if block.entry.startswith(f"sm90_{x_type}_block_{h_type}_")]
    low = [block for block in named if block.rows == 64 and block.suits(m, n, k) and block.units(m, n) <= SMS]
    return (low or [block for block in named if block.rows == 128])[0]


def casts_first(m: int, n: int, k: int) -> bool:
    """As in kernels/src/gemm/block.rs."""
    waves = -(-(-(-m // 128) * (n // BLOCK)) // SMS)
    return waves * -(-k // TILE_K) * 0.25 > 2.5 + 3 * m * k / 3.7e6


# ---- Kernels around them, as kernels/src/norms.rs and casts.rs launch them ---------------------------------------


def maybe(tensor) -> C.c_uint64:
    return C.c_uint64(0) if tensor is None else address(tensor)


def norm_forward(z, h, codes, scale):
    blocks = min(-(-z.numel() // (8 * BLOCK)), 4 * SMS)
    arguments = [address(z), maybe(h), maybe(codes), maybe(scale), C.c_uint64(z.numel())]
    return launcher(cast("block_norm_hard_swish"), blocks, 256, 0, arguments)


def norm_backward(dh, z, dz, codes, row_scales, early: bool = True):
    m, n = z.shape
    warps = n // BLOCK if n <= 2 * BLOCK else -(-n // (2 * BLOCK))
    arguments = [address(dh), address(z), *map(maybe, (dz, codes, row_scales)), C.c_uint(n)]
    return launcher(cast("block_backward"), m, 32 * warps, 0, arguments, early=early)


def gradient_codes(dh, z, dz, codes, codes_t, scale, saturated, amax=None):
    """block_backward_static, as kernels/src/norms.rs launches it."""
    m, n = z.shape
    tensors = (dz, codes, codes_t, scale, saturated, amax)
    arguments = [address(dh), address(z), *map(maybe, tensors), C.c_uint(m), C.c_uint(n)]
    return launcher(cast("block_backward_static"), -(-m // 32) * (n // BLOCK), 256, 0, arguments)


class StaticOperand(C.Structure):
    _fields_ = [(name, C.c_uint64) for name in "x scale_at codes codes_t saturated amax".split()]
    _fields_ += [("rows", C.c_uint), ("cols", C.c_uint)]


class StaticOperands(C.Structure):
    _fields_ = [("of", StaticOperand * 4), ("first", C.c_uint * 4)]


def static_casts(operands: list):
    """The launch that casts up to four matrices by scales known beforehand: (x, codes, codes_t, scale, saturated, amax)
    each."""
    made, blocks = StaticOperands(), 0
    for at in range(4):
        made.first[at] = blocks
        if at >= len(operands):
            continue
        x, codes, codes_t, scale, saturated, amax = operands[at]
        addresses = [0 if each is None else each.data_ptr() for each in (x, scale, codes, codes_t, saturated, amax)]
        made.of[at] = StaticOperand(*addresses, *x.shape)
        blocks += -(-x.shape[0] // 32) * -(-x.shape[1] // 256)
    return launcher(cast("cast_static_turned"), blocks, 256, 0, [made])


ROW_CAST, COLUMN_AMAX = 8, 16


def share(most: int, operand: CastOperand, total: int) -> int:
    return min(max(most * operand.rows * operand.cols // max(total, 1), 1), most)


def row_operand(x, codes, scales) -> CastOperand:
    return CastOperand(x.data_ptr(), codes.data_ptr(), scales.data_ptr(), 0, 0, 0, *x.shape, 0, ROW_CAST, 0, 0, codes.stride(0))


def column_operand(x, codes_t, scales_t) -> CastOperand:
    """Keeps its partials alive."""
    rows, cols = x.shape
    size = max(16 * SMS, 2 * min(-(-rows // 64), 128) * -(-cols // 256) * 256)
    partials = torch.empty(size, dtype=torch.uint8, device="cuda")
    operand = CastOperand(x.data_ptr(), 0, 0, codes_t.data_ptr(), scales_t.data_ptr(), partials.data_ptr(), rows, cols)
    operand.flags, operand.kept = COLUMN_AMAX, partials
    operand.pitch, operand.pitch_t = cols, codes_t.stride(0)
    return operand


def first_pass(operands: list):
    """cast_rowwise over up to two operands, rows of no more than 65,536: rows cast, or the amax of columns."""
    longest = max((o.cols for o in operands if o.flags & ROW_CAST), default=0)
    threads = 256
    if longest > 1024:
        kept = 4 if longest <= 16384 else 8
        threads = min(1024, max(64, -(-(-(-longest // 128) * 128 // (8 * kept)) // 32) * 32))
    columns = sum(o.rows * o.cols for o in operands if o.flags & COLUMN_AMAX)
    for o in operands:
        o.tiles = o.tile_rows = 0
        if o.flags & COLUMN_AMAX:
            across, most = -(-o.cols // 256), min(-(-o.rows // 64), 128)
            wanted = share(32 * SMS // (threads // 32), o, columns)
            o.tile_rows = -(-o.rows // min(max(wanted // across, 1), most))
            o.tiles = -(-o.rows // o.tile_rows)
            o.blocks = o.tiles * across
        elif o.cols <= 1024:
            lanes = min(32, 1 << (-(-o.cols // 8) - 1).bit_length())
            o.blocks = -(-o.rows // (threads // 32 * (32 // lanes)))
        else:
            o.tile_rows, o.blocks = (4 if o.cols <= 32 * threads else 8), o.rows
            resident = 1024 // threads
            if o.tile_rows == 8:
                o.tiles = 0 if resident > 2 else max(1, resident * SMS)
    a, b = (operands + [CastOperand()])[:2]
    return launcher(cast("cast_rowwise"), a.blocks + b.blocks, threads, 0, [a, b])


def second_pass(operands: list):
    """cast_columnwise of operands whose first pass left their columns' amax."""
    tiles = sum(-(-o.rows // 64) * -(-o.cols // 128) for o in operands)
    threads = 128 if tiles < 2 * SMS else 256
    total, copies = sum(o.rows * o.cols for o in operands), []
    for o in operands:
        made = CastOperand.from_buffer_copy(o)
        made.kept = o.kept
        strips, resident = -(-o.cols // 128), share(4 * SMS, o, total)
        if threads == 128:
            splits = 1 << 30
        else:
            splits = resident // strips if o.tiles > 32 else -(-4 * resident // strips)
        made.blocks = strips * min(max(splits, 1), -(-o.rows // (threads // 4)))
        copies.append(made)
    a, b = (copies + [CastOperand()])[:2]
    return launcher(cast("cast_columnwise"), a.blocks + b.blocks, threads, 0, [a, b])


def column_casts(pairs: list) -> list:
    """Launches that cast up to two matrices transposed, a scale a column: (x, codes_t, scales_t) each."""
    operands = [column_operand(*each) for each in pairs]
    return [first_pass(operands), second_pass(operands)]


def transposes(pairs: list):
    """Codes of up to two matrices transposed: (codes, codes_t) each."""
    operands = []
    for codes, codes_t in pairs:
        rows, cols = codes.shape
        blocks = -(-rows // 64) * -(-cols // 128)
        operands.append(CastOperand(0, codes.data_ptr(), 0, codes_t.data_ptr(), 0, 0, rows, cols, blocks))
        operands[-1].pitch, operands[-1].pitch_t = codes.stride(0), codes_t.stride(0)
    a, b = (operands + [CastOperand()])[:2]
    return launcher(cast("transpose_codes"), a.blocks + b.blocks, 256, 0, [a, b])


# ---- References and peers ----------------------------------------------------------------------------------------


def block_norm(y):
    blocks = y.view(-1, BLOCK)
    return (blocks * torch.rsqrt(blocks.square().mean(1, keepdim=True) + EPS)).view(y.shape)


class Guarded:
    """A poisoned matrix with guards on both sides."""

    def __init__(self, m: int, n: int, kind) -> None:
        size = torch.empty(0, dtype=kind).element_size()
        self.flat = torch.full(((m * n + 2 * GUARD) * size,), -1, dtype=torch.int8, device="cuda")
        self.first, self.last = GUARD * size, (GUARD + m * n) * size
        self.matrix = self.flat[self.first : self.last].view(kind).view(m, n)

    def is_intact(self) -> bool:
        return bool((self.flat[: self.first] == -1).all() and (self.flat[self.last :] == -1).all())

    def is_untouched(self) -> bool:
        return bool((self.flat == -1).all())


class BlockNorm(nn.Module):
    def forward(self, y):
        return F.rms_norm(y.view(-1, BLOCK), (BLOCK,)).view(y.shape)


def perceptron(k: int, n: int, is_modified: bool) -> nn.Module:
    layers = []
    for d in (k, n, n):
        layers.append(nn.Linear(d, n, bias=not is_modified))
        layers += [BlockNorm(), nn.Hardswish()] if is_modified else [nn.LayerNorm(n), nn.SiLU()]
    return nn.Sequential(*layers).cuda().bfloat16()


def compiled(model: nn.Module):
    """max-autotune, without its own CUDA graphs: `graph` makes one without the host in it."""
    import torch._inductor.config as inductor

    # Its tables would drown the figures.
    inductor.autotune_num_choices_displayed, inductor.max_autotune_report_choices_stats = 0, False
    torch._dynamo.reset()
    return torch.compile(model, mode="max-autotune-no-cudagraphs", dynamic=False)


def graph(runs: list):
    """The runs as one CUDA graph, run three times before."""
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for _ in range(3):
            for run in runs:
                run()
    torch.cuda.current_stream().wait_stream(stream)
    torch.cuda.synchronize()
    made = torch.cuda.CUDAGraph()
    with torch.cuda.graph(made):
        for run in runs:
            run()
    return made


def captured(call, *kept):
    """The call as a CUDA graph; where it cannot be captured, as it is, and said so: its host's time counts then. Keeps
    what the graph does not: weights, say."""
    try:
        made = graph([call])
    except Exception as error:
        print(f"not captured, so timed with its host: {error}", flush=True)
        torch.cuda.synchronize()
        made = types.SimpleNamespace(replay=call)
    made.kept = kept
    return made


def cold_times(calls: dict, rounds: int) -> dict:
    """Median microseconds of each, the L2 flushed before every run, all interleaved round by round."""
    flush = torch.empty(256 << 20, dtype=torch.int8, device="cuda")
    events = {name: [] for name in calls}
    # Not timed: clocks settle.
    for turn in range(rounds + 3):
        for name, call in calls.items():
            first, last = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
            flush.zero_()
            first.record()
            call()
            last.record()
            if turn >= 3:
                events[name].append((first, last))
    torch.cuda.synchronize()
    return {name: statistics.median(first.elapsed_time(last) * 1e3 for first, last in pairs)
            for name, pairs in events.items()}  # fmt: skip


def tell(outcomes) -> int:
    """Prints what each check has to say, which is nothing where it passed, and how many did; gives how many failed."""
    done, failed = 0, 0
    for wrong in outcomes:
        done += 1
        if wrong:
            failed += 1
            print(f"FAILED: {wrong}", flush=True)
    print(f"{done - failed} checks passed, {failed} failed", flush=True)
    return failed


def geomean(values: list) -> float:
    return math.exp(sum(map(math.log, values)) / len(values))
