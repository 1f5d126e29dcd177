//! What people say of the plan, and what they sign: takes their commands, keeps marks, comments and the version that is
//! submitted for approval.
//!
//! Whether somebody may ask for it was checked by their role before. Here it is seen to that what is signed is what was
//! submitted, and that it still is what is on screen. Nothing of it is undone, and it ends with the open trace.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use serde::{Deserialize, Serialize};

use super::{
    Command, CommandError, Effect, LogKind, Notices,
    shared::{Author, CommandContext},
};
use crate::{
    dispatch::Document,
    model::{Gemm, Moment, SiteId, as_text},
    plan::{ApprovalProblem, FINGERPRINT_CHARACTERS, Plan, review_digest, standing, why_not},
    review::{Approval, Comment, KeyRing, Mark, Review, ReviewState, Statement, TEXT_CHARACTERS},
};

/// A version of the plan that was submitted for approval. It changes no more; the session may.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Release {
    /// Counts from 1 in a session.
    pub number: u32,
    pub by: String,
    pub at: Moment,
    pub note: String,
    /// With its digest, without approvals. Shared with every copy of the session that is saved: it never changes.
    #[serde(with = "as_text")]
    pub plan: Arc<Plan>,
    /// What was decided then. Decisions that lead back to it make the version, and its approvals, hold again.
    pub document: Document,
    /// Beside the plan, whose digest they sign.
    pub approvals: Vec<Approval>,
    /// Who changed a decision since, and when: what was signed is no longer what is on screen.
    pub changed: Option<(String, Moment)>,
}

/// Who changed an override last, and after how many steps.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Touch {
    pub seq: u64,
    /// Of the window, not of the person: two windows of one person can be in conflict, too.
    pub key: u64,
    pub by: String,
    pub at: Moment,
}

/// Everything of a session that is a review's: saved with it, and not undone.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Reviewing {
    /// Goes up with every change of it. What is said of a plan does not make its views anew.
    pub revision: u64,
    pub review: Review,
    /// The version that is up for approval. The next one takes its place, and its approvals are gone.
    pub release: Option<Release>,
    /// A number is given once, also where its version was withdrawn.
    pub last_release: u32,
    /// Whoever decided something since the trace was opened. A policy can ask for approvals by others. The program is
    /// none of them.
    pub authors: BTreeSet<String>,
    /// By GEMM.
    #[serde(with = "as_pairs")]
    pub touched: BTreeMap<(SiteId, Gemm), Touch>,
    /// By person: the fingerprints of what they saw.
    pub looked: BTreeMap<String, BTreeMap<SiteId, String>>,
}

impl Reviewing {
    /// Numbers of steps and changes, which mean nothing in another order of the same inputs. A touch at step 0 is in
    /// conflict with nothing.
    pub(super) fn forget_places(&mut self) {
        self.revision = 0;
        self.touched.values_mut().for_each(|touch| touch.seq = 0);
    }
}

impl Reviewing {
    /// Nobody's override is replaced by somebody who had not seen it.
    pub(super) fn no_conflict(&self, by: &CommandContext, command: &Command) -> Result<(), CommandError> {
        // 0: there are no others, whose steps could be missed.
        if by.seen == 0 || self.touched.is_empty() {
            return Ok(());
        }
        for (site, gemm) in command.overridden() {
            let touch = self.touched.get(&(site.clone(), gemm));
            if let Some(touch) = touch.filter(|touch| touch.seq > by.seen && touch.key != by.author.key) {
                return Err(CommandError::Conflict { by: touch.by.clone(), site: site.clone(), gemm });
            }
        }
        Ok(())
    }

    /// Notes who changed which decision; a version that was signed is no longer what is on screen.
    pub(super) fn decided_by(
        &mut self,
        by: &CommandContext,
        seq: u64,
        command: &Command,
        (before, after): (&Document, &Document),
        notices: &mut Notices,
    ) {
        let (name, at) = (by.author.name.clone(), by.at);
        let changed = |key: &(SiteId, Gemm)| before.overrides.get(key) != after.overrides.get(key);
        // Undo and redo move overrides that they do not name.
        let moved: Vec<(SiteId, Gemm)> = match command {
            Command::Undo | Command::Redo => {
                before.overrides.keys().chain(after.overrides.keys()).filter(|key| changed(key)).cloned().collect()
            }
            command => command.overridden().into_iter().map(|(site, gemm)| (site.clone(), gemm)).collect(),
        };
        let touch = Touch { seq, key: by.author.key, by: name.clone(), at };
        self.touched.extend(moved.into_iter().map(|key| (key, touch.clone())));
        if by.author.key != 0 {
            self.authors.insert(name.clone());
        }
        self.revision += 1;
        let Some(release) = &mut self.release else { return };
        if release.document == *after {
            // Undone, or decided back: what is on screen is what was signed.
            release.changed = None;
            return;
        }
        let first = release.changed.replace((name.clone(), at)).is_none();
        // A drag changes the plan a hundred times, and is one line.
        if first {
            let lost = if release.approvals.is_empty() { "" } else { ": its approvals no longer hold" };
            let number = release.number;
            notices.record(LogKind::Review, format!("{name} changed the plan after version {number}{lost}"));
        }
    }

    /// In place of the person's earlier mark there. Whoever marks a site has looked at it; whoever says that the plan needs
    /// work takes their approval back.
    pub(super) fn set_mark(
        &mut self,
        by: &CommandContext,
        site: Option<SiteId>,
        state: ReviewState,
        of: String,
        notices: &mut Notices,
    ) -> Result<Vec<Effect>, CommandError> {
        let of = cut(of);
        if let Some(site) = &site {
            self.looked_at(by, site, of.clone());
        }
        let name = by.author.name.clone();
        if site.is_none() && state == ReviewState::NeedsWork {
            self.take_back(&name, notices);
        }
        self.review.set_mark(Mark { site, by: name, at: by.at, state, of });
        self.revision += 1;
        Ok(Vec::new())
    }

    /// Whoever signed and now doubts has not signed.
    fn take_back(&mut self, name: &str, notices: &mut Notices) {
        let Some(release) = &mut self.release else { return };
        let before = release.approvals.len();
        release.approvals.retain(|approval| approval.name != name);
        if release.approvals.len() < before {
            let line = format!("{name} took back the approval of version {}", release.number);
            notices.record(LogKind::Review, line);
        }
    }

    /// Begins a thread, or answers the comment that begins one at the same place. Refused where the text is empty or too
    /// long, or there is no such thread.
    pub(super) fn comment(
        &mut self,
        by: &CommandContext,
        site: Option<SiteId>,
        gemm: Option<Gemm>,
        reply_to: Option<u64>,
        text: String,
    ) -> Result<Vec<Effect>, CommandError> {
        let characters = text.chars().count();
        if text.trim().is_empty() {
            return Err(CommandError::EmptyComment);
        }
        if characters > TEXT_CHARACTERS {
            return Err(CommandError::LongComment { characters, most: TEXT_CHARACTERS });
        }
        let review = &mut self.review;
        if let Some(id) = reply_to {
            let begun = review.comment(id).filter(|of| of.site == site && of.reply_to.is_none());
            begun.ok_or(CommandError::UnknownComment(id))?;
        }
        let (id, name) = (review.next_id(), by.author.name.clone());
        let comment = Comment { id, site, gemm, reply_to, by: name, at: by.at, text, resolved_by: None };
        review.comments.push(comment);
        self.revision += 1;
        Ok(Vec::new())
    }

    /// Anybody who may comment closes threads, and opens them again, also those of others.
    pub(super) fn resolve(
        &mut self,
        by: &CommandContext,
        id: u64,
        resolved: bool,
    ) -> Result<Vec<Effect>, CommandError> {
        let comments = &mut self.review.comments;
        let begun = comments.iter_mut().find(|comment| comment.id == id && comment.reply_to.is_none());
        let comment = begun.ok_or(CommandError::UnknownComment(id))?;
        comment.resolved_by = resolved.then(|| by.author.name.clone());
        self.revision += 1;
        Ok(Vec::new())
    }

    /// Kept so that the person is told, whenever they come back, what is another choice since.
    pub(super) fn look(&mut self, by: &CommandContext, site: &SiteId, of: String) -> Result<Vec<Effect>, CommandError> {
        self.looked_at(by, site, cut(of));
        self.revision += 1;
        Ok(Vec::new())
    }

    /// By name: a window that is opened tomorrow has another key.
    fn looked_at(&mut self, by: &CommandContext, site: &SiteId, of: String) {
        self.looked.entry(by.author.name.clone()).or_default().insert(site.clone(), of);
    }

    /// Makes the plan a version: it gets its number, its authors and its date, and with them the digest that is signed. The
    /// version before is no longer up for approval.
    pub(super) fn request_approval(
        &mut self,
        by: &CommandContext,
        note: String,
        mut plan: Plan,
        document: &Document,
        notices: &mut Notices,
    ) -> Result<Vec<Effect>, CommandError> {
        if note.chars().count() > TEXT_CHARACTERS {
            return Err(CommandError::LongComment { characters: note.chars().count(), most: TEXT_CHARACTERS });
        }
        let number = self.last_release + 1;
        (plan.release, plan.authors) = (Some(number), self.authors.iter().cloned().collect());
        plan.stamp(by.at.to_string());
        let name = by.author.name.clone();
        notices.record(LogKind::Review, format!("{name} put version {number} up for approval: {}", plan.digest));
        self.last_release = number;
        self.release = Some(Release {
            number,
            by: name,
            at: by.at,
            note,
            plan: Arc::new(plan),
            document: document.clone(),
            approvals: Vec::new(),
            changed: None,
        });
        self.revision += 1;
        Ok(Vec::new())
    }

    /// What was signed goes with it.
    pub(super) fn withdraw_request(
        &mut self,
        by: &CommandContext,
        notices: &mut Notices,
    ) -> Result<Vec<Effect>, CommandError> {
        let release = self.release.take().ok_or(CommandError::NotRequested)?;
        notices.record(LogKind::Review, format!("{} withdrew version {}", by.author.name, release.number));
        self.revision += 1;
        Ok(Vec::new())
    }

    /// Changes nothing: gives the statement to whoever has the key, which no session ever sees.
    pub(super) fn sign(&self, by: &CommandContext, path: String, note: String) -> Result<Vec<Effect>, CommandError> {
        if let Some(release) = self.release.as_ref().filter(|release| release.changed.is_some()) {
            return Err(CommandError::Changed(release.number));
        }
        let statement = self.statement(&by.author, by.at, note).ok_or(CommandError::NotRequested)?;
        Ok(vec![Effect::Sign { path, statement }])
    }

    /// Takes an approval that was signed elsewhere: from its author, in the role that they have here, of the version as it
    /// was submitted. No list of keys is asked, since it may be another one by the time the plan is used.
    pub(super) fn approve(
        &mut self,
        by: &CommandContext,
        approval: Approval,
        notices: &mut Notices,
    ) -> Result<Vec<Effect>, CommandError> {
        let release = self.release.as_mut().ok_or(CommandError::NotRequested)?;
        if release.changed.is_some() {
            return Err(CommandError::Changed(release.number));
        }
        if approval.name != by.author.name {
            return Err(CommandError::AnothersApproval { signed: approval.name, name: by.author.name.clone() });
        }
        if approval.role != by.author.role {
            let (is, says) = (by.author.role.one().to_owned(), approval.role.one().to_owned());
            return Err(ApprovalProblem::Role(is, says).into());
        }
        if let Some(problem) = why_not(&release.plan, &approval, None, Some(by.at)) {
            return Err(problem.into());
        }
        // A person counts once by whatever key, a key once by whatever name.
        if release.approvals.iter().any(|known| known.key == approval.key || known.name == approval.name) {
            return Err(ApprovalProblem::Twice.into());
        }
        let line = format!("{} approved version {}: {}", approval.name, release.number, approval.digest);
        release.approvals.push(approval);
        notices.record(LogKind::Review, line);
        self.revision += 1;
        Ok(Vec::new())
    }

    /// The plan for a file: as it was approved where it was and is that still; else as it stands `now`, which the file says. `asks`: the
    /// policy asks for approvals; `keys`: by whose list they count.
    pub(super) fn plan_for_file(
        &self,
        now: impl FnOnce() -> Result<Plan, CommandError>,
        asks: bool,
        keys: Option<&KeyRing>,
    ) -> Result<Plan, CommandError> {
        let review = (!self.review.is_empty()).then(|| self.review.clone());
        let Some(release) = self.release.as_ref().filter(|release| release.changed.is_none()) else {
            let mut plan = now()?;
            plan.review = review;
            // Where nobody ever asks for an approval, a plan is no draft.
            if asks || self.release.is_some() {
                plan.authors = self.authors.iter().cloned().collect();
                plan.draft = Some(match &self.release {
                    Some(release) => format!("changed after version {} was submitted for approval", release.number),
                    None => "not submitted for approval".to_owned(),
                });
            }
            return Ok(plan);
        };
        let mut plan = self.with_what_was_said(release);
        plan.draft = standing(&plan, keys, None).missing();
        Ok(plan)
    }

    /// The version that is submitted, with its approvals and the review so far.
    pub fn with_what_was_said(&self, release: &Release) -> Plan {
        let review = &self.review;
        let mut plan = Plan::clone(&release.plan);
        (plan.review, plan.approvals) = ((!review.is_empty()).then(|| review.clone()), release.approvals.clone());
        plan
    }

    /// What somebody signs who approves the submitted version; the key is theirs.
    pub fn statement(&self, author: &Author, at: Moment, note: String) -> Option<Statement> {
        let release = self.release.as_ref()?;
        let review = (!self.review.is_empty()).then(|| self.review.clone());
        let (digest, name, role) = (release.plan.digest.clone(), author.name.clone(), author.role);
        Some(Statement { digest, review_digest: review_digest(review.as_ref()), name, role, at, note })
    }

    /// The fingerprint of what this person saw of a site last.
    pub fn looked_at_last(&self, name: &str, site: &SiteId) -> Option<&str> {
        self.looked.get(name)?.get(site).map(String::as_str)
    }
}

/// Windows make fingerprints: one that was made up takes no more room than a real one.
fn cut(of: String) -> String {
    if of.len() <= FINGERPRINT_CHARACTERS { of } else { of.chars().take(FINGERPRINT_CHARACTERS).collect() }
}

/// JSON has no tuple keys.
mod as_pairs {
    use std::collections::BTreeMap;

    use serde::{Deserialize as _, Deserializer, Serializer};

    use super::{Gemm, SiteId, Touch};

    type Touched = BTreeMap<(SiteId, Gemm), Touch>;

    pub fn serialize<S: Serializer>(touched: &Touched, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(touched)
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Touched, D::Error> {
        Ok(Vec::<((SiteId, Gemm), Touch)>::deserialize(deserializer)?.into_iter().collect())
    }
}

#[cfg(test)]
mod tests;
