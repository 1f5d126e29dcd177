//! Takes a plan's review, gives its comments as threads: those of the whole plan first, then by site as the model runs.

use std::collections::{HashMap, HashSet};

use crate::{
    model::SiteId,
    plan::Plan,
    review::{Comment, Review},
};

pub struct Thread<'a> {
    pub first: &'a Comment,
    pub replies: Vec<&'a Comment>,
}

impl Thread<'_> {
    pub fn is_open(&self) -> bool {
        self.first.resolved_by.is_none()
    }

    /// `net.top.0 · fprop`, or the plan as a whole.
    pub fn place(&self) -> String {
        let Some(site) = &self.first.site else { return "The plan as a whole".to_owned() };
        let site = crate::format::line(site.as_str(), crate::format::NAME);
        self.first.gemm.map_or(site.clone(), |gemm| format!("{site} · {gemm}"))
    }
}

/// A reply to what is not there, or to another reply, stands for itself: nothing that was said is lost.
pub fn threads(plan: &Plan) -> Vec<Thread<'_>> {
    let Some(review) = &plan.review else { return Vec::new() };
    let firsts: HashSet<u64> = review.comments.iter().filter(|of| of.reply_to.is_none()).map(|of| of.id).collect();
    let mut threads: Vec<Thread<'_>> = Vec::new();
    let mut place: HashMap<u64, usize> = HashMap::new();
    let mut replies = Vec::new();
    for comment in &review.comments {
        match comment.reply_to.filter(|to| firsts.contains(to)) {
            Some(to) => replies.push((to, comment)),
            None => {
                place.entry(comment.id).or_insert(threads.len());
                threads.push(Thread { first: comment, replies: Vec::new() });
            }
        }
    }
    for (to, comment) in replies {
        if let Some(thread) = place.get(&to).and_then(|at| threads.get_mut(*at)) {
            thread.replies.push(comment);
        }
    }
    let sites: HashMap<&SiteId, usize> = plan.sites.iter().enumerate().map(|(at, of)| (&of.site, at)).collect();
    let rank = |thread: &Thread<'_>| match &thread.first.site {
        None => (0, 0),
        Some(site) => sites.get(site).map_or((2, 0), |at| (1, *at)),
    };
    threads.sort_by_key(rank);
    threads
}

/// Where the sites stand with those who looked at them.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Marked<'a> {
    pub agreed: usize,
    pub needs_work: Vec<&'a SiteId>,
}

pub fn marked(plan: &Plan) -> Marked<'_> {
    use crate::{plan::fingerprint, review::ReviewState};
    let none = Review::default();
    let review = plan.review.as_ref().unwrap_or(&none);
    let (mut marked, mods) = (Marked::default(), plan.site_mods());
    if review.marks().next().is_none() {
        return marked;
    }
    for site in &plan.sites {
        let got = [&site.fprop, &site.dgrad, &site.wgrad].map(|choice| (&choice.kernel, choice.source));
        let now = fingerprint(got, mods.of(&site.site));
        match review.state_of(Some(&site.site), &now) {
            ReviewState::Open => {}
            ReviewState::Agreed => marked.agreed += 1,
            ReviewState::NeedsWork => marked.needs_work.push(&site.site),
        }
    }
    marked
}
