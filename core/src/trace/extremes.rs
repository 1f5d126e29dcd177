//! Takes a `*.extremes.safetensors` file, gives the extremes of a rank that records nothing else: under `ranks=` some ranks
//! have statistics, and all have a largest value.

#![cfg_attr(
    not(feature = "native"),
    allow(dead_code, reason = "they lie beside a folder's shards, and a page opens one file")
)]

use serde::Deserialize;

use super::{
    error::{Fault, TraceCause, TraceError},
    header::{self, Bytes, Tensor, Tensors},
    ranks::RankExtremes,
    read,
    structure::HIST_BINS,
};
use crate::model::Site;

const KEY: &str = "loka.extremes";

/// The metadata key's value.
#[derive(Deserialize)]
struct Head {
    version: u64,
    run: ExtremesRun,
}

/// Whose they are.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub(super) struct ExtremesRun {
    pub id: String,
    pub rank: u64,
    pub step: u64,
}

/// One rank's file.
pub(super) struct Extremes {
    pub run: ExtremesRun,
    pub file: String,
    bytes: Bytes,
    tensors: Tensors,
}

impl Extremes {
    pub(super) fn open(file: &str, bytes: Bytes) -> Result<Self, TraceError> {
        let read = || -> Result<(ExtremesRun, Tensors), Fault> {
            let header = header::parse((*bytes).as_ref())?;
            let text = header.metadata.get(KEY).ok_or(TraceCause::NoManifest)?;
            let head: Head = serde_json::from_str(text).map_err(|error| TraceCause::Manifest(error.to_string()))?;
            if head.version != 1 {
                return Err(TraceCause::Version(head.version.to_string()).into());
            }
            header.tensors.iter().try_for_each(|(name, tensor)| check(name, tensor))?;
            Ok((head.run, header.tensors))
        };
        let (run, tensors) = read().map_err(|fault| fault.in_file(file))?;
        Ok(Self { run, file: file.to_owned(), bytes, tensors })
    }

    /// `None`: nothing of that site.
    pub(super) fn site(&self, site: &Site) -> Result<Option<RankExtremes>, TraceError> {
        let of = read::read_extremes(site, self.run.rank, &self.tensors, (*self.bytes).as_ref());
        of.map_err(|fault| fault.in_file(&self.file))
    }
}

/// Histograms and largest values are all that is in it.
fn check(name: &str, tensor: &Tensor) -> Result<(), Fault> {
    let (dtype, size) = if name.ends_with(".hist") { ("I64", HIST_BINS) } else { ("F32", 1) };
    if tensor.dtype != dtype {
        let found = tensor.dtype.clone();
        return Err(TraceCause::Dtype { tensor: name.to_owned(), found, expected: dtype }.into());
    }
    if tensor.shape != [size] {
        let (found, expected) = (tensor.shape.clone(), format!("[{size}]"));
        return Err(TraceCause::Shape { tensor: name.to_owned(), found, expected }.into());
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bytes(meta: &str, dtype: &str, amax: f32) -> Vec<u8> {
        let header = serde_json::json!({
            "__metadata__": {"loka.extremes": meta},
            "a/input.amax": {"dtype": dtype, "shape": [1], "data_offsets": [0, 4]},
        });
        let header = header.to_string();
        [&(header.len() as u64).to_le_bytes()[..], header.as_bytes(), &amax.to_le_bytes()].concat()
    }

    fn site(id: &str) -> Site {
        serde_json::from_str(&format!(r#"{{"id":"{id}","m":8,"k":4,"n":3,"dtype":"f32"}}"#)).unwrap()
    }

    const META: &str = r#"{"version":1,"run":{"id":"r","rank":7,"world_size":8,"step":5}}"#;

    #[test]
    fn a_ranks_file_says_whose_it_is_and_what_is_largest() {
        let file = Extremes::open("x", Box::new(bytes(META, "F32", 3.5))).unwrap();
        assert_eq!(file.run, ExtremesRun { id: "r".to_owned(), rank: 7, step: 5 });
        let found = file.site(&site("a")).unwrap().unwrap();
        assert_eq!((found.ranks, found.input.amax, found.grad_output), (vec![7], vec![3.5], None));
        assert_eq!(file.site(&site("b")).unwrap(), None, "a site that did not run there");
    }

    #[test]
    fn what_is_no_such_file_is_refused_in_one_line() {
        let refusal = |bytes: Vec<u8>| {
            let line = match Extremes::open("x", Box::new(bytes)) {
                Ok(file) => file.site(&site("a")).unwrap_err().to_string(),
                Err(error) => error.to_string(),
            };
            assert!(!line.contains('\n') && line.ends_with(": x"), "{line}");
            line
        };
        assert_eq!(refusal(bytes(META, "I32", 1.0)), "a/input.amax has dtype I32, expected F32: x");
        assert!(refusal(bytes(META, "F32", -1.0)).contains("-1"));
        assert!(refusal(bytes(META, "F32", f32::NAN)).contains("NaN"));
        assert!(refusal(bytes(&META.replace(":1,", ":2,"), "F32", 1.0)).contains("version"));
        assert!(refusal(bytes("{}", "F32", 1.0)).contains("missing field"));
        let good = bytes(META, "F32", 1.0);
        for length in 0..good.len() {
            refusal(good[..length].to_vec());
        }
    }
}
