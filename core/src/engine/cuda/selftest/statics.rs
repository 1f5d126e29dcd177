//! GEMMs with a static scale: every way of every product against the exact product of the same codes, over differently
//! poisoned memory between guards, and the count of what saturates against the CPU's. Codes come from the CPU; tilings
//! that do not share k are the same to the bit as the GEMM on codes.

use std::ops::RangeInclusive;

use crate::{
    model::{Format, Gemm, GemmNumerics, OperandCast, kernel},
    numerics::{TensorRange, fp8::e4m3_decode, rng::Rng, round},
};

use super::{
    super::{
        CudaError,
        lt::Addresses,
        product::Product,
        runner::{Places, Reads},
        static_gemm::{StaticGemm, static_sizes},
        stream_context::StreamContext,
    },
    POISONS, Problem, Suite, ensure,
    guarded::{Guarded, same_floats},
    inputs::{bf16_bits, normals},
    products::{Case, Ran, Shape, bound},
    quantize::worth,
    reference::encode,
};

/// One row, ragged ends of every tile, shared k, several tiles a block, k of one stage and of many.
const SHAPES: [Shape; 9] = [
    [1, 16, 16],
    [17, 144, 16],
    [129, 400, 272],
    [100, 144, 48],
    [128, 4096, 256],
    [2048, 512, 512],
    [3000, 256, 2048],
    [700, 384, 5120],
    [4500, 144, 1040],
];

const RANDOM_SHAPES: usize = 300;
const ROWS: RangeInclusive<usize> = 1..=700;
/// In steps of 16.
const REDUCED: RangeInclusive<usize> = 1..=90;
const COLS: RangeInclusive<usize> = 1..=40;

/// What `saturated` holds before: counts are added.
const COUNTED_BEFORE: u64 = 5;

pub(super) const STATIC: &str = "loka/fp8-static+fast";

pub(super) fn check(suite: &mut Suite<'_>) -> Result<(), CudaError> {
    let Some(numerics) = kernel(STATIC).map(|kernel| kernel.numerics(Gemm::Fprop)) else { return Ok(()) };
    let any = Product::as_cast(numerics, 16, 16, 16);
    if let Err(reason) = static_sizes(&suite.engine.device, any) {
        return suite.measured("GEMMs with a static scale".to_owned(), |_| Ok(format!("skipped: {reason}")));
    }
    for (index, shape) in SHAPES.into_iter().enumerate() {
        for kind in [Special::None, Special::InfinityAndNan] {
            one(suite, numerics, shape, 2f32.powi(-5 - index as i32 % 5), kind)?;
        }
    }
    let mut rng = Rng::new(0, &[b"shapes with a static scale"]);
    for index in 0..RANDOM_SHAPES {
        let mut within = |range: RangeInclusive<usize>| range.start() + rng.below(range.end() - range.start() + 1);
        let shape = [within(ROWS), 16 * within(REDUCED), 16 * within(COLS)];
        let scale = 2f32.powi(-9 + within(0..=4) as i32);
        let special = if index % 3 == 0 { Special::InfinityAndNan } else { Special::None };
        one(suite, numerics, shape, scale, special)?;
    }
    Ok(())
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Special {
    None,
    /// Both infinities, which saturate and count, and a NaN, which does neither.
    InfinityAndNan,
}

/// The left operand: what it is in BF16, its codes, and how many of them saturated.
pub(super) struct LeftCodes {
    pub values: Vec<f32>,
    pub codes: Vec<u8>,
    pub saturated: u64,
    pub scale: f32,
}

impl LeftCodes {
    /// `scale`: normals reach about 5, so that 2^-7, which ends at 3.5, lets some saturate.
    pub fn new([rows, reduced, _]: Shape, scale: f32, special: Special) -> Self {
        let mut values = normals(rows * reduced, &format!("left {rows} {reduced}"));
        if special == Special::InfinityAndNan {
            let last = values.len() - 1;
            values[last] = f32::INFINITY;
            values[last / 2] = f32::NEG_INFINITY;
            values[rows / 3 * reduced + reduced / 3] = f32::NAN;
        }
        let values: Vec<f32> = values.into_iter().map(round::bf16).collect();
        let codes = values.iter().map(|value| encode(Format::E4m3, value / scale)).collect();
        let saturated = values.iter().filter(|value| (**value / scale).abs() > 448.0).count() as u64;
        Self { values, codes, saturated, scale }
    }

    pub fn worth(&self) -> Vec<f64> {
        self.codes.iter().map(|code| f64::from(e4m3_decode(*code)) * f64::from(self.scale)).collect()
    }
}

fn one(
    suite: &mut Suite<'_>,
    numerics: GemmNumerics,
    shape @ [rows, reduced, cols]: Shape,
    scale: f32,
    special: Special,
) -> Result<(), CudaError> {
    let (device, kernels) = (suite.engine.device.clone(), suite.engine.kernels.clone());
    let with = if special == Special::None { "" } else { ", with infinities and NaN" };
    let name = format!("{STATIC} [{rows}, {reduced}] x [{reduced}, {cols}] by {scale}{with}");
    suite.measured(name, |lane| {
        let left = LeftCodes::new(shape, scale, special);
        let gemm = StaticGemm::new(&device, &kernels, Product::as_cast(numerics, rows, cols, reduced))?;
        every_way(lane, &gemm, numerics.b, shape, &left)
    })
}

fn every_way(
    lane: &mut StreamContext,
    gemm: &StaticGemm,
    cast_b: OperandCast,
    shape @ [rows, reduced, cols]: Shape,
    left: &LeftCodes,
) -> Result<String, Problem> {
    let case = Case { shape, a: Vec::new(), b: normals(cols * reduced, "right") };
    let b = lane.cast(&lane.upload(cols, reduced, &case.b)?, cast_b, TensorRange::default())?;
    let chosen = case.chosen();
    let x = Guarded::holding(lane, &bf16_bits(&left.values), 0, 0)?;
    let there_already = Guarded::holding(lane, &left.codes, 0, 0)?;
    let scale = Guarded::holding(lane, &[left.scale], 0, 0)?;
    let mut ran = Ran { output: Vec::new(), a: left.worth(), b: worth(lane, &b, (cols, reduced))? };
    let (exact, magnitudes) = ran.exact(shape, &chosen);
    // Sums that blocks share are added up in another order.
    let mut whole: Option<(String, Vec<f32>)> = None;
    let mut worst = 0f64;
    for index in 0..gemm.ways.len() {
        let name = gemm.note(index);
        let mut first: Option<Vec<f32>> = None;
        for poison in POISONS {
            let out = Guarded::poisoned(lane, 2 * rows * cols, 0, poison)?;
            let written = Guarded::poisoned(lane, rows * reduced, 0, poison)?;
            let reads_codes = gemm.ways[index].reads() == Reads::Codes;
            let codes = if reads_codes { &there_already } else { &written };
            let saturated = Guarded::holding(lane, &[COUNTED_BEFORE], 0, poison)?;
            let operands = Addresses {
                a: codes.address(),
                b: b.codes.address(),
                out: out.address(),
                a_scales: scale.address(),
                b_scales: b.scales_address(gemm.product.b.scaling),
            };
            gemm.run(&lane.stream, Places::of(operands, x.address(), saturated.address()), index)?;
            let bits = out.read::<u16>(lane)?;
            let output: Vec<f32> = bits.into_iter().map(|bits| f32::from_bits(u32::from(bits) << 16)).collect();
            let wanted = COUNTED_BEFORE + if reads_codes { 0 } else { left.saturated };
            let found = saturated.read::<u64>(lane)?[0];
            ensure(found == wanted, || {
                format!("{name}: counted {} saturated, not {}", found.wrapping_sub(5), wanted - 5)
            })?;
            match &first {
                Some(first) => same_floats(&format!("{name}: second run"), &output, first)?,
                None => first = Some(output),
            }
        }
        let output = first.unwrap_or_default();
        match &whole {
            _ if gemm.shares_k(index) => {}
            Some((of, first)) => same_floats(&format!("{name} beside {of}"), &output, first)?,
            None => whole = Some((name.clone(), output.clone())),
        }
        ran.output = output;
        worst = worst.max(near_exact(&ran, &name, (&exact, &magnitudes), (&chosen, shape))?);
    }
    Ok(format!("{worst:.2} of the bound, {} ways, {} saturated", gemm.ways.len(), left.saturated))
}

/// Holds the chosen rows against the exact product; gives how near the worst came to what is allowed. NaN is NaN.
fn near_exact(
    ran: &Ran,
    name: &str,
    (exact, magnitudes): (&[f64], &[f64]),
    (chosen, [_, reduced, cols]): (&[usize], Shape),
) -> Result<f64, Problem> {
    let Some(numerics) = kernel(STATIC).map(|kernel| kernel.numerics(Gemm::Fprop)) else { return Ok(0.0) };
    let mut worst = 0f64;
    for (index, (exact, magnitude)) in exact.iter().zip(magnitudes).enumerate() {
        let found = ran.output[chosen[index / cols] * cols + index % cols];
        if exact.is_nan() {
            ensure(found.is_nan(), || format!("{name}: output {index} is {found}, not NaN"))?;
            continue;
        }
        let bound = bound(numerics, reduced, *exact, *magnitude);
        let error = (f64::from(found) - exact).abs();
        ensure(error <= bound, || {
            format!("{name}: output {index} is {found}, not {exact}: {error:.2e} off, {bound:.2e} allowed")
        })?;
        worst = worst.max(error / bound);
    }
    Ok(worst)
}
