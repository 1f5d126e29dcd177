"""The GPU kernels of a linear's tails that begin with a norm over whole rows: two passes each way, in Triton. One takes what a row
is divided by, or what its gradient loses; the other one makes codes in tiles, as without a norm. It goes backwards
through the rows: what the first pass read last is near.
"""

import triton
import triton.language as tl

from .triton_kernels import activated, biased, dropped, magnitude, note_tile, passed_back, store_codes, tile


@triton.jit
def after(y, ACTIVATION: tl.constexpr):
    """What `handed.TAILS[ACTIVATION]` makes of y; 0: there is none."""
    if ACTIVATION > 0:
        y = activated(y, ACTIVATION)
    return y


@triton.jit
def before(g, y, ACTIVATION: tl.constexpr):
    if ACTIVATION > 0:
        g = passed_back(g, y, ACTIVATION)
    return g


@triton.jit
def of_columns(x, col, cols):
    """FP32 [1, cols] of a norm's parameter."""
    return tl.load(x + col, mask=col < cols, other=0.0).to(tl.float32)[None, :]


@triton.jit
def row_stats_kernel(
    z, bias, mean, rstd, rows, cols, eps,
    LAYER: tl.constexpr, BIASED: tl.constexpr, STEPS: tl.constexpr, TILE_ROWS: tl.constexpr, TILE_COLS: tl.constexpr,
):
    """`norms.Stats` of rows of z + bias. STEPS: tiles in a row."""
    row = tl.program_id(0) * TILE_ROWS + tl.arange(0, TILE_ROWS)
    there = (row < rows)[:, None]
    start = row.to(tl.int64)[:, None] * cols
    # Of a layer norm relative to the mean of the row's first tile: squares of what is far from zero would lose the difference.
    pivot = tl.zeros([TILE_ROWS], tl.float32)
    if LAYER:
        col = tl.arange(0, TILE_COLS)
        inside = there & (col < cols)[None, :]
        value = biased(tl.load(z + start + col[None, :], mask=inside, other=0.0).to(tl.float32), bias, col, cols, BIASED)
        pivot = tl.sum(tl.where(inside, value, 0.0), 1) / tl.minimum(cols, TILE_COLS)
    first = tl.zeros([TILE_ROWS, TILE_COLS], tl.float32)
    second = tl.zeros([TILE_ROWS, TILE_COLS], tl.float32)
    for step in range(STEPS):
        col = step * TILE_COLS + tl.arange(0, TILE_COLS)
        inside = there & (col < cols)[None, :]
        value = biased(tl.load(z + start + col[None, :], mask=inside, other=0.0).to(tl.float32), bias, col, cols, BIASED)
        value = tl.where(inside, value - pivot[:, None], 0.0)
        if LAYER:
            first += value
        second += value * value
    off = tl.sum(first, 1) / cols
    if LAYER:
        tl.store(mean + row, pivot + off, mask=row < rows)
    tl.store(rstd + row, tl.rsqrt(tl.sum(second, 1) / cols - off * off + eps), mask=row < rows)


@triton.jit
def row_output_kernel(
    z, bias, keep, weight, shift, mean, rstd, inverse, both, partials, rows, cols, size, factor,
    ACTIVATION: tl.constexpr, LAYER: tl.constexpr, BIASED: tl.constexpr, WEIGHED: tl.constexpr, SHIFTED: tl.constexpr, DROPPED: tl.constexpr,
    TILE_ROWS: tl.constexpr, TILE_COLS: tl.constexpr,
):
    """As `tail_output_kernel`, behind a norm whose statistics are known."""
    program = tl.num_programs(0) - 1 - tl.program_id(0)
    row, col, inside, at = tile(program, rows, cols, TILE_ROWS, TILE_COLS)
    y = biased(tl.load(z + at, mask=inside, other=0.0).to(tl.float32), bias, col, cols, BIASED)
    if LAYER:
        y = y - tl.load(mean + row, mask=row < rows, other=0.0)[:, None]
    y = y * tl.load(rstd + row, mask=row < rows, other=0.0)[:, None]
    if WEIGHED:
        y = y * of_columns(weight, col, cols)
    if SHIFTED:
        y = y + of_columns(shift, col, cols)
    h = tl.where(inside, after(y, ACTIVATION), 0.0).to(tl.bfloat16)
    h = dropped(h, keep, at, inside, factor, DROPPED)
    store_codes(h, tl.load(inverse), both, both + size, row, col, rows, cols, cols, rows, False)
    largest = tl.max(tl.max(magnitude(h), 1), 0)
    tl.store(partials + program, largest.to(tl.float32, bitcast=True))


@triton.jit
def gradients_of(
    dh, z, bias, keep, weight, shift, mean, rstd, row, col, rows, cols, factor,
    ACTIVATION: tl.constexpr, LAYER: tl.constexpr, BIASED: tl.constexpr, WEIGHED: tl.constexpr, SHIFTED: tl.constexpr, DROPPED: tl.constexpr,
):
    """Of a tile, in FP32: (rows without mean and size; the gradient of what the norm gives; that of these rows)."""
    inside = (row < rows)[:, None] & (col < cols)[None, :]
    at = row.to(tl.int64)[:, None] * cols + col[None, :]
    hat = biased(tl.load(z + at, mask=inside, other=0.0).to(tl.float32), bias, col, cols, BIASED)
    g = dropped(tl.load(dh + at, mask=inside, other=0.0), keep, at, inside, factor, DROPPED).to(tl.float32)
    if LAYER:
        hat = hat - tl.load(mean + row, mask=row < rows, other=0.0)[:, None]
    hat = hat * tl.load(rstd + row, mask=row < rows, other=0.0)[:, None]
    y = hat
    if WEIGHED:
        y = y * of_columns(weight, col, cols)
    if SHIFTED:
        y = y + of_columns(shift, col, cols)
    g = tl.where(inside, before(g, y, ACTIVATION), 0.0)
    by_hat = g
    if WEIGHED:
        by_hat = g * of_columns(weight, col, cols)
    return hat, g, by_hat


@triton.jit
def row_means_kernel(
    dh, z, bias, keep, weight, shift, mean, rstd, means, rows, cols, factor,
    ACTIVATION: tl.constexpr, LAYER: tl.constexpr, BIASED: tl.constexpr, WEIGHED: tl.constexpr, SHIFTED: tl.constexpr, DROPPED: tl.constexpr,
    STEPS: tl.constexpr, TILE_ROWS: tl.constexpr, TILE_COLS: tl.constexpr,
):
    """What the gradient of a row loses: in means [2, rows] its mean times these rows, and its mean, which only a layer norm takes."""
    row = tl.program_id(0) * TILE_ROWS + tl.arange(0, TILE_ROWS)
    first = tl.zeros([TILE_ROWS, TILE_COLS], tl.float32)
    second = tl.zeros([TILE_ROWS, TILE_COLS], tl.float32)
    for step in range(STEPS):
        col = step * TILE_COLS + tl.arange(0, TILE_COLS)
        hat, _, by_hat = gradients_of(
            dh, z, bias, keep, weight, shift, mean, rstd, row, col, rows, cols, factor, ACTIVATION, LAYER, BIASED, WEIGHED, SHIFTED, DROPPED
        )
        first += by_hat * hat
        if LAYER:
            second += by_hat
    tl.store(means + row, tl.sum(first, 1) / cols, mask=row < rows)
    if LAYER:
        tl.store(means + rows + row, tl.sum(second, 1) / cols, mask=row < rows)


@triton.jit
def row_gradient_kernel(
    dh, z, bias, keep, weight, shift, mean, rstd, means, inverse, straight, turned, partials, sums,
    first, first_amax, first_count, second, second_amax, second_count, rows, cols, pitch, turned_pitch, factor,
    ACTIVATION: tl.constexpr, LAYER: tl.constexpr, BIASED: tl.constexpr, WEIGHED: tl.constexpr, SHIFTED: tl.constexpr, DROPPED: tl.constexpr,
    SUMS: tl.constexpr, NOTED: tl.constexpr, TILE_ROWS: tl.constexpr, TILE_COLS: tl.constexpr,
):
    """As `tail_gradient_kernel`. sums [tiles down, 3, cols]: of dz, with SUMS, and for the gradients of the norm's weight and shift, where
    it has these."""
    program = tl.num_programs(0) - 1 - tl.program_id(0)
    row, col, inside, _ = tile(program, rows, cols, TILE_ROWS, TILE_COLS)
    hat, g, by_hat = gradients_of(
        dh, z, bias, keep, weight, shift, mean, rstd, row, col, rows, cols, factor, ACTIVATION, LAYER, BIASED, WEIGHED, SHIFTED, DROPPED
    )
    lost = hat * tl.load(means + row, mask=row < rows, other=0.0)[:, None]
    if LAYER:
        lost += tl.load(means + rows + row, mask=row < rows, other=0.0)[:, None]
    dz = (by_hat - lost) * tl.load(rstd + row, mask=row < rows, other=0.0)[:, None]
    dz = tl.where(inside, dz, 0.0).to(tl.bfloat16)
    store_codes(dz, tl.load(inverse), straight, turned, row, col, rows, cols, pitch, turned_pitch, False)
    largest = tl.max(tl.max(magnitude(dz), 1), 0)
    note_tile(largest, partials, program, first, first_amax, first_count, second, second_amax, second_count, NOTED)
    to = sums + (program // tl.cdiv(cols, TILE_COLS)).to(tl.int64) * 3 * cols + col
    if SUMS:
        tl.store(to, tl.sum(dz.to(tl.float32), 0), mask=col < cols)
    if WEIGHED:
        tl.store(to + cols, tl.sum(g * hat, 0), mask=col < cols)
    if SHIFTED:
        tl.store(to + 2 * cols, tl.sum(g, 0), mask=col < cols)
