//! A token bucket: takes moments and costs, says whether they are within a rate.

use std::time::Instant;

/// Holds up to `burst`, refills at `per_second`.
#[derive(Clone, Copy, Debug)]
pub struct Bucket {
    per_second: f64,
    burst: f64,
    left: f64,
    at: Instant,
}

impl Bucket {
    /// Full.
    pub fn new(per_second: u32, burst: u32, now: Instant) -> Self {
        let burst = f64::from(burst);
        Self { per_second: f64::from(per_second), burst, left: burst, at: now }
    }

    fn refill(&mut self, now: Instant) {
        let seconds = now.saturating_duration_since(self.at).as_secs_f64();
        self.left = (self.left + seconds * self.per_second).min(self.burst);
        self.at = now;
    }

    /// True when `cost` was left, and is taken.
    pub fn take(&mut self, cost: u32, now: Instant) -> bool {
        self.refill(now);
        let enough = self.left >= f64::from(cost);
        if enough {
            self.left -= f64::from(cost);
        }
        enough
    }

    pub fn is_empty(&mut self, now: Instant) -> bool {
        self.refill(now);
        self.left < 1.0
    }

    /// Nothing was taken for so long that it is as good as new.
    pub fn is_full(&mut self, now: Instant) -> bool {
        self.refill(now);
        self.left >= self.burst
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn a_burst_then_the_rate() {
        let start = Instant::now();
        let mut bucket = Bucket::new(10, 3, start);
        assert!((0..3).all(|_| bucket.take(1, start)));
        assert!(!bucket.take(1, start) && bucket.is_empty(start));
        let later = start + Duration::from_millis(100);
        assert!(bucket.take(1, later) && !bucket.take(1, later));
        let rested = start + Duration::from_secs(10);
        assert!(bucket.is_full(rested));
        assert!((0..3).all(|_| bucket.take(1, rested)) && !bucket.take(1, rested), "no more than the burst is kept");
    }
}
