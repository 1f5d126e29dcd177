//! What stands around the views: top bar, plan line, notices, dialogs.

mod baseline;
mod connection;
mod dialogs;
mod engines;
mod menus;
mod notices;
mod overlays;
mod panes;
mod people;
mod plan_line;
mod top_bar;
mod tour;

pub use baseline::{baseline_menu_ui, baseline_ui};
pub use connection::{away_ui, connection_ui, not_kept_ui};
pub use dialogs::dialogs_ui;
pub(crate) use dialogs::{ToWrite, ask_of, to_write};
pub use notices::{Fading, hint_ui, notices_ui, shows_hint};
pub use overlays::overlays_ui;
pub use panes::layout_ui;
pub use plan_line::plan_line_ui;
pub use top_bar::top_bar_ui;
