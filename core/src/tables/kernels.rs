//! Takes a kernel database, gives `*.kernels.parquet`, and back.

use std::path::Path;

use crate::{
    bench::KernelDb,
    model::{GemmShape, KernelId, KernelRecord},
    parts::BenchKey,
};

use super::{
    Cause, TableError,
    check::RowCheck,
    columns::{Nullable, Table, Texts},
    memory::MemoryTable,
    seal::refuse_part,
};
#[cfg(feature = "native")]
use super::{columns::Columns, file, memory::MemoryColumns};

const TIMES: [&str; 8] = [
    "gemm_us",
    "cast_us",
    "latency_us",
    "latency_p10_us",
    "latency_p90_us",
    "latency_cached_us",
    "latency_cached_p10_us",
    "latency_cached_p90_us",
];

/// Of kernels with the tail inside; a file may lack it.
const TAIL: &str = "tail_us";

/// Raw samples and a note: columns that a file may lack.
const SAMPLES: [&str; 3] = ["gemm_samples_us", "latency_samples_us", "cached_samples_us"];

/// The Parquet metadata key of a part of a bench: which it is of which, and its seal.
pub const BENCH_PART_KEY: &str = "loka.bench-part";

#[cfg(feature = "native")]
pub fn write_kernels(path: &Path, database: &KernelDb) -> Result<(), TableError> {
    write_records(path, &database.records, Vec::new())
}

#[cfg(feature = "native")]
pub(super) fn write_records(
    path: &Path,
    rows: &[KernelRecord],
    metadata: Vec<(String, String)>,
) -> Result<(), TableError> {
    let mut columns = MemoryColumns::default();
    kernel_columns(&mut columns, rows);
    for (index, name) in SAMPLES.iter().enumerate() {
        columns.floats(name, rows.iter().map(|r| samples(r)[index]));
    }
    file::write(path, columns, metadata)
}

/// The columns of docs/reference/results.md in its order, all but the raw samples.
#[cfg(feature = "native")]
pub fn kernel_columns(columns: &mut impl Columns, rows: &[KernelRecord]) {
    columns.text("kernel", rows.iter().map(|r| Some(r.kernel.as_str())));
    columns.text("library", rows.iter().map(|r| Some(r.kernel.library())));
    columns.text("recipe", rows.iter().map(|r| Some(r.kernel.recipe())));
    columns.text("gemm", rows.iter().map(|r| Some(r.gemm.as_str())));
    columns.int("m", rows.iter().map(|r| Some(r.shape.m as i64)));
    columns.int("k", rows.iter().map(|r| Some(r.shape.k as i64)));
    columns.int("n", rows.iter().map(|r| Some(r.shape.n as i64)));
    for (index, name) in TIMES.iter().enumerate() {
        columns.float(name, rows.iter().map(|r| r.times()[index]));
    }
    columns.float(TAIL, rows.iter().map(|r| r.tail_us));
    columns.flag("supported", rows.iter().map(|r| r.supported));
    columns.text("reason", rows.iter().map(|r| r.reason.as_deref()));
    columns.int("samples", rows.iter().map(|r| Some(r.samples)));
    columns.text("device", rows.iter().map(|r| Some(r.device.as_str())));
    columns.text("driver", rows.iter().map(|r| Some(r.driver.as_str())));
    columns.text("versions", rows.iter().map(|r| Some(r.versions.as_str())));
    columns.text("recorded_at", rows.iter().map(|r| Some(r.recorded_at.as_str())));
    columns.text("note", rows.iter().map(|r| Some(r.note.as_str())));
}

#[cfg(feature = "native")]
fn samples(record: &KernelRecord) -> [&[f64]; 3] {
    [&record.gemm_samples_us, &record.latency_samples_us, &record.cached_samples_us]
}

/// The database's name is the file's, without `.kernels.parquet`.
#[cfg(feature = "native")]
pub fn read_kernels(path: &Path) -> Result<KernelDb, TableError> {
    let records = file::read(path).and_then(|table| whole(&table)).map_err(|cause| cause.at(path))?;
    Ok(KernelDb { name: name_of(path), records })
}

/// From the bytes of such a file; `name` stands for it.
pub fn kernels_from_bytes(name: &str, bytes: impl AsRef<[u8]> + Send + Sync + 'static) -> Result<KernelDb, TableError> {
    let path = Path::new(name);
    let records = MemoryTable::read(bytes).and_then(|table| whole(&table)).map_err(|cause| cause.at(path))?;
    Ok(KernelDb { name: name_of(path), records })
}

fn name_of(path: &Path) -> String {
    let file = path.file_name().unwrap_or_default().to_string_lossy();
    file.strip_suffix(".kernels.parquet").or_else(|| file.strip_suffix(".parquet")).unwrap_or(&file).to_owned()
}

/// Its shapes are some of those that were asked for: what is looked up in it would be modelled where it was timed.
fn whole(table: &MemoryTable) -> Result<Vec<KernelRecord>, Cause> {
    refuse_part::<BenchKey>(table, BENCH_PART_KEY)?;
    records_of(table)
}

pub(super) fn records_of(table: &MemoryTable) -> Result<Vec<KernelRecord>, Cause> {
    let (kernel, gemm) = (table.text("kernel")?, table.text("gemm")?);
    let (m, k, n) = (table.int("m")?, table.int("k")?, table.int("n")?);
    let times = TIMES.iter().map(|name| table.float(name)).collect::<Result<Vec<_>, _>>()?;
    let (supported, reason, samples) = (table.flag("supported")?, table.text("reason")?, table.int("samples")?);
    let [device, driver, versions, recorded_at] =
        ["device", "driver", "versions", "recorded_at"].map(|name| table.text(name));
    let (device, driver, versions, recorded_at) = (device?, driver?, versions?, recorded_at?);
    let tail = if table.has(TAIL) { table.float(TAIL)? } else { Nullable::nulls(table.height()) };
    let note = if table.has("note") { table.text("note")? } else { Texts(None) };
    let kept = |name: &&str| if table.has(name) { table.floats(name) } else { Ok(vec![Vec::new(); table.height()]) };
    let samples_us = SAMPLES.iter().map(kept).collect::<Result<Vec<_>, _>>()?;

    let record = |row: usize| -> Result<KernelRecord, Cause> {
        let check = RowCheck { row };
        let text = |name, texts: Texts<'_>| -> Result<Option<String>, Cause> {
            texts.at(row).map(|text| Ok(check.text(name, text)?.to_string())).transpose()
        };
        let owned = |name, texts| Ok::<_, Cause>(text(name, texts)?.unwrap_or_default());
        let time = |index: usize| check.not_negative(TIMES[index], times[index].at(row));
        let kept = |index: usize| check.all_not_negative(SAMPLES[index], samples_us[index][row].clone());
        Ok(KernelRecord {
            kernel: KernelId::from(check.required("kernel", kernel.at(row))?),
            gemm: check.required("gemm", gemm.at(row))?.parse().map_err(|problem| check.fault(problem))?,
            shape: GemmShape {
                m: check.size("m", m.at(row))?,
                k: check.size("k", k.at(row))?,
                n: check.size("n", n.at(row))?,
            },
            gemm_us: time(0)?,
            cast_us: time(1)?,
            latency_us: time(2)?,
            latency_p10_us: time(3)?,
            latency_p90_us: time(4)?,
            latency_cached_us: time(5)?,
            latency_cached_p10_us: time(6)?,
            latency_cached_p90_us: time(7)?,
            tail_us: check.not_negative(TAIL, tail.at(row))?,
            supported: check.required("supported", supported.at(row))?,
            reason: text("reason", reason)?,
            samples: check.required("samples", samples.at(row))?,
            device: owned("device", device)?,
            driver: owned("driver", driver)?,
            versions: owned("versions", versions)?,
            recorded_at: owned("recorded_at", recorded_at)?,
            gemm_samples_us: kept(0)?,
            latency_samples_us: kept(1)?,
            cached_samples_us: kept(2)?,
            note: owned("note", note)?,
        })
    };
    (0..table.height()).map(record).collect()
}

#[cfg(test)]
#[cfg(feature = "native")]
mod tests {
    use super::*;
    use crate::bench::{from_csv, to_csv};
    use std::path::PathBuf;

    fn shipped(name: &str) -> PathBuf {
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../assets/kernels").join(format!("{name}.kernels.parquet"))
    }

    #[test]
    fn builtin_and_shipped_databases_agree() {
        for database in KernelDb::builtin() {
            let mut file = read_kernels(&shipped(&database.name)).unwrap();
            if file.records.iter().any(|record| !record.latency_samples_us.is_empty()) {
                // The embedded text has neither samples nor notes and is rounded to nanoseconds.
                file.records = from_csv(&to_csv(&file.records)).unwrap();
            }
            assert_eq!(file, database);
        }
    }

    #[test]
    fn samples_and_notes_are_kept_and_may_be_missing() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("x.kernels.parquet");
        let mut database = KernelDb { name: "x".to_owned(), records: KernelDb::builtin().remove(0).records };
        database.records[0].latency_samples_us = vec![1.5, 2.5];
        database.records[1].gemm_samples_us = vec![3.0];
        database.records[2].tail_us = Some(4.5);
        database.records[1].note = "algorithm 7".to_owned();
        write_kernels(&path, &database).unwrap();
        assert_eq!(read_kernels(&path).unwrap(), database);
        database.records[1].gemm_samples_us = vec![1.0, f64::NAN];
        write_kernels(&path, &database).unwrap();
        let message = read_kernels(&path).unwrap_err().to_string();
        assert_eq!(message, format!("row 2: gemm_samples_us is NaN, it must be at least 0: {}", path.display()));
        write_kernels(&path, &KernelDb { name: "x".to_owned(), records: Vec::new() }).unwrap();
        assert!(read_kernels(&path).unwrap().records.is_empty());
        // The files of before samples were kept still read: the contract's columns are enough.
        let older = read_kernels(&shipped("h200-pytorch-2.11-eager")).unwrap();
        assert!(older.records.iter().all(|record| record.note.is_empty() && record.latency_samples_us.is_empty()));
        assert!(older.records.iter().all(|record| record.tail_us.is_none()));
    }

    /// Files of `loka bench` itself: not written from the embedded text, which has less.
    fn has_samples(name: &str) -> bool {
        name.contains("native") || name.contains("libraries")
    }

    /// Not a check: writes the files that the test above compares.
    #[test]
    #[ignore = "writes assets/kernels"]
    fn builtin_databases_are_written() {
        for database in KernelDb::builtin().into_iter().filter(|database| !has_samples(&database.name)) {
            write_kernels(&shipped(&database.name), &database).unwrap();
        }
    }

    #[test]
    fn a_broken_record_is_named() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("x.kernels.parquet");
        let mut database = KernelDb::builtin().remove(0);
        database.records[1].latency_us = Some(-1.0);
        write_kernels(&path, &database).unwrap();
        let message = read_kernels(&path).unwrap_err().to_string();
        assert_eq!(message, format!("row 2: latency_us is -1, it must be at least 0: {}", path.display()));
    }
}
