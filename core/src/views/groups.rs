//! Takes the quadrant's points, gives them in a few groups that colours can tell apart: by library, by recipe,
//! by module. What is too many for colours is "other".

use std::collections::HashMap;

use crate::model::{KernelId, SiteId};

use super::Point;

/// Groups with a colour of their own; the rest is one more.
pub const MAX_GROUPS: usize = 8;

/// What puts points into one group.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum GroupBy {
    Library,
    Recipe,
    Module,
}

impl GroupBy {
    pub const ALL: [Self; 3] = [Self::Library, Self::Recipe, Self::Module];
}

/// Groups by the number of their points, the largest first.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Grouping {
    /// Names and points; at most [`MAX_GROUPS`] and, when there are more, "other".
    pub groups: Vec<(String, usize)>,
    /// By kernel or by site, whichever decides.
    number: Vec<u8>,
    by_site: bool,
}

impl Grouping {
    pub fn of(&self, point: &Point) -> u8 {
        let at = if self.by_site { point.site as usize } else { usize::from(point.kernel) };
        self.number.get(at).copied().unwrap_or(0)
    }

    pub(super) fn all(points: &[Point], kernels: &[KernelId], sites: &[SiteId]) -> [Self; 3] {
        let mut by_kernel = vec![0; kernels.len()];
        let mut by_site = vec![0; sites.len()];
        for point in points {
            by_kernel[usize::from(point.kernel)] += 1;
            by_site[point.site as usize] += 1;
        }
        let libraries = kernels.iter().map(|kernel| kernel.library());
        let recipes = kernels.iter().map(KernelId::recipe);
        let modules = modules(sites);
        [
            Self::new(libraries, &by_kernel, false),
            Self::new(recipes, &by_kernel, false),
            Self::new(modules.iter().copied(), &by_site, true),
        ]
    }

    /// `counts`: points of each member.
    fn new<'a>(names: impl Iterator<Item = &'a str> + Clone, counts: &[usize], by_site: bool) -> Self {
        let mut totals: HashMap<&str, usize> = HashMap::new();
        for (name, count) in names.clone().zip(counts) {
            *totals.entry(name).or_default() += count;
        }
        let mut order: Vec<(&str, usize)> = totals.into_iter().filter(|(_, count)| *count > 0).collect();
        order.sort_by(|a, b| b.1.cmp(&a.1).then(a.0.cmp(b.0)));
        let kept = order.len().min(MAX_GROUPS);
        let mut groups: Vec<(String, usize)> =
            order[..kept].iter().map(|(name, count)| ((*name).to_owned(), *count)).collect();
        if order.len() > kept {
            groups.push(("other".to_owned(), order[kept..].iter().map(|(_, count)| count).sum()));
        }
        let numbers: HashMap<&str, u8> =
            order.iter().enumerate().map(|(at, (name, _))| (*name, at.min(kept) as u8)).collect();
        Self { groups, number: names.map(|name| numbers.get(name).copied().unwrap_or(0)).collect(), by_site }
    }
}

/// The module of each site: its name up to the deepest level at which the modules are few enough for colours,
/// or up to the first at which they differ.
fn modules(sites: &[SiteId]) -> Vec<&str> {
    let depth = sites.iter().map(|site| site.as_str().split('.').count()).max().unwrap_or(1);
    let at = |level: usize| -> Vec<&str> { sites.iter().map(|site| prefix(site.as_str(), level)).collect() };
    let count = |names: &[&str]| names.iter().collect::<std::collections::HashSet<_>>().len();
    let mut best = at(1);
    for level in 2..depth {
        let deeper = at(level);
        let (now, before) = (count(&deeper), count(&best));
        if now > MAX_GROUPS && before > 1 {
            break;
        }
        best = deeper;
        if now > MAX_GROUPS {
            break;
        }
    }
    best
}

/// The first `level` parts of a dotted name.
fn prefix(name: &str, level: usize) -> &str {
    name.match_indices('.').nth(level - 1).map_or(name, |(at, _)| &name[..at])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{Gemm, LatencySource, Quadrant};

    fn points(sites: usize, kernels: usize) -> Vec<Point> {
        let of = |site: usize, kernel: usize| Point {
            at: [0.0; 2],
            low: [0.0; 2],
            high: [0.0; 2],
            site: site as u32,
            kernel: kernel as u16,
            gemm: Gemm::Fprop,
            quadrant: Quadrant::SafeFast,
            source: LatencySource::Recorded,
            chosen: false,
        };
        (0..sites).flat_map(|site| (0..kernels).map(move |kernel| of(site, kernel))).collect()
    }

    #[test]
    fn libraries_and_recipes() {
        let kernels = ["te/current", "cublaslt/rowwise", "te/rowwise"].map(KernelId::new);
        let points = points(2, 3);
        let [library, recipe, _] = Grouping::all(&points, &kernels, &["a", "b"].map(SiteId::new));
        assert_eq!(library.groups, [("te".to_owned(), 4), ("cublaslt".to_owned(), 2)]);
        assert_eq!(recipe.groups, [("rowwise".to_owned(), 4), ("current".to_owned(), 2)]);
        assert_eq!((library.of(&points[0]), library.of(&points[1]), library.of(&points[2])), (0, 1, 0));
    }

    #[test]
    fn what_is_too_many_is_other() {
        let kernels: Vec<KernelId> = (0..11).map(|at| KernelId::new(&format!("lib{at:02}/x"))).collect();
        let points = points(1, 11);
        let [library, ..] = Grouping::all(&points, &kernels, &[SiteId::new("a")]);
        assert_eq!(library.groups.len(), MAX_GROUPS + 1);
        assert_eq!(library.groups[MAX_GROUPS], ("other".to_owned(), 3));
        assert_eq!(usize::from(library.of(&points[10])), MAX_GROUPS);
        assert_eq!(library.groups.iter().map(|(_, count)| count).sum::<usize>(), 11);
    }

    #[test]
    fn modules_are_as_deep_as_colours_allow() {
        let few = ["net.layers.0.mlp.0", "net.layers.1.mlp.0", "net.top.0.a.b"].map(SiteId::new);
        assert_eq!(modules(&few), ["net.layers.0.mlp", "net.layers.1.mlp", "net.top.0.a"]);
        let many: Vec<SiteId> =
            (0..20).map(|at| SiteId::new(&format!("net.{}.l{at}.x", if at < 10 { "a" } else { "b" }))).collect();
        let names = modules(&many);
        assert_eq!((names[0], names[19]), ("net.a", "net.b"));
        let flat: Vec<SiteId> = (0..20).map(|at| SiteId::new(&format!("s{at}"))).collect();
        assert_eq!(modules(&flat).len(), 20, "nothing to group by");
    }
}
