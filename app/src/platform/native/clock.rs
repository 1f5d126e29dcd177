//! The system's clocks.

#[cfg(feature = "gui")]
use std::time::{Duration, Instant};
use std::time::{SystemTime, UNIX_EPOCH};

/// Since 1970; `None` by a clock that stands before.
pub(crate) fn milliseconds() -> Option<f64> {
    SystemTime::now().duration_since(UNIX_EPOCH).ok().map(|since| since.as_secs_f64() * 1_000.0)
}

/// Time for work within a frame.
#[cfg(feature = "gui")]
pub(crate) struct FrameBudget {
    until: Instant,
}

#[cfg(feature = "gui")]
impl FrameBudget {
    pub fn of_ms(milliseconds: f64) -> Self {
        Self { until: Instant::now() + Duration::from_secs_f64(milliseconds / 1_000.0) }
    }

    pub fn is_spent(&self) -> bool {
        Instant::now() > self.until
    }
}
