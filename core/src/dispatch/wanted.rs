//! Takes overrides as a person writes them, sites by pattern, and the sites of a trace; gives each GEMM's own, or which
//! names were meant.

use std::str::FromStr;

use crate::model::{Gemm, KernelId, Site, SiteId};

use super::{Override, OverrideError, Overrides, SitePattern};

/// Names that are suggested for one that is not there.
const SUGGESTED: usize = 3;

/// `SITE:GEMM=KERNEL`. The site may be a pattern, the GEMM `*`.
#[derive(Clone, Debug, PartialEq)]
pub struct WantedOverride {
    pub sites: SitePattern,
    pub gemms: Vec<Gemm>,
    pub kernel: KernelId,
}

impl FromStr for WantedOverride {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let shape = "an override is SITE:GEMM=KERNEL, e.g. 'net.top.*:fprop=cublaslt/bf16'";
        let (place, kernel) = text.rsplit_once('=').ok_or(shape)?;
        let (sites, gemm) = place.rsplit_once(':').ok_or(shape)?;
        let gemms = if gemm == "*" { Gemm::ALL.to_vec() } else { vec![gemm.parse()?] };
        Ok(Self { sites: SitePattern::new(sites)?, gemms, kernel: KernelId::new(kernel) })
    }
}

/// One override a GEMM; of several for the same one the last counts. A pattern leaves out what never runs.
///
/// # Errors
/// One that matches no site, with the names that come nearest.
pub fn overrides_of(wanted: &[WantedOverride], sites: &[Site], reason: &str) -> Result<Overrides, OverrideError> {
    let mut found = Overrides::new();
    for WantedOverride { sites: pattern, gemms, kernel } in wanted {
        // A name is itself, whatever it would match as a pattern.
        let named: Vec<&Site> = sites.iter().filter(|site| site.id.as_str() == pattern.as_str()).collect();
        let is_name = !named.is_empty();
        let matched = if is_name { named } else { sites.iter().filter(|site| pattern.matches(&site.id)).collect() };
        if matched.is_empty() {
            let site = SiteId::new(pattern.as_str());
            return Err(OverrideError::NoSuchSite { nearest: nearest(pattern.as_str(), sites), site });
        }
        let places = || matched.iter().flat_map(|site| gemms.iter().map(move |gemm| (*site, *gemm)));
        let any_runs = places().any(|(site, gemm)| site.runs(gemm));
        for (site, gemm) in places().filter(|(site, gemm)| site.runs(*gemm) || !any_runs) {
            let wanted = Override { kernel: kernel.clone(), reason: reason.to_owned() };
            found.insert((site.id.clone(), gemm), wanted);
        }
    }
    Ok(found)
}

/// The names that take the fewest characters to be matched, in forward order among equals; none that would take more than
/// half of what was written.
fn nearest(pattern: &str, sites: &[Site]) -> Vec<SiteId> {
    let pattern: Vec<char> = pattern.chars().collect();
    let most = pattern.len() / 2;
    let mut all: Vec<(usize, &SiteId)> =
        sites.iter().map(|site| (num_edits(&pattern, site.id.as_str()), &site.id)).collect();
    all.sort_by_key(|(edits, _)| *edits);
    all.into_iter().take_while(|(edits, _)| *edits <= most).take(SUGGESTED).map(|(_, site)| site.clone()).collect()
}

/// Characters to insert, leave out or change until the pattern is the name, where a `*` is any part of it for nothing and
/// a `?` any character.
fn num_edits(pattern: &[char], name: &str) -> usize {
    let name: Vec<char> = name.chars().collect();
    let mut row: Vec<usize> = (0..=name.len()).collect();
    for character in pattern {
        let any = *character == '*';
        let mut diagonal = row[0];
        row[0] += usize::from(!any);
        for at in 0..name.len() {
            let above = row[at + 1];
            let same = usize::from(*character != '?' && *character != name[at]);
            row[at + 1] = if any { above.min(row[at]) } else { (diagonal + same).min(above + 1).min(row[at] + 1) };
            diagonal = above;
        }
    }
    row[name.len()]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dispatch::testing::results;

    fn sites() -> Vec<Site> {
        results(&["net.top.0", "net.top.1", "net.bottom.0", "tokens.0"], Vec::new()).meta.manifest.sites
    }

    fn expand(wanted: &[&str], sites: &[Site]) -> Result<Vec<String>, String> {
        let wanted: Vec<WantedOverride> = wanted.iter().map(|text| text.parse().unwrap()).collect();
        let found = overrides_of(&wanted, sites, "why").map_err(|error| error.to_string())?;
        Ok(found.iter().map(|((site, gemm), of)| format!("{site}:{gemm}={}", of.kernel)).collect())
    }

    #[test]
    fn a_pattern_is_every_site_that_it_matches_and_the_last_word_counts() {
        let all = expand(&["net.top.*:fprop=te/current", "net.top.1:fprop=cublaslt/bf16"], &sites()).unwrap();
        assert_eq!(all, ["net.top.0:fprop=te/current", "net.top.1:fprop=cublaslt/bf16"]);
        let gemms = expand(&["tokens.0:*=te/current"], &sites()).unwrap();
        assert_eq!(gemms.len(), 3);
    }

    #[test]
    fn what_never_runs_is_left_out_of_a_pattern() {
        let mut sites = sites();
        sites[0].grads.input = false;
        let found = expand(&["net.*:dgrad=te/current"], &sites).unwrap();
        assert_eq!(found, ["net.bottom.0:dgrad=te/current", "net.top.1:dgrad=te/current"]);
        // Asked for by itself it is for dispatch to refuse.
        assert_eq!(expand(&["net.top.0:dgrad=te/current"], &sites).unwrap().len(), 1);
    }

    #[test]
    fn a_name_that_matches_nothing_is_refused_with_the_nearest() {
        let refused = |text: &str| expand(&[text], &sites()).unwrap_err();
        assert_eq!(
            refused("net.top.9:fprop=te/current"),
            "override of an unknown site 'net.top.9' (nearest: net.top.0, net.top.1)"
        );
        assert_eq!(
            refused("net.tpo.*:fprop=te/current"),
            "override of an unknown site 'net.tpo.*' (nearest: net.top.0, net.top.1, net.bottom.0)"
        );
        assert_eq!(refused("zzzz:fprop=te/current"), "override of an unknown site 'zzzz'");
    }

    #[test]
    fn letters_are_counted_as_by_hand() {
        let count = |pattern: &str, name: &str| num_edits(&pattern.chars().collect::<Vec<_>>(), name);
        assert_eq!([count("abc", "abc"), count("abc", "abd"), count("abc", "ab"), count("", "ab")], [0, 1, 1, 2]);
        assert_eq!([count("a*", "abcd"), count("*.0", "net.1"), count("a?c", "abc"), count("a*z", "ab")], [0, 1, 0, 1]);
    }
}
