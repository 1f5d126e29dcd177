//! How often views are derived where that has no thread of its own: rows that stream in wait for twice as long as the
//! last time took, so that the page is free for scrolling most of the time. What a person asks for never waits.

use loka_core::session::view::Question;

/// Milliseconds that are never felt.
const UNFELT: f64 = 6.0;

#[derive(Debug, Default)]
pub(super) struct Pace {
    until: f64,
    /// Decisions and question of the last time.
    last: Option<(u64, Question)>,
}

impl Pace {
    /// True while rows have to wait. Times in milliseconds.
    pub fn rests(&self, now: f64, num_decisions: u64, question: Question) -> bool {
        self.last == Some((num_decisions, question)) && now < self.until
    }

    pub fn took(&mut self, start: f64, end: f64, num_decisions: u64, question: Question) {
        let took = (end - start).max(0.0);
        self.until = if took > UNFELT { end + 2.0 * took } else { end };
        self.last = Some((num_decisions, question));
    }
}

#[cfg(test)]
mod tests {
    use loka_core::model::Metric;

    use super::*;

    #[test]
    fn rows_wait_and_a_person_does_not() {
        let question = Question { metric: Metric::Mere, gemm: None, relative: false };
        let mut pace = Pace::default();
        assert!(!pace.rests(0.0, 0, question));
        pace.took(0.0, 100.0, 0, question);
        assert!(pace.rests(250.0, 0, question) && !pace.rests(301.0, 0, question));
        assert!(!pace.rests(110.0, 1, question), "a decision");
        pace.took(400.0, 401.0, 1, question);
        assert!(!pace.rests(401.5, 1, question));
    }
}
