//! Casts by their definition, element by element: what the kernels must give to the bit.

use crate::{
    model::Format,
    numerics::{
        cast::scale_from_amax,
        fp8::{e4m3_encode, e5m2_encode},
    },
};

/// Which elements of `[rows, cols]` share a scale, and where it lies.
#[derive(Clone, Copy, Debug)]
pub(super) enum Groups {
    Row,
    Column,
    Tensor,
    /// 1 x 128: `[ceil(cols / 128)][rows]`
    AlongRows,
    /// 128 x 1: `[ceil(rows / 128)][cols]`
    AlongColumns,
    /// 128 x 128: `[ceil(rows / 128)][ceil(cols / 128) rounded up to 4]`
    Square,
    /// The same for the transposed copy.
    SquareTurned,
    /// 128 x 128 repeated along rows: `[ceil(cols / 128)][rows]`
    SquareRepeated,
}

impl Groups {
    fn count(self, rows: usize, cols: usize) -> usize {
        let (row_blocks, col_blocks) = (rows.div_ceil(128), cols.div_ceil(128));
        match self {
            Self::Row => rows,
            Self::Column => cols,
            Self::Tensor => 1,
            Self::AlongRows | Self::SquareRepeated => col_blocks * rows,
            Self::AlongColumns => row_blocks * cols,
            Self::Square => row_blocks * col_blocks.next_multiple_of(4),
            Self::SquareTurned => col_blocks * row_blocks.next_multiple_of(4),
        }
    }

    #[inline]
    fn of(self, (rows, cols): (usize, usize), row: usize, col: usize) -> usize {
        match self {
            Self::Row => row,
            Self::Column => col,
            Self::Tensor => 0,
            Self::AlongRows => col / 128 * rows + row,
            Self::AlongColumns => row / 128 * cols + col,
            Self::Square => row / 128 * cols.div_ceil(128).next_multiple_of(4) + col / 128,
            Self::SquareTurned => col / 128 * rows.div_ceil(128).next_multiple_of(4) + row / 128,
            // The first row of the block keeps the amax; scales are repeated afterwards.
            Self::SquareRepeated => col / 128 * rows + row / 128 * 128,
        }
    }
}

/// What a cast gives.
pub(super) struct Casted {
    /// `[rows, cols]`
    pub codes: Vec<u8>,
    /// Padding is `None`.
    pub scales: Vec<Option<f32>>,
}

impl Casted {
    pub fn scales_padded_with(&self, padding: f32) -> Vec<f32> {
        self.scales.iter().map(|scale| scale.unwrap_or(padding)).collect()
    }

    /// `[cols, rows]`
    pub fn turned(&self, rows: usize, cols: usize) -> Vec<u8> {
        (0..cols)
            .flat_map(|col| (0..rows).map(move |row| (row, col)))
            .map(|(row, col)| self.codes[row * cols + col])
            .collect()
    }
}

/// How a value becomes a code.
#[derive(Clone, Copy, Debug)]
pub(super) struct Rule {
    pub format: Format,
    pub power_of_two: bool,
    /// Of the rest of the tensor.
    pub floor_amax: f32,
}

/// Casts `[rows, cols]`. A NaN makes its group's scale, and so all its codes, NaN.
pub(super) fn cast(values: &[f32], (rows, cols): (usize, usize), groups: Groups, rule: Rule) -> Casted {
    // Magnitudes order like their bits, and NaN above all.
    let mut amax: Vec<Option<u32>> = vec![None; groups.count(rows, cols)];
    for (row, line) in values.chunks_exact(cols).enumerate() {
        for (col, value) in line.iter().enumerate() {
            let seen = &mut amax[groups.of((rows, cols), row, col)];
            *seen = Some(seen.unwrap_or(rule.floor_amax.to_bits()).max(value.to_bits() & 0x7FFF_FFFF));
        }
    }
    let scale = |bits: u32| scale_from_amax(f32::from_bits(bits), rule.format, rule.power_of_two);
    let mut scales: Vec<Option<f32>> = amax.into_iter().map(|bits| bits.map(scale)).collect();
    let mut codes = Vec::with_capacity(values.len());
    for (row, line) in values.chunks_exact(cols).enumerate() {
        for (col, value) in line.iter().enumerate() {
            let scale = scales[groups.of((rows, cols), row, col)].unwrap_or(1.0);
            codes.push(encode(rule.format, value / scale));
        }
    }
    if matches!(groups, Groups::SquareRepeated) {
        (0..scales.len()).for_each(|at| scales[at] = scales[at / rows * rows + at % rows / 128 * 128]);
    }
    Casted { codes, scales }
}

pub(super) fn encode(format: Format, value: f32) -> u8 {
    if format == Format::E5m2 { e5m2_encode(value) } else { e4m3_encode(value) }
}
