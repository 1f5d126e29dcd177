//! What a person decides by hand: the policy's numbers, and kernels against it.
//!
//! All of it is the document's, so that it can be undone, and none of it asks for an effect: no row depends on it, and
//! views decide anew from the rows that are there.

use crate::{
    dispatch::{Override, Policy, Target},
    model::{Gemm, KernelId, Runtime, SiteId},
};

use super::{CommandError, Effect, NoticeKind, Session};

impl Session {
    /// Numbers come from clients: one that Dispatch cannot decide by (NaN) must not get into the document. Changes of one
    /// `gesture` are one step of undo.
    pub(super) fn set_policy(&mut self, gesture: Option<u64>, policy: Policy) -> Result<Vec<Effect>, CommandError> {
        policy.validate()?;
        self.change(gesture, |document| document.policy = policy);
        Ok(Vec::new())
    }

    /// Needs no trace: the runtime stays when another one is opened, as the policy does.
    pub(super) fn set_runtime(&mut self, runtime: Runtime) -> Vec<Effect> {
        self.change(None, |document| document.runtime = runtime);
        Vec::new()
    }

    /// Where the plan will run, and what whole sites take there as far as that was timed.
    pub fn target(&self) -> Target {
        let times = self.trace.as_ref().and_then(|trace| trace.meta.site_times.as_ref());
        Target::new(self.document.runtime, times)
    }

    pub(super) fn set_override(
        &mut self,
        site: SiteId,
        gemm: Gemm,
        kernel: KernelId,
        reason: String,
    ) -> Result<Vec<Effect>, CommandError> {
        self.can_override(&site, gemm, &kernel)?;
        self.change(None, |document| drop(document.overrides.insert((site, gemm), Override { kernel, reason })));
        Ok(Vec::new())
    }

    /// A kernel can be set by hand where it has a row under the mods in force that says that it runs. Its error may be over
    /// the policy: that is what overrides are for.
    fn can_override(&self, site: &SiteId, gemm: Gemm, kernel: &KernelId) -> Result<(), CommandError> {
        if self.trace.is_none() {
            return Err(CommandError::NoTrace);
        }
        if self.index().at(site).is_none() {
            return Err(CommandError::UnknownSite(site.clone()));
        }
        let (site, kernel) = (site.clone(), kernel.clone());
        match self.row(&site, gemm, &kernel) {
            Some(row) if row.supported => Ok(()),
            Some(row) => {
                let reason = row.reason.as_deref().unwrap_or_default().to_owned();
                Err(CommandError::Unsupported { site, gemm, kernel, reason })
            }
            None => Err(CommandError::NotProbed { site, gemm, kernel }),
        }
    }

    /// Where the kernel cannot run nothing changes, and the person is told how often. The rest is one step of undo.
    /// Refused only where the kernel can run at none of them.
    pub(super) fn set_overrides(
        &mut self,
        at: Vec<(SiteId, Gemm)>,
        kernel: KernelId,
        reason: &str,
    ) -> Result<Vec<Effect>, CommandError> {
        let num = at.len();
        // The person is told in one line: the first reason stands for all.
        let mut first_problem = None;
        let mut able = Vec::with_capacity(num);
        for (site, gemm) in at {
            match self.can_override(&site, gemm, &kernel) {
                Ok(()) => able.push((site, gemm)),
                Err(error) => drop(first_problem.get_or_insert(error)),
            }
        }
        match first_problem {
            Some(error) if able.is_empty() => {
                return Err(CommandError::NowhereSupported { kernel, num, reason: error.to_string() });
            }
            Some(error) => {
                let left = num - able.len();
                self.notices.tell(NoticeKind::Warning, format!("{left} of {num} GEMMs are left as they were: {error}"));
            }
            None => {}
        }
        self.change(None, |document| {
            let wanted = || Override { kernel: kernel.clone(), reason: reason.to_owned() };
            document.overrides.extend(able.into_iter().map(|key| (key, wanted())));
        });
        Ok(Vec::new())
    }

    /// Dispatch chooses there again. Nothing is checked: an override that other mods or rows made impossible has to be
    /// removable.
    pub(super) fn clear_overrides(&mut self, at: &[(SiteId, Gemm)]) -> Vec<Effect> {
        self.change(None, |document| at.iter().for_each(|key| drop(document.overrides.remove(key))));
        Vec::new()
    }
}
