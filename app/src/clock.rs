//! The time of now: seconds since 1970, or as files hold it (RFC 3339 in UTC).

use loka_core::model::Moment;

use crate::platform::milliseconds;

pub fn seconds_of_utc() -> Option<u64> {
    milliseconds().map(|milliseconds| (milliseconds / 1_000.0) as u64)
}

/// 1970 by a clock that stands before.
pub fn now() -> Moment {
    Moment(now_ms() as i64)
}

/// Milliseconds, from any moment on.
pub fn now_ms() -> f64 {
    milliseconds().unwrap_or_default()
}

/// To the second.
pub fn now_rfc3339() -> String {
    now().to_string()
}
