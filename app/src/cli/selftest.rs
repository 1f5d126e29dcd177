//! `loka selftest`: the numerics against definitions and known answers, on this machine.

use loka_core::{
    engine::{Engine, cuda},
    model::{Accumulation, Format, Granularity, Matrix, OperandCast},
    numerics::{CastPanels, Epilogue, Panels, Panels64, Scales, Side, cast_panels, fp8, gemm, gemm_f64, rng, round},
};

use super::output::{self, Outcome};

#[derive(clap::Args, Debug)]
pub struct SelftestArgs {
    /// Check the GPU engine's kernels too.
    #[arg(long)]
    gpu: bool,
    /// On the GPU only LoKA's own kernels, without cuBLASLt's: for compute-sanitizer, which is slow.
    #[arg(long, requires = "gpu")]
    own_kernels: bool,
    /// On the GPU only the checks whose name has this text.
    #[arg(long, requires = "gpu", value_name = "TEXT")]
    only: Option<String>,
}

type Check = (&'static str, fn() -> Result<(), String>);

const CHECKS: &[Check] = &[
    ("E4M3: all 256 codes by the definition", e4m3_codes),
    ("E5M2: all 256 codes by the definition", e5m2_codes),
    ("E4M3: nearest of all values, ties to even, for 200,000 inputs", e4m3_nearest),
    ("E5M2: nearest of all values, ties to even, for 200,000 inputs", e5m2_nearest),
    ("BF16 and TF32: halfway cases", halfway),
    ("vector and scalar rounding agree", vector_rounding),
    ("Philox4x32-10: known answers", philox),
    ("GEMM: small integers are exact in every accumulation", exact_gemm),
    ("GEMM: fast accumulation as computed by hand", fast_accumulation),
    ("GEMM: FP32 agrees with FP64 within rounding, ragged shapes", ragged_gemm),
    ("scales: powers of two, zero rows, blocks", scales),
];

pub fn run(args: &SelftestArgs, json: bool) -> anyhow::Result<Outcome> {
    let mut tally = Tally { json, ..Tally::default() };
    for (name, check) in CHECKS {
        tally.take(name, check().err())?;
    }
    let gpu = if args.gpu { check_gpu(&mut tally, args)? } else { "not asked for".to_owned() };
    let Tally { passed, failed, .. } = tally;
    if json {
        output::json(&serde_json::json!({"passed": passed, "failed": failed, "gpu": gpu}))?;
    } else {
        output::line(&format!("{passed} passed, {failed} failed"));
    }
    Ok(if failed == 0 { Outcome::Done } else { Outcome::Failed })
}

/// Prints checks and counts them.
#[derive(Default)]
struct Tally {
    json: bool,
    passed: usize,
    failed: usize,
}

impl Tally {
    fn take(&mut self, name: &str, problem: Option<String>) -> anyhow::Result<()> {
        if problem.is_none() {
            self.passed += 1;
        } else {
            self.failed += 1;
        }
        if self.json {
            return output::json(&serde_json::json!({"check": name, "passed": problem.is_none(), "problem": problem}));
        }
        output::line(&match problem {
            None => format!("ok      {name}"),
            Some(problem) => format!("FAILED  {name}: {problem}"),
        });
        Ok(())
    }
}

/// The GPU engine's checks; what became of them. A machine without a GPU skips them and says why.
fn check_gpu(tally: &mut Tally, args: &SelftestArgs) -> anyhow::Result<String> {
    let engine = match cuda::shared() {
        Ok(engine) => engine,
        Err(reason) => {
            if !tally.json {
                output::line(&format!("skipped GPU: {reason}"));
            }
            return Ok(format!("skipped: {reason}"));
        }
    };
    let info = engine.describe();
    output::note(&format!("{}, {}, {}", info.device, info.driver, info.versions));
    let mut printed = Ok(());
    let wanted = cuda::Wanted { own_kernels: args.own_kernels, only: args.only.clone() };
    let outcome = cuda::selftest(&engine, &wanted, &mut |check| {
        if printed.is_ok() {
            printed = tally.take(&check.name, check.problem);
        }
    });
    printed?;
    match outcome {
        Ok(()) => Ok(info.device),
        Err(error) => {
            tally.take("GPU: all checks were run", Some(format!("they ended early: {error}")))?;
            Ok(format!("ended early: {error}"))
        }
    }
}

fn ensure(holds: bool, problem: impl FnOnce() -> String) -> Result<(), String> {
    if holds { Ok(()) } else { Err(problem()) }
}

/// The value of a code straight from the format's definition, in FP64.
fn defined(code: u8, mantissa_bits: i32, bias: i32) -> f64 {
    let sign = if code & 0x80 == 0 { 1.0 } else { -1.0 };
    let exponent = i32::from(code & 0x7F) >> mantissa_bits;
    let mantissa = f64::from(code & ((1 << mantissa_bits) - 1)) / f64::from(1 << mantissa_bits);
    sign * if exponent == 0 { mantissa * 2f64.powi(1 - bias) } else { (1.0 + mantissa) * 2f64.powi(exponent - bias) }
}

fn codes(decode: fn(u8) -> f32, encode: fn(f32) -> u8, bits: i32, bias: i32, last: u8) -> Result<(), String> {
    for code in (0..=255u8).filter(|code| code & 0x7F <= last) {
        let value = decode(code);
        ensure(f64::from(value) == defined(code, bits, bias), || format!("code {code:#04x} decodes to {value}"))?;
        ensure(encode(value) == code, || format!("{value} encodes to {:#04x}, not {code:#04x}", encode(value)))?;
    }
    Ok(())
}

fn e4m3_codes() -> Result<(), String> {
    codes(fp8::e4m3_decode, fp8::e4m3_encode, 3, 7, 0x7E)
}

fn e5m2_codes() -> Result<(), String> {
    codes(fp8::e5m2_decode, fp8::e5m2_encode, 2, 15, 0x7B)
}

/// Brute force: of all finite codes, the nearest; of two equally near, the even one.
fn nearest(round: fn(f32) -> f32, bits: i32, bias: i32, last: u8) -> Result<(), String> {
    let values: Vec<(f64, u8)> = (0..=last).map(|code| (defined(code, bits, bias), code)).collect();
    let mut random = vec![0f32; 200_000];
    rng::Rng::new(1, &[b"selftest"]).fill_normal(&mut random);
    for (index, normal) in random.iter().enumerate() {
        let value = normal * 2f32.powi(index as i32 % 36 - 20);
        let exact = f64::from(value.abs());
        let above = values.partition_point(|(candidate, _)| *candidate < exact).min(values.len() - 1);
        let below = above.saturating_sub(1);
        let (up, down) = (values[above].0 - exact, exact - values[below].0);
        let pick = if up < down || (up == down && values[above].1.is_multiple_of(2)) { above } else { below };
        let wanted = if exact > values[values.len() - 1].0 { values[values.len() - 1].0 } else { values[pick].0 };
        let ours = f64::from(round(value)).abs();
        ensure(ours == wanted, || format!("{value} rounds to {ours}, not {wanted}"))?;
    }
    Ok(())
}

fn e4m3_nearest() -> Result<(), String> {
    nearest(round::e4m3, 3, 7, 0x7E)
}

fn e5m2_nearest() -> Result<(), String> {
    nearest(round::e5m2, 2, 15, 0x7B)
}

fn halfway() -> Result<(), String> {
    let cases = [
        (round::bf16(1.0 + 2f32.powi(-8)), 1.0),
        (round::bf16(1.0 + 3.0 * 2f32.powi(-8)), 1.0 + 2f32.powi(-6)),
        (round::tf32(1.0 + 2f32.powi(-11)), 1.0),
        (round::tf32(1.0 + 3.0 * 2f32.powi(-11)), 1.0 + 2f32.powi(-9)),
        (round::bf16(f32::MAX), f32::INFINITY),
    ];
    cases.into_iter().try_for_each(|(ours, wanted)| ensure(ours == wanted, || format!("{ours} instead of {wanted}")))
}

fn vector_rounding() -> Result<(), String> {
    let mut values = vec![0f32; 4_099];
    rng::Rng::new(2, &[b"selftest"]).fill_normal(&mut values);
    values.extend([0.0, -0.0, f32::INFINITY, f32::NEG_INFINITY, f32::NAN, f32::MIN_POSITIVE, 1e-42]);
    for format in [Format::Tf32, Format::Bf16, Format::E4m3, Format::E5m2] {
        for (value, ours) in values.iter().zip(round::slice(format, &values)) {
            let scalar = round::value(format, *value);
            ensure(scalar.to_bits() == ours.to_bits(), || format!("{value} in {format:?}: {ours} and {scalar}"))?;
        }
    }
    Ok(())
}

fn philox() -> Result<(), String> {
    let ours = rng::philox4x32([u32::MAX; 4], [u32::MAX; 2]);
    ensure(ours == [0x408f_276d, 0x41c8_3b0e, 0xa20b_c7c6, 0x6d54_51fd], || format!("{ours:x?}"))
}

fn matrix(rows: usize, cols: usize, value: impl Fn(usize, usize) -> f32) -> Matrix {
    let data = (0..rows).flat_map(|r| (0..cols).map(move |c| (r, c))).map(|(r, c)| value(r, c)).collect();
    Matrix { rows, cols, data }
}

fn plain(side: Side, matrix: &Matrix) -> CastPanels {
    CastPanels { panels: Panels::pack(side, matrix), scales: Scales::None }
}

fn exact_gemm() -> Result<(), String> {
    let (a, b) = (matrix(13, 160, |r, c| ((r + c) % 3) as f32), matrix(35, 160, |r, c| ((2 * r + c) % 2) as f32));
    for accumulation in [Accumulation::Fp32, Accumulation::Promoted, Accumulation::Fast] {
        let mut out = vec![0f32; 13 * 35];
        gemm(&plain(Side::Left, &a), &plain(Side::Right, &b), accumulation, Epilogue::Store, &mut out);
        for (index, ours) in out.iter().enumerate() {
            let wanted: f32 = a.row(index / 35).iter().zip(b.row(index % 35)).map(|(a, b)| a * b).sum();
            ensure(*ours == wanted, || format!("{accumulation:?} at {index}: {ours}, not {wanted}"))?;
        }
    }
    Ok(())
}

fn fast_accumulation() -> Result<(), String> {
    // Aligned to 1, the last bit kept is 2^-13: of 31 products of 2^-14 none is left, of 31 of 2^-13 all are.
    // Two instructions of 3.515625 (exponent 1, last bit 2^-12) and 31 of 3 * 2^-13: each is cut to 2^-12. In
    // the second the accumulator, 3.515625 + 31 * 2^-12, has exponent 1 as well and stays whole.
    let cases: [(usize, f32, f32, f32); 3] = [
        (32, 1.0, 2f32.powi(-14), 1.0),
        (32, 1.0, 2f32.powi(-13), 1.0 + 31.0 * 2f32.powi(-13)),
        (64, 3.515_625, 3.0 * 2f32.powi(-13), 2.0 * (3.515_625 + 31.0 * 2f32.powi(-12))),
    ];
    for (depth, large, small, wanted) in cases {
        let a = matrix(1, depth, |_, c| if c % 32 == 0 { large } else { small });
        let b = matrix(1, depth, |_, _| 1.0);
        let mut out = [0f32];
        gemm(&plain(Side::Left, &a), &plain(Side::Right, &b), Accumulation::Fast, Epilogue::Store, &mut out);
        ensure(out[0] == wanted, || format!("{large} and 31 of {small}: {} instead of {wanted}", out[0]))?;
    }
    Ok(())
}

fn ragged_gemm() -> Result<(), String> {
    for (m, k, n) in [(1, 1, 1), (5, 37, 3), (12, 300, 33), (50, 129, 70)] {
        let mut a = Matrix::zeros(m, k);
        let mut b = Matrix::zeros(n, k);
        rng::Rng::new(3, &[b"a"]).fill_normal(&mut a.data);
        rng::Rng::new(3, &[b"b"]).fill_normal(&mut b.data);
        let (left, right) = (plain(Side::Left, &a), plain(Side::Right, &b));
        let (mut out, mut exact) = (vec![0f32; m * n], vec![0f64; m * n]);
        gemm(&left, &right, Accumulation::Fp32, Epilogue::Store, &mut out);
        gemm_f64(&Panels64::from(&left.panels), &Panels64::from(&right.panels), &mut exact);
        for (index, (ours, exact)) in out.iter().zip(&exact).enumerate() {
            let by_hand: f64 =
                a.row(index / n).iter().zip(b.row(index % n)).map(|(a, b)| f64::from(*a) * f64::from(*b)).sum();
            ensure((exact - by_hand).abs() < 1e-11 * k as f64, || format!("FP64 at {index}: {exact}, not {by_hand}"))?;
            ensure((f64::from(*ours) - exact).abs() < 1e-5 * k as f64, || {
                format!("FP32 at {index}: {ours}, not {exact}")
            })?;
        }
    }
    Ok(())
}

fn scales() -> Result<(), String> {
    let rows = matrix(2, 256, |r, c| {
        if r == 1 {
            0.0
        } else if c < 128 {
            448.0
        } else {
            3.0
        }
    });
    let panels = Panels::pack(Side::Left, &rows);
    let row = cast_panels(&panels, OperandCast::scaled(Format::E4m3, Granularity::Row), None);
    let Scales::Row(scales) = &row.scales else { return Err("rowwise has no row scales".to_owned()) };
    ensure(scales[0] == 1.0 && scales[1] == 1e-12, || format!("{scales:?}"))?;
    let block = cast_panels(&panels, OperandCast::scaled_pow2(Format::E4m3, Granularity::Block1x128), None);
    let Scales::Block(scales) = &block.scales else { return Err("blockwise has no block scales".to_owned()) };
    // 3 / 448 = .0067 rounds up to 2^-7.
    ensure(scales.contains(&2f32.powi(-7)), || format!("{scales:?}"))
}
