//! Takes one site's tensors; gives its statistics, widened and checked value by value.

use std::sync::Arc;

use half::{bf16, f16};

use super::{
    SiteStats,
    coverage::series_names,
    error::{Fault, TraceCause},
    header::Tensors,
    ranks::{OperandExtremes, RankExtremes, TOP_OCTAVES},
    site_stats::{Covariance, Distribution, GradientMoments, MAGNITUDE_BINS, Magnitudes, Series, WeightStats},
};
use crate::{
    model::{Matrix, Site},
    numerics::linalg::product_of_factors,
};

/// Values of a matrix that a file has as two factors: 1 GB, a layer of 16,384 features in and out.
const LARGEST_PRODUCT: usize = 1 << 28;

/// Reads a site whose structure has been checked.
pub(super) fn read_site(site: &Site, tensors: &Tensors, file: &[u8]) -> Result<SiteStats, Fault> {
    let reader = TensorReader { site, tensors, file };
    reader.read(reader.weight()?)
}

/// The same of a shard whose weights another has, with no value in the place of the weight.
pub(super) fn read_without_weight(site: &Site, tensors: &Tensors, file: &[u8]) -> Result<SiteStats, Fault> {
    TensorReader { site, tensors, file }.read(WeightStats::Snapshot(Vec::new()))
}

/// A site's series alone, without its statistics.
pub(super) fn read_series(site: &Site, tensors: &Tensors, file: &[u8]) -> Result<Vec<Series>, Fault> {
    TensorReader { site, tensors, file }.series()
}

/// A site's extremes by rank alone, where the file keeps them.
pub(super) fn read_ranks(site: &Site, tensors: &Tensors, file: &[u8]) -> Result<Option<RankExtremes>, Fault> {
    TensorReader { site, tensors, file }.ranks()
}

/// The extremes of the one rank that the file is of.
pub(super) fn read_extremes(
    site: &Site,
    rank: u64,
    tensors: &Tensors,
    file: &[u8],
) -> Result<Option<RankExtremes>, Fault> {
    let reader = TensorReader { site, tensors, file };
    let hists = [reader.hist("input.hist")?, reader.hist("grad_output.hist")?];
    let [input, grad_output] = [reader.amax("input.amax")?, reader.amax("grad_output.amax")?];
    let of = |amax: Option<f64>, hist: usize| amax.map(|amax| (amax, hists[hist].as_deref()));
    Ok(RankExtremes::of_rank(rank, of(input, 0), of(grad_output, 1)))
}

struct TensorReader<'a> {
    site: &'a Site,
    tensors: &'a Tensors,
    file: &'a [u8],
}

impl<'a> TensorReader<'a> {
    fn read(&self, weight: WeightStats) -> Result<SiteStats, Fault> {
        let Site { k, n, .. } = *self.site;
        let grad_output = self.has("grad_output.mean").then(|| self.distribution("grad_output", n)).transpose()?;
        Ok(SiteStats {
            site: self.site.clone(),
            input: self.distribution("input", k)?,
            grad_output,
            cross_cov: self.cross_cov()?,
            noise: self.noise()?,
            weight,
            weight_hist: self.hist("weight.hist")?,
            weight_amax: self.amax("weight.amax")?,
            bias: if self.site.bias { Some(self.f32s("bias")?) } else { None },
            gamma: self.optional_f32("tail.gamma")?,
            beta: self.optional_f32("tail.beta")?,
            heldout_input: self.rows("sample.input", k)?,
            heldout_grad_output: self.rows("sample.grad_output", n)?,
            series: self.series()?,
            ranks: self.ranks()?,
        })
    }

    fn distribution(&self, part: &str, features: usize) -> Result<Distribution, Fault> {
        Ok(Distribution {
            count: self.count(&format!("{part}.count"))?,
            mean: self.f64s(&format!("{part}.mean"))?,
            cov: self.covariance(&format!("{part}.cov"), features)?,
            quantiles: self.quantiles(&format!("{part}.quantiles"), features)?,
            hist: self.hist(&format!("{part}.hist"))?,
            amax: self.amax(&format!("{part}.amax"))?,
        })
    }

    /// A covariance of one row, or of none, divides by zero.
    fn count(&self, tensor: &str) -> Result<u64, Fault> {
        let found = self.i64s(tensor)?.first().copied().unwrap_or(0);
        match u64::try_from(found) {
            Ok(count) if count >= 2 => Ok(count),
            _ => Err(self.fault(tensor, TraceCause::Count { tensor: tensor.to_owned(), found })),
        }
    }

    fn covariance(&self, name: &str, size: usize) -> Result<Covariance, Fault> {
        let (factor, diag_name) = (format!("{name}_factor"), format!("{name}_diag"));
        if self.has(name) {
            let mut values = self.f64s(name)?;
            self.check_not_negative(name, values.iter().step_by(size + 1), |i| vec![i, i])?;
            self.symmetrize(name, &mut values, size)?;
            return Ok(Covariance::Full(values));
        }
        let factor = if self.has(&factor) { self.f64s(&factor)? } else { Vec::new() };
        let diag = self.f64s(&diag_name)?;
        self.check_not_negative(&diag_name, diag.iter(), |i| vec![i])?;
        Ok(Covariance::Factor { rank: factor.len() / size, factor, diag })
    }

    fn check_not_negative<'v>(
        &self,
        tensor: &str,
        values: impl Iterator<Item = &'v f64>,
        index: impl Fn(usize) -> Vec<usize>,
    ) -> Result<(), Fault> {
        let negative = values.enumerate().find(|(_, value)| **value < 0.0);
        let Some((i, value)) = negative else { return Ok(()) };
        Err(self.fault(tensor, TraceCause::Negative { tensor: tensor.to_owned(), value: *value, index: index(i) }))
    }

    /// Refuses pairs that differ by more than 1e-3 of sqrt(c_ii c_jj), the scale of a correlation of
    /// one, so that a feature of small variance is held to the same. Rounding below that is averaged
    /// away: an eigensolver reads one triangle only, and which one must not matter.
    fn symmetrize(&self, tensor: &str, values: &mut [f64], size: usize) -> Result<(), Fault> {
        const TOLERANCE: f64 = 1e-3;
        let deviations: Vec<f64> = values.iter().step_by(size + 1).map(|variance| variance.sqrt()).collect();
        let largest = deviations.iter().copied().fold(0.0, f64::max);
        // Where a feature is constant, its covariances are rounding of the largest ones.
        let floor = largest * largest * f64::from(f32::EPSILON);
        for row in 0..size {
            for col in row + 1..size {
                let (upper, lower) = (values[row * size + col], values[col * size + row]);
                if upper == lower {
                    continue;
                }
                if (upper - lower).abs() > TOLERANCE * deviations[row] * deviations[col] + floor {
                    let tensor_name = tensor.to_owned();
                    let cause = TraceCause::Asymmetric { tensor: tensor_name, row, col, upper, lower };
                    return Err(self.fault(tensor, cause));
                }
                let middle = 0.5 * upper + 0.5 * lower;
                values[row * size + col] = middle;
                values[col * size + row] = middle;
            }
        }
        Ok(())
    }

    fn quantiles(&self, tensor: &str, features: usize) -> Result<Option<Vec<f32>>, Fault> {
        let Some(values) = self.optional_f32(tensor)? else { return Ok(None) };
        let probs = values.len() / features;
        for (row, quantiles) in values.chunks_exact(probs.max(1)).enumerate() {
            if let Some(col) = quantiles.windows(2).position(|pair| pair[0] > pair[1]) {
                let index = vec![row, col + 1];
                return Err(self.fault(tensor, TraceCause::Descends { tensor: tensor.to_owned(), index }));
            }
        }
        Ok(Some(values))
    }

    fn hist(&self, tensor: &str) -> Result<Option<Vec<u64>>, Fault> {
        if !self.has(tensor) {
            return Ok(None);
        }
        let negative = |(i, value): (usize, &i64)| {
            let cause = TraceCause::Negative { tensor: tensor.to_owned(), value: *value as f64, index: vec![i] };
            self.fault(tensor, cause)
        };
        let bins = self.i64s(tensor)?;
        let unsigned = |(i, value): (usize, &i64)| u64::try_from(*value).map_err(|_| negative((i, value)));
        bins.iter().enumerate().map(unsigned).collect::<Result<Vec<u64>, Fault>>().map(Some)
    }

    fn amax(&self, tensor: &str) -> Result<Option<f64>, Fault> {
        if !self.has(tensor) {
            return Ok(None);
        }
        let values = self.f64s(tensor)?;
        self.check_not_negative(tensor, values.iter(), |i| vec![i])?;
        Ok(values.first().copied())
    }

    fn weight(&self) -> Result<WeightStats, Fault> {
        let Site { k, n, .. } = *self.site;
        if self.has("weight") {
            return Ok(WeightStats::Snapshot(self.f32s("weight")?));
        }
        Ok(WeightStats::MatrixNormal {
            mean: self.weight_mean()?,
            row_cov: self.covariance("weight.row_cov", n)?,
            col_cov: self.covariance("weight.col_cov", k)?,
        })
    }

    /// As it is, or from its leading singular pairs.
    fn weight_mean(&self) -> Result<Vec<f64>, Fault> {
        if !self.has("weight.mean_left") {
            return self.f64s("weight.mean");
        }
        let product = self.product("weight.mean_left", "weight.mean_right")?;
        Ok(product.into_iter().map(f64::from).collect())
    }

    /// As it is, or from its leading singular pairs.
    fn cross_cov(&self) -> Result<Option<Vec<f32>>, Fault> {
        if !self.has("cross_cov_left") {
            return self.optional_f32("cross_cov");
        }
        self.product("cross_cov_left", "cross_cov_right").map(Some)
    }

    /// `left [n, r] right [k, r]^T`, `[n, k]`.
    fn product(&self, left: &str, right: &str) -> Result<Vec<f32>, Fault> {
        let (left, right) = (self.f32s(left)?, self.f32s(right)?);
        let Site { m, k, n, .. } = *self.site;
        // Two thin factors are a small file, whatever they come to.
        let Some(size) = n.checked_mul(k).filter(|size| *size <= LARGEST_PRODUCT) else {
            return Err(Fault::at_site(TraceCause::SizeOverflow { m, k, n }, &self.site.id));
        };
        let rank = left.len() / n;
        let mut out = vec![0.0; size];
        product_of_factors(&left, &right, rank, &mut out);
        Ok(out)
    }

    fn noise(&self) -> Result<Option<GradientMoments>, Fault> {
        if !self.has("noise.xg2") {
            return Ok(None);
        }
        let one = |name: &str| -> Result<f64, Fault> { Ok(self.f64s(name)?.first().copied().unwrap_or(0.0)) };
        let xg2 = one("noise.xg2")?;
        self.check_not_negative("noise.xg2", [xg2].iter(), |i| vec![i])?;
        let unit = self.site.extra.get("noise").and_then(|noise| noise.get("unit")).and_then(|unit| unit.as_str());
        Ok(Some(GradientMoments {
            count: self.count("noise.count")?,
            xg2,
            mean2: one("noise.mean2")?,
            by_example: unit != Some("row"),
            magnitudes: self.magnitudes()?.map(Arc::new),
        }))
    }

    fn magnitudes(&self) -> Result<Option<Magnitudes>, Fault> {
        if !self.has("noise.input_hist") {
            return Ok(None);
        }
        let squares = |name: &str| -> Result<Vec<f64>, Fault> {
            let squares = self.f64s(name)?;
            self.check_not_negative(name, squares.iter(), |i| vec![i / MAGNITUDE_BINS, i % MAGNITUDE_BINS])?;
            Ok(squares)
        };
        let (input, grad_output) = (squares("noise.input_hist")?, squares("noise.grad_output_hist")?);
        Ok(Some(Magnitudes { input, grad_output }))
    }

    fn rows(&self, tensor: &str, cols: usize) -> Result<Option<Matrix>, Fault> {
        let data = self.optional_f32(tensor)?;
        Ok(data.map(|data| Matrix { rows: data.len() / cols, cols, data }))
    }

    /// A rank of which nothing is known has NaN.
    fn ranks(&self) -> Result<Option<RankExtremes>, Fault> {
        if !self.has("ranks.rank") {
            return Ok(None);
        }
        let found = self.i64s("ranks.rank")?;
        let unsigned = |(i, rank): (usize, &i64)| {
            let (tensor, value) = ("ranks.rank".to_owned(), *rank as f64);
            u64::try_from(*rank)
                .map_err(|_| self.fault("ranks.rank", TraceCause::Negative { tensor, value, index: vec![i] }))
        };
        let ranks = found.iter().enumerate().map(unsigned).collect::<Result<Vec<u64>, Fault>>()?;
        if let Some(at) = ranks.windows(2).position(|pair| pair[0] >= pair[1]) {
            let cause = TraceCause::Descends { tensor: "ranks.rank".to_owned(), index: vec![at + 1] };
            return Err(self.fault("ranks.rank", cause));
        }
        let grad_output =
            self.has("ranks.grad_output_amax").then(|| self.operand_by_rank("grad_output")).transpose()?;
        Ok(Some(RankExtremes { ranks, input: self.operand_by_rank("input")?, grad_output }))
    }

    fn operand_by_rank(&self, part: &str) -> Result<OperandExtremes, Fault> {
        let read = |what: &str, cols: usize| -> Result<Vec<f32>, Fault> {
            let tensor = format!("ranks.{part}_{what}");
            let (dtype, bytes) = self.bytes(&tensor)?;
            let values = widen_f32(dtype, bytes);
            let known: Vec<f64> = values.iter().map(|value| f64::from(*value)).collect();
            self.check_not_negative(&tensor, known.iter(), |i| vec![i / cols, i % cols])?;
            Ok(values)
        };
        Ok(OperandExtremes { amax: read("amax", 1)?, top: read("top", TOP_OCTAVES)? })
    }

    /// Not checked for finite values: a series that became NaN is what one looks for in it.
    fn series(&self) -> Result<Vec<Series>, Fault> {
        let names = series_names(&self.site.id, self.tensors);
        let steps = if names.is_empty() { Vec::new() } else { self.i64s("series.step")? };
        let read = |name: String| {
            let (dtype, bytes) = self.bytes(&format!("series.{name}"))?;
            Ok(Series { name, steps: steps.clone(), values: widen_f32(dtype, bytes) })
        };
        names.into_iter().map(read).collect()
    }

    fn has(&self, tensor: &str) -> bool {
        self.tensors.contains_key(&format!("{}/{tensor}", self.site.id))
    }

    fn optional_f32(&self, tensor: &str) -> Result<Option<Vec<f32>>, Fault> {
        self.has(tensor).then(|| self.f32s(tensor)).transpose()
    }

    fn f32s(&self, tensor: &str) -> Result<Vec<f32>, Fault> {
        let (dtype, bytes) = self.bytes(tensor)?;
        let values = widen_f32(dtype, bytes);
        // After narrowing: an F64 beyond F32 is infinite where we use it.
        self.check_finite(tensor, values.iter().position(|value| !value.is_finite()), |i| f64::from(values[i]))?;
        Ok(values)
    }

    fn f64s(&self, tensor: &str) -> Result<Vec<f64>, Fault> {
        let (dtype, bytes) = self.bytes(tensor)?;
        let values = widen_f64(dtype, bytes);
        self.check_finite(tensor, values.iter().position(|value| !value.is_finite()), |i| values[i])?;
        Ok(values)
    }

    fn i64s(&self, tensor: &str) -> Result<Vec<i64>, Fault> {
        let (_, bytes) = self.bytes(tensor)?;
        Ok(bytes.as_chunks().0.iter().map(|bytes| i64::from_le_bytes(*bytes)).collect())
    }

    fn check_finite(&self, tensor: &str, at: Option<usize>, value: impl Fn(usize) -> f64) -> Result<(), Fault> {
        let Some(at) = at else { return Ok(()) };
        let found = self.tensors.get(&format!("{}/{tensor}", self.site.id));
        let index = match found.map(|found| found.shape.as_slice()) {
            Some([_, cols]) => vec![at / cols, at % cols],
            _ => vec![at],
        };
        let cause = TraceCause::NotFinite { tensor: tensor.to_owned(), value: value(at), index };
        Err(self.fault(tensor, cause))
    }

    fn bytes(&self, tensor: &str) -> Result<(&'a str, &'a [u8]), Fault> {
        let found = self.tensors.get(&format!("{}/{tensor}", self.site.id));
        let bytes = found.and_then(|found| Some((found.dtype.as_str(), self.file.get(found.bytes.clone())?)));
        bytes.ok_or_else(|| self.fault(tensor, TraceCause::Missing(tensor.to_owned())))
    }

    fn fault(&self, tensor: &str, cause: TraceCause) -> Fault {
        Fault::at_tensor(cause, &self.site.id, tensor)
    }
}

/// Data in a file stands at any address: values are read by bytes, not by casting slices.
fn widen_f32(dtype: &str, bytes: &[u8]) -> Vec<f32> {
    match dtype {
        "F64" => bytes.as_chunks().0.iter().map(|bytes| f64::from_le_bytes(*bytes) as f32).collect(),
        "F32" => bytes.as_chunks().0.iter().map(|bytes| f32::from_le_bytes(*bytes)).collect(),
        "F16" => bytes.as_chunks().0.iter().map(|bytes| f16::from_le_bytes(*bytes).to_f32()).collect(),
        _ => bytes.as_chunks().0.iter().map(|bytes| bf16::from_le_bytes(*bytes).to_f32()).collect(),
    }
}

fn widen_f64(dtype: &str, bytes: &[u8]) -> Vec<f64> {
    match dtype {
        "F64" => bytes.as_chunks().0.iter().map(|bytes| f64::from_le_bytes(*bytes)).collect(),
        "F32" => bytes.as_chunks().0.iter().map(|bytes| f64::from(f32::from_le_bytes(*bytes))).collect(),
        "F16" => bytes.as_chunks().0.iter().map(|bytes| f16::from_le_bytes(*bytes).to_f64()).collect(),
        _ => bytes.as_chunks().0.iter().map(|bytes| bf16::from_le_bytes(*bytes).to_f64()).collect(),
    }
}
