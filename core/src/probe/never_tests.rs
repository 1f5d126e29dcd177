//! A probe of a site that training takes no gradient of: what never runs is not drawn, and what runs is drawn as before.

use std::{path::Path, sync::Mutex};

use super::*;
use crate::{
    engine::{Control, CpuEngine},
    model::{Gemm, Grads, ResultRow, Site, SiteId, kernel},
    trace::{SiteStats, Trace},
};

struct Frozen {
    trace: Trace,
    grads: Grads,
}

impl SiteSource for Frozen {
    fn sites(&self) -> Vec<Site> {
        self.trace.sites().iter().map(|entry| Site { grads: self.grads, ..entry.site.clone() }).collect()
    }

    fn quantile_probs(&self) -> Vec<f64> {
        self.trace.quantile_probs()
    }

    fn loss(&self) -> f64 {
        self.trace.loss()
    }

    fn loss_weight(&self) -> f64 {
        self.trace.loss_weight()
    }

    fn stats(&self, id: &SiteId) -> Result<SiteStats, String> {
        let mut stats = self.trace.stats(id)?;
        stats.site.grads = self.grads;
        Ok(stats)
    }
}

fn probed(grads: Grads) -> Vec<ResultRow> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../sample-traces/wukong-clicks.trace.safetensors");
    let source = Frozen { trace: Trace::open(&path).unwrap(), grads };
    let config = ProbeConfig {
        kernels: vec![kernel("cublaslt/bf16").unwrap()],
        min_draws: 2,
        max_draws: 2,
        threads: 1,
        ..ProbeConfig::default()
    };
    let rows = Mutex::new(std::collections::BTreeMap::new());
    let chosen = [SiteId::new("net.top.2")];
    probe(&source, &chosen, &CpuEngine, &config, &Control::new(), &|event| match event {
        ProbeEvent::Rows(new) => rows.lock().unwrap().extend(new.into_iter().map(|row| (row.gemm, row))),
        ProbeEvent::Problem(site, reason) => panic!("{site}: {reason}"),
        ProbeEvent::Progress(_) | ProbeEvent::Lost(_) => {}
    });
    rows.into_inner().unwrap().into_values().collect()
}

#[test]
fn what_never_runs_has_no_rows_and_changes_no_others() {
    let all = probed(Grads::default());
    assert_eq!(all.iter().map(|row| row.gemm).collect::<Vec<_>>(), Gemm::ALL);
    for (grads, left_out) in [
        (Grads { input: false, weight: true }, vec![Gemm::Dgrad]),
        (Grads { input: true, weight: false }, vec![Gemm::Wgrad]),
        (Grads { input: false, weight: false }, vec![Gemm::Dgrad, Gemm::Wgrad]),
    ] {
        let expected: Vec<ResultRow> = all.iter().filter(|row| !left_out.contains(&row.gemm)).cloned().collect();
        assert_eq!(probed(grads), expected);
    }
}
