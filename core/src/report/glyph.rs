//! Takes a verdict and a place, gives the outline and the filling of its shape as SVG paths: a disc, a half disc, a
//! triangle, a square, a ring, a dash. Drawn, not typed: every font shows the same.

use std::fmt::Write as _;

use maud::{Markup, html};

use crate::model::Quadrant;

/// Of many shapes that look alike.
#[derive(Debug, Default)]
pub struct Outlines {
    pub stroked: String,
    pub filled: String,
}

impl Outlines {
    pub fn add(&mut self, verdict: usize, [x, y]: [f64; 2], r: f64) {
        // Writing to a String cannot fail.
        let circle = |r: f64| {
            format!("M{:.1} {y:.1}a{r:.1} {r:.1} 0 1 0 {:.1} 0a{r:.1} {r:.1} 0 1 0 -{:.1} 0z", x - r, 2.0 * r, 2.0 * r)
        };
        let square = |half: f64| {
            let side = 2.0 * half;
            format!("M{:.1} {:.1}h{side:.1}v{side:.1}h-{side:.1}z", x - half, y - half)
        };
        match Quadrant::BEST_FIRST.get(verdict) {
            Some(Quadrant::SafeFast) => {
                self.stroked.push_str(&circle(r));
                self.filled.push_str(&circle(r));
            }
            Some(Quadrant::SafeSlow) => {
                self.stroked.push_str(&circle(r));
                let _ = write!(self.filled, "M{x:.1} {:.1}a{r:.1} {r:.1} 0 0 0 0 {:.1}z", y - r, 2.0 * r);
            }
            Some(Quadrant::SafeUnknown) => {
                self.stroked.push_str(&circle(r));
                self.filled.push_str(&circle(0.4 * r));
            }
            Some(Quadrant::UnsafeFast) => {
                let (wide, high) = (1.1 * r, 2.0 * r);
                let triangle = format!("M{x:.1} {:.1}l{wide:.1} {high:.1}h-{:.1}z", y - 1.15 * r, 2.0 * wide);
                self.stroked.push_str(&triangle);
                self.filled.push_str(&triangle);
            }
            Some(Quadrant::UnsafeSlow) => {
                self.stroked.push_str(&square(0.85 * r));
                self.filled.push_str(&square(0.85 * r));
            }
            Some(Quadrant::UnsafeUnknown) => self.stroked.push_str(&square(0.85 * r)),
            Some(Quadrant::Uncertain) => self.stroked.push_str(&circle(r)),
            Some(Quadrant::Unsupported) | None => {
                let _ = write!(self.stroked, "M{:.1} {y:.1}h{:.1}", x - r, 2.0 * r);
            }
        }
    }

    pub fn ui(&self, class: &str) -> Markup {
        html! {
            @if !self.filled.is_empty() { path class=(format!("fill {class}")) d=(self.filled) {} }
            @if !self.stroked.is_empty() { path class=(format!("ring {class}")) d=(self.stroked) {} }
        }
    }
}

/// A shape in a line of text.
pub fn shape(quadrant: Quadrant) -> Markup {
    let verdict = quadrant.rank();
    let mut outlines = Outlines::default();
    outlines.add(verdict, [7.0, 7.0], 4.6);
    html! {
        svg class="glyph" viewBox="0 0 14 14" width="14" height="14" aria-hidden="true" {
            (outlines.ui(&format!("v{verdict}")))
        }
    }
}
