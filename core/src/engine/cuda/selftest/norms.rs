//! BlockNorm and hard swish by themselves, forward and backward, against FP64; codes and scales of what is stored to
//! the bit.

use crate::{
    model::Format,
    numerics::{cast::scale_from_amax, round},
};

use super::{
    super::{
        CudaError,
        norms::{GradientPlaces, TailPlaces, block_backward, block_backward_static, block_norm_hard_swish},
        raw::StaticBackwardMemory,
        stream_context::StreamContext,
    },
    CheckOutcome, POISONS, Suite,
    blocks::tail,
    ensure,
    guarded::{Guarded, same, same_codes, same_floats},
    inputs::{bf16_bits, normals},
    reference::encode,
};

const BLOCK: usize = 256;

/// One block, a row of many, more blocks than warps of the GPU, the longest row of the backward.
const SHAPES: [(usize, usize); 6] = [(1, 256), (3, 768), (100, 2048), (4099, 512), (7, 16_384), (64, 12_544)];

/// FP32's arithmetic, its reciprocal root and the activation's cancellation, of outputs of order 1.
const ROUNDING: f64 = 3e-6;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum NormValues {
    Normal,
    /// Of the order of what is added under the root.
    Small,
    Zeros,
    InfinityAndNan,
}

impl NormValues {
    const ALL: [Self; 4] = [Self::Normal, Self::Small, Self::Zeros, Self::InfinityAndNan];

    fn of(self, count: usize) -> Vec<f32> {
        let mut values = normals(count, "block");
        match self {
            // Both bends of the activation are met.
            Self::Normal => values.iter_mut().for_each(|value| *value = 1.7 * *value + 0.3),
            Self::Small => values.iter_mut().for_each(|value| *value *= 3e-4),
            Self::Zeros => values.fill(0.0),
            Self::InfinityAndNan => {
                values[count / 3] = f32::NAN;
                values[count - 1] = f32::NEG_INFINITY;
            }
        }
        values.into_iter().map(round::bf16).collect()
    }
}

pub(super) fn check(suite: &mut Suite<'_>) -> Result<(), CudaError> {
    for shape @ (rows, cols) in SHAPES {
        for values in NormValues::ALL {
            let of = format!("[{rows}, {cols}], {values:?}");
            suite.check(format!("block_norm_hard_swish {of}"), |lane| forward(lane, shape, values))?;
            suite.check(format!("block_backward {of}"), |lane| backward(lane, shape, values))?;
            suite.check(format!("block_backward_static {of}"), |lane| static_backward(lane, shape, values))?;
        }
    }
    Ok(())
}

fn wide(values: &[f32]) -> Vec<f64> {
    values.iter().map(|value| f64::from(*value)).collect()
}

fn widened(bits: &[u16]) -> Vec<f32> {
    bits.iter().map(|bits| f32::from_bits(u32::from(*bits) << 16)).collect()
}

/// Within half a step of BF16, and what FP32 rounds on the way; NaN is NaN.
fn near(what: &str, found: &[f32], exact: &[f64], slack: impl Fn(usize) -> f64) -> CheckOutcome {
    let wrong = found.iter().zip(exact).enumerate().find(|(index, (found, exact))| {
        let close = (f64::from(**found) - *exact).abs() <= exact.abs() / 256.0 + slack(*index);
        if exact.is_nan() { !found.is_nan() } else { !close }
    });
    wrong.map_or(Ok(()), |(index, (found, exact))| ensure(false, || format!("{what}[{index}] is {found}, not {exact}")))
}

fn forward(lane: &StreamContext, shape @ (rows, cols): (usize, usize), values: NormValues) -> CheckOutcome {
    const H_SCALE: f32 = 0.0625;
    let z = values.of(rows * cols);
    let exact = tail(&wide(&z));
    let z = Guarded::holding(lane, &bf16_bits(&z), 0, 0)?;
    let scale = Guarded::holding(lane, &[H_SCALE], 0, 0)?;
    for poison in POISONS {
        for (has_h, has_codes) in [(true, true), (true, false), (false, true)] {
            let h = Guarded::poisoned(lane, if has_h { 2 * rows * cols } else { 0 }, 0, poison)?;
            let codes = Guarded::poisoned(lane, if has_codes { rows * cols } else { 0 }, 0, poison)?;
            let or_none = |wanted, buffer: &Guarded| if wanted { buffer.address() } else { 0 };
            let at = TailPlaces {
                z: z.address(),
                h: or_none(has_h, &h),
                codes: or_none(has_codes, &codes),
                scale: scale.address(),
            };
            block_norm_hard_swish(&lane.stream, &lane.kernels, shape, at)?;
            near("h", &widened(&h.read::<u16>(lane)?), &exact, |_| ROUNDING)?;
            let codes: Vec<f32> = codes
                .read::<u8>(lane)?
                .into_iter()
                .map(|code| crate::numerics::fp8::e4m3_decode(code) * H_SCALE)
                .collect();
            near("codes", &codes, &exact, |index| exact[index].abs() / 16.0 + f64::from(H_SCALE) / 1024.0 + ROUNDING)?;
        }
    }
    Ok(())
}

/// The gradient in FP64, and how far it may be off; NaN where the slope's own bends are too near to tell.
fn gradient(z: &[f64], dh: &[f64]) -> (Vec<f64>, Vec<f64>) {
    let (mut exact, mut slack) = (Vec::new(), Vec::new());
    for (z, dh) in z.chunks_exact(BLOCK).zip(dh.chunks_exact(BLOCK)) {
        let mean_square = z.iter().map(|z| z * z).sum::<f64>() / BLOCK as f64;
        let inverse = (mean_square + f64::from(f32::EPSILON)).sqrt().recip();
        let y: Vec<f64> = z.iter().map(|z| z * inverse).collect();
        let slope = |y: f64| match y {
            y if y >= 3.0 => 1.0,
            y if y <= -3.0 => 0.0,
            y => y / 3.0 + 0.5,
        };
        let g: Vec<f64> = dh.iter().zip(&y).map(|(dh, y)| dh * slope(*y)).collect();
        let mean = g.iter().zip(&y).map(|(g, y)| g * y).sum::<f64>() / BLOCK as f64;
        let largest = g.iter().fold(mean.abs(), |largest, g| largest.max(g.abs()));
        let bend = y.iter().any(|y| (y.abs() - 3.0).abs() < 1e-4);
        exact.extend(g.iter().zip(&y).map(|(g, y)| inverse * (g - y * mean)));
        slack.extend(y.iter().map(|y| if bend { f64::INFINITY } else { 1e-5 * inverse * largest * (1.0 + y.abs()) }));
    }
    (exact, slack)
}

/// z and dh in memory, and the exact gradient with how far it may be off.
struct Given {
    z: Guarded,
    dh: Guarded,
    exact: Vec<f64>,
    slack: Vec<f64>,
}

impl Given {
    fn of(lane: &StreamContext, count: usize, values: NormValues) -> Result<Self, CudaError> {
        let z = values.of(count);
        let dh: Vec<f32> = normals(count, "gradient").into_iter().map(|value| round::bf16(value * 1e-3)).collect();
        let (exact, slack) = gradient(&wide(&z), &wide(&dh));
        let (z, dh) = (Guarded::holding(lane, &bf16_bits(&z), 0, 0)?, Guarded::holding(lane, &bf16_bits(&dh), 0, 0)?);
        Ok(Self { z, dh, exact, slack })
    }
}

fn backward(lane: &StreamContext, shape @ (rows, cols): (usize, usize), values: NormValues) -> CheckOutcome {
    let given = Given::of(lane, rows * cols, values)?;
    for poison in POISONS {
        let dz = Guarded::poisoned(lane, 2 * rows * cols, 0, poison)?;
        let codes = Guarded::poisoned(lane, rows * cols, 0, poison)?;
        let row_scales = Guarded::poisoned(lane, 4 * rows, 0, poison)?;
        let at = GradientPlaces {
            dh: given.dh.address(),
            z: given.z.address(),
            dz: dz.address(),
            codes: codes.address(),
            row_scales: row_scales.address(),
        };
        block_backward(&lane.stream, &lane.kernels, shape, at)?;
        let stored = widened(&dz.read::<u16>(lane)?);
        near("dz", &stored, &given.exact, |index| given.slack[index])?;
        let scale = |row: &[f32]| scale_from_amax(crate::numerics::amax(row), Format::E4m3, false);
        let scales: Vec<f32> = stored.chunks_exact(cols).map(scale).collect();
        let wanted: Vec<u8> =
            stored.iter().enumerate().map(|(i, value)| encode(Format::E4m3, value / scales[i / cols])).collect();
        same_codes("codes", &codes.read::<u8>(lane)?, &wanted, false)?;
        same_floats("scales", &row_scales.read::<f32>(lane)?, &scales)?;
        // Codes alone, without dz.
        let again = Guarded::poisoned(lane, rows * cols, 0, poison)?;
        block_backward(&lane.stream, &lane.kernels, shape, GradientPlaces { dz: 0, codes: again.address(), ..at })?;
        same_codes("codes alone", &again.read::<u8>(lane)?, &wanted, false)?;
    }
    Ok(())
}

fn static_backward(lane: &StreamContext, (rows, cols): (usize, usize), values: NormValues) -> CheckOutcome {
    let given = Given::of(lane, rows * cols, values)?;
    // Some of them saturate.
    let scale = 2f32.powi(-18);
    let scale_at = Guarded::holding(lane, &[scale], 0, 0)?;
    let is_turned = rows.is_multiple_of(16);
    for poison in POISONS {
        let dz = Guarded::poisoned(lane, 2 * rows * cols, 0, poison)?;
        let codes = Guarded::poisoned(lane, rows * cols, 0, poison)?;
        let codes_t = Guarded::poisoned(lane, if is_turned { rows * cols } else { 0 }, 0, poison)?;
        // Added to what was there, and raised from it.
        let saturated = Guarded::holding(lane, &[5u64], 0, poison)?;
        let amax = Guarded::holding(lane, &[0f32], 0, poison)?;
        let at = StaticBackwardMemory {
            dh: given.dh.address(),
            z: given.z.address(),
            dz: dz.address(),
            codes: codes.address(),
            codes_t: if is_turned { codes_t.address() } else { 0 },
            scale: scale_at.address(),
            saturated: saturated.address(),
            amax: amax.address(),
            m: rows as u32,
            n: cols as u32,
        };
        block_backward_static(&lane.stream, &lane.kernels, &at)?;
        let stored = widened(&dz.read::<u16>(lane)?);
        near("dz", &stored, &given.exact, |index| given.slack[index])?;
        let wanted: Vec<u8> = stored.iter().map(|value| encode(Format::E4m3, value / scale)).collect();
        same_codes("codes", &codes.read::<u8>(lane)?, &wanted, false)?;
        if is_turned {
            let turned: Vec<u8> = (0..rows * cols).map(|i| wanted[i % rows * cols + i / rows]).collect();
            same_codes("codes transposed", &codes_t.read::<u8>(lane)?, &turned, false)?;
        }
        let beyond = stored.iter().filter(|value| (**value / scale).abs() > 448.0).count() as u64;
        same("saturated", &saturated.read::<u64>(lane)?, &[5 + beyond])?;
        same_floats("amax", &amax.read::<f32>(lane)?, &[crate::numerics::amax(&stored)])?;
        // Codes alone, and no sums.
        let again = Guarded::poisoned(lane, rows * cols, 0, poison)?;
        let alone = StaticBackwardMemory { dz: 0, codes_t: 0, saturated: 0, amax: 0, codes: again.address(), ..at };
        block_backward_static(&lane.stream, &lane.kernels, &alone)?;
        same_codes("codes alone", &again.read::<u8>(lane)?, &wanted, false)?;
        same("saturated, not asked for", &saturated.read::<u64>(lane)?, &[5 + beyond])?;
    }
    Ok(())
}
