//! The review: the next site that waits, agreeing, doubting, commenting; putting a version up and signing it.

use egui::Key;
use loka_core::{
    model::SiteId,
    review::{ReviewState, Role},
    session::Command,
};

use super::{
    Doing, Scope, no_rows, no_site,
    table::{NO_KEY, actions, key, shift},
};
use crate::{
    layout::Pane,
    state::{Dialog, ReviewFilter},
};

actions! {
    /// Reviewing and signing.
    ReviewAction {
        Next: "Next to review", "Note this site as seen, and go to the next that waits, the riskiest first", key(Key::N);
        Previous: "Previous in the review", "Go back to the riskier site before this one", shift(Key::N);
        Agree: "Agree", "Agree to the selected site's choices as they are, or to the plan, and go on", key(Key::A);
        NeedsWork: "Needs work", "Mark the selected site, or the plan, as one that has to change", key(Key::W);
        Reopen: "Open again", "Take back what you said of the selected site, or of the plan", shift(Key::A);
        Comment: "Comment…", "Write on the selected site, or on the plan", key(Key::C);
        Whole: "Review the plan as a whole", "Switch between the selected site and the plan as a whole", shift(Key::C);
        Filter: "Filter the review", "Show what to look at, what is not agreed, what needs work, what changed, or all", NO_KEY;
        RequestApproval: "Request approval", "Put the plan as it stands up to be signed, as its next version", NO_KEY;
        Approve: "Approve…", "Sign the submitted version with your key", NO_KEY;
        WithdrawRequest: "Withdraw the version", "Take the version back, with what was signed", NO_KEY;
    }
}

impl ReviewAction {
    pub(super) fn needs(self) -> Role {
        match self {
            Self::Next | Self::Previous | Self::Whole | Self::Filter => Role::Viewer,
            Self::Agree | Self::NeedsWork | Self::Reopen | Self::Comment => Role::Reviewer,
            Self::Approve => Role::Approver,
            Self::RequestApproval | Self::WithdrawRequest => Role::Owner,
        }
    }

    pub(super) fn problem(self, scope: Scope<'_>) -> Option<String> {
        let release = scope.session.reviewing.release.as_ref();
        let none = || release.is_none().then(|| "nothing was submitted for approval".to_owned());
        let of_place =
            || if scope.view.review.whole { no_rows(scope) } else { no_rows(scope).or_else(|| no_site(scope)) };
        match self {
            Self::Next | Self::Previous | Self::Filter | Self::Whole => no_rows(scope),
            Self::Agree | Self::NeedsWork | Self::Reopen | Self::Comment => of_place(),
            Self::RequestApproval => no_rows(scope).or_else(|| {
                let up = release.is_some_and(|release| release.changed.is_none());
                up.then(|| "the plan is up for approval as it stands".to_owned())
            }),
            Self::Approve => none().or_else(|| {
                let changed = release.is_some_and(|release| release.changed.is_some());
                let signed = release.is_some_and(|of| of.approvals.iter().any(|by| by.name == scope.me.name));
                changed
                    .then(|| "the plan changed since it was submitted".to_owned())
                    .or_else(|| signed.then(|| "you signed it already".to_owned()))
            }),
            Self::WithdrawRequest => none(),
        }
    }

    pub(super) fn perform(self, doing: &mut Doing<'_>) -> Option<Command> {
        doing.view.layout.show(Pane::Review);
        doing.view.review.refresh(doing.session, doing.derived, &doing.me.name);
        match self {
            Self::Next => return next(doing),
            Self::Previous => {
                let before = doing.view.review.next(doing.session, doing.view.site.as_ref(), true);
                go(doing, before);
            }
            Self::Agree => return mark(doing, ReviewState::Agreed),
            Self::NeedsWork => return mark(doing, ReviewState::NeedsWork),
            Self::Reopen => return mark(doing, ReviewState::Open),
            Self::Comment => (doing.view.review.focus_draft, doing.view.review.reply_to) = (true, None),
            Self::Whole => doing.view.review.whole = !doing.view.review.whole,
            Self::Filter => {
                let all = ReviewFilter::ALL;
                let at = all.iter().position(|keep| *keep == doing.view.review.keep).unwrap_or(0);
                doing.view.review.keep = all[(at + 1) % all.len()];
            }
            Self::RequestApproval => {
                let note = std::mem::take(&mut doing.view.review.note).trim().to_owned();
                return Some(Command::RequestApproval { note });
            }
            Self::Approve => doing.view.dialog = Some(Dialog::approve()),
            Self::WithdrawRequest => return Some(Command::WithdrawRequest),
        }
        None
    }
}

fn go(doing: &mut Doing<'_>, to: Option<SiteId>) {
    let Some(site) = to else { return };
    doing.view.select(site, None);
    doing.view.reveal = true;
    (doing.view.review.reveal, doing.view.review.whole, doing.view.review.reply_to) = (true, false, None);
}

/// The one that is left was seen.
fn next(doing: &mut Doing<'_>) -> Option<Command> {
    let (session, review) = (doing.session, &doing.view.review);
    // What was selected for a person is not where they are: they begin with the riskiest.
    let here = doing.view.site.as_ref().filter(|_| !doing.view.follow_worst && !review.whole);
    let next = review.next(session, here, false);
    let left = here.cloned().and_then(|site| {
        let at = session.index().at(&site)?;
        let (of, known) = (review.fingerprint(at)?.to_owned(), review.standing(at)?.seen);
        (!known).then_some(Command::Look { site, of })
    });
    go(doing, next);
    left
}

fn mark(doing: &mut Doing<'_>, state: ReviewState) -> Option<Command> {
    let review = &doing.view.review;
    if review.whole {
        let of = review.queue()?.fingerprint();
        return Some(Command::Mark { site: None, state, of });
    }
    let site = doing.view.site.clone()?;
    let of = review.fingerprint(doing.session.index().at(&site)?)?.to_owned();
    if state == ReviewState::Agreed {
        let next = review.next(doing.session, Some(&site), false).filter(|next| *next != site);
        go(doing, next);
    }
    Some(Command::Mark { site: Some(site), state, of })
}
