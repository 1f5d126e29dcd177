//! Mods at some sites of the sample trace: whose rows change, and that nothing else does.

#![allow(clippy::unwrap_used, clippy::panic, reason = "tests")]

use std::{
    collections::{BTreeMap, BTreeSet},
    path::Path,
    sync::Mutex,
};

use super::{Control, ProbeConfig, ProbeEvent, probe};
use crate::{
    engine::{CpuEngine, Feeds},
    model::{ErrorSummary, Gemm, KernelId, ModKind, ModSet, ResultRow, SiteId, SiteMods, kernel},
    trace::Trace,
};

/// The first feeds the second and the second the third, each through a layer norm; the last stands apart.
const SITES: [&str; 4] = ["net.layers.0.fmb.mlp.0", "net.layers.0.fmb.mlp.3", "net.layers.0.fmb.mlp.6", "net.top.2"];
const KERNELS: [&str; 2] = ["cublaslt/bf16", "cublaslt/fp8-rowwise"];

type Rows = BTreeMap<(SiteId, Gemm, KernelId), ResultRow>;

fn trace() -> Trace {
    Trace::open(&Path::new(env!("CARGO_MANIFEST_DIR")).join("../sample-traces/wukong-clicks.trace.safetensors"))
        .unwrap()
}

fn rows(trace: &Trace, mods: &SiteMods) -> Rows {
    let config = ProbeConfig {
        kernels: KERNELS.map(|name| kernel(name).unwrap()).to_vec(),
        mods: mods.clone(),
        min_draws: 3,
        max_draws: 3,
        ..ProbeConfig::default()
    };
    let found = Mutex::new(Rows::new());
    probe(trace, &SITES.map(SiteId::new), &CpuEngine, &config, &Control::new(), &|event| match event {
        ProbeEvent::Rows(rows) => {
            let keyed = rows.into_iter().map(|row| ((row.site.clone(), row.gemm, row.kernel.clone()), row));
            found.lock().unwrap().extend(keyed);
        }
        ProbeEvent::Problem(site, reason) => panic!("{site}: {reason}"),
        ProbeEvent::Progress(_) | ProbeEvent::Lost(_) => {}
    });
    let found = found.into_inner().unwrap();
    assert_eq!(found.len(), SITES.len() * Gemm::ALL.len() * KERNELS.len());
    found
}

fn of<'a>(rows: &'a Rows, site: &str) -> BTreeMap<(Gemm, &'a KernelId), &'a ResultRow> {
    rows.iter().filter(|((id, ..), _)| id.as_str() == site).map(|((_, gemm, id), row)| ((*gemm, id), row)).collect()
}

/// BlockNorm at some sites, nothing at the others.
fn at(sites: &[&str]) -> SiteMods {
    let ids: Vec<SiteId> = sites.iter().map(|site| SiteId::new(site)).collect();
    SiteMods::none().with(ModKind::BlockNorm, true, Some(&ids))
}

#[test]
fn a_mod_at_one_feeder_is_felt_where_it_feeds_and_nowhere_else() {
    let trace = trace();
    let (plain, with) = (rows(&trace, &SiteMods::none()), rows(&trace, &at(&SITES[1..2])));
    for site in [SITES[0], SITES[3]] {
        assert_eq!(of(&plain, site), of(&with, site), "{site} is not fed by it");
    }
    // The modified site's own GEMMs are as they were; what follows them is not.
    let own = ModSet([ModKind::BlockNorm].into());
    for (key, before) in of(&plain, SITES[1]) {
        let after = of(&with, SITES[1])[&key];
        let without_block =
            |row: &ResultRow| row.error.as_ref().map(|error| ErrorSummary { block_rel_l2: None, ..error.clone() });
        assert_eq!((&after.mods, &after.sampler), (&own, &before.sampler));
        assert_eq!(without_block(after), without_block(before), "{key:?}");
        assert_eq!(after.error == before.error, key.0 != Gemm::Fprop, "{key:?}");
    }
    for (key, before) in of(&plain, SITES[2]) {
        let after = of(&with, SITES[2])[&key];
        assert_eq!((after.mods.is_empty(), &*after.sampler), (true, &*format!("through {}", SITES[1])));
        // dgrad reads output gradients, which stay as recorded.
        assert_eq!(after.error == before.error, key.0 == Gemm::Dgrad, "{key:?}");
    }
}

#[test]
fn a_chain_begins_at_the_modified_feeder_and_each_block_keeps_its_own_mods() {
    let trace = trace();
    let all: Vec<Rows> = [&SITES[..1], &SITES[1..2], &SITES[..2]].map(|sites| rows(&trace, &at(sites))).into();
    let fprop = |rows: &Rows| rows[&(SiteId::new(SITES[2]), Gemm::Fprop, KernelId::new(KERNELS[1]))].error.clone();
    let errors: Vec<_> = all.iter().map(fprop).collect();
    for (index, error) in errors.iter().enumerate() {
        assert!(error.is_some() && !errors[..index].contains(error), "{index}: three models, three errors");
    }
}

#[test]
fn equal_contexts_give_equal_rows() {
    let trace = trace();
    let everywhere = SiteMods::from(ModSet([ModKind::BlockNorm].into()));
    let all: Vec<SiteId> = trace.manifest().sites.iter().map(|site| site.id.clone()).collect();
    let one_by_one = SiteMods::none().with(ModKind::BlockNorm, true, Some(&all));
    assert_ne!(everywhere, one_by_one, "a site that is not listed would differ");
    let here = at(&SITES[..2]).with(ModKind::HardSwish, true, Some(&[SiteId::new(SITES[3])]));
    let feeds = Feeds::new(&trace.manifest().sites);
    let found = [&everywhere, &one_by_one, &here].map(|mods| rows(&trace, mods));
    assert_eq!(found[0], found[1]);
    let mut equal = BTreeSet::new();
    for site in SITES {
        let id = SiteId::new(site);
        let same = feeds.context(&id, &everywhere) == feeds.context(&id, &here);
        assert_eq!(of(&found[0], site) == of(&found[2], site), same, "{site}");
        equal.extend(same.then_some(site));
    }
    // The third has BlockNorm itself or not, and the last hard swish.
    assert_eq!(equal, BTreeSet::from([SITES[0], SITES[1]]));
}
