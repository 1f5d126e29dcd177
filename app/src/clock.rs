//! The time of now, from the system or from the page: seconds since 1970, or as files hold it (RFC 3339 in UTC).

use loka_core::model::Moment;

#[cfg(not(target_arch = "wasm32"))]
pub fn seconds_of_utc() -> Option<u64> {
    let since = std::time::SystemTime::now().duration_since(std::time::SystemTime::UNIX_EPOCH);
    since.ok().map(|since| since.as_secs())
}

#[cfg(target_arch = "wasm32")]
pub fn seconds_of_utc() -> Option<u64> {
    let seconds = js_sys::Date::now() / 1_000.0;
    (seconds >= 0.0).then_some(seconds as u64)
}

pub fn now() -> Moment {
    #[cfg(not(target_arch = "wasm32"))]
    let milliseconds = {
        let since = std::time::SystemTime::now().duration_since(std::time::SystemTime::UNIX_EPOCH);
        since.map_or(0, |since| i64::try_from(since.as_millis()).unwrap_or(i64::MAX))
    };
    #[cfg(target_arch = "wasm32")]
    let milliseconds = js_sys::Date::now() as i64;
    Moment(milliseconds)
}

/// Milliseconds, from any moment on.
pub fn now_ms() -> f64 {
    #[cfg(not(target_arch = "wasm32"))]
    let milliseconds = now().0 as f64;
    #[cfg(target_arch = "wasm32")]
    let milliseconds = js_sys::Date::now();
    milliseconds
}

/// To the second.
pub fn now_rfc3339() -> String {
    now().to_string()
}

/// Time for work within a frame.
#[cfg(feature = "gui")]
pub(crate) struct Budget {
    /// A page has no such clock, and what comes to it at once is little.
    #[cfg(not(target_arch = "wasm32"))]
    until: std::time::Instant,
}

#[cfg(feature = "gui")]
impl Budget {
    #[cfg(not(target_arch = "wasm32"))]
    pub fn of_ms(milliseconds: f64) -> Self {
        Self { until: std::time::Instant::now() + std::time::Duration::from_secs_f64(milliseconds / 1_000.0) }
    }

    #[cfg(target_arch = "wasm32")]
    pub fn of_ms(_: f64) -> Self {
        Self {}
    }

    #[cfg(not(target_arch = "wasm32"))]
    pub fn is_spent(&self) -> bool {
        std::time::Instant::now() > self.until
    }

    #[cfg(target_arch = "wasm32")]
    pub fn is_spent(&self) -> bool {
        false
    }
}
