//! Takes kernel databases of several devices, gives one whose rows carry theirs; takes such a one and a device's name, gives
//! what was timed there. Rows of two devices are never compared with each other.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};

use crate::model::{Gemm, GemmShape, KernelId, KernelRecord};

use super::KernelDb;

/// Why databases are not one. `name` and `other` are names of files.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FleetError {
    #[error("there are no kernel databases to merge")]
    Nothing,
    #[error("{place} does not say on which device it was timed: {name}")]
    NoDevice { place: String, name: String },
    #[error("{place} was timed on {found}, --device asks for {wanted}: {name}")]
    OtherDevice { place: String, found: String, wanted: String, name: String },
    /// A speed-up would compare two sources.
    #[error("{timed} by {found}, but by {expected} in {other}: {name}")]
    Source { timed: String, found: String, expected: String, other: String, name: String },
    #[error("{place} was timed on {device} twice, the other time is in {other}: {name}")]
    Twice { place: String, device: String, other: String, name: String },
}

/// Why there is no one device to take times of.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DeviceError {
    #[error("no times of a device {wanted} are known; these are: {}", .known.join(", "))]
    Unknown { wanted: String, known: Vec<String> },
    #[error("{wanted} is several devices: {}; name one of them", .found.join(", "))]
    Several { wanted: String, found: Vec<String> },
}

/// Whether that is the device which somebody named: all of its name or a part of it, such as H200.
pub fn is_device(device: &str, wanted: &str) -> bool {
    device.to_lowercase().contains(&wanted.to_lowercase())
}

/// The devices of all of them, sorted.
pub fn devices(databases: &[KernelDb]) -> Vec<String> {
    let all: BTreeSet<&String> = databases.iter().flat_map(|database| &database.records).map(|of| &of.device).collect();
    all.into_iter().cloned().collect()
}

/// The databases without the rows of other devices, and the device that `wanted` means: its whole name, or a part that no
/// other device of these has.
pub fn of_device(databases: Vec<KernelDb>, wanted: &str) -> Result<(String, Vec<KernelDb>), DeviceError> {
    let known = devices(&databases);
    let device = match known.iter().find(|device| device.eq_ignore_ascii_case(wanted)) {
        Some(device) => device.clone(),
        None => one_like(&known, wanted)?,
    };
    let narrowed = databases.into_iter().map(|mut database| {
        database.records.retain(|record| record.device == device);
        database
    });
    Ok((device.clone(), narrowed.filter(|database| !database.records.is_empty()).collect()))
}

fn one_like(known: &[String], wanted: &str) -> Result<String, DeviceError> {
    let found: Vec<String> = known.iter().filter(|device| is_device(device, wanted)).cloned().collect();
    match found.as_slice() {
        [one] => Ok(one.clone()),
        [] => Err(DeviceError::Unknown { wanted: wanted.to_owned(), known: known.to_vec() }),
        _ => Err(DeviceError::Several { wanted: wanted.to_owned(), found }),
    }
}

impl KernelDb {
    /// One database a device, in the order in which they first appear.
    pub(super) fn by_device(&self) -> Vec<Vec<&KernelRecord>> {
        let mut places: HashMap<&str, usize> = HashMap::new();
        let mut all: Vec<Vec<&KernelRecord>> = Vec::new();
        for record in &self.records {
            let at = *places.entry(&record.device).or_insert_with(|| {
                all.push(Vec::new());
                all.len() - 1
            });
            all[at].push(record);
        }
        all
    }
}

type TimedAt<'a> = (&'a str, (&'a KernelId, Gemm, GemmShape));

/// One database of all of them: devices by name, rows of one in the order in which they were given. `databases`: each with
/// the name that errors show. `wanted`: refuse rows of any other device.
pub fn fleet(databases: &[(String, KernelDb)], wanted: Option<&str>) -> Result<KernelDb, FleetError> {
    let mut timed: HashMap<TimedAt<'_>, &String> = HashMap::new();
    let mut sources: HashMap<(&str, &KernelId), (&KernelRecord, &String)> = HashMap::new();
    let mut by_device: BTreeMap<&str, Vec<&KernelRecord>> = BTreeMap::new();
    for (name, database) in databases {
        // Within one file a kernel may be timed anew after an update: what `loka bench` wrote is one source.
        let mut own: HashSet<(&str, &KernelId)> = HashSet::new();
        for record in &database.records {
            let (device, place) = (record.device.as_str(), || record.place());
            if device.is_empty() {
                return Err(FleetError::NoDevice { place: place(), name: name.clone() });
            }
            if let Some(wanted) = wanted.filter(|wanted| !is_device(device, wanted)) {
                let (found, wanted) = (device.to_owned(), wanted.to_owned());
                return Err(FleetError::OtherDevice { place: place(), found, wanted, name: name.clone() });
            }
            if let Some(other) = timed.insert((device, record.key()), name) {
                let (device, other) = (device.to_owned(), other.clone());
                return Err(FleetError::Twice { place: place(), device, other, name: name.clone() });
            }
            let kernel = (device, &record.kernel);
            if own.insert(kernel) {
                let (before, other) = *sources.entry(kernel).or_insert((record, name));
                if source(before) != source(record) {
                    let [found, expected] = [record, before].map(|of| format!("driver {}, {}", of.driver, of.versions));
                    let (kernel, device, other) = (record.kernel.clone(), device.to_owned(), other.clone());
                    let timed = format!("{kernel} was timed on {device}");
                    return Err(FleetError::Source { timed, found, expected, other, name: name.clone() });
                }
            }
            by_device.entry(device).or_default().push(record);
        }
    }
    if by_device.is_empty() {
        return Err(FleetError::Nothing);
    }
    let records = by_device.into_values().flatten().cloned().collect();
    Ok(KernelDb { name: String::new(), records })
}

fn source(record: &KernelRecord) -> (&str, &str) {
    (&record.driver, &record.versions)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::Latencies;

    fn native() -> KernelDb {
        KernelDb::builtin().into_iter().find(|database| database.name == "h200-native-cuda-graphs").unwrap()
    }

    /// The same kernels on a device that takes twice as long, and half as much more again in BF16.
    fn slower(device: &str) -> KernelDb {
        let mut database = native();
        for record in &mut database.records {
            let factor = if record.kernel.as_str() == "cublaslt/bf16" { 3.0 } else { 2.0 };
            record.device = device.to_owned();
            record.latency_us = record.latency_us.map(|us| factor * us);
        }
        database
    }

    fn named(databases: &[KernelDb]) -> Vec<(String, KernelDb)> {
        let name = |(at, database): (usize, &KernelDb)| (format!("{at}.kernels.parquet"), database.clone());
        databases.iter().enumerate().map(name).collect()
    }

    /// What the fleet's database says of a device is what the device's own says.
    #[test]
    fn a_device_out_of_a_fleet_is_that_device_alone() {
        let all = [slower("NVIDIA L40S"), native(), slower("NVIDIA H100")];
        let whole = fleet(&named(&all), None).unwrap();
        assert_eq!(devices(std::slice::from_ref(&whole)), ["NVIDIA H100", "NVIDIA H200", "NVIDIA L40S"]);
        assert_eq!(whole.records.len(), 3 * native().records.len());
        for (own, wanted) in all.iter().zip(["l40s", "NVIDIA H200", "H100"]) {
            let (device, narrowed) = of_device(vec![whole.clone()], wanted).unwrap();
            assert_eq!(device, own.records[0].device);
            assert_eq!(narrowed[0].records, own.records);
        }
        let is_fast = |of: &&KernelRecord| of.kernel.as_str() == "cublaslt/fp8-rowwise+fast" && of.gemm == Gemm::Fprop;
        let timed = native().records.iter().find(is_fast).cloned().unwrap();
        let (kernel, shape) = (timed.kernel, timed.shape);
        let speedup = |database: &KernelDb| {
            Latencies::new(std::slice::from_ref(database)).latency(&kernel, Gemm::Fprop, shape).speedup().unwrap()
        };
        assert!((speedup(&all[2]) / speedup(&native()) - 1.5).abs() < 1e-9);
        // Whoever forgets to choose gets one device's times, never a mixture of two.
        assert_eq!(speedup(&whole).to_bits(), speedup(&all[2]).to_bits());
    }

    #[test]
    fn a_device_that_is_not_there_is_named_with_those_that_are() {
        let refusal =
            |databases: &[KernelDb], wanted: &str| of_device(databases.to_vec(), wanted).unwrap_err().to_string();
        let all = [native(), slower("NVIDIA H100 PCIe"), slower("NVIDIA H100 80GB HBM3")];
        let known = "NVIDIA H100 80GB HBM3, NVIDIA H100 PCIe, NVIDIA H200";
        assert_eq!(refusal(&all, "B200"), format!("no times of a device B200 are known; these are: {known}"));
        let several = "h100 is several devices: NVIDIA H100 80GB HBM3, NVIDIA H100 PCIe; name one of them";
        assert_eq!(refusal(&all, "h100"), several);
        // A name that is part of another one's is a name all the same.
        let pair = [slower("NVIDIA H100"), slower("NVIDIA H100 PCIe")];
        assert_eq!(of_device(pair.to_vec(), "nvidia h100").unwrap().0, "NVIDIA H100");
    }

    #[test]
    fn what_is_not_one_database_is_refused() {
        let refusal = |databases: &[KernelDb], wanted| fleet(&named(databases), wanted).unwrap_err().to_string();
        assert_eq!(refusal(&[], None), "there are no kernel databases to merge");
        let place = native().records[0].place();
        assert_eq!(
            refusal(&[native(), native()], None),
            format!(
                "{place} was timed on NVIDIA H200 twice, the other time is in 0.kernels.parquet: 1.kernels.parquet"
            )
        );
        assert_eq!(
            refusal(&[native(), slower("NVIDIA H100")], Some("H200")),
            format!("{place} was timed on NVIDIA H100, --device asks for H200: 1.kernels.parquet")
        );
        let mut newer = native();
        newer.records.iter_mut().for_each(|record| (record.shape.m, record.driver) = (1 << 20, "CUDA 14.0".to_owned()));
        newer.records.dedup_by(|a, b| a.key() == b.key());
        newer.records.truncate(1);
        let line = refusal(&[native(), newer], None);
        assert!(
            line.starts_with(&format!("{} was timed on NVIDIA H200 by driver CUDA 14.0, ", native().records[0].kernel))
                && line.ends_with(" in 0.kernels.parquet: 1.kernels.parquet"),
            "{line}"
        );
        let mut nowhere = native();
        nowhere.records[0].device.clear();
        let expected = format!("{place} does not say on which device it was timed: 0.kernels.parquet");
        assert_eq!(refusal(&[nowhere], None), expected);
        // Other shapes of the same source go with them.
        let mut more = native();
        more.records.truncate(1);
        more.records[0].shape.m = 1 << 20;
        assert_eq!(fleet(&named(&[native(), more]), Some("h200")).unwrap().records.len(), native().records.len() + 1);
    }
}
