//! Takes the parts of one run, gives what one machine would have found: the same rows in the same order, the same
//! circumstances but for the time, which is the last part's.

use std::collections::BTreeSet;

use crate::model::{Manifest, Results, ResultsMeta};

use super::{
    ProbePart,
    whole::{MergeError, in_order},
};

/// `parts`: each with the name that errors show, in any order.
pub fn merge(parts: Vec<(String, ProbePart)>) -> Result<Results, MergeError> {
    let parts = in_order(parts, |part| &part.key)?;
    let Some((first_name, first)) = parts.first() else { return Err(MergeError::Nothing) };
    let apart = without_sites(&first.results.meta.manifest);
    // The digest of the trace is the same, so that this is one that lies.
    if let Some((name, _)) = parts.iter().find(|(_, part)| without_sites(&part.results.meta.manifest) != apart) {
        let (found, expected) = ("another one".to_owned(), "the first part's".to_owned());
        let (other, name) = (first_name.clone(), name.clone());
        return Err(MergeError::Differs { what: "manifest", found, expected, other, name });
    }
    joined(parts).ok_or(MergeError::Nothing)
}

fn without_sites(manifest: &Manifest) -> Manifest {
    // Field by field: a copy of a manifest with 100,000 sites is not made for nothing.
    Manifest {
        version: manifest.version,
        model: manifest.model.clone(),
        run: manifest.run.clone(),
        loss: manifest.loss.clone(),
        quantile_probs: manifest.quantile_probs.clone(),
        sites: Vec::new(),
        extra: manifest.extra.clone(),
    }
}

/// In order of their numbers, all there. `None`: there are none.
fn joined(parts: Vec<(String, ProbePart)>) -> Option<Results> {
    let mut drivers = BTreeSet::new();
    // Room for all at once: growing, a list of millions is there twice.
    let num_rows = parts.iter().map(|(_, part)| part.results.rows.len()).sum();
    let (mut meta, mut rows): (Option<ResultsMeta>, Vec<_>) = (None, Vec::with_capacity(num_rows));
    for (_, part) in parts {
        let of_part = part.results.meta;
        drivers.insert(of_part.driver.clone());
        rows.extend(part.results.rows);
        match &mut meta {
            None => meta = Some(of_part),
            Some(meta) => {
                meta.manifest.sites.extend(of_part.manifest.sites);
                meta.problems.extend(of_part.problems);
                meta.time = meta.time.clone().max(of_part.time);
            }
        }
    }
    let mut meta = meta?;
    meta.driver = drivers.into_iter().collect::<Vec<_>>().join("; ");
    let mut results = Results { meta, rows };
    results.in_order();
    Some(results)
}

#[cfg(test)]
mod tests {
    use super::{
        super::{PartFault, PartKey, PartOf, key::tests::run},
        *,
    };
    use crate::dispatch::testing::results;

    const SITES: [&str; 3] = ["b", "a", "c"];

    fn whole() -> Results {
        // With rows of BF16 at every GEMM.
        let mut whole = results(&SITES, Vec::new());
        whole.meta.time = "2026-11-24T10:00:00Z".to_owned();
        whole.in_order();
        whole
    }

    fn part(number: usize, range: std::ops::Range<usize>) -> (String, ProbePart) {
        let mut results = whole();
        results.meta.manifest.sites = results.meta.manifest.sites[range.clone()].to_vec();
        let has = |site: &str| results.meta.manifest.sites.iter().any(|own| own.id.as_str() == site);
        let rows = results.rows.iter().filter(|row| has(row.site.as_str())).cloned().collect();
        results.rows = rows;
        let mut run = run(2);
        run.trace.clone_from(&results.meta.trace_digest);
        (run.engine, run.device) = (results.rows[0].engine.to_string(), results.rows[0].device.to_string());
        run.versions.clone_from(&results.meta.versions);
        (run.seed, run.confidence) = (results.rows[0].seed, results.meta.confidence);
        results.meta.engine.clone_from(&run.engine);
        results.meta.device.clone_from(&run.device);
        results.meta.seed = run.seed;
        let key = PartKey::new(run, PartOf { part: number, of: 2 }, range);
        (key.file_name(), ProbePart { key, results })
    }

    #[test]
    fn parts_in_any_order_are_the_whole() {
        let mut later = part(2, 1..3);
        later.1.results.meta.time = "2026-11-24T11:00:00Z".to_owned();
        let merged = merge(vec![later, part(1, 0..1)]).unwrap();
        let mut expected = whole();
        expected.meta.engine.clone_from(&merged.meta.engine);
        expected.meta.device.clone_from(&merged.meta.device);
        expected.meta.seed = merged.meta.seed;
        expected.meta.time = "2026-11-24T11:00:00Z".to_owned();
        assert_eq!(merged, expected);
    }

    #[test]
    fn what_is_not_one_run_is_refused() {
        let refusal = |parts| merge(parts).unwrap_err().to_string();
        let (one, two) = (part(1, 0..1), part(2, 1..3));
        assert_eq!(refusal(Vec::new()), "there are no parts to merge");
        assert_eq!(refusal(vec![two.clone()]), "part 1 of 2 is missing: loka probe --part 1/2 makes it");
        let twice = refusal(vec![one.clone(), ("copy".to_owned(), one.1.clone()), two.clone()]);
        assert_eq!(twice, format!("part 1/2 is there twice, the other one is {}: copy", one.0));
        let mut other = two.clone();
        other.1.key.run.seed = 9;
        let line = refusal(vec![one.clone(), other]);
        assert_eq!(line, format!("parts of two runs: the seed is 9, but 1 in {}: {}", one.0, two.0));
        let mut gap = two.clone();
        gap.1.key.first = 2;
        assert_eq!(refusal(vec![one.clone(), gap]), format!("its sites do not follow those of {}: {}", one.0, two.0));
        let mut lost = two.clone();
        lost.1.results.meta.manifest.loss.value += 1.0;
        assert!(refusal(vec![one, lost]).starts_with("parts of two runs: the manifest is another one"));
        let many = MergeError::Missing { parts: (2..9).collect(), of: 40, command: "probe" };
        let expected = "parts 2, 3, 4, 5, 6 and 2 more of 40 are missing: loka probe --part 2/40 makes the first";
        assert_eq!(many.to_string(), expected);
    }

    /// A part that was changed, and one whose key is not what its rows are of.
    #[test]
    fn a_part_that_lies_is_not_opened() {
        let part = part(2, 1..3).1;
        let sealed = part.sealed();
        assert_eq!(ProbePart::opened(sealed.clone(), part.results.clone()), Ok(part.clone()));
        let changed = |change: fn(&mut Results)| {
            let mut results = part.results.clone();
            change(&mut results);
            results
        };
        for change in [
            (|results| results.rows[1].latency.note = "another".into()) as fn(&mut Results),
            |results| drop(results.rows.pop()),
            |results| results.meta.time.push('x'),
            |results| results.meta.manifest.sites[0].m += 1,
        ] {
            assert_eq!(ProbePart::opened(sealed.clone(), changed(change)), Err(PartFault::Seal));
        }
        // Sealed again by whoever changed it.
        let resealed = |change: fn(&mut ProbePart)| {
            let mut other = part.clone();
            change(&mut other);
            ProbePart::opened(other.sealed(), other.results.clone()).map_err(|fault| fault.to_string())
        };
        let line = |change| resealed(change).unwrap_err();
        assert_eq!(line(|part| part.key.run.seed = 7), "its seed is 1, its key says 7");
        assert_eq!(line(|part| part.key.end = 9), "its number of sites is 2, its key says 8");
        assert_eq!(line(|part| drop(part.results.rows.pop())), "c has 2 rows, it must have 3");
        assert!(line(|part| part.results.rows[0].seed = 7).starts_with("a row of a is of"));
        assert_eq!(
            line(|part| part.results.rows[0].kernel = crate::model::KernelId::new("x/y")),
            "a row of a is of x/y, its key says other kernels"
        );
        assert!(part.check_name("part-1-of-2-x.results.parquet").is_err());
        assert_eq!(part.check_name(&part.key.file_name()), Ok(()));
    }
}
