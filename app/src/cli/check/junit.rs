//! Takes what a check found, gives it as JUnit's XML: a suite for each group of rules, a test for each rule. A page of
//! tests then reads as the list of what is asked for, whatever the number of sites.

use anyhow::Context;
use loka_core::plan::{Finding, Rule, Severity};
use quick_junit::{NonSuccessKind, Report, TestCase, TestCaseStatus, TestSuite};

use super::Checked;

/// More of them are counted, not listed: nobody reads 30,000 lines in a page of tests.
const MAX_LISTED: usize = 200;

pub fn junit(checked: &Checked<'_>) -> anyhow::Result<String> {
    let mut report = Report::new(format!("loka check {}", checked.path.display()));
    let mut suites: Vec<(&str, TestSuite)> = Vec::new();
    for rule in Rule::ALL {
        let group = rule.group();
        if suites.last().is_none_or(|(last, _)| *last != group) {
            suites.push((group, TestSuite::new(group)));
        }
        if let Some((_, suite)) = suites.last_mut() {
            suite.add_test_case(case(checked, rule));
        }
    }
    report.add_test_suites(suites.into_iter().map(|(_, suite)| suite));
    let whole = report.to_string().context("cannot write JUnit")?;
    Ok(whole.trim_end().to_owned())
}

fn case(checked: &Checked<'_>, rule: Rule) -> TestCase {
    let of = |severity: Severity| -> Vec<&Finding> {
        checked.findings.iter().filter(|finding| finding.rule == rule && finding.severity == severity).collect()
    };
    let (fails, warns) = (of(Severity::Fails), of(Severity::Warns));
    let status = match fails.first() {
        Some(first) => {
            let mut status = TestCaseStatus::non_success(NonSuccessKind::Failure);
            let message = if fails.len() == 1 { first.to_string() } else { format!("{} findings", fails.len()) };
            status.set_message(message).set_type(rule.id()).set_description(listed(&fails));
            status
        }
        None if !checked.asked.asks(rule, checked.plan) => {
            let mut status = TestCaseStatus::skipped();
            status.set_message("not asked for");
            status
        }
        None => TestCaseStatus::success(),
    };
    let mut case = TestCase::new(rule.about(), status);
    case.set_classname(rule.id());
    if !warns.is_empty() {
        case.set_system_out(listed(&warns));
    }
    case
}

fn listed(findings: &[&Finding]) -> String {
    let mut lines: Vec<String> = findings.iter().take(MAX_LISTED).map(ToString::to_string).collect();
    if let Some(rest) = findings.len().checked_sub(MAX_LISTED).filter(|rest| *rest > 0) {
        lines.push(format!("and {rest} more"));
    }
    lines.join("\n")
}
