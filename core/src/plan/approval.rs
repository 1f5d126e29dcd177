//! Whether a plan's approvals are what its policy asks for: takes a plan, a list of keys if there is one, and the time;
//! gives each approval's standing and the reason that is still missing.

use std::collections::BTreeSet;

use serde::Serialize;

use super::Plan;
use crate::{
    model::Moment,
    review::{Approval, ApprovalRule, KeyRing, Role},
};

/// Clocks of two machines may differ by this.
pub const SKEW_SECONDS: i64 = 300;

/// Why an approval does not count.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, thiserror::Error)]
#[serde(rename_all = "snake_case")]
pub enum ApprovalProblem {
    #[error("the signature is not of this key, or something was changed after it was signed")]
    Signature,
    #[error("it is of another plan or version: {0}")]
    Digest(String),
    #[error("the key is not in the list of keys")]
    UnknownKey,
    #[error("the key is {0}'s")]
    AnothersKey(String),
    #[error("{0} may not sign (the policy asks for {1})")]
    Role(String, String),
    #[error("they decided something in the plan, and the policy wants others to sign")]
    Own,
    #[error("they signed already")]
    Twice,
    #[error("it was signed before the plan was made, by its clock ({0})")]
    Early(Moment),
    #[error("it was signed in the future, by its clock ({0})")]
    Late(Moment),
}

/// An approval and whether it counts.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Counted<'a> {
    pub approval: &'a Approval,
    /// As the list of keys has it, else as the approval says.
    pub role: Role,
    pub problem: Option<ApprovalProblem>,
}

/// Where a plan stands.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ApprovalStatus<'a> {
    pub rule: Option<&'a ApprovalRule>,
    pub approvals: Vec<Counted<'a>>,
    /// How many of them count.
    pub num_valid: usize,
    /// The signatures were held against a list of keys: without one they are genuine, but anybody's.
    pub with_keys: bool,
    /// The review was written on after the last one signed.
    pub review_changed: bool,
}

impl ApprovalStatus<'_> {
    /// True where nobody has to sign, too.
    pub fn is_met(&self) -> bool {
        self.rule.is_none_or(|rule| self.num_valid >= rule.approvers as usize)
    }

    /// The plan is one that has to be signed, and was.
    pub fn is_approved(&self) -> bool {
        self.rule.is_some() && self.is_met()
    }

    /// "1 of 2 approvals", or nothing where nobody has to sign.
    pub fn missing(&self) -> Option<String> {
        let rule = self.rule.filter(|_| !self.is_met())?;
        Some(format!("{} of {rule}", self.num_valid))
    }
}

/// `now`: `None` where there is no clock to be trusted.
pub fn standing<'a>(plan: &'a Plan, keys: Option<&KeyRing>, now: Option<Moment>) -> ApprovalStatus<'a> {
    let mut seen = BTreeSet::new();
    let count = |approval: &'a Approval| {
        let role = keys.and_then(|keys| keys.of(&approval.key)).map_or(approval.role, |known| known.role);
        let mut problem = why_not(plan, approval, keys, now);
        if problem.is_none() && !(seen.insert(approval.key.to_string()) & seen.insert(approval.name.clone())) {
            problem = Some(ApprovalProblem::Twice);
        }
        Counted { approval, role, problem }
    };
    let approvals: Vec<Counted> = plan.approvals.iter().map(count).collect();
    let num_valid = approvals.iter().filter(|counted| counted.problem.is_none()).count();
    let review = plan.review_digest();
    let review_changed = approvals.iter().any(|of| of.problem.is_none() && of.approval.review_digest != review);
    ApprovalStatus {
        rule: plan.policy.approval.as_ref(),
        approvals,
        num_valid,
        with_keys: keys.is_some(),
        review_changed,
    }
}

/// Why this approval, by itself, does not count for the plan.
pub fn why_not(
    plan: &Plan,
    approval: &Approval,
    keys: Option<&KeyRing>,
    now: Option<Moment>,
) -> Option<ApprovalProblem> {
    if approval.check().is_err() {
        return Some(ApprovalProblem::Signature);
    }
    if approval.digest != plan.digest {
        return Some(ApprovalProblem::Digest(approval.digest.clone()));
    }
    let mut role = approval.role;
    if let Some(keys) = keys {
        match keys.of(&approval.key) {
            None => return Some(ApprovalProblem::UnknownKey),
            Some(known) if known.name != approval.name => {
                return Some(ApprovalProblem::AnothersKey(known.name.clone()));
            }
            Some(known) => role = known.role,
        }
    }
    if let Some(rule) = &plan.policy.approval {
        if !rule.roles.contains(&role) {
            let asked: Vec<&str> = rule.roles.iter().map(|role| role.one()).collect();
            return Some(ApprovalProblem::Role(role.one().to_owned(), asked.join(" or ")));
        }
        if !rule.own && plan.authors.contains(&approval.name) {
            return Some(ApprovalProblem::Own);
        }
    }
    times(plan, approval, now)
}

fn times(plan: &Plan, approval: &Approval, now: Option<Moment>) -> Option<ApprovalProblem> {
    let made = Moment::parse(&plan.created_at);
    if made.is_some_and(|made| made.seconds_since(approval.at) > SKEW_SECONDS) {
        return Some(ApprovalProblem::Early(approval.at));
    }
    now.is_some_and(|now| approval.at.seconds_since(now) > SKEW_SECONDS).then_some(ApprovalProblem::Late(approval.at))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        dispatch::{Overrides, Policy, testing::results},
        model::SiteMods,
        plan::build,
        review::{Keyed, SecretKey, Statement},
    };

    const AT: &str = "2026-11-20T12:00:00Z";

    fn plan(rule: Option<ApprovalRule>) -> Plan {
        let policy = Policy { approval: rule, ..Policy::paper() };
        let results = results(&["a"], vec![]);
        let mut plan = build(&results, &policy, &SiteMods::default(), &Overrides::new(), "p", "").unwrap().plan;
        plan.authors = vec!["Olga".to_owned()];
        plan.release = Some(1);
        plan.stamp(AT.to_owned());
        plan
    }

    fn key(name: &str) -> SecretKey {
        SecretKey::new(name, &[name.len() as u8; 32]).unwrap()
    }

    fn signed(plan: &Plan, key: &SecretKey, role: Role, at: &str) -> Approval {
        let (name, at) = (key.name.clone(), Moment::parse(at).unwrap());
        let (digest, review_digest, note) = (plan.digest.clone(), plan.review_digest(), String::new());
        Approval::sign(Statement { digest, review_digest, name, role, at, note }, key)
    }

    fn ring(people: &[(&str, Role)]) -> KeyRing {
        let of = |(name, role): &(&str, Role)| Keyed { name: (*name).to_owned(), key: key(name).public(), role: *role };
        KeyRing::new(people.iter().map(of).collect()).unwrap()
    }

    #[test]
    fn two_people_of_the_right_role_make_it_approved() {
        let mut plan = plan(Some(ApprovalRule::of(2)));
        let rule = "2 approvals by an approver or an owner, not by an author";
        assert_eq!(standing(&plan, None, None).missing().unwrap(), format!("0 of {rule}"));
        plan.approvals.push(signed(&plan, &key("Al"), Role::Approver, AT));
        assert_eq!(standing(&plan, None, None).missing().unwrap(), format!("1 of {rule}"));
        plan.approvals.push(signed(&plan, &key("Bob"), Role::Owner, AT));
        let keys = ring(&[("Al", Role::Approver), ("Bob", Role::Owner)]);
        for keys in [None, Some(&keys)] {
            let standing = standing(&plan, keys, Moment::parse(AT));
            assert!(standing.is_approved() && !standing.review_changed, "{standing:?}");
        }
        let read = Plan::from_json(&plan.to_json()).unwrap();
        assert_eq!(read, plan, "approvals are beside the digest");
        assert!(standing(&read, Some(&keys), None).is_approved());
    }

    #[test]
    fn what_does_not_count_says_why() {
        let mut made = plan(Some(ApprovalRule::of(1)));
        let mut problem = |approval: Approval, keys: Option<&KeyRing>| {
            made.approvals = vec![approval];
            let found = standing(&made, keys, Moment::parse(AT));
            assert!(!found.is_met());
            found.approvals[0].problem.clone().unwrap().to_string()
        };
        let of = plan(Some(ApprovalRule::of(1)));
        let al = signed(&of, &key("Al"), Role::Approver, AT);
        let forged = Approval { role: Role::Owner, ..al.clone() };
        assert!(problem(forged, None).contains("changed after it was signed"));
        let stripped = Approval { signature: String::new(), ..al.clone() };
        assert!(problem(stripped, None).contains("signature"));
        let other = signed(&plan(None), &key("Al"), Role::Approver, AT);
        assert!(problem(other, None).starts_with("it is of another plan"));
        assert!(problem(al.clone(), Some(&ring(&[("Bob", Role::Owner)]))).contains("not in the list"));
        let renamed = KeyRing::new(vec![Keyed { name: "Eve".to_owned(), key: key("Al").public(), role: Role::Owner }]);
        assert_eq!(problem(al.clone(), Some(&renamed.unwrap())), "the key is Eve's");
        assert_eq!(
            problem(al.clone(), Some(&ring(&[("Al", Role::Reviewer)]))),
            "a reviewer may not sign (the policy asks for an approver or an owner)"
        );
        assert!(problem(signed(&of, &key("Al"), Role::Viewer, AT), None).starts_with("a viewer may not sign"));
        assert!(problem(signed(&of, &key("Olga"), Role::Owner, AT), None).contains("wants others to sign"));
        let early = signed(&of, &key("Al"), Role::Approver, "2026-11-20T11:00:00Z");
        assert!(problem(early, None).starts_with("it was signed before the plan was made"));
        let late = signed(&of, &key("Al"), Role::Approver, "2026-11-20T13:00:00Z");
        assert!(problem(late, None).starts_with("it was signed in the future"));
    }

    #[test]
    fn nobody_counts_twice() {
        let mut plan = plan(Some(ApprovalRule::of(2)));
        let al = signed(&plan, &key("Al"), Role::Approver, AT);
        plan.approvals = vec![al.clone(), al];
        let found = standing(&plan, None, None);
        assert_eq!(found.num_valid, 1);
        assert_eq!(found.approvals[1].problem, Some(ApprovalProblem::Twice));
    }

    #[test]
    fn without_a_rule_nobody_has_to_sign() {
        let plan = plan(None);
        let found = standing(&plan, None, None);
        assert!(found.is_met() && !found.is_approved() && found.missing().is_none());
    }
}
