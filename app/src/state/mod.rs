//! What is seen and selected, and what moves it: the view state and every pane's own, with the views derived from the
//! session. Nothing here draws: commands change it, views read it.

mod brush;
mod derived;
mod dialog;
mod distribution;
mod drift;
mod export_state;
mod folding;
mod frontier;
mod graph;
mod heatmap;
mod log;
mod mods;
mod plan;
mod quadrant;
mod review;
mod site;
mod sites;
mod step_cursor;
mod stepping;
mod tour;
mod view;

pub use brush::{BrushDrag, BrushShape, BrushState, Steps, rows_of_cells};
pub use derived::Derived;
pub use dialog::{CopyWhat, Dialog, DialogKind, ExportForm, folder_of};
pub use distribution::DistributionState;
pub use drift::DriftState;
pub use export_state::{ExportPreview, ExportState};
pub use folding::Folding;
pub use frontier::FrontierState;
pub use graph::GraphState;
pub use heatmap::{ColumnWindow, HeatmapState, MAX_ROW, NO_SERIES};
pub use log::{Clock, LogState};
pub use mods::{ModsState, set_mod};
pub use plan::{PlanFilter, PlanPart, PlanState};
pub use quadrant::{Bounds, ColorBy, MANY, QUADRANTS, QuadrantState, color_number};
pub use review::{ReviewFilter, ReviewPane};
pub use site::SiteState;
pub use sites::{BulkForm, SitesState};
pub use step_cursor::{StepCursor, recorded_steps};
pub use stepping::{
    brush_by_key, fed_box, frontier_policy, is_selected, select_point, shown_at, shown_columns, step_along_feed,
    step_column, step_frontier, step_graph, step_point,
};
pub use tour::{TOUR, TourState};
pub use view::{ThresholdLine, ViewState};
