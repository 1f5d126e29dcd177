//! Every product of the catalogue against the exact product of its cast operands: FP32 paths within FP32's rounding,
//! FP8 within what 14 bits lose an instruction, small integers exactly.

use std::collections::BTreeSet;

use crate::{
    model::{Accumulation, Format, Gemm, GemmNumerics, Granularity, catalogue},
    numerics::{Panels64, Side, TensorRange, amax, cast::scale_from_amax, gemm_f64, round},
};

use super::{
    super::{
        CudaError,
        cast::Cast,
        lt::Addresses,
        product::{Product, Type},
        stream_context::StreamContext,
    },
    CheckOutcome, POISONS, Problem, Suite, ensure,
    guarded::{Guarded, same_floats},
    inputs::normals,
    quantize::worth,
};

/// Rows, length of the reduction, columns.
pub(super) type Shape = [usize; 3];

pub(super) const SHAPES: [Shape; 7] = [
    [16, 16, 16],
    [128, 128, 128],
    [256, 512, 384],
    [48, 4096, 64],
    [2048, 1024, 256],
    [100, 256, 128],
    [33, 512, 256],
];

/// Multiply-adds that the CPU spends on one exact product: of larger ones it takes some rows.
const AFFORDED: usize = 25_000_000;

/// What one instruction loses at most, of the sum of magnitudes: 32 products and the accumulator are each cut to a
/// multiple of 2^-13 of the largest's power of two (docs/concepts/method.md). A bound, and loose: what the rule itself gives
/// is checked in models.rs.
const STEP: f64 = (INSTRUCTION + 1) as f64 / 8192.0;
const INSTRUCTION: usize = 32;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Inputs {
    Normal,
    /// All of one sign: sums grow to the end.
    WithMean,
    /// Some features 60 times larger than the others.
    Outliers,
    /// From -7 to 7, so that every scale is a power of two and every sum has 14 bits at most.
    Integers,
}

impl Inputs {
    pub fn name(self) -> &'static str {
        match self {
            Self::Normal => "normal",
            Self::WithMean => "with a mean",
            Self::Outliers => "with outlier features",
            Self::Integers => "small integers",
        }
    }

    /// `[rows, reduced]`
    fn operand(self, rows: usize, reduced: usize, name: &str) -> Vec<f32> {
        let mut values = normals(rows * reduced, name);
        for (index, value) in values.iter_mut().enumerate() {
            let feature = index % reduced;
            *value = match self {
                Self::Normal => *value,
                Self::WithMean => *value + 2.0,
                Self::Outliers => *value * if feature % 41 == 3 { 60.0 } else { 1.0 },
                // Every block must have the 7 that its scale comes from.
                Self::Integers if feature.is_multiple_of(128) => 7.0,
                Self::Integers => (*value * 3.0).round().clamp(-7.0, 7.0),
            };
        }
        values
    }
}

/// Both operands of one product in FP32.
pub(super) struct Case {
    pub shape: Shape,
    pub a: Vec<f32>,
    pub b: Vec<f32>,
}

impl Case {
    pub fn new(shape @ [rows, reduced, cols]: Shape, inputs: Inputs) -> Self {
        Self { shape, a: inputs.operand(rows, reduced, "left"), b: inputs.operand(cols, reduced, "right") }
    }

    /// Rows that are compared: all, or as many as the CPU affords, the first and the last among them.
    pub fn chosen(&self) -> Vec<usize> {
        let [rows, reduced, cols] = self.shape;
        let count = (AFFORDED / (reduced * cols)).clamp(2, rows.max(2)).min(rows);
        (0..count).map(|index| index * (rows - 1) / (count - 1).max(1)).collect()
    }
}

/// A product on the GPU: its output, and what its cast operands are worth.
pub(super) struct Ran {
    /// `[rows, cols]`
    pub output: Vec<f32>,
    pub a: Vec<f64>,
    pub b: Vec<f64>,
}

impl Ran {
    /// The exact product of the chosen rows, and the same of magnitudes.
    pub fn exact(&self, [_, reduced, cols]: Shape, chosen: &[usize]) -> (Vec<f64>, Vec<f64>) {
        let product = |of: fn(f64) -> f64| {
            let left = packed(Side::Left, chosen.len(), reduced, |row, d| of(self.a[chosen[row] * reduced + d]));
            let right = packed(Side::Right, cols, reduced, |row, d| of(self.b[row * reduced + d]));
            let mut out = vec![0f64; chosen.len() * cols];
            gemm_f64(&left, &right, &mut out);
            out
        };
        (product(|value| value), product(f64::abs))
    }
}

fn packed(side: Side, rows: usize, depth: usize, value: impl Fn(usize, usize) -> f64) -> Panels64 {
    let width = side.width();
    let mut data = vec![0f64; rows.div_ceil(width) * depth * width];
    for row in 0..rows {
        for d in 0..depth {
            data[row / width * depth * width + d * width + row % width] = value(row, d);
        }
    }
    Panels64 { side, rows, depth, width, data }
}

/// What is known of a tensor that is all there: a static scale is one that saturates nothing.
pub(super) fn whole(values: &[f32]) -> TensorRange {
    let amax = amax(values);
    TensorRange { amax: Some(amax), static_scale: Some(scale_from_amax(amax, Format::E4m3, true)) }
}

/// Casts both operands and multiplies them, twice over differently poisoned memory.
pub(super) fn run(lane: &mut StreamContext, numerics: GemmNumerics, case: &Case, out: Type) -> Result<Ran, Problem> {
    let [rows, reduced, cols] = case.shape;
    let (a, b) = (lane.upload(rows, reduced, &case.a)?, lane.upload(cols, reduced, &case.b)?);
    let (a, b) = (lane.cast(&a, numerics.a, whole(&case.a))?, lane.cast(&b, numerics.b, whole(&case.b))?);
    let product = Product { out, ..Product::of(numerics, rows, cols, reduced) };
    let output = run_twice(lane, product, &a, &b)?;
    Ok(Ran { output, a: worth(lane, &a, (rows, reduced))?, b: worth(lane, &b, (cols, reduced))? })
}

pub(super) fn run_twice(lane: &mut StreamContext, product: Product, a: &Cast, b: &Cast) -> Result<Vec<f32>, Problem> {
    let bytes = if product.out == Type::Bf16 { 2 } else { 4 };
    let mut outputs = Vec::new();
    for poison in POISONS {
        let out = Guarded::poisoned(lane, bytes * product.rows * product.cols, 0, poison)?;
        let at = Addresses {
            a: a.codes.address(),
            b: b.codes.address(),
            out: out.address(),
            a_scales: a.scales_address(product.a.scaling),
            b_scales: b.scales_address(product.b.scaling),
        };
        lane.product(product, at)?;
        outputs.push(if bytes == 2 {
            out.read::<u16>(lane)?.into_iter().map(|bits| f32::from_bits(u32::from(bits) << 16)).collect()
        } else {
            out.read::<f32>(lane)?
        });
    }
    let second = outputs.pop().unwrap_or_default();
    same_floats("first run's output", &outputs.pop().unwrap_or_default(), &second)?;
    Ok(second)
}

/// The different numerics of all kernels.
pub(super) fn all_numerics() -> BTreeSet<GemmNumerics> {
    catalogue().iter().flat_map(|kernel| Gemm::ALL.map(|gemm| kernel.numerics(gemm))).collect()
}

pub(super) fn describe(numerics: GemmNumerics, [rows, reduced, cols]: Shape) -> String {
    let power = if numerics.a.power_of_two { ", powers of two" } else { "" };
    format!("product {}{power}", Product::of(numerics, rows, cols, reduced))
}

/// FP8 tensor cores want multiples of 16, blocks of 128 whole ones; as `Kernel::refuses`.
pub(super) fn fits(numerics: GemmNumerics, [_, reduced, cols]: Shape) -> bool {
    let multiple = match numerics.a.format {
        Format::E4m3 | Format::E5m2 if numerics.a.granularity == Granularity::Block1x128 => 128,
        Format::E4m3 | Format::E5m2 => 16,
        _ => 1,
    };
    reduced.is_multiple_of(multiple) && cols.is_multiple_of(multiple)
}

/// What NVIDIA does not promise: ragged rows. The engine reports these with the library's reason; everything else
/// must run.
pub(super) fn may_be_missing([rows, ..]: Shape) -> bool {
    !rows.is_multiple_of(16)
}

pub(super) fn check(suite: &mut Suite<'_>) -> Result<(), CudaError> {
    for shape in SHAPES {
        for inputs in [Inputs::Normal, Inputs::WithMean, Inputs::Outliers, Inputs::Integers] {
            // Longer sums of integers need more than 14 bits.
            if inputs == Inputs::Integers && shape[1] > 256 {
                continue;
            }
            let case = Case::new(shape, inputs);
            for numerics in all_numerics().into_iter().filter(|numerics| fits(*numerics, shape)) {
                let name = format!("{}, {}", describe(numerics, shape), inputs.name());
                suite.measured(name, |lane| one(lane, numerics, &case, inputs))?;
            }
        }
    }
    Ok(())
}

fn one(lane: &mut StreamContext, numerics: GemmNumerics, case: &Case, inputs: Inputs) -> Result<String, Problem> {
    let out = if numerics.output == Format::Bf16 { Type::Bf16 } else { Type::F32 };
    let ran = match run(lane, numerics, case, out) {
        Err(Problem::Cuda(CudaError::NoAlgorithm(_))) if may_be_missing(case.shape) => {
            return Ok("cuBLASLt has no algorithm".to_owned());
        }
        ran => ran?,
    };
    compare(&ran, numerics, case, inputs)
}

/// Holds the chosen rows against the exact product; says how near the worst came to what is allowed.
pub(super) fn compare(ran: &Ran, numerics: GemmNumerics, case: &Case, inputs: Inputs) -> Result<String, Problem> {
    let chosen = case.chosen();
    let (exact, magnitudes) = ran.exact(case.shape, &chosen);
    let [_, reduced, cols] = case.shape;
    let output = |index: usize| ran.output[chosen[index / cols] * cols + index % cols];
    let mut worst = 0f64;
    for (index, (exact, magnitude)) in exact.iter().zip(&magnitudes).enumerate() {
        let found = output(index);
        if inputs == Inputs::Integers {
            let wanted = round::value(numerics.output, *exact as f32);
            ensure(found == wanted, || format!("output {index} is {found}, not {wanted}"))?;
            continue;
        }
        let bound = bound(numerics, reduced, *exact, *magnitude);
        let error = (f64::from(found) - exact).abs();
        ensure(error <= bound, || {
            format!("output {index} is {found}, not {exact}: {error:.2e} off, {bound:.2e} allowed")
        })?;
        worst = worst.max(error / bound);
    }
    Ok(if inputs == Inputs::Integers { "exact".to_owned() } else { format!("{worst:.2} of the bound") })
}

/// How far an output may be off: its accumulation over `magnitude`, the sum of the products' magnitudes, and its
/// own rounding.
pub(super) fn bound(numerics: GemmNumerics, reduced: usize, exact: f64, magnitude: f64) -> f64 {
    let plain = 2f64.powi(-21) * (reduced as f64).sqrt();
    let accumulation = match numerics.accumulation {
        Accumulation::Fp32 => plain,
        Accumulation::Promoted => plain + STEP * reduced.div_ceil(INSTRUCTION).min(128 / INSTRUCTION) as f64,
        Accumulation::Fast => plain + STEP * reduced.div_ceil(INSTRUCTION) as f64,
    } * magnitude;
    let half_step = if numerics.output == Format::Bf16 { 2f64.powi(-8) } else { 2f64.powi(-24) };
    accumulation + half_step * (exact.abs() + accumulation) + 1e-37
}

/// ||ours - exact|| / ||exact||
pub(super) fn rel_l2(ours: impl Iterator<Item = f32>, exact: &[f64]) -> f64 {
    let error: f64 = ours.zip(exact).map(|(ours, exact)| (f64::from(ours) - exact).powi(2)).sum();
    (error / exact.iter().map(|exact| exact * exact).sum::<f64>()).sqrt()
}

/// Refuses an output that holds something not finite.
pub(super) fn finite(output: &[f32]) -> CheckOutcome {
    let found = output.iter().position(|value| !value.is_finite());
    found.map_or(Ok(()), |at| Err(Problem::Wrong(format!("output {at} is {}", output[at]))))
}
