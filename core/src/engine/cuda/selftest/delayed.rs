//! Delayed scaling as it is timed: codes by a scale known beforehand, as they lie and turned, bit for bit against the
//! CPU's, and the three GEMMs of a site on them, which are not timed unless their outputs are BF16's.

use loka_kernels::casts::{self, CastOperand, pitch};

use crate::{
    engine::{Engine, TimeOptions},
    model::{Format, Gemm, GemmShape, Kernel, kernel},
    numerics::round,
};

use super::{
    super::{
        CudaError,
        arguments::Arguments,
        static_gemm::{StaticCast, cast_codes},
        stream_context::StreamContext,
    },
    CheckOutcome, POISONS, Problem, Suite, ensure,
    guarded::{Guarded, same_codes},
    inputs::{Kind, bf16_bits},
    launch,
    reference::encode,
};

/// Whole tiles, ragged ones, and sizes that go element by element.
const SHAPES: [(usize, usize); 7] = [(16, 16), (64, 128), (2048, 256), (256, 2048), (130, 272), (17, 48), (7, 13)];

/// With others whose codes have a scale a row or are cast on their way in.
const NAMES: [&str; 6] = [
    "cublaslt/fp8-delayed",
    "cublaslt/fp8-delayed+fast",
    "cublaslt/fp8-tensorwise",
    "cublaslt/fp8-rowwise",
    "loka/fp8-rowwise+fast",
    "loka/fp8-tensorwise",
];

pub(super) fn check(suite: &mut Suite<'_>) -> Result<(), CudaError> {
    for (index, shape @ (rows, cols)) in SHAPES.into_iter().enumerate() {
        for (k, kind) in Kind::ALL.into_iter().enumerate() {
            let scale = 2f32.powi((index + k) as i32 % 9 - 6);
            let name = format!("fp8-delayed casts [{rows}, {cols}] by {scale} and turns, {}", kind.name());
            suite.check(name, |lane| turned_codes(lane, &kind.values(rows * cols), shape, scale))?;
        }
    }
    for gemm in Gemm::ALL {
        timed(suite, gemm, GemmShape { m: 256, k: 512, n: 384 })?;
        // Rows of codes with something between them.
        timed(suite, gemm, GemmShape { m: 208, k: 1040, n: 400 })?;
    }
    Ok(())
}

/// A static cast, then the transposition of its codes, both operands of a launch: this one and one half as high.
fn turned_codes(lane: &StreamContext, values: &[f32], (rows, cols): (usize, usize), scale: f32) -> CheckOutcome {
    let values: Vec<f32> = values.iter().copied().map(round::bf16).collect();
    let codes: Vec<u8> = values.iter().map(|value| encode(Format::E4m3, value / scale)).collect();
    let heights = [rows, rows.div_ceil(2)];
    for poison in POISONS {
        let x = Guarded::holding(lane, &bf16_bits(&values), 0, poison)?;
        let scale = Guarded::holding(lane, &[scale], 0, poison)?;
        let saturated = Guarded::holding(lane, &[0u64], 0, poison)?;
        let straight = Guarded::poisoned(lane, rows * pitch(cols), 0, poison)?;
        let turned = [
            Guarded::poisoned(lane, pitch(heights[0]) * cols, 0, poison)?,
            Guarded::poisoned(lane, pitch(heights[1]) * cols, 0, poison)?,
        ];
        let (x, scale) = (x.address(), scale.address());
        let at = StaticCast { x, scale, codes: straight.address(), rows, cols, pitch: pitch(cols) };
        cast_codes(&lane.stream, &lane.kernels, at, saturated.address())?;
        let mut operands = [0, 1].map(|operand| CastOperand {
            codes: straight.address(),
            codes_t: turned[operand].address(),
            rows: heights[operand] as u32,
            cols: cols as u32,
            pitch: pitch(cols) as u32,
            pitch_t: pitch(heights[operand]) as u32,
            ..CastOperand::default()
        });
        let grid = casts::transpose_codes(&mut operands);
        let [a, b] = operands;
        launch(lane, "transpose_codes", grid, &Arguments::new().structure(a).structure(b))?;
        same_codes("codes", &straight.read_rows(lane, cols, pitch(cols))?, &codes, false)?;
        for (height, turned) in heights.into_iter().zip(&turned) {
            let wanted: Vec<u8> =
                (0..cols).flat_map(|col| (0..height).map(move |row| row * cols + col)).map(|at| codes[at]).collect();
            same_codes("turned codes", &turned.read_rows(lane, height, pitch(height))?, &wanted, false)?;
        }
    }
    Ok(())
}

/// These kernels through the timing of one GEMM, which compares their outputs with BF16's first.
fn timed(suite: &mut Suite<'_>, gemm: Gemm, shape: GemmShape) -> Result<(), CudaError> {
    let engine = suite.engine;
    let kernels: Vec<&'static Kernel> = std::iter::once("cublaslt/bf16").chain(NAMES).filter_map(kernel).collect();
    let GemmShape { m, k, n } = shape;
    suite.check(format!("{gemm} of {m}, {k}, {n}: kernels are timed on outputs that are BF16's"), |_| {
        let options = TimeOptions { samples: 3, sample_us: 100.0, algorithms: 4 };
        let timed = engine.time(&kernels, gemm, shape, &options)?;
        ensure(timed.len() == kernels.len(), || format!("{} of {} kernels timed", timed.len(), kernels.len()))?;
        for (id, timing) in timed {
            let timing = timing.map_err(|reason| Problem::Wrong(format!("{id}: {reason}")))?;
            let all = [&timing.gemm_us, &timing.latency_us, &timing.cached_us];
            let is_whole = all.iter().all(|samples| samples.len() == 3 && samples.iter().all(|us| *us > 0.0));
            ensure(is_whole, || format!("{id}: samples are missing: {timing:?}"))?;
        }
        Ok(())
    })
}
