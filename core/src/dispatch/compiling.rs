//! Takes what a plan saves of a step, gives a warning where compiling by it takes longer than a run of some length makes up for.

use super::{Target, Totals, Warning};
use crate::{format::number::count, model::Runtime};

/// What a GEMM in FP8 takes torch.compile beyond BF16's, both variants of the step together. Measured were .5 to .8 s
/// (docs/engineering/training.md).
const SECONDS_A_GEMM: f64 = 0.5;

/// As many are run for next to nothing: less than 10 us saved a GEMM.
const STEPS: f64 = 50_000.0;

/// Nobody minds less.
const LEAST_SECONDS: f64 = 20.0;

/// `num_low`: GEMMs of the plan in low precision, asked where it matters. `None`: a run makes up for it soon, nothing is saved, or the
/// plan is not for training.
pub(super) fn is_made_up_for_late(
    target: &Target,
    totals: &Totals,
    num_low: impl FnOnce() -> usize,
) -> Option<Warning> {
    let seconds = |gemms: usize| SECONDS_A_GEMM * gemms as f64;
    let is_late = |gemms: usize| seconds(gemms) >= (STEPS * totals.saved_us / 1e6).max(LEAST_SECONDS);
    if target.runtime() == Runtime::Inference || totals.saved_us <= 0.0 || !is_late(totals.num_gemms) {
        return None;
    }
    let low = num_low();
    is_late(low).then(|| {
        Warning::whole(format!(
            "torch.compile takes half a second or more longer for each GEMM in FP8, here {} of them, and a step saves {:.2} ms: a run of \
             fewer than {} steps gains nothing by this plan",
            count(low),
            totals.saved_us / 1e3,
            count(two_digits(seconds(low) / (totals.saved_us / 1e6)))
        ))
    })
}

fn two_digits(steps: f64) -> usize {
    let unit = 10f64.powf(steps.log10().floor() - 1.0);
    ((steps / unit).round() * unit) as usize
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{dispatch::testing::results, model::ResultsMeta};

    fn warned(runtime: Runtime, saved_us: f64, low: usize) -> Option<String> {
        let meta: ResultsMeta = results(&["a"], Vec::new()).meta;
        let totals = Totals { saved_us, num_gemms: 254, ..Totals::default() };
        is_made_up_for_late(&Target::of(&meta, runtime), &totals, || low).map(|warning| warning.text)
    }

    /// Of a ranker with 254 GEMMs: h200-tokens.txt.
    #[test]
    fn many_gemms_that_save_little_are_told_of() {
        let told = warned(Runtime::Graph, 270.0, 96).unwrap();
        assert!(
            told.contains("here 96 of them, and a step saves 0.27 ms: a run of fewer than 180,000 steps"),
            "{told}"
        );
        assert_eq!(warned(Runtime::Launched, 3_800.0, 57), None, "made up for in 7,500 steps");
        assert_eq!(warned(Runtime::Launched, 50.0, 12), None, "six seconds");
        assert_eq!(warned(Runtime::Inference, 270.0, 96), None);
        assert_eq!(warned(Runtime::Launched, 0.0, 96), None);
    }
}
