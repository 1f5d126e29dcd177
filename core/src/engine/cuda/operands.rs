//! A GEMM's operands for timing: BF16 tensors as training keeps them, several sets of them, and the casts
//! that each recipe needs, transposed copies included.
//!
//! FP8 tensor cores read both operands along the reduced dimension only. x and dy are stored `[m, .]` and W
//! `[n, k]`, so that dgrad needs W transposed and wgrad both operands; BF16 reads them as they lie.

use std::collections::BTreeMap;

use loka_kernels::casts::{self, CastOperand, pitch};

use crate::{
    model::{Format, Gemm, GemmNumerics, GemmShape, Granularity, Kernel, OperandCast},
    numerics::rng::Rng,
};

use super::{
    CudaError,
    arguments::Arguments,
    lt::Addresses,
    norms::{TailPlaces, block_norm_hard_swish},
    product::{Compute, Product, ProductOperand, Type},
    runner::Places,
    static_gemm::{StaticCast, cast_codes, cast_static},
    stream::Buffer,
    stream_context::{StreamContext, Tensor},
    tail::block_tail,
};

/// Of what a static cast is timed on, standard normals: not one of 10^9 is beyond 448 * 2^-6 = 7.
const STATIC_SCALE: f32 = 1.0 / 64.0;

/// One operand of one set: as training keeps it, and cast, each row of codes from a line of memory on.
struct StoredOperand {
    /// `[rows, cols]` as in memory; `transposed`: the GEMM reads it the other way round.
    rows: usize,
    cols: usize,
    transposed: bool,
    bf16: Vec<Buffer<u16>>,
    f32: Vec<Tensor>,
    /// Codes and scales of each cast, a set each.
    casts: BTreeMap<OperandCast, Vec<CastBuffers>>,
    partials: Vec<Buffer<u8>>,
}

struct CastBuffers {
    codes: Buffer<u8>,
    scales: Buffer<f32>,
    /// By a static scale, of an operand that is read the other way round: the codes before they are turned.
    straight: Option<Buffer<u8>>,
}

/// Everything that the kernels of one GEMM are timed on.
pub(super) struct Operands {
    pub gemm: Gemm,
    pub shape: GemmShape,
    a: StoredOperand,
    b: StoredOperand,
    out: Vec<Buffer<u8>>,
    /// BF16's output of the first set, in FP64.
    reference: Option<Buffer<f64>>,
    /// BlockNorm and hard swish of it.
    block_reference: Option<Buffer<f64>>,
    /// Whatever counts saturated elements adds to it.
    saturated: Buffer<u64>,
    sets: usize,
    multiprocessors: u32,
    has_clusters: bool,
}

/// What a numerics needs at these operands.
pub(super) struct Prepared {
    numerics: GemmNumerics,
    pub product: Product,
    weight: bool,
    /// The left operand is cast on its way into the GEMM.
    on_the_way: bool,
    /// BlockNorm and hard swish are part of it.
    pub has_tail: bool,
}

impl Prepared {
    /// True when something is cast before the GEMM.
    pub fn casts(&self) -> bool {
        matches!(self.numerics.a.format, Format::E4m3 | Format::E5m2)
    }

    /// True when the right operand is the weight, which inference casts once.
    pub fn has_weight(&self) -> bool {
        self.weight
    }

    pub fn note(&self) -> String {
        match self.numerics.a.granularity {
            Granularity::None => "no casts".to_owned(),
            Granularity::Tensor => "casts: amax_tensor, cast_tensorwise".to_owned(),
            Granularity::Row => "casts: cast_rowwise, and cast_columnwise for transposed copies".to_owned(),
            Granularity::Static if !self.on_the_way => {
                let weight = if self.weight { "; of the weight: amax_tensor, cast_tensorwise" } else { "" };
                let turned = if self.weight { "" } else { ", transpose_codes" };
                format!("casts: cast_e4m3_static{turned}{weight}")
            }
            Granularity::Static => {
                "casts of the weight: cast_rowwise, cast_columnwise for a transposed copy".to_owned()
            }
            _ => "casts: cast_blockwise".to_owned(),
        }
    }
}

impl StoredOperand {
    fn new(
        lane: &StreamContext,
        (rows, cols): (usize, usize),
        transposed: bool,
        sets: usize,
        rng: &mut Rng,
    ) -> Result<Self, CudaError> {
        let mut bf16 = Vec::new();
        let drawn = lane.tensor(rows, cols)?;
        for _ in 0..sets {
            // Random data, never zeros: those run faster.
            lane.fill_normal(&drawn.data, rng.reserve_normals(rows * cols))?;
            bf16.push(lane.round_bf16(&drawn)?);
        }
        let (f32, casts, partials) = (Vec::new(), BTreeMap::new(), Vec::new());
        Ok(Self { rows, cols, transposed, bf16, f32, casts, partials })
    }

    /// Rows and length as the GEMM reads it.
    fn as_read(&self) -> (usize, usize) {
        if self.transposed { (self.cols, self.rows) } else { (self.rows, self.cols) }
    }

    fn allocate(&mut self, lane: &StreamContext, cast: OperandCast, multiprocessors: u32) -> Result<(), CudaError> {
        if cast.format == Format::Tf32 && self.f32.is_empty() {
            for bf16 in &self.bf16 {
                let wide = lane.tensor(self.rows, self.cols)?;
                lane.bf16_to_f32(bf16, &wide)?;
                self.f32.push(wide);
            }
        }
        if !matches!(cast.format, Format::E4m3 | Format::E5m2) || self.casts.contains_key(&cast) {
            return Ok(());
        }
        let (rows, reduced) = self.as_read();
        let scales = match cast.granularity {
            Granularity::Block1x128 => casts::num_block_scales(rows as u32, reduced as u32, false) as usize,
            Granularity::Block128x128 => casts::num_block_scales(rows as u32, reduced as u32, true) as usize,
            _ => rows,
        };
        let sets = self.bf16.len();
        let buffers = (0..sets).map(|_| {
            let is_static = cast.granularity == Granularity::Static;
            let straight = || lane.stream.alloc(self.rows * pitch(self.cols));
            let straight = (is_static && self.transposed).then(straight).transpose()?;
            let (codes, scales) = (lane.stream.alloc(rows * pitch(reduced))?, lane.stream.alloc(scales.max(4))?);
            if is_static {
                lane.stream.write(&scales, &[STATIC_SCALE])?;
            }
            Ok(CastBuffers { codes, scales, straight })
        });
        self.casts.insert(cast, buffers.collect::<Result<_, CudaError>>()?);
        if self.partials.is_empty() {
            let bytes = casts::partials_bytes(self.rows as u32, self.cols as u32, multiprocessors) as usize;
            self.partials = (0..sets).map(|_| lane.stream.alloc(bytes)).collect::<Result<_, _>>()?;
        }
        Ok(())
    }

    /// The operand of our cast kernels for one set. By a static scale it has a kernel of its own.
    fn cast_operand(&self, cast: OperandCast, set: usize) -> CastOperand {
        if cast.granularity == Granularity::Static {
            return CastOperand::default();
        }
        let Some(buffers) = self.casts.get(&cast).and_then(|sets| sets.get(set)) else { return CastOperand::default() };
        let (codes, scales) = (buffers.codes.address(), buffers.scales.address());
        let mut flags = if cast.power_of_two { casts::POWER_OF_TWO } else { 0 };
        flags |= if cast.format == Format::E5m2 { casts::AS_E5M2 } else { 0 };
        flags |= match cast.granularity {
            Granularity::Block128x128 => casts::BLOCK_128X128,
            Granularity::Row if self.transposed => casts::COLUMN_AMAX,
            Granularity::Row => casts::ROW_CAST,
            _ => 0,
        };
        let turned = self.transposed;
        // One scale serves a tensor whichever way round it is written.
        let plain_scales = !turned || cast.granularity == Granularity::Tensor;
        CastOperand {
            x: self.bf16[set].address(),
            codes: if turned { 0 } else { codes },
            scales: if plain_scales { scales } else { 0 },
            codes_t: if turned { codes } else { 0 },
            scales_t: if turned { scales } else { 0 },
            partials: self.partials.get(set).map_or(0, Buffer::address),
            rows: self.rows as u32,
            cols: self.cols as u32,
            flags,
            pitch: pitch(self.cols) as u32,
            pitch_t: pitch(self.rows) as u32,
            ..CastOperand::default()
        }
    }

    /// Where a cast by a static scale reads and writes, and the operand of the transposition behind it; `None`: the
    /// cast is another one.
    fn static_cast(&self, cast: OperandCast, set: usize) -> Option<(StaticCast, CastOperand)> {
        let buffers = self.casts.get(&cast).and_then(|sets| sets.get(set));
        let buffers = buffers.filter(|_| cast.granularity == Granularity::Static)?;
        let codes = buffers.straight.as_ref().unwrap_or(&buffers.codes).address();
        let turned = match &buffers.straight {
            Some(_) => CastOperand {
                codes,
                codes_t: buffers.codes.address(),
                rows: self.rows as u32,
                cols: self.cols as u32,
                pitch: pitch(self.cols) as u32,
                pitch_t: pitch(self.rows) as u32,
                ..CastOperand::default()
            },
            None => CastOperand::default(),
        };
        let (x, scale) = (self.bf16[set].address(), buffers.scales.address());
        let (rows, cols) = (self.rows, self.cols);
        Some((StaticCast { x, scale, codes, rows, cols, pitch: pitch(cols) }, turned))
    }

    fn addresses(&self, cast: OperandCast, set: usize) -> (u64, u64) {
        match cast.format {
            Format::Bf16 => (self.bf16[set].address(), 0),
            Format::F32 | Format::Tf32 => (self.f32.get(set).map_or(0, |tensor| tensor.data.address()), 0),
            Format::E4m3 | Format::E5m2 => {
                let buffers = self.casts.get(&cast).and_then(|sets| sets.get(set));
                buffers.map_or((0, 0), |buffers| (buffers.codes.address(), buffers.scales.address()))
            }
        }
    }
}

impl Operands {
    /// As many sets as fill `cold_bytes`, from 2 to `most`.
    pub fn new(
        lane: &mut StreamContext,
        gemm: Gemm,
        shape: GemmShape,
        cold_bytes: usize,
        most: usize,
    ) -> Result<Self, CudaError> {
        let GemmShape { m, k, n } = shape;
        let (a, b) = match gemm {
            Gemm::Fprop => (((m, k), false), ((n, k), false)),
            Gemm::Dgrad => (((m, n), false), ((n, k), true)),
            Gemm::Wgrad => (((m, n), true), ((m, k), true)),
        };
        let (rows, _, cols) = shape.rows_reduced_cols(gemm);
        let bytes = 2 * (a.0.0 * a.0.1 + b.0.0 * b.0.1 + rows * cols);
        let sets = cold_bytes.div_ceil(bytes.max(1)).clamp(2, most);
        let mut rng = Rng::new(0, &[b"timing", gemm.as_str().as_bytes()]);
        let device = &lane.stream.device;
        let (multiprocessors, has_clusters) = (device.multiprocessors, device.capability >= (9, 0));
        Ok(Self {
            gemm,
            shape,
            a: StoredOperand::new(lane, a.0, a.1, sets, &mut rng)?,
            b: StoredOperand::new(lane, b.0, b.1, sets, &mut rng)?,
            // FP32 is the widest output.
            out: (0..sets).map(|_| lane.stream.alloc(4 * rows * cols)).collect::<Result<_, _>>()?,
            reference: None,
            block_reference: None,
            saturated: lane.stream.zeros(1)?,
            sets,
            multiprocessors,
            has_clusters,
        })
    }

    pub fn sets(&self) -> usize {
        self.sets
    }

    /// Bytes that a GEMM on one set reads and writes, in BF16.
    pub fn bytes_of_set(&self) -> usize {
        let (rows, _, cols) = self.shape.rows_reduced_cols(self.gemm);
        2 * (self.a.rows * self.a.cols + self.b.rows * self.b.cols + rows * cols)
    }

    /// Memory for a kernel's casts, and its product.
    pub fn prepare(&mut self, lane: &StreamContext, kernel: &Kernel) -> Result<Prepared, CudaError> {
        let numerics = kernel.numerics(self.gemm);
        self.a.allocate(lane, numerics.a, self.multiprocessors)?;
        self.b.allocate(lane, numerics.b, self.multiprocessors)?;
        let (rows, reduced, cols) = self.shape.rows_reduced_cols(self.gemm);
        let plain = if kernel.is_own() {
            // A block's sums are never stored: what follows them is, in BF16.
            Product { out: Type::Bf16, ..Product::as_cast(numerics, rows, cols, reduced) }
        } else {
            Product::of(numerics, rows, cols, reduced)
        };
        // Cast operands are written the way FP8 wants them; others are read as they lie.
        let lies = |operand: ProductOperand, stored: &StoredOperand| match operand.of {
            Type::E4m3 | Type::E5m2 => ProductOperand { pitch: pitch(reduced), ..operand },
            _ => ProductOperand { transposed: stored.transposed, ..operand },
        };
        let product = Product { a: lies(plain.a, &self.a), b: lies(plain.b, &self.b), ..plain };
        Ok(Prepared {
            numerics,
            product,
            weight: self.gemm != Gemm::Wgrad,
            on_the_way: kernel.casts_on_the_way(),
            has_tail: kernel.has_tail(),
        })
    }

    pub fn places(&self, prepared: &Prepared, set: usize) -> Places {
        let (a, a_scales) = self.a.addresses(prepared.numerics.a, set);
        let (b, b_scales) = self.b.addresses(prepared.numerics.b, set);
        let operands = Addresses { a, b, out: self.out[set].address(), a_scales, b_scales };
        Places::of(operands, self.a.bf16[set].address(), self.saturated.address())
    }

    pub fn poison(&self, lane: &StreamContext, set: usize) -> Result<(), CudaError> {
        lane.stream.fill(&self.out[set], 0xFF)
    }

    /// Codes of the left operand that are NaN, all of them.
    pub fn poison_left(&self, lane: &StreamContext, prepared: &Prepared, set: usize) -> Result<(), CudaError> {
        let buffers = self.a.casts.get(&prepared.numerics.a).and_then(|sets| sets.get(set));
        buffers.map_or(Ok(()), |buffers| lane.stream.fill(&buffers.codes, 0xFF))
    }

    /// Casts both operands of a set (training). One that is cast on its way in is left to whoever multiplies.
    pub fn cast_both(&self, lane: &StreamContext, prepared: &Prepared, set: usize) -> Result<(), CudaError> {
        let GemmNumerics { a, b, .. } = prepared.numerics;
        self.cast_by_static_scales(lane, prepared, set)?;
        let of = if a.granularity == Granularity::Static { b } else { a };
        self.cast(lane, [self.a.cast_operand(a, set), self.b.cast_operand(b, set)], of)
    }

    /// The left operand of a set by its static scale, for what takes codes that are there already.
    pub fn cast_static(&self, lane: &StreamContext, prepared: &Prepared, set: usize) -> Result<(), CudaError> {
        cast_static(&lane.stream, &lane.kernels, prepared.product, self.places(prepared, set))
    }

    /// Casts the left operand of a set: the weight was cast before (inference).
    pub fn cast_left(&self, lane: &StreamContext, prepared: &Prepared, set: usize) -> Result<(), CudaError> {
        let cast = prepared.numerics.a;
        self.cast_by_static_scales(lane, prepared, set)?;
        self.cast(lane, [self.a.cast_operand(cast, set), CastOperand::default()], cast)
    }

    /// Every operand whose scale is known beforehand and that the GEMM takes as codes: a pass each, and one more where
    /// they are read the other way round.
    fn cast_by_static_scales(&self, lane: &StreamContext, prepared: &Prepared, set: usize) -> Result<(), CudaError> {
        if prepared.on_the_way {
            return Ok(());
        }
        let GemmNumerics { a, b, .. } = prepared.numerics;
        let mut turned = [CastOperand::default(); 2];
        for ((stored, cast), turned) in [(&self.a, a), (&self.b, b)].into_iter().zip(&mut turned) {
            if let Some((at, operand)) = stored.static_cast(cast, set) {
                cast_codes(&lane.stream, &lane.kernels, at, self.saturated.address())?;
                *turned = operand;
            }
        }
        if turned.iter().all(|operand| operand.codes_t == 0) {
            return Ok(());
        }
        let grid = casts::transpose_codes(&mut turned);
        let [a, b] = turned;
        lane.stream.launch(lane.kernels.get("transpose_codes")?, grid, &Arguments::new().structure(a).structure(b))
    }

    fn cast(&self, lane: &StreamContext, mut operands: [CastOperand; 2], cast: OperandCast) -> Result<(), CudaError> {
        let sms = self.multiprocessors;
        let launch = |entry, grid, operands: &[CastOperand; 2]| {
            let [a, b] = *operands;
            lane.stream.launch(lane.kernels.get(entry)?, grid, &Arguments::new().structure(a).structure(b))
        };
        if operands.iter().all(|operand| operand.x == 0) {
            return Ok(());
        }
        match cast.granularity {
            Granularity::None | Granularity::Static => Ok(()),
            Granularity::Tensor => {
                let grid = casts::amax_tensor(&mut operands, sms);
                launch("amax_tensor", grid, &operands)?;
                let grid = casts::cast_tensorwise(&mut operands, sms);
                launch("cast_tensorwise", grid, &operands)
            }
            Granularity::Row => {
                let grid = casts::cast_rowwise(&mut operands, sms, self.has_clusters);
                launch("cast_rowwise", grid, &operands)?;
                for operand in &mut operands {
                    if operand.flags & casts::COLUMN_AMAX == 0 {
                        *operand = CastOperand::default();
                    }
                }
                if operands.iter().all(|operand| operand.x == 0) {
                    return Ok(());
                }
                let grid = casts::cast_columnwise(&mut operands, sms);
                launch("cast_columnwise", grid, &operands)
            }
            Granularity::Block1x128 | Granularity::Block128x128 => {
                let grid = casts::cast_blockwise(&mut operands, sms);
                launch("cast_blockwise", grid, &operands)
            }
        }
    }

    /// Relative L2 distance of the set's output from BF16's on the same operands, behind the same tail. The first to
    /// ask is BF16 itself, which sets the reference and is 0 off.
    pub fn distance_from_bf16(
        &mut self,
        lane: &mut StreamContext,
        prepared: &Prepared,
        set: usize,
    ) -> Result<f64, CudaError> {
        let is_bf16 = prepared.product.out == Type::Bf16;
        let (rows, _, cols) = self.shape.rows_reduced_cols(self.gemm);
        let count = rows * cols;
        if self.reference.is_none() {
            self.reference = Some(self.bf16_reference(lane, set, count)?);
        }
        let Some(reference) = &self.reference else { return Ok(f64::NAN) };
        if prepared.has_tail && self.block_reference.is_none() {
            self.block_reference = Some(block_tail(lane, reference)?);
        }
        let behind_tail = self.block_reference.as_ref().filter(|_| prepared.has_tail);
        let reference = behind_tail.unwrap_or(reference);
        lane.distance((self.out[set].address(), is_bf16), reference)
    }

    /// BlockNorm and hard swish of a set's BF16 output, written behind it: FP32's room holds both.
    pub fn separate_tail(&self, lane: &StreamContext, set: usize) -> Result<(), CudaError> {
        let (rows, _, cols) = self.shape.rows_reduced_cols(self.gemm);
        let z = self.out[set].address();
        let at = TailPlaces { z, h: z + 2 * (rows * cols) as u64, ..TailPlaces::default() };
        block_norm_hard_swish(&lane.stream, &lane.kernels, (rows, cols), at)
    }

    /// How far what [`Self::separate_tail`] wrote is off.
    pub fn separate_tail_distance(&mut self, lane: &mut StreamContext, set: usize) -> Result<f64, CudaError> {
        let (rows, _, cols) = self.shape.rows_reduced_cols(self.gemm);
        let h = self.out[set].address() + 2 * (rows * cols) as u64;
        self.block_reference.as_ref().map_or(Ok(f64::NAN), |reference| lane.distance((h, true), reference))
    }

    /// BF16's output in FP64, by the library's first choice.
    fn bf16_reference(&self, lane: &mut StreamContext, set: usize, count: usize) -> Result<Buffer<f64>, CudaError> {
        let (rows, reduced, cols) = self.shape.rows_reduced_cols(self.gemm);
        let operand = |stored: &StoredOperand| ProductOperand {
            transposed: stored.transposed,
            ..ProductOperand::plain(Type::Bf16)
        };
        let plain = Product::plain(rows, cols, reduced, Type::Bf16, Compute::F32);
        let product = Product { a: operand(&self.a), b: operand(&self.b), ..plain };
        let out = lane.stream.alloc::<u16>(count)?;
        let at = Addresses::unscaled(self.a.bf16[set].address(), self.b.bf16[set].address(), out.address());
        lane.product(product, at)?;
        let narrow = lane.tensor(1, count)?;
        lane.bf16_to_f32(&out, &narrow)?;
        let wide = lane.stream.alloc(count)?;
        lane.flat_to_f64(&narrow, &wide)?;
        Ok(wide)
    }
}
