//! What the canvas shows, as plain text and tables, for whoever cannot see it: takes the session and what was derived of
//! it, gives HTML. A page has it behind its canvas, where screen readers find it.

use std::fmt::Write as _;

use loka_core::{
    model::SiteId,
    session::Session,
    views::{Snapshot, tsv},
};

use crate::{
    picture::escaped,
    state::{Derived, ViewState},
    window::LokaApp,
};

/// Sites of one table. A filter shows others: a browser takes a tenth of a second over a thousand rows.
const SITES: usize = 100;
/// Comments, the newest first.
const COMMENTS: usize = 100;

/// Seconds without a change, and with one after the other, after which another text is made.
const REST: f64 = 0.5;
const MOST: f64 = 10.0;

/// What the last text was made of, and since when another one would be: it is made when a drag or somebody's typing rests.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Told {
    of: Option<Revisions>,
    now: Option<Revisions>,
    /// Since when it is as it is, and since when it is not what was told.
    still: f64,
    behind: f64,
}

/// Of what was derived, of what was said, and what the filter shows: how many sites, the first and the last.
type Revisions = (u64, u64, (usize, Option<u32>, Option<u32>));

/// What is to be told now.
#[derive(Clone, Debug, PartialEq)]
pub enum Alternative {
    Same,
    /// To be asked again after so many seconds.
    Later(f64),
    Text(String),
}

impl Told {
    /// Seconds until a text of that is to be made; `None`: it was told.
    fn wait(&mut self, revisions: Revisions, now: f64) -> Option<f64> {
        if self.of == Some(revisions) {
            self.now = None;
            return None;
        }
        if self.now != Some(revisions) {
            if self.now.is_none() {
                self.behind = now;
            }
            (self.now, self.still) = (Some(revisions), now);
        }
        // Whoever has been told nothing need not wait.
        let due = if self.of.is_none() { now } else { (self.still + REST).min(self.behind + MOST) };
        Some((due - now).max(0.0))
    }
}

impl LokaApp {
    /// The text, where it is another than the one that was told. Asked with every frame; `now`: in seconds.
    pub fn alternative(&self, told: &mut Told, now: f64) -> Alternative {
        let (session, view, derived) = (self.session(), &self.view, &self.derived);
        // Half of it would be of another moment.
        if derived.is_behind() {
            return Alternative::Same;
        }
        let lines = view.sites.lines();
        let shown = lines.shown();
        let shown = (shown.len(), shown.first().copied(), shown.last().copied());
        let revisions = (derived.revision, session.reviewing.revision, shown);
        match told.wait(revisions, now) {
            None => Alternative::Same,
            Some(left) if left > 0.0 => Alternative::Later(left),
            Some(_) => {
                (told.of, told.now) = (Some(revisions), None);
                Alternative::Text(html(session, derived.snapshot.as_deref(), view, derived))
            }
        }
    }
}

fn html(session: &Session, snapshot: Option<&Snapshot>, view: &ViewState, derived: &Derived) -> String {
    let (Some(snapshot), Some(trace)) = (snapshot, &session.trace) else {
        return "<p>No trace is open.</p>".to_owned();
    };
    let mut page = format!("<h1>{}</h1><p>{}</p>", escaped(&trace.path), escaped(&derived.answer.text()));
    let policy = &snapshot.document.policy;
    let _ = write!(page, "<p>Policy {}.</p>", escaped(&policy.name));
    // The list of sites is made when it is drawn: without a filter it has all of them.
    let shown: Vec<usize> = match view.filter.as_str() {
        "" => (0..snapshot.sites().len()).collect(),
        _ => view.sites.lines().shown().iter().map(|at| *at as usize).collect(),
    };
    let first = &shown[..shown.len().min(SITES)];
    let more = match shown.len() - first.len() {
        0 => String::new(),
        more => format!(", the first {SITES}; {more} more, which a filter of the sites shows"),
    };
    let verdict = |at: &usize| {
        let site = &snapshot.sites()[*at];
        let of = derived.verdict(*at);
        let counts = [of.num_safe_fast, of.num_safe, of.num_uncertain, of.num_unsafe, of.num_overrides];
        let shape = [site.m, site.k, site.n].map(|size| size.to_string()).join(" x ");
        [site.id.to_string(), shape].into_iter().chain(counts.map(|count| count.to_string())).collect()
    };
    let header = ["site", "m x k x n", "safe and fast", "safe, not fast", "uncertain", "unsafe", "set by hand"];
    let rows: Vec<Vec<String>> = first.iter().filter(|at| **at < snapshot.sites().len()).map(verdict).collect();
    table(
        &mut page,
        &format!("Sites: GEMMs by the best verdict of their kernels{more}"),
        &header.map(str::to_owned),
        &rows,
    );
    let choices = tsv::choices_of(snapshot, derived, first.iter().copied());
    table(&mut page, &format!("Plan: the kernel of each GEMM{more}"), &choices.header, &choices.rows);
    let of = |site: &Option<SiteId>| site.as_ref().map_or("the plan".to_owned(), ToString::to_string);
    let review = &session.reviewing.review;
    let said = review.comments.iter().rev().take(COMMENTS);
    let said = said.map(|one| vec![one.at.to_string(), one.by.clone(), of(&one.site), one.text.clone()]);
    let marks = review.marks().take(SITES);
    let marks =
        marks.map(|mark| vec![mark.at.to_string(), mark.by.clone(), of(&mark.site), mark.state.as_str().to_owned()]);
    let rows: Vec<Vec<String>> = marks.chain(said).collect();
    table(&mut page, "Review: marks and comments", &["when", "who", "of", "what"].map(str::to_owned), &rows);
    page
}

fn table(page: &mut String, caption: &str, header: &[String], rows: &[Vec<String>]) {
    if rows.is_empty() {
        let _ = write!(page, "<p>{}: none.</p>", escaped(caption));
        return;
    }
    let _ = write!(page, "<table><caption>{}</caption><thead><tr>", escaped(caption));
    for name in header {
        let _ = write!(page, "<th scope=\"col\">{}</th>", escaped(name));
    }
    page.push_str("</tr></thead><tbody>");
    for row in rows {
        page.push_str("<tr>");
        for (at, cell) in row.iter().enumerate() {
            let (open, close) = if at == 0 { ("<th scope=\"row\">", "</th>") } else { ("<td>", "</td>") };
            let _ = write!(page, "{open}{}{close}", escaped(cell));
        }
        page.push_str("</tr>");
    }
    page.push_str("</tbody></table>");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_waits_until_changes_rest_and_no_longer_than_so_long() {
        let mut told = Told::default();
        let of = |revision| (revision, 0, (1, None, None));
        assert_eq!(told.wait(of(1), 3.0), Some(0.0), "the first at once");
        told.of = Some(of(1));
        assert_eq!(told.wait(of(1), 4.0), None);
        assert_eq!(told.wait(of(2), 5.0), Some(REST));
        assert_eq!(told.wait(of(3), 5.25), Some(REST), "it changed again");
        assert_eq!(told.wait(of(3), 5.5), Some(0.25));
        assert_eq!(told.wait(of(1), 5.6), None, "back to what was told");
        for at in 0..=40 {
            let left = told.wait(of(10 + at), 6.0 + at as f64 / 4.0);
            assert_eq!(left, Some(REST.min(MOST - at as f64 / 4.0)), "{at}");
        }
    }

    #[test]
    fn nothing_that_is_said_becomes_markup() {
        let mut page = String::new();
        let cell = "<script>alert(1)</script>&\"'".to_owned();
        table(&mut page, "a < b", std::slice::from_ref(&cell), &[vec![cell.clone(), cell.clone()]]);
        assert!(
            !page.contains("<script") && page.contains("&lt;script&gt;alert(1)&lt;/script&gt;&amp;&quot;'"),
            "{page}"
        );
        assert_eq!(page.matches("<th scope=\"row\">").count(), 1);
        let mut none = String::new();
        table(&mut none, "Plan", &[], &[]);
        assert_eq!(none, "<p>Plan: none.</p>");
    }
}
