//! Takes the text of a plan's file, gives the line that a finding is about: where an editor or a review shows it.

use std::collections::HashMap;

use loka_core::{
    model::{Gemm, SiteId},
    plan::{Finding, Rule},
};

/// Numbers of lines, from 1.
#[derive(Debug, Default)]
pub struct Lines {
    /// Of a site's name, then of its GEMMs in the order of `Gemm::ALL`.
    sites: HashMap<SiteId, [usize; 4]>,
    keys: HashMap<&'static str, usize>,
}

/// Keys of the plan as a whole that findings are about.
const KEYS: [&str; 7] = ["approvals", "draft", "policy", "results_digest", "review", "sites", "trace_digest"];

impl Lines {
    /// By what lies in a line of an indented file; where all is one line, that is all there is to say.
    pub fn of(text: &str) -> Self {
        let mut lines = Self::default();
        let mut site: Option<(usize, SiteId)> = None;
        let mut in_sites = false;
        for (at, line) in (1..).zip(text.lines()) {
            let indent = line.len() - line.trim_start().len();
            let Some((key, rest)) = key_of(line.trim_start()) else { continue };
            if let Some(known) = KEYS.iter().find(|known| indent == 2 && **known == key) {
                in_sites = key == "sites";
                lines.keys.entry(known).or_insert(at);
            } else if indent == 2 {
                in_sites = false;
            }
            if !in_sites {
                continue;
            }
            if key == "site" && site.as_ref().is_none_or(|(first, _)| *first == indent) {
                let Ok(name) = serde_json::from_str::<SiteId>(rest.trim().trim_end_matches(',')) else { continue };
                lines.sites.insert(name.clone(), [at; 4]);
                site = Some((indent, name));
            } else if let Some((_, name)) = site.as_ref().filter(|(first, _)| *first == indent)
                && let Some(gemm) = Gemm::ALL.iter().position(|gemm| gemm.as_str() == key)
                && let Some(places) = lines.sites.get_mut(name)
            {
                places[gemm + 1] = at;
            }
        }
        lines
    }

    pub fn of_finding(&self, finding: &Finding) -> usize {
        let site = finding.site.as_ref().and_then(|site| self.sites.get(site));
        if let Some(places) = site {
            return places[finding.gemm.map_or(0, |gemm| gemm as usize + 1)];
        }
        let key = match finding.rule {
            Rule::PlanTrace => "trace_digest",
            Rule::PlanResults => "results_digest",
            Rule::PlanDraft => "draft",
            Rule::ApprovalReview => "review",
            rule if rule.group() == "approval" => "approvals",
            rule if rule.group() == "policy" => "policy",
            rule if rule.group() == "results" => "results_digest",
            _ => "sites",
        };
        self.keys.get(key).copied().unwrap_or(1)
    }
}

/// `"key": rest`.
fn key_of(line: &str) -> Option<(&str, &str)> {
    let (key, rest) = line.strip_prefix('"')?.split_once('"')?;
    Some((key, rest.strip_prefix(':')?))
}

#[cfg(test)]
mod tests {
    use loka_core::plan::Severity;

    use super::*;

    fn finding(rule: Rule, site: Option<&str>, gemm: Option<Gemm>) -> Finding {
        Finding { rule, severity: Severity::Fails, site: site.map(SiteId::new), gemm, message: String::new() }
    }

    #[test]
    fn a_finding_is_at_its_line() {
        // A name with a quote, and the same keys in a review below, which are not the plan's.
        let text = r#"{
  "trace_digest": "sha256:00",
  "policy": {
    "name": "paper"
  },
  "sites": [
    {
      "site": "a\"b",
      "m": 64,
      "fprop": {
        "reason": "\"site\": \"c\""
      },
      "dgrad": {
        "kernel": "x"
      }
    },
    {
      "site": "c",
      "wgrad": {}
    }
  ],
  "review": {
    "site": "c",
    "wgrad": 1
  }
}"#;
        let lines = Lines::of(text);
        let at = |rule, site, gemm| lines.of_finding(&finding(rule, site, gemm));
        assert_eq!(at(Rule::PlanShape, Some("a\"b"), None), 8);
        assert_eq!(at(Rule::PolicyError, Some("a\"b"), Some(Gemm::Fprop)), 10);
        assert_eq!(at(Rule::PolicyError, Some("a\"b"), Some(Gemm::Dgrad)), 13);
        assert_eq!(at(Rule::PolicyError, Some("c"), Some(Gemm::Wgrad)), 19);
        assert_eq!(
            at(Rule::PolicyError, Some("c"), Some(Gemm::Fprop)),
            18,
            "its site, where it has no line of its own"
        );
        assert_eq!(at(Rule::PolicyBudget, None, None), 3);
        assert_eq!(at(Rule::PlanTrace, None, None), 2);
        assert_eq!(at(Rule::PlanSites, Some("gone"), None), 6);
        assert_eq!(at(Rule::ApprovalMissing, None, None), 1, "the plan has no approvals");
        let flat: String = text.lines().map(str::trim).collect();
        assert_eq!(Lines::of(&flat).of_finding(&finding(Rule::PlanShape, Some("c"), None)), 1);
    }
}
