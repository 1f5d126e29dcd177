//! Takes files that LoKA wrote (results, kernel databases, plans, any number of each) and a question in SQL, gives a table: which kernel
//! is unsafe in all of our models, where two GPUs disagree, what the plans of a fleet chose.
//!
//! ```text
//! files ──► core's checked readers ──► a data frame a kind ──► polars, lazily ──► Answer
//! ```
//!
//! polars never reads a file: what comes from strangers goes through the readers that every other command has
//! (`loka_core::tables`), and polars sees typed columns. So SQL can ask for nothing on disk either. Nothing of polars is in this
//! crate's interface.

mod answer;
mod frame;
mod plans;
mod tables;

pub use answer::{Answer, Cell, Column};
pub use tables::{Described, Tables};

/// Why a question has no answer. One line.
#[derive(Debug, thiserror::Error)]
pub enum QueryError {
    /// In the words of polars, without its hints of other lines.
    #[error("in the SQL: {0}")]
    Sql(String),
    #[error("no such table: {asked} (there are: {known})")]
    NoTable { asked: String, known: String },
    #[error("no such column: {0} (loka query --tables FILE prints them)")]
    NoColumn(String),
    /// polars has corners that it does not finish: whoever asked hears of it, and nothing stops.
    #[error("polars gave up on this query ({0})")]
    GaveUp(String),
    #[error("the tables do not fit together ({0})")]
    Frame(String),
}
