//! What people say of the plan, and what they sign: takes their commands, keeps marks, comments and the version that is
//! put up for approval.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use serde::{Deserialize, Serialize};

use super::{
    Command, CommandError, Document, Effect, LogKind, Session,
    shared::{Author, By},
};
use crate::{
    model::{Gemm, Moment, SiteId, as_text},
    plan::{ApprovalProblem, Plan, review_digest, standing, why_not},
    review::{Approval, Comment, Mark, Review, ReviewState, Statement, TEXT_LETTERS},
};

/// Letters of what a mark or a look remembers.
const FINGERPRINT_LETTERS: usize = 64;

/// A version of the plan that was put up for approval. It changes no more; the session may.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Release {
    /// Counts from 1 in a session.
    pub number: u32,
    pub by: String,
    pub at: Moment,
    pub note: String,
    /// With its digest, without approvals.
    #[serde(with = "as_text")]
    pub plan: Arc<Plan>,
    /// What was decided then.
    pub document: Document,
    pub approvals: Vec<Approval>,
    /// Who changed a decision since, and when: what was signed is no longer what is on screen.
    pub changed: Option<(String, Moment)>,
}

/// Who changed an override last, and after how many steps.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Touch {
    pub seq: u64,
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
    pub release: Option<Release>,
    pub last_release: u32,
    /// Whoever decided something since the trace was opened.
    pub authors: BTreeSet<String>,
    /// By GEMM.
    #[serde(with = "as_pairs")]
    pub touched: BTreeMap<(SiteId, Gemm), Touch>,
    /// By person: the fingerprints of what they saw.
    pub looked: BTreeMap<String, BTreeMap<SiteId, String>>,
}

impl Reviewing {
    /// Numbers of steps and changes, which mean nothing in another order of the same inputs.
    pub(super) fn forget_places(&mut self) {
        self.revision = 0;
        self.touched.values_mut().for_each(|touch| touch.seq = 0);
    }
}

impl Session {
    /// As [`Self::command`], by somebody who may or may not, at a place in the order.
    pub fn command_by(&mut self, by: &By, seq: u64, command: Command) -> Result<Vec<Effect>, CommandError> {
        let (name, role, needs) = (&by.author.name, by.author.role, command.needs());
        if role < needs {
            return Err(CommandError::NotAllowed { name: name.clone(), role, needs });
        }
        self.no_conflict(by, &command)?;
        let decides = command.decides().then(|| (command.clone(), self.document.clone()));
        let effects = match command {
            Command::Mark { site, state, of } => self.set_mark(by, site, state, of),
            Command::Comment { site, gemm, reply_to, text } => self.comment(by, site, gemm, reply_to, text),
            Command::Resolve { comment, resolved } => self.resolve(by, comment, resolved),
            Command::Look { site, of } => self.look(by, &site, of),
            Command::RequestApproval { note } => self.request_approval(by, note),
            Command::WithdrawRequest => self.withdraw_request(by),
            Command::Approve { approval } => self.approve(by, *approval),
            command => self.carry_out(command),
        }?;
        if let Some((command, before)) = decides.filter(|(_, before)| *before != self.document) {
            self.decided_by(by, seq, &command, &before);
        }
        Ok(effects)
    }

    /// Nobody's override is replaced by somebody who had not seen it.
    fn no_conflict(&self, by: &By, command: &Command) -> Result<(), CommandError> {
        if by.seen == 0 || self.reviewing.touched.is_empty() {
            return Ok(());
        }
        for (site, gemm) in command.overridden() {
            let touch = self.reviewing.touched.get(&(site.clone(), gemm));
            if let Some(touch) = touch.filter(|touch| touch.seq > by.seen && touch.key != by.author.key) {
                return Err(CommandError::Conflict { by: touch.by.clone(), site: site.clone(), gemm });
            }
        }
        Ok(())
    }

    fn decided_by(&mut self, by: &By, seq: u64, command: &Command, before: &Document) {
        let (name, at) = (by.author.name.clone(), by.at);
        let changed = |key: &(SiteId, Gemm)| before.overrides.get(key) != self.document.overrides.get(key);
        // Undo and redo move overrides that they do not name.
        let moved: Vec<(SiteId, Gemm)> = match command {
            Command::Undo | Command::Redo => before
                .overrides
                .keys()
                .chain(self.document.overrides.keys())
                .filter(|key| changed(key))
                .cloned()
                .collect(),
            command => command.overridden().into_iter().map(|(site, gemm)| (site.clone(), gemm)).collect(),
        };
        let touch = Touch { seq, key: by.author.key, by: name.clone(), at };
        self.reviewing.touched.extend(moved.into_iter().map(|key| (key, touch.clone())));
        if by.author.key != 0 {
            self.reviewing.authors.insert(name.clone());
        }
        self.reviewing.revision += 1;
        let Some(release) = &mut self.reviewing.release else { return };
        if release.document == self.document {
            release.changed = None;
            return;
        }
        let first = release.changed.replace((name.clone(), at)).is_none();
        let (number, signed) = (release.number, release.approvals.len());
        if first {
            let lost = if signed > 0 { ": its approvals no longer hold" } else { "" };
            self.record(LogKind::Review, format!("{name} changed the plan after version {number}{lost}"));
        }
    }

    fn place(&self, site: Option<&SiteId>) -> Result<(), CommandError> {
        if self.trace.is_none() {
            return Err(CommandError::NoTrace);
        }
        match site {
            Some(site) if self.index().at(site).is_none() => Err(CommandError::UnknownSite(site.clone())),
            _ => Ok(()),
        }
    }

    fn set_mark(
        &mut self,
        by: &By,
        site: Option<SiteId>,
        state: ReviewState,
        of: String,
    ) -> Result<Vec<Effect>, CommandError> {
        self.place(site.as_ref())?;
        let of = cut(of);
        if let Some(site) = &site {
            self.looked_at(by, site, of.clone());
        }
        let name = by.author.name.clone();
        if site.is_none() && state == ReviewState::NeedsWork {
            self.take_back(&name);
        }
        self.reviewing.review.set_mark(Mark { site, by: name, at: by.at, state, of });
        self.reviewing.revision += 1;
        Ok(Vec::new())
    }

    /// Whoever signed and now doubts has not signed.
    fn take_back(&mut self, name: &str) {
        let Some(release) = &mut self.reviewing.release else { return };
        let before = release.approvals.len();
        release.approvals.retain(|approval| approval.name != name);
        if release.approvals.len() < before {
            let line = format!("{name} took back the approval of version {}", release.number);
            self.record(LogKind::Review, line);
        }
    }

    fn comment(
        &mut self,
        by: &By,
        site: Option<SiteId>,
        gemm: Option<Gemm>,
        reply_to: Option<u64>,
        text: String,
    ) -> Result<Vec<Effect>, CommandError> {
        self.place(site.as_ref())?;
        let letters = text.chars().count();
        if text.trim().is_empty() {
            return Err(CommandError::EmptyComment);
        }
        if letters > TEXT_LETTERS {
            return Err(CommandError::LongComment { letters, most: TEXT_LETTERS });
        }
        let review = &mut self.reviewing.review;
        if let Some(id) = reply_to {
            let begun = review.comment(id).filter(|of| of.site == site && of.reply_to.is_none());
            begun.ok_or(CommandError::UnknownComment(id))?;
        }
        let (id, name) = (review.next_id(), by.author.name.clone());
        let comment = Comment { id, site, gemm, reply_to, by: name, at: by.at, text, resolved_by: None };
        review.comments.push(comment);
        self.reviewing.revision += 1;
        Ok(Vec::new())
    }

    fn resolve(&mut self, by: &By, id: u64, resolved: bool) -> Result<Vec<Effect>, CommandError> {
        let comments = &mut self.reviewing.review.comments;
        let begun = comments.iter_mut().find(|comment| comment.id == id && comment.reply_to.is_none());
        let comment = begun.ok_or(CommandError::UnknownComment(id))?;
        comment.resolved_by = resolved.then(|| by.author.name.clone());
        self.reviewing.revision += 1;
        Ok(Vec::new())
    }

    fn look(&mut self, by: &By, site: &SiteId, of: String) -> Result<Vec<Effect>, CommandError> {
        self.place(Some(site))?;
        self.looked_at(by, site, cut(of));
        self.reviewing.revision += 1;
        Ok(Vec::new())
    }

    fn looked_at(&mut self, by: &By, site: &SiteId, of: String) {
        self.reviewing.looked.entry(by.author.name.clone()).or_default().insert(site.clone(), of);
    }

    fn request_approval(&mut self, by: &By, note: String) -> Result<Vec<Effect>, CommandError> {
        if note.chars().count() > TEXT_LETTERS {
            return Err(CommandError::LongComment { letters: note.chars().count(), most: TEXT_LETTERS });
        }
        let mut plan = self.plan_now()?;
        let number = self.reviewing.last_release + 1;
        (plan.release, plan.authors) = (Some(number), self.reviewing.authors.iter().cloned().collect());
        plan.stamp(by.at.to_string());
        let name = by.author.name.clone();
        self.record(LogKind::Review, format!("{name} put version {number} up for approval: {}", plan.digest));
        self.reviewing.last_release = number;
        self.reviewing.release = Some(Release {
            number,
            by: name,
            at: by.at,
            note,
            plan: Arc::new(plan),
            document: self.document.clone(),
            approvals: Vec::new(),
            changed: None,
        });
        self.reviewing.revision += 1;
        Ok(Vec::new())
    }

    fn withdraw_request(&mut self, by: &By) -> Result<Vec<Effect>, CommandError> {
        let release = self.reviewing.release.take().ok_or(CommandError::NotRequested)?;
        self.record(LogKind::Review, format!("{} withdrew version {}", by.author.name, release.number));
        self.reviewing.revision += 1;
        Ok(Vec::new())
    }

    fn approve(&mut self, by: &By, approval: Approval) -> Result<Vec<Effect>, CommandError> {
        let release = self.reviewing.release.as_mut().ok_or(CommandError::NotRequested)?;
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
        if release.approvals.iter().any(|known| known.key == approval.key || known.name == approval.name) {
            return Err(ApprovalProblem::Twice.into());
        }
        let line = format!("{} approved version {}: {}", approval.name, release.number, approval.digest);
        release.approvals.push(approval);
        self.record(LogKind::Review, line);
        self.reviewing.revision += 1;
        Ok(Vec::new())
    }

    /// The plan for a file: as it was approved where it was and is that still; else as it stands, which the file says.
    pub(super) fn plan_for_file(&self) -> Result<Plan, CommandError> {
        let reviewing = &self.reviewing;
        let review = (!reviewing.review.is_empty()).then(|| reviewing.review.clone());
        let asks = self.document.policy.approval.is_some();
        let Some(release) = reviewing.release.as_ref().filter(|release| release.changed.is_none()) else {
            let mut plan = self.plan_now()?;
            plan.review = review;
            if asks || reviewing.release.is_some() {
                plan.authors = reviewing.authors.iter().cloned().collect();
                plan.draft = Some(match &reviewing.release {
                    Some(release) => format!("changed after version {} was put up for approval", release.number),
                    None => "not put up for approval".to_owned(),
                });
            }
            return Ok(plan);
        };
        let mut plan = Plan::clone(&release.plan);
        (plan.review, plan.approvals) = (review, release.approvals.clone());
        plan.draft = standing(&plan, None, None).missing();
        Ok(plan)
    }

    /// What somebody signs who approves the version that is put up; the key is theirs.
    pub fn statement(&self, author: &Author, at: Moment, note: String) -> Option<Statement> {
        let release = self.reviewing.release.as_ref()?;
        let review = (!self.reviewing.review.is_empty()).then(|| self.reviewing.review.clone());
        let (digest, name, role) = (release.plan.digest.clone(), author.name.clone(), author.role);
        Some(Statement { digest, review_digest: review_digest(review.as_ref()), name, role, at, note })
    }

    /// What this person has not seen yet, or has seen otherwise: its fingerprint is another now.
    pub fn has_looked(&self, name: &str, site: &SiteId, of: &str) -> bool {
        self.reviewing.looked.get(name).and_then(|sites| sites.get(site)).is_some_and(|known| known == of)
    }
}

fn cut(of: String) -> String {
    if of.len() <= FINGERPRINT_LETTERS { of } else { of.chars().take(FINGERPRINT_LETTERS).collect() }
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
