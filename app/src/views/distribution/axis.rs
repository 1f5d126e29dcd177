//! Takes what must be in sight, gives the log2 axis that histogram and bars share, and their columns.

use egui::{Align2, FontId, Painter, Rect, Stroke, pos2};

use super::ShownOperand;
use crate::theme::Theme;

/// Width of the names left of the axis.
pub const NAMES: f32 = 140.0;
/// Width of the table right of it: three columns.
pub const TABLE: f32 = 210.0;
/// Narrower than this in all, the table stands on hover only.
const ROOM_FOR_TABLE: f32 = 560.0;

/// Powers of two from left to right.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Axis {
    pub from: f64,
    pub to: f64,
}

impl Axis {
    /// What any histogram holds but for a few stray values, and room for the bars.
    pub fn of(main: ShownOperand<'_>, beside: Option<ShownOperand<'_>>) -> Self {
        let extents = [Some(main), beside].into_iter().flatten();
        let extents = extents.filter_map(|shown| shown.operand.histogram.as_ref().ok()?.main_extent());
        let (from, to) = extents.reduce(|a, b| (a.0.min(b.0), a.1.max(b.1))).unwrap_or((-8, 8));
        Self { from: f64::from(from) - 4.0, to: f64::from(to) + 2.0 }
    }

    pub fn x(&self, rect: Rect, log2: f64) -> f32 {
        let share = (log2 - self.from) / (self.to - self.from);
        rect.left() + rect.width() * share.clamp(0.0, 1.0) as f32
    }

    pub fn log2_at(&self, rect: Rect, x: f32) -> f64 {
        self.from + (self.to - self.from) * f64::from((x - rect.left()) / rect.width().max(1.0))
    }

    pub fn holds(&self, log2: f64) -> bool {
        (self.from..=self.to).contains(&log2)
    }

    /// The middle of a row between names and table.
    pub fn part(row: Rect) -> Rect {
        let right = if has_table(row.width()) { row.right() - TABLE } else { row.right() - 8.0 };
        Rect::from_min_max(
            pos2(row.left() + NAMES, row.top()),
            pos2(right.max(row.left() + NAMES + 40.0), row.bottom()),
        )
    }

    /// Powers of two as `2⁻⁸`, as many as there is room for.
    pub fn ticks(&self, painter: &Painter, theme: &Theme, rect: Rect) {
        let every = [1, 2, 4, 8, 16]
            .into_iter()
            .find(|every| rect.width() / ((self.to - self.from) / f64::from(*every)) as f32 >= 30.0);
        let every = every.unwrap_or(16);
        let font = FontId::proportional(11.0);
        let first = (self.from / f64::from(every)).ceil() as i32 * every;
        for power in (first..=self.to.floor() as i32).step_by(every as usize) {
            let x = self.x(rect, f64::from(power));
            painter.vline(x, rect.bottom()..=rect.bottom() + 3.0, Stroke::new(1.0, theme.weak));
            painter.text(pos2(x, rect.bottom() + 4.0), Align2::CENTER_TOP, power_text(power), font.clone(), theme.weak);
        }
    }
}

pub fn has_table(width: f32) -> bool {
    width >= ROOM_FOR_TABLE
}

/// `2⁻¹²`.
pub fn power_text(power: i32) -> String {
    const DIGITS: [char; 10] = ['⁰', '¹', '²', '³', '⁴', '⁵', '⁶', '⁷', '⁸', '⁹'];
    let sign = if power < 0 { "⁻" } else { "" };
    let digits: String = power.abs().to_string().bytes().map(|b| DIGITS[usize::from(b - b'0')]).collect();
    format!("2{sign}{digits}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_and_powers_agree() {
        let (axis, rect) = (Axis { from: -10.0, to: 6.0 }, Rect::from_min_max(pos2(100.0, 0.0), pos2(260.0, 10.0)));
        assert_eq!((axis.x(rect, -10.0), axis.x(rect, 6.0), axis.x(rect, -2.0)), (100.0, 260.0, 180.0));
        assert!((axis.log2_at(rect, 180.0) + 2.0).abs() < 1e-9);
        assert_eq!(axis.x(rect, 99.0), 260.0, "what lies beyond stands at the end");
        assert_eq!((power_text(-12), power_text(0)), ("2⁻¹²".to_owned(), "2⁰".to_owned()));
    }
}
