//! The rows of one site under one set of mods, kept sorted: what a lookup by GEMM and kernel costs is a binary search.

use serde::{Deserialize, Serialize, Serializer};

use super::{Gemm, KernelId, Latency, ResultRow, SiteId};

/// Rows of one site under one set of mods, sorted by GEMM and kernel.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(from = "Vec<ResultRow>")]
pub struct SiteRows {
    rows: Vec<ResultRow>,
    /// The rows' kernels: of two cache lines, where the rows are a hundred and more.
    kernels: Vec<KernelId>,
    /// Where the rows of each GEMM end: found without a look at a row, which is a wait for memory.
    ends: [usize; 3],
}

impl From<Vec<ResultRow>> for SiteRows {
    /// In any order; of rows of the same kernel the last counts.
    fn from(rows: Vec<ResultRow>) -> Self {
        let mut known = Self::default();
        known.take(rows);
        known
    }
}

impl From<SiteRows> for Vec<ResultRow> {
    fn from(rows: SiteRows) -> Self {
        rows.rows
    }
}

impl Serialize for SiteRows {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.rows.serialize(serializer)
    }
}

impl SiteRows {
    pub fn all(&self) -> &[ResultRow] {
        &self.rows
    }

    /// Rows of one GEMM, sorted by kernel.
    pub fn of(&self, gemm: Gemm) -> &[ResultRow] {
        let (from, to) = self.bounds(gemm);
        &self.rows[from..to]
    }

    fn bounds(&self, gemm: Gemm) -> (usize, usize) {
        let at = gemm as usize;
        (if at == 0 { 0 } else { self.ends[at - 1] }, self.ends[at])
    }

    pub fn get(&self, gemm: Gemm, kernel: &KernelId) -> Option<&ResultRow> {
        self.place_of(gemm, kernel).and_then(|at| self.of(gemm).get(at))
    }

    /// The row's place among those of its GEMM.
    pub fn place_of(&self, gemm: Gemm, kernel: &KernelId) -> Option<usize> {
        self.kernels_of(gemm).iter().position(|known| known == kernel)
    }

    /// The kernels of one GEMM's rows, in their order.
    pub fn kernels_of(&self, gemm: Gemm) -> &[KernelId] {
        let (from, to) = self.bounds(gemm);
        &self.kernels[from..to]
    }

    /// Takes rows of this site in any order; gives how many of them were not there.
    pub fn take(&mut self, rows: Vec<ResultRow>) -> usize {
        match self.rows.is_empty() && Self::are_sorted(&rows) {
            true => self.adopt(rows),
            false => rows.into_iter().map(|row| usize::from(self.put(row))).sum(),
        }
    }

    /// Gives a row that is there another latency; `None`: leaves it as it is.
    pub fn set_latency(&mut self, gemm: Gemm, kernel: &KernelId, of: impl FnOnce(&ResultRow) -> Option<Latency>) {
        let (from, _) = self.bounds(gemm);
        if let Some(row) = self.place_of(gemm, kernel).and_then(|at| self.rows.get_mut(from + at))
            && let Some(latency) = of(row)
        {
            row.latency = latency;
        }
    }

    /// One name of a site in memory, not one a row.
    pub fn name_site(&mut self, site: &SiteId) {
        self.rows.iter_mut().for_each(|row| row.site.clone_from(site));
    }

    fn are_sorted(rows: &[ResultRow]) -> bool {
        rows.is_sorted_by(|a, b| (a.gemm, &a.kernel) < (b.gemm, &b.kernel))
    }

    /// Takes sorted rows as its own; gives their number.
    fn adopt(&mut self, mut rows: Vec<ResultRow>) -> usize {
        self.ends = Gemm::ALL.map(|gemm| rows.partition_point(|row| row.gemm <= gemm));
        // Rows are large: what a grown list leaves unused would be a third of all memory.
        rows.shrink_to_fit();
        self.kernels = rows.iter().map(|row| row.kernel.clone()).collect();
        self.rows = rows;
        self.rows.len()
    }

    /// True when it is a row that was not there.
    fn put(&mut self, row: ResultRow) -> bool {
        let (from, _) = self.bounds(row.gemm);
        match self.kernels_of(row.gemm).binary_search(&row.kernel) {
            Ok(at) => {
                self.rows[from + at] = row;
                false
            }
            Err(at) => {
                self.ends[row.gemm as usize..].iter_mut().for_each(|end| *end += 1);
                self.kernels.insert(from + at, row.kernel.clone());
                self.rows.insert(from + at, row);
                true
            }
        }
    }
}
