//! The terms of the workbench, each with what it is in a sentence or two: one table for every view. `docs/concepts` has the
//! long form; a term says the same here as there.

use crate::model::{Accumulation, Gemm, LatencySource, Metric, ModKind, Quadrant, Runtime, Safety, kernel};

/// Each term once: how it is headed, and what it is.
macro_rules! glossary {
    ($($term:ident: $title:expr, $about:expr;)*) => {
        /// A word that has one sense here.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum Term { $($term),* }

        impl Term {
            /// In the order of the table.
            pub const ALL: &[Self] = &[$(Self::$term),*];

            /// How it is headed.
            pub fn title(self) -> &'static str {
                match self { $(Self::$term => $title,)* }
            }

            /// What it is, in one or two sentences.
            pub fn about(self) -> &'static str {
                match self { $(Self::$term => $about,)* }
            }
        }
    };
}

glossary! {
    // The model.
    Site: "Site", "One linear layer of the model, under the name that the model gives it.";
    Module: "Module", "A part of the model that holds sites, by the path of its name. It shows the worst of its sites.";
    Gemm: "GEMM", "A matrix product. A site has three, fprop, dgrad and wgrad, and each gets a kernel of its own.";
    Fprop: "fprop", "The forward GEMM: it computes the layer's output from its input and weight, and sums over k.";
    Dgrad: "dgrad", "The backward GEMM that computes the gradient of the layer's input; it sums over n.";
    Wgrad: "wgrad", "The backward GEMM that computes the gradient of the weight; it sums over m, the rows of the batch.";
    Shape: "Shape (m, k, n)", "Rows a call, features in, features out. The GEMM's sum is over one of the three, and errors grow with it.";

    // Kernels.
    Kernel: "Kernel", "What runs a GEMM, as library/recipe. The recipe decides the error, the library the latency.";
    Recipe: "Recipe", "How a GEMM computes: the types, how many values share a scale, and how sums are kept.";
    Fp8: "FP8", "E4M3: 8 bits, about three significant binary digits, values up to 448. A scale brings the data into that range.";
    Baseline: "Baseline", "The kernel in high precision that speed-ups are against, as a rule BF16.";
    Tensorwise: "tensorwise", "One scale for the whole tensor. One outlier makes it coarse for every other value.";
    Rowwise: "rowwise", "One scale a row, so that a row of large values does not make the others coarse.";
    Blockwise: "blockwise", "One scale a block of 128 values: the finest, and the dearest to cast.";
    FastSums: "+fast", "Sums stay in the tensor cores alone, about 13 bits below the largest product: quicker and less exact.";
    Promoted: "Promoted sums", "Partial sums are added up in FP32 every 128 products, which costs a little time and keeps long sums exact.";
    StaticScale: "Static scale", "A scale that is known before the tensor is, so that one pass casts it. A value beyond its range saturates.";
    Delayed: "Delayed scaling", "Static scales that follow the tensors from step to step.";
    Saturation: "Saturation", "A value beyond the scale's range becomes the largest that FP8 has. A static scale lets that happen in one step of a thousand at most.";
    Flushed: "Flushed", "The share of values that are not zero and that the cast makes zero, because they are too small for the scale.";
    Subnormal: "Subnormal", "Values between the smallest number of full precision and zero: they keep fewer digits the smaller they are.";
    CachedCast: "Weight cast before", "The latency when the weight's cast is cached: cast once a step, not at every call.";
    Casts: "Casts", "What brings a GEMM's operands into FP8 before it runs; two GEMMs that read the same codes share one.";
    Tail: "Tail", "Bias, norm and activation after the forward GEMM; its time comes from the bytes that it moves.";
    Chain: "Chain", "Where one site's output is the next one's input and nothing else reads it, codes in FP8 are handed on without BF16 in between.";

    // Errors.
    Error: "Error", "How far a kernel's output is from the same product in FP64, in the metric that is shown, with half of its interval.";
    Draw: "Draw", "One batch made up to have the recorded statistics. Every kernel runs it, and its error is an estimate over draws.";
    Interval: "Interval", "Where the true error lies with 95 % confidence. It narrows with the square root of the draws.";
    Mere: "MERE", "Mean of |error| / |result| over outputs: how wrong a typical element is. Estimated as the median over batches at full size.";
    RelL2: "Relative L2 (rel L2)", "‖error‖ / ‖result‖ over all outputs of a GEMM: .03 is an error of 3 % of the result in size.";
    SqnrDb: "SQNR", "Relative L2 in decibels, -20 log10 of it. Larger is better.";
    MedianRel: "Median relative", "The median of |error| / |result| over outputs: half of them are less wrong than that.";
    MaxAbs: "Max absolute", "The largest |error| of any output, in the output's own units.";
    BlockRelL2: "Block relative L2", "Relative L2 after what follows the GEMM: bias, norm, activation and the cast for the next site.";
    LossCost: "Loss cost", "What an error of the forward costs in units of the loss, to second order, beyond what BF16 costs. It adds up over sites.";
    LossBudget: "Loss budget", "The largest loss cost that a whole plan may have, as a share of the loss: .02 % by the default policy.";
    NoiseShare: "Noise share", "The mean square of a gradient's error over the noise that it has anyway from batch to batch. At .01, 100 examples count as 99.";
    Bias: "Bias", "The part of the error that points along the result, and does not average out: -.01 for a gradient that is always 1 % too short.";
    Fidelity: "Fidelity", "The error on drawn rows against that on held-out rows of the trace: how far the sampler can be trusted.";

    // Verdicts.
    Verdict: "Verdict", "Where an error's interval lies against the policy's bound, and whether the kernel is faster than its margin.";
    Bound: "Bound", "The largest error that the policy allows. A kernel is safe where its whole interval is within it.";
    Safe: "Safe", "The whole interval of the error is within the policy's bound.";
    Uncertain: "Uncertain", "The interval crosses the bound. More draws may decide it; until then it counts as unsafe.";
    Unsafe: "Unsafe", "The whole interval of the error is beyond the policy's bound.";
    SafeFast: "Safe & fast", "Within the policy's bound, and faster than BF16 by its margin, casts included. A plan takes these.";
    SafeSlow: "Safe & slow", "Within the policy's bound, and not faster than BF16 by its margin once its casts count.";
    SafeUnknown: "Safe, speed unknown", "Within the policy's bound, and nobody timed it. It is not chosen.";
    UnsafeFast: "Unsafe & fast", "Beyond the policy's bound, and faster than BF16 by its margin. A mod or a finer scale may make it safe.";
    UnsafeSlow: "Unsafe & slow", "Beyond the policy's bound, and not faster than BF16 by its margin.";
    UnsafeUnknown: "Unsafe, speed unknown", "Beyond the policy's bound, and nobody timed it.";
    Unsupported: "Unsupported", "The kernel cannot run this shape; the reason stands beside it. A fact, not a verdict.";

    // Speed.
    Latency: "Latency", "The median time of the GEMM with all casts that the kernel needs, in microseconds.";
    Speedup: "Speed-up", "The baseline's time over the kernel's, both from the same source, casts included.";
    SpeedMargin: "Speed-up margin", "How much faster than BF16 a kernel must be to count as fast: 1.05× by default.";
    Measured: "Measured", "Timed on this machine's GPU, casts included.";
    Recorded: "Recorded", "Timed at this very shape on another machine, named beside it.";
    Modelled: "Modelled", "Fitted to recorded shapes, with the fit's error beside it.";
    NoLatency: "No latency", "Nobody timed this kernel at this shape.";
    TimeShare: "Time share", "The share of the baseline's time spent in the GEMMs whose chosen kernel stands there.";

    // The plan.
    Policy: "Policy", "What a plan must keep to: bounds, margins, a budget, who must sign.";
    Plan: "Plan", "The decision as one file: for every GEMM of every site a kernel and the reason, high precision too, with a digest.";
    LowPrecision: "In FP8", "GEMMs whose chosen kernel runs in FP8; the others stay in high precision.";
    Saved: "Saved", "The time a step that the choice saves against the baseline, casts included, in microseconds. Where its site was timed as a whole, with its part of what the site's GEMMs save together.";
    SavedShare: "Share", "This choice's part of all the time that the plan saves.";
    Margin: "Margin", "How far the error stays from the policy's bound. The smallest margins are the first to flip.";
    Versus: "vs baseline", "Microseconds a step that this GEMM saves more (+) or less (−) than with the kernel that the baseline has there.";
    Reason: "Reason", "Why Dispatch chose this kernel, or the words of whoever set it by hand.";
    Override: "Override", "A choice that a person made against the policy; the plan names who, and why.";
    Frontier: "Frontier", "What each step of speed-up costs: the best plan for each threshold of a policy.";
    Draft: "Draft", "A plan that nobody approved, or that changed since. Every file that is made of it says so.";
    Release: "Version", "The plan as it was submitted for approval. Who signs, signs its digest.";
    Launched: "launched", "The runtime of a compiled training step whose kernels are launched one by one: GPU time and 4 µs a launch.";
    Graph: "graph", "The runtime of a step that is replayed as a CUDA graph: GPU time alone.";
    Inference: "inference", "The runtime of the forward alone; backward GEMMs are not counted.";

    // Mods and drift.
    Mod: "Mod", "A change of the model that makes FP8 safer or faster, tried on paper. The model must be trained with it.";
    NoBias: "No bias", "A mod: drops a bias that a norm behind it makes useless.";
    BlockNorm: "BlockNorm", "A mod: normalises blocks of 256 features, which tames outliers and bounds what a static scale has to hold.";
    HardSwish: "Hard swish", "A mod: takes the place of an activation by one that fuses with the GEMM.";
    Drift: "Drift", "How a site's recorded extremes moved over the steps, and where a verdict would flip with them.";
    Amax: "amax", "The largest magnitude in a tensor; most scales are made of it.";
    Reach: "Reach", "How far a feature's values go: its extreme quantile that is the furthest from zero.";
    Spread: "Spread", "The distance between the extreme quantiles of the median feature.";
    Moved: "Moved by", "Powers of two by which values moved on average, up or down.";
    Outlier: "Outlier", "A feature that reaches at least twice as far as the median feature. One scale for the tensor has to hold it, too.";
    Flip: "Flip", "A verdict that becomes another, under a mod, another policy or drift.";
    Finding: "Finding", "Something worth doing, with what it is worth a step if it comes as hoped for, alone.";
}

impl Term {
    pub fn of_metric(metric: Metric) -> Self {
        match metric {
            Metric::Mere => Self::Mere,
            Metric::RelL2 => Self::RelL2,
            Metric::SqnrDb => Self::SqnrDb,
            Metric::MedianRel => Self::MedianRel,
            Metric::MaxAbs => Self::MaxAbs,
            Metric::BlockRelL2 => Self::BlockRelL2,
            Metric::LossCost => Self::LossCost,
            Metric::NoiseShare => Self::NoiseShare,
            Metric::Bias => Self::Bias,
        }
    }

    pub fn of_verdict(quadrant: Quadrant) -> Self {
        match quadrant {
            Quadrant::SafeFast => Self::SafeFast,
            Quadrant::SafeSlow => Self::SafeSlow,
            Quadrant::UnsafeFast => Self::UnsafeFast,
            Quadrant::UnsafeSlow => Self::UnsafeSlow,
            Quadrant::SafeUnknown => Self::SafeUnknown,
            Quadrant::UnsafeUnknown => Self::UnsafeUnknown,
            Quadrant::Uncertain => Self::Uncertain,
            Quadrant::Unsupported => Self::Unsupported,
        }
    }

    pub fn of_safety(safety: Safety) -> Self {
        match safety {
            Safety::Safe => Self::Safe,
            Safety::Uncertain => Self::Uncertain,
            Safety::Unsafe => Self::Unsafe,
        }
    }

    pub fn of_gemm(gemm: Gemm) -> Self {
        match gemm {
            Gemm::Fprop => Self::Fprop,
            Gemm::Dgrad => Self::Dgrad,
            Gemm::Wgrad => Self::Wgrad,
        }
    }

    pub fn of_source(source: LatencySource) -> Self {
        match source {
            LatencySource::Measured => Self::Measured,
            LatencySource::Recorded => Self::Recorded,
            LatencySource::Modelled => Self::Modelled,
            LatencySource::None => Self::NoLatency,
        }
    }

    pub fn of_mod(kind: ModKind) -> Self {
        match kind {
            ModKind::NoBias => Self::NoBias,
            ModKind::BlockNorm => Self::BlockNorm,
            ModKind::HardSwish => Self::HardSwish,
        }
    }

    pub fn of_runtime(runtime: Runtime) -> Self {
        match runtime {
            Runtime::Launched => Self::Launched,
            Runtime::Graph => Self::Graph,
            Runtime::Inference => Self::Inference,
        }
    }

    /// What the name of a kernel is made of: how its scales are shared, and how it sums. In high precision nothing.
    pub fn of_kernel(name: &str) -> Vec<Self> {
        let Some(kernel) = kernel(name).filter(|kernel| !kernel.high_precision()) else { return Vec::new() };
        let recipe = name.split_once('/').map_or("", |(_, recipe)| recipe);
        let parts = [
            ("tensorwise", Self::Tensorwise),
            // Transformer Engine's.
            ("current", Self::Tensorwise),
            ("rowwise", Self::Rowwise),
            ("blockwise", Self::Blockwise),
            ("delayed", Self::Delayed),
            ("static", Self::StaticScale),
            // LoKA's own with the tail inside.
            ("block+", Self::BlockNorm),
            ("block+", Self::StaticScale),
        ];
        let sums = |how: Accumulation| Gemm::ALL.iter().any(|gemm| kernel.numerics(*gemm).accumulation == how);
        let mut terms: Vec<Self> =
            parts.into_iter().filter(|(part, _)| recipe.contains(part)).map(|(_, term)| term).collect();
        terms.extend(sums(Accumulation::Fast).then_some(Self::FastSums));
        terms.extend(sums(Accumulation::Promoted).then_some(Self::Promoted));
        terms
    }

    /// The terms that a sentence of ours names, each once, in the order of the table.
    pub fn in_text(text: &str) -> Vec<Self> {
        let text = text.to_lowercase();
        let words = |text: &str, wanted: &str| {
            let is_letter = |character: Option<char>| character.is_some_and(char::is_alphanumeric);
            text.match_indices(wanted).any(|(at, _)| {
                let (before, after) = (&text[..at], &text[at + wanted.len()..]);
                !is_letter(before.chars().next_back()) && !is_letter(after.chars().next())
            })
        };
        let named = |term: &&Self| term.written().iter().any(|wanted| words(&text, wanted));
        Self::SAID.iter().filter(named).copied().collect()
    }

    /// Those that sentences of ours name: reasons, verdicts, latencies.
    const SAID: &[Self] = &[
        Self::Tensorwise,
        Self::Rowwise,
        Self::Blockwise,
        Self::StaticScale,
        Self::Saturation,
        Self::Flushed,
        Self::CachedCast,
        Self::Mere,
        Self::RelL2,
        Self::BlockRelL2,
        Self::LossCost,
        Self::LossBudget,
        Self::NoiseShare,
        Self::Bias,
        Self::Uncertain,
        Self::Measured,
        Self::Recorded,
        Self::Modelled,
        Self::Launched,
        Self::Graph,
        Self::Inference,
    ];

    /// How sentences have it, in lower case.
    fn written(self) -> &'static [&'static str] {
        match self {
            Self::Tensorwise => &["tensorwise"],
            Self::Rowwise => &["rowwise"],
            Self::Blockwise => &["blockwise"],
            Self::StaticScale => &["static scale", "scale of x", "scale of dy"],
            Self::Saturation => &["saturation", "saturates", "saturate"],
            Self::Flushed => &["flushed"],
            Self::CachedCast => &["weight cast before"],
            Self::Mere => &["mere"],
            Self::RelL2 => &["relative l2", "rel l2"],
            Self::BlockRelL2 => &["block relative l2"],
            Self::LossCost => &["loss cost"],
            Self::LossBudget => &["loss budget"],
            Self::NoiseShare => &["noise share"],
            Self::Bias => &["bias"],
            Self::Uncertain => &["uncertain"],
            Self::Measured => &["measured"],
            Self::Recorded => &["recorded"],
            Self::Modelled => &["modelled"],
            Self::Launched => &["launched"],
            Self::Graph => &["graph"],
            Self::Inference => &["inference"],
            _ => &[],
        }
    }

    /// For a tooltip: the title, and what it is.
    pub fn text(self) -> String {
        format!("{}: {}", self.title(), self.about())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::catalogue;

    #[test]
    fn each_term_is_said_once_in_at_most_two_short_sentences() {
        let mut titles: Vec<String> = Term::ALL.iter().map(|term| term.title().to_lowercase()).collect();
        titles.sort();
        let all = titles.len();
        titles.dedup();
        assert_eq!(titles.len(), all, "no two terms have one title");
        for term in Term::ALL {
            let about = term.about();
            assert!(about.ends_with('.') && !about.contains('\n'), "{term:?}");
            let sentences: Vec<&str> = about.split(". ").collect();
            assert!(sentences.len() <= 2, "{term:?}: {about}");
            for sentence in sentences {
                assert!(sentence.split_whitespace().count() <= 26, "{term:?}: {sentence}");
            }
        }
    }

    #[test]
    fn every_metric_verdict_and_source_has_its_own_term() {
        let metrics: Vec<Term> = Metric::ALL.map(Term::of_metric).to_vec();
        let verdicts: Vec<Term> = Quadrant::BEST_FIRST.map(Term::of_verdict).to_vec();
        let gemms: Vec<Term> = Gemm::ALL.map(Term::of_gemm).to_vec();
        let mods: Vec<Term> = ModKind::ALL.map(Term::of_mod).to_vec();
        let runtimes: Vec<Term> = Runtime::ALL.map(Term::of_runtime).to_vec();
        let sources = [LatencySource::Measured, LatencySource::Recorded, LatencySource::Modelled, LatencySource::None];
        let mut all: Vec<Term> = [metrics, verdicts, gemms, mods, runtimes].concat();
        all.extend(sources.map(Term::of_source));
        let many = all.len();
        all.sort();
        all.dedup();
        assert_eq!(all.len(), many);
        for metric in Metric::ALL {
            // The heading begins as the views write it.
            let label = metric.label().trim_end_matches(" (dB)");
            assert!(Term::of_metric(metric).title().starts_with(label), "{label}");
        }
    }

    #[test]
    fn a_kernels_name_is_explained_by_its_parts() {
        let of = |name: &str| Term::of_kernel(name);
        assert_eq!(of("cublaslt/fp8-rowwise+fast"), [Term::Rowwise, Term::FastSums]);
        assert_eq!(of("cublaslt/fp8-rowwise"), [Term::Rowwise, Term::Promoted]);
        assert_eq!(of("cublaslt/bf16"), []);
        let scales = [Term::Tensorwise, Term::Rowwise, Term::Blockwise, Term::Delayed, Term::StaticScale];
        for kernel in catalogue().iter().filter(|kernel| !kernel.high_precision()) {
            let terms = of(kernel.name);
            assert!(terms.iter().any(|term| scales.contains(term)), "{}: {terms:?}", kernel.name);
            assert!(terms.contains(&Term::FastSums) || terms.contains(&Term::Promoted), "{}", kernel.name);
        }
    }

    #[test]
    fn a_sentence_names_its_terms() {
        let reason = "the site takes 633 us instead of 787 (measured, launched); Noise share .00168 (.00153 to .00184) <= .01; \
                      scale of dy 2^-12, no step saturates";
        let terms = [Term::StaticScale, Term::Saturation, Term::NoiseShare, Term::Measured, Term::Launched];
        assert_eq!(Term::in_text(reason), terms);
        assert_eq!(Term::in_text("unbiased merely"), []);
        for term in Term::SAID {
            assert!(!term.written().is_empty(), "{term:?}");
            assert!(Term::in_text(term.title()).contains(term), "{term:?}");
        }
    }

    #[test]
    fn the_concepts_have_the_terms_that_they_are_about() {
        let page = include_str!("../../../docs/concepts/README.md").to_lowercase();
        let of_the_page = [
            Term::Site,
            Term::Fprop,
            Term::Kernel,
            Term::Tensorwise,
            Term::Rowwise,
            Term::Blockwise,
            Term::StaticScale,
            Term::Draw,
            Term::Interval,
            Term::Verdict,
            Term::Mere,
            Term::LossCost,
            Term::NoiseShare,
            Term::Bias,
            Term::Policy,
            Term::Override,
            Term::Mod,
            Term::Chain,
        ];
        for term in of_the_page {
            assert!(page.contains(&term.title().to_lowercase()), "{term:?}");
        }
    }
}
