//! Takes a safetensors file's bytes; gives where each tensor lies, every range checked, no data read.
//!
//! Parsed here and not by the `safetensors` crate so that each refusal can name the tensor.

use std::{collections::BTreeMap, fmt, ops::Range};

use serde::{
    Deserialize, Deserializer,
    de::{Error, MapAccess, Visitor},
};

use super::error::{Fault, TraceCause};

/// As in the safetensors specification: more is an attack on the JSON parser, not a model.
const LONGEST_HEADER: u64 = 100_000_000;

/// A file's bytes: in memory, or mapped.
pub(super) type Bytes = Box<dyn AsRef<[u8]> + Send + Sync>;

/// One tensor: where its bytes lie in the file.
#[derive(Clone, Debug)]
pub(super) struct Tensor {
    pub dtype: String,
    pub shape: Vec<usize>,
    pub bytes: Range<usize>,
}

/// Sorted by name, so that the tensors of one site stand together.
pub(super) type Tensors = BTreeMap<String, Tensor>;

#[derive(Debug)]
pub(super) struct Header {
    pub metadata: BTreeMap<String, String>,
    pub tensors: Tensors,
}

/// Reads and checks the header: every tensor within the data, its size that of its type and shape,
/// none overlapping, no byte of the data unaccounted for.
pub(super) fn parse(file: &[u8]) -> Result<Header, Fault> {
    let (json, data_start) = split(file)?;
    let listing: Listing = serde_json::from_slice(json).map_err(|error| TraceCause::Header(error.to_string()))?;
    let data_len = file.len() - data_start;
    check_layout(&listing.tensors, data_len)?;

    let mut tensors = Tensors::new();
    for (name, entry) in listing.tensors {
        let tensor = place(&name, entry, data_start)?;
        if tensors.insert(name.clone(), tensor).is_some() {
            return Err(Fault::at(TraceCause::TensorTwice(short(&name)), &name));
        }
    }
    Ok(Header { metadata: listing.metadata, tensors })
}

/// The header's JSON and the byte at which the data begins.
fn split(file: &[u8]) -> Result<(&[u8], usize), Fault> {
    let Some((length, rest)) = file.split_first_chunk::<8>() else {
        return Err(TraceCause::TooShort(file.len()).into());
    };
    let length = u64::from_le_bytes(*length);
    if length > LONGEST_HEADER {
        return Err(TraceCause::HeaderTooLong(length).into());
    }
    let beyond = || TraceCause::HeaderBeyondFile { end: 8 + length, len: file.len() };
    let json = usize::try_from(length).ok().and_then(|length| rest.get(..length)).ok_or_else(beyond)?;
    Ok((json, 8 + json.len()))
}

/// The data must be covered exactly once: what a reader of another library would refuse, or read
/// differently, is refused here.
fn check_layout(tensors: &[(String, TensorEntry)], data_len: usize) -> Result<(), Fault> {
    for (name, entry) in tensors {
        check_entry(name, entry, data_len).map_err(|cause| Fault::at(cause, name))?;
    }
    let mut by_offset: Vec<&(String, TensorEntry)> = tensors.iter().collect();
    by_offset.sort_by_key(|(_, entry)| entry.data_offsets);
    let mut covered = 0;
    let mut previous = "";
    for (name, entry) in by_offset {
        let (begin, end) = entry.data_offsets;
        if begin > covered {
            return Err(TraceCause::Hole { begin: covered, end: begin }.into());
        }
        if begin < covered {
            return Err(Fault::at(TraceCause::Overlap { tensor: short(name), other: previous.to_owned() }, name));
        }
        covered = end;
        previous = name;
    }
    if covered < data_len as u64 {
        return Err(TraceCause::Hole { begin: covered, end: data_len as u64 }.into());
    }
    Ok(())
}

fn check_entry(name: &str, entry: &TensorEntry, data_len: usize) -> Result<(), TraceCause> {
    let tensor = short(name);
    let (begin, end) = entry.data_offsets;
    let Some(found) = end.checked_sub(begin) else {
        return Err(TraceCause::Offsets { tensor, begin, end });
    };
    if end > data_len as u64 {
        return Err(TraceCause::Truncated { tensor, end, len: data_len });
    }
    let values = entry.shape.iter().try_fold(1_u64, |product, size| product.checked_mul(*size));
    let Some(values) = values else {
        return Err(TraceCause::ShapeOverflow { tensor, shape: entry.shape.clone() });
    };
    // A type of later versions has no size that we know; a site that needs the tensor refuses it.
    let Some(size) = dtype_bytes(&entry.dtype) else { return Ok(()) };
    match values.checked_mul(size) {
        Some(needed) if needed == found => Ok(()),
        Some(needed) => {
            Err(TraceCause::Size { tensor, found, dtype: entry.dtype.clone(), shape: entry.shape.clone(), needed })
        }
        None => Err(TraceCause::ShapeOverflow { tensor, shape: entry.shape.clone() }),
    }
}

fn place(name: &str, entry: TensorEntry, data_start: usize) -> Result<Tensor, Fault> {
    let overflow = || Fault::at(TraceCause::ShapeOverflow { tensor: short(name), shape: entry.shape.clone() }, name);
    // A size of zero lets any other size stand in a shape: it must still fit the address space.
    let shape: Option<Vec<usize>> = entry.shape.iter().map(|size| usize::try_from(*size).ok()).collect();
    let at = |offset: u64| usize::try_from(offset).ok().and_then(|offset| offset.checked_add(data_start));
    let (begin, end) = entry.data_offsets;
    match (shape, at(begin), at(end)) {
        (Some(shape), Some(begin), Some(end)) => Ok(Tensor { dtype: entry.dtype, shape, bytes: begin..end }),
        _ => Err(overflow()),
    }
}

fn dtype_bytes(dtype: &str) -> Option<u64> {
    match dtype {
        "BOOL" | "U8" | "I8" | "F8_E4M3" | "F8_E5M2" | "F8_E8M0" => Some(1),
        "I16" | "U16" | "F16" | "BF16" => Some(2),
        "I32" | "U32" | "F32" => Some(4),
        "I64" | "U64" | "F64" | "C64" => Some(8),
        _ => None,
    }
}

/// The tensor's name without its site.
fn short(name: &str) -> String {
    name.rsplit_once('/').map_or(name, |(_, tensor)| tensor).to_owned()
}

#[derive(Deserialize)]
struct TensorEntry {
    dtype: String,
    shape: Vec<u64>,
    data_offsets: (u64, u64),
}

/// The header's JSON object in its own order, so that a name listed twice is seen.
struct Listing {
    metadata: BTreeMap<String, String>,
    tensors: Vec<(String, TensorEntry)>,
}

impl<'de> Deserialize<'de> for Listing {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(ListingVisitor)
    }
}

struct ListingVisitor;

impl<'de> Visitor<'de> for ListingVisitor {
    type Value = Listing;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object of tensors")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Listing, A::Error> {
        let mut metadata = None;
        let mut tensors = Vec::new();
        while let Some(name) = map.next_key::<String>()? {
            if name != "__metadata__" {
                tensors.push((name, map.next_value()?));
            } else if metadata.replace(map.next_value()?).is_some() {
                return Err(A::Error::custom("__metadata__ is listed twice"));
            }
        }
        Ok(Listing { metadata: metadata.unwrap_or_default(), tensors })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(json: &str, data: usize) -> Vec<u8> {
        let mut bytes = (json.len() as u64).to_le_bytes().to_vec();
        bytes.extend_from_slice(json.as_bytes());
        bytes.resize(bytes.len() + data, 0);
        bytes
    }

    fn refusal(json: &str, data: usize) -> String {
        parse(&file(json, data)).unwrap_err().in_file("f").to_string()
    }

    #[test]
    fn places_tensors_after_the_header() {
        let json = r#"{"__metadata__":{"a":"b"},"s/x":{"dtype":"F32","shape":[2],"data_offsets":[0,8]},"s/z":{"dtype":"F32","shape":[0],"data_offsets":[8,8]}}   "#;
        let header = parse(&file(json, 8)).unwrap();
        assert_eq!(header.metadata["a"], "b");
        let start = 8 + json.len();
        assert_eq!(header.tensors["s/x"].bytes, start..start + 8);
        assert!(header.tensors["s/z"].bytes.is_empty());
    }

    #[test]
    fn refuses_hostile_sizes() {
        let huge = r#"{"s/x":{"dtype":"F32","shape":[4294967296,4294967296,2],"data_offsets":[0,8]}}"#;
        assert_eq!(refusal(huge, 8), "x has the shape [4294967296, 4294967296, 2], too large for any file: s/x: f");
        let bytes_overflow = r#"{"s/x":{"dtype":"F64","shape":[9223372036854775807],"data_offsets":[0,8]}}"#;
        assert!(refusal(bytes_overflow, 8).contains("too large"));
        let reversed = r#"{"s/x":{"dtype":"F32","shape":[2],"data_offsets":[8,0]}}"#;
        assert_eq!(refusal(reversed, 8), "x has the data offsets [8, 0]: s/x: f");
        let nested = "[".repeat(100_000);
        assert!(refusal(&nested, 0).starts_with("the header is not valid: "));
    }

    #[test]
    fn refuses_a_length_that_is_not_there() {
        assert_eq!(*parse(&[1, 2]).unwrap_err().cause, TraceCause::TooShort(2));
        assert_eq!(*parse(&u64::MAX.to_le_bytes()).unwrap_err().cause, TraceCause::HeaderTooLong(u64::MAX));
        assert_eq!(*parse(&9_u64.to_le_bytes()).unwrap_err().cause, TraceCause::HeaderBeyondFile { end: 17, len: 8 });
    }

    #[test]
    fn refuses_a_name_listed_twice() {
        // Two empty tensors overlap nothing: only the name gives them away.
        let entry = r#""s/x":{"dtype":"F32","shape":[0],"data_offsets":[0,0]}"#;
        assert_eq!(refusal(&format!("{{{entry},{entry}}}"), 0), "x is listed twice: s/x: f");
        let metadata = r#"{"__metadata__":{},"__metadata__":{}}"#;
        assert!(refusal(metadata, 0).contains("__metadata__ is listed twice"));
    }
}
