//! Takes what each module should become and what the framework would make of it, gives the difference.

use std::collections::HashSet;

use super::{Module, Refusal, job::Job, text::one_line};

/// What a framework does with a module that no rule of the file, or one that says so, leaves in high precision.
pub const LEFT: &str = "left in high precision";

/// The text that would be written, read back and played against every module.
pub type Resolved = Result<Vec<String>, String>;

pub fn check(job: &Job<'_>, intended: &[String], resolved: Resolved) -> Result<(), Refusal> {
    let target = job.target;
    let resolved =
        resolved.map_err(|why| Refusal::new(format!("{target} would not read what this plan needs: {why}")))?;
    let differences: Vec<String> = job
        .modules
        .iter()
        .zip(intended.iter().zip(&resolved))
        .filter(|(_, (intended, resolved))| intended != resolved)
        .map(|(module, (intended, resolved))| format!("{}: {resolved}; the plan: {intended}", one_line(&module.name)))
        .collect();
    if !differences.is_empty() {
        let cause = format!("{target} would not match the plan's layers: {} differ", differences.len());
        return Err(Refusal::with(cause, differences));
    }
    Ok(())
}

/// Names of modules with a linear inside: a framework that puts another module in the place of such a one drops what
/// is inside.
pub fn around_linears(modules: &[Module]) -> HashSet<&str> {
    let inside = modules.iter().filter(|module| module.is_linear());
    inside.flat_map(|module| module.name.match_indices('.').map(|(at, _)| &module.name[..at])).collect()
}

/// Names that the file has and the model lacks: a rule that hits nothing is an error before it is silence.
pub fn unknown<'a>(names: impl Iterator<Item = &'a str>, modules: &[Module]) -> Result<(), String> {
    let known: HashSet<&str> = modules.iter().map(|module| module.name.as_str()).collect();
    match names.into_iter().find(|name| !known.contains(name)) {
        Some(name) => Err(format!("'{}' hits no module", one_line(name))),
        None => Ok(()),
    }
}
