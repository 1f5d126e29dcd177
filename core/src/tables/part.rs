//! Takes a part of a probe, gives its file, and back: a file of results that says which part it is of which run.

use std::path::Path;

use crate::parts::ProbePart;

use super::{
    Cause, TableError, file,
    results::{head_of, results_of, write_with},
    seal,
};

pub use super::results::PART_KEY;

pub fn write_part(path: &Path, part: &ProbePart) -> Result<(), TableError> {
    let sealed = seal::written(&part.sealed(), PART_KEY).map_err(|cause| cause.at(path))?;
    write_with(path, &part.results, sealed)
}

/// Refuses one whose seal, circumstances or rows do not fit its key. Its name is for the caller to compare.
pub fn read_part(path: &Path) -> Result<ProbePart, TableError> {
    let read = || {
        let (table, meta) = file::read_keyed(path, head_of)?;
        Ok(ProbePart::opened(seal::sealed(&table, PART_KEY)?, results_of(&table, meta)?)?)
    };
    read().map_err(|cause: Cause| cause.at(path))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        dispatch::testing,
        parts::{PartKey, PartOf, RunKey},
        tables::read_results,
    };

    fn part() -> ProbePart {
        let mut results = testing::results(&["a"], Vec::new());
        let (row, meta) = (results.rows[0].clone(), &mut results.meta);
        (meta.engine, meta.device, meta.seed) = (row.engine.to_string(), row.device.to_string(), row.seed);
        let run = RunKey {
            trace: meta.trace_digest.clone(),
            kernels: vec!["cublaslt/bf16".to_owned()],
            mods: vec![String::new()],
            sites: Vec::new(),
            rows: None,
            numerics: 1,
            seed: row.seed,
            min_draws: 4,
            max_draws: 4,
            confidence: meta.confidence,
            sampler: "gaussian".to_owned(),
            latencies: Vec::new(),
            engine: row.engine.to_string(),
            device: row.device.to_string(),
            versions: meta.versions.clone(),
            of: 1,
        };
        ProbePart { key: PartKey::new(run, PartOf { part: 1, of: 1 }, 0..1), results }
    }

    #[test]
    fn a_part_is_read_as_it_was_written_and_is_no_results_file() {
        let (folder, part) = (tempfile::tempdir().unwrap(), part());
        let path = folder.path().join(part.key.file_name());
        write_part(&path, &part).unwrap();
        assert_eq!(read_part(&path).unwrap(), part);
        let line = read_results(&path).unwrap_err().to_string();
        assert_eq!(line, format!("it is part 1/1 of a probe: loka merge joins all of them: {}", path.display()));
        #[cfg(feature = "web")]
        {
            let bytes = std::fs::read(&path).unwrap();
            let line = crate::tables::results_from_bytes("p", bytes).unwrap_err().to_string();
            assert_eq!(line, "it is part 1/1 of a probe: loka merge joins all of them: p");
        }
        let whole = folder.path().join("r.results.parquet");
        crate::tables::write_results(&whole, &part.results).unwrap();
        let line = read_part(&whole).unwrap_err().to_string();
        assert_eq!(line, format!("no part of a probe: its metadata has no 'loka.part': {}", whole.display()));
    }

    #[test]
    fn a_truncated_part_is_refused_at_every_length() {
        let (folder, part) = (tempfile::tempdir().unwrap(), part());
        let path = folder.path().join("p.results.parquet");
        write_part(&path, &part).unwrap();
        let bytes = std::fs::read(&path).unwrap();
        for length in (0..bytes.len()).step_by(61) {
            std::fs::write(&path, &bytes[..length]).unwrap();
            let line = read_part(&path).unwrap_err().to_string();
            assert!(line.starts_with("not a Parquet file, or a truncated one (") && !line.contains('\n'), "{line}");
        }
    }

    /// Whatever is written over a byte: the part, or one line. Never other rows.
    #[test]
    fn a_flipped_byte_is_noticed() {
        let (folder, part) = (tempfile::tempdir().unwrap(), part());
        let path = folder.path().join("p.results.parquet");
        write_part(&path, &part).unwrap();
        let bytes = std::fs::read(&path).unwrap();
        for place in (0..bytes.len()).step_by(41) {
            let mut changed = bytes.clone();
            changed[place] ^= 0xff;
            std::fs::write(&path, &changed).unwrap();
            match read_part(&path) {
                Ok(read) => assert_eq!(read, part, "byte {place}"),
                Err(error) => assert!(!error.to_string().contains('\n'), "{place}: {error}"),
            }
        }
    }
}
