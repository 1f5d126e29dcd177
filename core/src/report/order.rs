//! Takes the names of sites, gives the order in which their modules stand together, and modules by depth.

use std::collections::HashMap;

use crate::{model::SiteId, plan::PlanSite};

/// Deeper than people nest modules; what lies deeper stands as one.
const DEEPEST: usize = 32;

/// Places in `sites`: every module together, at the place of its first site, as in the workbench.
pub fn by_module(sites: &[PlanSite]) -> Vec<u32> {
    let mut first: HashMap<&str, u32> = HashMap::new();
    let mut keys: Vec<Vec<u32>> = Vec::with_capacity(sites.len());
    for (at, site) in sites.iter().enumerate() {
        let at = at as u32;
        let mut key: Vec<u32> = prefixes(&site.site).map(|prefix| *first.entry(prefix).or_insert(at)).collect();
        key.push(at);
        keys.push(key);
    }
    let mut order: Vec<u32> = (0..sites.len() as u32).collect();
    order.sort_by(|a, b| keys[*a as usize].cmp(&keys[*b as usize]));
    order
}

/// Each with its dot at the end: a module is not its namesake site.
fn prefixes(site: &SiteId) -> impl Iterator<Item = &str> {
    let name = site.as_str();
    name.match_indices('.').take(DEEPEST).map(move |(dot, _)| &name[..=dot])
}

/// How many modules a site lies in.
pub fn depth(site: &SiteId) -> usize {
    prefixes(site).count()
}

/// The module at that depth with `.` at its end, or the site's whole name when it does not lie so deep.
pub fn module(site: &SiteId, depth: usize) -> &str {
    if depth == 0 {
        return "";
    }
    prefixes(site).nth(depth - 1).unwrap_or(site.as_str())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        dispatch::{Overrides, Policy, testing::results},
        model::SiteMods,
        plan::build,
    };

    fn ordered(names: &[&str]) -> Vec<String> {
        let results = results(names, Vec::new());
        let plan = build(&results, &Policy::paper(), &SiteMods::none(), &Overrides::new(), "p", "").unwrap().plan;
        by_module(&plan.sites).iter().map(|at| plan.sites[*at as usize].site.to_string()).collect()
    }

    #[test]
    fn modules_stand_together_where_they_begin() {
        assert_eq!(
            ordered(&["a.x", "top", "b.0", "a.y", "b.1.z", "b.2"]),
            ["a.x", "a.y", "top", "b.0", "b.1.z", "b.2"]
        );
        assert_eq!(ordered(&["a.b", "a", "a.b.c", "a.d"]), ["a.b", "a.b.c", "a.d", "a"]);
        assert_eq!(ordered(&["", ".", ".."]), ["", ".", ".."]);
    }

    #[test]
    fn a_module_has_a_depth() {
        let site = SiteId::new("net.layers.0.mlp");
        assert_eq!((depth(&site), module(&site, 2), module(&site, 9)), (3, "net.layers.", "net.layers.0.mlp"));
        let deep = SiteId::new(&".".repeat(100_000));
        assert_eq!(depth(&deep), DEEPEST);
    }
}
