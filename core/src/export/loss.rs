//! Takes what a target cannot say of each site, gives one line for each kind of loss with how many it concerns.

use std::{collections::BTreeMap, fmt};

use serde::Serialize;

use super::text::one_line;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum LossKind {
    /// Sites that are not among the modules given.
    Missing,
    /// Model changes.
    Mods,
    /// A choice a GEMM, where the target has one a layer.
    PerGemm,
    /// dgrad and wgrad, where the target is for inference.
    Backward,
    /// Sizes that `loka.apply` pads for FP8, and the framework does not.
    Widths,
    /// How many elements share a scale.
    Granularity,
    /// Which numbers scales may be.
    Scales,
    /// How products are summed.
    Accumulation,
    /// Who runs the GEMM.
    Kernels,
    /// High precision that is not the model's own.
    HighPrecision,
    /// What the run says, not the file.
    Run,
    /// Errors that are not known.
    Errors,
}

impl LossKind {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Missing => "missing",
            Self::Mods => "mods",
            Self::PerGemm => "per-gemm",
            Self::Backward => "backward",
            Self::Widths => "widths",
            Self::Granularity => "granularity",
            Self::Scales => "scales",
            Self::Accumulation => "accumulation",
            Self::Kernels => "kernels",
            Self::HighPrecision => "high-precision",
            Self::Run => "run",
            Self::Errors => "errors",
        }
    }
}

/// How many sites a loss names.
const NUM_NAMED: usize = 3;

/// What the target cannot express.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Loss {
    pub kind: LossKind,
    pub count: usize,
    /// The first of them, in the plan's order.
    pub sites: Vec<String>,
    pub text: String,
}

impl fmt::Display for Loss {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<String> = self.sites.iter().map(|site| one_line(site)).collect();
        let (plural, more) =
            (if self.count == 1 { "" } else { "s" }, if self.count > names.len() { ", …" } else { "" });
        write!(f, "{}: {} ({} site{plural}: {}{more})", self.kind.as_str(), self.text, self.count, names.join(", "))
    }
}

/// Collects losses; those of one kind and text are one.
#[derive(Clone, Debug, Default)]
pub struct Losses(BTreeMap<(LossKind, String), Loss>);

impl Losses {
    pub fn add(&mut self, kind: LossKind, text: impl Into<String>, site: &str) {
        let text = text.into();
        let loss = self.0.entry((kind, text.clone())).or_insert(Loss { kind, count: 0, sites: Vec::new(), text });
        loss.count += 1;
        if loss.sites.len() < NUM_NAMED {
            loss.sites.push(site.to_owned());
        }
    }

    /// Of one site: three GEMMs that lose the same are one site that does.
    pub fn add_once(&mut self, of_site: Losses) {
        for Loss { kind, sites, text, .. } in of_site.0.into_values() {
            if let Some(site) = sites.first() {
                self.add(kind, text, site);
            }
        }
    }

    pub fn into_vec(self) -> Vec<Loss> {
        self.0.into_values().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_line_a_kind_and_text() {
        let mut losses = Losses::default();
        for site in ["d", "a", "b\n", "c"] {
            losses.add(LossKind::Scales, "x", site);
        }
        losses.add(LossKind::Mods, "y", "a");
        let lines: Vec<String> = losses.into_vec().iter().map(Loss::to_string).collect();
        assert_eq!(lines, ["mods: y (1 site: a)", "scales: x (4 sites: d, a, b\\n, …)"]);
    }
}
