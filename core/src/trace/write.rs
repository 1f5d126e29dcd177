//! Takes a trace's statistics; gives the bytes of a trace file, streamed tensor by tensor.

use std::{
    borrow::Cow,
    io::{self, Write},
};

use half::bf16;
use serde_json::{Map, json};

use super::{
    SiteStats,
    error::{Fault, TraceCause},
    manifest::weights_elsewhere,
    ranks::{RankExtremes, TOP_OCTAVES},
    site_stats::{Covariance, Distribution, MAGNITUDE_BINS, MAGNITUDE_ROWS, WeightStats},
};
use crate::model::{Manifest, SiteId};

/// A trace in memory. Sites of the manifest without statistics are listed as unusable when read. Where the manifest's
/// run says that another shard has the weights (`weights_in`), none are written.
#[derive(Clone, Debug, PartialEq)]
pub struct TraceData {
    pub manifest: Manifest,
    pub sites: Vec<SiteStats>,
}

impl TraceData {
    pub(super) fn to_bytes(&self) -> Result<Vec<u8>, Fault> {
        let mut bytes = Vec::new();
        Layout::of(self)?.write_to(&mut bytes).map_err(|error| TraceCause::from_io(&error))?;
        Ok(bytes)
    }
}

/// Where every tensor goes, and the header that says so. Borrows the values: nothing is copied but
/// one buffer on the way out.
pub(super) struct Layout<'a> {
    header: Vec<u8>,
    tensors: Vec<Planned<'a>>,
}

struct Planned<'a> {
    name: String,
    shape: Vec<usize>,
    stored: Stored,
    values: Values<'a>,
}

enum Values<'a> {
    F64(Cow<'a, [f64]>),
    F32(&'a [f32]),
    U64(Cow<'a, [u64]>),
    I64(&'a [i64]),
}

impl Values<'_> {
    fn len(&self) -> usize {
        match self {
            Self::F64(values) => values.len(),
            Self::F32(values) => values.len(),
            Self::U64(values) => values.len(),
            Self::I64(values) => values.len(),
        }
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Stored {
    F64,
    F32,
    Bf16,
    I64,
}

impl Stored {
    fn name(self) -> &'static str {
        match self {
            Self::F64 => "F64",
            Self::F32 => "F32",
            Self::Bf16 => "BF16",
            Self::I64 => "I64",
        }
    }

    fn size(self) -> usize {
        match self {
            Self::F64 | Self::I64 => 8,
            Self::F32 => 4,
            Self::Bf16 => 2,
        }
    }
}

impl<'a> Layout<'a> {
    pub fn of(data: &'a TraceData) -> Result<Self, Fault> {
        let mut tensors = Vec::new();
        let has_weights = weights_elsewhere(&data.manifest.run).is_none();
        for stats in &data.sites {
            LayoutPlan { site: &stats.site.id, tensors: &mut tensors, has_weights }.site(stats)?;
        }
        // The widest first: every tensor then stands at a multiple of its own element.
        tensors.sort_by_key(|tensor| std::cmp::Reverse(tensor.stored.size()));
        let header = header(&data.manifest, &tensors)?;
        Ok(Self { header, tensors })
    }

    pub fn write_to(&self, out: &mut impl Write) -> io::Result<()> {
        out.write_all(&(self.header.len() as u64).to_le_bytes())?;
        out.write_all(&self.header)?;
        self.tensors.iter().try_for_each(|tensor| tensor.write_to(out))
    }
}

fn header(manifest: &Manifest, tensors: &[Planned<'_>]) -> Result<Vec<u8>, Fault> {
    let invalid = |error: serde_json::Error| TraceCause::Manifest(error.to_string());
    let mut listing = Map::new();
    let text = serde_json::to_string(manifest).map_err(invalid)?;
    listing.insert("__metadata__".to_owned(), json!({ "loka.trace": text }));
    let mut begin = 0;
    for Planned { name, shape, stored, values } in tensors {
        let end = begin + values.len() * stored.size();
        let entry = json!({ "dtype": stored.name(), "shape": shape, "data_offsets": [begin, end] });
        if listing.insert(name.clone(), entry).is_some() {
            return Err(Fault::at(TraceCause::TensorTwice(name.clone()), name));
        }
        begin = end;
    }
    let mut header = serde_json::to_vec(&listing).map_err(invalid)?;
    header.resize(header.len().next_multiple_of(8), b' ');
    Ok(header)
}

/// The tensors of one site.
struct LayoutPlan<'a, 'p> {
    site: &'a SiteId,
    tensors: &'p mut Vec<Planned<'a>>,
    has_weights: bool,
}

impl<'a> LayoutPlan<'a, '_> {
    fn site(&mut self, stats: &'a SiteStats) -> Result<(), Fault> {
        let (n, k) = (stats.site.n, stats.site.k);
        self.distribution("input", &stats.input, k)?;
        if let Some(grad_output) = &stats.grad_output {
            self.distribution("grad_output", grad_output, n)?;
        }
        self.narrow("cross_cov", stats.cross_cov.as_deref(), &[n, k])?;
        if let Some(noise) = &stats.noise {
            self.push("noise.count", &[1], Stored::I64, Values::U64(Cow::Owned(vec![noise.count])))?;
            for (name, value) in [("noise.xg2", noise.xg2), ("noise.mean2", noise.mean2)] {
                self.push(name, &[1], Stored::F64, Values::F64(Cow::Owned(vec![value])))?;
            }
            if let Some(magnitudes) = &noise.magnitudes {
                let shape = [MAGNITUDE_ROWS, MAGNITUDE_BINS];
                let of = [("noise.input_hist", &magnitudes.input), ("noise.grad_output_hist", &magnitudes.grad_output)];
                for (name, squares) in of {
                    self.push(name, &shape, Stored::F64, Values::F64(Cow::Borrowed(squares)))?;
                }
            }
        }
        if self.has_weights {
            self.weight(&stats.weight, n, k)?;
            self.summary("weight", stats.weight_hist.as_deref(), stats.weight_amax)?;
        }
        for (name, values) in [("bias", &stats.bias), ("tail.gamma", &stats.gamma), ("tail.beta", &stats.beta)] {
            if let Some(values) = values {
                self.push(name, &[n], Stored::F32, Values::F32(values))?;
            }
        }
        let samples =
            [("sample.input", &stats.heldout_input, k), ("sample.grad_output", &stats.heldout_grad_output, n)];
        for (name, rows, cols) in samples {
            if let Some(rows) = rows {
                self.narrow(name, Some(&rows.data), &[rows.rows, cols])?;
            }
        }
        self.ranks(stats.ranks.as_ref())?;
        self.series(stats)
    }

    fn distribution(&mut self, part: &str, values: &'a Distribution, features: usize) -> Result<(), Fault> {
        let count = Values::U64(Cow::Owned(vec![values.count]));
        self.push(&format!("{part}.count"), &[1], Stored::I64, count)?;
        self.wide(&format!("{part}.mean"), &values.mean, &[features])?;
        self.covariance(&format!("{part}.cov"), &values.cov, features)?;
        if let Some(quantiles) = &values.quantiles {
            let shape = [features, quantiles.len() / features.max(1)];
            self.push(&format!("{part}.quantiles"), &shape, Stored::F32, Values::F32(quantiles))?;
        }
        self.summary(part, values.hist.as_deref(), values.amax)
    }

    fn summary(&mut self, part: &str, hist: Option<&'a [u64]>, amax: Option<f64>) -> Result<(), Fault> {
        if let Some(hist) = hist {
            self.push(&format!("{part}.hist"), &[hist.len()], Stored::I64, Values::U64(Cow::Borrowed(hist)))?;
        }
        let Some(amax) = amax else { return Ok(()) };
        let stored = if fits_f32(&[amax]) { Stored::F32 } else { Stored::F64 };
        self.push(&format!("{part}.amax"), &[1], stored, Values::F64(Cow::Owned(vec![amax])))
    }

    fn covariance(&mut self, name: &str, cov: &'a Covariance, size: usize) -> Result<(), Fault> {
        match cov {
            Covariance::Full(values) => self.wide(name, values, &[size, size]),
            Covariance::Factor { factor, rank, diag } => {
                if *rank > 0 {
                    self.wide(&format!("{name}_factor"), factor, &[size, *rank])?;
                }
                self.wide(&format!("{name}_diag"), diag, &[size])
            }
        }
    }

    fn weight(&mut self, weight: &'a WeightStats, n: usize, k: usize) -> Result<(), Fault> {
        match weight {
            WeightStats::Snapshot(values) => self.narrow("weight", Some(values), &[n, k]),
            WeightStats::MatrixNormal { mean, row_cov, col_cov } => {
                self.wide("weight.mean", mean, &[n, k])?;
                self.covariance("weight.row_cov", row_cov, n)?;
                self.covariance("weight.col_cov", col_cov, k)
            }
        }
    }

    fn ranks(&mut self, ranks: Option<&'a RankExtremes>) -> Result<(), Fault> {
        let Some(RankExtremes { ranks, input, grad_output }) = ranks else { return Ok(()) };
        self.push("ranks.rank", &[ranks.len()], Stored::I64, Values::U64(Cow::Borrowed(ranks)))?;
        for (part, of) in [("input", Some(input)), ("grad_output", grad_output.as_ref())] {
            let Some(of) = of else { continue };
            self.push(&format!("ranks.{part}_amax"), &[ranks.len()], Stored::F32, Values::F32(&of.amax))?;
            let shape = [ranks.len(), TOP_OCTAVES];
            self.push(&format!("ranks.{part}_top"), &shape, Stored::F32, Values::F32(&of.top))?;
        }
        Ok(())
    }

    /// The file has one list of steps a site.
    fn series(&mut self, stats: &'a SiteStats) -> Result<(), Fault> {
        let Some(first) = stats.series.first() else { return Ok(()) };
        let steps = first.steps.len();
        self.push("series.step", &[steps], Stored::I64, Values::I64(&first.steps))?;
        for series in &stats.series {
            if series.steps != first.steps {
                let cause = TraceCause::Unusable("the series are of different steps".to_owned());
                return Err(Fault::at_tensor(cause, self.site, &format!("series.{}", series.name)));
            }
            self.push(&format!("series.{}", series.name), &[steps], Stored::F32, Values::F32(&series.values))?;
        }
        Ok(())
    }

    /// Statistics: F32, or F64 where F32 would overflow or lose a value to underflow, as the
    /// covariance of small gradients does.
    fn wide(&mut self, name: &str, values: &'a [f64], shape: &[usize]) -> Result<(), Fault> {
        let stored = if fits_f32(values) { Stored::F32 } else { Stored::F64 };
        self.push(name, shape, stored, Values::F64(Cow::Borrowed(values)))
    }

    /// What is usually recorded as BF16 stays so, at half the size; only where nothing is lost.
    fn narrow(&mut self, name: &str, values: Option<&'a [f32]>, shape: &[usize]) -> Result<(), Fault> {
        let Some(values) = values else { return Ok(()) };
        let stored = if values.iter().all(|value| value.to_bits() & 0xffff == 0) { Stored::Bf16 } else { Stored::F32 };
        self.push(name, shape, stored, Values::F32(values))
    }

    fn push(&mut self, name: &str, shape: &[usize], stored: Stored, values: Values<'a>) -> Result<(), Fault> {
        let (found, expected) = (values.len(), shape.iter().product());
        if found != expected {
            let cause = TraceCause::Length { tensor: name.to_owned(), found, expected };
            return Err(Fault::at_tensor(cause, self.site, name));
        }
        if matches!(&values, Values::U64(values) if values.iter().any(|value| i64::try_from(*value).is_err())) {
            return Err(Fault::at_tensor(TraceCause::MergeOverflow("a count"), self.site, name));
        }
        self.tensors.push(Planned { name: format!("{}/{name}", self.site), shape: shape.to_vec(), stored, values });
        Ok(())
    }
}

fn fits_f32(values: &[f64]) -> bool {
    values.iter().all(|value| *value == 0.0 || (*value as f32).is_normal())
}

impl Planned<'_> {
    fn write_to(&self, out: &mut impl Write) -> io::Result<()> {
        match (&self.values, self.stored) {
            (Values::F64(values), Stored::F64) => encode(out, values, |value| value.to_le_bytes()),
            (Values::F64(values), _) => encode(out, values, |value| (value as f32).to_le_bytes()),
            (Values::F32(values), Stored::Bf16) => encode(out, values, |value| bf16::from_f32(value).to_le_bytes()),
            (Values::F32(values), _) => encode(out, values, f32::to_le_bytes),
            // Checked to fit when it was planned.
            (Values::U64(values), _) => encode(out, values, |value| (value as i64).to_le_bytes()),
            (Values::I64(values), _) => encode(out, values, i64::to_le_bytes),
        }
    }
}

/// In pieces: a covariance of 100 MB is not there a second time.
fn encode<T: Copy, const N: usize>(out: &mut impl Write, values: &[T], bytes: impl Fn(T) -> [u8; N]) -> io::Result<()> {
    const PIECE: usize = 8192;
    let mut buffer = Vec::with_capacity(values.len().min(PIECE) * N);
    for piece in values.chunks(PIECE) {
        buffer.clear();
        buffer.extend(piece.iter().flat_map(|value| bytes(*value)));
        out.write_all(&buffer)?;
    }
    Ok(())
}
