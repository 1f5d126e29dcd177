//! Verdicts and what would change them, in sentences: the same in the window and for whoever asks from outside.

use crate::{
    dispatch::Bound,
    format::number,
    model::{Estimate, Metric, NoiseBasis, NoiseShare, Safety},
};

use super::{Broken, ErrorOutlook, Faithful, KernelLine, MOST_DRAWS, MoreDraws, SlowPart, SpeedOutlook};

/// `1.3 µs`.
fn micros(us: f64) -> String {
    format!("{} µs", number::micros(us))
}

/// What would change the verdict on the error.
pub fn error_words(bound: Bound, verdict_margin: ErrorOutlook) -> String {
    let (metric, limit) = (bound.metric.label(), number::trimmed(bound.limit));
    match verdict_margin {
        ErrorOutlook::Unknown => format!("No {metric} is known here, so it counts as uncertain"),
        ErrorOutlook::Safe { end, margin } => {
            let room = number::percent(margin);
            format!("Safe: {metric} ends at {}, {room} clear of the threshold of {limit}", number::plain(end))
        }
        ErrorOutlook::Uncertain { leans, more } => {
            let leans = if leans == Safety::Safe { "safe" } else { "unsafe" };
            let draws = match more {
                MoreDraws::Expected { more: 1, .. } => "1 more draw is expected to decide".to_owned(),
                MoreDraws::Expected { more, .. } => {
                    format!("{} more draws are expected to decide", number::count(more))
                }
                MoreDraws::OnThreshold => {
                    format!("more than {} draws: it sits on the threshold", number::count(MOST_DRAWS))
                }
                MoreDraws::TooFew => "too few draws to say how many more".to_owned(),
            };
            format!("Uncertain, leaning {leans}: {draws} ({metric} against {limit})")
        }
        ErrorOutlook::MeansNothing => {
            format!(
                "Uncertain, and more draws do not decide: {metric} is more than a tenth of the loss, where the estimate means nothing"
            )
        }
        ErrorOutlook::Unsafe { safe_from: Some(end) } => {
            format!("Unsafe: {metric} would be safe with a threshold of {} instead of {limit}", number::plain(end))
        }
        ErrorOutlook::Unsafe { safe_from: None } => format!("Unsafe at any threshold of {metric}"),
    }
}

/// What would change the verdict on the speed.
pub fn speed_words(verdict_margin: SpeedOutlook) -> String {
    match verdict_margin {
        SpeedOutlook::Unknown => "No latency is known: measuring speeds would tell".to_owned(),
        SpeedOutlook::Fast { spare_us } => format!("Fast, with {} to spare", micros(spare_us)),
        SpeedOutlook::Slow { latency_us, needed_us, part } => {
            let needs = format!("Slow: {} where less than {} is needed", micros(latency_us), micros(needed_us));
            match part {
                SlowPart::Casts { from_us, to_us } => {
                    format!("{needs}; the casts would have to shrink from {} to {}", micros(from_us), micros(to_us))
                }
                SlowPart::Gemm { from_us, to_us } => format!(
                    "{needs}; even without casts the GEMM would have to shrink from {} to {}",
                    micros(from_us),
                    micros(to_us)
                ),
                SlowPart::Unsplit => format!("{needs}; how much of it is casts is not known"),
            }
        }
    }
}

/// What would change a kernel's verdict: on its error, on its speed.
pub fn outlook_lines(line: &KernelLine) -> [String; 2] {
    let speed = match line.verdict_margin.speed {
        // What a site saves as a whole is no kernel's own.
        SpeedOutlook::Slow { latency_us, .. } if line.is_chosen_by_policy() => {
            format!("By itself no faster: {}. The site as a whole gains by it", micros(latency_us))
        }
        speed => speed_words(speed),
    };
    [error_words(line.verdict_margin.bound, line.verdict_margin.error), speed]
}

pub fn faithful_words(of: &Faithful) -> String {
    let (value, half) = number::with_interval(of.sampled);
    let half = half.map_or_else(String::new, |half| format!(" ± {half}"));
    let (metric, heldout) = (of.metric.label(), number::plain(of.heldout));
    let rows = number::count(of.rows);
    format!("{metric}: {value}{half} on sampled inputs, {heldout} on {rows} held-out rows")
}

pub fn unfaithful_words(of: &Faithful) -> String {
    let side = if of.heldout > of.sampled.value { "larger" } else { "smaller" };
    let (metric, chance) = (of.metric.label(), number::plain(of.chance));
    format!(
        "The sampler differs: on real rows {metric} is {side} by more than the {chance} that chance allows. \
         Trust the held-out number more than the interval."
    )
}

pub fn broken_words(broken: &Broken) -> String {
    match broken {
        Broken::Error { bound, estimate, certain } => {
            let word = if *certain { "unsafe" } else { "not certainly safe" };
            let value = estimate.map_or_else(|| "not known".to_owned(), number::sentence);
            format!(
                "Breaks the policy: {word}, {} {value} against {}",
                bound.metric.label(),
                number::trimmed(bound.limit)
            )
        }
        Broken::OutOfRange { why } => format!("Breaks the policy: not certainly safe, {why}"),
        Broken::Slow { speedup, min_speedup } => {
            let (speedup, least) = (number::times(*speedup), number::trimmed(*min_speedup));
            format!("Not worth it by the policy: {speedup} where more than {least}× is asked")
        }
        Broken::Budget { cost, budget } => {
            let (cost, budget) = (number::plain(*cost), number::plain(*budget));
            format!("Breaks the loss budget: the plan would cost up to {cost} of {budget}")
        }
    }
}

/// What an error of the backward adds, in words. `examples`: of a batch.
pub fn noise_words(noise: NoiseShare, examples: u64) -> String {
    let (share, examples) = (number::percent(noise.share.value), number::count(examples));
    let basis = match noise.basis {
        NoiseBasis::Recorded => "",
        NoiseBasis::Independent => " (the trace has no noise of its own: x and dy are taken as independent)",
    };
    let steps = noise.steps.map_or_else(String::new, |steps| {
        let (first, last) = (number::plain(steps.first), number::plain(steps.last));
        format!(". rel L2 of the gradient {first} in the first recorded step, {last} in the last ones")
    });
    format!("Adds {share} to the noise that a batch of {examples} has anyway{basis}{steps}")
}

/// A metric's value for a table, and half of its interval.
pub fn metric_words(metric: Metric, estimate: Option<Estimate>) -> (String, String) {
    match estimate {
        None => (
            "–".to_owned(),
            match metric {
                Metric::BlockRelL2 => "no tail follows",
                Metric::LossCost => "fprop with gradients only",
                Metric::NoiseShare => "dgrad and wgrad only",
                _ => "not known",
            }
            .to_owned(),
        ),
        Some(estimate) => {
            let (value, half) = number::with_interval(estimate);
            (value, half.map_or_else(String::new, |half| format!("± {half}")))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BOUND: Bound = Bound { metric: Metric::Mere, limit: 0.2 };

    #[test]
    fn uncertainty_says_how_many_draws() {
        let words = |more| error_words(BOUND, ErrorOutlook::Uncertain { leans: Safety::Safe, more });
        let expected = MoreDraws::Expected { more: 1_240, total: 1_304 };
        assert_eq!(
            words(expected),
            "Uncertain, leaning safe: 1,240 more draws are expected to decide (MERE against .2)"
        );
        assert!(words(MoreDraws::OnThreshold).contains("more than 10,000 draws: it sits on the threshold"));
        let bound = Bound { metric: Metric::LossCost, limit: 1e-4 };
        assert_eq!(
            error_words(bound, ErrorOutlook::MeansNothing),
            "Uncertain, and more draws do not decide: Loss cost is more than a tenth of the loss, where the estimate means nothing"
        );
    }

    #[test]
    fn slowness_names_the_part_that_must_shrink() {
        let slow = |part| speed_words(SpeedOutlook::Slow { latency_us: 12.0, needed_us: 10.0, part });
        assert_eq!(
            slow(SlowPart::Casts { from_us: 4.0, to_us: 2.0 }),
            "Slow: 12.0 µs where less than 10.0 µs is needed; the casts would have to shrink from 4.00 µs to 2.00 µs"
        );
        assert!(slow(SlowPart::Gemm { from_us: 11.0, to_us: 10.0 }).contains("even without casts the GEMM"));
    }
}
