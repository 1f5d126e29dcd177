//! Moves and conversions of matrices, bit for bit: transpose, gather, FP64, BF16, TF32.

use loka_kernels::{
    LaunchGrid,
    casts::{self, CastOperand},
    probing,
};

use crate::{
    model::{Format, Matrix},
    numerics::round,
};

use super::{
    super::{CudaError, arguments::Arguments, stream_context::StreamContext},
    CheckOutcome, POISONS, Suite,
    guarded::{Guarded, same, same_floats},
    inputs::{Kind, normals},
    launch,
    reference::encode,
};

pub(super) fn check(suite: &mut Suite<'_>) -> Result<(), CudaError> {
    for (rows, cols) in [(1, 1), (3, 40), (33, 31), (64, 128), (257, 100), (2_100_001, 1)] {
        suite.check(format!("transpose_f32 [{rows}, {cols}]"), |lane| transpose(lane, rows, cols))?;
    }
    for (rows, cols, count) in [(1, 1, 1), (17, 48, 5), (130, 272, 128), (5, 4100, 700)] {
        suite.check(format!("gather_columns [{rows}, {count}] of {cols}"), |lane| gather(lane, rows, cols, count))?;
    }
    for (rows, cols, first, width) in
        [(1, 1, 0, 1), (17, 48, 0, 48), (17, 48, 16, 32), (9, 49, 3, 41), (130, 300, 128, 172)]
    {
        let name = format!("to_f64 [{rows}, {cols}], columns {first} to {}", first + width);
        suite.check(name, |lane| to_f64(lane, rows, cols, first, width))?;
    }
    for (rows, cols) in [(1, 1), (64, 128), (48, 272), (100, 13), (1000, 640), (2048, 256)] {
        suite.check(format!("transpose_codes [{rows}, {cols}]"), |lane| transpose_codes(lane, rows, cols))?;
    }
    for kind in Kind::ALL {
        for (count, offset) in [(1, 0), (1003, 0), (1003, 4), (70_000, 0)] {
            let of = format!("[{count}], {}{}", kind.name(), if offset > 0 { ", unaligned" } else { "" });
            suite.check(format!("round_bf16 {of}"), |lane| round_bf16(lane, kind, count, offset))?;
            suite.check(format!("round_tf32 {of}"), |lane| round_tf32(lane, kind, count, offset))?;
            suite.check(format!("count_flushed {of}"), |lane| count_flushed(lane, kind, count, offset))?;
        }
        suite.check(format!("f64_to_f32 [1003], {}", kind.name()), |lane| f64_to_f32(lane, kind))?;
    }
    Ok(())
}

fn transpose(lane: &StreamContext, rows: usize, cols: usize) -> CheckOutcome {
    let matrix = Matrix { rows, cols, data: normals(rows * cols, "transpose") };
    let wanted = matrix.transposed().data;
    for poison in POISONS {
        let from = Guarded::holding(lane, &matrix.data, 0, poison)?;
        let to = Guarded::poisoned(lane, 4 * rows * cols, 0, poison)?;
        let arguments =
            Arguments::new().value(from.address()).value(to.address()).value(rows as u32).value(cols as u32);
        launch(lane, "transpose_f32", probing::transpose_f32(rows as u32, cols as u32), &arguments)?;
        same_floats("transposed", &to.read(lane)?, &wanted)?;
    }
    Ok(())
}

/// Two operands in one launch, the second the first one's transpose.
fn transpose_codes(lane: &StreamContext, rows: usize, cols: usize) -> CheckOutcome {
    let code = |row: usize, col: usize| (row * 31 + col * 7 + row * col) as u8;
    let by_rows: Vec<u8> = (0..rows * cols).map(|index| code(index / cols, index % cols)).collect();
    let by_cols: Vec<u8> = (0..rows * cols).map(|index| code(index % rows, index / rows)).collect();
    for poison in POISONS {
        let sources = [Guarded::holding(lane, &by_rows, 0, poison)?, Guarded::holding(lane, &by_cols, 0, poison)?];
        let turned = [(); 2].map(|()| Guarded::poisoned(lane, rows * cols, 0, poison));
        let [first, second] = turned;
        let turned = [first?, second?];
        let operand = |at: usize, rows: usize, cols: usize| CastOperand {
            codes: sources[at].address(),
            codes_t: turned[at].address(),
            rows: rows as u32,
            cols: cols as u32,
            ..CastOperand::default()
        };
        let mut operands = [operand(0, rows, cols), operand(1, cols, rows)];
        let grid = casts::transpose_codes(&mut operands);
        let arguments = Arguments::new().structure(operands[0]).structure(operands[1]);
        launch(lane, "transpose_codes", grid, &arguments)?;
        same("first", &turned[0].read::<u8>(lane)?, &by_cols)?;
        same("second", &turned[1].read::<u8>(lane)?, &by_rows)?;
    }
    Ok(())
}

fn gather(lane: &StreamContext, rows: usize, cols: usize, count: usize) -> CheckOutcome {
    let values = normals(rows * cols, "gather");
    // In no order, some twice.
    let indices: Vec<u32> = (0..count).map(|index| (index * 7919 % cols) as u32).collect();
    let wanted: Vec<f32> = (0..rows)
        .flat_map(|row| indices.iter().map(move |col| (row, col)))
        .map(|(row, col)| values[row * cols + *col as usize])
        .collect();
    for poison in POISONS {
        let from = Guarded::holding(lane, &values, 0, poison)?;
        let chosen = Guarded::holding(lane, &indices, 0, poison)?;
        let to = Guarded::poisoned(lane, 4 * rows * count, 0, poison)?;
        let arguments = Arguments::new()
            .value(from.address())
            .value(chosen.address())
            .value(to.address())
            .value(rows as u32)
            .value(cols as u32)
            .value(count as u32);
        launch(lane, "gather_columns", probing::rows_of(rows as u32, count as u32), &arguments)?;
        same_floats("columns", &to.read(lane)?, &wanted)?;
    }
    Ok(())
}

fn to_f64(lane: &StreamContext, rows: usize, cols: usize, first: usize, width: usize) -> CheckOutcome {
    let values = normals(rows * cols, "to_f64");
    let wanted: Vec<f64> =
        values.chunks_exact(cols).flat_map(|row| &row[first..first + width]).map(|value| f64::from(*value)).collect();
    for poison in POISONS {
        let from = Guarded::holding(lane, &values, 0, poison)?;
        let to = Guarded::poisoned(lane, 8 * rows * width, 0, poison)?;
        let numbers = [rows, cols, first, width];
        let arguments = Arguments::new().value(from.address()).value(to.address());
        let arguments = numbers.into_iter().fold(arguments, |arguments, number| arguments.value(number as u32));
        launch(lane, "to_f64", probing::rows_of(rows as u32, width as u32), &arguments)?;
        same("values", &to.read::<f64>(lane)?, &wanted)?;
    }
    Ok(())
}

/// A kernel from one array to another of the same length.
fn converted<From: bytemuck::Pod, To: bytemuck::Pod>(
    lane: &StreamContext,
    entry: &'static str,
    values: &[From],
    offset: usize,
    compare: impl Fn(&[To]) -> CheckOutcome,
) -> CheckOutcome {
    let count = values.len() as u64;
    let grid: LaunchGrid = probing::elements(count);
    for poison in POISONS {
        let from = Guarded::holding(lane, values, offset, poison)?;
        let to = Guarded::poisoned(lane, values.len() * size_of::<To>(), offset, poison)?;
        let arguments = Arguments::new().value(from.address()).value(to.address()).value(count);
        launch(lane, entry, grid, &arguments)?;
        compare(&to.read(lane)?)?;
    }
    Ok(())
}

fn round_bf16(lane: &StreamContext, kind: Kind, count: usize, offset: usize) -> CheckOutcome {
    let values = kind.values(count);
    let wanted: Vec<f32> = values.iter().map(|value| round::bf16(*value)).collect();
    converted(lane, "round_bf16", &values, offset, |out: &[u16]| {
        // A NaN must stay one with its sign; its payload is cut off.
        let widened: Vec<f32> = out.iter().map(|bits| f32::from_bits(u32::from(*bits) << 16)).collect();
        same_floats("BF16", &widened, &wanted)
    })
}

fn round_tf32(lane: &StreamContext, kind: Kind, count: usize, offset: usize) -> CheckOutcome {
    let values = kind.values(count);
    let wanted: Vec<f32> = values.iter().map(|value| round::tf32(*value)).collect();
    converted(lane, "round_tf32", &values, offset, |out: &[f32]| same_floats("TF32", out, &wanted))
}

/// By a scale at which some of most kinds are lost, in both formats.
fn count_flushed(lane: &StreamContext, kind: Kind, count: usize, offset: usize) -> CheckOutcome {
    let values = kind.values(count);
    for (format, scale) in [(Format::E4m3, 16.0), (Format::E5m2, 4096.0)] {
        let codes: Vec<u8> = values.iter().map(|value| encode(format, value / scale)).collect();
        let nonzero = values.iter().filter(|value| **value != 0.0).count() as u64;
        let flushed = values.iter().zip(&codes).filter(|(value, code)| **value != 0.0 && **code & 0x7F == 0).count();
        for poison in POISONS {
            let source = Guarded::holding(lane, &values, offset, poison)?;
            let codes = Guarded::holding(lane, &codes, offset, poison)?;
            // Counts are added to what was there.
            let counts = Guarded::holding(lane, &[5u64, 7], 0, poison)?;
            let arguments = Arguments::new()
                .value(source.address())
                .value(codes.address())
                .value(counts.address())
                .value(count as u64);
            launch(lane, "count_flushed", probing::elements(count as u64), &arguments)?;
            same("counts", &counts.read::<u64>(lane)?, &[5 + nonzero, 7 + flushed as u64])?;
        }
    }
    Ok(())
}

fn f64_to_f32(lane: &StreamContext, kind: Kind) -> CheckOutcome {
    // Not FP32's own values: those would never be rounded.
    let values: Vec<f64> = kind.values(1003).iter().map(|value| f64::from(*value) * 1.000_000_012_3).collect();
    let wanted: Vec<f32> = values.iter().map(|value| *value as f32).collect();
    converted(lane, "f64_to_f32", &values, 0, |out: &[f32]| same_floats("FP32", out, &wanted))
}
