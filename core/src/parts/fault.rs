//! What makes a file that reads well no part of a probe or of a bench.

use crate::model::SiteId;

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PartFault {
    #[error("its seal does not fit its rows: something was changed in it, or only half of it was written")]
    Seal,
    #[error("it is {found}, by its name it would be {expected}")]
    Name { found: String, expected: String },
    #[error("its {what} is {found}, its key says {expected}")]
    Meta { what: &'static str, found: String, expected: String },
    #[error("{site} has {found} rows, it must have {expected}")]
    Rows { site: SiteId, found: usize, expected: usize },
    /// `of`: a site, or a GEMM with its shape.
    #[error("a row of {of} is {found}, its key says {expected}")]
    Row { of: String, found: String, expected: String },
    #[error("{of} has two rows")]
    Twice { of: String },
}
