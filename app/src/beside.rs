//! Where lies what belongs to a trace.

/// The path of a trace, or of its results, with another ending.
pub(crate) fn beside(path: &str, ending: &str) -> String {
    let stem = [".trace.safetensors", ".results.parquet"].iter().find_map(|known| path.strip_suffix(known));
    format!("{}.{ending}", stem.unwrap_or(path.trim_end_matches(['/', '\\'])))
}
