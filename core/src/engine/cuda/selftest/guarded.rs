//! Device memory between guards, poisoned or holding data; and comparisons that name the first difference.

use super::{
    super::{CudaError, stream::Buffer, stream_context::StreamContext},
    CheckOutcome, Problem, ensure,
};

/// Bytes before and behind. A multiple of every alignment that kernels ask for.
const GUARD: usize = 256;

pub(super) struct Guarded {
    buffer: Buffer<u8>,
    start: usize,
    bytes: usize,
    poison: u8,
}

impl Guarded {
    /// `bytes` of `poison`, `offset` bytes beyond an aligned address.
    pub fn poisoned(lane: &StreamContext, bytes: usize, offset: usize, poison: u8) -> Result<Self, CudaError> {
        let buffer = lane.stream.alloc(2 * GUARD + offset + bytes)?;
        lane.stream.fill(&buffer, poison)?;
        Ok(Self { buffer, start: GUARD + offset, bytes, poison })
    }

    /// A copy of `data`.
    pub fn holding<T: bytemuck::Pod>(
        lane: &StreamContext,
        data: &[T],
        offset: usize,
        poison: u8,
    ) -> Result<Self, CudaError> {
        let data: &[u8] = bytemuck::cast_slice(data);
        let mut bytes = vec![poison; 2 * GUARD + offset + data.len()];
        let start = GUARD + offset;
        bytes[start..start + data.len()].copy_from_slice(data);
        Ok(Self { buffer: lane.stream.upload(&bytes)?, start, bytes: data.len(), poison })
    }

    pub fn address(&self) -> u64 {
        self.buffer.address() + self.start as u64
    }

    /// What lies there now, once the guards are found untouched.
    pub fn read<T: bytemuck::Pod>(&self, lane: &StreamContext) -> Result<Vec<T>, Problem> {
        let bytes = lane.stream.download(&self.buffer)?;
        let (before, rest) = bytes.split_at(self.start);
        let (inside, behind) = rest.split_at(self.bytes);
        let touched = |guard: &[u8]| guard.iter().position(|byte| *byte != self.poison);
        if let Some(at) = before.iter().rposition(|byte| *byte != self.poison) {
            return Err(Problem::Wrong(format!("wrote {} bytes before its output", self.start - at)));
        }
        if let Some(at) = touched(behind) {
            return Err(Problem::Wrong(format!("wrote {at} bytes behind its output")));
        }
        Ok(inside.chunks_exact(size_of::<T>()).map(bytemuck::pod_read_unaligned).collect())
    }

    /// Rows of `cols` bytes, `pitch` from one to the next, once what lies between them is found untouched.
    pub fn read_rows(&self, lane: &StreamContext, cols: usize, pitch: usize) -> Result<Vec<u8>, Problem> {
        let found = self.read::<u8>(lane)?;
        if found.chunks_exact(pitch.max(1)).any(|row| row[cols..].iter().any(|byte| *byte != self.poison)) {
            return Err(Problem::Wrong("wrote between its rows".to_owned()));
        }
        Ok(found.chunks_exact(pitch.max(1)).flat_map(|row| &row[..cols]).copied().collect())
    }
}

/// FP32 to the bit, NaN like NaN.
pub(super) fn same_floats(what: &str, ours: &[f32], wanted: &[f32]) -> CheckOutcome {
    let same = |(a, b): (&f32, &f32)| a.to_bits() == b.to_bits() || (a.is_nan() && b.is_nan());
    same_by(what, ours, wanted, same)
}

/// Whatever is compared as it is.
pub(super) fn same<T: PartialEq + std::fmt::Debug>(what: &str, ours: &[T], wanted: &[T]) -> CheckOutcome {
    same_by(what, ours, wanted, |(a, b)| a == b)
}

/// Codes, NaN like NaN whatever their signs and payloads.
pub(super) fn same_codes(what: &str, ours: &[u8], wanted: &[u8], is_e5m2: bool) -> CheckOutcome {
    let smallest_nan = if is_e5m2 { 0x7D } else { 0x7F };
    let is_nan = |code: u8| code & 0x7F >= smallest_nan;
    same_by(what, ours, wanted, |(a, b)| a == b || (is_nan(*a) && is_nan(*b)))
}

fn same_by<T: std::fmt::Debug>(what: &str, ours: &[T], wanted: &[T], same: impl Fn((&T, &T)) -> bool) -> CheckOutcome {
    ensure(ours.len() == wanted.len(), || format!("{what}: {} elements, not {}", ours.len(), wanted.len()))?;
    let differs = |pair: &(usize, (&T, &T))| !same(pair.1);
    let mut different = ours.iter().zip(wanted).enumerate().filter(differs);
    let Some((at, (a, b))) = different.next() else { return Ok(()) };
    let more = different.count();
    Err(Problem::Wrong(format!("{what}[{at}] is {a:?}, not {b:?}; {} of {} differ", more + 1, ours.len())))
}

/// Within a relative `tolerance`; NaN like NaN, infinity like infinity.
pub(super) fn near(what: &str, ours: f64, wanted: f64, tolerance: f64) -> CheckOutcome {
    let close = (ours - wanted).abs() <= tolerance * wanted.abs();
    ensure(close || ours.to_bits() == wanted.to_bits() || (ours.is_nan() && wanted.is_nan()), || {
        format!("{what} is {ours:e}, not {wanted:e}")
    })
}
