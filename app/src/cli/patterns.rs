//! Names chosen by patterns, e.g. 'cublaslt/*'.

use anyhow::Context;
use globset::{Glob, GlobSet, GlobSetBuilder};
use loka_core::model::{Kernel, catalogue};

pub fn globs(patterns: &[String]) -> anyhow::Result<GlobSet> {
    let mut builder = GlobSetBuilder::new();
    for pattern in patterns {
        builder.add(Glob::new(pattern).with_context(|| format!("'{pattern}' is not a pattern"))?);
    }
    builder.build().context("these patterns cannot be combined")
}

/// No pattern at all matches everything.
pub fn matches(wanted: &GlobSet, name: &str) -> bool {
    wanted.is_empty() || wanted.is_match(name)
}

/// The catalogue's kernels that match; an error when none does.
pub fn kernels(patterns: &[String]) -> anyhow::Result<Vec<&'static Kernel>> {
    let wanted = globs(patterns)?;
    let kernels: Vec<&'static Kernel> = catalogue().iter().filter(|kernel| matches(&wanted, kernel.name)).collect();
    anyhow::ensure!(!kernels.is_empty(), "no kernel matches {} (see `loka kernels`)", patterns.join(", "));
    Ok(kernels)
}
