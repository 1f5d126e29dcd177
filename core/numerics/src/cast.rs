//! Scales and casts of a packed operand, per recipe. Gives values on the format's grid and the
//! scales that multiply them back.

use crate::{Format, Granularity, OperandCast};

use super::{fp8::format_max, panels::Panels, round, vectorized::vectorized};

/// Scales are kept away from zero so that a row of zeros does not divide by it (docs/reference/numerics.md).
pub const SCALE_FLOOR: f32 = 1e-12;

/// Length of a block along the reduced dimension.
pub const BLOCK: usize = 128;

/// Multiply the stored value by its scale to get the original back.
#[derive(Clone, Debug, PartialEq)]
pub enum Scales {
    None,
    Tensor(f32),
    /// `[padded rows]`
    Row(Vec<f32>),
    /// `[depth / 128][padded rows]`, the last block may be short; for 128x128 repeated along rows.
    Block(Vec<f32>),
}

/// A cast operand: values on the grid, not yet multiplied by their scales.
#[derive(Clone, Debug)]
pub struct CastPanels {
    pub panels: Panels,
    pub scales: Scales,
}

impl CastPanels {
    /// Memory to cast into, with the layout of `like`.
    pub fn empty(like: &Panels) -> Self {
        Self { panels: like.emptied(), scales: Scales::None }
    }
}

/// The divisor that maps `amax` to the format's largest value, in FP32. A power of two is rounded
/// *up*, so that nothing saturates (torchao rounds its reciprocal down, which is the same).
pub fn scale_from_amax(amax: f32, format: Format, power_of_two: bool) -> f32 {
    let scale = amax / format_max(format);
    // Not `max`, which would drop a NaN: a row with a NaN must come out as NaN.
    let scale = if scale < SCALE_FLOOR { SCALE_FLOOR } else { scale };
    if !power_of_two || !scale.is_finite() {
        return scale;
    }
    let bits = scale.to_bits();
    if bits & 0x7F_FFFF == 0 { scale } else { f32::from_bits((bits & 0x7F80_0000) + 0x80_0000) }
}

/// What is known of the whole tensor that an operand is, or is a part of.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct TensorRange {
    /// A tensorwise scale must not be finer than the real one.
    pub amax: Option<f32>,
    /// A power of two. A static cast without one gives NaN: no scale is a good guess.
    pub static_scale: Option<f32>,
}

impl From<Option<f32>> for TensorRange {
    fn from(amax: Option<f32>) -> Self {
        Self { amax, static_scale: None }
    }
}

/// Casts an operand. `whole`: what is known of the tensor beside `source`, its amax alone as `Some(amax)`.
pub fn cast_panels(source: &Panels, cast: OperandCast, whole: impl Into<TensorRange>) -> CastPanels {
    let mut to = CastPanels::empty(source);
    cast_into(source, cast, whole, &mut to);
    to
}

/// [`cast_panels`] into memory that is used again.
pub fn cast_into(source: &Panels, cast: OperandCast, whole: impl Into<TensorRange>, to: &mut CastPanels) {
    let whole = whole.into();
    to.panels.like(source);
    let stretch = match cast.granularity {
        Granularity::Block1x128 | Granularity::Block128x128 => BLOCK,
        _ => source.depth.max(1),
    };
    to.scales = match cast.granularity {
        Granularity::None => {
            round::divide(cast.format, &source.data, 1.0, &mut to.panels.data);
            Scales::None
        }
        Granularity::Tensor => {
            let amax = larger(source.amax(), whole.amax.unwrap_or(0.0));
            let scale = scale_from_amax(amax, cast.format, cast.power_of_two);
            round::divide(cast.format, &source.data, scale, &mut to.panels.data);
            Scales::Tensor(scale)
        }
        Granularity::Static => {
            let scale = whole.static_scale.unwrap_or(f32::NAN);
            round::multiply(cast.format, &source.data, scale.recip(), &mut to.panels.data);
            Scales::Tensor(scale)
        }
        Granularity::Row | Granularity::Block1x128 | Granularity::Block128x128 => {
            let mut scales = row_amax(source, stretch);
            if cast.granularity == Granularity::Block128x128 {
                share_among_rows(&mut scales, source.padded_rows(), source.rows);
            }
            for value in &mut scales {
                *value = scale_from_amax(*value, cast.format, cast.power_of_two);
            }
            divide_rows(source, &scales, stretch, cast.format, &mut to.panels.data);
            if cast.granularity == Granularity::Row { Scales::Row(scales) } else { Scales::Block(scales) }
        }
    };
}

/// Share of the elements that are not zero and that their cast to FP8 made zero; `None`: it is no FP8.
pub fn flushed(cast: &CastPanels, format: Format, source: &Panels) -> Option<f64> {
    if !matches!(format, Format::E4m3 | Format::E5m2) {
        return None;
    }
    // Rows that fill panels are zero in both.
    let (source, codes) = (&source.data, &cast.panels.data);
    let counts = vectorized!((source: &'a [f32] = source, codes: &'a [f32] = codes) -> (u64, u64) {
        let (mut nonzero, mut flushed) = (0u64, 0u64);
        // Counts of 32 bits fill whole vectors.
        for (source, codes) in source.chunks(1 << 16).zip(codes.chunks(1 << 16)) {
            let (mut of_source, mut of_codes) = (0u32, 0u32);
            for (value, code) in source.iter().zip(codes) {
                of_source += u32::from(*value != 0.0);
                of_codes += u32::from((*value != 0.0) & (*code == 0.0));
            }
            nonzero += u64::from(of_source);
            flushed += u64::from(of_codes);
        }
        (nonzero, flushed)
    });
    Some(flushed_share(counts.0, counts.1))
}

/// Of so many elements that are not zero; nothing of nothing is 0.
pub fn flushed_share(nonzero: u64, flushed: u64) -> f64 {
    flushed as f64 / nonzero.max(1) as f64
}

/// Squared distance of a cast operand from what it stands for, and the latter's squared norm.
pub fn squared_distance(cast: &CastPanels, reference: &Panels) -> (f64, f64) {
    let (depth, width, padded) = (reference.depth, reference.width, reference.padded_rows());
    let scale_at = |row: usize, d: usize| match &cast.scales {
        Scales::None => 1.0,
        Scales::Tensor(scale) => *scale,
        Scales::Row(scales) => scales[row],
        Scales::Block(scales) => scales[d / BLOCK * padded + row],
    };
    let mut sums = (0.0, 0.0);
    for ((first, exact), (_, values)) in reference.iter().zip(cast.panels.iter()) {
        let mut lanes = [(0f64, 0f64); 64];
        let mut scales = [1f32; 64];
        for d in 0..depth {
            if d % BLOCK == 0 {
                (0..width).for_each(|lane| scales[lane] = scale_at(first + lane, d));
            }
            for lane in 0..width {
                let exact = f64::from(exact[d * width + lane]);
                let error = f64::from(values[d * width + lane] * scales[lane]) - exact;
                lanes[lane].0 += error * error;
                lanes[lane].1 += exact * exact;
            }
        }
        for lane in lanes {
            sums = (sums.0 + lane.0, sums.1 + lane.1);
        }
    }
    sums
}

/// Amax of every row over stretches of `stretch` along the reduced dimension: `[stretches][padded rows]`.
fn row_amax(source: &Panels, stretch: usize) -> Vec<f32> {
    let mut amax = vec![0f32; source.depth.div_ceil(stretch).max(1) * source.padded_rows()];
    vectorized!((source: &'a Panels = source, stretch: usize = stretch, amax: &'a mut [f32] = &mut amax) -> () {
        let (padded, width) = (source.padded_rows(), source.width);
        for (first, panel) in source.iter() {
            for (s, part) in panel.chunks(stretch * width).enumerate() {
                let lanes = &mut amax[s * padded + first..s * padded + first + width];
                // The compiler keeps the maxima in registers only when it knows how many there are.
                match width {
                    6 => lane_amax::<6>(part, lanes),
                    12 => lane_amax::<12>(part, lanes),
                    16 => lane_amax::<16>(part, lanes),
                    32 => lane_amax::<32>(part, lanes),
                    _ => lane_amax::<2>(part, lanes),
                }
            }
        }
    });
    amax
}

/// Rows side by side, so that panels of 6 or 12 fill whole vectors.
const UNROLL: usize = 4;

/// Largest magnitude of each lane; `part` is `[length][LANES]`. Bits of magnitudes order like the
/// magnitudes, and NaN above all.
#[inline(always)]
fn lane_amax<const LANES: usize>(part: &[f32], lanes: &mut [f32]) {
    let mut largest = [[0u32; LANES]; UNROLL];
    let (rows, _) = part.as_chunks::<LANES>();
    let (quads, rest) = rows.as_chunks::<UNROLL>();
    for rows in quads {
        for (lane, value) in largest.as_flattened_mut().iter_mut().zip(rows.as_flattened()) {
            *lane = (*lane).max(value.to_bits() & 0x7FFF_FFFF);
        }
    }
    for row in rest {
        for (lane, value) in largest[0].iter_mut().zip(row) {
            *lane = (*lane).max(value.to_bits() & 0x7FFF_FFFF);
        }
    }
    for (index, lane) in lanes.iter_mut().enumerate() {
        *lane = f32::from_bits(largest.iter().map(|row| row[index]).max().unwrap_or(0));
    }
}

/// Of two magnitudes. Not `f32::max`, which drops a NaN: its group must come out as NaN, as on the GPU.
fn larger(a: f32, b: f32) -> f32 {
    f32::from_bits((a.to_bits() & 0x7FFF_FFFF).max(b.to_bits() & 0x7FFF_FFFF))
}

/// 128x128: rows of one block of 128 share the largest amax.
fn share_among_rows(amax: &mut [f32], padded: usize, rows: usize) {
    for stretch in amax.chunks_exact_mut(padded) {
        for block in stretch[..rows].chunks_mut(BLOCK) {
            let largest = block.iter().copied().fold(0.0, larger);
            block.fill(largest);
        }
    }
}

/// Divides by the scale of each (stretch, row) and rounds.
fn divide_rows(source: &Panels, scales: &[f32], stretch: usize, format: Format, to: &mut [f32]) {
    vectorized!((source: &'a Panels = source, scales: &'a [f32] = scales, stretch: usize = stretch,
                 format: Format = format, to: &'a mut [f32] = to) -> () {
        let (padded, width) = (source.padded_rows(), source.width);
        let size = (source.depth * width).max(1);
        for ((first, panel), to) in source.iter().zip(to.chunks_exact_mut(size)) {
            for (s, (part, to)) in panel.chunks(stretch * width).zip(to.chunks_mut(stretch * width)).enumerate() {
                let lanes = &scales[s * padded + first..s * padded + first + width];
                match (format, width) {
                    (Format::E4m3, 6) => divide_lanes::<6>(part, lanes, to, round::e4m3),
                    (Format::E4m3, 12) => divide_lanes::<12>(part, lanes, to, round::e4m3),
                    (Format::E4m3, 16) => divide_lanes::<16>(part, lanes, to, round::e4m3),
                    (Format::E4m3, 32) => divide_lanes::<32>(part, lanes, to, round::e4m3),
                    (Format::E4m3, _) => divide_lanes::<2>(part, lanes, to, round::e4m3),
                    (_, 12) => divide_lanes::<12>(part, lanes, to, round::e5m2),
                    (_, 32) => divide_lanes::<32>(part, lanes, to, round::e5m2),
                    (_, 6) => divide_lanes::<6>(part, lanes, to, round::e5m2),
                    (_, 16) => divide_lanes::<16>(part, lanes, to, round::e5m2),
                    _ => divide_lanes::<2>(part, lanes, to, round::e5m2),
                }
            }
        }
    });
}

#[inline(always)]
fn divide_lanes<const LANES: usize>(part: &[f32], scales: &[f32], to: &mut [f32], round: impl Fn(f32) -> f32) {
    if scales.iter().all(|scale| round::Divisor::new(*scale).is_exact()) {
        let lanes: [[round::Divisor; LANES]; UNROLL] =
            std::array::from_fn(|_| std::array::from_fn(|lane| round::Divisor::new(scales[lane])));
        map_lanes(part, &lanes, to, |value, divisor| round(divisor.of(value)));
    } else {
        let lanes: [[f32; LANES]; UNROLL] = std::array::from_fn(|_| std::array::from_fn(|lane| scales[lane]));
        map_lanes(part, &lanes, to, |value, scale| round(value / scale));
    }
}

#[inline(always)]
fn map_lanes<T: Copy, const LANES: usize>(
    part: &[f32],
    lanes: &[[T; LANES]; UNROLL],
    to: &mut [f32],
    map: impl Fn(f32, T) -> f32,
) {
    let (quads, rest) = part.as_chunks::<LANES>().0.as_chunks::<UNROLL>();
    let (quads_to, rest_to) = to.as_chunks_mut::<LANES>().0.as_chunks_mut::<UNROLL>();
    for (from, to) in quads.iter().zip(quads_to) {
        let values = to.as_flattened_mut().iter_mut().zip(from.as_flattened());
        for ((to, value), lane) in values.zip(lanes.as_flattened()) {
            *to = map(*value, *lane);
        }
    }
    for (from, to) in rest.iter().zip(rest_to) {
        for ((to, value), lane) in to.iter_mut().zip(from).zip(&lanes[0]) {
            *to = map(*value, *lane);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Matrix, Side};

    fn with_a_nan() -> Panels {
        let mut matrix = Matrix::zeros(300, 256);
        matrix.data.fill(1.0);
        matrix.data[130 * 256 + 5] = f32::NAN;
        Panels::pack(Side::Left, &matrix)
    }

    fn scale_is_nan(cast: &CastPanels, row: usize, depth: usize) -> bool {
        match &cast.scales {
            Scales::None => false,
            Scales::Tensor(scale) => scale.is_nan(),
            Scales::Row(scales) => scales[row].is_nan(),
            Scales::Block(scales) => scales[depth / BLOCK * cast.panels.padded_rows() + row].is_nan(),
        }
    }

    #[test]
    fn a_nan_reaches_the_scale_of_its_group_and_no_other() {
        let source = with_a_nan();
        for power_of_two in [false, true] {
            for (granularity, spoilt) in [
                (Granularity::Tensor, [true; 5]),
                (Granularity::Row, [true, true, false, false, false]),
                (Granularity::Block1x128, [true, false, false, false, false]),
                (Granularity::Block128x128, [true, false, true, false, false]),
            ] {
                let cast = OperandCast { format: Format::E4m3, granularity, power_of_two };
                let cast = cast_panels(&source, cast, None);
                let places = [(130, 5), (130, 128), (255, 5), (127, 5), (256, 5)];
                assert_eq!(places.map(|(row, depth)| scale_is_nan(&cast, row, depth)), spoilt, "{granularity:?}");
            }
        }
    }

    #[test]
    fn what_is_flushed_is_counted_among_what_is_not_zero() {
        // E4M3's smallest is 2^-9: half of it is rounded to even, which is zero.
        let data = vec![0.0, 1.0, 2f32.powi(-10), -2f32.powi(-11), 1.1 * 2f32.powi(-10), f32::NAN];
        let source = Panels::pack(Side::Left, &Matrix { rows: 2, cols: 3, data });
        let share = |format, static_scale| {
            let cast = OperandCast::scaled_pow2(format, Granularity::Static);
            let whole = TensorRange { amax: None, static_scale: Some(static_scale) };
            flushed(&cast_panels(&source, cast, whole), format, &source)
        };
        assert_eq!(share(Format::E4m3, 1.0), Some(0.4));
        assert_eq!(share(Format::E4m3, 0.25), Some(0.0));
        assert_eq!(share(Format::E4m3, 4.0), Some(0.6));
        assert_eq!(share(Format::E5m2, 1.0), Some(0.0));
        assert_eq!(flushed(&CastPanels::empty(&source), Format::Bf16, &source), None);
    }

    #[test]
    fn a_tensor_is_nan_where_the_part_drawn_or_the_rest_is() {
        let cast = OperandCast::scaled(Format::E4m3, Granularity::Tensor);
        let scale = |source: &Panels, amax| cast_panels(source, cast, amax).scales;
        let whole = Panels::pack(Side::Left, &Matrix { rows: 1, cols: 1, data: vec![448.0] });
        assert!(matches!(scale(&with_a_nan(), Some(3.0)), Scales::Tensor(scale) if scale.is_nan()));
        assert!(matches!(scale(&whole, Some(f32::NAN)), Scales::Tensor(scale) if scale.is_nan()));
        assert_eq!(scale(&whole, Some(896.0)), Scales::Tensor(2.0));
        assert_eq!(scale(&whole, Some(1.0)), Scales::Tensor(1.0));
    }
}
