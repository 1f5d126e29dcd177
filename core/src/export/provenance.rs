//! Takes the plan, its status and the target, gives where a file came from: as comments, or as JSON; and what that status
//! is.

use serde_json::{Value, json};

use crate::plan::{Plan, standing};

use super::{Target, text::one_line};

/// Of the file beside one that cannot hold a comment.
pub const PROVENANCE_SUFFIX: &str = ".provenance.json";

/// What a file says of the plan's review, in a line: a draft is marked wherever it goes. Empty where nobody has to sign.
pub fn status_of(plan: &Plan) -> String {
    match (&plan.draft, plan.release) {
        (Some(why), _) => format!("DRAFT, not approved: {why}"),
        (None, Some(release)) if standing(plan, None, None).is_approved() => format!("approved release {release}"),
        (None, Some(release)) => format!("release {release}"),
        (None, None) => String::new(),
    }
}

#[derive(Clone, Debug)]
pub struct Provenance {
    plan: String,
    digest: String,
    created_at: String,
    policy: String,
    status: String,
    target: Target,
}

impl Provenance {
    pub fn new(plan: &Plan, target: Target, status: &str) -> Self {
        Self {
            plan: one_line(&plan.name),
            digest: plan.digest.clone(),
            created_at: one_line(&plan.created_at),
            policy: one_line(&plan.policy.name),
            status: one_line(status),
            target,
        }
    }

    /// Plan, digest and status in one line.
    pub fn line(&self) -> String {
        let status = if self.status.is_empty() { String::new() } else { format!(", {}", self.status) };
        format!("LoKA plan {} {}{status}", self.plan, self.digest)
    }

    /// Each line behind a `#`.
    pub fn comments(&self) -> String {
        let mut text = format!("# {}\n", self.line());
        text += &format!("# policy {}, made {}\n", self.policy, self.created_at);
        text + &format!("# for {}, proved with {}\n", self.target, self.target.proved_with())
    }

    pub fn json(&self) -> Value {
        json!({
            "plan": self.plan, "digest": self.digest, "created_at": self.created_at, "policy": self.policy,
            "status": self.status, "target": self.target.as_str(), "proved_with": self.target.proved_with(),
        })
    }
}
