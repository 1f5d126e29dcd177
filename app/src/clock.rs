//! The time of now, from the system or from the page: seconds since 1970, or as files hold it (RFC 3339 in UTC).

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

/// Milliseconds, from any moment on.
#[cfg(target_arch = "wasm32")]
pub fn now_ms() -> f64 {
    js_sys::Date::now()
}

/// To the second.
pub fn now_rfc3339() -> String {
    rfc3339(seconds_of_utc().unwrap_or_default())
}

/// Days to a civil date by Howard Hinnant's algorithm (public domain).
fn rfc3339(seconds: u64) -> String {
    let (days, rest) = (seconds / 86_400, seconds % 86_400);
    let shifted = days + 719_468;
    let era = shifted / 146_097;
    let day_of_era = shifted % 146_097;
    let year_of_era = (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_index = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month_index + 2) / 5 + 1;
    let month = if month_index < 10 { month_index + 3 } else { month_index - 9 };
    let year = year_of_era + era * 400 + u64::from(month <= 2);
    format!("{year:04}-{month:02}-{day:02}T{:02}:{:02}:{:02}Z", rest / 3_600, rest / 60 % 60, rest % 60)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn known_times() {
        assert_eq!(rfc3339(0), "1970-01-01T00:00:00Z");
        assert_eq!(rfc3339(951_782_400), "2000-02-29T00:00:00Z");
        assert_eq!(rfc3339(1_795_176_000), "2026-11-20T12:00:00Z");
    }
}
