//! How many people of which roles must sign a plan.

use serde::{Deserialize, Serialize};

use super::Role;

/// Part of a policy. Without one nobody has to sign.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ApprovalRule {
    /// Distinct people.
    pub approvers: u32,
    /// Whose signatures count.
    #[serde(default = "default_roles")]
    pub roles: Vec<Role>,
    /// Whoever decided something in the plan may sign it, too.
    #[serde(default)]
    pub own: bool,
}

fn default_roles() -> Vec<Role> {
    vec![Role::Approver, Role::Owner]
}

impl ApprovalRule {
    pub fn of(approvers: u32) -> Self {
        Self { approvers, roles: default_roles(), own: false }
    }

    /// Why it can never be kept, or asks for nothing.
    pub fn problem(&self) -> Option<String> {
        if !(1..=100).contains(&self.approvers) {
            return Some(format!("approval asks for {} approvers, it must be 1 to 100", self.approvers));
        }
        self.roles.is_empty().then(|| "approval names no role that may sign".to_owned())
    }
}

/// As a person reads it: "2 approvals by an approver or an owner, not by an author".
impl std::fmt::Display for ApprovalRule {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let plural = if self.approvers == 1 { "" } else { "s" };
        let roles: Vec<&str> = self.roles.iter().map(|role| role.one()).collect();
        let own = if self.own { "" } else { ", not by an author" };
        write!(f, "{} approval{plural} by {}{own}", self.approvers, roles.join(" or "))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rule_reads_as_a_sentence_and_has_defaults() {
        let rule: ApprovalRule = serde_json::from_str(r#"{"approvers": 2}"#).unwrap();
        assert_eq!(rule, ApprovalRule::of(2));
        assert_eq!(rule.to_string(), "2 approvals by an approver or an owner, not by an author");
        assert_eq!(ApprovalRule::of(0).problem().unwrap(), "approval asks for 0 approvers, it must be 1 to 100");
        let nobody = ApprovalRule { roles: Vec::new(), ..ApprovalRule::of(1) };
        assert_eq!(nobody.problem().unwrap(), "approval names no role that may sign");
    }
}
