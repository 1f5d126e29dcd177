//! Takes the open trace and another one, with the other's rows where they lie beside it; gives the event that says how their
//! sites differ, or the one line that says why they cannot be compared. Nothing is probed.

use std::{
    panic::{AssertUnwindSafe, catch_unwind},
    path::Path,
};

use loka_core::{
    model::KernelId,
    probe::{SiteErrors, WATCHED, diff_recorded, errors_of},
    session::{Event, TraceComparison},
    tables,
    trace::Trace,
};

use crate::{beside::beside, executor::panic_text};

/// `trace` names the open trace to the session; `open` is it, where its file is there. `path` names the other one, which
/// lies at `file`.
pub(crate) fn answer(trace: String, open: Option<Trace>, path: String, file: &str) -> Event {
    // A panic must end as a failure, or the view would wait for ever.
    let work = AssertUnwindSafe(|| compare(open, file));
    let outcome = catch_unwind(work).unwrap_or_else(|cause| Err(panic_text(&*cause)));
    Event::TraceCompared { trace, path, outcome }
}

fn compare(open: Option<Trace>, file: &str) -> Result<Box<TraceComparison>, String> {
    let open = open.ok_or("these results came without their trace: open the trace to compare it with another")?;
    let other = Trace::open(Path::new(file)).map_err(|error| error.to_string())?;
    let diff = diff_recorded([&other, &open]);
    if diff.sites.is_empty() && diff.problems.is_empty() {
        return Err(format!("it has no site of the open trace: {file}"));
    }
    Ok(Box::new(TraceComparison { diff, errors: errors_beside(file, &other) }))
}

/// Rows that cannot be read, and those of another trace that happen to lie there, are as good as none: the statistics speak
/// for themselves.
fn errors_beside(file: &str, trace: &Trace) -> SiteErrors {
    match tables::read_results(Path::new(&beside(file, "results.parquet"))) {
        Ok(found) if found.meta.trace_digest == trace.digest() => {
            errors_of(&found.rows, &KernelId::new(WATCHED), trace.manifest().loss.value)
        }
        _ => SiteErrors::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SAMPLE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../sample-traces/wukong-drift.trace.safetensors");
    const ANOTHER: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../sample-traces/wukong-clicks.trace.safetensors");

    fn outcome(open: Option<Trace>, path: &str) -> Result<Box<TraceComparison>, String> {
        match answer("t".to_owned(), open, path.to_owned(), path) {
            Event::TraceCompared { trace, path: of, outcome } if trace == "t" && of == path => outcome,
            other => Err(format!("{other:?}")),
        }
    }

    #[test]
    fn a_trace_and_itself_differ_nowhere() {
        let same = outcome(Trace::open(Path::new(SAMPLE)).ok(), SAMPLE).unwrap();
        assert!(!same.diff.sites.is_empty() && same.diff.changed().is_empty());
        assert!(same.diff.sites.iter().all(|site| site.octaves() == 0.0));
    }

    #[test]
    fn what_cannot_be_compared_is_a_line() {
        assert_eq!(
            outcome(None, SAMPLE).unwrap_err(),
            "these results came without their trace: open the trace to compare it with another"
        );
        let open = Trace::open(Path::new(SAMPLE)).ok();
        assert_eq!(outcome(open.clone(), ANOTHER).unwrap_err(), format!("it has no site of the open trace: {ANOTHER}"));
        let missing = outcome(open, "no/such.trace.safetensors").unwrap_err();
        assert!(missing.contains("no/such.trace.safetensors"), "{missing}");
    }
}
