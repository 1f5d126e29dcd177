//! Takes the open trace and another one, with the other's rows where they lie beside it; gives the event that says how their
//! sites differ, or the one line that says why they cannot be compared. Nothing is probed.

use std::panic::{AssertUnwindSafe, catch_unwind};

use loka_core::{
    model::{KernelId, ResultRow},
    probe::{SiteErrors, WATCHED, diff_recorded, errors_of},
    session::{Event, TraceComparison},
    trace::Trace,
};

use crate::executor::panic_text;

/// The other trace, and rows of it.
pub(crate) struct OtherTrace {
    pub trace: Trace,
    /// With the digest of the trace that they are of.
    pub rows: Option<(String, Vec<ResultRow>)>,
}

/// `trace` names the open trace to the session; `open` is it, where its file is there. `read` opens the one at `path`.
pub(crate) fn answer(
    trace: String,
    open: Option<Trace>,
    path: String,
    read: impl FnOnce(&str) -> Result<OtherTrace, String>,
) -> Event {
    // A panic must end as a failure, or the view would wait for ever.
    let work = AssertUnwindSafe(|| compare(open, &path, read));
    let outcome = catch_unwind(work).unwrap_or_else(|cause| Err(panic_text(&*cause)));
    Event::TraceCompared { trace, path, outcome }
}

fn compare(
    open: Option<Trace>,
    path: &str,
    read: impl FnOnce(&str) -> Result<OtherTrace, String>,
) -> Result<Box<TraceComparison>, String> {
    let open = open.ok_or("these results came without their trace: open the trace to compare it with another")?;
    let other = read(path)?;
    let diff = diff_recorded([&other.trace, &open]);
    if diff.sites.is_empty() && diff.problems.is_empty() {
        return Err(format!("it has no site of the open trace: {path}"));
    }
    // Rows of another trace that happen to lie there say nothing of this one.
    let errors = match other.rows {
        Some((of, rows)) if of == other.trace.digest() => errors_of(&rows, &KernelId::new(WATCHED)),
        _ => SiteErrors::new(),
    };
    Ok(Box::new(TraceComparison { diff, errors }))
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    const SAMPLE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../sample-traces/wukong-drift.trace.safetensors");
    const ANOTHER: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../sample-traces/wukong-clicks.trace.safetensors");

    fn read(path: &str) -> Result<OtherTrace, String> {
        let trace = Trace::open(Path::new(path)).map_err(|error| error.to_string())?;
        Ok(OtherTrace { trace, rows: None })
    }

    fn outcome(open: Option<Trace>, path: &str) -> Result<Box<TraceComparison>, String> {
        match answer("t".to_owned(), open, path.to_owned(), read) {
            Event::TraceCompared { trace, path: of, outcome } if trace == "t" && of == path => outcome,
            other => Err(format!("{other:?}")),
        }
    }

    #[test]
    fn a_trace_and_itself_differ_nowhere_and_two_samples_do() {
        let open = Trace::open(Path::new(SAMPLE)).ok();
        let same = outcome(open.clone(), SAMPLE).unwrap();
        assert!(!same.diff.sites.is_empty() && same.diff.sites.iter().all(|site| site.octaves() == 0.0));
        match outcome(open, ANOTHER) {
            Ok(found) => assert!(!found.diff.sites.is_empty()),
            Err(line) => assert_eq!(line, format!("it has no site of the open trace: {ANOTHER}")),
        }
    }

    #[test]
    fn what_cannot_be_compared_is_a_line() {
        assert_eq!(
            outcome(None, SAMPLE).unwrap_err(),
            "these results came without their trace: open the trace to compare it with another"
        );
        let open = Trace::open(Path::new(SAMPLE)).ok();
        let missing = outcome(open, "no/such.trace.safetensors").unwrap_err();
        assert!(missing.contains("no/such.trace.safetensors"), "{missing}");
    }
}
