//! A part: its key, its rows, and the seal over both.

use std::collections::HashMap;

use serde::{Deserialize, Serialize};

use crate::{
    model::{Gemm, Results, SiteId, canonical_json, sha256_of},
    plan::results_digest,
};

use super::{PartKey, RunKey, fault::PartFault};

/// A part as a file holds it. Its manifest has its own sites alone.
#[derive(Clone, Debug, PartialEq)]
pub struct ProbePart {
    pub key: PartKey,
    pub results: Results,
}

/// What a part's metadata key holds: `loka.part` of a probe's, `loka.bench-part` of a bench's.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Sealed<R = RunKey> {
    pub key: PartKey<R>,
    pub seal: String,
}

impl ProbePart {
    /// Over the key, the circumstances and every row.
    fn seal(&self) -> String {
        let meta = serde_json::to_value(&self.results.meta).unwrap_or_default();
        let rows = results_digest(&self.results.rows);
        let value = serde_json::json!({"key": self.key, "meta": meta, "rows": rows, "count": self.results.rows.len()});
        sha256_of(canonical_json(&value).as_bytes())
    }

    pub fn sealed(&self) -> Sealed {
        Sealed { key: self.key.clone(), seal: self.seal() }
    }

    /// A part that was read, once its seal, its circumstances and its rows fit its key.
    pub fn opened(sealed: Sealed, results: Results) -> Result<Self, PartFault> {
        let part = Self { key: sealed.key, results };
        if part.seal() != sealed.seal {
            return Err(PartFault::Seal);
        }
        part.check_meta()?;
        part.check_rows()?;
        Ok(part)
    }

    /// A file's name is what others look for it by.
    pub fn check_name(&self, name: &str) -> Result<(), PartFault> {
        self.key.check_name(name)
    }

    fn check_meta(&self) -> Result<(), PartFault> {
        let (meta, run) = (&self.results.meta, &self.key.run);
        let pairs = [
            ("trace", meta.trace_digest.clone(), run.trace.clone()),
            ("engine", meta.engine.clone(), run.engine.clone()),
            ("device", meta.device.clone(), run.device.clone()),
            ("versions", meta.versions.clone(), run.versions.clone()),
            ("seed", meta.seed.to_string(), run.seed.to_string()),
            ("confidence", meta.confidence.to_string(), run.confidence.to_string()),
            (
                "number of sites",
                meta.manifest.sites.len().to_string(),
                self.key.end.saturating_sub(self.key.first).to_string(),
            ),
        ];
        let wrong = pairs.into_iter().find(|(_, found, expected)| found != expected);
        wrong.map_or(Ok(()), |(what, found, expected)| Err(PartFault::Meta { what, found, expected }))
    }

    /// Every kernel at every GEMM of a site, or no row of it.
    fn check_rows(&self) -> Result<(), PartFault> {
        let run = &self.key.run;
        let mut counts: HashMap<&SiteId, usize> = HashMap::new();
        for row in &self.results.rows {
            let wrong =
                |found: String, expected: String| Err(PartFault::Row { of: row.site.to_string(), found, expected });
            if (&*row.engine, &*row.device, row.seed) != (&*run.engine, &*run.device, run.seed) {
                let said = |engine: &str, device: &str, seed| format!("of {engine} on {device} with seed {seed}");
                return wrong(said(&row.engine, &row.device, row.seed), said(&run.engine, &run.device, run.seed));
            }
            if !run.kernels.iter().any(|kernel| kernel == row.kernel.as_str()) {
                return wrong(format!("of {}", row.kernel), "other kernels".to_owned());
            }
            let mods = row.mods.to_string();
            // Of a digest nothing follows for one row: whoever asked for these mods has them.
            if !run.mods.contains(&mods) && !run.mods.iter().any(|pass| pass.starts_with("sha256:")) {
                return wrong(format!("with {mods}"), "other mods".to_owned());
            }
            *counts.entry(&row.site).or_default() += 1;
        }
        let problems: Vec<&SiteId> = self.results.meta.problems.iter().map(|(site, _)| site).collect();
        for site in &self.results.meta.manifest.sites {
            let found = counts.get(&site.id).copied().unwrap_or(0);
            let gemms = Gemm::ALL.into_iter().filter(|gemm| site.runs(*gemm)).count();
            let expected = gemms * run.kernels.len() * run.mods.len();
            if found != 0 && found != expected && !problems.contains(&&site.id) {
                return Err(PartFault::Rows { site: site.id.clone(), found, expected });
            }
        }
        Ok(())
    }
}
