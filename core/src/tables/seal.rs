//! What a part of a probe or of a bench says of itself: its key and its seal, as JSON in the table's metadata.

#[cfg(feature = "native")]
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::{Cause, columns::Table};
use crate::parts::{Sealed, SplitRun};

/// The value of that key, once it can be read.
pub(super) fn parsed<T: DeserializeOwned>(key: &'static str, json: &str) -> Result<T, Cause> {
    serde_json::from_str(json).map_err(|error| Cause::BrokenMetadata(key, error.to_string()))
}

/// For a table that has to be whole: its rows are some of a run's, and what is made of them would be no result of the run.
pub(super) fn refuse_part<R: SplitRun + DeserializeOwned>(table: &impl Table, key: &'static str) -> Result<(), Cause> {
    let Some(json) = table.metadata(key) else { return Ok(()) };
    Err(Cause::IsPart(R::COMMAND, parsed::<Sealed<R>>(key, json)?.key.place()))
}

/// For a table that has to be a part.
#[cfg(feature = "native")]
pub(super) fn sealed<R: SplitRun + DeserializeOwned>(
    table: &impl Table,
    key: &'static str,
) -> Result<Sealed<R>, Cause> {
    parsed(key, table.metadata(key).ok_or(Cause::NoPart(R::COMMAND, key))?)
}

/// As a part's file keeps it.
#[cfg(feature = "native")]
pub(super) fn written<R: Serialize>(sealed: &Sealed<R>, key: &str) -> Result<Vec<(String, String)>, Cause> {
    let json = serde_json::to_string(sealed).map_err(|error| Cause::Write(error.to_string()))?;
    Ok(vec![(key.to_owned(), json)])
}
