//! Takes results, a policy, mods and overrides, gives the plan.

use std::collections::{BTreeMap, BTreeSet};

use crate::{
    dispatch::{Candidates, Chain, Choice, Dispatch, Document, Optimum, Overrides, Policy, WarningKind, dispatch},
    format::short,
    model::{Gemm, ModSet, Results, ResultsMeta, Runtime, Site, SiteId, SiteMods},
};

use super::{
    document::{FORMAT, Plan, PlanError, PlanSite, VERSION},
    results_digest::results_digest,
};

/// A plan and what to say beside it.
#[derive(Clone, Debug, PartialEq)]
pub struct Built {
    pub plan: Plan,
    pub warnings: Vec<String>,
    pub optimum: Option<Optimum>,
    /// Of each site of the plan: [`Dispatch::together`].
    pub together: Vec<Option<f64>>,
    /// Launched, the host would be slower than the GPU: a warning says by how much.
    pub is_slow_host: bool,
}

/// For a launched step. `created_at`: RFC 3339, from the caller: nothing here looks at a clock.
pub fn build(
    results: &Results,
    policy: &Policy,
    mods: &SiteMods,
    overrides: &Overrides,
    name: &str,
    created_at: &str,
) -> Result<Built, PlanError> {
    build_for(Runtime::default(), results, policy, mods, overrides, (name, created_at))
}

/// The same for any runtime.
pub fn build_for(
    runtime: Runtime,
    results: &Results,
    policy: &Policy,
    mods: &SiteMods,
    overrides: &Overrides,
    (name, created_at): (&str, &str),
) -> Result<Built, PlanError> {
    policy.validate()?;
    mods_were_probed(results, mods)?;
    let candidates = Candidates::at(results, mods, runtime);
    let manifest = &results.meta.manifest;
    let decided = dispatch(&candidates, policy, overrides, manifest.loss.value)?;
    let mut warnings: Vec<String> = decided.warnings.iter().map(|warning| warning.text.clone()).collect();
    warnings.extend(confidence_gap(results, policy));
    let is_slow_host = decided.warnings.iter().any(|warning| warning.kind == WarningKind::SlowHost);
    let (optimum, together) = (decided.optimum, decided.together.clone());
    let document = Document { runtime, policy: policy.clone(), mods: mods.clone(), overrides: Overrides::new() };
    let mut plan = of_decided(&results.meta, &document, decided, name);
    created_at.clone_into(&mut plan.created_at);
    plan.results_digest = results_digest(&results.rows);
    plan.digest = plan.content_digest();
    Ok(Built { plan, warnings, optimum, together, is_slow_host })
}

/// What was decided as a plan without a date, without any digest of its own or of its rows: to compare with, or to
/// be completed.
pub(crate) fn of_decided(meta: &ResultsMeta, document: &Document, decided: Dispatch, name: &str) -> Plan {
    let (sites, Dispatch { choices, chains, totals, .. }) = (&meta.manifest.sites, decided);
    Plan {
        format: FORMAT.to_owned(),
        version: VERSION,
        runtime: document.runtime,
        device: None,
        name: name.to_owned(),
        created_at: String::new(),
        model: meta.manifest.model.clone(),
        trace_digest: meta.trace_digest.clone(),
        results_digest: String::new(),
        policy: document.policy.clone(),
        mods: mods_by_site(sites, &document.mods),
        sites: by_site(sites, document.runtime, choices, chains),
        totals,
        authors: Vec::new(),
        release: None,
        digest: String::new(),
        approvals: Vec::new(),
        review: None,
        draft: None,
    }
}

/// Intervals narrower than the policy asks for would call too much safe.
pub(super) fn confidence_gap(results: &Results, policy: &Policy) -> Option<String> {
    let (has, asks) = (results.meta.confidence, policy.confidence);
    (has < asks - 1e-12).then(|| {
        format!("the results' intervals are at {} confidence, the policy asks for {}", short(has), short(asks))
    })
}

/// The choices come three a site, in the order of the candidates.
fn by_site(of: &[Site], runtime: Runtime, choices: Vec<Choice>, mut chains: BTreeMap<usize, Chain>) -> Vec<PlanSite> {
    let mut choices = choices.into_iter();
    let mut sites = Vec::with_capacity(of.len());
    for (at, site) in of.iter().enumerate() {
        let (Some(fprop), Some(dgrad), Some(wgrad)) = (choices.next(), choices.next(), choices.next()) else { break };
        let (m, k, n) = (Some(site.m), Some(site.k), Some(site.n));
        let chain = chains.remove(&at);
        let forward = site.forward.clone().filter(|word| site.fixed().is_some() || word.is_ours_alone());
        let (site_id, calls) = (site.id.clone(), site.calls);
        let never_runs = Gemm::ALL.into_iter().filter(|&gemm| !(runtime.runs(gemm) && site.runs(gemm))).collect();
        sites.push(PlanSite { site: site_id, m, k, n, calls, never_runs, forward, fprop, dgrad, wgrad, chain });
    }
    sites
}

fn mods_by_site(sites: &[Site], mods: &SiteMods) -> BTreeMap<SiteId, ModSet> {
    let ids = sites.iter().map(|site| &site.id);
    ids.map(|id| (id.clone(), mods.of(id).clone())).filter(|(_, set)| !set.is_empty()).collect()
}

/// A set of mods that no row has would silently put everything in high precision.
pub(super) fn mods_were_probed(results: &Results, mods: &SiteMods) -> Result<(), PlanError> {
    let sites: BTreeSet<&SiteId> = results.meta.manifest.sites.iter().map(|site| &site.id).collect();
    if let Some(unknown) = mods.exceptions().map(|(site, _)| site).find(|site| !sites.contains(site)) {
        return Err(PlanError::UnknownModSite(unknown.clone()));
    }
    let known: BTreeSet<&ModSet> = results.rows.iter().map(|row| &row.mods).collect();
    let asked: BTreeSet<&ModSet> = sites.iter().map(|site| mods.of(site)).filter(|set| !set.is_empty()).collect();
    match asked.into_iter().find(|set| !known.contains(set)) {
        Some(set) => {
            let known: Vec<String> = known.iter().map(|set| format!("'{set}'")).collect();
            let known = if known.is_empty() { "none".to_owned() } else { known.join(", ") };
            Err(PlanError::NoRows { asked: set.to_string(), known })
        }
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        dispatch::testing::{results, row},
        model::{Gemm, ModKind},
    };
    use serde_json::json;

    fn make(results: &Results, mods: &SiteMods) -> Result<Built, PlanError> {
        build(results, &Policy::paper(), mods, &Overrides::new(), "p", "2026-11-20T00:00:00Z")
    }

    #[test]
    fn every_site_of_the_trace_is_listed_also_an_unusable_one() {
        let mut results = results(&["a", "b"], vec![]);
        results.rows.retain(|row| row.site.as_str() == "a");
        results.meta.problems.push((SiteId::new("b"), "input.cov is not symmetric".to_owned()));
        let plan = make(&results, &SiteMods::default()).unwrap().plan;
        assert_eq!(plan.sites.len(), 2);
        assert_eq!(plan.sites[1].wgrad.reason, "high precision: not probed, input.cov is not symmetric");
        assert_eq!((plan.totals.num_gemms, plan.totals.num_without_latency), (6, 3));
    }

    #[test]
    fn mods_are_listed_by_site_and_must_have_been_probed() {
        let mut results = results(&["a", "b"], vec![]);
        let set = ModSet([ModKind::NoBias].into());
        let error = make(&results, &set.clone().into()).unwrap_err();
        assert_eq!(error.to_string(), "the results have no rows with mods 'no_bias' (they have: '')");
        let mut modified = row("a", Gemm::Fprop, "te/current", 0.1, Some(1.5), 0.0);
        modified.mods = set.clone();
        results.rows.push(modified);
        let only_a = SiteMods::new(ModSet::none(), [(SiteId::new("a"), set.clone())].into());
        let plan = make(&results, &only_a).unwrap().plan;
        assert_eq!(plan.mods, BTreeMap::from([(SiteId::new("a"), set.clone())]));
        assert_eq!(plan.sites[0].fprop.kernel.as_str(), "te/current");
        let elsewhere = SiteMods::new(ModSet::none(), [(SiteId::new("x"), set)].into());
        assert_eq!(make(&results, &elsewhere).unwrap_err().to_string(), "mods for an unknown site 'x'");
    }

    #[test]
    fn a_host_that_would_be_the_slower_one_is_known_to_who_prints_the_gain() {
        let mut results = results(&["a"], vec![row("a", Gemm::Fprop, "te/current", 0.1, Some(1.5), 0.0)]);
        let pace = json!({"steps": 6, "waited": 6, "host_ms": 9.0, "step_ms": 9.1});
        results.meta.manifest.run.extra.insert("pace".to_owned(), pace);
        let of = |runtime| {
            let (policy, mods) = (Policy::paper(), SiteMods::default());
            build_for(runtime, &results, &policy, &mods, &Overrides::new(), ("p", "2026-11-20T00:00:00Z")).unwrap()
        };
        let (launched, replayed) = (of(Runtime::Launched), of(Runtime::Graph));
        assert_eq!((launched.is_slow_host, replayed.is_slow_host), (true, false));
        assert!(launched.warnings.iter().any(|warning| warning.contains("the GPU waited for its host")));
    }

    #[test]
    fn narrow_intervals_are_warned_of() {
        let mut results = results(&["a"], vec![]);
        results.meta.confidence = 0.8;
        let warnings = make(&results, &SiteMods::default()).unwrap().warnings;
        assert_eq!(warnings, ["the results' intervals are at .8 confidence, the policy asks for .95"]);
    }
}
