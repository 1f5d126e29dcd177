//! Operands of a probe cast on the device, in FP32 as they were drawn, to what a GEMM reads.

use std::sync::Arc;

use loka_kernels::probing::{self, CodeFormat, ScaleMode};

use crate::{
    model::{Format, Granularity, OperandCast},
    numerics::{TensorRange, fp8::format_max},
};

use super::{
    CudaError,
    arguments::Arguments,
    product::{ProductOperand, Scaling},
    stream::{Buffer, Stream},
    stream_context::{StreamContext, Tensor},
};

/// Codes of a cast operand.
pub(super) enum Codes {
    Fp8(Buffer<u8>),
    Bf16(Buffer<u16>),
    /// FP32, read by the tensor cores as TF32.
    F32(Buffer<f32>),
}

impl Codes {
    pub fn address(&self) -> u64 {
        match self {
            Self::Fp8(codes) => codes.address(),
            Self::Bf16(codes) => codes.address(),
            Self::F32(codes) => codes.address(),
        }
    }
}

/// An operand as a GEMM reads it.
pub(super) struct Cast {
    pub codes: Codes,
    pub cast: OperandCast,
    /// As `quantize` reads them; for 128x128 repeated along rows.
    pub scales: Option<Buffer<f32>>,
    /// As cuBLASLt reads 128x128 scales; of one scale for the tensor the same once a row, for a product whose other
    /// operand is scaled by rows.
    pub blocked: Option<Buffer<f32>>,
}

impl Cast {
    /// The scales as cuBLASLt reads them in that mode; 0 for none.
    pub fn scales_address(&self, scaling: Scaling) -> u64 {
        self.scales_in(scaling).map_or(0, Buffer::address)
    }

    fn scales_in(&self, scaling: Scaling) -> Option<&Buffer<f32>> {
        let own = ProductOperand::of(self.cast).scaling;
        let blocked = self.blocked.as_ref().filter(|_| scaling != own || own == Scaling::Block128x128);
        blocked.or(self.scales.as_ref())
    }
}

/// Codes `[rows, reduced]` with zeros behind rows and columns, and their scales: what an FP8 product takes of sizes that
/// are no multiples of 16.
pub(super) struct PaddedCodes {
    pub codes: Buffer<u8>,
    pub scales: Option<Buffer<f32>>,
}

impl PaddedCodes {
    /// `None` where nothing is to be padded, or the codes are no FP8. `scaling`: of one scale a tensor or a row.
    pub fn of(
        stream: &Arc<Stream>,
        cast: &Cast,
        scaling: Scaling,
        (rows, reduced): (usize, usize),
        (to_rows, to_reduced): (usize, usize),
    ) -> Result<Option<Self>, CudaError> {
        let Codes::Fp8(from) = &cast.codes else { return Ok(None) };
        if (rows, reduced) == (to_rows, to_reduced) {
            return Ok(None);
        }
        let codes = stream.zeros(to_rows * to_reduced)?;
        stream.copy_rows((from, reduced), (&codes, to_reduced), (reduced, rows))?;
        let scales = match cast.scales_in(scaling).filter(|_| scaling == Scaling::Row && to_rows > rows) {
            Some(of_rows) => {
                let scales = stream.zeros(to_rows)?;
                stream.copy_rows((of_rows, rows), (&scales, to_rows), (rows, 1))?;
                Some(scales)
            }
            None => None,
        };
        Ok(Some(Self { codes, scales }))
    }
}

pub(super) fn code_format(format: Format) -> CodeFormat {
    match format {
        Format::E4m3 => CodeFormat::E4m3,
        Format::E5m2 => CodeFormat::E5m2,
        Format::Bf16 => CodeFormat::Bf16,
        Format::F32 | Format::Tf32 => CodeFormat::F32,
    }
}

pub(super) fn scale_mode(granularity: Granularity) -> ScaleMode {
    match granularity {
        Granularity::None => ScaleMode::None,
        // One scale for the tensor; who knows it beforehand is the caller's matter.
        Granularity::Tensor | Granularity::Static => ScaleMode::Tensor,
        Granularity::Row => ScaleMode::Row,
        Granularity::Block1x128 => ScaleMode::Block1x128,
        Granularity::Block128x128 => ScaleMode::Block128x128,
    }
}

impl StreamContext {
    /// Casts `[rows, reduced]` as the GEMM reads it. `whole`: what is known of the tensor that this is a part of.
    pub fn cast(&self, from: &Tensor, cast: OperandCast, whole: TensorRange) -> Result<Cast, CudaError> {
        let plain = |codes| Cast { codes, cast, scales: None, blocked: None };
        match cast.format {
            Format::F32 => {
                let copy = self.stream.alloc(from.data.len())?;
                self.stream.copy(&from.data, &copy)?;
                Ok(plain(Codes::F32(copy)))
            }
            // cuBLASLt rounds to nearest by itself (`loka selftest --gpu` sees to it); this is for what reads
            // the codes beside it.
            Format::Tf32 => {
                let codes = self.stream.alloc::<f32>(from.data.len())?;
                let arguments = Arguments::new().buffer(&from.data).buffer(&codes).value(from.count());
                self.launch("round_tf32", probing::elements(from.count()), &arguments)?;
                Ok(plain(Codes::F32(codes)))
            }
            Format::Bf16 => Ok(plain(Codes::Bf16(self.round_bf16(from)?))),
            Format::E4m3 | Format::E5m2 if cast.granularity == Granularity::Static => {
                // As on the CPU: without one nothing is a good guess.
                let scale = whole.static_scale.unwrap_or(f32::NAN);
                let scales = self.stream.upload(&[scale; 4])?;
                let blocked = self.stream.upload(&vec![scale; from.rows])?;
                self.quantize(from, cast, scales, Some(blocked))
            }
            Format::E4m3 | Format::E5m2 => self.cast_by_amax(from, cast, whole.amax.unwrap_or(0.0)),
        }
    }

    /// Adds to the two counts at `counts` how many elements of an FP8 operand are not zero, and how many of these its cast
    /// made zero. Nothing for other formats.
    pub fn count_flushed(&self, from: &Tensor, cast: &Cast, counts: u64) -> Result<(), CudaError> {
        let Codes::Fp8(codes) = &cast.codes else { return Ok(()) };
        let arguments = Arguments::new().buffer(&from.data).buffer(codes).value(counts).value(from.count());
        self.launch("count_flushed", probing::elements(from.count()), &arguments)
    }

    /// `floor_amax`: of the rest of the tensor; a tensorwise scale must not be finer than the real one.
    fn cast_by_amax(&self, from: &Tensor, cast: OperandCast, floor_amax: f32) -> Result<Cast, CudaError> {
        let (rows, cols) = (from.rows_u32(), from.cols_u32());
        let mode = scale_mode(cast.granularity);
        let by_block = matches!(mode, ScaleMode::Block1x128 | ScaleMode::Block128x128);
        let stretch = if by_block { 128 } else { cols.max(1) };
        let stretches = probing::amax_stretches(cols, stretch);
        let amax = self.stream.alloc::<f32>(stretches as usize * from.rows)?;
        let arguments = Arguments::new().buffer(&from.data).buffer(&amax).value(rows).value(cols).value(stretch);
        self.launch("row_amax", probing::row_amax(rows, cols, stretch), &arguments)?;
        let blocked = match mode {
            ScaleMode::Block128x128 => {
                Some(self.stream.alloc::<f32>(probing::blocked_scales(rows, stretches) as usize)?)
            }
            ScaleMode::Tensor => Some(self.stream.alloc::<f32>(from.rows)?),
            _ => None,
        };
        let scales = match mode {
            ScaleMode::Tensor => self.stream.alloc::<f32>(4)?,
            _ => self.stream.alloc::<f32>(amax.len())?,
        };
        let arguments = Arguments::new()
            .buffer(&amax)
            .buffer(&scales)
            .maybe(blocked.as_ref())
            .value(rows)
            .value(stretches)
            .value(mode as u32)
            .value(format_max(cast.format))
            .value(floor_amax)
            .value(u32::from(cast.power_of_two));
        self.launch("scales_from_amax", probing::scales_from_amax(rows, stretches, mode), &arguments)?;
        self.quantize(from, cast, scales, blocked)
    }

    fn quantize(
        &self,
        from: &Tensor,
        cast: OperandCast,
        scales: Buffer<f32>,
        blocked: Option<Buffer<f32>>,
    ) -> Result<Cast, CudaError> {
        let (rows, cols) = (from.rows_u32(), from.cols_u32());
        let codes = self.stream.alloc::<u8>(from.data.len())?;
        let arguments = Arguments::new()
            .buffer(&from.data)
            .buffer(&scales)
            .buffer(&codes)
            .value(rows)
            .value(cols)
            .value(scale_mode(cast.granularity) as u32)
            .value(code_format(cast.format) as u32);
        self.launch("quantize", probing::rows_of(rows, cols), &arguments)?;
        Ok(Cast { codes: Codes::Fp8(codes), cast, scales: Some(scales), blocked })
    }
}
