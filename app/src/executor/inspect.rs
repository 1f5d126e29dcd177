//! Takes an opened trace, or another one's name and how to open it, and a site; gives the event with the site's
//! inspection or the one line that says why there is none.

use std::panic::{AssertUnwindSafe, catch_unwind};

use loka_core::{model::SiteId, session::Event, trace::Trace, views::distribution::Inspection};

use super::panic_text;

/// `trace` names the open trace to the session; `open` is it, where its file is there. `read` opens another one.
pub(crate) fn answer(
    trace: String,
    open: Option<Trace>,
    other: Option<String>,
    site: SiteId,
    read: impl FnOnce(&str) -> Result<Trace, String>,
) -> Event {
    // A panic must end as this site's failure, or the view would wait for it for ever.
    let work = AssertUnwindSafe(|| inspect(open, other.as_deref().map(read), &site));
    let outcome = catch_unwind(work).unwrap_or_else(|cause| Err(panic_text(&*cause)));
    Event::SiteInspected { trace, other, site, outcome }
}

fn inspect(
    open: Option<Trace>,
    other: Option<Result<Trace, String>>,
    site: &SiteId,
) -> Result<Box<Inspection>, String> {
    let read = match other {
        Some(opened) => {
            let opened = opened?;
            if let Some(open) = &open {
                same_run(open, &opened)?;
            }
            opened
        }
        None => open.ok_or("these results came without their trace: open the trace to see its distributions")?,
    };
    let stats = read.site_stats(site).map_err(|error| error.to_string())?;
    Ok(Box::new(Inspection::of(&stats, read.manifest())))
}

fn same_run(open: &Trace, other: &Trace) -> Result<(), String> {
    let (mine, theirs) = (&open.manifest().run.id, &other.manifest().run.id);
    if mine == theirs {
        return Ok(());
    }
    Err(format!("it is of another run: '{theirs}', the open trace is of '{mine}': {}", other.file()))
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    const SAMPLE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../sample-traces/wukong-drift.trace.safetensors");
    const ANOTHER: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../sample-traces/wukong-clicks.trace.safetensors");

    fn read(path: &str) -> Result<Trace, String> {
        Trace::open(Path::new(path)).map_err(|error| error.to_string())
    }

    fn reason(open: Option<Trace>, other: Option<&str>, site: &str) -> String {
        inspect(open, other.map(read), &SiteId::new(site)).map(|_| ()).unwrap_err()
    }

    #[test]
    fn a_site_is_read_and_a_refusal_is_one_line() {
        let open = || Some(Trace::open(Path::new(SAMPLE)).unwrap());
        let found = inspect(open(), None, &SiteId::new("head")).unwrap();
        assert_eq!((found.site.id.as_str(), found.run.as_str(), found.step), ("head", "wukong-drift-0", 1000));
        let same = inspect(open(), Some(read(SAMPLE)), &SiteId::new("head")).unwrap();
        assert_eq!(same, found);
        for (reason, part) in [
            (reason(None, None, "head"), "came without their trace"),
            (reason(open(), Some(ANOTHER), "head"), "of another run: 'wukong-clicks-0'"),
            (reason(open(), Some("nowhere.trace.safetensors"), "head"), "nowhere"),
            (reason(open(), None, "no such"), "no such"),
        ] {
            assert!(reason.contains(part) && !reason.contains('\n'), "{reason}");
        }
    }
}
