//! What one draw says of a kernel's error: sums that add over draws, from the kernel's output and the
//! FP64 reference.

use super::vectorized::vectorized;

/// Relative errors beyond this are counted, not summed: their tail follows 1/t and has no mean
/// ([`super::interval::mere`] puts it back).
pub const TAIL_START: f32 = 2.0;

/// One relative error in so many goes into the histogram that the median is read from. Prime, so
/// that it walks over all columns.
const HISTOGRAM_STRIDE: usize = 7;

/// 16 bins an octave from 2^-48 to 2^16.
const BINS_PER_OCTAVE_LOG2: u32 = 4;
const FIRST_OCTAVE: u32 = 127 - 48;
const HISTOGRAM_BINS: usize = (64 << BINS_PER_OCTAVE_LOG2) + 1;

/// The FP64 result that a kernel is held against. `[rows, cols]`, row-major.
#[derive(Clone, Debug)]
pub struct Reference {
    pub cols: usize,
    pub values: Vec<f64>,
    /// 1 / |ref|, 0 where ref = 0.
    inverse: Vec<f32>,
    zeros: u64,
    sum_squares: f64,
}

impl Reference {
    pub fn new(cols: usize, values: Vec<f64>) -> Self {
        let mut inverse = vec![0f32; values.len()];
        let (zeros, sum_squares) = vectorized!((values: &'a [f64] = &values, inverse: &'a mut [f32] = &mut inverse) -> (u64, f64) {
            let mut squares = [0f64; 16];
            let mut zeros = [0u32; 16];
            for (inverse, values) in inverse.chunks_mut(16).zip(values.chunks(16)) {
                for lane in 0..values.len().min(16).min(inverse.len()) {
                    let value = values[lane];
                    // Clamped, so that no error over a tiny reference is 0 and not NaN.
                    let nonzero = (1.0 / value.abs()).min(f64::from(f32::MAX)) as f32;
                    inverse[lane] = if value == 0.0 { 0.0 } else { nonzero };
                    zeros[lane] += u32::from(value == 0.0);
                    squares[lane] += value * value;
                }
            }
            (zeros.iter().map(|lane| u64::from(*lane)).sum(), squares.iter().sum())
        });
        Self { cols, values, inverse, zeros, sum_squares }
    }
}

/// Sums of one draw (or, added up, of several).
#[derive(Clone, Debug, Default)]
pub struct DrawStats {
    /// Outputs with ref != 0.
    pub elements: u64,
    pub zeros: u64,
    pub sum_error_squares: f64,
    pub sum_ref_squares: f64,
    /// Sum of error times reference: over `sum_ref_squares` it is the slope of output on reference less one.
    pub sum_error_ref: f64,
    /// Of wgrad: the sum over the batch's rows of |x|^2 |g|^2, of the columns that were drawn. Not added up.
    pub product_energy: Option<f64>,
    /// Sum of the relative errors up to [`TAIL_START`], and how many were beyond.
    pub sum_relative_body: f64,
    pub tail_count: u64,
    pub max_abs: f64,
    /// Relative errors of every 7th element, 16 bins an octave.
    pub histogram: Vec<u32>,
    /// Share of the left operand's elements that are not zero and that its cast to FP8 made zero. `None`: no FP8, or a
    /// library's own cast. Of one draw: not added up.
    pub flushed: Option<f64>,
    /// The same two sums after bias, tail and the next cast.
    pub block: Option<(f64, f64)>,
    /// Mean over rows of 1/2 (g . dy)^2.
    pub loss_cost: Option<f64>,
}

const LANES: usize = 16;

/// Running sums side by side, one a vector lane.
#[derive(Default)]
struct Lanes {
    squares: [f64; LANES],
    error_ref: [f64; LANES],
    largest: [f32; LANES],
    tail: [u32; LANES],
    body: [f32; LANES],
}

impl Lanes {
    /// Takes one element and gives its error.
    #[inline(always)]
    fn take(&mut self, lane: usize, output: f32, reference: f64, inverse: f32) -> f32 {
        let exact = f64::from(output) - reference;
        let error = exact as f32;
        let magnitude = error.abs();
        let relative = magnitude * inverse;
        let beyond = relative > TAIL_START;
        self.squares[lane] += exact * exact;
        self.error_ref[lane] += exact * reference;
        self.body[lane] += if beyond { 0.0 } else { relative };
        self.tail[lane] += u32::from(beyond);
        self.largest[lane] = if magnitude > self.largest[lane] { magnitude } else { self.largest[lane] };
        error
    }
}

impl DrawStats {
    /// Compares `output` with the reference and leaves output - ref in `difference`.
    pub fn measure(output: &[f32], reference: &Reference, difference: &mut Vec<f32>) -> Self {
        difference.resize(output.len(), 0.0);
        let mut stats = Self {
            elements: output.len() as u64 - reference.zeros,
            zeros: reference.zeros,
            sum_ref_squares: reference.sum_squares,
            histogram: vec![0; HISTOGRAM_BINS],
            ..Self::default()
        };
        vectorized!((stats: &'a mut DrawStats = &mut stats, output: &'a [f32] = output, reference: &'a Reference = reference, difference: &'a mut [f32] = difference) -> () {
            stats.sweep(output, reference, difference);
        });
        stats.fill_histogram(reference, difference);
        stats
    }

    #[inline(always)]
    fn sweep(&mut self, output: &[f32], reference: &Reference, difference: &mut [f32]) {
        // The relative body is at most 2 an element: FP32 lanes hold a stretch of 1024 elements well.
        const STRETCH: usize = 1024;
        let mut lanes = Lanes::default();
        let stretches = output.chunks(STRETCH).zip(difference.chunks_mut(STRETCH));
        let references = reference.values.chunks(STRETCH).zip(reference.inverse.chunks(STRETCH));
        for ((output, difference), (values, inverse)) in stretches.zip(references) {
            lanes.body = [0.0; LANES];
            let (o, o_rest) = output.as_chunks::<LANES>();
            let (d, d_rest) = difference.as_chunks_mut::<LANES>();
            let (r, r_rest) = values.as_chunks::<LANES>();
            let (i, i_rest) = inverse.as_chunks::<LANES>();
            for ((o, d), (r, i)) in o.iter().zip(d).zip(r.iter().zip(i)) {
                for lane in 0..LANES {
                    d[lane] = lanes.take(lane, o[lane], r[lane], i[lane]);
                }
            }
            for ((o, d), (r, i)) in o_rest.iter().zip(d_rest).zip(r_rest.iter().zip(i_rest)) {
                *d = lanes.take(0, *o, *r, *i);
            }
            self.sum_relative_body += lanes.body.iter().map(|lane| f64::from(*lane)).sum::<f64>();
        }
        self.sum_error_squares = lanes.squares.iter().sum();
        self.sum_error_ref = lanes.error_ref.iter().sum();
        self.max_abs = lanes.largest.iter().copied().fold(0.0, f32::max).into();
        self.tail_count = lanes.tail.iter().map(|lane| u64::from(*lane)).sum();
    }

    fn fill_histogram(&mut self, reference: &Reference, difference: &[f32]) {
        for (d, i) in difference.iter().zip(&reference.inverse).step_by(HISTOGRAM_STRIDE) {
            if *i > 0.0 {
                self.histogram[bin_of(d.abs() * i)] += 1;
            }
        }
    }

    /// Adds another draw's sums.
    pub fn add(&mut self, other: &Self) {
        self.elements += other.elements;
        self.zeros += other.zeros;
        self.sum_error_squares += other.sum_error_squares;
        self.sum_ref_squares += other.sum_ref_squares;
        self.sum_error_ref += other.sum_error_ref;
        self.sum_relative_body += other.sum_relative_body;
        self.tail_count += other.tail_count;
        self.max_abs = self.max_abs.max(other.max_abs);
        self.histogram.resize(HISTOGRAM_BINS, 0);
        self.histogram.iter_mut().zip(&other.histogram).for_each(|(a, b)| *a += b);
    }
}

fn bin_of(relative: f32) -> usize {
    let shift = 23 - BINS_PER_OCTAVE_LOG2;
    let index = (relative.to_bits() >> shift).saturating_sub(FIRST_OCTAVE << BINS_PER_OCTAVE_LOG2);
    (index as usize).min(HISTOGRAM_BINS - 1)
}

/// The quantile `p` of the relative errors in a histogram, linear inside its bin; 0 when empty.
pub fn relative_histogram_quantile(histogram: &[u32], p: f64) -> f64 {
    let total: u64 = histogram.iter().map(|count| u64::from(*count)).sum();
    let target = p * total as f64;
    let edge = |bin: usize| {
        let bits = (bin as u32 + (FIRST_OCTAVE << BINS_PER_OCTAVE_LOG2)) << (23 - BINS_PER_OCTAVE_LOG2);
        if bin == 0 { 0.0 } else { f64::from(f32::from_bits(bits)) }
    };
    let mut below = 0.0;
    for (bin, count) in histogram.iter().enumerate().filter(|(_, count)| **count > 0) {
        let count = f64::from(*count);
        if below + count >= target {
            let (lo, hi) = (edge(bin), edge((bin + 1).min(HISTOGRAM_BINS)));
            return lo + (hi - lo) * ((target - below) / count).clamp(0.0, 1.0);
        }
        below += count;
    }
    0.0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hand_computed_case() {
        let reference = Reference::new(4, vec![1.0, -2.0, 0.0, 0.5]);
        let mut difference = Vec::new();
        let stats = DrawStats::measure(&[1.5, -2.0, 3.0, 3.0], &reference, &mut difference);
        assert_eq!((stats.elements, stats.zeros, stats.tail_count), (3, 1, 1));
        assert_eq!(difference, [0.5, 0.0, 3.0, 2.5]);
        assert_eq!(stats.sum_error_squares, 0.25 + 9.0 + 6.25);
        assert_eq!(stats.sum_ref_squares, 5.25);
        assert_eq!(stats.sum_error_ref, 0.5 + 1.25);
        assert_eq!(stats.sum_relative_body, 0.5);
        assert_eq!(stats.max_abs, 3.0);
    }

    #[test]
    fn quantiles_come_back_from_the_histogram() {
        let mut histogram = vec![0; HISTOGRAM_BINS];
        for i in 1..=10_000 {
            histogram[bin_of(i as f32 * 1e-4)] += 1;
        }
        for p in [0.1, 0.5, 0.9] {
            let quantile = relative_histogram_quantile(&histogram, p);
            assert!((quantile / p - 1.0).abs() < 0.01, "{p}: {quantile}");
        }
        assert_eq!(relative_histogram_quantile(&[], 0.5), 0.0);
    }
}
