//! Takes points and the times of their GEMMs, gives how many points and what share of the BF16 time stand
//! under each verdict.
//!
//! A GEMM's time counts once, under the verdict of the kernel that speaks for it: the one that the plan runs,
//! or, where the plan stays in high precision, the best that low precision offers it (by verdict, then by
//! speed). Shares are of the time of all GEMMs whose time in the policy's baseline is known: they sum to 1.

use crate::model::Quadrant;

/// One kernel as a candidate to speak for its GEMM.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Share {
    pub chosen: bool,
    pub quadrant: Quadrant,
    pub speedup: Option<f64>,
}

impl Share {
    /// Which of the two speaks for the GEMM.
    pub fn better(known: Option<Self>, other: Self) -> Option<Self> {
        let key = |of: &Self| (!of.chosen, of.quadrant.rank());
        let speed = |of: &Self| of.speedup.unwrap_or(0.0);
        match known {
            Some(known) if key(&known) < key(&other) => Some(known),
            Some(known) if key(&known) == key(&other) && speed(&known) >= speed(&other) => Some(known),
            _ => Some(other),
        }
    }
}

/// Points and times by verdict.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Shares {
    num_points: [usize; 8],
    time_us: [f64; 8],
}

impl Shares {
    pub(crate) fn add_point(&mut self, quadrant: Quadrant) {
        self.num_points[quadrant.rank()] += 1;
    }

    pub(super) fn remove_point(&mut self, quadrant: Quadrant) {
        self.num_points[quadrant.rank()] -= 1;
    }

    pub(super) fn forget_times(&mut self) {
        self.time_us = [0.0; 8];
    }

    /// `None`: a GEMM without a row in low precision counts as unsupported.
    pub(crate) fn add_time(&mut self, quadrant: Option<Quadrant>, us: f64) {
        self.time_us[quadrant.unwrap_or(Quadrant::Unsupported).rank()] += us;
    }

    pub fn num_points(&self, quadrant: Quadrant) -> usize {
        self.num_points[quadrant.rank()]
    }

    /// `None` while no time is known.
    pub fn time_share(&self, quadrant: Quadrant) -> Option<f64> {
        let all: f64 = self.time_us.iter().sum();
        (all > 0.0).then(|| self.time_us[quadrant.rank()] / all)
    }

    pub fn all() -> [Quadrant; 8] {
        Quadrant::BEST_FIRST
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_chosen_kernel_speaks_then_the_best() {
        let of = |chosen, quadrant, speedup| Share { chosen, quadrant, speedup };
        let unsafe_fast = of(false, Quadrant::UnsafeFast, Some(2.0));
        let safe = of(false, Quadrant::SafeFast, Some(1.2));
        let faster = of(false, Quadrant::SafeFast, Some(1.4));
        let by_hand = of(true, Quadrant::UnsafeSlow, Some(0.5));
        let best = |all: &[Share]| all.iter().fold(None, |best, of| Share::better(best, *of)).unwrap();
        assert_eq!(best(&[unsafe_fast, safe]).quadrant, Quadrant::SafeFast);
        assert_eq!(best(&[safe, faster, unsafe_fast]).speedup, Some(1.4));
        assert_eq!(best(&[faster, safe, by_hand, unsafe_fast]).quadrant, Quadrant::UnsafeSlow);
    }

    #[test]
    fn shares_sum_to_one() {
        let mut standings = Shares::default();
        assert_eq!(standings.time_share(Quadrant::SafeFast), None);
        standings.add_time(Some(Quadrant::SafeFast), 30.0);
        standings.add_time(Some(Quadrant::Uncertain), 60.0);
        standings.add_time(None, 10.0);
        let shares: Vec<f64> = Quadrant::BEST_FIRST.iter().filter_map(|of| standings.time_share(*of)).collect();
        assert!((shares.iter().sum::<f64>() - 1.0).abs() < 1e-12 && shares.len() == 8);
        assert_eq!(standings.time_share(Quadrant::Unsupported), Some(0.1));
    }
}
