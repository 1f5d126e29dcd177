//! The browser's clock.

/// Since 1970; `None` by a clock that stands before.
pub(crate) fn milliseconds() -> Option<f64> {
    let milliseconds = js_sys::Date::now();
    (milliseconds >= 0.0).then_some(milliseconds)
}

/// Time for work within a frame, which never ends: a page has no such clock, and what comes to it at once is little.
pub(crate) struct FrameBudget;

impl FrameBudget {
    pub fn of_ms(_: f64) -> Self {
        Self
    }

    pub fn is_spent(&self) -> bool {
        false
    }
}
