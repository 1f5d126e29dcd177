"""Takes operands on a GPU; gives their FP8 values straight and turned, each with its scales, by `triton_kernels`.

The values are those of `scales.quantize`, bit for bit but for the sign of zeros. Rows of codes are `spaced`; those of
whole blocks are by themselves. Under torch.compile the launches are ops that Inductor inlines; otherwise they are made at
once, past the dispatcher, where an op written in Python costs more than the launch. Needs Triton.
"""

import contextlib
from typing import Any, Callable, ContextManager, List, Optional, Tuple

import torch
import triton
from torch import Tensor
from torch.library import triton_op, wrap_triton

from . import triton_kernels
from ..catalogue import BLOCK, SCALE_FLOOR
from .delayed import Notes
from .scales import room

PARTIALS = 1024
"""Programs of `amax`, and so partial maxima that every tile of a tensorwise cast reads."""

LONGEST_ROW = 16384
"""Longer rows do not stay in one program's registers."""

NOTE = 1024
"""Maxima that a program notes: `triton_kernels.NOTE`."""

_AMAX_BLOCK, _ZERO_BLOCK = 4096, 1024
# Rows, columns and warps of a tile: what was fastest on an H200 (docs/engineering/performance.md).
_BOTH, _BOTH_ROWWISE, _ONE, _AMAX_TILE = (64, 128, 8), (64, 64, 4), (64, 64, 4), (64, 128, 4)
_BOTH_KNOWN, _ONE_KNOWN = (64, 64, 4), (32, 64, 4)
_FORMATS = {"e4m3": (torch.float8_e4m3fn, 448.0), "e5m2": (torch.float8_e5m2, 57344.0)}

Wrap = Callable[[Any], Any]
Cast4 = Tuple[Tensor, Tensor, Tensor, Tensor]
Cast6 = Tuple[Tensor, Tensor, Tensor, Tensor, Tensor, Tensor]


def on(device: torch.device) -> ContextManager[Any]:
    """Launches go there. A CPU's are the interpreter's."""
    return torch.cuda.device(device) if device.type == "cuda" else contextlib.nullcontext()


def plain(kernel: Any) -> Any:
    return kernel


def _multiple(size: int, multiple: int) -> int:
    return (size + multiple - 1) // multiple * multiple


def _amax(x: Tensor, rounded: bool, wrap: Wrap) -> Tensor:
    partials = torch.empty(PARTIALS, dtype=torch.int32, device=x.device)
    wrap(triton_kernels.amax_kernel)[(PARTIALS,)](
        x, partials, x.numel(), PROGRAMS=PARTIALS, BLOCK=_AMAX_BLOCK, ROUNDED=rounded, num_warps=8
    )
    return partials


def _amax_rows_cols(x: Tensor, straight: bool, turn: bool, wrap: Wrap) -> Tuple[Tensor, Tensor]:
    rows, cols = x.shape
    of_rows, of_cols = rows if straight else 0, cols if turn else 0
    row_amax = torch.empty(of_rows, dtype=torch.int32, device=x.device)
    col_amax = torch.empty(of_cols, dtype=torch.int32, device=x.device)
    # Not torch.zeros: PyTorch takes two that are alike for one, as it does of `scales.spaced`, and fails on its copy where rows are any number.
    grid = (triton.cdiv(of_rows + of_cols, _ZERO_BLOCK),)
    wrap(triton_kernels.zero_pair_kernel)[grid](row_amax, col_amax, of_rows, of_cols, BLOCK=_ZERO_BLOCK)
    down, across, warps = _AMAX_TILE
    wrap(triton_kernels.amax_rows_cols_kernel)[(triton.cdiv(rows, down) * triton.cdiv(cols, across),)](
        x, row_amax, col_amax, rows, cols,
        STRAIGHT=straight, TURNED=turn, TILE_ROWS=down, TILE_COLS=across, num_warps=warps,
    )
    return row_amax, col_amax


def _outputs(x: Tensor, format: str, straight: bool, turn: bool, rows_padded: int) -> Tuple[Tensor, Tensor]:
    fp8 = _FORMATS[format][0]
    rows, cols = x.shape
    out = room(rows, cols, fp8, x.device) if straight else torch.empty((0, 0), dtype=fp8, device=x.device)
    turned = room(cols, rows_padded, fp8, x.device) if turn else torch.empty((0, 0), dtype=fp8, device=x.device)
    return out, turned


def both_layouts(x: Tensor) -> Tuple[Tensor, Tensor]:
    """`room` for E4M3 codes of x, straight and turned."""
    return _outputs(x, "e4m3", True, True, x.shape[0])


def _cast(
    x: Tensor, row_amax: Tensor, col_amax: Tensor, tensorwise: bool, format: str, power_of_two: bool, straight: bool,
    turn: bool, multiple: int, rounded: bool, wrap: Wrap,
) -> Cast4:
    rows, cols = x.shape
    rows_padded = _multiple(rows, multiple)
    out, turned = _outputs(x, format, straight, turn, rows_padded)
    # Never of no dimensions: Inductor fills such a tensor before it is written.
    row_scale = torch.empty((1,) if tensorwise else (rows if straight else 0, 1), dtype=torch.float32, device=x.device)
    col_scale = torch.empty((0 if tensorwise or not turn else cols, 1), dtype=torch.float32, device=x.device)
    down, across, warps = _ONE if not (straight and turn) else _BOTH if tensorwise else _BOTH_ROWWISE
    wrap(triton_kernels.cast_kernel)[(triton.cdiv(rows_padded, down) * triton.cdiv(cols, across),)](
        x, row_amax, col_amax, out, turned, row_scale, col_scale, rows, cols, rows_padded, out.stride(0), turned.stride(0),
        PARTIALS=PARTIALS if tensorwise else 0, LARGEST=_FORMATS[format][1], FLOOR=SCALE_FLOOR,
        POWER_OF_TWO=power_of_two, STRAIGHT=straight, TURNED=turn, TILE_ROWS=down, TILE_COLS=across, ROUNDED=rounded,
        num_warps=warps,
    )
    return out[:, :cols], turned[:, :rows_padded], row_scale, col_scale


def noted(
    amax: Optional[Tensor], first: Optional[Tensor], first_amax: Optional[Tensor], second: Optional[Tensor],
    second_amax: Optional[Tensor], programs: int, device: torch.device,
) -> Tuple[Tensor, List[Any], int]:
    """(where a kernel puts the largest that it sees, what it is told of other operands, its NOTED), of `delayed.Notes` or none."""
    partials = torch.empty(programs, dtype=torch.float32, device=device) if amax is None else amax
    arguments: List[Any] = []
    for maxima, to in ((first, first_amax), (second, second_amax)):
        if maxima is None or to is None:
            arguments += [partials, partials, 0]
            continue
        if maxima.numel() > NOTE * programs:
            # Of a wide operand beside a narrow one there are more than the programs look at.
            maxima = maxima.amax().view(1)
        arguments += [maxima, to, maxima.numel()]
    return partials, arguments, 0 if amax is None else 1 + (first is not None) + (second is not None)


def _cast_known(
    x: Tensor, inverse: Tensor, format: str, straight: bool, turn: bool, multiple: int, amax: Optional[Tensor], first: Optional[Tensor],
    first_amax: Optional[Tensor], second: Optional[Tensor], second_amax: Optional[Tensor], wrap: Wrap,
) -> Tuple[Tensor, Tensor, Tensor]:
    rows, cols = x.shape
    rows_padded = _multiple(rows, multiple)
    out, turned = _outputs(x, format, straight, turn, rows_padded)
    down, across, warps = _BOTH_KNOWN if straight and turn else _ONE_KNOWN
    programs = triton.cdiv(rows_padded, down) * triton.cdiv(cols, across)
    partials, others, count = noted(amax, first, first_amax, second, second_amax, programs, x.device)  # pyright: ignore
    wrap(triton_kernels.cast_known_kernel)[(programs,)](
        x, inverse, out, turned, partials, *others, rows, cols, rows_padded, out.stride(0), turned.stride(0),
        NOTED=count, STRAIGHT=straight, TURNED=turn, TILE_ROWS=down, TILE_COLS=across, num_warps=warps,
    )
    return out[:, :cols], turned[:, :rows_padded], partials


def _amax_pair(x: Tensor, y: Tensor, wrap: Wrap) -> Tuple[Tensor, Tensor]:
    first = torch.empty(PARTIALS, dtype=torch.int32, device=x.device)
    second = torch.empty(PARTIALS, dtype=torch.int32, device=x.device)
    wrap(triton_kernels.amax_pair_kernel)[(2 * PARTIALS,)](
        x, y, first, second, x.numel(), y.numel(), PROGRAMS=PARTIALS, BLOCK=_AMAX_BLOCK, num_warps=8
    )
    return first, second


def _cast_pair(
    x: Tensor, x_amax: Tensor, y: Tensor, y_amax: Tensor, format: str, power_of_two: bool, turn: bool, multiple: int,
    wrap: Wrap,
) -> Cast6:
    down, across, warps = _BOTH if turn else _ONE
    arguments, results, programs = [], [], 0
    for operand, amax in ((x, x_amax), (y, y_amax)):
        rows, cols = operand.shape
        rows_padded = _multiple(rows, multiple)
        out, turned = _outputs(operand, format, True, turn, rows_padded)
        scale = torch.empty(1, dtype=torch.float32, device=x.device)
        arguments += [operand, amax, out, turned, scale, rows, cols, rows_padded, out.stride(0), turned.stride(0)]
        results += [out[:, :cols], turned[:, :rows_padded], scale]
        programs += triton.cdiv(rows_padded, down) * triton.cdiv(cols, across)
    wrap(triton_kernels.cast_pair_kernel)[(programs,)](
        *arguments, PARTIALS=PARTIALS, LARGEST=_FORMATS[format][1], FLOOR=SCALE_FLOOR, POWER_OF_TWO=power_of_two,
        STRAIGHT=True, TURNED=turn, TILE_ROWS=down, TILE_COLS=across, num_warps=warps,
    )
    first, first_turned, first_scale, second, second_turned, second_scale = results
    return first, first_turned, first_scale, second, second_turned, second_scale


def _cast_rows(x: Tensor, format: str, power_of_two: bool, wrap: Wrap) -> Tuple[Tensor, Tensor]:
    rows, cols = x.shape
    fp8, largest = _FORMATS[format]
    out = room(rows, cols, fp8, x.device)
    scale = torch.empty((rows, 1), dtype=torch.float32, device=x.device)
    block = triton.next_power_of_2(cols)
    wrap(triton_kernels.cast_rows_kernel)[(rows,)](
        x, out, scale, cols, out.stride(0), LARGEST=largest, FLOOR=SCALE_FLOOR, POWER_OF_TWO=power_of_two, BLOCK=block,
        num_warps=2 if block <= 1024 else 4 if block <= 4096 else 8,
    )
    return out[:, :cols], scale


def _cast_blocks(x: Tensor, format: str, power_of_two: bool, straight: int, turn: int, wrap: Wrap) -> Cast4:
    rows, cols = x.shape
    padded = _multiple(rows, BLOCK)
    fp8, largest = _FORMATS[format]
    down, across = padded // BLOCK, cols // BLOCK
    empty: Callable[..., Tensor] = lambda size, dtype: torch.empty(size, dtype=dtype, device=x.device)
    out = empty((padded, cols) if straight else (0, 0), fp8)
    turned = empty((cols, padded) if turn else (0, 0), fp8)
    # cuBLASLt reads the scales of square blocks in steps of 4 along the reduced side; what pads them is zero.
    stride, turned_stride = _multiple(across, 4), _multiple(down, 4)
    square: Callable[..., Tensor] = lambda size: torch.zeros(size, dtype=torch.float32, device=x.device)
    one_sided: Callable[..., Tensor] = lambda size: empty(size, torch.float32)
    scale = square((down, stride)) if straight == 2 else one_sided((across, padded) if straight else (0, 0))
    turned_scale = square((across, turned_stride)) if turn == 2 else one_sided((down, cols) if turn else (0, 0))
    wrap(triton_kernels.cast_blocks_kernel)[(down * across,)](
        x, out, turned, scale, turned_scale, rows, cols, padded, stride, turned_stride, LARGEST=largest,
        FLOOR=SCALE_FLOOR, POWER_OF_TWO=power_of_two, STRAIGHT=straight, TURNED=turn, BLOCK=BLOCK, num_warps=8,
    )
    return out, turned, scale, turned_scale


@triton_op("loka::amax", mutates_args=())
def _amax_op(x: Tensor, rounded: bool) -> Tensor:
    return _amax(x, rounded, wrap_triton)


@triton_op("loka::amax_rows_cols", mutates_args=())
def _amax_rows_cols_op(x: Tensor, straight: bool, turn: bool) -> Tuple[Tensor, Tensor]:
    return _amax_rows_cols(x, straight, turn, wrap_triton)


@triton_op("loka::cast", mutates_args=())
def _cast_op(
    x: Tensor, row_amax: Tensor, col_amax: Tensor, tensorwise: bool, format: str, power_of_two: bool, straight: bool,
    turn: bool, multiple: int, rounded: bool,
) -> Tuple[Tensor, Tensor, Tensor, Tensor]:
    return _cast(
        x, row_amax, col_amax, tensorwise, format, power_of_two, straight, turn, multiple, rounded, wrap_triton
    )


@triton_op("loka::cast_known", mutates_args=())
def _cast_known_op(
    x: Tensor, inverse: Tensor, format: str, straight: bool, turn: bool, multiple: int
) -> Tuple[Tensor, Tensor, Tensor]:
    return _cast_known(x, inverse, format, straight, turn, multiple, None, None, None, None, None, wrap_triton)


@triton_op("loka::cast_noted", mutates_args=("amax", "first_amax", "second_amax"))
def _cast_noted_op(
    x: Tensor, inverse: Tensor, format: str, straight: bool, turn: bool, multiple: int, amax: Tensor, first: Optional[Tensor],
    first_amax: Optional[Tensor], second: Optional[Tensor], second_amax: Optional[Tensor],
) -> Tuple[Tensor, Tensor]:
    out, turned, _ = _cast_known(
        x, inverse, format, straight, turn, multiple, amax, first, first_amax, second, second_amax, wrap_triton
    )
    return out, turned


@triton_op("loka::amax_pair", mutates_args=())
def _amax_pair_op(x: Tensor, y: Tensor) -> Tuple[Tensor, Tensor]:
    return _amax_pair(x, y, wrap_triton)


@triton_op("loka::cast_pair", mutates_args=())
def _cast_pair_op(
    x: Tensor, x_amax: Tensor, y: Tensor, y_amax: Tensor, format: str, power_of_two: bool, turn: bool, multiple: int
) -> Tuple[Tensor, Tensor, Tensor, Tensor, Tensor, Tensor]:
    return _cast_pair(x, x_amax, y, y_amax, format, power_of_two, turn, multiple, wrap_triton)


@triton_op("loka::cast_rows", mutates_args=())
def _cast_rows_op(x: Tensor, format: str, power_of_two: bool) -> Tuple[Tensor, Tensor]:
    return _cast_rows(x, format, power_of_two, wrap_triton)


@triton_op("loka::cast_blocks", mutates_args=())
def _cast_blocks_op(
    x: Tensor, format: str, power_of_two: bool, straight: int, turn: int
) -> Tuple[Tensor, Tensor, Tensor, Tensor]:
    return _cast_blocks(x, format, power_of_two, straight, turn, wrap_triton)


def amax(x: Tensor, rounded: bool = False) -> Tensor:
    """Int32 [PARTIALS], the largest of which is the largest |x| as FP32 bits. x is contiguous. `rounded`: to BF16."""
    if torch.compiler.is_compiling():
        return _amax_op(x, rounded)
    with on(x.device):
        return _amax(x, rounded, plain)


def amax_rows_cols(x: Tensor, straight: bool, turn: bool) -> Tuple[Tensor, Tensor]:
    """The largest |x| of each row and of each column as FP32 bits, Int32; empty where not asked for."""
    if torch.compiler.is_compiling():
        return _amax_rows_cols_op(x, straight, turn)
    with torch.cuda.device(x.device):
        return _amax_rows_cols(x, straight, turn, plain)


def cast(
    x: Tensor, row_amax: Tensor, col_amax: Tensor, tensorwise: bool, format: str, power_of_two: bool, straight: bool,
    turn: bool, multiple: int, rounded: bool = False,
) -> Cast4:
    """(FP8 [rows, cols], FP8 turned [cols, rows padded to `multiple`], scale [1] or [rows, 1], scale [cols, 1]); what
    was not asked for is empty. x [rows, cols] is contiguous; `row_amax` is from `amax` when `tensorwise`, else of each
    row. `rounded`: FP32 x is rounded to BF16 first."""
    if torch.compiler.is_compiling():
        return _cast_op(x, row_amax, col_amax, tensorwise, format, power_of_two, straight, turn, multiple, rounded)
    with torch.cuda.device(x.device):
        return _cast(
            x, row_amax, col_amax, tensorwise, format, power_of_two, straight, turn, multiple, rounded, plain
        )


def cast_known(
    x: Tensor, inverse: Tensor, format: str, straight: bool, turn: bool, multiple: int, notes: Optional[Notes] = None
) -> Tuple[Tensor, Tensor, Optional[Tensor]]:
    """(FP8 [rows, cols], FP8 turned [cols, rows padded to `multiple`], largest |x| of each tile, or None where they are noted) by a scale
    that is known beforehand, a power of two; what was not asked for is empty. x [rows, cols] is contiguous and read once."""
    told = told_of(notes)
    if torch.compiler.is_compiling():
        if notes is None:
            return _cast_known_op(x, inverse, format, straight, turn, multiple)
        return *_cast_noted_op(x, inverse, format, straight, turn, multiple, notes.amax, *told[1:]), None
    with torch.cuda.device(x.device):
        out, turned, maxima = _cast_known(x, inverse, format, straight, turn, multiple, *told, plain)
    return out, turned, maxima if notes is None else None


Told = Tuple[Optional[Tensor], Optional[Tensor], Optional[Tensor], Optional[Tensor], Optional[Tensor]]


def told_of(notes: Optional[Notes]) -> Told:
    """As `noted` takes them, one by one."""
    if notes is None:
        return None, None, None, None, None
    first, first_amax = notes.others[0] if notes.others else (None, None)
    second, second_amax = notes.others[1] if len(notes.others) > 1 else (None, None)
    return notes.amax, first, first_amax, second, second_amax


def _note(amax: Tensor, maxima: Tensor, wrap: Wrap) -> None:
    count = maxima.numel()
    wrap(triton_kernels.note_kernel)[(triton.cdiv(count, NOTE),)](maxima, amax, count)


@triton_op("loka::note", mutates_args=("amax",))
def _note_op(amax: Tensor, maxima: Tensor) -> None:
    _note(amax, maxima, wrap_triton)


def note(amax: Tensor, maxima: Tensor) -> None:
    """`delayed.note`, in one launch."""
    maxima = maxima.contiguous()
    if torch.compiler.is_compiling():
        _note_op(amax, maxima)
        return
    with on(maxima.device):
        _note(amax, maxima, plain)


def amax_pair(x: Tensor, y: Tensor) -> Tuple[Tensor, Tensor]:
    """`amax` of both, in one launch."""
    if torch.compiler.is_compiling():
        return _amax_pair_op(x, y)
    with torch.cuda.device(x.device):
        return _amax_pair(x, y, plain)


def cast_pair(
    x: Tensor, x_amax: Tensor, y: Tensor, y_amax: Tensor, format: str, power_of_two: bool, turn: bool, multiple: int
) -> Cast6:
    """(FP8, turned, scale [1]) of x and then of y, tensorwise, in one launch; turned is empty unless `turn`."""
    if torch.compiler.is_compiling():
        return _cast_pair_op(x, x_amax, y, y_amax, format, power_of_two, turn, multiple)
    with torch.cuda.device(x.device):
        return _cast_pair(x, x_amax, y, y_amax, format, power_of_two, turn, multiple, plain)


def cast_rows(x: Tensor, format: str, power_of_two: bool) -> Tuple[Tensor, Tensor]:
    """(FP8 [rows, cols], scale [rows, 1]), read once. At most LONGEST_ROW columns."""
    if torch.compiler.is_compiling():
        return _cast_rows_op(x, format, power_of_two)
    with torch.cuda.device(x.device):
        return _cast_rows(x, format, power_of_two, plain)


def cast_blocks(x: Tensor, format: str, power_of_two: bool, straight: int, turn: int) -> Cast4:
    """(FP8 [padded rows, cols], FP8 turned, scales, scales turned), rows padded to whole blocks. `straight`, `turn`: 0
    nothing, 1 scales of 1 x 128 as [blocks, rows], 2 of 128 x 128 as [row blocks, blocks padded to 4]."""
    if torch.compiler.is_compiling():
        return _cast_blocks_op(x, format, power_of_two, straight, turn)
    with torch.cuda.device(x.device):
        return _cast_blocks(x, format, power_of_two, straight, turn, plain)


__all__ = [
    "LONGEST_ROW", "NOTE", "PARTIALS", "Wrap", "amax", "amax_pair", "amax_rows_cols", "both_layouts", "cast", "cast_blocks", "cast_known",
    "cast_pair", "cast_rows", "note", "noted", "plain", "told_of",
]
