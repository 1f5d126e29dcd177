//! Takes a snapshot, gives where low precision stands at every GEMM of every site, library by library, and the
//! numbers that sites are sorted by. Verdicts and filters read this.

use crate::{
    dispatch::JudgedRows,
    model::{Gemm, Quadrant, ResultRow, Safety, catalogue},
    views::Snapshot,
};

use super::changed::Changed;

/// The best that low precision offers one GEMM, the worst first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ReviewStanding {
    /// Unsafe, and not fast or nobody knows how fast.
    UnsafeSlow,
    UnsafeFast,
    Uncertain,
    /// Safe, and not fast or nobody knows how fast.
    Safe,
    SafeFast,
}

impl ReviewStanding {
    fn of(safety: Safety, quadrant: Quadrant) -> Self {
        match (quadrant, safety) {
            (Quadrant::SafeFast, _) => Self::SafeFast,
            (_, Safety::Safe) => Self::Safe,
            (_, Safety::Uncertain) => Self::Uncertain,
            (Quadrant::UnsafeFast, _) => Self::UnsafeFast,
            (_, Safety::Unsafe) => Self::UnsafeSlow,
        }
    }

    pub fn is_unsafe(self) -> bool {
        matches!(self, Self::UnsafeSlow | Self::UnsafeFast)
    }

    /// Its shape and word.
    pub fn quadrant(self) -> Quadrant {
        match self {
            Self::UnsafeSlow => Quadrant::UnsafeSlow,
            Self::UnsafeFast => Quadrant::UnsafeFast,
            Self::Uncertain => Quadrant::Uncertain,
            Self::Safe => Quadrant::SafeSlow,
            Self::SafeFast => Quadrant::SafeFast,
        }
    }
}

/// What a site is sorted by; NaN where it is not known.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SiteRank {
    /// The policy's metric of the best low-precision kernel at the worst GEMM; of decibels the negative, so
    /// that larger is worse throughout.
    pub error: f32,
    /// The best speed-up of a safe low-precision kernel at any GEMM.
    pub gain: f32,
    /// Of the gentlest low-precision kernel at fprop, in units of the loss.
    pub loss_cost: f32,
}

impl Default for SiteRank {
    fn default() -> Self {
        Self { error: f32::NAN, gain: f32::NAN, loss_cost: f32::NAN }
    }
}

/// By site, GEMM and library: the best of the library's low-precision kernels.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Standings {
    /// Those that have a low-precision kernel, in catalogue order.
    pub libraries: Vec<String>,
    /// `[sites][GEMMs][libraries]`.
    pub(super) table: Vec<Option<ReviewStanding>>,
    /// By site.
    pub ranks: Vec<SiteRank>,
    /// By site: a bit a GEMM that has rows in low precision, none of which could run.
    pub(super) unsupported: Vec<u8>,
}

impl Standings {
    /// `last`: of the same rows, and at which sites they are judged otherwise since.
    pub(super) fn of((snapshot, judged): (&Snapshot, &JudgedRows), last: Option<(&Self, &Changed)>) -> Self {
        let mut libraries: Vec<String> = Vec::new();
        // By the number of a kernel in low precision: its library's.
        let mut numbers = Vec::with_capacity(catalogue().len());
        for kernel in catalogue() {
            let id = kernel.id();
            if !kernel.high_precision() && !libraries.iter().any(|of| of == id.library()) {
                libraries.push(id.library().to_owned());
            }
            numbers.push(libraries.iter().position(|of| of == id.library()));
        }
        if let Some((last, changed)) = last {
            let mut standings = last.clone();
            changed.sites().for_each(|site| standings.stand(snapshot, judged, site, &numbers));
            return standings;
        }
        let num_sites = snapshot.sites().len();
        let table = vec![None; num_sites * Gemm::ALL.len() * libraries.len()];
        let (ranks, unsupported) = (vec![SiteRank::default(); num_sites], vec![0; num_sites]);
        let mut standings = Self { libraries, table, ranks, unsupported };
        (0..num_sites).for_each(|site| standings.stand(snapshot, judged, site, &numbers));
        standings
    }

    /// `numbers`: of the libraries, by the number of a kernel.
    fn stand(&mut self, snapshot: &Snapshot, judged: &JudgedRows, site: usize, numbers: &[Option<usize>]) {
        let metric = snapshot.document.policy.metric;
        let mut rank = SiteRank::default();
        let own = self.place(site, 0)..self.place(site + 1, 0);
        self.table[own].fill(None);
        self.unsupported[site] = 0;
        for (at, gemm) in Gemm::ALL.into_iter().enumerate() {
            let mut least = f32::NAN;
            for row in judged.low(site, gemm) {
                let Some(library) = row.number().and_then(|number| numbers[number]) else { continue };
                let place = self.place(site, at) + library;
                self.table[place] = self.table[place].max(Some(ReviewStanding::of(row.safety, row.quadrant)));
                least = least.min(row.badness(metric).unwrap_or(f64::NAN) as f32);
                if row.safety == Safety::Safe {
                    rank.gain = rank.gain.max(row.speedup.map_or(f32::NAN, |of| of as f32));
                }
                if gemm == Gemm::Fprop {
                    rank.loss_cost = rank.loss_cost.min(row.loss_cost);
                }
            }
            rank.error = rank.error.max(least);
            let tried = judged.at(site, gemm).iter().any(|row| row.low);
            self.unsupported[site] |= u8::from(tried && judged.low(site, gemm).next().is_none()) << at;
        }
        self.ranks[site] = rank;
    }

    fn place(&self, site: usize, gemm: usize) -> usize {
        (site * Gemm::ALL.len() + gemm) * self.libraries.len()
    }

    /// The best of one GEMM over the libraries that `allows` lets through by their place in the list; `None`
    /// when none of their kernels has been judged.
    pub fn best(&self, site: usize, gemm: Gemm, allows: impl Fn(usize) -> bool) -> Option<ReviewStanding> {
        let at = Gemm::ALL.iter().position(|of| *of == gemm)?;
        let from = self.place(site, at);
        let of = self.table.get(from..from + self.libraries.len())?;
        of.iter().enumerate().filter(|(library, _)| allows(*library)).filter_map(|(_, standing)| *standing).max()
    }

    /// Low precision was tried there, and no kernel takes the shape.
    pub fn is_unsupported(&self, site: usize, gemm: Gemm) -> bool {
        self.unsupported.get(site).is_some_and(|bits| bits & (1 << gemm as u8) != 0)
    }

    pub fn rank(&self, site: usize) -> SiteRank {
        self.ranks.get(site).copied().unwrap_or_default()
    }
}

/// Low-precision rows that a kernel could run by.
pub(super) fn low(rows: &[ResultRow]) -> impl Iterator<Item = &ResultRow> {
    rows.iter().filter(|row| row.supported && row.kernel.is_low_precision())
}
