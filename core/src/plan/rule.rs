//! The rules of the gate: takes nothing, gives each rule's name, which does not change whatever its sentences say, and
//! what it asks for.

use serde::{Serialize, Serializer};

/// What a plan must keep to ship.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Rule {
    PlanTrace,
    PlanResults,
    PlanSites,
    PlanShape,
    PlanKernel,
    PlanChain,
    PlanRuntime,
    PlanForward,
    PlanDraft,
    PolicyError,
    PolicySpeed,
    PolicyBudget,
    PolicyConfidence,
    PolicyPinned,
    ApprovalMissing,
    ApprovalKeys,
    ApprovalSignature,
    ApprovalReview,
    ResultsExpired,
    ResultsDriver,
    ResultsDevice,
    CoverageShare,
    CoverageRows,
    CoverageLatency,
}

impl Rule {
    pub const ALL: [Self; 24] = [
        Self::PlanTrace,
        Self::PlanResults,
        Self::PlanSites,
        Self::PlanShape,
        Self::PlanKernel,
        Self::PlanChain,
        Self::PlanRuntime,
        Self::PlanForward,
        Self::PlanDraft,
        Self::PolicyError,
        Self::PolicySpeed,
        Self::PolicyBudget,
        Self::PolicyConfidence,
        Self::PolicyPinned,
        Self::ApprovalMissing,
        Self::ApprovalKeys,
        Self::ApprovalSignature,
        Self::ApprovalReview,
        Self::ResultsExpired,
        Self::ResultsDriver,
        Self::ResultsDevice,
        Self::CoverageShare,
        Self::CoverageRows,
        Self::CoverageLatency,
    ];

    /// What other programs know it by: group/rule.
    pub fn id(self) -> &'static str {
        self.words().0
    }

    /// The part of the id before the slash.
    pub fn group(self) -> &'static str {
        self.id().split('/').next().unwrap_or_default()
    }

    /// What it asks for, in a sentence.
    pub fn about(self) -> &'static str {
        self.words().1
    }

    fn words(self) -> (&'static str, &'static str) {
        match self {
            Self::PlanTrace => ("plan/trace", "The plan and the results are of the same trace."),
            Self::PlanResults => ("plan/results", "The plan was made from these results."),
            Self::PlanSites => ("plan/sites", "The plan has every site of the trace and no other."),
            Self::PlanShape => ("plan/shape", "Every site has the shape that the trace has."),
            Self::PlanKernel => ("plan/kernel", "Every chosen kernel is in the results and runs there."),
            Self::PlanChain => {
                ("plan/chain", "What is handed on as codes fits the chosen kernels, the trace and the results.")
            }
            Self::PlanRuntime => {
                ("plan/runtime", "Every chosen kernel can be applied in the plan's runtime, and was timed there.")
            }
            Self::PlanForward => {
                ("plan/forward", "No kernel is planned where the module's forward is its own, or there is no module.")
            }
            Self::PlanDraft => ("plan/draft", "The plan is not marked as a draft."),
            Self::PolicyError => ("policy/error", "Every chosen kernel's error is within the policy's bound."),
            Self::PolicySpeed => ("policy/speed", "Every chosen kernel is as fast as the policy asks for."),
            Self::PolicyBudget => ("policy/budget", "The chosen kernels' loss costs add up to the budget at most."),
            Self::PolicyConfidence => ("policy/confidence", "The intervals are at the policy's confidence."),
            Self::PolicyPinned => ("policy/pinned", "The plan's policy is the one that the gate is given."),
            Self::ApprovalMissing => ("approval/missing", "As many people of the right roles signed as are asked for."),
            Self::ApprovalKeys => ("approval/keys", "Signatures are held against a list of keys."),
            Self::ApprovalSignature => ("approval/signature", "Every signature in the plan counts."),
            Self::ApprovalReview => ("approval/review", "Nothing was said of the plan after it was signed."),
            Self::ResultsExpired => ("results/expired", "The results are as recent as is asked for."),
            Self::ResultsDriver => ("results/driver", "The results are of the driver that is asked for."),
            Self::ResultsDevice => ("results/device", "The results are of the device that is asked for."),
            Self::CoverageShare => ("coverage/share", "As many GEMMs are covered as are asked for."),
            Self::CoverageRows => ("coverage/rows", "Every chosen kernel was probed."),
            Self::CoverageLatency => ("coverage/latency", "Every chosen kernel's latency is known."),
        }
    }
}

impl Serialize for Rule {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.id())
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn every_rule_has_a_name_of_its_own_and_all_are_listed() {
        let ids: BTreeSet<&str> = Rule::ALL.iter().map(|rule| rule.id()).collect();
        assert_eq!(ids.len(), Rule::ALL.len());
        // The last one is the last in the list: none was forgotten behind it.
        assert_eq!(Rule::ALL.map(|rule| rule as usize), std::array::from_fn::<usize, 24, _>(|at| at));
        assert_eq!(serde_json::to_string(&Rule::PolicyError).unwrap(), "\"policy/error\"");
        assert!(Rule::ALL.iter().all(|rule| rule.about().ends_with('.') && rule.id().starts_with(rule.group())));
    }
}
