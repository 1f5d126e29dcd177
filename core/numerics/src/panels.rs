//! Operands in the layout that the GEMM reads: panels of `width` rows, the reduced dimension outside.
//!
//! An operand is packed once and cast many times: in this layout a row's amax, a block's amax and
//! the cast itself all run along vectors.

use pulp::{Arch, Simd, WithSimd};

use crate::Matrix;

use super::vectorized::vectorized;

/// Which operand: the left one has narrow panels (rows of the register tile), the right one wide
/// panels (columns of the register tile).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    Left,
    Right,
}

/// `[ceil(rows / width)][depth][width]`; rows beyond `rows` are zero.
#[derive(Clone, Debug)]
pub struct Panels {
    pub side: Side,
    pub rows: usize,
    /// Length of the reduced dimension.
    pub depth: usize,
    pub width: usize,
    pub data: Vec<f32>,
}

/// Rows and columns of the register tile on this machine.
struct TileSize;

impl WithSimd for TileSize {
    type Output = (usize, usize);

    fn with_simd<S: Simd>(self, _simd: S) -> (usize, usize) {
        (if S::REGISTER_COUNT >= 32 { 12 } else { 6 }, 2 * S::F32_LANES)
    }
}

impl Side {
    pub fn width(self) -> usize {
        let (rows, cols) = Arch::new().dispatch(TileSize);
        match self {
            Self::Left => rows,
            Self::Right => cols,
        }
    }
}

impl Panels {
    /// Packs a matrix whose rows run along the reduced dimension.
    pub fn pack(side: Side, matrix: &Matrix) -> Self {
        Self::pack_with(side, matrix.rows, matrix.cols, |row, depth| matrix.data[row * matrix.cols + depth])
    }

    /// Packs the transpose of a matrix: its *columns* become rows of the operand. Runs of columns are
    /// copied whole, so this is the cheaper way round.
    pub fn pack_transposed(side: Side, matrix: &Matrix) -> Self {
        let (rows, depth, width) = (matrix.cols, matrix.rows, side.width());
        let mut data = vec![0.0; rows.div_ceil(width) * depth * width];
        for (panel, block) in data.chunks_exact_mut((depth * width).max(1)).enumerate() {
            let first = panel * width;
            let filled = width.min(rows - first);
            for (lanes, row) in block.chunks_exact_mut(width).zip(matrix.data.chunks_exact(rows.max(1))) {
                lanes[..filled].copy_from_slice(&row[first..first + filled]);
            }
        }
        Self { side, rows, depth, width, data }
    }

    fn pack_with(side: Side, rows: usize, depth: usize, value: impl Fn(usize, usize) -> f32) -> Self {
        let width = side.width();
        let panels = rows.div_ceil(width);
        let mut data = vec![0.0; panels * depth * width];
        for panel in 0..panels {
            let first = panel * width;
            let filled = width.min(rows - first);
            let block = &mut data[panel * depth * width..(panel + 1) * depth * width];
            for (d, lanes) in block.chunks_exact_mut(width).enumerate() {
                for (r, lane) in lanes[..filled].iter_mut().enumerate() {
                    *lane = value(first + r, d);
                }
            }
        }
        Self { side, rows, depth, width, data }
    }

    /// No rows and no memory yet.
    pub fn emptied(&self) -> Self {
        Self { side: self.side, rows: 0, depth: 0, width: self.width, data: Vec::new() }
    }

    /// Takes the shape of `other`, keeping the memory; the values are whatever was there.
    pub fn like(&mut self, other: &Self) {
        (self.side, self.rows, self.depth, self.width) = (other.side, other.rows, other.depth, other.width);
        self.data.resize(other.data.len(), 0.0);
    }

    /// Rows with the zero rows that fill the last panel.
    pub fn padded_rows(&self) -> usize {
        self.rows.div_ceil(self.width) * self.width
    }

    /// The panels, each with its first row's index.
    pub fn iter(&self) -> impl Iterator<Item = (usize, &[f32])> {
        let size = (self.depth * self.width).max(1);
        self.data.chunks_exact(size).enumerate().map(|(index, panel)| (index * self.width, panel))
    }

    /// Largest magnitude; NaN if any element is NaN.
    pub fn amax(&self) -> f32 {
        amax(&self.data)
    }
}

/// Largest magnitude of a slice; NaN if any element is NaN.
pub fn amax(values: &[f32]) -> f32 {
    vectorized!((values: &'a [f32] = values) -> f32 {
        let mut lanes = [0u32; 32];
        let (chunks, rest) = values.as_chunks::<32>();
        for chunk in chunks {
            for (lane, value) in lanes.iter_mut().zip(chunk) {
                // Magnitudes order like their bits, and NaN above infinity: no NaN is lost.
                *lane = (*lane).max(value.to_bits() & 0x7FFF_FFFF);
            }
        }
        let rest = rest.iter().map(|value| value.to_bits() & 0x7FFF_FFFF).max().unwrap_or(0);
        f32::from_bits(lanes.iter().copied().max().unwrap_or(0).max(rest))
    })
}
