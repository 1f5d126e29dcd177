//! Takes the site times of one shape, gives what a site takes by any three kernels that were timed there.

use std::collections::HashMap;

use crate::model::{Gemm, KernelId, ResultRow, Runtime, SiteTime};

/// A sum of differences has the errors of all of them. Of the fastest time that was measured at a site, the least that three
/// kernels are thought to take which were not timed together: in the tables that there are, mixtures gain some percent.
const BELIEVED: f64 = 0.9;

/// By one shape: what a site takes by any three kernels that were timed there.
///
/// Three that were timed together take what was measured. Where three that cast alike were, and differ in how they accumulate alone, it is
/// those, and what each accumulation alone changes. Others: BF16, and for each GEMM what its kernel alone changed, and for two GEMMs that
/// cast alike what they changed together beyond that (a cast that both read); never less than [`BELIEVED`] of the fastest that was
/// measured.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct SiteTable {
    pub bf16_us: f64,
    /// By a kernel that stores codes, against its storing BF16 that the next linear casts.
    pub saved_by_codes_us: Option<f64>,
    /// Their places are their numbers, less 1: 0 is BF16.
    kernels: Vec<KernelId>,
    /// By the numbers of three kernels; NaN where it is not known.
    us: Vec<f64>,
}

/// Kernels by number, in the order of [`Gemm::ALL`].
pub(crate) type Numbers = [usize; 3];

impl SiteTable {
    /// `rows`: of one shape and runtime. `None`: none of them has a time.
    pub(crate) fn new(rows: &[&SiteTime]) -> Option<Self> {
        let timed: Vec<(&SiteTime, (f64, f64))> =
            rows.iter().filter_map(|row| Some((*row, row.medians_us()?))).collect();
        let mut bf16: Vec<f64> = timed.iter().map(|(_, (bf16, _))| *bf16).collect();
        bf16.sort_by(f64::total_cmp);
        // Each row's change is of the BF16 beside it, as a share: clocks differ between runs. What it is a share of is the
        // middle one.
        let bf16_us = *bf16.get(bf16.len() / 2)?;
        let mut kernels: Vec<KernelId> =
            timed.iter().flat_map(|(row, _)| row.kernels.iter().filter(|id| !is_bf16(id)).cloned()).collect();
        kernels.sort();
        kernels.dedup();
        let number = |id: &KernelId| kernels.binary_search(id).map_or(0, |at| at + 1);
        let measured = timed
            .iter()
            .map(|(row, (bf16, us))| ([0, 1, 2].map(|at| number(&row.kernels[at])), (us / bf16 - 1.0) * bf16_us))
            .filter(|(numbers, _)| *numbers != [0; 3])
            .collect();
        let deltas = Deltas::new(measured, &kernels);
        let least = bf16_us + deltas.measured.values().fold(0.0, |least: f64, delta| least.min(*delta));
        let shares = timed.iter().filter_map(|(row, _)| row.share_saved_by_codes());
        let saved_by_codes_us = shares.reduce(f64::max).map(|share| share * bf16_us);
        let all = kernels.len() + 1;
        let time = |numbers| match (deltas.measured.get(&numbers), deltas.expected(numbers)) {
            (Some(measured), _) => bf16_us + measured,
            (None, Some(expected)) => (bf16_us + expected).max(BELIEVED * least),
            (None, None) => f64::NAN,
        };
        let us = (0..all * all * all).map(|at| time([at / all / all, at / all % all, at % all])).collect();
        Some(Self { bf16_us, saved_by_codes_us, kernels, us })
    }

    /// The number of a kernel that was timed alone at that GEMM.
    pub(crate) fn number(&self, gemm: Gemm, id: &KernelId) -> Option<usize> {
        if is_bf16(id) {
            return Some(0);
        }
        let number = self.kernels.binary_search(id).ok()? + 1;
        let mut alone = [0; 3];
        alone[gemm as usize] = number;
        self.us(alone).map(|_| number)
    }

    pub(crate) fn has(&self, gemm: Gemm, id: &KernelId) -> bool {
        self.number(gemm, id).is_some()
    }

    pub(crate) fn us(&self, [fprop, dgrad, wgrad]: Numbers) -> Option<f64> {
        let all = self.kernels.len() + 1;
        self.us.get((fprop * all + dgrad) * all + wgrad).copied().filter(|us| us.is_finite())
    }
}

fn is_bf16(id: &KernelId) -> bool {
    id.recipe() == "bf16"
}

/// What kernels change against BF16.
struct Deltas {
    measured: HashMap<Numbers, f64>,
    /// Those that were measured, by the kinds of their casts, in order.
    by_casts: HashMap<Numbers, Vec<Numbers>>,
    /// By a kernel's number: the kind of its casts. 0 is BF16.
    casts: Vec<usize>,
    /// By a kernel's number.
    accumulates_fast: Vec<bool>,
}

impl Deltas {
    fn new(measured: HashMap<Numbers, f64>, kernels: &[KernelId]) -> Self {
        let first = |id: &KernelId| kernels.iter().position(|other| other.casts() == id.casts()).map_or(0, |at| at + 1);
        let casts: Vec<usize> = std::iter::once(0).chain(kernels.iter().map(first)).collect();
        let mut by_casts: HashMap<Numbers, Vec<Numbers>> = HashMap::new();
        for numbers in measured.keys() {
            by_casts.entry(numbers.map(|number| casts[number])).or_default().push(*numbers);
        }
        by_casts.values_mut().for_each(|all| all.sort_unstable());
        let fast = |id: &KernelId| id.casts() != id.as_str();
        let accumulates_fast = std::iter::once(false).chain(kernels.iter().map(fast)).collect();
        Self { measured, by_casts, casts, accumulates_fast }
    }

    fn alone(&self, numbers: Numbers, at: usize) -> Option<f64> {
        if numbers[at] == 0 { Some(0.0) } else { self.measured.get(&only(&[at], numbers)).copied() }
    }

    /// As measured, or as measured by kernels that cast alike: then what the others alone take longer or shorter comes on top.
    /// `None`: nothing of the kind was measured.
    fn together(&self, numbers: Numbers) -> Option<f64> {
        if let Some(measured) = self.measured.get(&numbers) {
            return Some(*measured);
        }
        let alike = self.by_casts.get(&numbers.map(|number| self.casts[number]))?;
        let differing = |other: Numbers| (0..3).filter(move |at| other[*at] != numbers[*at]);
        let nearest = *alike.iter().min_by_key(|other| differing(**other).count())?;
        let change = |at: usize| {
            let change = self.alone(numbers, at)? - self.alone(nearest, at)?;
            // Fast accumulation is never the slower one: where it seems so, that is noise.
            Some(if self.accumulates_fast[nearest[at]] { change.max(0.0) } else { change.min(0.0) })
        };
        Some(self.measured.get(&nearest)? + differing(nearest).map(change).sum::<Option<f64>>()?)
    }

    /// What [`SiteTable`] says of kernels that were not timed together.
    fn expected(&self, numbers: Numbers) -> Option<f64> {
        if let Some(together) = self.together(numbers) {
            return Some(together);
        }
        let mut sum = (0..3).map(|at| self.alone(numbers, at)).sum::<Option<f64>>()?;
        let casts = numbers.map(|number| self.casts[number]);
        for [a, b] in [[0, 1], [0, 2], [1, 2]].into_iter().filter(|[a, b]| casts[*a] != 0 && casts[*a] == casts[*b]) {
            if let Some(pair) = self.together(only(&[a, b], numbers)) {
                sum += pair - self.alone(numbers, a)? - self.alone(numbers, b)?;
            }
        }
        Some(sum)
    }
}

/// The others BF16.
fn only(kept: &[usize], numbers: Numbers) -> Numbers {
    [0, 1, 2].map(|at| if kept.contains(&at) { numbers[at] } else { 0 })
}

/// How three kernels stand against BF16 at a site whose times are known.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Timed {
    pub bf16_us: f64,
    pub us: f64,
    /// An override was never timed there: its part is modelled.
    pub modelled: bool,
}

impl Timed {
    pub fn saved_us(self) -> f64 {
        self.bf16_us - self.us
    }
}

/// One GEMM of a site whose times are known.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Part {
    pub number: usize,
    /// Of a kernel that was not timed there, what it changes by its own row.
    pub modelled_us: Option<f64>,
    /// Of the site's time in BF16.
    pub share: f64,
    /// It was chosen, so it has to earn its place: not BF16, and not a person's wish.
    pub must_earn: bool,
}

impl SiteTable {
    /// A kernel at one GEMM. `row: None`: BF16.
    pub(crate) fn part(&self, gemm: Gemm, row: Option<&ResultRow>, reference_us: Option<f64>) -> Part {
        let Some(row) = row else { return Part::default() };
        match self.number(gemm, &row.kernel) {
            Some(number) => Part { number, ..Part::default() },
            None => {
                let own = reference_us.and_then(|us| Some(super::sharing::own_us(row, us)? - us));
                Part { modelled_us: Some(own.unwrap_or(0.0)), ..Part::default() }
            }
        }
    }

    /// `None`: never, of parts that are BF16 or were timed.
    pub(crate) fn timed(&self, parts: &[Part; 3]) -> Option<Timed> {
        let us = self.us(parts.map(|part| part.number))?;
        let modelled_us: f64 = parts.iter().filter_map(|part| part.modelled_us).sum();
        let modelled = parts.iter().any(|part| part.modelled_us.is_some());
        Some(Timed { bf16_us: self.bf16_us, us: us + modelled_us, modelled })
    }

    /// Of the parts that must earn their place those that do not: the smallest sets that save the site no more than
    /// the policy asks for of their share of BF16's time, or nothing.
    pub(crate) fn unearned(&self, parts: &[Part; 3], min_speedup: f64) -> [bool; 3] {
        let mut failed = [false; 3];
        let Some(all) = self.timed(parts) else { return parts.map(|part| part.must_earn) };
        let mut smallest = None;
        for set in super::sharing::SUBSETS {
            let within = |at: usize| set >> at & 1 == 1;
            if (0..3).any(|at| within(at) && !parts[at].must_earn) {
                continue;
            }
            if smallest.is_some_and(|size| set.count_ones() > size) {
                break;
            }
            let without = [0, 1, 2].map(|at| if within(at) { Part::default() } else { parts[at] });
            let share: f64 = (0..3).filter(|at| within(*at)).map(|at| parts[at].share).sum();
            let asked = (1.0 - 1.0 / min_speedup).max(0.0) * share * self.bf16_us;
            let earns = self.timed(&without).is_some_and(|without| without.us - all.us > asked);
            if !earns {
                smallest = Some(set.count_ones());
                (0..3).filter(|at| within(*at)).for_each(|at| failed[at] = true);
            }
        }
        failed
    }
}

/// Of a site's time in BF16, each GEMM's: as the baseline's rows have it, in equal parts where one is not known.
/// `runtime`: what runs no backward GEMM has one part.
pub(crate) fn shares(references: [Option<f64>; 3], runtime: Runtime) -> [f64; 3] {
    if runtime == Runtime::Inference {
        return [1.0, 0.0, 0.0];
    }
    match references {
        [Some(fprop), Some(dgrad), Some(wgrad)] => [fprop, dgrad, wgrad].map(|us| us / (fprop + dgrad + wgrad)),
        _ => [1.0 / 3.0; 3],
    }
}
