//! Points too many to be told apart, as hexagons: the fuller the larger, in the colour of what most of them are. One mesh,
//! or shapes where the frame is written as vectors.

use egui::{Color32, Mesh, Pos2, RichText, Sense, Shape, Stroke, Ui, Vec2, vec2};
use loka_core::views::{Density, Point};

use super::{
    colors,
    picture::{HEX, Picture},
};
use crate::{
    state::{ColorBy, QUADRANTS},
    theme::{number, verdict_word},
    views::Scene,
};

/// From the centre to a corner of one that touches its neighbours.
const CORNER: f32 = HEX * 0.577_350_3;

/// Pointed at the top, as rows of them lie.
fn corners(share: f32) -> [Vec2; 6] {
    std::array::from_fn(|corner| {
        let angle = std::f32::consts::FRAC_PI_3 * corner as f32 + std::f32::consts::FRAC_PI_6;
        CORNER * share * vec2(angle.cos(), angle.sin())
    })
}

fn add(mesh: &mut Mesh, center: Pos2, share: f32, color: Color32) {
    let first = mesh.vertices.len() as u32;
    for corner in corners(share) {
        mesh.colored_vertex(center + corner, color);
    }
    for corner in 2..6 {
        mesh.add_triangle(first, first + corner - 1, first + corner);
    }
}

impl Picture {
    pub fn hexes_ui(&self, ui: &Ui, scene: &Scene<'_>, density: &Density) {
        let painter = ui.painter_at(self.frame());
        let colors = colors(&scene.theme, scene.view.quadrant.color_by);
        let color = |group: u8| colors[usize::from(group) % colors.len()];
        if scene.vector {
            for hex in &density.hexes {
                let (center, share) = (self.exact_place(hex.center), density.share(hex.count));
                let points = corners(share).map(|corner| center + corner).to_vec();
                painter.add(Shape::convex_polygon(points, color(hex.group), Stroke::NONE));
            }
            return;
        }
        let mut mesh = Mesh::default();
        mesh.reserve_vertices(6 * density.hexes.len());
        mesh.reserve_triangles(4 * density.hexes.len());
        for hex in &density.hexes {
            add(&mut mesh, self.exact_place(hex.center), density.share(hex.count), color(hex.group));
        }
        painter.add(Shape::mesh(mesh));
    }

    /// What the hexagon around a point holds, before what is said of the point.
    pub fn crowd(&self, scene: &Scene<'_>, density: &Density, point: &Point) -> Option<String> {
        let hex = density.at(point.at).filter(|hex| hex.count > 1)?;
        let group = usize::from(hex.group);
        let most = match scene.view.quadrant.color_by {
            ColorBy::Verdict => QUADRANTS.get(group).map(|of| verdict_word(*of).to_owned()),
            ColorBy::Group(by) => self.view.groupings[by as usize].groups.get(group).map(|(name, _)| name.clone()),
        };
        let most = most.unwrap_or_else(|| "others".to_owned());
        let (count, own) = (number::count(u64::from(hex.count)), number::count(u64::from(hex.num_group)));
        Some(format!("{count} kernels in this hexagon, {own} of them {most}. The nearest:\n"))
    }
}

/// How many kernels a hexagon of which size holds.
pub(super) fn density_ui(ui: &mut Ui, scene: &Scene<'_>, density: &Density) {
    ui.separator();
    ui.spacing_mut().item_spacing.x = 3.0;
    for step in density.steps() {
        let (rect, _) = ui.allocate_exact_size(vec2(HEX + 1.0, 14.0), Sense::hover());
        let mut mesh = Mesh::default();
        add(&mut mesh, rect.center(), density.share(step), scene.theme.weak);
        ui.painter().add(Shape::mesh(mesh));
        let text = RichText::new(number::count(u64::from(step))).small().color(scene.theme.weak);
        ui.label(text);
        ui.add_space(3.0);
    }
    let text = format!("of {} kernels in sight", number::count(u64::from(density.num_points)));
    let by = scene.view.quadrant.color_by.word();
    let about = format!(
        "More points than can be told apart: a hexagon is the larger the more kernels it holds, and has the colour of the \
         {by} that most of them have. Zoom in to see each; a box sums up every one of them"
    );
    ui.label(RichText::new(text).small().color(scene.theme.weak)).on_hover_text(about);
    ui.spacing_mut().item_spacing.x = 8.0;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn neighbours_touch_and_do_not_overlap() {
        let right = corners(1.0).iter().map(|corner| corner.x).fold(0.0, f32::max);
        assert!((right - HEX / 2.0).abs() < 1e-3, "{right}");
        let mut mesh = Mesh::default();
        add(&mut mesh, Pos2::ZERO, 1.0, Color32::WHITE);
        assert_eq!((mesh.vertices.len(), mesh.indices.len()), (6, 12));
        assert!(mesh.is_valid());
    }
}
