//! Takes a plan, or a list of names with their classes, gives the modules that names are resolved against.

use std::collections::HashMap;

use crate::plan::Plan;

/// A module of the model by its full name. `class` may be empty: then it is a linear.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Module {
    pub name: String,
    pub class: String,
}

impl Module {
    pub fn new(name: &str, class: &str) -> Self {
        Self { name: name.to_owned(), class: class.to_owned() }
    }

    /// By its class's name: `Linear`, `torch.nn.Linear`, `ColumnParallelLinear`.
    pub fn is_linear(&self) -> bool {
        self.class.is_empty() || self.class.ends_with("Linear")
    }

    /// No subclass: some frameworks leave those alone.
    pub fn is_plain_linear(&self) -> bool {
        self.class_name() == "Linear"
    }

    /// Without the packages it comes from.
    pub fn class_name(&self) -> &str {
        if self.class.is_empty() { "Linear" } else { self.class.rsplit('.').next().unwrap_or_default() }
    }
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ModulesError {
    #[error("line {line}: the module '{name}' is listed twice")]
    Twice { line: usize, name: String },
    #[error("line {0}: a name, or a name and a class with a tab between them, is expected")]
    Line(usize),
    #[error("no module is listed")]
    Empty,
}

/// The plan's sites, each a linear, but for those that are no modules.
pub fn modules_of(plan: &Plan) -> Vec<Module> {
    plan.sites.iter().filter(|site| !site.is_ours_alone()).map(|site| Module::new(site.site.as_str(), "")).collect()
}

/// One name a line, optionally a tab and its class. Empty lines are skipped: the root of a model has no name.
pub fn modules_from_text(text: &str) -> Result<Vec<Module>, ModulesError> {
    let (mut modules, mut seen) = (Vec::new(), HashMap::new());
    for (at, line) in text.split('\n').enumerate() {
        let line = line.strip_suffix('\r').unwrap_or(line);
        let mut parts = line.split('\t');
        let (name, class) = (parts.next().unwrap_or_default(), parts.next().unwrap_or_default().trim());
        if parts.next().is_some() {
            return Err(ModulesError::Line(at + 1));
        }
        if name.is_empty() {
            continue;
        }
        if seen.insert(name, ()).is_some() {
            return Err(ModulesError::Twice { line: at + 1, name: name.to_owned() });
        }
        modules.push(Module::new(name, class));
    }
    if modules.is_empty() { Err(ModulesError::Empty) } else { Ok(modules) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_with_and_without_a_class() {
        let modules = modules_from_text("a.b\r\nc\ttorch.nn.Linear\n\n d \tReLU\n").unwrap();
        assert_eq!(modules, [Module::new("a.b", ""), Module::new("c", "torch.nn.Linear"), Module::new(" d ", "ReLU")]);
        assert_eq!(modules.iter().map(Module::is_linear).collect::<Vec<_>>(), [true, true, false]);
        assert!(modules[0].is_plain_linear() && modules[1].is_plain_linear() && !modules[2].is_plain_linear());
        assert!(!Module::new("a", "ScaledLinear").is_plain_linear());
        assert_eq!((modules[0].class_name(), modules[1].class_name()), ("Linear", "Linear"));
    }

    #[test]
    fn what_is_no_list_is_refused() {
        let error = |text: &str| modules_from_text(text).unwrap_err().to_string();
        assert_eq!(error("a\nb\na\tReLU"), "line 3: the module 'a' is listed twice");
        assert_eq!(error("a\tb\tc"), "line 1: a name, or a name and a class with a tab between them, is expected");
        assert_eq!(error("\n\n"), "no module is listed");
    }
}
