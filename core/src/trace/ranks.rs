//! Takes the largest values of each rank of a run, gives which ranks stand out: a maximum over all of them hides whose it is.

/// Octaves from a rank's amax downwards, of which the share of its values is kept.
pub const TOP_OCTAVES: usize = 8;

/// A rank whose amax is more than so many times that of the median rank stands out.
pub const STANDS_OUT: f64 = 4.0;

/// Of fewer ranks none can be told from the others.
const LEAST_RANKS: usize = 3;

/// Bins of a histogram of magnitudes: that of the smallest octave, -40, and that of the largest, 39.
const BINS: std::ops::RangeInclusive<i64> = 1..=80;
const SMALLEST: i64 = -40;

/// One operand: a value and a row for each of [`RankExtremes::ranks`].
#[derive(Clone, Debug, Default, PartialEq)]
pub struct OperandExtremes {
    /// NaN: it is not known of that rank.
    pub amax: Vec<f32>,
    /// `[ranks, TOP_OCTAVES]`: the share of the rank's values in the octave of its amax, and in each of those below.
    pub top: Vec<f32>,
}

/// Of one site, x and dy by rank. In order of ranks, no rank twice.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct RankExtremes {
    pub ranks: Vec<u64>,
    pub input: OperandExtremes,
    /// `None`: no rank has any.
    pub grad_output: Option<OperandExtremes>,
}

/// A rank whose values reach far beyond those of the median rank.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct StandsOut {
    pub rank: u64,
    /// Its amax over that of the median rank.
    pub ratio: f64,
    /// The share of its values in octaves above that of the median rank's amax: what a scale that fits the others saturates,
    /// to a factor of two of the bound. `None`: the rank has no histogram.
    pub beyond: Option<f64>,
}

/// What one rank knows of one operand: its amax, and its histogram as a trace has it.
pub type OfRank<'a> = Option<(f64, Option<&'a [u64]>)>;

impl OperandExtremes {
    fn push(&mut self, of: OfRank<'_>) {
        let Some((amax, hist)) = of else {
            self.amax.push(f32::NAN);
            self.top.extend([f32::NAN; TOP_OCTAVES]);
            return;
        };
        self.amax.push(amax as f32);
        self.top.extend(hist.map_or([f32::NAN; TOP_OCTAVES], |hist| top_octaves(amax, hist)));
    }

    fn row(&self, at: usize) -> &[f32] {
        self.top.get(at * TOP_OCTAVES..(at + 1) * TOP_OCTAVES).unwrap_or_default()
    }

    /// Of the ranks whose amax is known.
    pub fn median(&self) -> Option<f64> {
        let mut known: Vec<f64> = self.amax.iter().map(|amax| f64::from(*amax)).filter(|amax| !amax.is_nan()).collect();
        known.sort_by(f64::total_cmp);
        let middle = known.len() / 2;
        let upper = *known.get(middle)?;
        // Of an even number the mean of the middle two.
        Some(if known.len().is_multiple_of(2) { 0.5 * (known[middle - 1] + upper) } else { upper })
    }

    /// The ranks that stand out, the farthest first.
    pub fn stand_out(&self, ranks: &[u64]) -> Vec<StandsOut> {
        let known = self.amax.iter().filter(|amax| !amax.is_nan()).count();
        let Some(median) = self.median().filter(|median| *median > 0.0 && known >= LEAST_RANKS) else {
            return Vec::new();
        };
        let of = |(at, rank): (usize, &u64)| {
            let amax = f64::from(*self.amax.get(at)?);
            let ratio = amax / median;
            let is_far = ratio > STANDS_OUT;
            is_far.then(|| StandsOut { rank: *rank, ratio, beyond: self.beyond(at, amax, median) })
        };
        let mut found: Vec<StandsOut> = ranks.iter().enumerate().filter_map(of).collect();
        found.sort_by(|a, b| b.ratio.total_cmp(&a.ratio).then(a.rank.cmp(&b.rank)));
        found
    }

    fn beyond(&self, at: usize, amax: f64, median: f64) -> Option<f64> {
        let octaves = usize::try_from(octave(amax) - octave(median)).unwrap_or(0);
        let share: f64 = self.row(at).iter().take(octaves).map(|share| f64::from(*share)).sum();
        (!share.is_nan()).then_some(share)
    }
}

/// Of a magnitude as histograms count it.
fn octave(magnitude: f64) -> i64 {
    let (smallest, largest) = (SMALLEST, SMALLEST + BINS.end() - BINS.start());
    // Beyond both ends: those of zero and of infinity.
    (magnitude.log2().floor() as i64).clamp(smallest, largest)
}

fn top_octaves(amax: f64, hist: &[u64]) -> [f32; TOP_OCTAVES] {
    // What is not finite says nothing of magnitudes.
    let total: u64 = hist.iter().take(*BINS.end() as usize + 1).fold(0, |sum, count| sum.saturating_add(*count));
    let bin = octave(amax) - SMALLEST + BINS.start();
    std::array::from_fn(|below| {
        let bin = Some(bin - below as i64).filter(|bin| BINS.contains(bin)).and_then(|bin| usize::try_from(bin).ok());
        let count = bin.and_then(|bin| hist.get(bin).copied()).unwrap_or(0);
        if total == 0 { 0.0 } else { (count as f64 / total as f64) as f32 }
    })
}

impl RankExtremes {
    /// Of one rank. `None`: it knows of neither operand.
    pub fn of_rank(rank: u64, input: OfRank<'_>, grad_output: OfRank<'_>) -> Option<Self> {
        input.or(grad_output)?;
        let mut found = Self { ranks: vec![rank], ..Self::default() };
        found.input.push(input);
        if grad_output.is_some() {
            let mut operand = OperandExtremes::default();
            operand.push(grad_output);
            found.grad_output = Some(operand);
        }
        Some(found)
    }

    /// All of them by rank; of a rank that is there twice the first counts. `None`: these are fewer than two ranks.
    pub fn joined(all: &[Self]) -> Option<Self> {
        let mut places: Vec<(u64, &Self, usize)> = Vec::new();
        for of in all {
            places.extend(of.ranks.iter().enumerate().map(|(at, rank)| (*rank, of, at)));
        }
        places.sort_by_key(|(rank, ..)| *rank);
        places.dedup_by_key(|(rank, ..)| *rank);
        if places.len() < 2 {
            return None;
        }
        let gathered = |operand: &dyn Fn(&Self) -> Option<&OperandExtremes>| {
            let mut found = OperandExtremes::default();
            for (_, of, at) in &places {
                let known = operand(of).and_then(|of| Some((of.amax.get(*at)?, of.row(*at))));
                let Some((amax, row)) = known else {
                    found.push(None);
                    continue;
                };
                found.amax.push(*amax);
                found.top.extend(row);
            }
            found
        };
        let has_grads = places.iter().any(|(_, of, _)| of.grad_output.is_some());
        Some(Self {
            ranks: places.iter().map(|(rank, ..)| *rank).collect(),
            input: gathered(&|of| Some(&of.input)),
            grad_output: has_grads.then(|| gathered(&|of| of.grad_output.as_ref())),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `(octave, count)` of values.
    fn hist(counts: &[(i64, u64)]) -> Vec<u64> {
        let mut hist = vec![0; 82];
        counts.iter().for_each(|(octave, count)| hist[usize::try_from(octave - SMALLEST + 1).unwrap()] = *count);
        hist
    }

    fn of_rank(rank: u64, amax: f64, hist: &[u64]) -> RankExtremes {
        RankExtremes::of_rank(rank, Some((amax, Some(hist))), None).unwrap()
    }

    #[test]
    fn the_rank_that_reaches_beyond_the_others_is_named_with_what_it_loses() {
        let plain = hist(&[(1, 10), (0, 990)]);
        // Its amax is 21: the octave of 16. Octaves 4, 3 and 2 are above that of the others' 2.5.
        let wild = hist(&[(4, 3), (3, 2), (2, 5), (1, 90), (0, 900)]);
        let all: Vec<_> =
            (0..5).map(|rank| if rank == 3 { of_rank(3, 21.0, &wild) } else { of_rank(rank, 2.5, &plain) }).collect();
        let joined = RankExtremes::joined(&all).unwrap();
        let found = joined.input.stand_out(&joined.ranks);
        assert_eq!(found.len(), 1);
        assert_eq!((found[0].rank, found[0].ratio), (3, 21.0 / 2.5));
        assert!((found[0].beyond.unwrap() - 10.0 / 1000.0).abs() < 1e-7, "{found:?}");
        // Four times is not more than four times; and of two ranks there is no typical one.
        let four =
            RankExtremes::joined(&[of_rank(0, 1.0, &plain), of_rank(1, 1.0, &plain), of_rank(2, 4.0, &wild)]).unwrap();
        assert!(four.input.stand_out(&four.ranks).is_empty());
        let two = RankExtremes::joined(&[of_rank(0, 1.0, &plain), of_rank(1, 100.0, &wild)]).unwrap();
        assert!(two.input.stand_out(&two.ranks).is_empty());
    }

    /// In one go, in steps, in any order: a rank's numbers are its own.
    #[test]
    fn joining_in_steps_is_joining_at_once() {
        let all: Vec<_> = (0..6).map(|rank| of_rank(rank, 1.0 + rank as f64, &hist(&[(0, 7), (-3, rank)]))).collect();
        let at_once = RankExtremes::joined(&all).unwrap();
        let [odd, even] = [1, 0].map(|odd| {
            let half: Vec<_> = all.iter().filter(|of| of.ranks[0] % 2 == odd).cloned().collect();
            RankExtremes::joined(&half).unwrap()
        });
        assert_eq!(RankExtremes::joined(&[odd, even]), Some(at_once.clone()));
        assert_eq!((at_once.ranks.len(), at_once.input.amax[5], at_once.input.row(5)[3]), (6, 6.0, 0.0));
        assert_eq!(RankExtremes::joined(&all[..1]), None);
        // Of a rank that is there twice the first counts.
        let twice = RankExtremes::joined(&[all[0].clone(), all[1].clone(), of_rank(1, 99.0, &[])]).unwrap();
        assert_eq!(twice.input.amax, [1.0, 2.0]);
    }

    #[test]
    fn what_a_rank_does_not_know_is_not_made_up() {
        let nothing = RankExtremes::of_rank(4, None, None);
        assert_eq!(nothing, None);
        let amax_alone = RankExtremes::of_rank(2, Some((50.0, None)), None).unwrap();
        let with_grads = |rank| RankExtremes::of_rank(rank, Some((1.0, None)), Some((0.0, None))).unwrap();
        let joined = RankExtremes::joined(&[with_grads(0), with_grads(1), amax_alone]).unwrap();
        let found = joined.input.stand_out(&joined.ranks);
        assert_eq!(found, [StandsOut { rank: 2, ratio: 50.0, beyond: None }]);
        let grads = joined.grad_output.unwrap();
        assert!(grads.amax[2].is_nan() && grads.median() == Some(0.0));
        assert!(grads.stand_out(&joined.ranks).is_empty(), "all zero: nothing is so many times nothing");
    }

    /// Ends of the histogram: zeros, the largest octave, values that are not finite.
    #[test]
    fn octaves_beyond_a_histograms_ends_are_clamped() {
        assert_eq!([octave(0.0), octave(1e-30), octave(1.0), octave(f64::INFINITY)], [-40, -40, 0, 39]);
        let mut ends = hist(&[(39, 1), (32, 1)]);
        (ends[0], ends[81]) = (2, 1000);
        assert_eq!(top_octaves(1e30, &ends), [0.25, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.25]);
        assert_eq!(top_octaves(0.0, &hist(&[])), [0.0; TOP_OCTAVES]);
        assert_eq!(top_octaves(1.0, &[1, 2]), [0.0; TOP_OCTAVES], "a histogram that is cut short");
    }
}
