//! Every header in a Parquet file, each of its bytes bent: a reader that believes a size asks for more memory than there
//! is, and that is the end of the process, which no test catches in itself. So it is another process that reads, with a
//! limit on its memory, and it has to come to its end.

use std::{
    fs,
    path::Path,
    process::{Command, Stdio},
};

use loka_core::{
    bench::KernelDb,
    tables::{read_kernels, read_part, read_results, results_from_bytes, write_kernels},
};
use loka_tests::{here, run_in};
use parquet::file::{reader::FileReader, serialized_reader::SerializedFileReader};

const THIS: &str = "headers::a_bent_header_takes_no_more_memory_than_there_is";

/// The file to bend, for the other process.
const FILE: &str = "LOKA_BENT_FILE";

/// Of address space, in KiB: a test's threads and what it reads are a tenth of it.
const MOST_KIB: usize = 2 << 20;

/// Bytes at the beginning of a column: the header of its dictionary, and of its first page.
const HEADERS: usize = 64;

/// Of so many bytes one is bent: in each column others.
const STRIDE: usize = 4;

#[test]
fn a_bent_header_takes_no_more_memory_than_there_is() {
    if let Some(path) = std::env::var_os(FILE) {
        bend_all(Path::new(&path));
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    fs::copy(here("../fuzz/seeds/results/tiny"), at("tiny.results.parquet")).unwrap();
    let trace = here("corpus/good.trace.safetensors").display().to_string();
    run_in(folder.path(), ["probe", &trace, "--part", "1/1", "--out", "parts", "--max-draws", "4"]).done();
    let mut part = fs::read_dir(at("parts")).unwrap().map(|entry| entry.unwrap().path());
    let part = part.find(|path| path.to_string_lossy().ends_with(".results.parquet")).unwrap();
    let mut database = KernelDb::builtin().remove(0);
    database.records.truncate(3);
    database.records[0].latency_samples_us = vec![1.0, 2.0];
    write_kernels(&at("few.kernels.parquet"), &database).unwrap();
    let limited = format!("ulimit -v {MOST_KIB} && exec \"$0\" --exact {THIS} --nocapture");
    for file in [at("tiny.results.parquet"), part, at("few.kernels.parquet")] {
        let mut command = Command::new("sh");
        command.args(["-c", &limited]).arg(std::env::current_exe().unwrap()).env(FILE, &file).stdin(Stdio::null());
        let output = command.output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        let last: Vec<&str> = said.lines().rev().take(12).collect();
        assert!(output.status.success(), "{}: {:?}: {last:#?}", file.display(), output.status);
    }
}

/// Where headers lie: before the pages of each column, and the footer.
fn places(bytes: &[u8]) -> Vec<usize> {
    let reader = SerializedFileReader::new(bytes::Bytes::copy_from_slice(bytes)).unwrap();
    let mut places = Vec::new();
    for (at, column) in reader.metadata().row_groups().iter().flat_map(|group| group.columns()).enumerate() {
        let (start, length) = column.byte_range();
        let pages = start as usize..(start + length) as usize;
        places.extend(pages.take(HEADERS).skip(at % STRIDE).step_by(STRIDE));
    }
    let length = u32::from_le_bytes(*bytes[..bytes.len() - 4].last_chunk().unwrap()) as usize;
    // Most of the footer are sites in JSON: a number of them is enough.
    places.extend((bytes.len() - 8 - length..bytes.len()).step_by(length.div_ceil(700)));
    places
}

fn bend_all(file: &Path) {
    let good = fs::read(file).unwrap();
    let name = file.file_name().unwrap().to_string_lossy().into_owned();
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join(&name);
    let mut refused = 0;
    for place in places(&good) {
        // A count of the other sign, and a number that goes on in the next byte.
        for by in [good[place] ^ 1, 0xff] {
            let mut bent = good.clone();
            bent[place] = by;
            fs::write(&path, &bent).unwrap();
            // The last line that is there says where it ended.
            eprintln!("byte {place} is {by}");
            let found = if name.ends_with(".kernels.parquet") {
                vec![read_kernels(&path).map(drop)]
            } else {
                vec![
                    read_results(&path).map(drop),
                    read_part(&path).map(drop),
                    results_from_bytes("bent", bent).map(drop),
                ]
            };
            for error in found.into_iter().filter_map(Result::err) {
                assert!(!error.to_string().contains('\n'), "{error}");
                refused += 1;
            }
        }
    }
    assert!(refused > 500, "{refused} are refused");
}

/// The byte that it was: a page of 6 values says -7, which one reader took for room for 2^61 bytes.
#[test]
fn a_page_of_a_negative_number_of_values_is_refused() {
    let mut bytes = fs::read(here("../fuzz/seeds/results/tiny")).unwrap();
    assert_eq!(bytes[47], 12, "6 values");
    bytes[47] = 13;
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("r.results.parquet");
    fs::write(&path, &bytes).unwrap();
    for line in [read_results(&path).unwrap_err(), read_part(&path).unwrap_err()] {
        let line = line.to_string();
        assert!(line.starts_with("not a Parquet file, or a truncated one ("), "{line}");
    }
}
