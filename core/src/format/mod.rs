//! How a number, a count and a name are written, and what a term means: takes values and what people call things, gives
//! text, for window, page, report and command line alike.
//!
//! Sentences that a plan's file keeps, and reports beside them, write numbers by [`short`], whose every letter is under a
//! plan's digest. What is shown on screen is written by [`number`], with separated thousands and no digit that an interval
//! does not support.

mod glossary;
pub mod number;
mod short;
mod text;

pub use glossary::Term;
pub use short::short;
pub(crate) use short::{Short, Times, WithInterval};
pub use text::{NAME, SENTENCE, block, line, short_kernel, shorten};
