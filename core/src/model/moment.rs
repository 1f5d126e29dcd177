//! A point in time, as whoever has a clock gives it: milliseconds in memory and on the wire, RFC 3339 in a file.

use std::fmt;

use jiff::Timestamp;
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

/// Milliseconds since 1970 in UTC.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Moment(pub i64);

impl Moment {
    pub fn of_seconds(seconds: i64) -> Self {
        Self(seconds.saturating_mul(1000))
    }

    /// RFC 3339 with any offset.
    pub fn parse(text: &str) -> Option<Self> {
        text.parse::<Timestamp>().ok().map(|at| Self(at.as_millisecond()))
    }

    /// Seconds from `earlier` to this; negative when it is the earlier one.
    pub fn seconds_since(self, earlier: Self) -> i64 {
        self.0.saturating_sub(earlier.0) / 1000
    }
}

/// To the second.
impl fmt::Display for Moment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Out of the calendar's range: whoever sent that has no clock.
        let at = Timestamp::from_second(self.0.div_euclid(1000)).unwrap_or_default();
        write!(f, "{at}")
    }
}

impl Serialize for Moment {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        if serializer.is_human_readable() { serializer.collect_str(self) } else { serializer.serialize_i64(self.0) }
    }
}

impl<'de> Deserialize<'de> for Moment {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        if !deserializer.is_human_readable() {
            return i64::deserialize(deserializer).map(Self);
        }
        let text = String::deserialize(deserializer)?;
        Self::parse(&text).ok_or_else(|| de::Error::custom(format!("'{text}' is no time (2026-11-20T12:00:00Z)")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_what_it_wrote() {
        let at = Moment::of_seconds(1_795_176_000);
        assert_eq!(serde_json::to_string(&at).unwrap(), "\"2026-11-20T12:00:00Z\"");
        assert_eq!(serde_json::from_str::<Moment>("\"2026-11-20T13:00:00+01:00\"").unwrap(), at);
        assert_eq!(Moment::parse("2026-11-20T12:01:00Z").unwrap().seconds_since(at), 60);
        assert!(serde_json::from_str::<Moment>("\"yesterday\"").is_err());
        assert_eq!(Moment(i64::MAX).to_string(), "1970-01-01T00:00:00Z");
    }
}
