//! What stands around the views: top bar, site list, inspector, plan line, notices, dialogs.

mod details;
mod dialogs;
mod engines;
mod inspector;
mod kernels;
mod mods;
mod notices;
mod plan_line;
mod site_list;
mod top_bar;

pub use dialogs::dialogs_ui;
pub(crate) use dialogs::open;
pub use inspector::inspector_ui;
pub use notices::notices_ui;
pub use plan_line::plan_line_ui;
pub use site_list::site_list_ui;
pub use top_bar::top_bar_ui;
