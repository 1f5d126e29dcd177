//! Which of many tests are found, so that of all that are found at most a share is false (Benjamini and Hochberg, 1995).

/// `p`: of each test; NaN is never found. Where nothing at all is true, something is found with a probability of `share`
/// at most.
pub fn discoveries(p: &[f64], share: f64) -> Vec<bool> {
    // Above the share none can be found: sorting the rest would be for nothing.
    let mut small: Vec<f64> = p.iter().copied().filter(|p| *p <= share).collect();
    small.sort_by(f64::total_cmp);
    let step = share / p.len().max(1) as f64;
    let last = small.iter().enumerate().rev().find(|(rank, p)| **p <= step * (rank + 1) as f64);
    let limit = last.map(|(_, p)| *p);
    p.iter().map(|p| limit.is_some_and(|limit| *p <= limit)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn as_in_the_paper() {
        // Benjamini and Hochberg 1995, section 3.2: fifteen p, at .05 the first four are found.
        let p = [
            0.0001, 0.0004, 0.0019, 0.0095, 0.0201, 0.0278, 0.0298, 0.0344, 0.0459, 0.3240, 0.4262, 0.5719, 0.6528,
            0.7590, 1.0,
        ];
        let found = discoveries(&p, 0.05);
        assert_eq!(found.iter().filter(|found| **found).count(), 4);
        assert!(found[..4].iter().all(|found| *found));
        assert_eq!(discoveries(&[f64::NAN, 0.0], 0.05), [false, true]);
        assert_eq!(discoveries(&[], 0.05), Vec::<bool>::new());
    }

    /// A later one that is small enough takes those before it along.
    #[test]
    fn the_last_that_is_small_enough_counts() {
        assert_eq!(discoveries(&[0.04, 0.04, 0.9], 0.06), [true, true, false]);
    }
}
