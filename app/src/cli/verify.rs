//! `loka verify`: a plan and a team's list of keys in, who signed and whether that is enough out. Offline.

use std::path::PathBuf;

use loka_core::plan::{ApprovalStatus, Plan, standing};
use serde_json::json;

use super::{
    check::read_plan,
    output::{self, Outcome, TextTable},
};
use crate::{clock, keys};

#[derive(clap::Args, Debug)]
pub struct VerifyArgs {
    plan: PathBuf,
    /// The team's list (`loka key add`): whose keys they are, and what they may.
    #[arg(long, value_name = "FILE")]
    keys: Option<PathBuf>,
    /// Without a list: be content with signatures of anybody.
    #[arg(long, conflicts_with = "keys")]
    allow_unknown_keys: bool,
}

pub fn run(args: &VerifyArgs, json: bool) -> anyhow::Result<Outcome> {
    let plan = read_plan(&args.plan)?;
    let keys = args.keys.as_deref().map(keys::read_ring).transpose()?;
    let standing = standing(&plan, keys.as_ref(), Some(clock::now()));
    // Where nobody has to sign it does not matter who did.
    let known = keys.is_some() || args.allow_unknown_keys || standing.rule.is_none();
    let passed = known && standing.is_met();
    if json {
        print_json(args, &plan, &standing, passed)?;
    } else {
        print_table(&standing);
        notes(&plan, &standing);
        output::line(&format!("{}: {}", verdict(&standing, known), args.plan.display()));
    }
    Ok(if passed { Outcome::Done } else { Outcome::Failed })
}

fn print_json(args: &VerifyArgs, plan: &Plan, standing: &ApprovalStatus, passed: bool) -> anyhow::Result<()> {
    for counted in &standing.approvals {
        let problem = counted.problem.as_ref().map(ToString::to_string);
        output::json(&json!({"approval": counted.approval, "role": counted.role, "problem": problem}))?;
    }
    let ApprovalStatus { rule, num_valid, with_keys, review_changed, .. } = standing;
    output::json(&json!({
        "plan": args.plan, "digest": plan.digest, "release": plan.release, "rule": rule, "passed": passed,
        "num_valid": num_valid, "with_keys": with_keys, "review_changed": review_changed, "draft": plan.draft,
    }))
}

fn print_table(standing: &ApprovalStatus) {
    if standing.approvals.is_empty() {
        return output::line("nobody signed it");
    }
    let mut table = TextTable::new(&["who", "role", "when", "counts"]);
    for counted in &standing.approvals {
        let of = counted.approval;
        let counts = counted.problem.as_ref().map_or("yes".to_owned(), |problem| format!("no: {problem}"));
        table.row([of.name.clone(), counted.role.to_string(), of.at.to_string(), counts]);
    }
    table.print();
}

fn notes(plan: &Plan, standing: &ApprovalStatus) {
    // Of those that count: another's words may be anybody's.
    let counted = standing.approvals.iter().filter(|counted| counted.problem.is_none());
    for of in counted.map(|counted| counted.approval).filter(|of| !of.note.trim().is_empty()) {
        output::line(&format!("{}: {}", of.name, of.note));
    }
    if standing.review_changed {
        output::line("note: the review was written on after somebody signed; the plan is the one that they signed");
    }
    if !standing.with_keys && standing.rule.is_some() {
        output::line("note: only the signatures were checked; whose keys they are, a list says (--keys FILE)");
    }
    if let Some(draft) = plan.draft.as_deref().filter(|_| standing.is_met()) {
        output::line(&format!("note: the file calls itself a draft ({draft})"));
    }
}

fn verdict(standing: &ApprovalStatus, known: bool) -> String {
    match (standing.rule, standing.missing()) {
        (None, _) => "nobody has to approve it".to_owned(),
        (_, Some(missing)) => format!("not approved: {missing}"),
        (Some(rule), None) if known => format!("approved: {} of {rule}", standing.num_valid),
        (Some(rule), None) => {
            format!("not approved: {} of {rule}, by keys that nobody vouches for", standing.num_valid)
        }
    }
}
