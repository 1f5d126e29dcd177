//! How often views are derived where that has no thread of its own. Rows that stream in wait for twice as long as the
//! last time took, what a person asks for as long as it took: a threshold that is dragged over a large trace leaves every
//! second moment to the frames. One click is never held up, for the last time is long over by then.

use loka_core::views::ViewQuery;

/// Milliseconds that are never felt.
const UNFELT: f64 = 6.0;

#[derive(Debug, Default)]
pub(super) struct Throttle {
    end: f64,
    took: f64,
    /// Decisions and question of the last time.
    last: Option<(u64, ViewQuery)>,
}

impl Throttle {
    /// True while views have to wait. Times in milliseconds.
    pub fn rests(&self, now: f64, num_decisions: u64, question: ViewQuery) -> bool {
        let times = if self.last == Some((num_decisions, question)) { 2.0 } else { 1.0 };
        self.took > UNFELT && now < self.end + times * self.took
    }

    pub fn took(&mut self, start: f64, end: f64, num_decisions: u64, question: ViewQuery) {
        *self = Self { end, took: (end - start).max(0.0), last: Some((num_decisions, question)) };
    }
}

#[cfg(test)]
mod tests {
    use loka_core::model::Metric;

    use super::*;

    #[test]
    fn rows_wait_longer_than_a_person() {
        let question = ViewQuery { metric: Metric::Mere, gemm: None, relative: false, versus: false };
        let mut pace = Throttle::default();
        assert!(!pace.rests(0.0, 0, question));
        pace.took(0.0, 100.0, 0, question);
        assert!(pace.rests(250.0, 0, question) && !pace.rests(301.0, 0, question));
        assert!(pace.rests(150.0, 1, question) && !pace.rests(201.0, 1, question), "a decision");
        pace.took(400.0, 401.0, 1, question);
        assert!(!pace.rests(401.5, 1, question));
    }
}
