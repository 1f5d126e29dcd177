//! A bench that is split: what its records depend on, a part of it with its seal, and parts joined. The same as of a probe,
//! but that times are measured: two machines that make one part find about the same, and the first one's counts.

use std::collections::HashSet;

use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

use crate::model::{Gemm, GemmShape, KernelRecord, canonical_json, sha256, sha256_of};

use super::{
    fault::PartFault,
    key::{PartKey, SplitRun},
    part::Sealed,
    whole::{MergeError, in_order},
};

/// What all parts of a bench have in common.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct BenchKey {
    /// [`shapes_digest`] of the whole list.
    pub shapes: String,
    /// In the order in which they are timed, the baseline among them.
    pub kernels: Vec<String>,
    pub gemms: Vec<Gemm>,
    /// Of each kernel and sequence.
    pub samples: u64,
    pub engine: String,
    pub device: String,
    /// Times of two drivers are two sources.
    pub driver: String,
    /// Of LoKA and of the libraries that ran.
    pub versions: String,
    /// How many parts the run is split into.
    pub of: usize,
}

impl SplitRun for BenchKey {
    const COMMAND: &'static str = "bench";
    const PREFIX: &'static str = "bench-";
    const ENDING: &'static str = ".kernels.parquet";
    const PIECES: &'static str = "shapes";

    fn of(&self) -> usize {
        self.of
    }

    fn difference(&self, other: &Self) -> Option<(&'static str, String, String)> {
        type Said = fn(&BenchKey) -> String;
        let gemms: Said = |run| run.gemms.iter().map(|gemm| gemm.as_str()).collect::<Vec<_>>().join(", ");
        let all: [(&'static str, Said); 9] = [
            ("device", |run| run.device.clone()),
            ("driver", |run| run.driver.clone()),
            ("versions", |run| run.versions.clone()),
            ("engine", |run| run.engine.clone()),
            ("list of shapes", |run| run.shapes.clone()),
            ("kernels", |run| run.kernels.join(", ")),
            ("GEMMs", gemms),
            ("number of samples", |run| run.samples.to_string()),
            ("number of parts", |run| run.of.to_string()),
        ];
        let mut found = all.into_iter().map(|(what, said)| (what, said(self), said(other)));
        found.find(|(_, here, there)| here != there)
    }
}

/// Of shapes in their order.
pub fn shapes_digest(shapes: &[GemmShape]) -> String {
    let lines: String = shapes.iter().map(|GemmShape { m, k, n }| format!("{m},{k},{n}\n")).collect();
    sha256_of(lines.as_bytes())
}

/// What timing a shape takes, in no unit: setting up every kernel, and samples of a fixed length that only large products
/// exceed.
pub fn bench_cost(shape: GemmShape) -> u128 {
    const OF_ANY_SHAPE: u128 = 1 << 36;
    OF_ANY_SHAPE.saturating_add((shape.m as u128 * shape.k as u128).saturating_mul(shape.n as u128))
}

/// A part as a file holds it.
#[derive(Clone, Debug, PartialEq)]
pub struct BenchPart {
    pub key: PartKey<BenchKey>,
    pub records: Vec<KernelRecord>,
}

impl BenchPart {
    /// Over the key and every record.
    fn seal(&self) -> String {
        let mut hasher = Sha256::new();
        hasher.update(canonical_json(&serde_json::to_value(&self.key).unwrap_or_default()));
        for record in &self.records {
            hasher.update("\n");
            hasher.update(canonical_json(&serde_json::to_value(record).unwrap_or_default()));
        }
        sha256(hasher)
    }

    pub fn sealed(&self) -> Sealed<BenchKey> {
        Sealed { key: self.key.clone(), seal: self.seal() }
    }

    /// A part that was read, once its seal and its records fit its key.
    pub fn opened(sealed: Sealed<BenchKey>, records: Vec<KernelRecord>) -> Result<Self, PartFault> {
        let part = Self { key: sealed.key, records };
        if part.seal() != sealed.seal {
            return Err(PartFault::Seal);
        }
        part.check_records()?;
        Ok(part)
    }

    pub fn check_name(&self, name: &str) -> Result<(), PartFault> {
        self.key.check_name(name)
    }

    /// A GEMM that could not be timed is missing as a whole, on one machine too; nothing is there twice, or of anything else.
    fn check_records(&self) -> Result<(), PartFault> {
        let run = &self.key.run;
        let (mut seen, mut shapes) = (HashSet::new(), HashSet::new());
        for record in &self.records {
            let of = || record.place();
            let wrong = |found: String, expected: String| Err(PartFault::Row { of: of(), found, expected });
            let [found, expected] =
                [(&record.device, &record.driver, &record.versions), (&run.device, &run.driver, &run.versions)];
            if found != expected {
                let said = |(device, driver, versions): (&String, &String, &String)| {
                    format!("of {device}, driver {driver}, {versions}")
                };
                return wrong(said(found), said(expected));
            }
            if !run.kernels.iter().any(|kernel| kernel == record.kernel.as_str()) {
                return wrong("of another kernel".to_owned(), run.kernels.join(", "));
            }
            if !run.gemms.contains(&record.gemm) {
                return wrong("of another GEMM".to_owned(), "others".to_owned());
            }
            if !seen.insert(record.key()) {
                return Err(PartFault::Twice { of: of() });
            }
            shapes.insert(record.shape);
        }
        let (found, most) = (shapes.len(), self.key.end.saturating_sub(self.key.first));
        if found > most {
            let [found, expected] = [found, most].map(|count| count.to_string());
            return Err(PartFault::Meta { what: "number of shapes", found, expected });
        }
        Ok(())
    }
}

/// The records of all parts of one bench, in the order in which one machine times them. `parts`: each with the name that
/// errors show, in any order.
pub fn merge_bench(parts: Vec<(String, BenchPart)>) -> Result<Vec<KernelRecord>, MergeError> {
    let parts = in_order(parts, |part: &BenchPart| &part.key)?;
    Ok(parts.into_iter().flat_map(|(_, part)| part.records).collect())
}

#[cfg(test)]
mod tests {
    use super::{
        super::key::{
            PartOf,
            tests::{Change, each_difference_is_told},
        },
        *,
    };
    use crate::{bench::KernelDb, model::KernelId};

    const SHAPES: [GemmShape; 3] =
        [GemmShape { m: 64, k: 32, n: 16 }, GemmShape { m: 8, k: 8, n: 8 }, GemmShape { m: 64, k: 64, n: 64 }];

    fn run(of: usize) -> BenchKey {
        BenchKey {
            shapes: shapes_digest(&SHAPES),
            kernels: vec!["cublaslt/bf16".to_owned(), "cublaslt/fp8-rowwise".to_owned()],
            gemms: vec![Gemm::Fprop, Gemm::Wgrad],
            samples: 31,
            engine: "cuda".to_owned(),
            device: "NVIDIA H200".to_owned(),
            driver: "CUDA 13.0".to_owned(),
            versions: "loka".to_owned(),
            of,
        }
    }

    fn records(run: &BenchKey, shapes: &[GemmShape]) -> Vec<KernelRecord> {
        let recorded = &KernelDb::builtin()[0].records[0];
        let record = |shape, gemm, kernel: &String| KernelRecord {
            kernel: KernelId::new(kernel),
            gemm,
            shape,
            device: run.device.clone(),
            driver: run.driver.clone(),
            versions: run.versions.clone(),
            ..recorded.clone()
        };
        let of_shape = |shape: &GemmShape| {
            let shape = *shape;
            run.gemms.iter().flat_map(move |gemm| run.kernels.iter().map(move |kernel| record(shape, *gemm, kernel)))
        };
        shapes.iter().flat_map(of_shape).collect()
    }

    fn part(number: usize, range: std::ops::Range<usize>) -> (String, BenchPart) {
        let run = run(2);
        let records = records(&run, &SHAPES[range.clone()]);
        let key = PartKey::new(run, PartOf { part: number, of: 2 }, range);
        (key.file_name(), BenchPart { key, records })
    }

    #[test]
    fn parts_in_any_order_are_what_one_machine_times() {
        let parts = vec![part(2, 2..3), part(1, 0..2)];
        assert_eq!(merge_bench(parts).unwrap(), records(&run(2), &SHAPES));
        let refusal = |parts| merge_bench(parts).unwrap_err().to_string();
        let (one, two) = (part(1, 0..2), part(2, 2..3));
        assert_eq!(refusal(vec![one.clone()]), "part 2 of 2 is missing: loka bench --part 2/2 makes it");
        let mut other = two.clone();
        other.1.key.run.device = "NVIDIA H100".to_owned();
        let expected = format!("parts of two runs: the device is NVIDIA H100, but NVIDIA H200 in {}: {}", one.0, two.0);
        assert_eq!(refusal(vec![one.clone(), other]), expected);
        let gap = refusal(vec![part(1, 0..1), two.clone()]);
        assert_eq!(gap, format!("its shapes do not follow those of {}: {}", part(1, 0..1).0, two.0));
    }

    #[test]
    fn whatever_differs_is_another_name_and_is_told() {
        let key = |run| PartKey::new(run, PartOf { part: 7, of: 40 }, 3..9);
        let whole = key(run(40));
        assert!(whole.file_name().starts_with("bench-07-of-40-"), "{}", whole.file_name());
        assert!(PartKey::<BenchKey>::is_file_name(&whole.file_name()));
        assert!(!PartKey::<super::super::RunKey>::is_file_name(&whole.file_name()));
        let changes: [(&str, Change<BenchKey>); 9] = [
            ("list of shapes", |run| run.shapes.push('1')),
            ("kernels", |run| run.kernels.push("cublaslt/tf32".to_owned())),
            ("GEMMs", |run| run.gemms.truncate(run.gemms.len() - 1)),
            ("number of samples", |run| run.samples += 1),
            ("engine", |run| run.engine.push('x')),
            ("device", |run| run.device.push('x')),
            ("driver", |run| run.driver.push('x')),
            ("versions", |run| run.versions.push('x')),
            ("number of parts", |run| run.of += 1),
        ];
        each_difference_is_told(&run(40), &changes);
    }

    /// Changed by accident; and sealed again by whoever changed it.
    #[test]
    fn a_part_that_lies_is_not_opened() {
        let part = part(2, 2..3).1;
        let sealed = part.sealed();
        assert_eq!(BenchPart::opened(sealed.clone(), part.records.clone()), Ok(part.clone()));
        for change in [
            (|records| records[1].latency_us = Some(1.0)) as fn(&mut Vec<KernelRecord>),
            |records| drop(records.pop()),
            |records| records[0].latency_samples_us.push(2.0),
            |records| records[0].recorded_at.push('x'),
        ] {
            let mut records = part.records.clone();
            change(&mut records);
            assert_eq!(BenchPart::opened(sealed.clone(), records), Err(PartFault::Seal));
        }
        let resealed = |change: fn(&mut BenchPart)| {
            let mut other = part.clone();
            change(&mut other);
            BenchPart::opened(other.sealed(), other.records.clone()).map_err(|fault| fault.to_string())
        };
        let line = |change| resealed(change).unwrap_err();
        assert_eq!(
            line(|part| part.records[0].device = "NVIDIA H100".to_owned()),
            "a row of cublaslt/bf16 fprop 64 x 64 x 64 is of NVIDIA H100, driver CUDA 13.0, loka, its key says of \
             NVIDIA H200, driver CUDA 13.0, loka"
        );
        assert_eq!(
            line(|part| part.records[1].kernel = KernelId::new("x/y")),
            "a row of x/y fprop 64 x 64 x 64 is of another kernel, its key says cublaslt/bf16, cublaslt/fp8-rowwise"
        );
        assert!(line(|part| part.records[0].gemm = Gemm::Dgrad).contains("is of another GEMM"));
        assert_eq!(
            line(|part| part.records.push(part.records[0].clone())),
            "cublaslt/bf16 fprop 64 x 64 x 64 has two rows"
        );
        assert_eq!(line(|part| part.key.end = 2), "its number of shapes is 1, its key says 0");
        assert!(resealed(|part| part.records.clear()).is_ok(), "nothing of it could be timed");
    }

    /// Shapes as models have them take about as long each: parts have about as many.
    #[test]
    fn parts_have_about_as_many_shapes() {
        let costs = [bench_cost(SHAPES[0]), bench_cost(GemmShape { m: 8192, k: 1024, n: 1024 })];
        assert!(costs[1] < 2 * costs[0], "{costs:?}");
        let large = bench_cost(GemmShape { m: 65_536, k: 8192, n: 8192 });
        assert!(large > 20 * costs[0]);
    }
}
