//! What a key moves where it takes more than a pane's own state: the selection along boxes, points and curves, the second corner of
//! what is brushed.

use std::sync::Arc;

use loka_core::{
    dispatch::Policy,
    session::Session,
    views::{BrushedRows, Column, Grid, Point, QuadrantView, ShownColumn},
};

use super::{BrushShape, Derived, Steps, ViewState, rows_of_cells};
use crate::layout::Pane;

/// The heatmap's columns, those that the filter lets through.
pub fn shown_columns(view: &ViewState, derived: &Derived) -> Vec<ShownColumn> {
    ShownColumn::all(&derived.grid, &view.sites.filter(), |recipe| view.heatmap.opens(recipe))
}

/// Which of them has that kernel.
pub fn shown_at(columns: &[ShownColumn], grid: &Grid, wanted: &Column) -> Option<usize> {
    let at = grid.columns.iter().position(|of| of == wanted)?;
    columns.iter().position(|of| of.holds(at))
}

/// The selection goes along the columns, at the selected site.
pub fn step_column(view: &mut ViewState, derived: &Derived, session: &Session, step: isize) {
    let (columns, grid) = (shown_columns(view, derived), &derived.grid);
    let now = view.column.as_ref().and_then(|column| shown_at(&columns, grid, column));
    let Some((next, site)) = stepped(now, columns.len(), step).zip(view.site.clone()) else { return };
    let at = session.index().at(&site).unwrap_or_default();
    view.select(site, columns[next].column_at(grid, at));
}

fn stepped(now: Option<usize>, count: usize, step: isize) -> Option<usize> {
    let last = count.checked_sub(1)?;
    Some(now.map_or(0, |now| now.saturating_add_signed(step).min(last)))
}

/// Moves the second corner of the area, or begins one at what is selected. `false`: there is nothing to begin at.
pub fn brush_by_key(view: &mut ViewState, derived: &Derived, session: &Session, steps: Steps) -> bool {
    if view.layout.active() == Pane::Quadrant {
        grow_box(view, derived, session, steps)
    } else {
        grow_cells(view, derived, session, steps)
    }
}

fn grow_box(view: &mut ViewState, derived: &Derived, session: &Session, Steps(right, down): Steps) -> bool {
    let (quadrant, shown) = (&derived.quadrant, view.quadrant.shown);
    let step = [shown.x.1 - shown.x.0, shown.y.1 - shown.y.0].map(|range| range as f32 / 20.0);
    let corners = match &view.brush.shape {
        Some(BrushShape::Box(corners)) => *corners,
        _ => {
            let Some(site) = view.site.as_ref().and_then(|site| session.index().at(site)) else { return false };
            let own = &quadrant.points[quadrant.of_site(site)];
            let Some(point) = own.iter().find(|point| is_selected(quadrant, view, point)).or(own.first()) else {
                return false;
            };
            let [x, y] = point.at;
            // A little of a step around: the point itself is in it, whichever way it grows.
            [[x - 0.1 * step[0], y - 0.1 * step[1]], [x + 0.1 * step[0], y + 0.1 * step[1]]]
        }
    };
    let [from, to] = corners;
    let to = [to[0] + right as f32 * step[0], to[1] - down as f32 * step[1]];
    let set = BrushedRows::of_points(quadrant, from, to);
    view.brush.grow(set, BrushShape::Box([from, to]));
    true
}

fn grow_cells(view: &mut ViewState, derived: &Derived, session: &Session, Steps(right, down): Steps) -> bool {
    if view.heatmap.series.is_some() {
        return false;
    }
    let (lines, columns) = (view.sites.lines(), shown_columns(view, derived));
    let place = |column: &Column| shown_at(&columns, &derived.grid, column);
    let known = match &view.brush.shape {
        Some(BrushShape::Cells { lines: of, corners: [from, to] }) if Arc::ptr_eq(of, &lines) => {
            place(&from.1).zip(place(&to.1)).map(|(a, b)| ((from.0, a), (to.0, b)))
        }
        _ => None,
    };
    let at_selected = || {
        let line = lines.line_of(session.index().at(view.site.as_ref()?)?)?;
        let cell = (line, place(view.column.as_ref()?)?);
        Some((cell, cell))
    };
    let Some((from, to)) = known.or_else(at_selected) else { return false };
    let moved = |at: usize, by: isize, count: usize| at.saturating_add_signed(by).min(count.saturating_sub(1));
    let to = (moved(to.0, down, lines.all.len()), moved(to.1, right, columns.len()));
    let set = rows_of_cells(&lines, (&derived.grid, &columns), (from, to));
    let corner = |(line, column): (usize, usize)| Some((line, columns.get(column)?.first(&derived.grid)?));
    let Some((a, b)) = corner(from).zip(corner(to)) else { return false };
    view.brush.grow(set, BrushShape::Cells { lines, corners: [a, b] });
    true
}

/// The keys go along the curve that they stand on; at first, along that of the policy in force.
pub fn step_frontier(view: &mut ViewState, derived: &Derived, step: isize) {
    let frontier = derived.frontier();
    let last = |curve: usize| frontier.curves.get(curve).map(|curve| curve.points.len().saturating_sub(1));
    view.frontier.at = match view.frontier.at {
        Some((curve, point)) => last(curve).map(|last| (curve, point.saturating_add_signed(step).min(last))),
        None => nearest_to_now(derived),
    };
}

/// The point of the curve of the policy in force that is nearest to its plan.
fn nearest_to_now(derived: &Derived) -> Option<(usize, usize)> {
    let frontier = derived.frontier();
    let speedup = derived.now.map_or(1.0, |now| now.speedup.value);
    let curve = frontier.now_at.min(frontier.curves.len().checked_sub(1)?);
    let points = &frontier.curves[curve].points;
    let away = |at: &usize| (points[*at].totals.speedup - speedup).abs();
    (0..points.len()).min_by(|a, b| away(a).total_cmp(&away(b))).map(|point| (curve, point))
}

/// What would be adopted.
pub fn frontier_policy(view: &ViewState, derived: &Derived) -> Option<Policy> {
    let (curve, point) = view.frontier.at?;
    derived.frontier().curves.get(curve)?.policy_at(point)
}

/// The selection goes to the next box, or to the ends.
pub fn step_graph(view: &mut ViewState, session: &Session, step: isize) {
    let Some((_, items)) = view.graph.shown() else { return };
    let at = view.site.as_ref().and_then(|site| session.index().at(site));
    let now = at.and_then(|at| items.item_of(at as u32));
    let last = items.all.len().saturating_sub(1);
    let next = now.map_or(0, |now| now.saturating_add_signed(step).min(last));
    let to = items.all.get(next).filter(|_| now != Some(next)).map(|item| item.from);
    go(view, session, to);
}

/// The selection goes along a feed: to the first box that reads the selected one's output, or back to the last that it
/// reads.
pub fn step_along_feed(view: &mut ViewState, session: &Session, back: bool) {
    let to = fed_box(view, session, back);
    go(view, session, to);
}

/// The first site of that box.
pub fn fed_box(view: &ViewState, session: &Session, back: bool) -> Option<u32> {
    let (_, items) = view.graph.shown()?;
    let now = items.item_of(session.index().at(view.site.as_ref()?)? as u32)?;
    let edges = items.edges_at(now, now + 1);
    let ends = edges.filter_map(|edge| match back {
        false => (edge.from == now as u32).then_some(edge.to),
        true => (edge.to == now as u32).then_some(edge.from),
    });
    let to = if back { ends.max() } else { ends.min() };
    items.all.get(to? as usize).map(|item| item.from)
}

fn go(view: &mut ViewState, session: &Session, to: Option<u32>) {
    let Some(id) = to.and_then(|at| session.index().ids().get(at as usize)) else { return };
    view.selection.clear();
    view.sites.anchor = Some(id.clone());
    view.select(id.clone(), None);
    view.reveal = true;
}

/// The selection goes to the next point of the selected site along an axis.
pub fn step_point(view: &mut ViewState, derived: &Derived, session: &Session, by_error: bool, step: isize) {
    let quadrant = &derived.quadrant;
    let Some(site) = view.site.as_ref().and_then(|site| session.index().at(site)) else { return };
    let order = quadrant.ordered(site, by_error);
    let now = order.iter().position(|number| is_selected(quadrant, view, &quadrant.points[*number]));
    let next = now.map_or(0, |now| now.saturating_add_signed(step).min(order.len().saturating_sub(1)));
    if let Some(number) = order.get(next) {
        select_point(quadrant, view, session, *number);
    }
}

pub fn select_point(quadrant: &QuadrantView, view: &mut ViewState, session: &Session, number: usize) {
    let Some(point) = quadrant.points.get(number) else { return };
    let site = session.index().ids().get(point.site as usize).cloned();
    let column = quadrant.kernel(point.kernel).map(|kernel| Column { gemm: point.gemm, kernel: kernel.clone() });
    if let Some(site) = site {
        view.select(site, column);
        view.reveal = true;
    }
}

/// True for the selected kernel at the selected GEMM, whatever the site: asked of one site's points alone.
pub fn is_selected(quadrant: &QuadrantView, view: &ViewState, point: &Point) -> bool {
    let column = view.column.as_ref();
    column.is_some_and(|column| column.gemm == point.gemm && quadrant.kernel(point.kernel) == Some(&column.kernel))
}
