//! Takes a site and the file's tensor table; gives why the site cannot be used, if so. Names, types
//! and shapes only: no data is read, so that opening a trace of any size is quick.

use std::collections::BTreeMap;

use super::{
    coverage::{series_names, under},
    error::{Fault, TraceCause},
    header::{Tensor, Tensors},
    manifest::UNUSABLE,
    ranks::TOP_OCTAVES,
    site_stats::{MAGNITUDE_BINS, MAGNITUDE_ROWS},
};
use crate::model::{Site, SiteId};

pub(super) const HIST_BINS: usize = 82;

/// What of a file every site is held against. `num_probs`: length of the manifest's `quantile_probs`; `has_weights`: it
/// is no shard whose weights another has.
#[derive(Clone, Copy)]
pub(super) struct Expected {
    pub num_probs: usize,
    pub has_weights: bool,
}

/// The first thing that makes the site unusable.
pub(super) fn check(site: &Site, order: &SiteOrder<'_>, tensors: &Tensors, expected: Expected) -> Result<(), Fault> {
    check_manifest(site, order).map_err(|cause| Fault::at_site(cause, &site.id))?;
    Checker { site, tensors, expected }.check()
}

/// The sites in forward order, found by id.
pub(super) struct SiteOrder<'a> {
    sites: &'a [Site],
    index: BTreeMap<&'a SiteId, usize>,
}

impl<'a> SiteOrder<'a> {
    pub fn new(sites: &'a [Site]) -> Self {
        Self { sites, index: sites.iter().enumerate().map(|(i, site)| (&site.id, i)).collect() }
    }

    /// The site that `from` feeds. Only forwards, which also means that following feeds ends.
    fn fed(&self, from: &Site, to: &SiteId) -> Result<&Site, TraceCause> {
        let at = self.index.get(to).ok_or_else(|| TraceCause::FeedUnknown(to.clone()))?;
        if self.index.get(&from.id).is_some_and(|from| at <= from) {
            return Err(TraceCause::FeedBackwards(to.clone()));
        }
        Ok(&self.sites[*at])
    }
}

fn check_manifest(site: &Site, order: &SiteOrder<'_>) -> Result<(), TraceCause> {
    if let Some(reason) = site.extra.get(UNUSABLE) {
        return Err(TraceCause::Unusable(reason.as_str().map_or_else(|| reason.to_string(), str::to_owned)));
    }
    let Site { m, k, n, .. } = *site;
    for (name, size) in [("m", m), ("k", k), ("n", n)] {
        if size == 0 {
            return Err(TraceCause::ZeroSize(name));
        }
    }
    // Later stages index these products; m is bound to no tensor that would have bounded it.
    if [(m, k), (m, n), (n, k)].into_iter().any(|(a, b)| a.checked_mul(b).is_none_or(|size| size > isize::MAX as usize))
    {
        return Err(TraceCause::SizeOverflow { m, k, n });
    }
    for to in &site.feeds {
        let fed = order.fed(site, to)?;
        if fed.k != n && !fed.extra.contains_key(UNUSABLE) {
            return Err(TraceCause::FeedSize { to: to.clone(), k: fed.k, n });
        }
    }
    Ok(())
}

/// What a tensor may be made of.
#[derive(Clone, Copy)]
enum Kind {
    Float,
    F32,
    I64,
}

impl Kind {
    fn accepts(self, dtype: &str) -> bool {
        match self {
            Self::Float => matches!(dtype, "F64" | "F32" | "F16" | "BF16"),
            Self::F32 => dtype == "F32",
            Self::I64 => dtype == "I64",
        }
    }

    fn expected(self) -> &'static str {
        match self {
            Self::Float => "F64, F32, F16 or BF16",
            Self::F32 => "F32",
            Self::I64 => "I64",
        }
    }
}

/// A dimension of an expected shape. Any size: a rank, a number of rows or of steps.
#[derive(Clone, Copy)]
enum Dim {
    Is(usize),
    Any(&'static str),
}

struct Checker<'a> {
    site: &'a Site,
    tensors: &'a Tensors,
    expected: Expected,
}

impl Checker<'_> {
    fn check(&self) -> Result<(), Fault> {
        let Site { k, n, .. } = *self.site;
        self.distribution("input", k)?;
        if under(&self.site.id, "grad_output.", self.tensors).next().is_some() {
            self.distribution("grad_output", n)?;
        }
        let has_cross = self.optional("cross_cov", Kind::Float, &[Dim::Is(n), Dim::Is(k)])?.is_some();
        if has_cross | self.product("cross_cov")? | self.noise()? {
            self.required("grad_output.mean", Kind::Float, &[Dim::Is(n)])?;
        }
        if self.expected.has_weights {
            self.weight()?;
        }
        self.bias_and_tail()?;
        self.sample()?;
        self.ranks()?;
        self.series()
    }

    fn distribution(&self, part: &str, features: usize) -> Result<(), Fault> {
        let dim = Dim::Is(features);
        self.required(&format!("{part}.count"), Kind::I64, &[Dim::Is(1)])?;
        self.required(&format!("{part}.mean"), Kind::Float, &[dim])?;
        self.covariance(&format!("{part}.cov"), features)?;
        self.optional(&format!("{part}.quantiles"), Kind::Float, &[dim, Dim::Is(self.expected.num_probs)])?;
        self.summary(part)
    }

    fn summary(&self, part: &str) -> Result<(), Fault> {
        self.optional(&format!("{part}.hist"), Kind::I64, &[Dim::Is(HIST_BINS)])?;
        self.optional(&format!("{part}.amax"), Kind::Float, &[Dim::Is(1)])?;
        Ok(())
    }

    /// `name` itself, or `name_factor` with `name_diag`, or for weights that alone; two would leave open which one is
    /// meant.
    fn covariance(&self, name: &str, size: usize) -> Result<(), Fault> {
        let dim = Dim::Is(size);
        let (factor, diag) = (format!("{name}_factor"), format!("{name}_diag"));
        let has_factor = self.optional(&factor, Kind::Float, &[dim, Dim::Any("rank")])?.is_some();
        let has_diagonal = name.starts_with("weight.") && self.find(&diag).is_some();
        if !has_factor && !has_diagonal {
            return self.required(name, Kind::Float, &[dim, dim]).map(|_| ());
        }
        if self.find(name).is_some() {
            let other = if has_factor { factor } else { diag };
            return Err(self.fault(name, TraceCause::Both(name.to_owned(), other)));
        }
        self.required(&diag, Kind::Float, &[dim]).map(|_| ())
    }

    /// A matrix `[n, k]` as left right^T. True: it is there.
    fn product(&self, name: &str) -> Result<bool, Fault> {
        let Site { k, n, .. } = *self.site;
        let (left, right) = (format!("{name}_left"), format!("{name}_right"));
        let Some(found) = self.optional(&left, Kind::Float, &[Dim::Is(n), Dim::Any("rank")])? else {
            // Half of it says nothing.
            return self.find(&right).map_or(Ok(false), |_| self.required(&left, Kind::Float, &[]).map(|_| true));
        };
        if self.find(name).is_some() {
            return Err(self.fault(name, TraceCause::Both(name.to_owned(), left)));
        }
        self.required(&right, Kind::Float, &[Dim::Is(k), Dim::Is(found.shape[1])])?;
        Ok(true)
    }

    /// Of the weight's gradient: all three or none. True: they are there.
    fn noise(&self) -> Result<bool, Fault> {
        if under(&self.site.id, "noise.", self.tensors).next().is_none() {
            return Ok(false);
        }
        self.required("noise.count", Kind::I64, &[Dim::Is(1)])?;
        self.required("noise.xg2", Kind::Float, &[Dim::Is(1)])?;
        self.required("noise.mean2", Kind::Float, &[Dim::Is(1)])?;
        // Both or none.
        let squares = [Dim::Is(MAGNITUDE_ROWS), Dim::Is(MAGNITUDE_BINS)];
        let names = ["noise.input_hist", "noise.grad_output_hist"];
        if names.into_iter().any(|name| self.find(name).is_some()) {
            names.into_iter().try_for_each(|name| self.required(name, Kind::Float, &squares).map(|_| ()))?;
        }
        Ok(true)
    }

    fn weight(&self) -> Result<(), Fault> {
        let Site { k, n, .. } = *self.site;
        let shape = [Dim::Is(n), Dim::Is(k)];
        let factored = self.product("weight.mean")?;
        match (self.find("weight").is_some(), factored || self.find("weight.mean").is_some()) {
            (true, true) => return Err(self.fault("weight", TraceCause::Both("weight".into(), "weight.mean".into()))),
            (false, true) => {
                if !factored {
                    self.required("weight.mean", Kind::Float, &shape)?;
                }
                self.covariance("weight.row_cov", n)?;
                self.covariance("weight.col_cov", k)?;
            }
            (_, false) => {
                self.required("weight", Kind::Float, &shape)?;
            }
        }
        self.summary("weight")
    }

    fn bias_and_tail(&self) -> Result<(), Fault> {
        let per_output = [Dim::Is(self.site.n)];
        if self.site.bias {
            self.required("bias", Kind::Float, &per_output)?;
        }
        // A shift alone may be missing (RMS norm has none), a gain may not.
        if self.site.tail.iter().any(|op| op.affine == Some(true)) {
            self.required("tail.gamma", Kind::Float, &per_output)?;
        }
        self.optional("tail.gamma", Kind::Float, &per_output)?;
        self.optional("tail.beta", Kind::Float, &per_output)?;
        Ok(())
    }

    fn sample(&self) -> Result<(), Fault> {
        let Site { k, n, .. } = *self.site;
        let rows = Dim::Any("rows");
        let input = self.optional("sample.input", Kind::Float, &[rows, Dim::Is(k)])?;
        // The same rows in both.
        let rows = input.map_or(rows, |input| Dim::Is(input.shape[0]));
        self.optional("sample.grad_output", Kind::Float, &[rows, Dim::Is(n)])?;
        Ok(())
    }

    /// Of x, and both or neither of dy.
    fn ranks(&self) -> Result<(), Fault> {
        let Some(found) = self.optional("ranks.rank", Kind::I64, &[Dim::Any("ranks")])? else { return Ok(()) };
        let ranks = Dim::Is(found.shape[0]);
        for part in ["input", "grad_output"] {
            let [amax, top] = ["amax", "top"].map(|what| format!("ranks.{part}_{what}"));
            if part == "input" || self.find(&amax).is_some() || self.find(&top).is_some() {
                self.required(&amax, Kind::F32, &[ranks])?;
                self.required(&top, Kind::F32, &[ranks, Dim::Is(TOP_OCTAVES)])?;
            }
        }
        Ok(())
    }

    fn series(&self) -> Result<(), Fault> {
        let names = series_names(&self.site.id, self.tensors);
        if names.is_empty() {
            return Ok(());
        }
        let steps = self.required("series.step", Kind::I64, &[Dim::Any("steps")])?.shape[0];
        for name in names {
            self.required(&format!("series.{name}"), Kind::F32, &[Dim::Is(steps)])?;
        }
        Ok(())
    }

    fn find(&self, tensor: &str) -> Option<&Tensor> {
        self.tensors.get(&format!("{}/{tensor}", self.site.id))
    }

    fn fault(&self, tensor: &str, cause: TraceCause) -> Fault {
        Fault::at_tensor(cause, &self.site.id, tensor)
    }

    fn required(&self, tensor: &str, kind: Kind, shape: &[Dim]) -> Result<&Tensor, Fault> {
        let found = self.optional(tensor, kind, shape)?;
        found.ok_or_else(|| self.fault(tensor, TraceCause::Missing(tensor.to_owned())))
    }

    fn optional(&self, tensor: &str, kind: Kind, shape: &[Dim]) -> Result<Option<&Tensor>, Fault> {
        let Some(found) = self.find(tensor) else { return Ok(None) };
        if !kind.accepts(&found.dtype) {
            let (dtype, expected) = (found.dtype.clone(), kind.expected());
            return Err(self.fault(tensor, TraceCause::Dtype { tensor: tensor.to_owned(), found: dtype, expected }));
        }
        let fits = |(size, dim): (&usize, &Dim)| matches!(dim, Dim::Any(_)) || matches!(dim, Dim::Is(is) if is == size);
        if found.shape.len() == shape.len() && found.shape.iter().zip(shape).all(fits) {
            return Ok(Some(found));
        }
        let (shape, expected) = (found.shape.clone(), shape_text(shape));
        Err(self.fault(tensor, TraceCause::Shape { tensor: tensor.to_owned(), found: shape, expected }))
    }
}

/// E.g. `[4, rank]`.
fn shape_text(shape: &[Dim]) -> String {
    let sizes: Vec<String> = shape
        .iter()
        .map(|dim| match dim {
            Dim::Is(size) => size.to_string(),
            Dim::Any(name) => (*name).to_owned(),
        })
        .collect();
    format!("[{}]", sizes.join(", "))
}
