//! Takes a plan, where it stands with who signed it, and the results that it was made from where they are at hand;
//! gives a report for people: one HTML file that needs nothing else, or Markdown for a pull request. Pure, and the
//! same bytes for the same input: nothing here looks at a clock.

mod colour;
mod decisions;
mod entries;
mod facts;
mod figure;
mod frontier;
mod glyph;
mod graph;
mod grid;
mod heatmap;
mod markdown;
mod page;
mod points;
mod quadrant;
mod sections;
mod tables;
mod threads;

pub use entries::{Entry, entries};
pub use figure::{Figure, figure};
pub use grid::{Row, Sheet};
pub use markdown::markdown;
pub use page::html;

use crate::{
    model::Results,
    plan::{ApprovalStatus, Plan, results_digest},
};

/// What a report is of.
#[derive(Clone, Debug)]
pub struct Source<'a> {
    pub plan: &'a Plan,
    pub results: Option<&'a Results>,
    pub standing: ApprovalStatus<'a>,
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ReportError {
    #[error("the plan was made from other results: {plan}, these are {found}")]
    OtherResults { plan: String, found: String },
}

impl<'a> Source<'a> {
    /// Refuses results that the plan was not made from: a report would show their numbers beside its choices.
    pub fn new(
        plan: &'a Plan,
        results: Option<&'a Results>,
        standing: ApprovalStatus<'a>,
    ) -> Result<Self, ReportError> {
        if let Some(results) = results {
            let found = results_digest(&results.rows);
            if found != plan.results_digest {
                return Err(ReportError::OtherResults { plan: plan.results_digest.clone(), found });
            }
        }
        Ok(Self { plan, results, standing })
    }
}

#[cfg(test)]
mod tests;
