//! Casts of BF16 in memory of others: takes operands by address, gives launches of `loka_kernels::casts`.

use loka_kernels::casts::{
    self, AS_E5M2, COLUMN_AMAX, CastOperand, POWER_OF_TWO, ROW_CAST, STATIC_OPERANDS, StaticOperands,
};
/// One operand of [`Gpu::cast_static_turned`]; and from one row of codes to the next, where products read them fastest.
pub use loka_kernels::casts::{StaticOperand as StaticCastMemory, pitch};

use super::{
    super::{CudaError, arguments::Arguments},
    Gpu, RawStream, aligned, wanted,
};

/// One operand of a cast, by addresses; 0 for what is not wanted.
#[derive(Clone, Copy, Debug, Default)]
pub struct CastMemory {
    /// BF16 `[rows, cols]`, row-major.
    pub x: u64,
    /// `[rows, cols]`
    pub codes: u64,
    /// `[rows]`, of a tensorwise cast `[1]`.
    pub scales: u64,
    /// `[cols, rows]`
    pub codes_t: u64,
    /// `[cols]`
    pub scales_t: u64,
    /// [`Gpu::partials_bytes`] at least, this operand's alone.
    pub partials: u64,
    pub partials_bytes: u64,
    pub rows: u32,
    pub cols: u32,
    /// [`POWER_OF_TWO`], [`AS_E5M2`].
    pub flags: u32,
    /// Bytes from one row of `codes` to the next; 0: rows lie behind one another.
    pub pitch: u32,
    /// The same of `codes_t`.
    pub pitch_t: u32,
}

type Pair = [CastOperand; 2];

impl Gpu {
    /// Bytes of scratch that a columnwise or a tensorwise cast of an operand needs.
    pub fn partials_bytes(&self, rows: u32, cols: u32) -> u64 {
        casts::partials_bytes(rows, cols, self.device.multiprocessors)
    }

    /// One or two operands to codes with a scale a row, in one launch.
    pub fn cast_rowwise(&self, stream: RawStream, operands: &[CastMemory]) -> Result<(), CudaError> {
        let mut pair = pair(operands, ROW_CAST, |memory| {
            aligned("codes", memory.codes, 1)?;
            aligned("scales", memory.scales, 4)
        })?;
        let has_clusters = self.device.capability >= (9, 0);
        let grid = casts::cast_rowwise(&mut pair, self.device.multiprocessors, has_clusters);
        self.launch(stream, "cast_rowwise", grid, &both(pair))
    }

    /// One or two operands to transposed codes with a scale a column, in two launches.
    pub fn cast_columnwise(&self, stream: RawStream, operands: &[CastMemory]) -> Result<(), CudaError> {
        let mut pair = pair(operands, COLUMN_AMAX, |memory| {
            aligned("codes_t", memory.codes_t, 1)?;
            aligned("scales_t", memory.scales_t, 4)?;
            self.enough_partials(memory)
        })?;
        let (multiprocessors, has_clusters) = (self.device.multiprocessors, self.device.capability >= (9, 0));
        let grid = casts::cast_rowwise(&mut pair, multiprocessors, has_clusters);
        self.launch(stream, "cast_rowwise", grid, &both(pair))?;
        let grid = casts::cast_columnwise(&mut pair, multiprocessors);
        self.launch(stream, "cast_columnwise", grid, &both(pair))
    }

    /// One or two operands to codes, as they lie or transposed or both, with one scale each, in two launches.
    pub fn cast_tensorwise(&self, stream: RawStream, operands: &[CastMemory]) -> Result<(), CudaError> {
        let mut pair = pair(operands, 0, |memory| {
            if memory.codes == 0 && memory.codes_t == 0 {
                return Err(CudaError::Refused("neither codes nor codes_t are wanted".to_owned()));
            }
            aligned("scales", memory.scales, 4)?;
            self.enough_partials(memory)
        })?;
        let grid = casts::amax_tensor(&mut pair, self.device.multiprocessors);
        self.launch(stream, "amax_tensor", grid, &both(pair))?;
        let grid = casts::cast_tensorwise(&mut pair, self.device.multiprocessors);
        self.launch(stream, "cast_tensorwise", grid, &both(pair))
    }

    /// One or two operands' codes, transposed.
    pub fn transpose_codes(&self, stream: RawStream, operands: &[CastMemory]) -> Result<(), CudaError> {
        let mut pair = [CastOperand::default(); 2];
        for (operand, memory) in pair.iter_mut().zip(operands) {
            let &CastMemory { codes, codes_t, rows, cols, pitch, pitch_t, .. } = memory;
            aligned("codes", codes, 1)?;
            aligned("codes_t", codes_t, 1)?;
            spaced(memory)?;
            *operand = CastOperand { codes, codes_t, rows, cols, pitch, pitch_t, ..CastOperand::default() };
        }
        let grid = casts::transpose_codes(&mut pair);
        self.launch(stream, "transpose_codes", grid, &both(pair))
    }

    /// `count` elements to E4M3, one behind the other, by the scale at `scale`, FP32; adds the saturated ones to the u64 at `saturated`.
    pub fn cast_static(
        &self,
        stream: RawStream,
        [x, scale, codes, saturated]: [u64; 4],
        count: u64,
    ) -> Result<(), CudaError> {
        aligned("x", x, 2)?;
        aligned("scale", scale, 4)?;
        aligned("codes", codes, 1)?;
        aligned("saturated", saturated, 8)?;
        let arguments = Arguments::new().value(x).value(scale).value(codes).value(saturated).value(count);
        // In any rows: these lie behind one another.
        let arguments = arguments.value(8u32).value(8u32);
        let grid = casts::cast_e4m3_static(count, self.device.multiprocessors);
        self.launch(stream, "cast_e4m3_static", grid, &arguments)
    }

    /// Up to four matrices to E4M3 by scales known beforehand, to codes and codes transposed, in one launch.
    pub fn cast_static_turned(&self, stream: RawStream, operands: &[StaticCastMemory]) -> Result<(), CudaError> {
        let count = operands.len();
        if count == 0 || count > STATIC_OPERANDS {
            return Err(CudaError::Refused(format!("{count} operands: this cast takes one to {STATIC_OPERANDS}")));
        }
        let mut given = StaticOperands::default();
        for (to, operand) in given.of.iter_mut().zip(operands) {
            aligned("x", operand.x, 16)?;
            aligned("scale", operand.scale, 4)?;
            let outputs = [("codes", operand.codes, 8), ("codes_t", operand.codes_t, 16)];
            for (what, address, bytes) in
                outputs.into_iter().chain([("saturated", operand.saturated, 8), ("amax", operand.amax, 4)])
            {
                wanted(what, address, bytes)?;
            }
            *to = *operand;
        }
        let grid = casts::cast_static_turned(&mut given).ok_or_else(|| {
            let sizes = "columns that are a multiple of 8 and, where codes are transposed, rows that are one of 16";
            CudaError::Refused(format!("a cast by a known scale wants {sizes}"))
        })?;
        self.launch(stream, "cast_static_turned", grid, &Arguments::new().structure(given))
    }

    fn enough_partials(&self, memory: &CastMemory) -> Result<(), CudaError> {
        aligned("partials", memory.partials, 16)?;
        let wanted = self.partials_bytes(memory.rows, memory.cols);
        if memory.partials_bytes < wanted {
            let found = memory.partials_bytes;
            return Err(CudaError::Refused(format!("partials have {found} bytes, this cast needs {wanted}")));
        }
        Ok(())
    }
}

/// Operands as the kernels take them, the second one empty where there is one.
fn pair(
    operands: &[CastMemory],
    what: u32,
    check: impl Fn(&CastMemory) -> Result<(), CudaError>,
) -> Result<Pair, CudaError> {
    if operands.is_empty() || operands.len() > 2 {
        return Err(CudaError::Refused(format!("{} operands: a cast takes one or two", operands.len())));
    }
    let mut pair = Pair::default();
    for (operand, memory) in pair.iter_mut().zip(operands) {
        aligned("x", memory.x, 2)?;
        check(memory)?;
        let unknown = memory.flags & !(POWER_OF_TWO | AS_E5M2);
        if unknown != 0 {
            return Err(CudaError::Refused(format!("unknown flags of a cast: {unknown:#x}")));
        }
        spaced(memory)?;
        let CastMemory { x, codes, scales, codes_t, scales_t, partials, rows, cols, pitch, pitch_t, .. } = *memory;
        let (flags, empty) = (memory.flags | what, CastOperand::default());
        *operand =
            CastOperand { x, codes, scales, codes_t, scales_t, partials, rows, cols, flags, pitch, pitch_t, ..empty };
    }
    Ok(pair)
}

/// Refuses rows that would lie upon one another.
fn spaced(memory: &CastMemory) -> Result<(), CudaError> {
    for (what, pitch, cols) in [("pitch", memory.pitch, memory.cols), ("pitch_t", memory.pitch_t, memory.rows)] {
        if pitch != 0 && pitch < cols {
            return Err(CudaError::Refused(format!("{what} is {pitch}, less than a row of {cols}")));
        }
    }
    Ok(())
}

fn both([a, b]: Pair) -> Arguments {
    Arguments::new().structure(a).structure(b)
}
