//! The numerics bit for bit against tables made by PyTorch and ml_dtypes (tests/golden/README.md):
//! every code of both FP8 formats, 47,416 casts, scales and casts of whole operands in every
//! granularity, and both accumulations.

use std::fs;

use loka_core::{
    model::{Accumulation, Format, Granularity, Matrix, OperandCast},
    numerics::{
        CastPanels, Epilogue, Panels, Panels64, Scales, Side, TensorRange, cast_panels, fp8, gemm, gemm_f64, round,
    },
};
use loka_tests::here;

fn bytes(name: &str) -> Vec<u8> {
    fs::read(here("golden").join(name)).unwrap()
}

fn f32s(bytes: &[u8]) -> Vec<f32> {
    bytes.as_chunks::<4>().0.iter().map(|b| f32::from_le_bytes(*b)).collect()
}

/// Equal to the bit, or both NaN: payloads differ among implementations.
fn same(ours: f32, golden: f32) -> bool {
    ours.to_bits() == golden.to_bits() || (ours.is_nan() && golden.is_nan())
}

type Coder = (Format, &'static str, fn(f32) -> u8, fn(u8) -> f32);

const CODERS: [Coder; 2] = [
    (Format::E4m3, "e4m3", fp8::e4m3_encode, fp8::e4m3_decode),
    (Format::E5m2, "e5m2", fp8::e5m2_encode, fp8::e5m2_decode),
];

#[test]
fn every_code_has_its_value() {
    for (_, name, _, decode) in CODERS {
        let golden = f32s(&bytes(&format!("decode_{name}.f32.bin")));
        assert_eq!(golden.len(), 256);
        for (code, golden) in (0..=255u8).zip(golden) {
            assert!(same(decode(code), golden), "{name} 0x{code:02X}: {}, golden {golden}", decode(code));
        }
    }
}

#[test]
fn fp8_casts_one_by_one_and_vectorised() {
    let inputs = f32s(&bytes("cast_inputs.f32.bin"));
    assert_eq!(inputs.len(), 47_416);
    for (format, name, encode, decode) in CODERS {
        let golden = bytes(&format!("cast_{name}.u8.bin"));
        assert_eq!(golden.len(), inputs.len());
        let rounded = round::slice(format, &inputs);
        for ((input, golden), vector) in inputs.iter().zip(golden).zip(rounded) {
            let bits = input.to_bits();
            assert_eq!(encode(*input), golden, "{name} of {input} (0x{bits:08X})");
            assert!(same(vector, decode(golden)), "{name} of {input} (0x{bits:08X}), vectorised: {vector}");
            assert!(same(round::value(format, *input), decode(golden)), "{name} of {input} (0x{bits:08X}), as a value");
            assert_eq!(vector.is_sign_negative(), input.is_sign_negative(), "{name} of {input} (0x{bits:08X})");
        }
    }
}

#[test]
fn static_scales_saturate_and_keep_nan() {
    let inputs = f32s(&bytes("cast_inputs.f32.bin"));
    let golden = bytes("static_e4m3.u8.bin");
    let cast = OperandCast::scaled_pow2(Format::E4m3, Granularity::Static);
    let x = Matrix { rows: 8, cols: inputs.len() / 8, data: inputs.clone() };
    let panels = Panels::pack(Side::Left, &x);
    for (exponent, codes) in [-20, -4, 3].into_iter().zip(golden.chunks_exact(inputs.len())) {
        let scale = 2f32.powi(exponent);
        let ours = cast_panels(&panels, cast, TensorRange { amax: Some(1.0), static_scale: Some(scale) });
        assert_eq!(ours.scales, Scales::Tensor(scale));
        for (at, (input, code)) in inputs.iter().zip(codes).enumerate() {
            let value = value_at(&ours.panels, at / x.cols, at % x.cols);
            let golden = fp8::e4m3_decode(*code);
            assert!(
                same(value, golden),
                "{input} (0x{:08X}) over 2^{exponent}: {value}, golden {golden}",
                input.to_bits()
            );
        }
    }
    let without = cast_panels(&panels, cast, None);
    assert!(without.panels.data.iter().all(|value| value.is_nan()), "no scale is no cast");
}

#[test]
fn bf16_and_tf32_casts_one_by_one_and_vectorised() {
    let inputs = f32s(&bytes("cast_inputs.f32.bin"));
    let halves = bytes("cast_bf16.u16.bin");
    let bf16 =
        halves.as_chunks::<2>().0.iter().map(|b| f32::from_bits(u32::from(u16::from_le_bytes(*b)) << 16)).collect();
    for (format, golden) in [(Format::Bf16, bf16), (Format::Tf32, f32s(&bytes("cast_tf32.f32.bin")))] {
        assert_eq!(golden.len(), inputs.len());
        for ((input, golden), vector) in inputs.iter().zip(golden).zip(round::slice(format, &inputs)) {
            let bits = input.to_bits();
            assert!(
                same(round::value(format, *input), golden),
                "{format:?} of {input} (0x{bits:08X}), golden {golden}"
            );
            assert!(
                same(vector, golden),
                "{format:?} of {input} (0x{bits:08X}), vectorised: {vector}, golden {golden}"
            );
        }
    }
}

/// One line of scaling.csv.
struct ScalingCase {
    name: String,
    x: Matrix,
    cast: OperandCast,
    decode: fn(u8) -> f32,
    scales: Matrix,
    codes: Vec<u8>,
}

fn scaling_cases() -> Vec<ScalingCase> {
    let blob = bytes("scaling.bin");
    let listing = fs::read_to_string(here("golden/scaling.csv")).unwrap();
    let case = |line: &str| {
        let fields: Vec<&str> = line.split(',').collect();
        let number = |at: usize| fields[at].parse::<usize>().unwrap();
        let matrix = |rows: usize, cols: usize, offset: usize| Matrix {
            rows,
            cols,
            data: f32s(&blob[offset..offset + 4 * rows * cols]),
        };
        let (rows, cols) = (number(1), number(2));
        let (format, _, _, decode) = *CODERS.iter().find(|coder| coder.1 == fields[3]).unwrap();
        let granularity = match fields[4] {
            "tensor" => Granularity::Tensor,
            "row" => Granularity::Row,
            "1x128" => Granularity::Block1x128,
            other => {
                assert_eq!(other, "128x128");
                Granularity::Block128x128
            }
        };
        ScalingCase {
            name: fields[..6].join(","),
            x: matrix(rows, cols, number(6)),
            cast: OperandCast { format, granularity, power_of_two: fields[5] == "1" },
            decode,
            scales: matrix(number(8), number(9), number(7)),
            codes: blob[number(10)..number(10) + rows * cols].to_vec(),
        }
    };
    listing.lines().skip(1).map(case).collect()
}

/// The element of a packed operand.
fn value_at(panels: &Panels, row: usize, depth: usize) -> f32 {
    panels.data[(row / panels.width * panels.depth + depth) * panels.width + row % panels.width]
}

fn scale_at(cast: &CastPanels, row: usize, depth: usize) -> f32 {
    match &cast.scales {
        Scales::None => 1.0,
        Scales::Tensor(scale) => *scale,
        Scales::Row(scales) => scales[row],
        Scales::Block(scales) => scales[depth / 128 * cast.panels.padded_rows() + row],
    }
}

#[test]
fn scales_and_casts_of_whole_operands() {
    let cases = scaling_cases();
    assert_eq!(cases.len(), 50);
    for case in cases {
        // Which of the golden's scales an element has: [1, 1], [rows, 1], [rows, blocks] or [blocks, blocks].
        let high = if case.cast.granularity == Granularity::Block128x128 { 128 } else { 1 };
        for side in [Side::Left, Side::Right] {
            let cast = cast_panels(&Panels::pack(side, &case.x), case.cast, None);
            for row in 0..case.x.rows {
                for col in 0..case.x.cols {
                    let scale_row = if case.scales.rows == 1 { 0 } else { row / high };
                    let scale_col = if case.scales.cols == 1 { 0 } else { col / 128 };
                    let golden = case.scales.row(scale_row)[scale_col];
                    let scale = scale_at(&cast, row, col);
                    let at = format!("{} {side:?} [{row}, {col}]", case.name);
                    assert_eq!(scale.to_bits(), golden.to_bits(), "{at}: scale {scale}, golden {golden}");
                    let (ours, golden) =
                        (value_at(&cast.panels, row, col), (case.decode)(case.codes[row * case.x.cols + col]));
                    assert_eq!(ours.to_bits(), golden.to_bits(), "{at}: {ours}, golden {golden}");
                }
            }
        }
    }
}

/// Two operands of `accumulation.bin` and the outputs after them.
const SHAPE: (usize, usize, usize) = (7, 13, 1120);

fn accumulated(left: &CastPanels, right: &CastPanels, accumulation: Accumulation, epilogue: Epilogue) -> Vec<f32> {
    let mut out = vec![0f32; SHAPE.0 * SHAPE.1];
    gemm(left, right, accumulation, epilogue, &mut out);
    out
}

/// The next two operands, and what follows them.
fn operands(values: &[f32]) -> (CastPanels, CastPanels, &[f32]) {
    let (rows, cols, depth) = SHAPE;
    let (a, rest) = values.split_at(rows * depth);
    let (b, rest) = rest.split_at(cols * depth);
    let pack = |side, rows, data: &[f32]| CastPanels {
        panels: Panels::pack(side, &Matrix { rows, cols: depth, data: data.to_vec() }),
        scales: Scales::None,
    };
    (pack(Side::Left, rows, a), pack(Side::Right, cols, b), rest)
}

#[test]
fn both_accumulations_and_the_exact_sum() {
    let values = f32s(&bytes("accumulation.bin"));
    let size = SHAPE.0 * SHAPE.1;
    let (left, right, rest) = operands(&values);
    let (outputs, mut rest) = rest.split_at(3 * size);

    let mut exact = vec![0f64; size];
    gemm_f64(&Panels64::from(&left.panels), &Panels64::from(&right.panels), &mut exact);
    assert_eq!(exact.iter().map(|value| *value as f32).collect::<Vec<_>>(), outputs[..size]);

    // All sums are multiples of 1/64 below 2^17: FP32 holds them whatever the order.
    for (accumulation, golden) in
        [Accumulation::Fp32, Accumulation::Promoted, Accumulation::Fast].into_iter().zip(outputs.chunks_exact(size))
    {
        assert_eq!(accumulated(&left, &right, accumulation, Epilogue::Store), golden, "{accumulation:?}");
        let rounded: Vec<f32> = golden.iter().map(|value| round::bf16(*value)).collect();
        assert_eq!(accumulated(&left, &right, accumulation, Epilogue::StoreBf16), rounded, "{accumulation:?}");
    }

    for format in [Format::E4m3, Format::E5m2] {
        let (left, right, after) = operands(rest);
        let (golden, after) = after.split_at(size);
        assert_eq!(accumulated(&left, &right, Accumulation::Fast, Epilogue::Store), golden, "{format:?} x E4M3");
        rest = after;
    }
    assert!(rest.is_empty());
}
