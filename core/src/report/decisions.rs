//! Takes a plan, gives what it decides as a person reads it: choices that are alike folded by module, with counts.

use std::collections::BTreeMap;

use crate::{
    dispatch::{Choice, ChoiceSource},
    format::{NAME, SENTENCE, line, number::times, short},
    model::{Gemm, Metric},
    plan::Plan,
    views::{depth, module},
};

/// GEMMs with the same kernel for the same kind of reason in one module.
#[derive(Clone, Debug, PartialEq)]
pub struct Group {
    /// `net.layers.3.*`, or a site's name.
    pub place: String,
    pub kernel: String,
    pub why: String,
    pub num_gemms: usize,
    pub speedups: Option<(f64, f64)>,
    /// In the policy's metric.
    pub worst: Option<f64>,
}

impl Group {
    pub fn speed(&self) -> String {
        match self.speedups {
            None => "–".to_owned(),
            Some((lo, hi)) if times(lo) == times(hi) => times(lo),
            Some((lo, hi)) => format!("{lo:.2} to {}", times(hi)),
        }
    }

    pub fn error(&self) -> String {
        self.worst.map_or_else(|| "–".to_owned(), short)
    }
}

/// Whether somebody or something decided here: a kernel in low precision, or an override.
pub fn is_decided(choice: &Choice) -> bool {
    choice.source == ChoiceSource::Override || choice.kernel.is_low_precision()
}

/// In low precision, or not; overrides are neither: they have a list of their own. At most `most` groups where
/// modules allow it, the deepest modules that do.
pub fn folded(plan: &Plan, low: bool, most: usize) -> Vec<Group> {
    let kept = |choice: &Choice| choice.source == ChoiceSource::Dispatch && choice.kernel.is_low_precision() == low;
    let deepest = plan.sites.iter().map(|site| depth(&site.site)).max().unwrap_or_default();
    let mut groups = at_depth(plan, &kept, low, deepest);
    for depth in (0..deepest).rev() {
        if groups.len() <= most {
            break;
        }
        groups = at_depth(plan, &kept, low, depth);
    }
    groups
}

struct Gathered<'a> {
    members: Vec<(usize, Gemm)>,
    reasons: Vec<&'a str>,
}

fn at_depth(plan: &Plan, kept: &impl Fn(&Choice) -> bool, low: bool, depth: usize) -> Vec<Group> {
    let mut found: BTreeMap<(&str, &str, &str), Gathered<'_>> = BTreeMap::new();
    for (at, site) in plan.sites.iter().enumerate() {
        for gemm in Gemm::ALL {
            let choice = site.choice(gemm);
            if kept(choice) {
                // In low precision the kernel says it: reasons differ by their numbers alone.
                let kind = if low { "" } else { kind(&choice.reason) };
                let key = (module(&site.site, depth), choice.kernel.as_str(), kind);
                let gathered =
                    found.entry(key).or_insert_with(|| Gathered { members: Vec::new(), reasons: Vec::new() });
                gathered.members.push((at, gemm));
                gathered.reasons.push(&choice.reason);
            }
        }
    }
    let mut groups: Vec<_> = found.into_iter().collect();
    groups.sort_by_key(|(_, gathered)| gathered.members.first().copied());
    groups.into_iter().map(|((place, kernel, kind), gathered)| group(plan, place, kernel, kind, &gathered)).collect()
}

fn group(plan: &Plan, place: &str, kernel: &str, kind: &str, gathered: &Gathered<'_>) -> Group {
    let choices = || gathered.members.iter().map(|(at, gemm)| plan.sites[*at].choice(*gemm));
    let speeds = choices().filter_map(|choice| choice.speedup);
    let speedups = speeds.fold(None, |ends: Option<(f64, f64)>, speed| {
        Some(ends.map_or((speed, speed), |(lo, hi)| (lo.min(speed), hi.max(speed))))
    });
    let metric = plan.policy.metric;
    let errors = choices().filter_map(|choice| choice.error.get(&metric).copied());
    let worst = metric.worst(errors);
    let same = gathered.reasons.windows(2).all(|pair| pair[0] == pair[1]);
    let why = if same { gathered.reasons.first().copied().unwrap_or_default() } else { kind };
    let place = match place {
        "" => "everywhere".to_owned(),
        module if module.ends_with('.') => format!("{}*", line(module, NAME)),
        site => line(site, NAME),
    };
    let (kernel, why) = (line(kernel, NAME), line(why, SENTENCE));
    Group { place, kernel, why, num_gemms: gathered.members.len(), speedups, worst }
}

/// The part of a reason that has no numbers of one GEMM in it.
fn kind(reason: &str) -> &str {
    let end = reason.find([';', ':', '(']).unwrap_or(reason.len());
    let kind = reason[..end].trim();
    // "no latency is known for the 3 that are safe (…".
    kind.find(" for the ").map_or(kind, |at| &kind[..at])
}

/// Its error in the policy's metric.
pub fn error(choice: &Choice, metric: Metric) -> String {
    choice.error.get(&metric).map_or_else(|| "–".to_owned(), |value| short(*value))
}

pub fn speed(choice: &Choice) -> String {
    choice.speedup.map_or_else(|| "–".to_owned(), times)
}

/// Without the words that say again that it is one.
pub fn why_overridden(choice: &Choice) -> String {
    let reason = line(choice.reason.strip_prefix("override: ").unwrap_or(&choice.reason), SENTENCE);
    if reason.is_empty() { "no reason was given".to_owned() } else { reason }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        dispatch::{
            Overrides, Policy,
            testing::{results, row},
        },
        model::SiteMods,
        plan::build,
    };

    fn plan(names: &[String]) -> Plan {
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        let rows = names.iter().enumerate().flat_map(|(at, name)| {
            let error = if at == 0 { 0.1 } else { 0.3 + at as f64 / 1e2 };
            Gemm::ALL.map(|gemm| row(name, gemm, "te/current", error, Some(1.2), 0.0))
        });
        let results = results(&names, rows.collect());
        build(&results, &Policy::paper(), &SiteMods::none(), &Overrides::new(), "p", "").unwrap().plan
    }

    #[test]
    fn what_nobody_decided_is_folded_by_module() {
        let names: Vec<String> = (0..4).flat_map(|at| [format!("net.{at}.mlp.0"), format!("net.{at}.mlp.3")]).collect();
        let plan = plan(&names);
        let low = folded(&plan, true, 60);
        assert_eq!(low.len(), 1);
        assert_eq!((low[0].place.as_str(), low[0].num_gemms, low[0].speed().as_str()), ("net.0.mlp.*", 3, "1.20×"));
        let high = folded(&plan, false, 60);
        assert_eq!(high.iter().map(|group| group.num_gemms).sum::<usize>(), 21);
        assert_eq!(
            (high[1].place.as_str(), high[1].num_gemms, high[1].why.as_str()),
            ("net.1.mlp.*", 6, "none is safe")
        );
        assert!(high[0].why.starts_with("none is safe; best is te/current"), "all three alike: {}", high[0].why);
        let few = folded(&plan, false, 2);
        assert_eq!((few.len(), few[0].place.as_str(), few[0].num_gemms), (1, "net.*", 21));
    }

    #[test]
    fn a_reasons_kind_has_no_numbers() {
        for (reason, of) in [
            ("no safe kernel is faster than 1.05x; best is a at .9x", "no safe kernel is faster than 1.05x"),
            ("no latency is known for the 3 that are safe (te/current: x)", "no latency is known"),
            ("the loss budget buys more elsewhere: a would cost", "the loss budget buys more elsewhere"),
            ("", ""),
        ] {
            assert_eq!(kind(reason), of);
        }
    }
}
