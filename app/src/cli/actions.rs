//! `loka actions`: every action of the workbench by the id that scripts call it by.

use serde_json::json;

use super::output::{self, Outcome, TextTable};
use crate::commands::{Action, shortcut_text};

const ABOUT: &str = "Every action of the workbench by its id, which stays when words change: `loka actions` lists them, the palette \
                     shows them.";

#[derive(clap::Args, Debug)]
pub struct ActionsArgs {
    /// The table of docs/reference/actions.md.
    #[arg(long, hide = true)]
    markdown: bool,
}

pub fn run(args: &ActionsArgs, json: bool) -> anyhow::Result<Outcome> {
    let ctx = egui::Context::default();
    let keys = |action: Action| action.shortcut().map(|shortcut| shortcut_text(&ctx, &shortcut)).unwrap_or_default();
    if args.markdown {
        output::lines(&markdown(&keys));
        return Ok(Outcome::Done);
    }
    let mut table = TextTable::new(&["id", "action", "key", "what it does"]);
    for action in Action::all() {
        if json {
            output::json(&json!({
                "id": action.id(), "text": action.text(), "about": action.tooltip(), "key": action.shortcut().map(|_| keys(action)),
                "area": action.area(),
            }))?;
        } else {
            table.row([action.id(), action.text(), keys(action), action.tooltip()]);
        }
    }
    if !json {
        table.print();
    }
    Ok(Outcome::Done)
}

fn markdown(keys: &dyn Fn(Action) -> String) -> String {
    let mut text = format!("# Actions\n\n{ABOUT}\n\n| id | action | key | what it does |\n|---|---|---|---|\n");
    // A bar would end a cell.
    let cell = |text: &str| text.replace('|', "\\|");
    for action in Action::all() {
        let (key, about) = (keys(action), cell(&action.tooltip()));
        let key = if key.is_empty() { key } else { format!("`{}`", cell(&key)) };
        text += &format!("| `{}` | {} | {key} | {about} |\n", action.id(), cell(&action.text()));
    }
    text
}
