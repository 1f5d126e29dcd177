//! The casts of FP32 that draws go through (`row_amax`, `scales_from_amax`, `quantize`), bit for bit: against the
//! definition with each kernel's memory guarded, and as the engine calls them against the CPU engine's casts.

use loka_kernels::probing::{self, CodeFormat, ScaleMode};

use crate::{
    model::{Format, Granularity, Matrix, OperandCast},
    numerics::{CastPanels, Panels, Scales, Side, TensorRange, cast_panels, fp8::format_max, round},
};

use super::{
    super::{
        CudaError,
        arguments::Arguments,
        cast::{Cast, Codes},
        stream_context::StreamContext,
    },
    CheckOutcome, POISONS, Problem, Suite,
    guarded::{Guarded, same_codes, same_floats},
    inputs::Kind,
    launch,
    reference::{self, Casted, Groups, Rule, encode},
};

const SHAPES: [(usize, usize); 7] = [(1, 1), (3, 16), (7, 13), (130, 272), (257, 640), (48, 4096), (3, 33_000)];

const MODES: [(&str, ScaleMode, Granularity, Groups); 4] = [
    ("tensorwise", ScaleMode::Tensor, Granularity::Tensor, Groups::Tensor),
    ("rowwise", ScaleMode::Row, Granularity::Row, Groups::Row),
    ("1x128", ScaleMode::Block1x128, Granularity::Block1x128, Groups::AlongRows),
    ("128x128", ScaleMode::Block128x128, Granularity::Block128x128, Groups::SquareRepeated),
];

pub(super) fn check(suite: &mut Suite<'_>) -> Result<(), CudaError> {
    for (m, (name, mode, granularity, groups)) in MODES.into_iter().enumerate() {
        for (s, shape) in SHAPES.into_iter().enumerate() {
            for (k, kind) in Kind::ALL.into_iter().enumerate() {
                let format = [Format::E4m3, Format::E5m2][(m + s + k) % 2];
                let power_of_two = (s + k / 2) % 2 == 1;
                // A tensor's scale follows the part of it that is elsewhere too.
                let floor_amax = if mode == ScaleMode::Tensor { [0.0, 0.5, 1e4][(s + k) % 3] } else { 0.0 };
                let rule = Rule { format, power_of_two, floor_amax };
                let of = describe(name, shape, kind, rule);
                let values = kind.values(shape.0 * shape.1);
                suite.check(format!("row_amax, scales_from_amax, quantize {of}"), |lane| {
                    kernels(lane, &values, shape, mode, groups, rule)
                })?;
                let cast = OperandCast { format, granularity, power_of_two };
                suite.check(format!("cast as the CPU engine's, {of}"), |lane| {
                    engine_cast(lane, &values, shape, cast, TensorRange::from(Some(floor_amax)))
                })?;
            }
        }
    }
    for (s, shape) in SHAPES.into_iter().enumerate() {
        for (k, kind) in Kind::ALL.into_iter().enumerate() {
            let cast = OperandCast::scaled_pow2(Format::E4m3, Granularity::Static);
            let scale = [2f32.powi(-4), 2f32.powi(-9), 2f32.powi(-30)][(s + k) % 3];
            let values = kind.values(shape.0 * shape.1);
            let name = format!("cast as the CPU engine's, by {scale} [{}, {}], {}", shape.0, shape.1, kind.name());
            suite.check(name, |lane| {
                engine_cast(lane, &values, shape, cast, TensorRange { amax: None, static_scale: Some(scale) })
            })?;
        }
    }
    Ok(())
}

fn describe(name: &str, (rows, cols): (usize, usize), kind: Kind, rule: Rule) -> String {
    let power = if rule.power_of_two { ", powers of two" } else { "" };
    let floor = if rule.floor_amax > 0.0 { format!(", amax {} elsewhere", rule.floor_amax) } else { String::new() };
    format!("{name} [{rows}, {cols}] {:?}{power}, {}{floor}", rule.format, kind.name())
}

fn kernels(
    lane: &StreamContext,
    values: &[f32],
    shape: (usize, usize),
    mode: ScaleMode,
    groups: Groups,
    rule: Rule,
) -> CheckOutcome {
    let (rows, cols) = (shape.0 as u32, shape.1 as u32);
    let wanted = reference::cast(values, shape, groups, rule);
    let by_block = matches!(mode, ScaleMode::Block1x128 | ScaleMode::Block128x128);
    let stretch = if by_block { 128 } else { cols };
    let stretches = probing::amax_stretches(cols, stretch);
    let blocked_len = if mode == ScaleMode::Block128x128 { probing::blocked_scales(rows, stretches) } else { 0 };
    for poison in POISONS {
        let source = Guarded::holding(lane, values, 0, poison)?;
        let amax = Guarded::poisoned(lane, 4 * stretches as usize * shape.0, 0, poison)?;
        let scales = Guarded::poisoned(lane, 4 * wanted.scales.len(), 0, poison)?;
        let blocked = Guarded::poisoned(lane, 4 * blocked_len as usize, 0, poison)?;
        let codes = Guarded::poisoned(lane, values.len(), 0, poison)?;
        let arguments =
            Arguments::new().value(source.address()).value(amax.address()).value(rows).value(cols).value(stretch);
        launch(lane, "row_amax", probing::row_amax(rows, cols, stretch), &arguments)?;
        let arguments = Arguments::new()
            .value(amax.address())
            .value(scales.address())
            .value(if blocked_len > 0 { blocked.address() } else { 0 })
            .value(rows)
            .value(stretches)
            .value(mode as u32)
            .value(format_max(rule.format))
            .value(rule.floor_amax)
            .value(u32::from(rule.power_of_two));
        launch(lane, "scales_from_amax", probing::scales_from_amax(rows, stretches, mode), &arguments)?;
        let format = if rule.format == Format::E5m2 { CodeFormat::E5m2 } else { CodeFormat::E4m3 };
        let arguments = Arguments::new()
            .value(source.address())
            .value(scales.address())
            .value(codes.address())
            .value(rows)
            .value(cols)
            .value(mode as u32)
            .value(format as u32);
        launch(lane, "quantize", probing::rows_of(rows, cols), &arguments)?;
        same_floats("amax", &amax.read(lane)?, &amax_of(values, cols as usize, stretch as usize))?;
        same_floats("scales", &scales.read(lane)?, &wanted.scales_padded_with(f32::NAN))?;
        if blocked_len > 0 {
            // The layout that cuBLASLt reads, zero in the padding.
            let square = reference::cast(values, shape, Groups::Square, rule);
            same_floats("blocked scales", &blocked.read(lane)?, &square.scales_padded_with(0.0))?;
        }
        same_codes("codes", &codes.read::<u8>(lane)?, &wanted.codes, rule.format == Format::E5m2)?;
    }
    Ok(())
}

/// `[stretches][rows]`
fn amax_of(values: &[f32], cols: usize, stretch: usize) -> Vec<f32> {
    let rows = values.len() / cols;
    let mut amax = vec![0f32; cols.div_ceil(stretch) * rows];
    for (row, line) in values.chunks_exact(cols).enumerate() {
        for (s, part) in line.chunks(stretch).enumerate() {
            amax[s * rows + row] = crate::numerics::amax(part);
        }
    }
    amax
}

/// The engine's own cast against the CPU engine's.
fn engine_cast(
    lane: &StreamContext,
    values: &[f32],
    (rows, cols): (usize, usize),
    cast: OperandCast,
    whole: TensorRange,
) -> CheckOutcome {
    let matrix = Matrix { rows, cols, data: values.to_vec() };
    let on_device = lane.upload(rows, cols, values)?;
    let ours = downloaded(lane, &lane.cast(&on_device, cast, whole)?)?;
    for side in [Side::Left, Side::Right] {
        let wanted = from_panels(&cast_panels(&Panels::pack(side, &matrix), cast, whole), cast.format);
        same_codes("codes", &ours.codes, &wanted.codes, cast.format == Format::E5m2)?;
        let count = wanted.scales.len();
        same_floats("scales", &ours.scales_padded_with(f32::NAN)[..count], &wanted.scales_padded_with(f32::NAN))?;
    }
    Ok(())
}

/// Codes and scales of an FP8 operand.
pub(super) fn downloaded(lane: &StreamContext, cast: &Cast) -> Result<Casted, Problem> {
    let Codes::Fp8(codes) = &cast.codes else { return Err(Problem::Wrong("not cast to FP8".to_owned())) };
    let scales = match &cast.scales {
        Some(scales) => lane.stream.download(scales)?,
        None => Vec::new(),
    };
    Ok(Casted { codes: lane.stream.download(codes)?, scales: scales.into_iter().map(Some).collect() })
}

/// The CPU engine's cast as codes `[rows, depth]` and scales without the rows that fill its panels.
fn from_panels(cast: &CastPanels, format: Format) -> Casted {
    let Panels { rows, depth, width, data, .. } = &cast.panels;
    let value = |row: usize, d: usize| data[row / width * depth * width + d * width + row % width];
    let codes =
        (0..*rows).flat_map(|row| (0..*depth).map(move |d| (row, d))).map(|(row, d)| encode(format, value(row, d)));
    let unpadded = |scales: &[f32]| {
        scales.chunks_exact(cast.panels.padded_rows()).flat_map(|row| row[..*rows].to_vec()).map(Some).collect()
    };
    let scales = match &cast.scales {
        Scales::None => Vec::new(),
        Scales::Tensor(scale) => vec![Some(*scale)],
        Scales::Row(scales) | Scales::Block(scales) => unpadded(scales),
    };
    Casted { codes: codes.collect(), scales }
}

/// What an operand's elements are worth, `[rows, cols]` in FP64: codes times scales, nothing rounded.
pub(super) fn worth(lane: &StreamContext, cast: &Cast, (rows, cols): (usize, usize)) -> Result<Vec<f64>, Problem> {
    let decode = match cast.cast.format {
        Format::E5m2 => crate::numerics::fp8::e5m2_decode,
        _ => crate::numerics::fp8::e4m3_decode,
    };
    match &cast.codes {
        Codes::Bf16(codes) => {
            let codes = lane.stream.download(codes)?;
            Ok(codes.iter().map(|bits| f64::from(f32::from_bits(u32::from(*bits) << 16))).collect())
        }
        Codes::F32(values) => Ok(lane
            .stream
            .download(values)?
            .iter()
            .map(|value| f64::from(round::value(cast.cast.format, *value)))
            .collect()),
        Codes::Fp8(_) => {
            let Casted { codes, scales } = downloaded(lane, cast)?;
            let scale = |row: usize, col: usize| {
                let at = match cast.cast.granularity {
                    Granularity::None => return 1.0,
                    Granularity::Tensor | Granularity::Static => 0,
                    Granularity::Row => row,
                    Granularity::Block1x128 | Granularity::Block128x128 => col / 128 * rows + row,
                };
                scales.get(at).copied().flatten().map_or(f64::NAN, f64::from)
            };
            let at = |index: usize| (index / cols, index % cols);
            Ok(codes
                .iter()
                .enumerate()
                .map(|(index, code)| f64::from(decode(*code)) * scale(at(index).0, at(index).1))
                .collect())
        }
    }
}
