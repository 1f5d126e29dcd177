//! A results file as a session takes it: its rows put together by site, off the thread that draws.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::{ResultRow, Results, ResultsMeta, SiteRows};

/// Results of which rows that lie together and belong together are one piece, which a session shares as it is.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ResultsBySite {
    pub meta: ResultsMeta,
    /// Each of one site under one set of mods from one engine, and none of them empty; in any order. There may be several
    /// of the same.
    pub sites: Vec<Arc<SiteRows>>,
}

/// Whether both are of one site under one set of mods from one engine.
fn belong_together(a: &ResultRow, b: &ResultRow) -> bool {
    a.site == b.site && a.mods == b.mods && a.engine == b.engine && a.device == b.device
}

/// Neighbours that belong together, one piece after the other.
pub fn together(rows: Vec<ResultRow>) -> impl Iterator<Item = Arc<SiteRows>> {
    let (mut rows, mut usual) = (rows.into_iter().peekable(), 1);
    std::iter::from_fn(move || {
        let mut together = Vec::with_capacity(usual);
        together.push(rows.next()?);
        while let Some(row) = rows.next_if(|row| belong_together(&together[0], row)) {
            together.push(row);
        }
        usual = together.len();
        Some(Arc::new(together.into()))
    })
}

impl From<Results> for ResultsBySite {
    fn from(results: Results) -> Self {
        Self { meta: results.meta, sites: together(results.rows).collect() }
    }
}

impl ResultsBySite {
    pub fn num_rows(&self) -> usize {
        self.sites.iter().map(|rows| rows.all().len()).sum()
    }
}
