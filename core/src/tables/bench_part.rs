//! Takes a part of a bench, gives its file, and back: a kernel database that says which part it is of which bench.

use std::path::Path;

use crate::parts::BenchPart;

use super::{
    Cause, TableError, file,
    kernels::{BENCH_PART_KEY, records_of, write_records},
    seal,
};

pub fn write_bench_part(path: &Path, part: &BenchPart) -> Result<(), TableError> {
    let sealed = seal::written(&part.sealed(), BENCH_PART_KEY).map_err(|cause| cause.at(path))?;
    write_records(path, &part.records, sealed)
}

/// Refuses one whose seal or records do not fit its key. Its name is for the caller to compare.
pub fn read_bench_part(path: &Path) -> Result<BenchPart, TableError> {
    let read = || {
        let table = file::read(path)?;
        Ok(BenchPart::opened(seal::sealed(&table, BENCH_PART_KEY)?, records_of(&table)?)?)
    };
    read().map_err(|cause: Cause| cause.at(path))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        bench::KernelDb,
        model::{GemmShape, KernelRecord},
        parts::{BenchKey, PartKey, PartOf, shapes_digest},
        tables::{kernels_from_bytes, read_kernels, read_part, write_kernels},
    };

    fn part() -> BenchPart {
        let database = KernelDb::builtin().remove(0);
        let shape = database.records[0].shape;
        let of_shape: Vec<KernelRecord> = database.records.iter().filter(|of| of.shape == shape).cloned().collect();
        let first = &of_shape[0];
        let mut kernels: Vec<String> = of_shape.iter().map(|of| of.kernel.to_string()).collect();
        kernels.sort();
        kernels.dedup();
        let mut gemms: Vec<_> = of_shape.iter().map(|of| of.gemm).collect();
        gemms.sort();
        gemms.dedup();
        let run = BenchKey {
            shapes: shapes_digest(&[shape, GemmShape { m: 8, k: 8, n: 8 }]),
            kernels,
            gemms,
            samples: 31,
            engine: "cuda".to_owned(),
            device: first.device.clone(),
            driver: first.driver.clone(),
            versions: first.versions.clone(),
            of: 2,
        };
        let mut records = of_shape;
        // As a bench of one's own has them, and with what JSON has to be told.
        records[0].latency_samples_us = vec![1.25, 1.0 / 3.0, 5e-324];
        records[1].reason = Some(String::new());
        BenchPart { key: PartKey::new(run, PartOf { part: 1, of: 2 }, 0..1), records }
    }

    #[test]
    fn a_part_is_read_as_it_was_written_and_is_no_database() {
        let (folder, part) = (tempfile::tempdir().unwrap(), part());
        let path = folder.path().join(part.key.file_name());
        write_bench_part(&path, &part).unwrap();
        assert_eq!(read_bench_part(&path).unwrap(), part);
        let line = read_kernels(&path).unwrap_err().to_string();
        assert_eq!(line, format!("it is part 1/2 of a bench: loka merge joins all of them: {}", path.display()));
        let line = kernels_from_bytes("p", std::fs::read(&path).unwrap()).unwrap_err().to_string();
        assert_eq!(line, "it is part 1/2 of a bench: loka merge joins all of them: p");
        assert!(read_part(&path).unwrap_err().to_string().starts_with("not a results file: "));
        let whole = folder.path().join("k.kernels.parquet");
        write_kernels(&whole, &KernelDb { name: String::new(), records: part.records }).unwrap();
        let line = read_bench_part(&whole).unwrap_err().to_string();
        assert_eq!(line, format!("no part of a bench: its metadata has no 'loka.bench-part': {}", whole.display()));
    }

    /// Whatever is cut off or written over: the part, or one line. Never other times.
    #[test]
    fn a_damaged_part_is_noticed() {
        let (folder, part) = (tempfile::tempdir().unwrap(), part());
        let path = folder.path().join("p.kernels.parquet");
        write_bench_part(&path, &part).unwrap();
        let bytes = std::fs::read(&path).unwrap();
        for length in (0..bytes.len()).step_by(61) {
            std::fs::write(&path, &bytes[..length]).unwrap();
            assert!(!read_bench_part(&path).unwrap_err().to_string().contains('\n'));
        }
        for place in (0..bytes.len()).step_by(41) {
            let mut changed = bytes.clone();
            changed[place] ^= 0xff;
            std::fs::write(&path, &changed).unwrap();
            match read_bench_part(&path) {
                Ok(read) => assert_eq!(read, part, "byte {place}"),
                Err(error) => assert!(!error.to_string().contains('\n'), "{place}: {error}"),
            }
        }
    }
}
