//! What people say of a plan: takes roles, marks, comments and signatures; gives who may do what, where a review
//! stands, and whether an approval is genuine. Pure: clocks, files and the plan itself come later.

mod approval;
mod document;
mod key;
mod role;
mod rule;

pub use approval::{Approval, ApprovalError, Statement};
pub use document::{Comment, Mark, Review, ReviewState, TEXT_CHARACTERS};
pub use key::{KeyError, KeyRing, Keyed, PublicKey, SecretKey};
pub use role::Role;
pub use rule::ApprovalRule;
