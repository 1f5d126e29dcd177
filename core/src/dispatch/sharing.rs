//! Takes what a kernel costs at each of a site's three GEMMs, gives the time of the three together, where
//! an operand that two of them cast alike is cast once.
//!
//! The casts of a GEMM are what its latency has beyond the bare product. They are split over its two
//! operands by their elements. x is read by fprop and wgrad, W by fprop and dgrad, dy by dgrad and wgrad:
//! where both have one scale a tensor, in the same format, the codes are the same and only their layout
//! differs. Such a cast reads the operand for its amax (2 bytes an element), reads it again (2) and writes
//! two layouts (1 + 1), where two casts move 2 x (2 + 2 + 1): 6 bytes for 10. The totals of a plan are so
//! modelled; the ratio itself was measured once (`TWO_LAYOUTS`).
//!
//! A kernel that has the site's tail in its epilogue was timed against BF16 *and* the tail. What it costs here
//! is the GEMM's part ([`own_us`]), so that kernels with and without a tail are compared, and added up, alike.

use crate::model::{Gemm, GemmShape, Granularity, Kernel, OperandCast, ResultRow};

/// What a cast into two layouts takes, over a cast into one: 6 bytes an element against 5. The Triton casts
/// of `python/loka/kernels` on an H200, BF16 6,144 x 2,048: amax 8.3 us, one layout 10.3, both 14.4, so 1.22.
const TWO_LAYOUTS: f64 = 1.2;

/// Every choice of some of three, as bits, the small ones first.
pub(super) const SUBSETS: [u32; 7] = [0b001, 0b010, 0b100, 0b011, 0b101, 0b110, 0b111];

/// Libraries whose kernels read operands that LoKA's own runtime has cast; the others cast for themselves.
const SHARING_LIBRARIES: [&str; 3] = ["cublaslt", "loka", "pytorch"];

/// What a linear's GEMMs read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operand {
    Input,
    Weight,
    Gradient,
}

impl Operand {
    pub const ALL: [Self; 3] = [Self::Input, Self::Weight, Self::Gradient];

    pub fn symbol(self) -> &'static str {
        match self {
            Self::Input => "x",
            Self::Weight => "W",
            Self::Gradient => "dy",
        }
    }

    /// The two GEMMs that read it.
    pub fn readers(self) -> [Gemm; 2] {
        match self {
            Self::Input => [Gemm::Fprop, Gemm::Wgrad],
            Self::Weight => [Gemm::Fprop, Gemm::Dgrad],
            Self::Gradient => [Gemm::Dgrad, Gemm::Wgrad],
        }
    }

    /// (left, right) of a GEMM.
    fn of(gemm: Gemm) -> [Self; 2] {
        match gemm {
            Gemm::Fprop => [Self::Input, Self::Weight],
            Gemm::Dgrad => [Self::Gradient, Self::Weight],
            Gemm::Wgrad => [Self::Gradient, Self::Input],
        }
    }

    fn elements(self, shape: GemmShape) -> f64 {
        let (rows, cols) = match self {
            Self::Input => (shape.m, shape.k),
            Self::Weight => (shape.n, shape.k),
            Self::Gradient => (shape.m, shape.n),
        };
        rows as f64 * cols as f64
    }
}

/// Of the baseline's time, the least that a GEMM takes: a tail in the epilogue may save more than the GEMM
/// takes, and what is left of the GEMM is never nothing.
const LEAST_SHARE: f64 = 0.01;

/// Of a kernel with the tail in its epilogue what the tail takes as a kernel of its own, from the same source;
/// 0 of all others. `None`: it is not known, so neither is what the GEMM takes.
pub fn tail_us(row: &ResultRow) -> Option<f64> {
    // Only kernels with a static scale have a tail: the catalogue need not be asked for the others.
    let has_tail = row.static_scale.is_some() && row.kernel.known().is_some_and(Kernel::has_tail);
    if has_tail { row.latency.tail_us.filter(|us| us.is_finite() && *us >= 0.0) } else { Some(0.0) }
}

/// What a row's GEMM takes in the time of the policy's baseline, which takes `reference_us`, with casts of its
/// own. `None`: no speed-up is known.
pub fn own_us(row: &ResultRow, reference_us: f64) -> Option<f64> {
    let (speedup, tail_us) = (row.speedup().filter(|speedup| *speedup > 0.0)?, tail_us(row)?);
    if tail_us == 0.0 {
        return Some(reference_us / speedup);
    }
    Some(((reference_us + tail_us) / speedup - tail_us).max(LEAST_SHARE * reference_us))
}

/// How much faster than BF16 a row's GEMM is, a tail in its epilogue taken out: the printed speed-up of a kernel
/// without one. `reference_us: None`: by the row's own BF16.
pub fn gemm_speedup(row: &ResultRow, reference_us: Option<f64>) -> Option<f64> {
    let tail_us = tail_us(row)?;
    if tail_us == 0.0 {
        return row.speedup();
    }
    let reference_us = reference_us.or_else(|| row.latency.baseline_us.map(|us| us - tail_us))?;
    own_us(row, reference_us).filter(|_| reference_us > 0.0).map(|us| reference_us / us)
}

/// One kernel at one GEMM, in the time of the policy's baseline. The default counts for nothing: a
/// GEMM without a latency.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Cost {
    /// With casts of its own.
    pub us: f64,
    /// What the kernel does beside the GEMM: its printed speed-up is of both.
    tail_us: f64,
    /// By operand: a cast that another GEMM could use, and its part of `us`.
    casts: [Option<(OperandCast, f64)>; 3],
}

impl Cost {
    /// A kernel that shares nothing.
    pub fn alone(us: f64) -> Self {
        Self { us, ..Self::default() }
    }

    /// `None`: no speed-up is known. `reference_us`: the baseline's time, which the row's own speed-up
    /// is applied to, as in all totals.
    pub fn of(row: &ResultRow, reference_us: f64) -> Option<Self> {
        let us = own_us(row, reference_us)?;
        Some(Self { us, tail_us: tail_us(row)?, casts: shareable(row, us).unwrap_or_default() })
    }

    /// The same where that much of it is not needed.
    pub fn less(self, saved_us: f64) -> Self {
        Self { us: self.us - saved_us, ..self }
    }

    pub fn can_share(&self) -> bool {
        self.casts.iter().any(Option::is_some)
    }
}

/// By operand, the casts with one scale a tensor.
fn shareable(row: &ResultRow, us: f64) -> Option<[Option<(OperandCast, f64)>; 3]> {
    if !SHARING_LIBRARIES.contains(&row.kernel.library()) {
        return None;
    }
    let (latency, gemm_us) = (row.latency.latency_us?, row.latency.gemm_us?);
    // Never more than there is beyond the bare GEMM: launches overlap, and models of parts need not add up.
    let beyond = (latency - gemm_us).max(0.0);
    let of_latency = row.latency.cast_us.map_or(beyond, |casts| casts.clamp(0.0, beyond)) / latency;
    let numerics = row.kernel.known()?.numerics(row.gemm);
    let operands = Operand::of(row.gemm);
    let read = [numerics.a, numerics.b];
    let elements = |at: usize| {
        if read[at].granularity == Granularity::None { 0.0 } else { operands[at].elements(row.shape) }
    };
    let all = elements(0) + elements(1);
    let mut casts = [None; 3];
    for (at, operand) in operands.into_iter().enumerate() {
        if read[at].granularity == Granularity::Tensor && of_latency > 0.0 && all > 0.0 {
            casts[operand as usize] = Some((read[at], us * of_latency * elements(at) / all));
        }
    }
    Some(casts)
}

/// What one cast of an operand for both of its readers saves over two; 0 when their casts differ.
/// `costs`: in the order of [`Gemm::ALL`].
pub fn saved_us(costs: &[Cost; 3], operand: Operand) -> f64 {
    let [a, b] = operand.readers().map(|gemm| costs[gemm as usize].casts[operand as usize]);
    match (a, b) {
        (Some((format, a)), Some((same, b))) if format == same => (a + b - TWO_LAYOUTS * a.max(b)).max(0.0),
        _ => 0.0,
    }
}

/// The three GEMMs of a site, one after the other.
pub fn site_us(costs: &[Cost; 3]) -> f64 {
    let saved: f64 = Operand::ALL.into_iter().map(|operand| saved_us(costs, operand)).sum();
    costs.iter().map(|cost| cost.us).sum::<f64>() - saved
}

/// What a GEMM shares, and with which.
pub fn partners(costs: &[Cost; 3], gemm: Gemm) -> Vec<(Operand, Gemm)> {
    let shared = Operand::of(gemm).into_iter().filter(|operand| saved_us(costs, *operand) > 0.0);
    shared.flat_map(|operand| operand.readers().map(|reader| (operand, reader))).filter(|(_, r)| *r != gemm).collect()
}

/// One cast that two GEMMs of a site read.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SharedCast {
    pub operand: Operand,
    pub gemms: [Gemm; 2],
    /// Against a cast for each, in the time of the policy's baseline; modelled.
    pub saved_us: f64,
}

/// The casts that a site's kernels share, in the order of [`Gemm::ALL`]. `rows: None`: the baseline, or no
/// row. `references`: the baseline's times.
pub fn shared_casts(rows: [Option<&ResultRow>; 3], references: [Option<f64>; 3]) -> Vec<SharedCast> {
    let costs = [0, 1, 2].map(|at| rows[at].zip(references[at]).and_then(|(row, us)| Cost::of(row, us)));
    let costs = costs.map(Option::unwrap_or_default);
    let casts = Operand::ALL.map(|operand| SharedCast {
        operand,
        gemms: operand.readers(),
        saved_us: saved_us(&costs, operand),
    });
    casts.into_iter().filter(|cast| cast.saved_us > 0.0).collect()
}

/// How much longer the site takes when these GEMMs go back to the baseline. `references`: the
/// baseline's times of those that go back.
fn gain_us(costs: &[Cost; 3], references: [Option<f64>; 3]) -> f64 {
    let mut back = *costs;
    for (cost, reference) in back.iter_mut().zip(references) {
        if let Some(us) = reference {
            *cost = Cost::alone(us);
        }
    }
    site_us(&back) - site_us(costs)
}

/// The speed-up of one GEMM with what sharing saves credited to it, the other two as they are: its own
/// when it shares nothing.
pub fn speedup_in_place(costs: &[Cost; 3], gemm: Gemm, reference_us: f64) -> f64 {
    let saved: f64 = Operand::of(gemm).into_iter().map(|operand| saved_us(costs, operand)).sum();
    let Cost { us, tail_us, .. } = costs[gemm as usize];
    (reference_us + tail_us) / (us + tail_us - saved)
}

/// Of the GEMMs that alone are too slow, those that sharing does not make worth it. `slow`: the baseline's
/// times of these.
///
/// A kernel alone is fast when it saves more than `(1 - 1/min_speedup)` of the baseline's time. Here any
/// of the slow ones *together* must save the site that much when they stay: one at a time is not
/// enough, since two that share a cast would both claim all of what it saves. Of a kernel with a tail the
/// policy asks for that much of the GEMM and the tail.
pub fn unearned(costs: &[Cost; 3], slow: [Option<f64>; 3], min_speedup: f64) -> [bool; 3] {
    let mut failed = [false; 3];
    let asked = |references: [Option<f64>; 3]| {
        let timed = references.iter().zip(costs).filter_map(|(reference, cost)| Some((*reference)? + cost.tail_us));
        (1.0 - 1.0 / min_speedup) * timed.sum::<f64>()
    };
    let mut smallest = None;
    for set in SUBSETS.into_iter().filter(|set| (0..3).all(|at| set >> at & 1 == 0 || slow[at].is_some())) {
        // The smallest that fail are to blame; larger ones fail with them.
        if smallest.is_some_and(|size| set.count_ones() > size) {
            break;
        }
        let references = [0, 1, 2].map(|at| slow[at].filter(|_| set >> at & 1 == 1));
        let gain = gain_us(costs, references);
        if gain.is_nan() || gain <= asked(references) {
            smallest = Some(set.count_ones());
            (0..3).filter(|at| set >> at & 1 == 1).for_each(|at| failed[at] = true);
        }
    }
    failed
}

#[cfg(test)]
mod tests;
