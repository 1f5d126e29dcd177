//! Mods over the model: takes a snapshot, gives where each is on and what it does (the standing), and what
//! they change in numbers (the effect): before and after, and the verdicts that flip, downstream too.

mod effect;
mod standing;

pub use effect::{Flips, ModsEffect, Ratio, SiteChange, Sums, site_change};
pub use standing::{ModStanding, ModsStanding, Module, ModuleMods, On};

#[cfg(test)]
mod tests;
