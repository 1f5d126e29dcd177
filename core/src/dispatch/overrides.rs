//! A person's own choices, by site and GEMM; what they may not be.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::model::{Gemm, KernelId, SiteId};

use super::{Candidates, Group};

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Override {
    pub kernel: KernelId,
    #[serde(default)]
    pub reason: String,
}

pub type Overrides = BTreeMap<(SiteId, Gemm), Override>;

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum OverrideError {
    #[error("override of an unknown site '{0}'")]
    UnknownSite(SiteId),
    #[error("override of an unknown site '{site}'{}", listed(.nearest))]
    NoSuchSite { site: SiteId, nearest: Vec<SiteId> },
    #[error("override of {site}:{gemm} with an unknown kernel '{kernel}'")]
    UnknownKernel { site: SiteId, gemm: Gemm, kernel: KernelId },
    #[error("override of {site}:{gemm} with {kernel}, which was not probed there")]
    NotProbed { site: SiteId, gemm: Gemm, kernel: KernelId },
    #[error("override of {site}:{gemm}, which never runs: training does not need it")]
    NeverRuns { site: SiteId, gemm: Gemm },
    #[error("override of {site}:{gemm} with {kernel}, which does not run there: {reason}")]
    Unsupported { site: SiteId, gemm: Gemm, kernel: KernelId, reason: String },
}

fn listed(nearest: &[SiteId]) -> String {
    let names: Vec<&str> = nearest.iter().map(SiteId::as_str).collect();
    if names.is_empty() { String::new() } else { format!(" (nearest: {})", names.join(", ")) }
}

/// The overrides in the order of the groups. The baseline runs everywhere, probed or not.
pub(super) fn by_group<'o>(
    candidates: &Candidates,
    overrides: &'o Overrides,
    baseline: &KernelId,
) -> Result<Vec<Option<&'o Override>>, OverrideError> {
    let found: Vec<Option<&Override>> = if overrides.is_empty() {
        vec![None; candidates.groups.len()]
    } else {
        candidates.groups.iter().map(|group| overrides.get(&(group.site.id.clone(), group.gemm))).collect()
    };
    if found.iter().flatten().count() < overrides.len() {
        let known: std::collections::BTreeSet<&SiteId> = candidates.groups.iter().map(|group| &group.site.id).collect();
        if let Some((site, _)) = overrides.keys().find(|(site, _)| !known.contains(site)) {
            return Err(OverrideError::UnknownSite(site.clone()));
        }
    }
    for (group, wanted) in candidates.groups.iter().zip(&found) {
        if let Some(wanted) = wanted.filter(|wanted| wanted.kernel != *baseline) {
            allowed(group, wanted)?;
        }
    }
    Ok(found)
}

fn allowed(group: &Group, wanted: &Override) -> Result<(), OverrideError> {
    let (site, gemm, kernel_id) = (group.site.id.clone(), group.gemm, wanted.kernel.clone());
    if !group.site.runs(gemm) {
        return Err(OverrideError::NeverRuns { site, gemm });
    }
    match group.row(&wanted.kernel) {
        Some(row) if row.supported => Ok(()),
        Some(row) => {
            let reason = row.reason.as_deref().unwrap_or("no reason was given").to_owned();
            Err(OverrideError::Unsupported { site, gemm, kernel: kernel_id, reason })
        }
        None if wanted.kernel.known().is_none() => Err(OverrideError::UnknownKernel { site, gemm, kernel: kernel_id }),
        None => Err(OverrideError::NotProbed { site, gemm, kernel: kernel_id }),
    }
}
