//! Takes a pattern or a list of them and a name, gives what the framework with that rule would match: one file a
//! rule. Each has a definition, which is slow and plainly the framework's, and a way for many names, which looks
//! literal patterns up; tests hold the two to be equal.

mod compressed_tensors;
mod fnmatch;
mod fqn_to_config;
mod hf;
mod lookup;
mod megatron;
mod modelopt;
mod nvdlfw;
mod quark;
mod regex;
mod substring;

pub use compressed_tensors::CompressedTensors;
pub use fnmatch::{Glob, escape_glob};
pub use fqn_to_config::{FqnMatch, FqnToConfig};
pub use hf::SkipList;
pub use lookup::{Lookup, Matcher};
pub use megatron::FirstMatch;
pub use modelopt::LastMatch;
pub use nvdlfw::Sections;
pub use quark::{Quark, QuarkLayer};
pub use regex::{NotRead, Pattern, escape_regex};
pub use substring::contains_any;
