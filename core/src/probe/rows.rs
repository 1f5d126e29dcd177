//! A trace at another batch. Takes sites and how many rows a step has; gives the same sites with m as it would be:
//! statistics are of rows, and do not depend on how many there are.

use std::collections::BTreeMap;

use crate::{
    model::{Site, SiteId},
    trace::{SiteStats, Trace},
};

use super::SiteSource;

/// cuBLASLt counts rows in 32 bits.
const MOST_ROWS: usize = i32::MAX as usize;

/// Why a model has no such batch. The caller adds the file's name.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RowsError {
    #[error("there are no sites whose rows could be changed")]
    NoSites,
    #[error("{rows} rows instead of {batch} would be no whole number at {site}, which has {m}")]
    NotWhole { site: SiteId, m: usize, rows: usize, batch: usize },
    #[error("{rows} rows instead of {batch} would be more than {MOST_ROWS} at {site}, which has {m}")]
    TooMany { site: SiteId, m: usize, rows: usize, batch: usize },
}

/// Rows of a step: the m that most sites have, of two as common the smaller: a site has more rows than examples where
/// it reads several tokens of each.
pub fn batch_of(sites: &[Site]) -> Option<usize> {
    let mut counts = BTreeMap::<usize, usize>::new();
    sites.iter().for_each(|site| *counts.entry(site.m).or_default() += 1);
    // The last of the largest counts: from the largest m to the smallest.
    counts.into_iter().rev().max_by_key(|(_, count)| *count).map(|(m, _)| m)
}

/// The sites of a step of `rows` rows: those of the batch have as many, all others as many times more as before.
pub fn at_rows(sites: &[Site], rows: usize) -> Result<Vec<Site>, RowsError> {
    let batch = batch_of(sites).ok_or(RowsError::NoSites)?;
    let scaled = |site: &Site| {
        let (id, m) = (&site.id, site.m);
        let too_many = || RowsError::TooMany { site: id.clone(), m, rows, batch };
        let product = m.checked_mul(rows).ok_or_else(too_many)?;
        if batch == 0 || !product.is_multiple_of(batch) || product == 0 {
            return Err(RowsError::NotWhole { site: id.clone(), m, rows, batch });
        }
        let m = Some(product / batch).filter(|m| *m <= MOST_ROWS).ok_or_else(too_many)?;
        let mut site = Site { m, ..site.clone() };
        site.scale_examples(rows as f64 / batch as f64);
        Ok(site)
    };
    sites.iter().map(scaled).collect()
}

/// A trace as the source of sites at another batch.
#[derive(Clone, Debug)]
pub struct AtRows<'a> {
    trace: &'a Trace,
    sites: Vec<Site>,
}

impl<'a> AtRows<'a> {
    /// `None`: as it was recorded.
    pub fn new(trace: &'a Trace, rows: Option<usize>) -> Result<Self, RowsError> {
        let recorded = &trace.manifest().sites;
        let sites = rows.map_or_else(|| Ok(recorded.clone()), |rows| at_rows(recorded, rows))?;
        Ok(Self { trace, sites })
    }
}

impl SiteSource for AtRows<'_> {
    fn sites(&self) -> Vec<Site> {
        self.sites.clone()
    }

    fn quantile_probs(&self) -> Vec<f64> {
        self.trace.quantile_probs()
    }

    fn loss(&self) -> f64 {
        self.trace.loss()
    }

    fn loss_weight(&self) -> f64 {
        self.trace.loss_weight()
    }

    fn stats(&self, id: &SiteId) -> Result<SiteStats, String> {
        let mut stats = self.trace.stats(id)?;
        if let Some(site) = self.sites.iter().find(|site| site.id == *id) {
            // What was recorded step by step is of that batch.
            if site.m != stats.site.m {
                stats.series.clear();
            }
            stats.site.clone_from(site);
        }
        Ok(stats)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use super::*;

    fn sites(m: &[usize]) -> Vec<Site> {
        let site = |(at, m): (usize, &usize)| {
            serde_json::from_str(&format!(r#"{{"id":"s{at}","m":{m},"k":64,"n":32,"dtype":"f32"}}"#)).unwrap()
        };
        m.iter().enumerate().map(site).collect()
    }

    #[test]
    fn a_step_has_as_many_times_more_examples() {
        let mut recorded = sites(&[8192, 81_920]);
        recorded[1].extra.insert("examples".to_owned(), 8192.into());
        let examples = |sites: &[Site]| sites.iter().map(Site::examples).collect::<Vec<_>>();
        assert_eq!(examples(&at_rows(&recorded, 65_536).unwrap()), [65_536, 65_536]);
        assert_eq!(at_rows(&recorded[..1], 64).unwrap()[0].extra.len(), 0, "what was not said stays so");
    }

    #[test]
    fn tokens_of_an_example_stay_as_many() {
        let m = |m: &[usize], rows| -> Vec<usize> {
            at_rows(&sites(m), rows).unwrap().into_iter().map(|site| site.m).collect()
        };
        assert_eq!(m(&[8192, 8192, 81_920], 65_536), [65_536, 65_536, 655_360]);
        assert_eq!(m(&[8192, 8192, 4096], 1000), [1000, 1000, 500]);
        assert_eq!(batch_of(&sites(&[64, 16, 64, 16])), Some(16), "the other is of four tokens");
        assert_eq!(batch_of(&[]), None);
    }

    #[test]
    fn what_is_no_batch_is_refused() {
        let refusal = |m: &[usize], rows| at_rows(&sites(m), rows).unwrap_err().to_string();
        let half = "3 rows instead of 4 would be no whole number at s2, which has 2";
        assert_eq!(refusal(&[4, 4, 2], 3), half);
        let many = "1000000000 rows instead of 4 would be more than 2147483647 at s2, which has 40";
        assert_eq!(refusal(&[4, 4, 40], 1_000_000_000), many);
        assert!(refusal(&[4, 4], usize::MAX).contains("would be more than"));
        assert!(refusal(&[4, 4], 0).contains("no whole number"));
        assert_eq!(refusal(&[], 4), "there are no sites whose rows could be changed");
    }
}
