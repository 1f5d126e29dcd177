//! Takes what a trace knows of where a site's products lie, gives how far a GEMM's cost is from that of an input and a
//! gradient that do not depend on each other (docs/concepts/method.md, "Where x and dy depend on each other").
//!
//! Draws of a site have the right x and the right dy, and of what the two have to do with each other at most a
//! covariance. Raw counters in front of a norm have none, and yet a row of large counters has a small gradient.

use std::sync::{Arc, LazyLock};

use crate::{
    model::{Format, GemmNumerics, Granularity, OperandCast, StaticScale},
    numerics::{fp8::format_max, round},
    trace::{MAGNITUDE_BINS, Magnitudes, Scaling, SiteStats},
};

use super::gradient_noise::{ExampleRows, GradientNoise, second_moment};

/// Values that stand for one octave, evenly spread in their logarithm.
const STEPS: usize = 64;

/// A bin that every format with a scale holds as normal numbers.
const NORMAL: usize = 4;

/// What the trace knows of one site.
#[derive(Clone, Debug)]
pub struct Dependence {
    magnitudes: Arc<Magnitudes>,
    energy_over_noise: Option<f64>,
    /// `E[|x|^2 |g|^2] / (E|x|^2 E|g|^2)`
    correlation: f64,
    input_amax: Option<f64>,
    grad_amax: Option<f64>,
}

/// Scales known beforehand of the GEMM's left and right operand.
pub type KnownScales = [Option<StaticScale>; 2];

impl Dependence {
    /// `None` where nothing of it was recorded, or all of it is zero.
    pub fn of(stats: &SiteStats) -> Option<Self> {
        let grads = stats.grad_output.as_ref()?;
        let magnitudes = stats.noise.as_ref()?.magnitudes.clone()?;
        let sum = |scaling| magnitudes.input(scaling).iter().sum::<f64>();
        // Of the same rows above and below: a sum with heavy tails by itself would be nobody's.
        let correlation = sum(Scaling::Tensor) / sum(Scaling::Alone) / second_moment(grads);
        (correlation.is_finite() && correlation > 0.0).then(|| Self {
            energy_over_noise: GradientNoise::of(stats).and_then(|noise| noise.energy_over_noise),
            correlation,
            input_amax: stats.input.amax,
            grad_amax: grads.amax,
            magnitudes,
        })
    }

    /// Relative squared error of the input's cast: as rows count, and as rows are.
    fn of_input(&self, numerics: GemmNumerics, scales: KnownScales) -> (f64, f64) {
        let of = |scaling| {
            let top = static_top(self.input_amax, scales[0]);
            relative_error(self.magnitudes.input(scaling), numerics.a, top)
        };
        match numerics.a.granularity {
            Granularity::Tensor | Granularity::Static => (of(Scaling::Tensor), of(Scaling::Alone)),
            // Under a scale of its own a row errs by the same share whatever its size is.
            Granularity::None | Granularity::Row | Granularity::Block1x128 | Granularity::Block128x128 => {
                (normal(numerics.a), normal(numerics.a))
            }
        }
    }

    /// Share that the casts of dy and x alone have of the noise of wgrad; `None`: there is no noise.
    pub fn wgrad_noise_share(&self, numerics: GemmNumerics, scales: KnownScales) -> Option<f64> {
        let of_grad = relative_error(
            self.magnitudes.grad_output(scaling(numerics.a)),
            numerics.a,
            static_top(self.grad_amax, scales[0]),
        );
        let of_input = relative_error(
            self.magnitudes.input(scaling(numerics.b)),
            numerics.b,
            static_top(self.input_amax, scales[1]),
        );
        Some((of_grad + of_input) * self.energy_over_noise?).filter(|share| share.is_finite())
    }
}

/// What the mean loss cost of a drawn row is multiplied by to be an example's. Errors of a row of x W^T grow with |x|^2, and count by
/// |g|^2; those of different rows of x add up as squares, and the weight's, which all rows of an example share, as their
/// gradients do. `known`: `None` where x and g are taken as independent.
pub fn loss_cost_factor(
    rows: ExampleRows,
    known: Option<&Dependence>,
    numerics: GemmNumerics,
    scales: KnownScales,
) -> f64 {
    let alone = normal(numerics.a);
    let (weighted, alone) = known.map_or((alone, alone), |known| known.of_input(numerics, scales));
    let weight = normal(numerics.b);
    let together = (weighted + rows.agreement * weight) / (alone + weight);
    rows.count * known.map_or(1.0, |known| known.correlation) * if together.is_finite() { together } else { 1.0 }
}

/// Relative squared error of values that are far from both ends of the format.
fn normal(cast: OperandCast) -> f64 {
    table(cast)[NORMAL]
}

/// Whose amax a cast of an operand of wgrad goes by: what it reduces are rows.
fn scaling(cast: OperandCast) -> Scaling {
    match cast.granularity {
        Granularity::None | Granularity::Tensor | Granularity::Static => Scaling::Tensor,
        Granularity::Row => Scaling::Feature,
        Granularity::Block1x128 | Granularity::Block128x128 => Scaling::Block,
    }
}

/// The amax in units of a scale that does not come from it.
fn static_top(amax: Option<f64>, scale: Option<StaticScale>) -> Option<f64> {
    amax.zip(scale).map(|(amax, known)| amax / f64::from(known.scale))
}

/// Squared error over square of values with these squares by octave below their amax. `static_top`: what a static cast
/// makes of the amax before it rounds.
fn relative_error(squares: &[f64], cast: OperandCast, static_top: Option<f64>) -> f64 {
    let made;
    let by_bin = match (cast.granularity, static_top) {
        (Granularity::Static, Some(top)) => {
            made = errors(cast.format, top, false);
            &made
        }
        _ => table(cast),
    };
    let sum: f64 = squares.iter().sum();
    let error: f64 = squares.iter().zip(by_bin).map(|(square, error)| square * error).sum();
    if sum > 0.0 { error / sum } else { 0.0 }
}

type Errors = [f64; MAGNITUDE_BINS];

/// Of casts whose scale comes from the amax.
fn table(cast: OperandCast) -> &'static Errors {
    static TABLES: LazyLock<Vec<[Errors; 2]>> = LazyLock::new(|| {
        let of = |format, power_of_two| errors(format, top(format), power_of_two);
        FORMATS.map(|format| [of(format, false), of(format, true)]).to_vec()
    });
    let at = FORMATS.iter().position(|format| *format == cast.format).unwrap_or(0);
    &TABLES[at][usize::from(cast.power_of_two)]
}

const FORMATS: [Format; 5] = [Format::F32, Format::Tf32, Format::Bf16, Format::E4m3, Format::E5m2];

/// What a scale maps the amax to; formats that need none are the same everywhere.
fn top(format: Format) -> f64 {
    match format {
        Format::E4m3 | Format::E5m2 => f64::from(format_max(format)),
        Format::F32 | Format::Tf32 | Format::Bf16 => 1.0,
    }
}

/// Squared relative error of each bin, values evenly spread in their logarithm. `shifted`: a power of two as a scale
/// puts the amax anywhere in the octave below `top`.
fn errors(format: Format, top: f64, shifted: bool) -> Errors {
    let shifts = if shifted { STEPS } else { 1 };
    let spread = |at: usize, of: usize| ((at as f64 + 0.5) / of as f64).exp2();
    let mut found = [0.0; MAGNITUDE_BINS];
    for (bin, found) in found.iter_mut().enumerate() {
        let (mut error, mut square) = (0.0, 0.0);
        for shift in 0..shifts {
            let top = if shifted { top / spread(shift, shifts) } else { top };
            for step in 0..STEPS {
                let below = if bin == 0 { 1.0 } else { spread(step, STEPS) * (-(bin as f64)).exp2() };
                let value = (top * below) as f32;
                error += (f64::from(round::value(format, value)) - f64::from(value)).powi(2);
                square += f64::from(value).powi(2);
            }
        }
        *found = if square > 0.0 { error / square } else { 0.0 };
    }
    found
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::{
        model::{Gemm, baseline_kernel, kernel},
        trace::{Covariance, Distribution, GradientMoments, WeightStats},
    };

    const ONE: ExampleRows = ExampleRows { count: 1.0, agreement: 1.0 };

    fn cast(granularity: Granularity) -> OperandCast {
        OperandCast::scaled(Format::E4m3, granularity)
    }

    #[test]
    fn a_cast_errs_by_where_a_value_lies() {
        let table = table(cast(Granularity::Tensor));
        assert_eq!(table[0], 0.0, "the amax becomes 448");
        // Normal numbers of E4M3: a step of 2^-3 of the power of two below; an even error has a twelfth of its square,
        // and squares of an octave that is even in its logarithm have a mean of 3 / (2 ln 2).
        let normal = 2f64.powi(-6) / 12.0 / (3.0 / (2.0 * 2f64.ln()));
        for error in &table[1..=14] {
            assert!((error / normal - 1.0).abs() < 0.25, "{error} against {normal}: {table:?}");
        }
        assert!(table[17] > 10.0 * normal && table[20..].iter().all(|error| *error == 1.0), "{table:?}");
        let coarse = super::table(OperandCast::scaled(Format::E5m2, Granularity::Tensor));
        assert!((coarse[20] / (4.0 * normal) - 1.0).abs() < 0.25 && coarse[39] == 1.0, "{coarse:?}");
        let bf16 = super::table(OperandCast::unscaled(Format::Bf16));
        assert!((bf16[7] / (normal * 2f64.powi(-8)) - 1.0).abs() < 0.25 && bf16[7] == bf16[30]);
        // A power of two has the amax nowhere in particular.
        let shifted = super::table(OperandCast::scaled_pow2(Format::E4m3, Granularity::Row));
        assert!(shifted[0] > 0.5 * normal, "{}", shifted[0]);
    }

    #[test]
    fn a_static_scale_saturates_above_and_flushes_below() {
        let mut squares = [0.0; MAGNITUDE_BINS];
        squares[1] = 1.0;
        let of = |top| relative_error(&squares, cast(Granularity::Static), Some(top));
        assert!(of(448.0) < 1e-3);
        // Four times too large: values are cut to a half to a quarter of themselves.
        assert!(of(4.0 * 448.0) > 0.3, "{}", of(4.0 * 448.0));
        assert_eq!(of(448.0 * 2f64.powi(-20)), 1.0);
    }

    /// 16 features of variance 1 and of 1e-4, with the products where `input` and `grad` say.
    fn stats(input: &[Vec<f64>; 4], grad: &[Vec<f64>; 4]) -> SiteStats {
        let site = json!({"id": "s", "m": 64, "k": 16, "n": 16, "dtype": "f32"});
        let of = |variance: f64| Distribution {
            count: 100,
            mean: vec![0.0; 16],
            cov: Covariance::Factor { factor: Vec::new(), rank: 0, diag: vec![variance; 16] },
            quantiles: None,
            hist: None,
            amax: Some(448.0),
        };
        let magnitudes = Magnitudes { input: input.concat(), grad_output: grad.concat() };
        let xg2 = magnitudes.input(Scaling::Tensor).iter().sum();
        let noise = GradientMoments {
            count: 100,
            xg2,
            mean2: 0.5 * xg2,
            by_example: true,
            magnitudes: Some(Arc::new(magnitudes)),
        };
        let weight = WeightStats::Snapshot(vec![0.5; 256]);
        let plain = SiteStats::new(serde_json::from_value(site).unwrap(), of(1.0), weight);
        SiteStats { grad_output: Some(of(1e-4)), noise: Some(noise), ..plain }
    }

    fn at(bin: usize, square: f64) -> Vec<f64> {
        let mut squares = vec![0.0; MAGNITUDE_BINS];
        squares[bin] = square;
        squares
    }

    #[test]
    fn what_does_not_depend_is_left_as_it_is() {
        // |x|^2 = 16 and |g|^2 = 16e-4 a row, all of it in the same octave.
        let independent = || at(3, 16.0 * 16e-4);
        let input = [independent(), independent(), independent(), at(3, 16.0)];
        let known =
            Dependence::of(&stats(&input, &[independent(), independent(), independent(), at(3, 16e-4)])).unwrap();
        for name in ["cublaslt/fp8-tensorwise", "cublaslt/fp8-rowwise", baseline_kernel().as_str()] {
            let numerics = kernel(name).unwrap().numerics(Gemm::Fprop);
            let of = |rows| loss_cost_factor(rows, Some(&known), numerics, [None; 2]);
            assert!((of(ONE) - 1.0).abs() < 1e-12, "{name}");
            // Half of the error is the weight's.
            let tokens = ExampleRows { count: 8.0, agreement: 3.0 };
            assert!((of(tokens) / 16.0 - 1.0).abs() < 0.05, "{name}: {}", of(tokens));
            assert!((loss_cost_factor(tokens, None, numerics, [None; 2]) / 16.0 - 1.0).abs() < 1e-12, "{name}");
            assert_eq!(loss_cost_factor(ONE, None, numerics, [None; 2]), 1.0, "{name}");
        }
        let numerics = kernel("cublaslt/fp8-rowwise").unwrap().numerics(Gemm::Wgrad);
        // Two casts, each with a normal number's error, of a noise that is half of the second moment.
        let share = known.wgrad_noise_share(numerics, [None; 2]).unwrap();
        assert!((share / (4.0 * table(numerics.a)[3]) - 1.0).abs() < 1e-12);
    }

    #[test]
    fn small_rows_that_count_are_flushed_under_one_scale_a_tensor() {
        // Nearly all of |x|^2 is within the first octaves; what counts in products is far below.
        let small = || at(25, 1e-9);
        let input = [small(), at(2, 1e-9), at(2, 1e-9), at(1, 16.0)];
        let known = Dependence::of(&stats(&input, &[at(2, 1e-9), at(2, 1e-9), at(2, 1e-9), at(2, 16e-4)])).unwrap();
        let correlation = 1e-9 / 16.0 / 16e-4;
        let numerics = |name: &str| kernel(name).unwrap().numerics(Gemm::Fprop);
        let cost = |name: &str| loss_cost_factor(ONE, Some(&known), numerics(name), [None; 2]);
        assert!((cost("cublaslt/fp8-rowwise") / correlation - 1.0).abs() < 1e-9);
        assert!((cost(baseline_kernel().as_str()) / correlation - 1.0).abs() < 1e-9);
        // All of the row is lost: hundreds of times what a rounding costs.
        assert!(cost("cublaslt/fp8-tensorwise") > 300.0 * correlation);
        let share =
            |name: &str| known.wgrad_noise_share(kernel(name).unwrap().numerics(Gemm::Wgrad), [None; 2]).unwrap();
        assert!(share("cublaslt/fp8-tensorwise") > 2.0 && share("cublaslt/fp8-rowwise") < 0.01);
    }
}
