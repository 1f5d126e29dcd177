//! Takes a plan, the model's modules and a target, gives the files that the target's framework reads, with what
//! they lose; or refuses. Pure; the caller writes the files.
//!
//! Every framework finds layers by names in its own way, and a name that hits nothing, or one too many, is silent
//! in all of them. So the text that would be written is read back, each framework's own rule ([`matchers`]) is
//! played against every module, and unless that gives the plan the export is refused with the difference.
//!
//! What is lost is never made up for by less precision: a layer that a target cannot split stays whole in high
//! precision, a granularity that it lacks becomes a finer one, and where there is none high precision.

mod job;
mod loss;
pub mod matchers;
mod module;
mod provenance;
mod refusal;
mod resolution;
mod scheme;
mod target;
mod targets;
mod text;

#[cfg(test)]
mod site_tests;
#[cfg(test)]
mod testing;
#[cfg(test)]
mod tests;

pub use loss::{Loss, LossKind};
pub use module::{Module, ModulesError, modules_from_text, modules_of};
pub use provenance::{PROVENANCE_SUFFIX, status_of};
pub use refusal::Refusal;
pub use target::{Target, UnknownTarget};

use crate::plan::Plan;
use job::Job;

/// A file to write: what its name adds to the one asked for, and its text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct File {
    pub suffix: String,
    pub text: String,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Export {
    /// The first has no suffix.
    pub files: Vec<File>,
    /// What the target cannot say: nothing is to be written before somebody accepts it.
    pub losses: Vec<Loss>,
    /// Worth telling, nothing to accept.
    pub notes: Vec<String>,
    /// Modules that the files were resolved against.
    pub num_modules: usize,
    /// Layers that will run in FP8, in part or whole: by the framework that reads the files, or by the plan that they
    /// only show.
    pub num_fp8: usize,
    /// Modules with an error to look at, of a target that shows the plan and runs nothing.
    pub num_shown: Option<usize>,
}

impl Export {
    /// How much of the model runs in FP8 by the files, in a line.
    pub fn summary(&self, target: Target) -> String {
        let (num_fp8, num_modules, with) = (self.num_fp8, self.num_modules, target.proved_with());
        match self.num_shown {
            Some(num_shown) => format!(
                "the errors of {num_shown} of {num_modules} modules, {num_fp8} of them in FP8 by the plan, found as \
                 {target} would ({with})"
            ),
            None => format!("{num_fp8} of {num_modules} modules in FP8, resolved as {target} would ({with})"),
        }
    }
}

/// `status`: of the plan's review, a line; may be empty.
pub fn export(plan: &Plan, modules: &[Module], target: Target, status: &str) -> Result<Export, Refusal> {
    let job = Job::new(plan, modules, target, status)?;
    let format = targets::format(target);
    let written = (format.write)(&job)?;
    if let Some(file) = written.files.first() {
        resolution::check(&job, &written.settings, (format.resolve)(&file.text, modules))?;
    }
    Ok(job.finish(written))
}
