//! How a review's states and times read.

use egui::Color32;
use loka_core::{model::Moment, review::ReviewState};

use crate::theme::Theme;

/// A shape before each state: none is told by its colour alone.
pub fn state_glyph(state: ReviewState) -> &'static str {
    match state {
        ReviewState::Open => "○",
        ReviewState::Agreed => "●",
        ReviewState::NeedsWork => "×",
    }
}

pub fn state_color(theme: &Theme, state: ReviewState) -> Color32 {
    match state {
        ReviewState::Open => theme.weak,
        ReviewState::Agreed => theme.verdict(loka_core::model::Quadrant::SafeFast),
        ReviewState::NeedsWork => theme.error,
    }
}

/// `2026-11-20 12:03`, in UTC.
pub fn time_of(at: Moment) -> String {
    let text = at.to_string();
    text.get(..16).map_or(text.clone(), |short| short.replace('T', " "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_short_and_in_utc() {
        assert_eq!(time_of(Moment::of_seconds(1_795_176_000)), "2026-11-20 12:00");
    }
}
