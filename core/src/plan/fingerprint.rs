//! Takes a site's choices and mods, gives the text that a reviewer's mark remembers them by, and says what is another
//! since.

use crate::{
    dispatch::ChoiceSource,
    model::{Gemm, KernelId, ModSet},
};

/// Characters of the longest: three kernels and three mods.
pub const FINGERPRINT_CHARACTERS: usize = 512;

/// Behind a kernel that was set by hand.
const BY_HAND: char = '*';

/// `te/current|cublaslt/bf16*|cublaslt/bf16|block_norm`: fprop, dgrad and wgrad, with a star where a person chose, and
/// the mods. Numbers are left out: a plan that is measured anew and decides the same is the one that was looked at.
pub fn fingerprint(got: [(&KernelId, ChoiceSource); 3], mods: &ModSet) -> String {
    let mut text = String::new();
    for (kernel, source) in got {
        text.push_str(kernel.as_str());
        if source == ChoiceSource::Override {
            text.push(BY_HAND);
        }
        text.push('|');
    }
    text.push_str(&mods.to_string());
    text
}

/// What changed from one fingerprint to another, in a line: "fprop te/current → cublaslt/bf16, set by hand".
pub fn changed_since(was: &str, is: &str) -> Option<String> {
    if was == is {
        return None;
    }
    let (was, is): (Vec<&str>, Vec<&str>) = (was.split('|').collect(), is.split('|').collect());
    let ([was @ .., mods_were], [is @ .., mods_are]) = (was.as_slice(), is.as_slice()) else { return None };
    if [was.len(), is.len()] != [Gemm::ALL.len(); 2] {
        return None;
    }
    let mut lines = Vec::new();
    for ((gemm, was), is) in Gemm::ALL.into_iter().zip(was).zip(is).filter(|((_, was), is)| was != is) {
        let (before, after) = (was.trim_end_matches(BY_HAND), is.trim_end_matches(BY_HAND));
        let hand = match (was.ends_with(BY_HAND), is.ends_with(BY_HAND)) {
            (false, true) => ", set by hand",
            (true, false) => ", no longer set by hand",
            _ => "",
        };
        let moved = if before == after { before.to_owned() } else { format!("{before} → {after}") };
        lines.push(format!("{gemm} {moved}{hand}"));
    }
    if mods_were != mods_are {
        let named = |mods: &str| if mods.is_empty() { "none".to_owned() } else { mods.to_owned() };
        lines.push(format!("mods {} → {}", named(mods_were), named(mods_are)));
    }
    (!lines.is_empty()).then(|| lines.join("; "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn changes_are_told_gemm_by_gemm() {
        let was = "te/current|cublaslt/bf16|cublaslt/bf16*|";
        assert_eq!(changed_since(was, was), None);
        assert_eq!(
            changed_since(was, "cublaslt/bf16|cublaslt/bf16*|cublaslt/bf16|block_norm").unwrap(),
            "fprop te/current → cublaslt/bf16; dgrad cublaslt/bf16, set by hand; \
             wgrad cublaslt/bf16, no longer set by hand; mods none → block_norm"
        );
        assert_eq!(changed_since("", "x"), None, "what is no fingerprint says nothing");
    }
}
