//! The reductions: error sums and histogram, block distances, sums for the loss. Counts, maxima and histograms
//! exactly, sums as FP64 allows.

use loka_kernels::probing::{ErrorSums, HISTOGRAM_BINS};

use crate::{
    model::{Format, Granularity, Matrix, OperandCast},
    numerics::{
        DrawStats, Panels, Reference, Side, TensorRange, cast_panels,
        fp8::{e4m3_decode, e5m2_decode},
        round, squared_distance,
    },
};

use super::{
    super::{
        CudaError,
        cast::{Cast, Codes},
        stream_context::{StreamContext, Tensor},
    },
    CheckOutcome, POISONS, Suite, ensure,
    guarded::{Guarded, near, same, same_floats},
    inputs::{Kind, bf16_bits, normals},
};

/// Sums in FP64 in another order.
const SUMS: f64 = 1e-12;

pub(super) fn check(suite: &mut Suite<'_>) -> Result<(), CudaError> {
    for count in [1, 7, 1000, 65_537, 300_007] {
        for is_bf16 in [false, true] {
            let of = format!("[{count}] {}", if is_bf16 { "BF16" } else { "FP32" });
            suite.check(format!("error_metrics {of}"), |lane| error_metrics(lane, count, is_bf16, false))?;
        }
    }
    suite.check("error_metrics [1000] FP32, one NaN".to_owned(), |lane| error_metrics(lane, 1000, false, true))?;
    for format in [Format::E4m3, Format::E5m2] {
        suite.check(format!("block_distance: all 256 codes of {format:?}"), |lane| all_codes(lane, format))?;
    }
    for (s, (rows, cols)) in [(1, 1), (17, 48), (130, 272), (9, 4100), (600, 1024)].into_iter().enumerate() {
        for (c, cast) in every_cast().into_iter().enumerate() {
            let kind = [Kind::Normal, Kind::Constant, Kind::Mixed][(s + c) % 3];
            let name =
                format!("block_distance [{rows}, {cols}] {:?} {:?}, {}", cast.format, cast.granularity, kind.name());
            suite.check(name, |lane| block_distance(lane, rows, cols, cast, kind))?;
        }
        for kind in [Kind::Normal, Kind::Mixed, Kind::Subnormal] {
            suite.check(format!("sum_squares [{rows}, {cols}], {}", kind.name()), |lane| {
                sum_squares(lane, rows, cols, kind)
            })?;
        }
        for weighted in [false, true] {
            let name = format!("loss_rows [{rows}, {cols}]{}", if weighted { ", weighted" } else { "" });
            suite.check(name, |lane| loss_rows(lane, rows, cols, weighted))?;
        }
    }
    Ok(())
}

fn every_cast() -> Vec<OperandCast> {
    use Granularity::{Block1x128, Block128x128, Row, Tensor};
    let unscaled = [Format::F32, Format::Bf16].map(OperandCast::unscaled);
    let scaled =
        [Tensor, Row, Block1x128, Block128x128].map(|granularity| OperandCast::scaled(Format::E4m3, granularity));
    let wide = OperandCast::scaled_pow2(Format::E5m2, Tensor);
    unscaled.into_iter().chain(scaled).chain([wide]).collect()
}

/// References of all sizes, some zero; errors from none to far beyond the reference.
fn outputs(count: usize, is_bf16: bool, with_nan: bool) -> (Vec<f32>, Vec<f64>) {
    let (references, errors) = (normals(count, "references"), normals(count, "errors"));
    let reference = |index: usize| match index % 11 {
        4 if count > 4 => 0.0,
        7 => f64::from(references[index]) * 1e-9,
        _ => f64::from(references[index]) * 1.000_000_37,
    };
    let values: Vec<f64> = (0..count).map(reference).collect();
    let output = |index: usize| {
        let size = [0.0, 1e-3, 0.04, 3.0][index % 4];
        let value = (values[index] + size * f64::from(errors[index])) as f32;
        if is_bf16 { round::bf16(value) } else { value }
    };
    let mut outputs: Vec<f32> = (0..count).map(output).collect();
    if with_nan {
        outputs[count / 2] = f32::NAN;
    }
    (outputs, values)
}

fn error_metrics(lane: &StreamContext, count: usize, is_bf16: bool, with_nan: bool) -> CheckOutcome {
    let (output, values) = outputs(count, is_bf16, with_nan);
    let mut difference = Vec::new();
    let wanted = DrawStats::measure(&output, &Reference::new(count, values.clone()), &mut difference);
    let reference = lane.stream.upload(&values)?;
    for poison in POISONS {
        let output = if is_bf16 {
            Guarded::holding(lane, &bf16_bits(&output), 0, poison)?
        } else {
            Guarded::holding(lane, &output, 0, poison)?
        };
        let of_kernel = lane.tensor(1, count)?;
        lane.stream.fill(&of_kernel.data, poison)?;
        let sums = Guarded::poisoned(lane, size_of::<ErrorSums>(), 0, poison)?;
        let histogram = Guarded::holding(lane, &[0u32; HISTOGRAM_BINS], 0, poison)?;
        let places = (sums.address(), histogram.address());
        lane.error_metrics((output.address(), is_bf16), &reference, Some(&of_kernel), places)?;
        same_floats("difference", &lane.stream.download(&of_kernel.data)?, &difference)?;
        same("histogram", &histogram.read::<u32>(lane)?, &wanted.histogram)?;
        // Four FP64, then three counts, then one more.
        let words = sums.read::<u64>(lane)?;
        let number = |at: usize| f64::from_bits(words[at]);
        near("sum of squared errors", number(0), wanted.sum_error_squares, SUMS)?;
        near("sum of squared references", number(1), wanted.sum_ref_squares, SUMS)?;
        // The CPU's running sums of this one are FP32.
        near("sum of relative errors", number(2), wanted.sum_relative_body, 1e-6)?;
        near("largest error", number(3), wanted.max_abs, 0.0)?;
        near("sum of error times reference", number(7), wanted.sum_error_ref, 1e-6)?;
        same("counts", &words[4..7], &[wanted.elements, wanted.zeros, wanted.tail_count])?;
    }
    Ok(())
}

/// Two FP64 that a kernel leaves.
fn two_sums(
    lane: &StreamContext,
    run: impl Fn(u64) -> Result<(), CudaError>,
    wanted: (f64, f64),
    tolerance: f64,
) -> CheckOutcome {
    // Twice: the first run must leave its counter as it found it.
    for poison in POISONS {
        let sums = Guarded::poisoned(lane, 16, 0, poison)?;
        run(sums.address())?;
        let found = sums.read::<f64>(lane)?;
        near("first sum", found[0], wanted.0, tolerance)?;
        near("second sum", found[1], wanted.1, tolerance)?;
    }
    Ok(())
}

fn all_codes(lane: &StreamContext, format: Format) -> CheckOutcome {
    let decode = if format == Format::E5m2 { e5m2_decode } else { e4m3_decode };
    // Infinities and NaN have no distance.
    let codes: Vec<u8> = (0..=255u8).map(|code| if decode(code).is_finite() { code } else { 0 }).collect();
    let values: Vec<f32> = codes.iter().map(|code| decode(*code)).collect();
    let cast = Cast {
        codes: Codes::Fp8(lane.stream.upload(&codes)?),
        cast: OperandCast::unscaled(format),
        scales: None,
        blocked: None,
    };
    let squares: f64 = values.iter().map(|value| f64::from(*value) * f64::from(*value)).sum();
    let exact = lane.upload(2, 128, &values)?;
    two_sums(lane, |sums| lane.block_distance(&cast, &exact, sums), (0.0, squares), SUMS)?;
    // Against zero: the distance is the sum of the codes' own squares.
    let nothing = lane.upload(2, 128, &[0.0; 256])?;
    two_sums(lane, |sums| lane.block_distance(&cast, &nothing, sums), (squares, 0.0), SUMS)
}

fn block_distance(lane: &StreamContext, rows: usize, cols: usize, cast: OperandCast, kind: Kind) -> CheckOutcome {
    let matrix = Matrix { rows, cols, data: kind.values(rows * cols) };
    let panels = Panels::pack(Side::Left, &matrix);
    let wanted = squared_distance(&cast_panels(&panels, cast, None), &panels);
    let exact: Tensor = lane.upload(rows, cols, &matrix.data)?;
    let ours = lane.cast(&exact, cast, TensorRange::default())?;
    two_sums(lane, |sums| lane.block_distance(&ours, &exact, sums), wanted, SUMS)
}

fn sum_squares(lane: &StreamContext, rows: usize, cols: usize, kind: Kind) -> CheckOutcome {
    let values = kind.values(rows * cols);
    let wanted: f64 = values.iter().map(|value| f64::from(*value) * f64::from(*value)).sum();
    let tensor = lane.upload(rows, cols, &values)?;
    for poison in POISONS {
        let sum = Guarded::poisoned(lane, 8, 0, poison)?;
        lane.sum_squares(&tensor, sum.address())?;
        near("sum", sum.read::<f64>(lane)?[0], wanted, SUMS)?;
    }
    Ok(())
}

fn loss_rows(lane: &StreamContext, rows: usize, cols: usize, weighted: bool) -> CheckOutcome {
    // A mean of its own in every row: products that nearly cancel would have no digits to compare.
    let values: Vec<f32> = normals(rows * cols, "loss").iter().map(|value| value + 0.5).collect();
    let mean: Vec<f32> = normals(cols, "loss mean").iter().map(|value| value + 0.7).collect();
    let weights: Vec<f32> = normals(cols, "loss weights").iter().map(|value| value.abs()).collect();
    let product = |row: &[f32]| row.iter().zip(&mean).map(|(a, b)| f64::from(*a) * f64::from(*b)).sum::<f64>();
    let squares = |row: &[f32]| {
        row.iter().zip(&weights).map(|(a, w)| f64::from(*w) * (f64::from(*a) * f64::from(*a))).sum::<f64>()
    };
    let rows_of = || values.chunks_exact(cols);
    let wanted = (
        if weighted { rows_of().map(squares).sum() } else { 0.0 },
        rows_of().map(|row| product(row).powi(2)).sum::<f64>(),
    );
    ensure(wanted.1 > 0.0, || "the mean sees nothing".to_owned())?;
    let (difference, mean) = (lane.upload(rows, cols, &values)?, lane.stream.upload(&mean)?);
    let weights = if weighted { Some(lane.stream.upload(&weights)?) } else { None };
    two_sums(lane, |sums| lane.loss_rows(&difference, weights.as_ref(), &mean, sums), wanted, 1e-10)
}
