//! Where things of the quadrant lie on screen, and what lies under a place on screen.

use std::sync::Arc;

use egui::{Pos2, Rect, Vec2, pos2, vec2};
use egui_plot::{PlotPoint, PlotTransform};
use loka_core::views::{Point, QuadrantView, speedup_place};

/// How wide a hexagon is on screen; rows of regular ones are that much of it apart.
pub(super) const HEX: f32 = 11.0;
const ROWS: f32 = 0.866_025_4;
/// How near the pointer must be to a point, in points of the screen.
const REACH: f32 = 7.0;

pub(super) struct Picture {
    transform: PlotTransform,
    pub view: Arc<QuadrantView>,
}

impl Picture {
    pub fn new(transform: PlotTransform, view: Arc<QuadrantView>) -> Self {
        Self { transform, view }
    }

    pub fn frame(&self) -> Rect {
        *self.transform.frame()
    }

    /// Of a speed-up and an error.
    pub fn at(&self, speedup: f64, error: f64) -> Pos2 {
        self.transform.position_from_point(&PlotPoint::new(speedup_place(speedup), self.view.axis.place(error)))
    }

    /// Of places on the axes. What is beyond all bounds ends at the frame.
    pub fn place(&self, [x, y]: [f32; 2]) -> Pos2 {
        let frame = self.frame().expand(20.0);
        let at = self.transform.position_from_point(&PlotPoint::new(f64::from(x), f64::from(y)));
        pos2(clamped(at.x, frame.left(), frame.right()), clamped(at.y, frame.top(), frame.bottom()))
    }

    /// Where that lies without a clamp: what is out of sight stays there.
    pub fn exact(&self, point: &Point) -> Pos2 {
        let [x, y] = point.at.map(f64::from);
        self.transform.position_from_point(&PlotPoint::new(x, y))
    }

    /// The same of a place that is no point's.
    pub fn exact_place(&self, [x, y]: [f32; 2]) -> Pos2 {
        self.transform.position_from_point(&PlotPoint::new(f64::from(x), f64::from(y)))
    }

    pub fn value(&self, at: Pos2) -> [f64; 2] {
        let value = self.transform.value_from_position(at);
        [value.x, value.y]
    }

    /// Points on screen a unit of each axis, and where the axes' zero lies from the frame's left top.
    pub fn scale_and_offset(&self) -> (Vec2, Vec2) {
        let [x, y] = self.transform.dpos_dvalue();
        let bounds = self.transform.bounds();
        let corner = [bounds.min()[0], bounds.max()[1]];
        // In double precision: zoomed in far, the zero lies far outside.
        let offset = vec2((-corner[0] * x) as f32, (-corner[1] * y) as f32);
        (vec2(x as f32, y as f32), offset)
    }

    /// A hexagon's width, and the distance of two rows of them, in places.
    pub fn hexagon(&self) -> [f32; 2] {
        let [x, y] = self.transform.dpos_dvalue();
        [HEX / x.abs().max(1e-9) as f32, HEX * ROWS / y.abs().max(1e-9) as f32]
    }

    /// The point under a place on screen.
    pub fn pick(&self, at: Pos2) -> Option<usize> {
        let [dx, dy] = self.transform.dpos_dvalue();
        let reach = [REACH / dx.abs().max(1e-9) as f32, REACH / dy.abs().max(1e-9) as f32];
        let [x, y] = self.value(at);
        self.view.nearby.nearest(&self.view.points, [x as f32, y as f32], reach)
    }
}

/// An infinite interval ends at the frame; what is not a number lies at the middle, where nothing is.
fn clamped(value: f32, lo: f32, hi: f32) -> f32 {
    if value.is_nan() { f32::midpoint(lo, hi) } else { value.clamp(lo, hi) }
}
