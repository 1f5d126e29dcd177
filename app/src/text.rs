//! Names as they fit in a line, for windows and lines of text alike: as reports shorten them.

pub use loka_core::report::shorten;
