//! Takes the largest values of each rank, gives what is said of those that stand out.

use serde::{Deserialize, Serialize};

use crate::{
    format::short,
    trace::{OperandExtremes, STANDS_OUT},
};

/// Of one operand of a trace that several ranks recorded.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ByRank {
    pub num_ranks: usize,
    /// Rank, its amax over the median rank's, and the share of its values beyond that of the median rank, the farthest first.
    pub apart: Vec<(u64, f64, Option<f64>)>,
}

/// Ranks that are named; of more, a count.
const NAMED: usize = 3;

impl ByRank {
    pub(super) fn of(ranks: &[u64], extremes: &OperandExtremes) -> Self {
        let apart = extremes.stand_out(ranks).into_iter().map(|of| (of.rank, of.ratio, of.beyond)).collect();
        Self { num_ranks: ranks.len(), apart }
    }

    /// One line.
    pub fn sentence(&self) -> String {
        let num_ranks = self.num_ranks;
        if self.apart.is_empty() {
            return format!("No rank of {num_ranks} has an amax of more than {STANDS_OUT} times the median rank's");
        }
        let one = |(rank, ratio, beyond): &(u64, f64, Option<f64>)| {
            let beyond =
                beyond.map_or(String::new(), |share| format!(", {} % of its values beyond it", short(100.0 * share)));
            format!("rank {rank}: {} times{beyond}", short(*ratio))
        };
        let named: Vec<String> = self.apart.iter().take(NAMED).map(one).collect();
        let more = self.apart.len().saturating_sub(NAMED);
        let more = if more > 0 { format!("; {more} more") } else { String::new() };
        format!("The median rank's amax is exceeded by {}{more} (of {num_ranks} ranks)", named.join("; "))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_names_the_farthest_ranks() {
        let mut by_rank = ByRank { num_ranks: 8, apart: Vec::new() };
        assert_eq!(by_rank.sentence(), "No rank of 8 has an amax of more than 4 times the median rank's");
        by_rank.apart = vec![(3, 21.0, Some(0.0105)), (7, 4.5, None)];
        assert_eq!(
            by_rank.sentence(),
            "The median rank's amax is exceeded by rank 3: 21 times, 1.05 % of its values beyond it; rank 7: 4.5 times (of 8 ranks)"
        );
        by_rank.apart.extend([(1, 4.2, Some(0.0)), (2, 4.1, None)]);
        assert!(by_rank.sentence().ends_with("; rank 1: 4.2 times, 0 % of its values beyond it; 1 more (of 8 ranks)"));
    }
}
