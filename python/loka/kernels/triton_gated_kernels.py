"""The GPU kernels of `gated`, in Triton: a product of what follows two linears, and its gradients, each in one pass."""

import triton
import triton.language as tl

from .triton_kernels import activated, biased, dropped, magnitude, note_tile, passed_back, store_codes, tile

SIGMOID, LINEAR = tl.constexpr(6), tl.constexpr(7)
"""Their places in `gated`, behind those of `handed.TAILS`."""


@triton.jit
def gate(y, GATE: tl.constexpr):
    """What comes behind FP32 y, rounded to BF16."""
    if GATE == LINEAR:
        a = y
    elif GATE == SIGMOID:
        a = tl.sigmoid(y)
    else:
        a = activated(y, GATE)
    return a.to(tl.bfloat16).to(tl.float32)


@triton.jit
def through_gate(d, y, a, GATE: tl.constexpr):
    """The gradient of y from d, that of a = gate(y), which is rounded to BF16 first."""
    d = d.to(tl.bfloat16).to(tl.float32)
    if GATE == LINEAR:
        d = d
    elif GATE == SIGMOID:
        d = d * a * (1.0 - a)
    else:
        d = passed_back(d, y, GATE)
    return d


@triton.jit
def gated_output_kernel(
    z, bias, other_z, other_bias, keep, inverse, both, partials, rows, cols, size, factor,
    GATE: tl.constexpr, OTHER_GATE: tl.constexpr, BIASED: tl.constexpr, OTHER_BIASED: tl.constexpr, DROPPED: tl.constexpr,
    TILE_ROWS: tl.constexpr, TILE_COLS: tl.constexpr,
):
    """A tile of gate(z + bias) * gate(other_z + other_bias): codes and the largest, as `tail_output_kernel` has them."""
    row, col, inside, at = tile(tl.program_id(0), rows, cols, TILE_ROWS, TILE_COLS)
    y = biased(tl.load(z + at, mask=inside, other=0.0).to(tl.float32), bias, col, cols, BIASED)
    other_y = biased(tl.load(other_z + at, mask=inside, other=0.0).to(tl.float32), other_bias, col, cols, OTHER_BIASED)
    # Biases make something of the rows past the end, too.
    h = tl.where(inside, gate(y, GATE) * gate(other_y, OTHER_GATE), 0.0).to(tl.bfloat16)
    h = dropped(h, keep, at, inside, factor, DROPPED)
    store_codes(h, tl.load(inverse), both, both + size, row, col, rows, cols, cols, rows, False)
    largest = tl.max(tl.max(magnitude(h), 1), 0)
    tl.store(partials + tl.program_id(0), largest.to(tl.float32, bitcast=True))


@triton.jit
def gated_gradient_kernel(
    dh, z, bias, other_z, other_bias, keep, inverse, other_inverse, straight, turned, other_straight, other_turned, partials,
    other_partials, sums, first, first_amax, first_count, second, second_amax, second_count, third, third_amax, third_count, fourth,
    fourth_amax, fourth_count, rows, cols, pitch, turned_pitch, size, factor,
    GATE: tl.constexpr, OTHER_GATE: tl.constexpr, BIASED: tl.constexpr, OTHER_BIASED: tl.constexpr, DROPPED: tl.constexpr,
    SUMS: tl.constexpr, NOTED: tl.constexpr, OTHER_NOTED: tl.constexpr, TILE_ROWS: tl.constexpr, TILE_COLS: tl.constexpr,
):
    """A tile of the gradients of both z from that of `gated_output_kernel`'s: codes of each in both layouts, the largest of each, and with
    SUMS their sums over rows, in sums [tiles down, cols] and behind these, at `size`."""
    row, col, inside, at = tile(tl.program_id(0), rows, cols, TILE_ROWS, TILE_COLS)
    y = biased(tl.load(z + at, mask=inside, other=0.0).to(tl.float32), bias, col, cols, BIASED)
    other_y = biased(tl.load(other_z + at, mask=inside, other=0.0).to(tl.float32), other_bias, col, cols, OTHER_BIASED)
    g = dropped(tl.load(dh + at, mask=inside, other=0.0), keep, at, inside, factor, DROPPED).to(tl.float32)
    a, other_a = gate(y, GATE), gate(other_y, OTHER_GATE)
    to = (tl.program_id(0) // tl.cdiv(cols, TILE_COLS)).to(tl.int64) * cols + col
    # One behind the other: of both at a time a program would not keep its values in registers.
    dz = tl.where(inside, through_gate(g * other_a, y, a, GATE), 0.0).to(tl.bfloat16)
    store_codes(dz, tl.load(inverse), straight, turned, row, col, rows, cols, pitch, turned_pitch, False)
    largest = tl.max(tl.max(magnitude(dz), 1), 0)
    note_tile(largest, partials, tl.program_id(0), first, first_amax, first_count, second, second_amax, second_count, NOTED)
    if SUMS:
        tl.store(sums + to, tl.sum(dz.to(tl.float32), 0), mask=col < cols)
    dz = tl.where(inside, through_gate(g * a, other_y, other_a, OTHER_GATE), 0.0).to(tl.bfloat16)
    store_codes(dz, tl.load(other_inverse), other_straight, other_turned, row, col, rows, cols, pitch, turned_pitch, False)
    largest = tl.max(tl.max(magnitude(dz), 1), 0)
    note_tile(largest, other_partials, tl.program_id(0), third, third_amax, third_count, fourth, fourth_amax, fourth_count, OTHER_NOTED)
    if SUMS:
        tl.store(sums + size + to, tl.sum(dz.to(tl.float32), 0), mask=col < cols)
