//! Fast accumulation against what an NVIDIA H200 showed (cuBLASLt 13.1, E4M3 x E4M3, FP32 output) and
//! against the rule written out in integers, on every instruction set of this machine.

use std::mem::size_of;

use super::*;
use crate::{Format, Granularity, Matrix, OperandCast, Panels, cast::cast_panels, rng::Rng};

/// 2^-s.
fn small(s: i32) -> f32 {
    2f32.powi(-s)
}

/// `out[0, 0]` for chosen products: the right operand is ones, save where a product needs both.
fn sum_of(products: &[(usize, f32)], depth: usize, accumulation: Accumulation) -> f32 {
    let (mut a, mut b) = (Matrix::zeros(1, depth), Matrix::zeros(1, depth));
    b.data.fill(1.0);
    for (index, product) in products {
        // 3.515625 = 1.875 * 1.875; a power of two far down is split, as E4M3 ends at 2^-9.
        (a.data[*index], b.data[*index]) = match product.abs() {
            3.515_625 => (1.875f32.copysign(*product), 1.875),
            magnitude if magnitude < small(9) => (*product * 512.0, small(9)),
            _ => (*product, 1.0),
        };
        assert_eq!(crate::round::e4m3(a.data[*index]), a.data[*index], "on the E4M3 grid");
    }
    let pack = |side, matrix| CastPanels { panels: Panels::pack(side, matrix), scales: Scales::None };
    let mut out = [0f32];
    gemm(&pack(Side::Left, &a), &pack(Side::Right, &b), accumulation, Epilogue::Store, &mut out);
    out[0]
}

fn fast_sum(products: &[(usize, f32)]) -> f32 {
    sum_of(products, 64, Accumulation::Fast)
}

#[test]
fn h200_keeps_13_bits_below_the_largest_product_of_either_sign() {
    for s in 1..=18 {
        for sign in [1.0, -1.0] {
            for index in [1, 7, 16, 31] {
                let kept = if s <= 13 { sign * small(s) } else { 0.0 };
                assert_eq!(fast_sum(&[(0, 1.0), (index, sign * small(s))]), 1.0 + kept, "2^-{s}");
                assert_eq!(fast_sum(&[(0, -1.0), (index, sign * small(s))]), -1.0 + kept, "2^-{s} beside -1");
            }
        }
    }
}

#[test]
fn h200_aligns_to_a_product_that_another_cancels() {
    for s in 1..=18 {
        let kept = if s <= 13 { small(s) } else { 0.0 };
        assert_eq!(fast_sum(&[(0, 1.0), (1, -1.0), (2, small(s))]), kept, "2^-{s}");
    }
}

#[test]
fn h200_cuts_each_product_by_itself() {
    let with_31 = |s: i32| -> Vec<(usize, f32)> {
        std::iter::once((0, 1.0)).chain((1..32).map(|index| (index, small(s)))).collect()
    };
    assert_eq!(fast_sum(&with_31(13)), 1.0 + 31.0 * small(13));
    assert_eq!(fast_sum(&with_31(14)), 1.0);
}

#[test]
fn h200_aligns_the_accumulator_with_the_products() {
    for s in 1..=18 {
        let kept = if s <= 13 { small(s) } else { 0.0 };
        assert_eq!(fast_sum(&[(0, 1.0), (40, small(s))]), 1.0 + kept, "big first, 2^-{s}");
        assert_eq!(fast_sum(&[(0, small(s)), (40, 1.0)]), 1.0 + kept, "small first, 2^-{s}");
    }
}

#[test]
fn h200_takes_the_exponent_of_the_normalised_product() {
    for s in 1..=17 {
        let kept = if s <= 12 { small(s) } else { 0.0 };
        assert_eq!(fast_sum(&[(0, 3.515_625), (1, small(s))]), 3.515_625 + kept, "2^-{s}");
    }
}

#[test]
#[expect(clippy::excessive_precision, reason = "as read off the device")]
fn h200_cuts_a_product_of_many_bits_towards_zero() {
    // 3.515625 2^-s as 1.875 * (1.875 2^-s).
    let shifted = |s: i32, sign: f32| {
        let mut a = Matrix::zeros(1, 32);
        let mut b = Matrix::zeros(1, 32);
        (a.data[0], b.data[0], a.data[1], b.data[1]) =
            (1.0, 1.0, sign * 1.875 * small(s / 2), 1.875 * small(s - s / 2));
        let pack = |side, matrix| CastPanels { panels: Panels::pack(side, matrix), scales: Scales::None };
        let mut out = [0f32];
        gemm(&pack(Side::Left, &a), &pack(Side::Right, &b), Accumulation::Fast, Epilogue::Store, &mut out);
        out[0]
    };
    let shown = [
        (8, 1.013_671_875),
        (9, 1.006_835_937_5),
        (10, 1.003_417_968_75),
        (11, 1.001_708_984_4),
        (12, 1.000_854_492_2),
    ];
    for (s, value) in shown {
        assert_eq!(shifted(s, 1.0), value, "3.515625 2^-{s}");
        assert_eq!(shifted(s, -1.0), 2.0 - value, "-3.515625 2^-{s}");
    }
}

#[test]
fn h200_aligns_products_to_a_sum_that_has_grown() {
    for s in 1..=14 {
        let products: Vec<(usize, f32)> =
            (0..64).map(|index| (index, if index < 32 { 1.0 } else { small(s) })).collect();
        let kept = if s <= 8 { 32.0 * small(s) } else { 0.0 };
        assert_eq!(fast_sum(&products), 32.0 + kept, "2^-{s}");
    }
}

#[test]
fn h200_starts_anew_every_128_when_promoted() {
    for s in 14..=18 {
        let sum = |index| sum_of(&[(0, 1.0), (index, small(s))], 256, Accumulation::Promoted);
        assert_eq!(sum(100), 1.0, "2^-{s} within the 128");
        assert_eq!(sum(140), 1.0 + small(s), "2^-{s} in the next 128");
        assert_eq!(sum(200), 1.0 + small(s), "2^-{s} in the next 128");
    }
}

/// The rule in integers: products of FP8 values are multiples of 2^-32, and so is what is kept of sums.
fn by_the_rule(a: &[f32], b: &[f32]) -> f32 {
    if a.iter().chain(b).any(|value| value.is_nan()) {
        return f32::NAN;
    }
    let fixed = |value: f64| (value * 2f64.powi(45)) as i128;
    let mut register = 0i128;
    for (a, b) in a.chunks(32).zip(b.chunks(32)) {
        let mut terms: Vec<i128> = a.iter().zip(b).map(|(a, b)| fixed(f64::from(*a) * f64::from(*b))).collect();
        terms.push(register);
        let Some(exponent) = terms.iter().filter_map(|term| term.unsigned_abs().checked_ilog2()).max() else {
            continue;
        };
        // `/` goes towards zero. 2^-45 as the unit leaves room below the smallest last bit.
        let unit = 1i128 << exponent.saturating_sub(13);
        register = terms.iter().map(|term| term / unit * unit).sum();
    }
    (register as f64 / 2f64.powi(45)) as f32
}

/// Panels for a register tile that may not be this machine's own.
fn pack_for(side: Side, width: usize, matrix: &Matrix) -> CastPanels {
    let (rows, depth) = (matrix.rows, matrix.cols);
    let mut data = vec![0f32; rows.div_ceil(width) * depth * width];
    for row in 0..rows {
        for d in 0..depth {
            data[(row / width * depth + d) * width + row % width] = matrix.data[row * depth + d];
        }
    }
    CastPanels { panels: Panels { side, rows, depth, width, data }, scales: Scales::None }
}

fn run_on<S: Simd>(simd: S, a: &Matrix, b: &Matrix) -> Vec<f32> {
    let rows = if S::REGISTER_COUNT >= 32 { 12 } else { 6 };
    let (a, b) = (pack_for(Side::Left, rows, a), pack_for(Side::Right, 2 * size_of::<S::f32s>() / 4, b));
    let mut out = vec![0f32; a.panels.rows * b.panels.rows];
    let (accumulation, epilogue) = (Accumulation::Fast, Epilogue::Store);
    simd.vectorize(ProductRun { a: &a, b: &b, accumulation, epilogue, out: &mut out });
    out
}

/// Each instruction set that this machine has, with its name.
fn on_all(a: &Matrix, b: &Matrix) -> Vec<(&'static str, Vec<f32>)> {
    let mut all = vec![("scalar", run_on(pulp::Scalar::new(), a, b))];
    #[cfg(target_arch = "x86_64")]
    {
        all.extend(pulp::x86::V2::try_new().map(|simd| ("SSE4", run_on(simd, a, b))));
        all.extend(pulp::x86::V3::try_new().map(|simd| ("AVX2", run_on(simd, a, b))));
        all.extend(pulp::x86::V4::try_new().map(|simd| ("AVX-512", run_on(simd, a, b))));
    }
    all
}

fn check(a: &Matrix, b: &Matrix) {
    for (name, out) in on_all(a, b) {
        for (index, ours) in out.iter().enumerate() {
            let wanted = by_the_rule(a.row(index / b.rows), b.row(index % b.rows));
            assert!(*ours == wanted || (ours.is_nan() && wanted.is_nan()), "{name} [{index}]: {ours}, not {wanted}");
        }
    }
}

/// Values of a format; `spread` octaves apart at most, around `mean`.
fn drawn(format: Format, rows: usize, depth: usize, (spread, mean): (i32, f32), name: &str) -> Matrix {
    let mut matrix = Matrix::zeros(rows, depth);
    Rng::new(5, &[name.as_bytes()]).fill_normal(&mut matrix.data);
    for (index, value) in matrix.data.iter_mut().enumerate() {
        let octave = (index * 2_654_435_761) as i32 >> 7;
        let scaled = (*value + mean) * 2f32.powi(octave.rem_euclid(2 * spread + 1) - spread);
        *value = crate::round::value(format, scaled);
    }
    matrix
}

#[test]
fn every_instruction_set_follows_the_rule_for_ragged_shapes() {
    // The last is deep enough that sums wait in memory between stretches.
    for (m, k, n) in [(1, 1, 1), (5, 37, 3), (13, 32, 35), (7, 300, 33), (3, 1120, 40), (2, 2100, 5)] {
        for format in [Format::E4m3, Format::E5m2] {
            for (spread, mean) in [(0, 0.0), (0, 1.5), (4, 0.0), (16, 0.0), (16, 0.5)] {
                check(&drawn(format, m, k, (spread, mean), "a"), &drawn(Format::E4m3, n, k, (spread, mean), "b"));
            }
        }
    }
}

#[test]
fn the_ends_of_both_formats_are_exact() {
    let extremes = [0.0, -0.0, small(16), 57344.0, -57344.0, small(9), -small(9), 448.0, 0.5, -1.75];
    let a = Matrix { rows: 10, cols: 70, data: (0..700).map(|i| extremes[(i * 7 + i / 70) % 10]).collect() };
    let b = drawn(Format::E4m3, 9, 70, (16, 0.0), "b");
    check(&a, &b);
    check(&Matrix::zeros(4, 70), &b);
    let least = |rows, value| Matrix { rows, cols: 70, data: vec![value; rows * 70] };
    check(&least(3, small(16)), &least(5, small(9)));
    check(&least(3, -57344.0), &least(5, 448.0));
}

#[test]
fn a_nan_stays_in_its_row_and_column() {
    let (mut a, mut b) = (drawn(Format::E4m3, 14, 96, (2, 0.0), "a"), drawn(Format::E4m3, 40, 96, (2, 0.0), "b"));
    a.data[3 * 96 + 50] = f32::NAN;
    b.data[17 * 96] = -f32::NAN;
    check(&a, &b);
}

#[test]
fn the_last_block_may_be_shorter_and_has_a_scale_of_its_own() {
    // 128 columns of one large value that meets a zero, then 16 that one scale for all 144 would make zero.
    let row = |large: usize, rest: f32| {
        let value = |at: usize| {
            if at == large {
                448.0
            } else if at < 128 {
                0.0
            } else {
                448.0 * rest
            }
        };
        Matrix { rows: 1, cols: 144, data: (0..144).map(value).collect() }
    };
    let cast = |side, matrix: &Matrix, granularity| {
        let cast = OperandCast::scaled(Format::E4m3, granularity);
        cast_panels(&Panels::pack(side, matrix), cast, None)
    };
    let (x, w) = (row(0, small(20)), row(1, small(10)));
    let exact = 16.0 * 448.0 * 448.0 * small(30);
    for right in [Granularity::Block1x128, Granularity::Block128x128] {
        let (x, w) = (cast(Side::Left, &x, Granularity::Block1x128), cast(Side::Right, &w, right));
        let mut out = [0f32];
        gemm(&x, &w, Accumulation::Promoted, Epilogue::Store, &mut out);
        assert_eq!(out, [exact]);
    }
}
