//! Takes one GEMM with the kernels that its site got, gives the choice as a plan has it: the kernel, why, what else could
//! run and what was passed over.

use std::collections::BTreeMap;

use crate::model::{Fixed, Gemm, KernelId, Metric, ResultRow, Safety};

use super::{
    Choice, ChoiceSource, Override, PassedOver, Pick, PolicyGroup, Together, Warning, WarningKind,
    joint::Triple,
    judged::{Judged, Terms, Verdict, loss_cost_hi},
    reason,
    sharing::{Cost, gemm_speedup, site_us},
    target::Barred,
};

const MAX_RUNNERS_UP: usize = 3;

/// One GEMM among those of its site.
pub(super) struct Place<'p, 'c, 'a> {
    pub judged: &'p Judged<'c, 'a>,
    pub triple: &'p Triple<'a>,
    pub terms: Terms<'p>,
    pub handed: Handed,
}

/// What a GEMM takes, or hands on, as codes.
pub(super) struct Handed {
    /// `None`: nothing.
    pub told: Option<String>,
    /// Without it there would be another kernel.
    pub decided: bool,
    /// What other GEMMs would take longer without the codes that this one stores.
    pub credit_us: f64,
}

impl Place<'_, '_, '_> {
    /// What the GEMM got among those of its site.
    pub(super) fn picked(&self) -> Pick {
        let kernel = self.verdict().map_or(&self.terms.policy.baseline, |verdict| &verdict.row.kernel);
        let together = self.verdict().and_then(|_| self.together());
        self.pick(kernel, ChoiceSource::Dispatch, together)
    }

    /// What a person wants there. `at`: the GEMM's number, for what warns of it.
    pub(super) fn picked_by_hand(&self, wanted: &Override, at: usize, warnings: &mut Vec<Warning>) -> Pick {
        let (site, gemm, kernel) = (&self.judged.group.site.id, self.judged.group.gemm, &wanted.kernel);
        if let Some(fixed) = self.fixed_against(kernel) {
            let text =
                format!("{site}:{gemm} is overridden with {kernel}, which loka.apply will not run there: {fixed}");
            warnings.push(Warning::at(WarningKind::NotApplied, at, text));
        }
        if let Some(broken) = self.broken_by(kernel) {
            let text = format!("{site}:{gemm} is overridden with {kernel}, which breaks the policy: {broken}");
            warnings.push(Warning::at(WarningKind::BreaksPolicy, at, text));
        }
        self.pick(kernel, ChoiceSource::Override, None)
    }

    fn pick(&self, kernel: &KernelId, source: ChoiceSource, together: Option<Together>) -> Pick {
        Pick { kernel: kernel.clone(), source, together, passed_over: self.passed_over(kernel, source) }
    }

    /// The same as a plan has it. `wanted`: what a person wants there.
    pub(super) fn told(&self, pick: &Pick, wanted: Option<&Override>, budget: f64) -> Choice {
        let reason = wanted.map_or_else(|| self.why(budget), |wanted| self.why_by_hand(wanted));
        self.assemble(pick, reason)
    }

    /// The row that the GEMM got; `None`: it stays in high precision.
    fn verdict(&self) -> Option<&Verdict<'_>> {
        let row = self.triple.rows[self.judged.group.gemm as usize]?;
        self.judged.verdicts.iter().find(|verdict| verdict.row.kernel == row.kernel)
    }

    fn why(&self, budget: f64) -> String {
        let (judged, policy) = (self.judged, self.terms.policy);
        let runtime = self.terms.target.runtime();
        let site = judged.group.site;
        match (self.verdict(), site.fixed()) {
            (Some(verdict), _) => self.reason(verdict, budget),
            (None, _) if !runtime.runs(judged.group.gemm) => reason::never_runs(runtime),
            (None, _) if !site.runs(judged.group.gemm) => reason::not_needed(judged.group.gemm),
            (None, Some(fixed)) => reason::stays_fixed(&fixed),
            (None, None) if self.triple.timed.is_some() => {
                reason::slower_as_timed(&judged.verdicts, (self.triple, runtime))
            }
            (None, None) if judged.budgeted => {
                reason::not_worth_it(judged.group, (policy, self.terms.loss), (&judged.verdicts, runtime))
            }
            (None, None) => reason::stays_high(judged.group, policy, (&judged.verdicts, runtime)),
        }
    }

    /// What gave the GEMM this kernel, where it would have another by itself.
    fn together(&self) -> Option<Together> {
        let (triple, gemm) = (self.triple, self.judged.group.gemm);
        if self.handed.told.is_some() && self.handed.decided {
            return Some(Together::Chain);
        }
        let shares = triple.timed.is_none() && triple.decided_by_sharing(gemm) && triple.shares_casts(gemm);
        shares.then_some(Together::Sharing)
    }

    fn reason(&self, verdict: &Verdict, budget: f64) -> String {
        let (triple, gemm) = (self.triple, self.judged.group.gemm);
        if let (Some(told), true) = (&self.handed.told, self.handed.decided) {
            return format!("{told}; {}", reason::alone(verdict));
        }
        let own = self.own_reason(verdict, budget, triple.decided_by_sharing(gemm));
        match &self.handed.told {
            None => own,
            Some(told) => format!("{own}; {told}"),
        }
    }

    fn own_reason(&self, verdict: &Verdict, budget: f64, decided: bool) -> String {
        let (judged, triple, gemm) = (self.judged, self.triple, self.judged.group.gemm);
        if let Some(timed) = triple.timed {
            let cost = judged.budgeted.then(|| (loss_cost_hi(verdict.row).unwrap_or(0.0), budget));
            return reason::as_timed(verdict, timed, (self.terms.target.runtime(), cost));
        }
        let shared = reason::sharing(triple, gemm, decided);
        let own = if judged.budgeted {
            reason::within_budget(verdict, loss_cost_hi(verdict.row).unwrap_or(0.0), budget)
        } else if decided {
            reason::alone(verdict)
        } else {
            reason::fastest(verdict, judged.admissible().len())
        };
        match shared {
            None => own,
            Some(shared) if decided => format!("{shared}; {own}"),
            Some(shared) => format!("{own}; {shared}"),
        }
    }

    fn why_by_hand(&self, wanted: &Override) -> String {
        let why = if wanted.reason.is_empty() { "no reason given" } else { &wanted.reason };
        let fixed = self.fixed_against(&wanted.kernel).map(|fixed| fixed.to_string());
        let broken = self.broken_by(&wanted.kernel).map(|broken| format!("breaks the policy: {broken}"));
        let more = [fixed, self.handed.told.clone(), broken].into_iter().flatten();
        more.fold(format!("override: {why}"), |reason, more| format!("{reason}; {more}"))
    }

    /// How a person's kernel breaks the policy; `None`: it is safe by it, or nothing is known of it.
    fn broken_by(&self, kernel: &KernelId) -> Option<String> {
        let verdict = self.judged.verdicts.iter().find(|verdict| verdict.row.kernel == *kernel)?;
        (verdict.safety != Safety::Safe).then(|| reason::broken(verdict))
    }

    /// The policy's part that the bound is of, where it decides anything.
    fn group(&self) -> Option<&PolicyGroup> {
        let judged = self.judged;
        let decides = !judged.budgeted && self.terms.runs(judged.group) && judged.group.site.fixed().is_none();
        self.terms.policy.group_of(&judged.group.site.id).filter(|_| decides)
    }

    /// Why a person's kernel would not be run here by `loka.apply`; `None`: it would.
    fn fixed_against(&self, kernel: &KernelId) -> Option<Fixed> {
        self.judged.group.site.fixed().filter(|_| *kernel != self.terms.policy.baseline)
    }

    fn assemble(&self, pick: &Pick, reason: String) -> Choice {
        let (judged, kernel) = (self.judged, &pick.kernel);
        let row = judged.group.row(kernel);
        let mut reason = reason::with_scale(reason, row);
        if let Some(group) = self.group() {
            reason += &reason::of_group(group, self.terms.policy);
        }
        if judged.group.site.calls != 1 && self.terms.runs(judged.group) {
            reason += &reason::called(judged.group.site.calls);
        }
        let summary = row.and_then(|row| row.error.as_ref());
        let interval = summary.map(|summary| summary.rel_l2).filter(|of| of.lo.is_finite() && of.hi.is_finite());
        let steps = summary.and_then(|summary| summary.noise?.steps);
        Choice {
            kernel: kernel.clone(),
            source: pick.source,
            reason,
            together: pick.together,
            error: row.map_or_else(BTreeMap::new, metrics_of),
            speedup: row.and_then(ResultRow::speedup).filter(|speedup| speedup.is_finite()),
            static_scale: row.and_then(|row| row.static_scale).map(|known| f64::from(known.scale)),
            saturation: row.and_then(|row| row.static_scale).map(|known| known.saturation),
            flushed: row.and_then(|row| row.flushed),
            rel_l2_lo: interval.map(|of| of.lo),
            rel_l2_hi: interval.map(|of| of.hi),
            rel_l2_first: steps.map(|steps| steps.first),
            rel_l2_last: steps.map(|steps| steps.last),
            passed_over: pick.passed_over.iter().cloned().collect(),
            runners_up: judged
                .admissible()
                .map(|verdict| &verdict.row.kernel)
                .chain([&self.terms.policy.baseline])
                .filter(|other| *other != kernel)
                .take(MAX_RUNNERS_UP)
                .cloned()
                .collect(),
        }
    }

    fn passed_over(&self, kernel: &KernelId, source: ChoiceSource) -> Vec<(KernelId, PassedOver)> {
        let judged = self.judged;
        let others = judged.verdicts.iter().filter(|verdict| verdict.supported && verdict.row.kernel != *kernel);
        let own = judged.group.row(kernel).and_then(|row| gemm_speedup(row, judged.reference_us));
        let own = own.filter(|speedup| speedup.is_finite()).unwrap_or(1.0);
        let why = |verdict: &Verdict| match verdict.safety {
            _ if source == ChoiceSource::Override => PassedOver::Override,
            _ if verdict.barred == Some(Barred::Fixed) => PassedOver::Forward,
            _ if verdict.barred.is_some() => PassedOver::Runtime,
            _ if verdict.out_of_range => PassedOver::Uncertain,
            _ if judged.budgeted => PassedOver::Budget,
            Safety::Unsafe => PassedOver::Unsafe,
            Safety::Safe | Safety::Uncertain => PassedOver::Uncertain,
        };
        // Faster and safe but below the policy's least speed-up is not worth a word; nor is what is faster on another machine.
        let told = |verdict: &&Verdict| {
            if verdict.barred.is_some_and(Barred::is_elsewhere) {
                return false;
            }
            let by_hand = source == ChoiceSource::Override;
            judged.budgeted || by_hand || verdict.barred.is_some() || verdict.safety != Safety::Safe
        };
        // Rows are in the order of their kernels.
        let passed_over = others.filter(told).filter(|verdict| self.faster_than(own, verdict));
        passed_over.map(|verdict| (verdict.row.kernel.clone(), why(verdict))).collect()
    }

    /// True where `other` would be faster here, with what each of the two shares with the GEMMs beside it, and
    /// what this one takes and hands on as codes.
    fn faster_than(&self, speedup: f64, other: &Verdict) -> bool {
        if let Some(timed) = self.triple.timed {
            return self.timed_with(other.row).is_some_and(|us| us < timed.us);
        }
        let (costs, at) = (self.triple.costs, self.judged.group.gemm as usize);
        let alone = self.handed.told.is_none() && (0..3).all(|other| other == at || !costs[other].can_share());
        let cost = if alone { None } else { self.judged.reference_us.and_then(|us| Cost::of(other.row, us)) };
        match cost {
            Some(cost) => {
                let mut swapped = costs;
                swapped[at] = cost;
                site_us(&swapped) < site_us(&costs) - self.handed.credit_us
            }
            None => other.gemm_speedup.is_some_and(|other| other > speedup),
        }
    }
}

impl Place<'_, '_, '_> {
    /// The site with another kernel here. `None`: that one was not timed.
    fn timed_with(&self, other: &ResultRow) -> Option<f64> {
        let table = self.terms.table(self.judged.group)?;
        let number = |gemm: Gemm| {
            let chosen = self.triple.rows[gemm as usize];
            let row = if gemm == self.judged.group.gemm { Some(other) } else { chosen };
            row.map_or(Some(0), |row| table.number(gemm, &row.kernel))
        };
        let [fprop, dgrad, wgrad] = Gemm::ALL.map(number);
        table.us([fprop?, dgrad?, wgrad?])
    }
}

fn metrics_of(row: &ResultRow) -> BTreeMap<Metric, f64> {
    let known = |metric| Some((metric, row.metric(metric)?.value));
    Metric::ALL.into_iter().filter_map(known).filter(|(_, value)| value.is_finite()).collect()
}
