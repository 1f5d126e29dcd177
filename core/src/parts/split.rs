//! Takes what sites cost, gives ranges of them, one a part, of about the same cost. Ranges, not any sets: joined they are
//! in forward order again, and a range of names is short in a message.

use std::ops::Range;

use crate::model::{Gemm, Site};

/// What a site takes beside its products, in products: reading it, factoring its covariances, many small launches. On the
/// CPU a site of 16 x 16 and one of 64 x 64 take about as long.
const OF_ANY_SITE: u128 = 1 << 22;

/// How long a probe of a site takes, in no unit. Within a factor of two or so: that there are more parts than workers evens
/// out the rest.
pub fn cost(site: &Site) -> u128 {
    let gemms = Gemm::ALL.into_iter().filter(|gemm| site.runs(*gemm)).count() as u128;
    OF_ANY_SITE.saturating_add(gemms.saturating_mul(site.m as u128 * site.k as u128).saturating_mul(site.n as u128))
}

/// The ranges of a probe of `sites`, in forward order: the same on every machine. Those that are not probed cost nothing.
pub fn split_sites(sites: &[Site], is_probed: impl Fn(&Site) -> bool, parts: usize) -> Vec<Range<usize>> {
    let costs: Vec<u128> = sites.iter().map(|site| if is_probed(site) { cost(site) } else { 0 }).collect();
    split(&costs, parts)
}

/// `parts` ranges that follow each other and hold every site once; the dearest is as cheap as ranges allow. Where there
/// are fewer sites than parts the last ranges are empty. `costs`: 0 of a site that nobody probes.
pub fn split(costs: &[u128], parts: usize) -> Vec<Range<usize>> {
    let parts = parts.max(1);
    let most = costs.iter().copied().max().unwrap_or(0);
    let sum = costs.iter().fold(0_u128, |sum, cost| sum.saturating_add(*cost));
    // The least limit under which so many ranges are enough.
    let (mut low, mut high) = (most.max(sum / parts as u128), sum);
    while low < high {
        let limit = low + (high - low) / 2;
        if ranges_needed(costs, limit) <= parts { high = limit } else { low = limit + 1 }
    }
    let mut ranges = Vec::with_capacity(parts);
    let (mut first, mut left) = (0, sum);
    for part in 0..parts {
        let after = parts - part - 1;
        // No more than its share of what is left, so that the last parts are not those that happen to be empty.
        let share = left.div_ceil(after as u128 + 1);
        let (mut end, mut filled) = (first, 0_u128);
        while end < costs.len() {
            let next = filled.saturating_add(costs[end]);
            let is_full = next > high || (filled >= share && costs[end] > 0);
            // What is left must fit into the parts that are left.
            if end > first && is_full && ranges_needed(&costs[end..], high) <= after {
                break;
            }
            // One each, where there are no more sites than parts.
            if end > first && costs.len() - end <= after && costs[end] > 0 {
                break;
            }
            filled = next;
            end += 1;
        }
        if after == 0 {
            end = costs.len();
        }
        left -= filled.min(left);
        ranges.push(first..end);
        first = end;
    }
    ranges
}

/// Ranges that no one of which costs more than `limit`, filled from the first on.
fn ranges_needed(costs: &[u128], limit: u128) -> usize {
    let (mut needed, mut filled) = (usize::from(!costs.is_empty()), 0_u128);
    for cost in costs {
        let next = filled.saturating_add(*cost);
        if next > limit && filled > 0 {
            needed += 1;
            filled = *cost;
        } else {
            filled = next;
        }
    }
    needed
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sums(costs: &[u128], parts: usize) -> Vec<u128> {
        split(costs, parts).into_iter().map(|range| costs[range].iter().sum()).collect()
    }

    /// Every site once, in order, in exactly so many ranges, the dearest no dearer than it must be.
    #[test]
    fn ranges_hold_every_site_once_and_none_is_dearer_than_it_must_be() {
        let mut state = 1_u64;
        let mut next = |below: u64| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 33) % below
        };
        for _ in 0..2000 {
            let costs: Vec<u128> = (0..next(12)).map(|_| u128::from(next(9))).collect();
            let parts = 1 + next(6) as usize;
            let ranges = split(&costs, parts);
            assert_eq!(ranges.len(), parts);
            let mut at = 0;
            for range in &ranges {
                assert_eq!(range.start, at, "{costs:?} {ranges:?}");
                at = range.end;
            }
            assert_eq!(at, costs.len(), "{costs:?} {ranges:?}");
            let dearest = sums(&costs, parts).into_iter().max().unwrap_or(0);
            assert_eq!(dearest, by_trying_all(&costs, parts), "{costs:?} in {parts}: {ranges:?}");
        }
    }

    fn by_trying_all(costs: &[u128], parts: usize) -> u128 {
        if parts == 1 {
            return costs.iter().sum();
        }
        let with_first = |end: usize| costs[..end].iter().sum::<u128>().max(by_trying_all(&costs[end..], parts - 1));
        (0..=costs.len()).map(with_first).min().unwrap_or(0)
    }

    #[test]
    fn fewer_sites_than_parts_are_one_each() {
        assert_eq!(split(&[5, 1, 1], 5), [0..1, 1..2, 2..3, 3..3, 3..3]);
        assert_eq!(split(&[], 2), [0..0, 0..0]);
        assert_eq!(sums(&[1; 100], 7).into_iter().max(), Some(15));
        assert!(sums(&[1; 100], 7).into_iter().all(|sum| sum >= 14), "and none is left empty");
    }

    /// 10,000 sites of layers as models have them, in 160 parts that 8 workers take one after the other: at least
    /// nine tenths of the time every worker has something to do.
    #[test]
    fn eight_workers_are_busy_nine_tenths_of_the_time() {
        let widths = [64_u128, 256, 512, 1024, 2048, 4096];
        let mut state = 7_u64;
        let mut width = || {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            widths[(state >> 40) as usize % widths.len()]
        };
        let costs: Vec<u128> = (0..10_000).map(|_| OF_ANY_SITE + 3 * 4096 * width() * width()).collect();
        let sums = sums(&costs, 160);
        let mut workers = [0_u128; 8];
        for sum in &sums {
            if let Some(least) = workers.iter_mut().min() {
                *least += sum;
            }
        }
        let (total, longest) = (sums.iter().sum::<u128>(), workers.into_iter().max().unwrap_or(1));
        let efficiency = total as f64 / (8.0 * longest as f64);
        assert!(efficiency > 0.95, "{efficiency}");
    }
}
