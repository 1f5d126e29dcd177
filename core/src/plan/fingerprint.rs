//! Takes a site's choices and mods, gives the short text that a reviewer's mark remembers them by.

use sha2::{Digest, Sha256};

use crate::{dispatch::Choice, model::ModSet};

/// 16 hexadecimal digits: equal for the same kernels, chosen by the same side, under the same mods. Numbers are left
/// out: a plan that is measured anew and decides the same is the one that was looked at.
pub fn fingerprint(choices: [&Choice; 3], mods: &ModSet) -> String {
    let mut hasher = Sha256::new();
    for choice in choices {
        hasher.update(choice.kernel.as_str());
        hasher.update([0, choice.source as u8]);
    }
    hasher.update(mods.to_string());
    hasher.finalize().iter().take(8).map(|byte| format!("{byte:02x}")).collect()
}
