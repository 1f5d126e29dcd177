//! What a person compares with: a plan that was read, or what was decided here at some moment. Of that one the words, and the
//! document, are made where somebody reads them: to see what differs from it nobody waits for thirty thousand sentences.

use std::sync::{Arc, OnceLock};

use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::{
    dispatch::{Document, OverrideError, Policy, Totals, dispatch, parallel},
    model::{Gemm, KernelId, Metric, ResultRow, SiteMods, SiteRows},
    plan::{self, Decided, Plan},
};

use super::{PlanView, Snapshot};

/// A plan that the present one is compared with, and the rows behind it as far as they are known here.
#[derive(Clone, Debug)]
pub struct Baseline {
    /// As it is called on screen.
    pub name: String,
    pub plan: Arc<BaselinePlan>,
    /// By site of the open trace; `None` where there is none.
    pub rows: Vec<Option<Arc<SiteRows>>>,
    /// Its rows are others than those of now (other results, other mods): a kernel is compared with itself there. Where
    /// they are the same, that would say nothing: then with what the baseline runs.
    pub by_kernel: bool,
    /// It was made of other results, which may lack some GEMMs.
    pub of_results: bool,
}

impl Baseline {
    pub fn rows_of(&self, at: usize, gemm: Gemm) -> &[ResultRow] {
        self.rows.get(at).and_then(Option::as_ref).map_or(&[], |rows| rows.of(gemm))
    }

    pub fn row(&self, at: usize, gemm: Gemm, kernel: &KernelId) -> Option<&ResultRow> {
        self.rows.get(at)?.as_ref()?.get(gemm, kernel)
    }
}

/// The plan itself. It is written down as a document, and read as one.
#[derive(Debug)]
pub enum BaselinePlan {
    Read(Box<Plan>),
    Kept(Box<KeptPlan>),
}

/// What is decided of a moment, once somebody asks.
#[derive(Debug)]
pub struct KeptPlan {
    name: String,
    of: Snapshot,
    view: OnceLock<Arc<PlanView>>,
    document: OnceLock<Plan>,
}

impl KeptPlan {
    fn view(&self) -> &PlanView {
        self.view.get_or_init(|| Arc::new(PlanView::of(&self.of)))
    }

    /// It is compared with and never signed: it has no digest.
    fn document(&self) -> &Plan {
        self.document.get_or_init(|| {
            let (candidates, Document { policy, overrides, .. }) = (self.of.candidates(), &self.of.document);
            let ready = candidates.ready(overrides, &policy.baseline);
            // What is ready was found to be allowed.
            let decided = dispatch(&candidates, policy, &ready, self.of.loss()).unwrap_or_default();
            plan::of_decided(&self.of.trace.meta, &self.of.document, decided, &self.name)
        })
    }
}

impl BaselinePlan {
    /// What is decided of that moment by its policy and overrides.
    pub fn kept(of: &Snapshot, name: String) -> Result<Self, OverrideError> {
        of.candidates().check(&of.document.overrides, &of.document.policy.baseline)?;
        let of = Snapshot { before: Vec::new(), baseline: None, ..of.clone() };
        Ok(Self::Kept(Box::new(KeptPlan { name, of, view: OnceLock::new(), document: OnceLock::new() })))
    }

    /// `plan` is what was decided of `snapshot`: where that is what was kept, it is not decided again.
    pub(super) fn seen(&self, snapshot: &Snapshot, plan: &Arc<PlanView>) {
        if let Self::Kept(kept) = self
            && kept.of.is_decided_as(snapshot)
            && kept.of.document == snapshot.document
        {
            kept.view.get_or_init(|| plan.clone());
        }
    }

    pub fn name(&self) -> &str {
        match self {
            Self::Read(plan) => &plan.name,
            Self::Kept(kept) => &kept.name,
        }
    }

    pub fn document(&self) -> &Plan {
        match self {
            Self::Read(plan) => plan,
            Self::Kept(kept) => kept.document(),
        }
    }

    pub fn policy(&self) -> &Policy {
        match self {
            Self::Read(plan) => &plan.policy,
            Self::Kept(kept) => &kept.of.document.policy,
        }
    }

    pub fn mods(&self) -> SiteMods {
        match self {
            Self::Read(plan) => plan.site_mods(),
            Self::Kept(kept) => kept.of.document.mods.clone(),
        }
    }

    pub fn trace_digest(&self) -> &str {
        match self {
            Self::Read(plan) => &plan.trace_digest,
            Self::Kept(kept) => &kept.of.trace.meta.trace_digest,
        }
    }

    pub fn totals(&self) -> Totals {
        match self {
            Self::Read(plan) => plan.totals,
            Self::Kept(kept) => kept.view().decided.as_ref().map(|decided| decided.totals).unwrap_or_default(),
        }
    }

    /// `None`: nothing could be decided.
    pub fn decided(&self) -> Option<Decided<'_>> {
        match self {
            Self::Read(plan) => Some((&**plan).into()),
            Self::Kept(kept) => kept.view().compared(&kept.of),
        }
    }

    /// The largest error of what runs in low precision, as the plan's document has it.
    pub fn worst(&self, metric: Metric) -> Option<f64> {
        let error = |at: usize, gemm: Gemm| match self {
            Self::Read(plan) => {
                let choice = plan.sites[at].choice(gemm);
                choice.error.get(&metric).copied().filter(|_| choice.kernel.is_low_precision())
            }
            Self::Kept(kept) => {
                let pick = kept.view().pick_at(at, gemm).filter(|pick| pick.kernel.is_low_precision())?;
                Some(kept.of.row(at, gemm, &pick.kernel)?.figure(metric, kept.of.loss())?.value)
            }
        };
        let num_sites = match self {
            Self::Read(plan) => plan.sites.len(),
            Self::Kept(kept) => kept.of.sites().len(),
        };
        let errors = |at: usize| Gemm::ALL.into_iter().filter_map(move |gemm| error(at, gemm));
        let worst = |errors: &mut dyn Iterator<Item = f64>| {
            let known = errors.filter(|error| error.is_finite());
            known.max_by(|a, b| metric.badness(*a).total_cmp(&metric.badness(*b)))
        };
        let parts = parallel::map_ranges(num_sites, |sites| vec![worst(&mut sites.flat_map(errors))]);
        worst(&mut parts.into_iter().flatten())
    }
}

impl PartialEq for BaselinePlan {
    fn eq(&self, other: &Self) -> bool {
        self.document() == other.document()
    }
}

impl Serialize for BaselinePlan {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.document().serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for BaselinePlan {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Plan::deserialize(deserializer).map(|plan| Self::Read(Box::new(plan)))
    }
}
