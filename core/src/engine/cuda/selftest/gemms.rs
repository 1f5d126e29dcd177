//! Our own FP8 GEMMs: every kernel at every product that it takes against the exact product, each over differently
//! poisoned memory between guards, and all kernels of a product that share k among as many blocks against each other to
//! the bit: tiles and their order differ, the order of the sums does not.

use std::{collections::BTreeSet, ops::RangeInclusive};

use crate::{
    model::{Gemm, GemmNumerics, catalogue},
    numerics::{TensorRange, rng::Rng},
};

use super::{
    super::{
        CudaError,
        cast::Cast,
        gemm::{OwnGemm, suited},
        lt::Addresses,
        product::Product,
        stream_context::StreamContext,
    },
    POISONS, Problem, Suite,
    guarded::{Guarded, same_floats},
    products::{Case, Inputs, Ran, SHAPES, Shape, compare, describe},
    quantize::worth,
};

/// Beside the products' shapes: one row, ragged ends of every tile, several tiles a block.
const MORE_SHAPES: [Shape; 5] = [[1, 16, 16], [129, 208, 144], [300, 2064, 80], [3000, 256, 2048], [700, 384, 5120]];

/// Random shapes, each with one numerics of its own.
const RANDOM_SHAPES: usize = 300;
const ROWS: RangeInclusive<usize> = 1..=700;
/// In steps of 16.
const REDUCED: RangeInclusive<usize> = 1..=90;
const COLS: RangeInclusive<usize> = 1..=40;

pub(super) fn check(suite: &mut Suite<'_>) -> Result<(), CudaError> {
    let all: Vec<GemmNumerics> = numerics().into_iter().collect();
    let any = Product::of(all[0], 16, 16, 16);
    if let Err(reason) = suited(&suite.engine.device, any) {
        return suite.measured("LoKA's GEMMs".to_owned(), |_| Ok(format!("skipped: {reason}")));
    }
    for shape in SHAPES.into_iter().chain(MORE_SHAPES) {
        for inputs in [Inputs::Normal, Inputs::WithMean, Inputs::Outliers, Inputs::Integers] {
            // Longer sums of integers need more than 14 bits.
            if inputs == Inputs::Integers && shape[1] > 256 {
                continue;
            }
            let case = Case::new(shape, inputs);
            for numerics in &all {
                one(suite, *numerics, &case, inputs)?;
            }
        }
    }
    let mut rng = Rng::new(0, &[b"shapes of our GEMMs"]);
    for index in 0..RANDOM_SHAPES {
        let mut within = |range: RangeInclusive<usize>| range.start() + rng.below(range.end() - range.start() + 1);
        let shape = [within(ROWS), 16 * within(REDUCED), 16 * within(COLS)];
        one(suite, all[index % all.len()], &Case::new(shape, Inputs::Normal), Inputs::Normal)?;
    }
    Ok(())
}

/// Of all our kernels in all directions, those with a static scale left to `statics` and `blocks`.
fn numerics() -> BTreeSet<GemmNumerics> {
    let own = catalogue().iter().filter(|kernel| kernel.is_own() && !kernel.is_static());
    own.flat_map(|kernel| Gemm::ALL.map(|gemm| kernel.numerics(gemm))).collect()
}

fn one(suite: &mut Suite<'_>, numerics: GemmNumerics, case: &Case, inputs: Inputs) -> Result<(), CudaError> {
    let (device, kernels) = (suite.engine.device.clone(), suite.engine.kernels.clone());
    let name = format!("LoKA's {}, {}", describe(numerics, case.shape), inputs.name());
    suite.measured(name, |lane| {
        let [rows, reduced, cols] = case.shape;
        let (a, b) = (lane.upload(rows, reduced, &case.a)?, lane.upload(cols, reduced, &case.b)?);
        let (a, b) =
            (lane.cast(&a, numerics.a, TensorRange::default())?, lane.cast(&b, numerics.b, TensorRange::default())?);
        let own = OwnGemm::new(&device, &kernels, Product::of(numerics, rows, cols, reduced))?;
        let (a_worth, b_worth) = (worth(lane, &a, (rows, reduced))?, worth(lane, &b, (cols, reduced))?);
        let mut ran = Ran { output: Vec::new(), a: a_worth, b: b_worth };
        let sharing: BTreeSet<u32> = own.launches.iter().map(|launch| launch.grid.cluster).collect();
        let mut told = Vec::new();
        for blocks in sharing {
            let (output, kernels) = every_kernel(lane, &own, (&a, &b), blocks)?;
            ran.output = output;
            let found = compare(&ran, numerics, case, inputs)?;
            let shared = if blocks > 1 { format!(" with k shared by {blocks}") } else { String::new() };
            told.push(format!("{found}, {kernels} kernels alike{shared}"));
        }
        Ok(told.join("; "))
    })
}

/// What all kernels of the product agree on in which so many blocks share k, and how many they are.
fn every_kernel(
    lane: &StreamContext,
    own: &OwnGemm,
    (a, b): (&Cast, &Cast),
    blocks: u32,
) -> Result<(Vec<f32>, usize), Problem> {
    let product = own.product;
    let (mut first, mut kernels): (Option<Vec<f32>>, usize) = (None, 0);
    for (index, launch) in own.launches.iter().enumerate().filter(|(_, launch)| launch.grid.cluster == blocks) {
        kernels += 1;
        for poison in POISONS {
            let out = Guarded::poisoned(lane, 2 * product.rows * product.cols, 0, poison)?;
            let at = Addresses {
                a: a.codes.address(),
                b: b.codes.address(),
                out: out.address(),
                a_scales: a.scales_address(product.a.scaling),
                b_scales: b.scales_address(product.b.scaling),
            };
            own.run(&lane.stream, at, index)?;
            let bits = out.read::<u16>(lane)?;
            let output: Vec<f32> = bits.into_iter().map(|bits| f32::from_bits(u32::from(bits) << 16)).collect();
            match &first {
                Some(first) => same_floats(&launch.name(), &output, first)?,
                None => first = Some(output),
            }
        }
    }
    Ok((first.unwrap_or_default(), kernels))
}
