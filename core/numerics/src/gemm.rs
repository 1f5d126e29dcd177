//! The emulated GEMM: cast operands in, an output as the tensor core would store it.
//!
//! Accumulation as measured on an NVIDIA H200 (docs/concepts/method.md): one instruction takes 32 products along the reduced
//! dimension *and* the accumulator, aligns all 33 to the largest binary exponent among them and cuts each, by itself
//! and towards zero, to a multiple of 2^-13 of that power of two; the rest is summed exactly. *Fast* keeps that
//! accumulator to the end, to the bit as here. *Promoted* adds it to an FP32 register every 128, where blockwise
//! scales multiply too; inside its 128 it has a cheaper model (32 products exact, the running sum cut to 14
//! significant bits), off by some 1e-4 of the output where FP8 itself is off by .02 to .04.

use pulp::{Arch, Simd, WithSimd};

use crate::Accumulation;

use super::{
    cast::{BLOCK, CastPanels, Scales},
    panels::Side,
    round,
};

/// Products that one tensor-core instruction sums along the reduced dimension in FP8.
const INSTRUCTION: usize = 32;

/// Bits below the leading one that alignment keeps of the largest of 32 products and the accumulator.
const ALIGNED_BITS: u32 = 13;

/// Below all products of FP8 values, which are at least 2^-32: keeps scales of zeros finite.
const NEGLIGIBLE: f32 = f32::from_bits((127 - 64) << 23);

/// Rows of the register tile whose sums and factors are in registers at once: all that AVX2 has.
const ALIGNED_ROWS: usize = 3;

/// Keeps 13 explicit mantissa bits: 14 significant ones, truncated towards zero.
const KEEP_14_BITS: u32 = !0x3FF;

/// Depth of a plain FP32 stretch: both panels stay in the first-level cache.
const STRETCH: usize = 256;

/// Depth of a stretch whose operands stay in the second-level cache; a multiple of 128.
const DEPTH: usize = 1024;

/// What happens to the sums on their way out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Epilogue {
    /// FP32 output.
    Store,
    /// Rounded to BF16.
    StoreBf16,
}

/// `out[i, j] = sum_d a[i, d] b[j, d]` with scales applied. `a` is a left operand, `b` a right one of
/// the same depth; `out` is `[a.rows, b.rows]`, row-major.
pub fn gemm(a: &CastPanels, b: &CastPanels, accumulation: Accumulation, epilogue: Epilogue, out: &mut [f32]) {
    assert_eq!(a.panels.depth, b.panels.depth, "operands of different depth");
    assert!(a.panels.side == Side::Left && b.panels.side == Side::Right, "operands on the wrong side");
    assert_eq!(out.len(), a.panels.rows * b.panels.rows, "output of another size");
    Arch::new().dispatch(ProductRun { a, b, accumulation, epilogue, out });
}

struct ProductRun<'a> {
    a: &'a CastPanels,
    b: &'a CastPanels,
    accumulation: Accumulation,
    epilogue: Epilogue,
    out: &'a mut [f32],
}

impl WithSimd for ProductRun<'_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) {
        if S::REGISTER_COUNT >= 32 { self.run::<S, 12>(simd) } else { self.run::<S, 6>(simd) }
    }
}

type Tile<S, const MR: usize> = [[<S as Simd>::f32s; 2]; MR];

impl ProductRun<'_> {
    #[inline(always)]
    fn run<S: Simd, const MR: usize>(self, simd: S) {
        if self.a.panels.depth <= DEPTH { self.shallow::<S, MR>(simd) } else { self.deep::<S, MR>(simd) }
    }

    /// Every tile from beginning to end.
    #[inline(always)]
    fn shallow<S: Simd, const MR: usize>(self, simd: S) {
        let zero = [[simd.splat_f32s(0.0); 2]; MR];
        for (first_col, right) in self.b.panels.iter() {
            let (right, _) = S::as_simd_f32s(right);
            for (first_row, left) in self.a.panels.iter() {
                let place = TilePlace { first_row, first_col, cols: self.b.panels.rows };
                let sum = self.stretch::<S, MR>(simd, zero, left, right, 0, place);
                store::<S, MR>(&sum, self.a, self.b, self.epilogue, place, self.out);
            }
        }
    }

    /// A stretch of the reduced dimension at a time, all tiles of it: both operands' parts stay in the
    /// second-level cache, and sums wait in memory between stretches.
    #[inline(always)]
    fn deep<S: Simd, const MR: usize>(self, simd: S) {
        let (a, b) = (&self.a.panels, &self.b.panels);
        let tiles = a.padded_rows() / MR * (b.padded_rows() / b.width);
        let mut sums: Vec<Tile<S, MR>> = vec![[[simd.splat_f32s(0.0); 2]; MR]; tiles];
        for first in (0..a.depth).step_by(DEPTH) {
            let length = DEPTH.min(a.depth - first);
            let last = first + length == a.depth;
            let mut tile = sums.iter_mut();
            for (first_col, right) in b.iter() {
                let (right, _) = S::as_simd_f32s(&right[first * b.width..(first + length) * b.width]);
                for ((first_row, left), sum) in a.iter().zip(&mut tile) {
                    let left = &left[first * MR..(first + length) * MR];
                    let place = TilePlace { first_row, first_col, cols: b.rows };
                    *sum = self.stretch::<S, MR>(simd, *sum, left, right, first / BLOCK, place);
                    if last {
                        store::<S, MR>(sum, self.a, self.b, self.epilogue, place, self.out);
                    }
                }
            }
        }
    }

    /// One tile over one stretch, on top of `sum`.
    #[inline(always)]
    fn stretch<S: Simd, const MR: usize>(
        &self,
        simd: S,
        sum: Tile<S, MR>,
        left: &[f32],
        right: &[S::f32s],
        first_block: usize,
        place: TilePlace,
    ) -> Tile<S, MR> {
        match self.accumulation {
            Accumulation::Fp32 => plain::<S, MR>(simd, sum, left, right),
            Accumulation::Fast => fast::<S, MR>(simd, sum, left, right),
            Accumulation::Promoted => {
                let blocks = block_scales(self.a, self.b, place.first_row, place.first_col);
                promoted::<S, MR>(simd, sum, left, right, first_block, &blocks)
            }
        }
    }
}

/// Sums of products over one stretch of the reduced dimension, in FP32.
#[inline(always)]
fn products<S: Simd, const MR: usize>(simd: S, left: &[f32], right: &[S::f32s]) -> Tile<S, MR> {
    let mut tile = [[simd.splat_f32s(0.0); 2]; MR];
    let (left, _) = left.as_chunks::<MR>();
    let (right, _) = right.as_chunks::<2>();
    for (a, b) in left.iter().zip(right) {
        for r in 0..MR {
            let a = simd.splat_f32s(a[r]);
            tile[r][0] = simd.mul_add_e_f32s(a, b[0], tile[r][0]);
            tile[r][1] = simd.mul_add_e_f32s(a, b[1], tile[r][1]);
        }
    }
    tile
}

#[inline(always)]
fn plain<S: Simd, const MR: usize>(simd: S, mut sum: Tile<S, MR>, left: &[f32], right: &[S::f32s]) -> Tile<S, MR> {
    for (a, b) in left.chunks(STRETCH * MR).zip(right.chunks(STRETCH * 2)) {
        let part = products::<S, MR>(simd, a, b);
        for r in 0..MR {
            sum[r][0] = simd.add_f32s(sum[r][0], part[r][0]);
            sum[r][1] = simd.add_f32s(sum[r][1], part[r][1]);
        }
    }
    sum
}

/// The hardware's rule: one instruction after the other on top of `sum`.
#[inline(always)]
fn fast<S: Simd, const MR: usize>(simd: S, mut sum: Tile<S, MR>, left: &[f32], right: &[S::f32s]) -> Tile<S, MR> {
    for (a, b) in left.chunks(INSTRUCTION * MR).zip(right.chunks(INSTRUCTION * 2)) {
        let (a, b) = (a.as_chunks::<MR>().0, b.as_chunks::<2>().0);
        let largest = largest::<S, MR>(simd, &sum, a, b);
        for first in (0..MR).step_by(ALIGNED_ROWS) {
            aligned::<S, MR>(simd, &mut sum, &largest, a, b, first);
        }
    }
    sum
}

/// Of each output the largest magnitude among its products and its accumulator.
#[inline(always)]
fn largest<S: Simd, const MR: usize>(
    simd: S,
    sum: &Tile<S, MR>,
    left: &[[f32; MR]],
    right: &[[S::f32s; 2]],
) -> Tile<S, MR> {
    let mut largest = [[simd.splat_f32s(NEGLIGIBLE); 2]; MR];
    for (to, sum) in largest.as_flattened_mut().iter_mut().zip(sum.as_flattened()) {
        *to = simd.max_f32s(simd.abs_f32s(*sum), *to);
    }
    // The magnitudes first: a panel's are needed once a row or column, not once a product.
    for (a, b) in left.iter().zip(right) {
        let b = [simd.abs_f32s(b[0]), simd.abs_f32s(b[1])];
        for r in 0..MR {
            let a = simd.splat_f32s(a[r].abs());
            largest[r][0] = simd.max_f32s(largest[r][0], simd.mul_f32s(a, b[0]));
            largest[r][1] = simd.max_f32s(largest[r][1], simd.mul_f32s(a, b[1]));
        }
    }
    largest
}

/// The products and the accumulator in units of the last bit kept, cut and summed: at most 33 numbers
/// below 2^14, exact in FP32 in any order. A NaN stays one, whatever `largest` made of it.
#[inline(always)]
fn aligned<S: Simd, const MR: usize>(
    simd: S,
    sum: &mut Tile<S, MR>,
    largest: &Tile<S, MR>,
    left: &[[f32; MR]],
    right: &[[S::f32s; 2]],
    first: usize,
) {
    let zero = [[simd.splat_f32s(0.0); 2]; ALIGNED_ROWS];
    let (mut inverse, mut unit, mut units) = (zero, zero, zero);
    for r in 0..ALIGNED_ROWS {
        for v in 0..2 {
            (inverse[r][v], unit[r][v]) = last_bit(simd, largest[first + r][v]);
            units[r][v] = truncated::<S>(simd.mul_f32s(sum[first + r][v], inverse[r][v]));
        }
    }
    for (a, b) in left.iter().zip(right) {
        for r in 0..ALIGNED_ROWS {
            let a = simd.splat_f32s(a[first + r]);
            for v in 0..2 {
                let product = simd.mul_f32s(simd.mul_f32s(a, b[v]), inverse[r][v]);
                units[r][v] = simd.add_f32s(units[r][v], truncated::<S>(product));
            }
        }
    }
    for r in 0..ALIGNED_ROWS {
        for v in 0..2 {
            sum[first + r][v] = simd.mul_f32s(units[r][v], unit[r][v]);
        }
    }
}

/// 2^(13 - e) and 2^(e - 13) for a magnitude of binary exponent e.
#[inline(always)]
fn last_bit<S: Simd>(simd: S, largest: S::f32s) -> (S::f32s, S::f32s) {
    let exponent = simd.and_u32s(simd.transmute_u32s_f32s(largest), simd.splat_u32s(0x7F80_0000));
    let inverse = simd.sub_u32s(simd.splat_u32s((254 + ALIGNED_BITS) << 23), exponent);
    let unit = simd.sub_u32s(exponent, simd.splat_u32s(ALIGNED_BITS << 23));
    (simd.transmute_f32s_u32s(inverse), simd.transmute_f32s_u32s(unit))
}

/// Towards zero. One instruction a vector wherever there are vectors: the compiler merges the lanes.
#[inline(always)]
fn truncated<S: Simd>(mut values: S::f32s) -> S::f32s {
    let lanes: &mut [f32] = pulp::bytemuck::cast_slice_mut(std::slice::from_mut(&mut values));
    for lane in lanes {
        *lane = lane.trunc();
    }
    values
}

/// The cheaper model, inside 128 of the reduced dimension and from zero.
#[inline(always)]
fn cut_sum<S: Simd, const MR: usize>(simd: S, left: &[f32], right: &[S::f32s]) -> Tile<S, MR> {
    let keep = simd.splat_u32s(KEEP_14_BITS);
    let mut sum = [[simd.splat_f32s(0.0); 2]; MR];
    for (a, b) in left.chunks(INSTRUCTION * MR).zip(right.chunks(INSTRUCTION * 2)) {
        let part = products::<S, MR>(simd, a, b);
        for r in 0..MR {
            for v in 0..2 {
                let next = simd.transmute_u32s_f32s(simd.add_f32s(sum[r][v], part[r][v]));
                sum[r][v] = simd.transmute_f32s_u32s(simd.and_u32s(next, keep));
            }
        }
    }
    sum
}

#[inline(always)]
fn promoted<S: Simd, const MR: usize>(
    simd: S,
    mut sum: Tile<S, MR>,
    left: &[f32],
    right: &[S::f32s],
    first_block: usize,
    blocks: &Option<BlockScales<'_>>,
) -> Tile<S, MR> {
    for (index, (a, b)) in left.chunks(BLOCK * MR).zip(right.chunks(BLOCK * 2)).enumerate() {
        let part = cut_sum::<S, MR>(simd, a, b);
        if let Some(scales) = blocks {
            let (a, b) = scales.of_block(first_block + index);
            let (b, _) = S::as_simd_f32s(b);
            for r in 0..MR {
                let a = simd.splat_f32s(a[r]);
                for v in 0..2 {
                    sum[r][v] = simd.mul_add_e_f32s(simd.mul_f32s(a, b[v]), part[r][v], sum[r][v]);
                }
            }
        } else {
            for r in 0..MR {
                sum[r][0] = simd.add_f32s(sum[r][0], part[r][0]);
                sum[r][1] = simd.add_f32s(sum[r][1], part[r][1]);
            }
        }
    }
    sum
}

/// Scales of one tile: for block `i` of the reduced dimension, those of its rows and its columns.
struct BlockScales<'a> {
    a: &'a [f32],
    b: &'a [f32],
    stride: (usize, usize),
    first: (usize, usize),
    width: (usize, usize),
}

impl BlockScales<'_> {
    #[inline(always)]
    fn of_block(&self, index: usize) -> (&[f32], &[f32]) {
        let a = index * self.stride.0 + self.first.0;
        let b = index * self.stride.1 + self.first.1;
        (&self.a[a..a + self.width.0], &self.b[b..b + self.width.1])
    }
}

#[inline(always)]
fn block_scales<'a>(a: &'a CastPanels, b: &'a CastPanels, row: usize, col: usize) -> Option<BlockScales<'a>> {
    match (&a.scales, &b.scales) {
        (Scales::Block(left), Scales::Block(right)) => {
            let width = (a.panels.width, b.panels.width);
            let padded = |rows: usize, width: usize| rows.div_ceil(width) * width;
            let stride = (padded(a.panels.rows, width.0), padded(b.panels.rows, width.1));
            Some(BlockScales { a: left, b: right, stride, first: (row, col), width })
        }
        _ => None,
    }
}

#[derive(Clone, Copy)]
struct TilePlace {
    first_row: usize,
    first_col: usize,
    cols: usize,
}

/// Applies the scales that are constant along the reduced dimension, rounds, and writes the part of
/// the tile that lies inside the output.
#[inline(always)]
fn store<S: Simd, const MR: usize>(
    tile: &Tile<S, MR>,
    a: &CastPanels,
    b: &CastPanels,
    epilogue: Epilogue,
    place: TilePlace,
    out: &mut [f32],
) {
    let filled = b.panels.width.min(place.cols - place.first_col);
    for (r, lanes) in tile.iter().enumerate() {
        let row = place.first_row + r;
        if row >= a.panels.rows {
            break;
        }
        let sums: &[f32] = &pulp::bytemuck::cast_slice(lanes)[..filled];
        let start = row * place.cols + place.first_col;
        let target = &mut out[start..start + filled];
        let left = outer_scale(&a.scales, row);
        match &b.scales {
            Scales::Row(right) => {
                for ((to, sum), right) in target.iter_mut().zip(sums).zip(&right[place.first_col..]) {
                    *to = sum * left * right;
                }
            }
            right => {
                let right = outer_scale(right, 0);
                target.iter_mut().zip(sums).for_each(|(to, sum)| *to = sum * left * right);
            }
        }
        if epilogue == Epilogue::StoreBf16 {
            target.iter_mut().for_each(|value| *value = round::bf16(*value));
        }
    }
}

/// The factor of a row that does not change along the reduced dimension.
#[inline(always)]
fn outer_scale(scales: &Scales, row: usize) -> f32 {
    match scales {
        Scales::None | Scales::Block(_) => 1.0,
        Scales::Tensor(scale) => *scale,
        Scales::Row(scales) => scales[row],
    }
}

#[cfg(test)]
#[path = "gemm_tests.rs"]
mod tests;
