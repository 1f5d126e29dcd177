//! Takes names and kernels, gives plans for tests of exports; and names that formats trip over.

use std::collections::BTreeMap;

use serde_json::json;

use crate::{
    dispatch::{Choice, ChoiceSource, Policy, Totals},
    model::{KernelId, Metric, SiteId},
    plan::{FORMAT, Plan, PlanSite, VERSION},
};

pub const HOSTILE: [&str; 44] = [
    "layers.1",
    "layers.10",
    "layers.1.fc1",
    "m.layers.1",
    "1",
    "10",
    "a[0]",
    "a0",
    "[",
    "]",
    "a*b",
    "ab",
    "a?b",
    "axb",
    "a.b",
    "aXb",
    "A.B",
    "it's",
    "\"q\"",
    "back\\slash",
    "a\\",
    "a\nb",
    "a\tb",
    "- x",
    "# c",
    "{a: b}",
    "&x",
    "*x",
    "!t",
    "%",
    "null",
    "true",
    "re:a",
    "re:",
    "_default",
    "Linear",
    "Module",
    "é.日本",
    "ß",
    "a b",
    "$HOME",
    "^a$",
    "(a|b)",
    "x\\Z",
];

pub fn choice(kernel: &str) -> Choice {
    Choice {
        kernel: KernelId::new(kernel),
        source: ChoiceSource::Dispatch,
        reason: "a test".to_owned(),
        together: None,
        error: BTreeMap::from([(Metric::Mere, 0.1), (Metric::RelL2, 0.05)]),
        speedup: Some(1.2),
        static_scale: None,
        flushed: None,
        rel_l2_lo: None,
        rel_l2_hi: None,
        rel_l2_first: None,
        rel_l2_last: None,
        saturation: None,
        runners_up: Vec::new(),
        passed_over: BTreeMap::new(),
    }
}

/// Each site with the kernels of fprop, dgrad and wgrad.
pub fn plan(sites: &[(&str, [&str; 3])]) -> Plan {
    let sites: Vec<PlanSite> = sites
        .iter()
        .map(|(name, [fprop, dgrad, wgrad])| PlanSite {
            site: SiteId::new(name),
            m: None,
            k: None,
            n: None,
            calls: 1,
            never_runs: Vec::new(),
            forward: None,
            fprop: choice(fprop),
            dgrad: choice(dgrad),
            wgrad: choice(wgrad),
            chain: None,
        })
        .collect();
    let mut plan: Plan = serde_json::from_value(json!({
        "format": FORMAT, "version": VERSION, "name": "nightly", "created_at": "", "model": {"name": "toy"},
        "trace_digest": "sha256:00", "results_digest": "sha256:00", "policy": Policy::paper(), "mods": {},
        "sites": sites, "totals": Totals::default(), "digest": "",
    }))
    .unwrap();
    plan.stamp("2026-11-20T00:00:00Z".to_owned());
    plan
}

/// The same kernel for the three GEMMs.
pub fn uniform<'a>(name: &'a str, kernel: &'a str) -> (&'a str, [&'a str; 3]) {
    (name, [kernel; 3])
}
