//! Takes how many draws a person asks for at least and at most, gives both: `--max-draws 2` alone is meant as it is said.

use loka_core::probe::ProbeConfig;

/// What only one is given of follows it; two that contradict each other are refused.
pub fn bounds(min: Option<u64>, max: Option<u64>) -> anyhow::Result<(u64, u64)> {
    let usual = ProbeConfig::default();
    if let (Some(min), Some(max)) = (min, max) {
        anyhow::ensure!(min <= max, "--min-draws {min} is above --max-draws {max}");
    }
    let max_draws = max.unwrap_or_else(|| usual.max_draws.max(min.unwrap_or(0)));
    Ok((min.unwrap_or_else(|| usual.min_draws.min(max_draws)), max_draws))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_bound_of_draws_moves_the_other() {
        assert_eq!(bounds(None, None).unwrap(), (16, 64));
        assert_eq!(bounds(None, Some(2)).unwrap(), (2, 2));
        assert_eq!(bounds(Some(100), None).unwrap(), (100, 100));
        assert_eq!(bounds(Some(4), Some(8)).unwrap(), (4, 8));
        assert_eq!(bounds(Some(9), Some(8)).unwrap_err().to_string(), "--min-draws 9 is above --max-draws 8");
    }
}
