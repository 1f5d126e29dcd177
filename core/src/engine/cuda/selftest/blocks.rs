//! Linear + BlockNorm + hard swish in one kernel: every way, whatever it stores, against FP64 of the same codes, over
//! differently poisoned memory between guards; and no further from the unquantised block than the same recipe in
//! separate steps.

use std::ops::RangeInclusive;

use loka_kernels::gemm::{BLOCK_COLUMNS, STORE_CODES, STORE_H, STORE_Z};

use crate::{
    model::{Gemm, GemmNumerics, kernel},
    numerics::{TensorRange, fp8::e4m3_decode, rng::Rng},
};

use super::{
    super::{
        CudaError,
        block::OwnBlock,
        cast::Cast,
        lt::Addresses,
        norms::{TailPlaces, block_norm_hard_swish},
        product::{Product, Type},
        runner::{Places, Reads},
        static_gemm::{StaticGemm, static_sizes},
        stream_context::StreamContext,
    },
    CheckOutcome, POISONS, Problem, Suite, ensure,
    guarded::{Guarded, same},
    inputs::{bf16_bits, normals},
    products::{Case, Ran, Shape, bound, rel_l2},
    quantize::worth,
    statics::{LeftCodes, Special},
};

/// One row, ragged tiles, many stages, tiles of 128 rows (where those of 64 make more than one wave), both of many
/// tiles a block.
const SHAPES: [Shape; 8] = [
    [1, 144, 256],
    [100, 272, 512],
    [129, 16, 256],
    [129, 400, 256],
    [64, 4096, 512],
    [1030, 1024, 1024],
    [2200, 144, 1024],
    [5000, 128, 2048],
];

/// Every fourth fills the GPU more than once.
const RANDOM_SHAPES: usize = 300;
const ROWS: RangeInclusive<usize> = 1..=500;
/// In steps of 16.
const REDUCED: RangeInclusive<usize> = 1..=90;
const SHORT_REDUCED: RangeInclusive<usize> = 1..=20;
/// In blocks.
const COLS: RangeInclusive<usize> = 1..=4;

const BLOCK: usize = BLOCK_COLUMNS as usize;

/// |BlockNorm| <= 16 = 2^-4 * 256.
const H_SCALE: f32 = 0.0625;

/// One output, all of them, and what a training step keeps.
const STORES: [u32; 4] = [STORE_H, STORE_CODES, STORE_Z | STORE_H | STORE_CODES, STORE_Z | STORE_CODES];

const NAME: &str = "loka/fp8-block+fast";

pub(super) fn check(suite: &mut Suite<'_>) -> Result<(), CudaError> {
    let Some(numerics) = kernel(NAME).map(|kernel| kernel.numerics(Gemm::Fprop)) else { return Ok(()) };
    let any = Product::as_cast(numerics, 16, BLOCK, 16);
    if let Err(reason) = static_sizes(&suite.engine.device, any) {
        return suite.measured("blocks with a static scale".to_owned(), |_| Ok(format!("skipped: {reason}")));
    }
    for (index, shape) in SHAPES.into_iter().enumerate() {
        for special in [Special::None, Special::InfinityAndNan] {
            one(suite, numerics, shape, 2f32.powi(-5 - index as i32 % 3), special)?;
        }
    }
    let multiprocessors = suite.engine.device.multiprocessors as usize;
    let mut rng = Rng::new(0, &[b"shapes of blocks"]);
    for index in 0..RANDOM_SHAPES {
        let mut within = |range: RangeInclusive<usize>| range.start() + rng.below(range.end() - range.start() + 1);
        let blocks = within(COLS);
        let shape = if index % 4 == 3 {
            let waves = 64 * multiprocessors.div_ceil(blocks);
            [waves + within(1..=300), 16 * within(SHORT_REDUCED), BLOCK * blocks]
        } else {
            [within(ROWS), 16 * within(REDUCED), BLOCK * blocks]
        };
        let scale = 2f32.powi(-8 + within(0..=3) as i32);
        one(suite, numerics, shape, scale, Special::None)?;
    }
    Ok(())
}

fn one(
    suite: &mut Suite<'_>,
    numerics: GemmNumerics,
    shape @ [rows, reduced, cols]: Shape,
    scale: f32,
    special: Special,
) -> Result<(), CudaError> {
    let with = if special == Special::None { "" } else { ", with infinities and NaN" };
    let name = format!("{NAME} [{rows}, {reduced}] x [{reduced}, {cols}] by {scale}{with}");
    let (device, kernels) = (suite.engine.device.clone(), suite.engine.kernels.clone());
    suite.measured(name, |lane| {
        let left = LeftCodes::new(shape, scale, special);
        let b_values = normals(cols * reduced, "right");
        let b = lane.cast(&lane.upload(cols, reduced, &b_values)?, numerics.b, TensorRange::default())?;
        let product = Product::as_cast(numerics, rows, cols, reduced);
        let ran = Ran { output: Vec::new(), a: left.worth(), b: worth(lane, &b, (cols, reduced))? };
        let case = Case { shape, a: Vec::new(), b: b_values };
        let chosen = case.chosen();
        let wanted = BlockCheck::new(&ran, numerics, shape, &chosen);
        let operands = Operands::new(lane, &left, &b, shape)?;
        let (mut worst, mut count) = (0f64, 0);
        let mut stored = None;
        for stores in STORES {
            let block = OwnBlock::new(&device, &kernels, product, stores)?;
            for index in 0..block.ways.len() {
                let outputs = run(lane, &block, index, &operands)?;
                worst = worst.max(wanted.holds(&block.note(index), &outputs, special)?);
                count += 1;
                stored.get_or_insert(outputs);
            }
        }
        let note = format!("{worst:.2} of the bound, {count} runs, {} saturated", left.saturated);
        if special != Special::None {
            return Ok(note);
        }
        let gemm = StaticGemm::new(&device, &kernels, Product { out: Type::Bf16, ..product })?;
        let separate = separately(lane, &gemm, &operands)?;
        let fused = stored.map(|outputs| outputs.h).unwrap_or_default();
        let ratio = no_further(&fused, &separate, (&left.values, &case.b), shape, &chosen)?;
        Ok(format!("{note}, {ratio:.3} of the separate steps' error"))
    })
}

/// What is read, on the device.
struct Operands {
    x: Guarded,
    codes: Guarded,
    scale: Guarded,
    h_scale: Guarded,
    b: [u64; 2],
    saturated: u64,
    shape: Shape,
}

impl Operands {
    fn new(lane: &StreamContext, left: &LeftCodes, b: &Cast, shape: Shape) -> Result<Self, CudaError> {
        Ok(Self {
            x: Guarded::holding(lane, &bf16_bits(&left.values), 0, 0)?,
            codes: Guarded::holding(lane, &left.codes, 0, 0)?,
            scale: Guarded::holding(lane, &[left.scale], 0, 0)?,
            h_scale: Guarded::holding(lane, &[H_SCALE], 0, 0)?,
            b: [b.codes.address(), b.scales.as_ref().map_or(0, super::super::stream::Buffer::address)],
            saturated: left.saturated,
            shape,
        })
    }

    fn places(&self, a: u64, out: u64, saturated: u64) -> Places {
        let [b, b_scales] = self.b;
        let operands = Addresses { a, b, out, a_scales: self.scale.address(), b_scales };
        Places { h_scale: self.h_scale.address(), ..Places::of(operands, self.x.address(), saturated) }
    }
}

/// What a block stored, `[rows, cols]` each; empty what it was not asked for.
#[derive(Default, PartialEq)]
struct Outputs {
    z: Vec<u16>,
    h: Vec<u16>,
    codes: Vec<u8>,
}

/// The same from differently poisoned memory.
fn run(lane: &StreamContext, block: &OwnBlock, index: usize, operands: &Operands) -> Result<Outputs, Problem> {
    let [rows, reduced, cols] = operands.shape;
    let name = block.note(index);
    let mut first: Option<Outputs> = None;
    for poison in POISONS {
        let room = |bit, bytes| {
            let bytes = if block.stores & bit == 0 { 0 } else { bytes * rows * cols };
            Guarded::poisoned(lane, bytes, 0, poison)
        };
        let (z, h, h_codes) = (room(STORE_Z, 2)?, room(STORE_H, 2)?, room(STORE_CODES, 1)?);
        let written = Guarded::poisoned(lane, rows * reduced, 0, poison)?;
        let saturated = Guarded::holding(lane, &[5u64], 0, poison)?;
        let reads_codes = block.ways[index].reads() == Reads::Codes;
        let a = if reads_codes { operands.codes.address() } else { written.address() };
        let places = operands.places(a, h.address(), saturated.address());
        block.run(&lane.stream, Places { z: z.address(), h_codes: h_codes.address(), ..places }, index)?;
        let outputs = Outputs { z: z.read(lane)?, h: h.read(lane)?, codes: h_codes.read(lane)? };
        let wanted = 5 + if reads_codes { 0 } else { operands.saturated };
        let found = saturated.read::<u64>(lane)?[0];
        ensure(found == wanted, || format!("{name}: counted {} saturated, not {}", found.wrapping_sub(5), wanted - 5))?;
        if let Some(first) = &first {
            same(&format!("{name}: z of the second run"), &outputs.z, &first.z)?;
            same(&format!("{name}: h of the second run"), &outputs.h, &first.h)?;
            same(&format!("{name}: codes of the second run"), &outputs.codes, &first.codes)?;
        }
        first = Some(outputs);
    }
    Ok(first.unwrap_or_default())
}

fn widened(bits: u16) -> f32 {
    f32::from_bits(u32::from(bits) << 16)
}

fn decoded(code: u8) -> f32 {
    e4m3_decode(code) * H_SCALE
}

/// BlockNorm and hard swish of whole blocks, in FP64.
pub(super) fn tail(z: &[f64]) -> Vec<f64> {
    let swish = |y: f64| y * (y / 6.0 + 0.5).clamp(0.0, 1.0);
    let of_block = |block: &[f64]| {
        let inverse = root(block).recip();
        block.iter().map(|z| swish(z * inverse)).collect::<Vec<f64>>()
    };
    z.chunks_exact(BLOCK).flat_map(of_block).collect()
}

fn root(block: &[f64]) -> f64 {
    (block.iter().map(|z| z * z).sum::<f64>() / BLOCK as f64 + f64::from(f32::EPSILON)).sqrt()
}

/// The chosen rows in FP64 of the same codes, and how far outputs may be off.
struct BlockCheck<'a> {
    chosen: &'a [usize],
    cols: usize,
    z: Vec<f64>,
    z_bounds: Vec<f64>,
    h: Vec<f64>,
    /// Without the rounding of what is stored.
    h_bounds: Vec<f64>,
}

impl<'a> BlockCheck<'a> {
    fn new(ran: &Ran, numerics: GemmNumerics, shape @ [_, reduced, cols]: Shape, chosen: &'a [usize]) -> Self {
        let (z, magnitudes) = ran.exact(shape, chosen);
        let z_bounds: Vec<f64> =
            z.iter().zip(&magnitudes).map(|(z, magnitude)| bound(numerics, reduced, *z, *magnitude)).collect();
        let h_bounds = z.chunks_exact(BLOCK).zip(z_bounds.chunks_exact(BLOCK)).flat_map(of_block).collect();
        Self { chosen, cols, h: tail(&z), z, z_bounds, h_bounds }
    }

    /// Gives how near the worst element came to what is allowed.
    fn holds(&self, name: &str, outputs: &Outputs, special: Special) -> Result<f64, Problem> {
        let of = |what: &str| format!("{name}: {what}");
        let bf16_step = |exact: f64| exact.abs() / 256.0;
        let e4m3_step = |exact: f64| exact.abs() / 16.0 + f64::from(H_SCALE) / 1024.0;
        let z: Vec<f32> = outputs.z.iter().copied().map(widened).collect();
        let h: Vec<f32> = outputs.h.iter().copied().map(widened).collect();
        let codes: Vec<f32> = outputs.codes.iter().copied().map(decoded).collect();
        let mut worst = self.near(&of("z"), &z, (&self.z, &self.z_bounds), bf16_step)?;
        worst = worst.max(self.near(&of("h"), &h, (&self.h, &self.h_bounds), bf16_step)?);
        worst = worst.max(self.near(&of("codes"), &codes, (&self.h, &self.h_bounds), e4m3_step)?);
        if special == Special::None {
            self.near_together(&of("h"), &h, |exact| f64::from(crate::numerics::round::bf16(exact as f32)))?;
            self.near_together(&of("codes"), &codes, |exact| {
                f64::from(crate::numerics::round::e4m3(exact as f32 / H_SCALE) * H_SCALE)
            })?;
        }
        Ok(worst)
    }

    /// The chosen rows of an output; nothing of what was not stored.
    fn rows<'b>(&'b self, output: &'b [f32]) -> impl Iterator<Item = f32> + 'b {
        let stored = if output.is_empty() { &[] } else { self.chosen };
        stored.iter().flat_map(move |row| output[row * self.cols..(row + 1) * self.cols].iter().copied())
    }

    fn near(
        &self,
        name: &str,
        output: &[f32],
        (exact, bounds): (&[f64], &[f64]),
        step: impl Fn(f64) -> f64,
    ) -> Result<f64, Problem> {
        let mut worst = 0f64;
        for (index, ((found, exact), bound)) in self.rows(output).zip(exact).zip(bounds).enumerate() {
            if exact.is_nan() {
                ensure(found.is_nan(), || format!("{name}[{index}] is {found}, not NaN"))?;
                continue;
            }
            let bound = bound + step(exact.abs() + bound);
            let error = (f64::from(found) - exact).abs();
            ensure(error <= bound, || {
                format!("{name}[{index}] is {found}, not {exact}: {error:.2e} off, {bound:.2e} allowed")
            })?;
            worst = worst.max(error / bound);
        }
        Ok(worst)
    }

    /// Bounds of elements are loose: all together must be about as near as the type that is stored, and what the
    /// tensor cores drop of their sums.
    fn near_together(&self, name: &str, output: &[f32], stored: impl Fn(f64) -> f64) -> CheckOutcome {
        if output.is_empty() {
            return Ok(());
        }
        let error = rel_l2(self.rows(output), &self.h);
        let allowed = 1.05 * rel_l2(self.h.iter().map(|exact| stored(*exact) as f32), &self.h) + 1.5e-3;
        ensure(error <= allowed, || format!("{name}: relative L2 {error:.2e}, {allowed:.2e} allowed"))
    }
}

/// Errors of z reach h through the norm and the activation, whose slope is 3/2 at most.
fn of_block((z, bounds): (&[f64], &[f64])) -> Vec<f64> {
    let (root, moved) = (root(z), (bounds.iter().map(|bound| bound * bound).sum::<f64>() / BLOCK as f64).sqrt());
    let reach = |(z, bound): (&f64, &f64)| {
        // |BlockNorm| is 16 at most, whatever it reads.
        let most = 1.5 * 32.0;
        let off = if moved < root { 1.5 * (bound + (z / root).abs() * moved) / (root - moved) } else { most };
        off.min(most) + 1e-5
    };
    z.iter().zip(bounds).map(reach).collect()
}

/// The same recipe: the GEMM on codes to BF16, then the tail's own kernel to BF16.
fn separately(lane: &StreamContext, gemm: &StaticGemm, operands: &Operands) -> Result<Vec<u16>, Problem> {
    let [rows, _, cols] = operands.shape;
    let z = Guarded::poisoned(lane, 2 * rows * cols, 0, 0xFF)?;
    let h = Guarded::poisoned(lane, 2 * rows * cols, 0, 0xFF)?;
    gemm.run(&lane.stream, operands.places(operands.codes.address(), z.address(), 0), 0)?;
    let at = TailPlaces { z: z.address(), h: h.address(), ..TailPlaces::default() };
    block_norm_hard_swish(&lane.stream, &lane.kernels, (rows, cols), at)?;
    h.read(lane)
}

/// Both against the block of values that were never quantised; gives their ratio.
fn no_further(
    fused: &[u16],
    separate: &[u16],
    (a, b): (&[f32], &[f32]),
    shape @ [_, _, cols]: Shape,
    chosen: &[usize],
) -> Result<f64, Problem> {
    let wide = |values: &[f32]| values.iter().map(|value| f64::from(*value)).collect();
    let plain = Ran { output: Vec::new(), a: wide(a), b: wide(b) };
    let (z, _) = plain.exact(shape, chosen);
    let exact = tail(&z);
    let error = |h: &[u16]| {
        let rows = chosen.iter().flat_map(|row| h[row * cols..(row + 1) * cols].iter().copied());
        rel_l2(rows.map(widened), &exact)
    };
    let (fused, separate) = (error(fused), error(separate));
    ensure(fused <= 1.05 * separate, || format!("relative L2 {fused:.4e}, {separate:.4e} in separate steps"))?;
    Ok(fused / separate)
}
