"""The GPU kernels of the casts, in Triton: maxima of |x|, and FP8 tiles straight and turned with their scales.

|x| is compared as the integer of its FP32 bits: infinity sorts above every number and NaN above infinity, so that a NaN
is never lost, which a floating-point maximum would do. Every element of x is read once and written once a layout.
"""

import triton
import triton.language as tl


@triton.jit
def magnitude(value):
    """|value| as the integer of its FP32 bits."""
    return value.to(tl.float32).to(tl.int32, bitcast=True) & 0x7FFFFFFF


@triton.jit
def scale_from_bits(amax_bits, LARGEST: tl.constexpr, FLOOR: tl.constexpr, POWER_OF_TWO: tl.constexpr):
    """The divisor of a group, as `scales.scale_from_amax` has it."""
    scale = tl.div_rn(amax_bits.to(tl.float32, bitcast=True), LARGEST)
    # Not maximum, which would drop a NaN.
    scale = tl.where(scale < FLOOR, FLOOR, scale)
    if POWER_OF_TWO:
        bits = scale.to(tl.int32, bitcast=True)
        raised = (bits + 0x7FFFFF) & 0x7F800000
        scale = tl.where(bits < 0x7F800000, raised, bits).to(tl.float32, bitcast=True)
    return scale


@triton.jit
def divide(x, scale, reciprocal):
    """x / scale, correctly rounded: a product with the reciprocal is not, one correction (Markstein) makes it so.
    Residuals do not underflow: scale >= 1e-12, and quotients under 2^-18 are zeros in both formats. -0 becomes 0."""
    quotient = x * reciprocal
    residual = tl.fma(-quotient, scale, x)
    return tl.fma(residual, reciprocal, quotient)


@triton.jit
def loaded(x, at, mask, ROUNDED: tl.constexpr):
    """x there, zeros outside; ROUNDED: to BF16."""
    value = tl.load(x + at, mask=mask, other=0.0)
    if ROUNDED:
        value = value.to(tl.bfloat16)
    return value


@triton.jit
def amax_part(x, partials, numel, program, PROGRAMS: tl.constexpr, BLOCK: tl.constexpr, ROUNDED: tl.constexpr):
    """partials[program] = the largest |x| of every PROGRAMS-th block, as bits."""
    largest = tl.zeros([BLOCK], tl.int32)
    for first in range(0, numel, PROGRAMS * BLOCK):
        at = first + program * BLOCK + tl.arange(0, BLOCK)
        largest = tl.maximum(largest, magnitude(loaded(x, at, at < numel, ROUNDED)))
    tl.store(partials + program, tl.max(largest, 0))


@triton.jit
def amax_kernel(x, partials, numel, PROGRAMS: tl.constexpr, BLOCK: tl.constexpr, ROUNDED: tl.constexpr):
    """PROGRAMS partial maxima of x."""
    amax_part(x, partials, numel, tl.program_id(0), PROGRAMS, BLOCK, ROUNDED)


@triton.jit
def amax_pair_kernel(
    x, y, x_partials, y_partials, x_numel, y_numel, PROGRAMS: tl.constexpr, BLOCK: tl.constexpr
):
    """PROGRAMS partial maxima of x and as many of y, in one launch."""
    program = tl.program_id(0)
    if program < PROGRAMS:
        amax_part(x, x_partials, x_numel, program, PROGRAMS, BLOCK, False)
    else:
        amax_part(y, y_partials, y_numel, program - PROGRAMS, PROGRAMS, BLOCK, False)


@triton.jit
def place(row, col, pitch):
    """Where the elements of a tile lie in memory whose rows begin `pitch` elements apart."""
    return row.to(tl.int64)[:, None] * pitch + col[None, :]


@triton.jit
def tile(program, rows, cols, TILE_ROWS: tl.constexpr, TILE_COLS: tl.constexpr):
    """(rows, columns, which of its elements are there, where these lie in memory [rows, cols]) of the tile of that number; they are counted
    along the columns first."""
    across = tl.cdiv(cols, TILE_COLS)
    row = program // across * TILE_ROWS + tl.arange(0, TILE_ROWS)
    col = program % across * TILE_COLS + tl.arange(0, TILE_COLS)
    inside = (row < rows)[:, None] & (col < cols)[None, :]
    return row, col, inside, place(row, col, cols)


@triton.jit
def zero_pair_kernel(first, second, first_count, second_count, BLOCK: tl.constexpr):
    """Zeros in both, one behind the other."""
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    zeros = tl.zeros([BLOCK], tl.int32)
    tl.store(first + at, zeros, mask=at < first_count)
    behind = at - first_count
    tl.store(second + behind, zeros, mask=(behind >= 0) & (behind < second_count))


@triton.jit
def amax_rows_cols_kernel(
    x, row_amax, col_amax, rows, cols,
    STRAIGHT: tl.constexpr, TURNED: tl.constexpr, TILE_ROWS: tl.constexpr, TILE_COLS: tl.constexpr,
):
    """The largest |x| of every row and every column, as bits, into memory that holds zeros."""
    row, col, inside, at = tile(tl.program_id(0), rows, cols, TILE_ROWS, TILE_COLS)
    bits = magnitude(tl.load(x + at, mask=inside, other=0.0))
    if STRAIGHT:
        tl.atomic_max(row_amax + row, tl.max(bits, 1), mask=row < rows, sem="relaxed")
    if TURNED:
        tl.atomic_max(col_amax + col, tl.max(bits, 0), mask=col < cols, sem="relaxed")


@triton.jit
def cast_tile(
    x, row_amax, col_amax, out, turned, row_scale, col_scale, rows, cols, rows_padded, pitch, turned_pitch, program,
    PARTIALS: tl.constexpr, LARGEST: tl.constexpr, FLOOR: tl.constexpr, POWER_OF_TWO: tl.constexpr,
    STRAIGHT: tl.constexpr, TURNED: tl.constexpr, TILE_ROWS: tl.constexpr, TILE_COLS: tl.constexpr,
    ROUNDED: tl.constexpr,
):
    """One tile. PARTIALS > 0: one scale from that many maxima at `row_amax`; 0: one a row and one a column. `pitch`, `turned_pitch`: from
    one row of codes to the next."""
    across_all = tl.cdiv(cols, TILE_COLS)
    down, across = program // across_all, program % across_all
    row, col, inside, at = tile(program, rows, cols, TILE_ROWS, TILE_COLS)
    value = loaded(x, at, inside, ROUNDED)
    if PARTIALS > 0:
        amax = tl.max(tl.load(row_amax + tl.arange(0, PARTIALS)), 0)
        scale = scale_from_bits(amax, LARGEST, FLOOR, POWER_OF_TWO)
        reciprocal = tl.div_rn(1.0, scale)
        if program == 0:
            tl.store(row_scale, scale)
    if STRAIGHT:
        if PARTIALS > 0:
            cast = divide(value.to(tl.float32), scale, reciprocal)
        else:
            amax = tl.load(row_amax + row, mask=row < rows, other=0)
            scales = scale_from_bits(amax, LARGEST, FLOOR, POWER_OF_TWO)
            if across == 0:
                tl.store(row_scale + row, scales, mask=row < rows)
            cast = divide(value.to(tl.float32), scales[:, None], tl.div_rn(1.0, scales)[:, None])
        tl.store(out + place(row, col, pitch), cast.to(out.dtype.element_ty), mask=inside)
    if TURNED:
        # Turned before the cast, not after: Triton 3.6 writes wrong values when one FP8 tile has both layouts.
        flipped = tl.trans(value).to(tl.float32)
        if PARTIALS > 0:
            cast = divide(flipped, scale, reciprocal)
        else:
            amax = tl.load(col_amax + col, mask=col < cols, other=0)
            scales = scale_from_bits(amax, LARGEST, FLOOR, POWER_OF_TWO)
            if down == 0:
                tl.store(col_scale + col, scales, mask=col < cols)
            cast = divide(flipped, scales[:, None], tl.div_rn(1.0, scales)[:, None])
        # Rows past the last are zeros: padding adds nothing to the product.
        there = (col < cols)[:, None] & (row < rows_padded)[None, :]
        tl.store(turned + place(col, row, turned_pitch), cast.to(turned.dtype.element_ty), mask=there)


@triton.jit
def cast_kernel(
    x, row_amax, col_amax, out, turned, row_scale, col_scale, rows, cols, rows_padded, pitch, turned_pitch,
    PARTIALS: tl.constexpr, LARGEST: tl.constexpr, FLOOR: tl.constexpr, POWER_OF_TWO: tl.constexpr,
    STRAIGHT: tl.constexpr, TURNED: tl.constexpr, TILE_ROWS: tl.constexpr, TILE_COLS: tl.constexpr,
    ROUNDED: tl.constexpr,
):
    """A tile a program."""
    cast_tile(
        x, row_amax, col_amax, out, turned, row_scale, col_scale, rows, cols, rows_padded, pitch, turned_pitch, tl.program_id(0),
        PARTIALS, LARGEST, FLOOR, POWER_OF_TWO, STRAIGHT, TURNED, TILE_ROWS, TILE_COLS, ROUNDED,
    )


@triton.jit
def cast_pair_kernel(
    x, x_amax, x_out, x_turned, x_scale, x_rows, x_cols, x_rows_padded, x_pitch, x_turned_pitch,
    y, y_amax, y_out, y_turned, y_scale, y_rows, y_cols, y_rows_padded, y_pitch, y_turned_pitch,
    PARTIALS: tl.constexpr, LARGEST: tl.constexpr, FLOOR: tl.constexpr, POWER_OF_TWO: tl.constexpr,
    STRAIGHT: tl.constexpr, TURNED: tl.constexpr, TILE_ROWS: tl.constexpr, TILE_COLS: tl.constexpr,
):
    """The tiles of x, then those of y, tensorwise, in one launch."""
    program = tl.program_id(0)
    tiles = tl.cdiv(x_rows_padded, TILE_ROWS) * tl.cdiv(x_cols, TILE_COLS)
    if program < tiles:
        cast_tile(
            x, x_amax, x_amax, x_out, x_turned, x_scale, x_scale, x_rows, x_cols, x_rows_padded, x_pitch, x_turned_pitch, program,
            PARTIALS, LARGEST, FLOOR, POWER_OF_TWO, STRAIGHT, TURNED, TILE_ROWS, TILE_COLS, False,
        )
    else:
        cast_tile(
            y, y_amax, y_amax, y_out, y_turned, y_scale, y_scale, y_rows, y_cols, y_rows_padded, y_pitch, y_turned_pitch, program - tiles,
            PARTIALS, LARGEST, FLOOR, POWER_OF_TWO, STRAIGHT, TURNED, TILE_ROWS, TILE_COLS, False,
        )


NOTE = tl.constexpr(1024)
"""Maxima of another operand that a program looks at."""


@triton.jit
def note_part(maxima, amax, count, program):
    """Raises `amax` to the largest of these, as bits: what is not finite is above every number, and stays."""
    at = program * NOTE + tl.arange(0, NOTE)
    bits = tl.max(magnitude(tl.load(maxima + at, mask=at < count, other=0.0)), 0)
    tl.atomic_max(amax.to(tl.pointer_type(tl.int32), bitcast=True), bits, mask=program * NOTE < count, sem="relaxed")


@triton.jit
def note_tile(bits, partials, program, first, first_amax, first_count, second, second_amax, second_count, NOTED: tl.constexpr):
    """The largest |x| of a tile: into partials[program], or with NOTED straight to where scales follow it; then maxima of NOTED - 1 other
    operands are, too, by whichever program finds some at its place."""
    if NOTED == 0:
        tl.store(partials + program, bits.to(tl.float32, bitcast=True))
    else:
        tl.atomic_max(partials.to(tl.pointer_type(tl.int32), bitcast=True), bits, sem="relaxed")
    if NOTED > 1:
        note_part(first, first_amax, first_count, program)
    if NOTED > 2:
        note_part(second, second_amax, second_count, program)


@triton.jit
def cast_known_kernel(
    x, inverse, out, turned, partials, first, first_amax, first_count, second, second_amax, second_count, rows, cols, rows_padded, pitch,
    turned_pitch,
    NOTED: tl.constexpr, STRAIGHT: tl.constexpr, TURNED: tl.constexpr, TILE_ROWS: tl.constexpr, TILE_COLS: tl.constexpr,
):
    """A tile a program by a scale that is known, a power of two: x is read once, for codes in both layouts and for the largest |x| of the
    tile as FP32, in partials[program] or noted (`note_tile`)."""
    row, col, inside, at = tile(tl.program_id(0), rows, cols, TILE_ROWS, TILE_COLS)
    value = tl.load(x + at, mask=inside, other=0.0)
    by = tl.load(inverse)
    if STRAIGHT:
        tl.store(out + place(row, col, pitch), known_code(value, by).to(out.dtype.element_ty), mask=inside)
    if TURNED:
        # Turned before the cast, as in `cast_tile`. Rows past the last are zeros.
        there = (col < cols)[:, None] & (row < rows_padded)[None, :]
        tl.store(turned + place(col, row, turned_pitch), known_code(tl.trans(value), by).to(turned.dtype.element_ty), mask=there)
    # Last: the stores above are then on their way while the maximum is found.
    largest = tl.max(tl.max(magnitude(value), 1), 0)
    note_tile(largest, partials, tl.program_id(0), first, first_amax, first_count, second, second_amax, second_count, NOTED)


@triton.jit
def known_code(value, inverse):
    """value * inverse, to be cast to the format; NaN of what is not finite, so that it is never taken for a large number.
    Nothing is clamped here: a GPU's casts to FP8 saturate (PTX has `cvt` to FP8 with `.satfinite` alone), and the two
    comparisons each way were what the kernel waited for."""
    scaled = value.to(tl.float32) * inverse
    return tl.fma(scaled, 0.0, scaled)


@triton.jit
def cast_rows_kernel(
    x, out, row_scale, cols, pitch, LARGEST: tl.constexpr, FLOOR: tl.constexpr, POWER_OF_TWO: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """One row, held in registers between its maximum and its cast: read once."""
    row = tl.program_id(0)
    col = tl.arange(0, BLOCK)
    value = tl.load(x + row.to(tl.int64) * cols + col, mask=col < cols, other=0.0)
    scale = scale_from_bits(tl.max(magnitude(value), 0), LARGEST, FLOOR, POWER_OF_TWO)
    tl.store(row_scale + row, scale)
    cast = divide(value.to(tl.float32), scale, tl.div_rn(1.0, scale))
    tl.store(out + row.to(tl.int64) * pitch + col, cast.to(out.dtype.element_ty), mask=col < cols)


@triton.jit
def cast_blocks_kernel(
    x, out, turned, scale, turned_scale, rows, cols, rows_padded, stride, turned_stride,
    LARGEST: tl.constexpr, FLOOR: tl.constexpr, POWER_OF_TWO: tl.constexpr,
    STRAIGHT: tl.constexpr, TURNED: tl.constexpr, BLOCK: tl.constexpr,
):
    """One tile of BLOCK x BLOCK. STRAIGHT, TURNED: 0 none, 1 a scale each 1 x BLOCK, 2 one a tile. Scales of kind 1 lie
    as [blocks, rows of the operand], those of kind 2 as [row blocks, stride]. cols are whole blocks."""
    across_all = cols // BLOCK
    down, across = tl.program_id(0) // across_all, tl.program_id(0) % across_all
    row = down * BLOCK + tl.arange(0, BLOCK)
    col = across * BLOCK + tl.arange(0, BLOCK)
    at = row.to(tl.int64)[:, None] * cols + col[None, :]
    value = tl.load(x + at, mask=(row < rows)[:, None], other=0.0)
    if STRAIGHT == 1:
        scales = scale_from_bits(tl.max(magnitude(value), 1), LARGEST, FLOOR, POWER_OF_TWO)
        tl.store(scale + across.to(tl.int64) * rows_padded + row, scales)
        cast = divide(value.to(tl.float32), scales[:, None], tl.div_rn(1.0, scales)[:, None])
        tl.store(out + at, cast.to(out.dtype.element_ty))
    flipped = tl.trans(value)
    to = turned + col.to(tl.int64)[:, None] * rows_padded + row[None, :]
    if TURNED == 1:
        scales = scale_from_bits(tl.max(magnitude(flipped), 1), LARGEST, FLOOR, POWER_OF_TWO)
        tl.store(turned_scale + down.to(tl.int64) * cols + col, scales)
        cast = divide(flipped.to(tl.float32), scales[:, None], tl.div_rn(1.0, scales)[:, None])
        tl.store(to, cast.to(turned.dtype.element_ty))
    if STRAIGHT == 2 or TURNED == 2:
        one = scale_from_bits(tl.max(tl.max(magnitude(value), 1), 0), LARGEST, FLOOR, POWER_OF_TWO)
        reciprocal = tl.div_rn(1.0, one)
        if STRAIGHT == 2:
            tl.store(scale + down * stride + across, one)
            cast = divide(value.to(tl.float32), one, reciprocal)
            tl.store(out + at, cast.to(out.dtype.element_ty))
        if TURNED == 2:
            tl.store(turned_scale + across * turned_stride + down, one)
            cast = divide(flipped.to(tl.float32), one, reciprocal)
            tl.store(to, cast.to(turned.dtype.element_ty))


WEIGHT_FIELDS = tl.constexpr(12)
"""Of a table's row: addresses of the weight, its codes, those turned, and the scales of both; rows, columns; the first
tile; where the maxima of its rows and of its columns begin; and from one row of codes to the next, straight and turned."""


@triton.jit
def weight_entry(table, tile_of, ALIGNED: tl.constexpr):
    """(row of the table, tile of that weight, its rows, its columns) of this program."""
    entry = table + tl.load(tile_of + tl.program_id(0)).to(tl.int64) * WEIGHT_FIELDS
    rows, cols = tl.load(entry + 5).to(tl.int32), tl.load(entry + 6).to(tl.int32)
    if ALIGNED:
        rows, cols = tl.multiple_of(rows, 16), tl.multiple_of(cols, 16)
    return entry, (tl.program_id(0) - tl.load(entry + 7)).to(tl.int32), rows, cols


@triton.jit
def weight_part(entry, TYPE: tl.constexpr, ALIGNED: tl.constexpr):
    """The memory whose address stands there. What comes from a table the compiler knows nothing of: without being told
    that it lies at a multiple of 16 bytes it moves element by element."""
    part = tl.load(entry).to(tl.pointer_type(TYPE))
    if ALIGNED:
        part = tl.multiple_of(part, 16)
    return part


@triton.jit
def weights_amax_kernel(
    table, tile_of, row_amax, col_amax, TYPE: tl.constexpr, ROWWISE: tl.constexpr, STRAIGHT: tl.constexpr,
    TURNED: tl.constexpr, ROUNDED: tl.constexpr, ALIGNED: tl.constexpr, TILE_ROWS: tl.constexpr,
    TILE_COLS: tl.constexpr,
):
    """The largest |x| of every weight, or of each of its rows and columns, as bits, into memory that holds zeros."""
    entry, number, rows, cols = weight_entry(table, tile_of, ALIGNED)
    x = weight_part(entry, TYPE, ALIGNED)
    row, col, inside, at = tile(number, rows, cols, TILE_ROWS, TILE_COLS)
    bits = magnitude(loaded(x, at, inside, ROUNDED))
    if ROWWISE:
        if STRAIGHT:
            to = row_amax + tl.load(entry + 8) + row
            tl.atomic_max(to, tl.max(bits, 1), mask=row < rows, sem="relaxed")
        if TURNED:
            to = col_amax + tl.load(entry + 9) + col
            tl.atomic_max(to, tl.max(bits, 0), mask=col < cols, sem="relaxed")
    else:
        tl.atomic_max(row_amax + tl.load(entry + 8), tl.max(tl.max(bits, 1), 0), sem="relaxed")


@triton.jit
def weights_cast_kernel(
    table, tile_of, row_amax, col_amax, TYPE: tl.constexpr, CODES: tl.constexpr,
    ROWWISE: tl.constexpr, LARGEST: tl.constexpr, FLOOR: tl.constexpr, POWER_OF_TWO: tl.constexpr,
    STRAIGHT: tl.constexpr, TURNED: tl.constexpr, ROUNDED: tl.constexpr, ALIGNED: tl.constexpr,
    TILE_ROWS: tl.constexpr, TILE_COLS: tl.constexpr,
):
    """The tiles of all weights, by these maxima. ALIGNED: all parts of every weight lie at multiples of 16 bytes, and so
    does each of their rows, whose numbers of elements are such multiples, too."""
    entry, number, rows, cols = weight_entry(table, tile_of, ALIGNED)
    x = weight_part(entry, TYPE, ALIGNED)
    out = weight_part(entry + 1, CODES, ALIGNED)
    turned = weight_part(entry + 2, CODES, ALIGNED)
    row_scale = tl.load(entry + 3).to(tl.pointer_type(tl.float32))
    col_scale = tl.load(entry + 4).to(tl.pointer_type(tl.float32))
    pitch, turned_pitch = tl.load(entry + 10).to(tl.int32), tl.load(entry + 11).to(tl.int32)
    if ALIGNED:
        pitch, turned_pitch = tl.multiple_of(pitch, 16), tl.multiple_of(turned_pitch, 16)
    cast_tile(
        x, row_amax + tl.load(entry + 8), col_amax + tl.load(entry + 9), out, turned, row_scale, col_scale,
        rows, cols, rows, pitch, turned_pitch, number, 0 if ROWWISE else 1, LARGEST, FLOOR, POWER_OF_TWO, STRAIGHT, TURNED,
        TILE_ROWS, TILE_COLS, ROUNDED,
    )


@triton.jit
def advance_kernel(
    seen, decaying, scale, inverse, overflow, count, STRIDE: tl.constexpr, DECAY: tl.constexpr, FACTOR: tl.constexpr,
    RANGE: tl.constexpr, LEAST: tl.constexpr, MOST: tl.constexpr, BLOCK: tl.constexpr,
):
    """Scales of the next step from the largest values of this one, `seen` at these addresses, which become zeros:
    `delayed.History.advance`."""
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = at < count
    address = tl.load(seen + at, mask=inside, other=0).to(tl.pointer_type(tl.float32))
    now = tl.load(address, mask=inside, other=0.0)
    # What is not finite is no size to go by.
    now = tl.where(magnitude(now) < 0x7F800000, now, 0.0)
    known = tl.load(scale + at * STRIDE, mask=inside, other=0.0) > 0
    beyond = tl.where(known, now * tl.load(inverse + at * STRIDE, mask=inside, other=0.0) * RANGE, 0.0)
    steps = tl.load(overflow + 2 * at, mask=inside, other=0.0)
    most = tl.load(overflow + 2 * at + 1, mask=inside, other=0.0)
    tl.store(overflow + 2 * at, steps + tl.where(beyond > 1, 1.0, 0.0), mask=inside)
    tl.store(overflow + 2 * at + 1, tl.maximum(most, beyond), mask=inside)
    before = tl.load(decaying + at, mask=inside, other=0.0)
    after = tl.where(now > 0, tl.maximum(now, before * DECAY), before)
    tl.store(decaying + at, after, mask=inside)
    bounded = tl.minimum(tl.maximum(after * FACTOR, LEAST), MOST)
    bits = (bounded.to(tl.int32, bitcast=True) & 0x7F800000) + 0x00800000
    tl.store(scale + at * STRIDE, tl.where(after > 0, bits, 0).to(tl.float32, bitcast=True), mask=inside)
    tl.store(inverse + at * STRIDE, ((254 << 23) - bits).to(tl.float32, bitcast=True), mask=inside)
    tl.store(address, tl.zeros([BLOCK], tl.float32), mask=inside)


@triton.jit
def find_scale_kernel(
    partials, known, scale, inverse, PARTIALS: tl.constexpr, KNOWN: tl.constexpr, FACTOR: tl.constexpr, LEAST: tl.constexpr,
    MOST: tl.constexpr,
):
    """The scale that leaves room above the largest of PARTIALS, bits of |x|, or `known` where that is not 0; one program:
    `delayed.scale_now`."""
    largest = tl.max(tl.load(partials + tl.arange(0, PARTIALS)), 0)
    bounded = tl.minimum(tl.maximum(largest.to(tl.float32, bitcast=True) * FACTOR, LEAST), MOST)
    bits = (bounded.to(tl.int32, bitcast=True) & 0x7F800000) + 0x00800000
    # What is not finite stays so.
    found = tl.where(largest < 0x7F800000, bits, 0x7FC00000).to(tl.float32, bitcast=True)
    if KNOWN:
        before = tl.load(known)
        found = tl.where(before > 0, before, found)
    tl.store(scale, found)
    tl.store(inverse, tl.div_rn(1.0, found))


@triton.jit
def note_kernel(maxima, amax, count):
    """The larger of `amax` and all maxima: `delayed.note`."""
    note_part(maxima, amax, count, tl.program_id(0))


WATCH_FIELDS = tl.constexpr(13)
"""How many `watch.FIELDS` names."""


@triton.jit
def observe_kernel(
    got, rows, reference, left, scale, partials, cols, row_stride, col_stride, num_errors, num_left, error_programs, whole_rows,
    STATIC: tl.constexpr, LARGEST: tl.constexpr, ZERO_TO: tl.constexpr, BLOCK: tl.constexpr,
):
    """partials[program] = its part of what `watch.FIELDS` names: the first programs of the errors of sampled rows, the others
    of the left operand's elements. STATIC: by `scale`, what is beyond LARGEST saturates, and up to ZERO_TO becomes zero."""
    program = tl.program_id(0)
    error = tl.zeros([], tl.float64)
    square = tl.zeros([], tl.float64)
    saturated = tl.zeros([], tl.int32)
    flushed = tl.zeros([], tl.int32)
    flushed_mass = tl.zeros([], tl.float64)
    nonzero = tl.zeros([], tl.int32)
    mass = tl.zeros([], tl.float64)
    not_finite = tl.zeros([], tl.int32)
    answers = tl.zeros([], tl.int32)
    lost = tl.zeros([], tl.int32)
    if program < error_programs:
        at = program * BLOCK + tl.arange(0, BLOCK)
        inside = at < num_errors
        row = tl.load(rows + at // cols, mask=inside, other=0)
        value = tl.load(got + row * row_stride + (at % cols).to(tl.int64) * col_stride, mask=inside, other=0.0).to(tl.float64)
        expected = tl.load(reference + at, mask=inside, other=0.0).to(tl.float64)
        error = tl.sum((value - expected) * (value - expected), 0)
        square = tl.sum(expected * expected, 0)
        # Neither infinite nor NaN: what is either is no number when taken from itself.
        not_finite = tl.sum((value - value != 0).to(tl.int32), 0)
        answers = tl.sum((expected != 0).to(tl.int32), 0)
        lost = tl.sum(((expected != 0) & (value == 0)).to(tl.int32), 0)
    else:
        spot = (program - error_programs) * BLOCK + tl.arange(0, BLOCK)
        element = tl.load(left + spot, mask=spot < num_left, other=0.0).to(tl.float32)
        lives = element != 0
        nonzero = tl.sum(lives.to(tl.int32), 0)
        mass = tl.sum(tl.abs(element).to(tl.float64), 0)
        if STATIC:
            size = tl.abs(tl.div_rn(element, tl.load(scale)))
            saturated = tl.sum((size > LARGEST).to(tl.int32), 0)
            gone = lives & (size <= ZERO_TO)
            flushed = tl.sum(gone.to(tl.int32), 0)
            flushed_mass = tl.sum(tl.where(gone, tl.abs(element), 0.0).to(tl.float64), 0)
    to = partials + program * WATCH_FIELDS
    is_first = (program == 0).to(tl.float64)
    tl.store(to, error)
    tl.store(to + 1, square)
    tl.store(to + 2, saturated.to(tl.float64))
    tl.store(to + 3, flushed.to(tl.float64))
    tl.store(to + 4, flushed_mass)
    tl.store(to + 5, nonzero.to(tl.float64))
    tl.store(to + 6, mass)
    tl.store(to + 7, is_first * num_left)
    tl.store(to + 8, not_finite.to(tl.float64))
    tl.store(to + 9, answers.to(tl.float64))
    tl.store(to + 10, lost.to(tl.float64))
    tl.store(to + 11, is_first)
    tl.store(to + 12, is_first * whole_rows)


@triton.jit
def block_norm_factor(value, BLOCK: tl.constexpr, EPS: tl.constexpr):
    """What the rows [rows, BLOCK] are divided by, as a factor [rows, 1]."""
    return tl.rsqrt(tl.sum(value * value, 1) / BLOCK + EPS)[:, None]


@triton.jit
def activated(y, TAIL: tl.constexpr):
    """What the activation of `handed.TAILS[TAIL]` makes of FP32 y. A NaN stays one, which min and max would make a number of."""
    if TAIL <= 1:  # hard swish, behind a norm or alone
        h = y * tl.where(y < -3.0, 0.0, tl.where(y > 3.0, 6.0, y + 3.0)) * (1.0 / 6.0)
    elif TAIL == 2:  # relu
        h = tl.where(y < 0.0, 0.0, y)
    elif TAIL == 3:  # swish
        h = y * tl.sigmoid(y)
    elif TAIL == 4:  # gelu
        h = y * 0.5 * (1.0 + tl.erf(y * 0.7071067811865476))
    else:  # gelu by tanh: (1 + tanh(u)) / 2 is sigmoid(2 u)
        h = y * tl.sigmoid(1.5957691216057308 * (y + 0.044715 * y * y * y))
    return h


@triton.jit
def passed_back(g, y, TAIL: tl.constexpr):
    """The gradient of y from g, that of `activated`."""
    if TAIL <= 1:
        g = g * tl.where(y <= -3.0, 0.0, tl.where(y >= 3.0, 1.0, y * (1.0 / 3.0) + 0.5))
    elif TAIL == 2:
        g = tl.where(y <= 0.0, 0.0, g)
    elif TAIL == 3:
        s = tl.sigmoid(y)
        g = g * s * (1.0 + y * (1.0 - s))
    elif TAIL == 4:
        density = tl.exp(y * y * -0.5) * 0.3989422804014327
        g = g * (0.5 * (1.0 + tl.erf(y * 0.7071067811865476)) + y * density)
    else:
        s = tl.sigmoid(1.5957691216057308 * (y + 0.044715 * y * y * y))
        g = g * (s + y * s * (1.0 - s) * (1.5957691216057308 * (1.0 + 0.134145 * y * y)))
    return g


@triton.jit
def biased(value, bias, col, cols, BIASED: tl.constexpr):
    """FP32 of BF16 value + bias, rounded to BF16 as both are."""
    if BIASED:
        one = tl.load(bias + col, mask=col < cols, other=0.0).to(tl.bfloat16).to(tl.float32)
        value = (value + one[None, :]).to(tl.bfloat16).to(tl.float32)
    return value


@triton.jit
def dropped(x, keep, at, inside, factor, DROPPED: tl.constexpr):
    """What dropout leaves of BF16 x, in BF16, larger by that factor. DROPPED: 1 by `keep`, 2 where another knows what is left."""
    if DROPPED == 1:
        stays = tl.load(keep + at, mask=inside, other=0).to(tl.float32)
        x = (x.to(tl.float32) * stays * factor).to(tl.bfloat16)
    if DROPPED == 2:
        x = (x.to(tl.float32) * factor).to(tl.bfloat16)
    return x


@triton.jit
def store_codes(value, by, out, turned, row, col, rows, cols, pitch, turned_pitch, SIGNED: tl.constexpr):
    """A tile in BF16 by its scale, straight and turned, whose rows begin `pitch` and `turned_pitch` apart; rows are whole multiples of
    what a GEMM reads at a time. SIGNED: a zero is a negative one where the value is, and not where a small value became one: what
    comes out of a ReLU says so what passed."""
    code = known_code(value, by).to(out.dtype.element_ty)
    if SIGNED:
        # By its bits: Triton 3.6 takes -0.0 in a kernel for 0.0.
        bits = code.to(tl.int8, bitcast=True).to(tl.int32)
        code = tl.where(value.to(tl.float32) <= 0.0, -128, bits).to(tl.int8).to(out.dtype.element_ty, bitcast=True)
    tl.store(out + place(row, col, pitch), code, mask=(row < rows)[:, None] & (col < cols)[None, :])
    # In BF16 until it is turned: of FP32, Triton 3.6 turns bytes, and writes wrong ones beside the straight ones.
    inside = (col < cols)[:, None] & (row < rows)[None, :]
    tl.store(turned + place(col, row, turned_pitch), known_code(tl.trans(value), by).to(turned.dtype.element_ty), mask=inside)


@triton.jit
def tail_output_kernel(
    z, bias, keep, inverse, both, partials, rows, cols, size, factor,
    TAIL: tl.constexpr, BIASED: tl.constexpr, DROPPED: tl.constexpr, EPS: tl.constexpr, TILE_ROWS: tl.constexpr, TILE_COLS: tl.constexpr,
):
    """A tile of what `handed.TAILS[TAIL]` makes of z + bias: codes [rows, cols] in `both` and behind these, at `size`, [cols,
    rows]; and the largest of the tile. A norm's blocks are the tile's columns."""
    row, col, inside, at = tile(tl.program_id(0), rows, cols, TILE_ROWS, TILE_COLS)
    value = biased(tl.load(z + at, mask=inside, other=0.0).to(tl.float32), bias, col, cols, BIASED)
    if TAIL == 0:
        value = value * block_norm_factor(value, TILE_COLS, EPS)
    # A bias makes something of the rows past the end, too.
    h = tl.where(inside, activated(value, TAIL), 0.0).to(tl.bfloat16)
    h = dropped(h, keep, at, inside, factor, DROPPED)
    store_codes(h, tl.load(inverse), both, both + size, row, col, rows, cols, cols, rows, TAIL == 2)
    largest = tl.max(tl.max(magnitude(h), 1), 0)
    tl.store(partials + tl.program_id(0), largest.to(tl.float32, bitcast=True))


@triton.jit
def tail_gradient_kernel(
    dh, z, bias, keep, inverse, straight, turned, partials, sums, first, first_amax, first_count, second, second_amax, second_count,
    rows, cols, pitch, turned_pitch, factor,
    TAIL: tl.constexpr, BIASED: tl.constexpr, DROPPED: tl.constexpr, SUMS: tl.constexpr, NOTED: tl.constexpr, EPS: tl.constexpr,
    TILE_ROWS: tl.constexpr, TILE_COLS: tl.constexpr,
):
    """A tile of the gradient of z from that of `tail_output_kernel`'s: its codes in both layouts, its largest, and with SUMS its
    sum over rows, in sums [tiles down, cols]. z of a ReLU: what comes out of it, or the codes of that as bytes, whose sign says
    what passed."""
    row, col, inside, at = tile(tl.program_id(0), rows, cols, TILE_ROWS, TILE_COLS)
    value = tl.load(z + at, mask=inside, other=0).to(tl.float32)
    if z.dtype.element_ty == tl.int8:
        value = tl.where(value < 0, 0.0, 1.0)
    value = biased(value, bias, col, cols, BIASED)
    g = dropped(tl.load(dh + at, mask=inside, other=0.0), keep, at, inside, factor, DROPPED).to(tl.float32)
    if TAIL == 0:
        r = block_norm_factor(value, TILE_COLS, EPS)
        y = value * r
        g = passed_back(g, y, TAIL)
        g = r * (g - y * (tl.sum(g * y, 1) / TILE_COLS)[:, None])
    else:
        g = passed_back(g, value, TAIL)
    dz = tl.where(inside, g, 0.0).to(tl.bfloat16)
    store_codes(dz, tl.load(inverse), straight, turned, row, col, rows, cols, pitch, turned_pitch, False)
    largest = tl.max(tl.max(magnitude(dz), 1), 0)
    note_tile(largest, partials, tl.program_id(0), first, first_amax, first_count, second, second_amax, second_count, NOTED)
    if SUMS:
        to = sums + (tl.program_id(0) // tl.cdiv(cols, TILE_COLS)).to(tl.int64) * cols + col
        tl.store(to, tl.sum(dz.to(tl.float32), 0), mask=col < cols)
