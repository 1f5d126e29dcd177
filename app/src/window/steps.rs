//! What a person did at the window: takes actions, commands and what was selected, gives a text of a line each that
//! `loka open --steps` plays on this trace or another, and reads it again.

use std::{collections::VecDeque, fmt};

use loka_core::session::Command;

use crate::{commands::Action, window::address::Address};

/// More are an hour of clicking; the first are let go.
const KEPT: usize = 10_000;

/// One line.
#[derive(Clone, Debug, PartialEq)]
pub enum Step {
    /// Selects and shows what a link says.
    At(Address),
    Act(Action),
    /// A command with its own data, as the trace's journal has it.
    Do(Box<Command>),
}

impl Step {
    fn parse(line: &str, meant: Meant) -> Result<Self, String> {
        if line.starts_with('{') {
            return serde_json::from_str(line)
                .map(|command| Self::Do(Box::new(command)))
                .map_err(|problem| problem.to_string())
                // Not the whole list of those that there are.
                .map_err(|problem| format!("no command: {}", problem.split(", expected").next().unwrap_or_default()));
        }
        match line.split_once(' ').map(|(word, rest)| (word, rest.trim())) {
            Some(("at", link)) => at(link).map(Self::At),
            Some(("do", id)) => action(id, meant).map(Self::Act),
            _ => Err(format!("'{line}' is neither 'at LINK' nor 'do ACTION' nor a command as JSON")),
        }
    }
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::At(address) => write!(f, "at {}", address.format()),
            Self::Act(action) => write!(f, "do {}", action.id()),
            Self::Do(command) => f.write_str(&serde_json::to_string(command).map_err(|_| fmt::Error)?),
        }
    }
}

/// What is behind the `#` of a link, or the link.
pub fn at(link: &str) -> Result<Address, String> {
    let address = Address::parse(link.split_once('#').map_or(link, |(_, behind)| behind));
    if address == Address::default() {
        let known = "view=, site=, cell=, metric=, gemm= and filter= do";
        return Err(format!("'{link}' says nothing that can be shown: {known}"));
    }
    Ok(address)
}

/// Of an id that no action has: `; did you mean …?`, or nothing.
pub type Meant = fn(&str) -> String;

pub fn action(id: &str, meant: Meant) -> Result<Action, String> {
    Action::of_id(id).ok_or_else(|| format!("no action has the id '{id}'{} (loka actions lists them)", meant(id)))
}

/// Of a text with a step a line; empty lines and such as begin with `#` say nothing.
pub fn parse(text: &str, meant: Meant) -> Result<Vec<Step>, String> {
    let lines = text.lines().map(str::trim).enumerate().filter(|(_, line)| !line.is_empty() && !line.starts_with('#'));
    lines.map(|(at, line)| Step::parse(line, meant).map_err(|problem| format!("line {}: {problem}", at + 1))).collect()
}

/// Since the trace was opened.
#[derive(Debug, Default)]
pub struct Done {
    steps: VecDeque<Step>,
    trace: Option<String>,
    /// What was selected and seen behind the last step.
    at: Address,
}

impl Done {
    /// `at`: what was selected and seen when it was done, to the trace of that path. True if it is one that can be done again.
    pub fn note(&mut self, step: Step, at: Address, trace: Option<&str>) -> bool {
        if trace != self.trace.as_deref() {
            *self = Self { trace: trace.map(str::to_owned), ..Self::default() };
        }
        if !is_kept(&step) {
            return false;
        }
        if at != self.at {
            self.push(Step::At(at.clone()));
            self.at = at;
        }
        self.push(step);
        true
    }

    /// What is selected and seen behind the step that was noted last.
    pub fn left_at(&mut self, at: Address) {
        self.at = at;
    }

    /// The text, and how many steps it has: none where nothing was done. `at`: what is selected and seen now.
    pub fn text(&self, at: Address, trace: &str) -> (String, usize) {
        if self.trace.as_deref() != Some(trace) || self.steps.is_empty() {
            return (String::new(), 0);
        }
        let last = (at != self.at).then_some(Step::At(at));
        let steps: Vec<String> = self.steps.iter().chain(&last).map(|step| format!("{step}\n")).collect();
        (steps.concat(), steps.len())
    }

    fn push(&mut self, step: Step) {
        // A threshold that is dragged is one step.
        let gesture = |step: &Step| match step {
            Step::Do(command) => match &**command {
                Command::SetMaxError { gesture, .. } => gesture.map(|of| (0, of)),
                Command::SetMinSpeedup { gesture, .. } => gesture.map(|of| (1, of)),
                _ => None,
            },
            _ => None,
        };
        let goes_on = gesture(&step).is_some() && self.steps.back().map(&gesture) == Some(gesture(&step));
        if goes_on || self.steps.len() == KEPT {
            if goes_on {
                self.steps.pop_back()
            } else {
                self.steps.pop_front()
            };
        }
        self.steps.push_back(step);
    }
}

/// Not what opens and writes files, what belongs to the window alone, or was signed.
fn is_kept(step: &Step) -> bool {
    match step {
        Step::At(_) => true,
        Step::Act(action) => !matches!(action, Action::File(_) | Action::ExportTo(_) | Action::Window(_)),
        Step::Do(command) => {
            !command.is_per_window()
                && !matches!(
                    **command,
                    Command::OpenTrace { .. }
                        | Command::OpenResults { .. }
                        | Command::FindEngines
                        | Command::Look { .. }
                        | Command::Approve { .. }
                )
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]
mod tests {
    use loka_core::model::{Gemm, KernelId, SiteId};

    use super::*;
    use crate::{commands::WindowAction, layout::Pane};

    fn seen(site: &str) -> Address {
        Address { site: Some(SiteId::new(site)), view: Some(Pane::Plan), ..Address::default() }
    }

    fn nothing(_: &str) -> String {
        String::new()
    }

    fn by_hand() -> Step {
        let (site, kernel) = (SiteId::new("top.0"), KernelId::new("cublaslt/bf16"));
        Step::Do(Box::new(Command::SetOverride { site, gemm: Gemm::Dgrad, kernel, reason: "a \"try\"".to_owned() }))
    }

    #[test]
    fn what_was_done_is_read_again() {
        let mut done = Done::default();
        let pulled = |value| Step::Do(Box::new(Command::SetMaxError { value, gesture: Some(3) }));
        assert!(done.note(Step::Act(Action::UsePolicy(0)), seen("a"), Some("t")));
        for value in [0.1, 0.2, 0.3] {
            done.note(pulled(value), seen("a"), Some("t"));
        }
        // What belongs to the window is no step, and hides none.
        assert!(!done.note(Step::Act(Action::Window(WindowAction::Palette)), seen("top.0"), Some("t")));
        done.note(by_hand(), seen("top.0"), Some("t"));
        let (text, steps) = done.text(seen("b"), "t");
        let wanted = [
            Step::At(seen("a")),
            Step::Act(Action::UsePolicy(0)),
            pulled(0.3),
            Step::At(seen("top.0")),
            by_hand(),
            Step::At(seen("b")),
        ];
        assert_eq!((parse(&text, nothing).unwrap(), steps), (wanted.to_vec(), 6), "{text}");
        assert_eq!(done.text(seen("b"), "another"), (String::new(), 0));
        done.note(Step::Act(Action::UsePolicy(1)), Address::default(), Some("another"));
        assert_eq!(done.text(Address::default(), "another").1, 1, "a trace begins anew");
    }

    #[test]
    fn a_link_is_taken_with_or_without_its_page() {
        for link in ["http://127.0.0.1:1/#view=plan", "#view=plan", "view=plan"] {
            assert_eq!(at(link).unwrap().view, Some(Pane::Plan), "{link}");
        }
    }

    #[test]
    fn what_is_no_step_is_told_with_its_line() {
        assert_eq!(parse("# nothing\n\n", nothing), Ok(Vec::new()));
        for (text, told) in [
            ("do view.plan\ndo view.plam", "line 2: no action has the id 'view.plam'"),
            ("at nowhere", "line 1: 'nowhere' says nothing that can be shown"),
            ("\n{\"no_such\": 1}", "line 2: no command: unknown variant"),
            ("view.plan", "line 1: 'view.plan' is neither 'at LINK'"),
        ] {
            let problem = parse(text, nothing).unwrap_err();
            assert!(problem.starts_with(told), "{problem}");
        }
    }
}
