//! `loka approve`: a plan and a key in, the plan with a signature out.

use std::path::PathBuf;

use loka_core::{
    plan::{Plan, standing, why_not},
    review::{Approval, Role, SecretKey, Statement, TEXT_CHARACTERS},
};
use serde_json::json;

use super::{
    check::read_plan,
    output::{self, Outcome},
};
use crate::{clock, files, keys};

#[derive(clap::Args, Debug)]
pub struct ApproveArgs {
    /// One that was submitted for approval.
    plan: PathBuf,
    /// Your secret key (`loka key new`); the one in the folder of your settings when left out.
    #[arg(long, value_name = "FILE")]
    key: Option<PathBuf>,
    /// What you sign as; the team's list of keys has the last word. approver or owner.
    #[arg(long, default_value = "approver")]
    role: Role,
    /// A word on it, signed too.
    #[arg(long, default_value = "", value_name = "TEXT")]
    note: String,
    /// Where to write it; over the plan when left out.
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
}

pub fn run(args: &ApproveArgs, json: bool) -> anyhow::Result<Outcome> {
    let key = keys::read(&keys::path_or_default(args.key.as_deref(), "--key FILE")?)?;
    let mut plan = read_plan(&args.plan)?;
    let now = clock::now();
    let approved = approve(&mut plan, &key, args, now);
    approved.map_err(|error| anyhow::anyhow!("{error}: {}", args.plan.display()))?;
    let out = args.out.as_ref().unwrap_or(&args.plan);
    files::write_atomically(out, plan.to_json().as_bytes())?;
    let release = plan.release.unwrap_or_default();
    let standing = standing(&plan, None, Some(now));
    if json {
        let approval = plan.approvals.last();
        output::json(&json!({"written": out, "approval": approval, "missing": standing.missing()}))?;
        return Ok(Outcome::Done);
    }
    output::line(&format!("{} approved version {release}: {}", key.name, plan.digest));
    let rule = standing.rule.map_or("nobody has to approve it".to_owned(), |rule| {
        format!("{} of {rule}, as far as the signatures say", standing.num_valid)
    });
    output::line(&rule);
    output::line(&format!("plan written: {}", out.display()));
    Ok(Outcome::Done)
}

fn approve(plan: &mut Plan, key: &SecretKey, args: &ApproveArgs, now: loka_core::model::Moment) -> anyhow::Result<()> {
    if plan.release.is_none() {
        let draft = plan.draft.as_deref().map_or(String::new(), |draft| format!(" ({draft})"));
        anyhow::bail!(
            "it must be submitted for approval first{draft}: in the workbench, or by `loka plan … --release N`"
        );
    }
    // Written with every key, it must be the same plan still.
    if plan.content_digest() != plan.digest {
        anyhow::bail!("it is not written as LoKA writes plans, and would be another one: make it with `loka plan`");
    }
    let characters = args.note.chars().count();
    if characters > TEXT_CHARACTERS {
        anyhow::bail!("a note has at most {TEXT_CHARACTERS} characters, this one has {characters}");
    }
    let (digest, review_digest, name) = (plan.digest.clone(), plan.review_digest(), key.name.clone());
    let statement = Statement { digest, review_digest, name, role: args.role, at: now, note: args.note.clone() };
    let approval = Approval::sign(statement, key);
    if let Some(problem) = why_not(plan, &approval, None, Some(now)) {
        anyhow::bail!("the approval would not count: {problem}");
    }
    if plan.approvals.iter().any(|known| known.key == approval.key) {
        anyhow::bail!("the approval would not count: it was signed with this key already");
    }
    if let Some(other) = plan.approvals.iter().find(|known| known.name == approval.name) {
        anyhow::bail!("the approval would not count: there is one of '{}' by {}", approval.name, other.key);
    }
    plan.approvals.push(approval);
    plan.draft = standing(plan, None, Some(now)).missing();
    Ok(())
}
