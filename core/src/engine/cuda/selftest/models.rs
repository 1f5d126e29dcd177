//! What the CPU engine assumes of tensor cores: how much FP8 accumulation loses, and how TF32 rounds.

use crate::{
    model::{Accumulation, Format, Matrix, OperandCast},
    numerics::{Epilogue, Panels, Side, TensorRange, cast_panels, gemm, round},
};

use super::{
    super::{
        CudaError,
        cast::{Cast, Codes},
        product::{Compute, Product, Type},
        stream_context::StreamContext,
    },
    CheckOutcome, Problem, Suite, ensure,
    guarded::same_floats,
    inputs::normals,
    products::{self, Case, Inputs, Shape, finite, rel_l2},
};

/// With these sums are long enough to lose something.
const SHAPES: [Shape; 4] = [[128, 128, 128], [256, 512, 384], [48, 4096, 64], [2048, 1024, 256]];

/// Below this the FP32 output's own rounding rules.
const OUTPUT_ROUNDING: f64 = 1e-6;

pub(super) fn check(suite: &mut Suite<'_>) -> Result<(), CudaError> {
    for shape in SHAPES {
        for inputs in [Inputs::Normal, Inputs::WithMean, Inputs::Outliers] {
            let case = Case::new(shape, inputs);
            for numerics in products::all_numerics() {
                if numerics.accumulation == Accumulation::Fp32 || !products::fits(numerics, shape) {
                    continue;
                }
                let name =
                    format!("accumulation as modelled: {}, {}", products::describe(numerics, shape), inputs.name());
                suite.measured(name, |lane| accumulation(lane, numerics, &case))?;
            }
        }
    }
    suite.measured("TF32: what tensor cores do with the bits that they drop".to_owned(), hardware_tf32)?;
    suite.check("TF32: operands as the CPU engine rounds them".to_owned(), engine_tf32)
}

/// The error that accumulation leaves, on the GPU and in the CPU engine's model of it, both with FP32 outputs.
fn accumulation(
    lane: &mut StreamContext,
    numerics: crate::model::GemmNumerics,
    case: &Case,
) -> Result<String, Problem> {
    let ran = match products::run(lane, numerics, case, Type::F32) {
        Err(Problem::Cuda(CudaError::NoAlgorithm(_))) => return Ok("cuBLASLt has no FP32 output here".to_owned()),
        ran => ran?,
    };
    finite(&ran.output)?;
    let [_, reduced, cols] = case.shape;
    let chosen = case.chosen();
    let (exact, _) = ran.exact(case.shape, &chosen);
    let rows_of = |row: &usize| case.a[row * reduced..(row + 1) * reduced].iter().copied();
    let left = Matrix { rows: chosen.len(), cols: reduced, data: chosen.iter().flat_map(rows_of).collect() };
    let right = Matrix { rows: cols, cols: reduced, data: case.b.clone() };
    // The scale of the whole tensor, whichever rows are chosen.
    let left = cast_panels(&Panels::pack(Side::Left, &left), numerics.a, products::whole(&case.a));
    let right = cast_panels(&Panels::pack(Side::Right, &right), numerics.b, products::whole(&case.b));
    let mut modelled = vec![0f32; exact.len()];
    gemm(&left, &right, numerics.accumulation, Epilogue::Store, &mut modelled);
    let on_gpu = chosen.iter().flat_map(|row| ran.output[row * cols..(row + 1) * cols].iter().copied());
    let same = on_gpu.clone().zip(&modelled).filter(|(gpu, model)| gpu == *model).count();
    let same = 100.0 * same as f64 / exact.len().max(1) as f64;
    let (gpu, model) = (rel_l2(on_gpu, &exact), rel_l2(modelled.into_iter(), &exact));
    let text = format!("relative L2 {gpu:.2e}, modelled {model:.2e}, ratio {:.2}, {same:.0} % equal", gpu / model);
    let lost = gpu.max(model) > OUTPUT_ROUNDING;
    // Fast accumulation follows the hardware's rule; the library may split the sum, which loses less. Promoted has
    // a cheaper model: what it leaves is far below FP8's own rounding.
    let factor = if numerics.accumulation == Accumulation::Fast { 1.3 } else { 4.0 };
    ensure(!lost || (gpu <= factor * model && model <= 2.0 * factor * gpu), || text.clone())?;
    Ok(text)
}

const SIZE: usize = 128;

/// Values with all their bits, and those halfway between two of TF32's.
fn tf32_values() -> Vec<f32> {
    let mut values = normals(SIZE * SIZE, "tf32");
    let (half, quarter) = (2f32.powi(-11), 2f32.powi(-12));
    values[..4].copy_from_slice(&[1.0 + half + quarter, 1.0 + half, 1.0 + 3.0 * half, -(1.0 + half + quarter)]);
    values
}

fn identity() -> Vec<f32> {
    (0..SIZE * SIZE).map(|index| f32::from(index / SIZE == index % SIZE)).collect()
}

/// A product with the identity shows each operand as the tensor cores read it.
fn read_by_tensor_cores(lane: &mut StreamContext, a: &Cast) -> Result<Vec<f32>, Problem> {
    let one = Cast {
        codes: Codes::F32(lane.stream.upload(&identity())?),
        cast: OperandCast::unscaled(Format::Tf32),
        scales: None,
        blocked: None,
    };
    products::run_twice(lane, Product::plain(SIZE, SIZE, SIZE, Type::F32, Compute::Tf32), a, &one)
}

/// How one value may be brought onto TF32's grid, in words and in bits.
type TfRule = (&'static str, fn(f32) -> f32);

fn hardware_tf32(lane: &mut StreamContext) -> Result<String, Problem> {
    let values = tf32_values();
    let raw = Cast {
        codes: Codes::F32(lane.stream.upload(&values)?),
        cast: OperandCast::unscaled(Format::Tf32),
        scales: None,
        blocked: None,
    };
    let read = read_by_tensor_cores(lane, &raw)?;
    let rules: [TfRule; 4] = [
        ("rounds to nearest even, as the CPU engine does", round::tf32),
        ("rounds to nearest, halves away from zero: the engine must round by itself", |value| {
            f32::from_bits((value.to_bits() + 0x1000) & 0xFFFF_E000)
        }),
        ("truncates: the engine must round by itself", |value| f32::from_bits(value.to_bits() & 0xFFFF_E000)),
        ("keeps FP32: these were no tensor cores", |value| value),
    ];
    let follows = |rule: &fn(f32) -> f32| read.iter().zip(&values).all(|(read, value)| *read == rule(*value));
    let found = rules.iter().find(|(_, rule)| follows(rule));
    let unknown = || Problem::Wrong(format!("{} is read as {}, by no rule that we know", values[0], read[0]));
    found.map(|(name, _)| (*name).to_owned()).ok_or_else(unknown)
}

fn engine_tf32(lane: &mut StreamContext) -> CheckOutcome {
    let values = tf32_values();
    let tensor = lane.upload(SIZE, SIZE, &values)?;
    let cast = lane.cast(&tensor, OperandCast::unscaled(Format::Tf32), TensorRange::default())?;
    let read = read_by_tensor_cores(lane, &cast)?;
    let wanted: Vec<f32> = values.iter().map(|value| round::tf32(*value)).collect();
    same_floats("operand", &read, &wanted).map_err(|problem| {
        Problem::Wrong(format!(
            "the tensor cores do not round TF32 to nearest even, and the engine does not do it for them: {problem}"
        ))
    })
}
