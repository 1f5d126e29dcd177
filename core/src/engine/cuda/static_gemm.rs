//! Products whose left operand has a scale known beforehand: takes x in BF16 or as codes, the weight as codes with a
//! scale a row; gives y in BF16. Every kernel that can run one is a way of the same product: on codes that are there
//! already, x cast on its way in, or x cast by a launch of its own before the product on codes.

use std::sync::Arc;

use loka_kernels::{
    casts,
    gemm::{self, StaticLaunch, TILE_K, X_BOX_COLUMNS, Y_BOX},
};

use super::{
    CudaError,
    arguments::Arguments,
    driver::Device,
    gemm::{OwnGemm, codes, matrix, suited},
    ops::Kernels,
    product::{Product, Scaling, Type},
    runner::{Places, Reads},
    stream::Stream,
};

/// One way to run a product with a static scale.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum StaticWay {
    /// x is codes: a kernel of the FP8 GEMM, by its index.
    Codes(usize),
    /// `cast_e4m3_static` of x, then that kernel.
    CastFirst(usize),
    /// x cast on its way in.
    OnTheWay(StaticLaunch),
}

impl StaticWay {
    pub fn reads(&self) -> Reads {
        if matches!(self, Self::Codes(_)) { Reads::Codes } else { Reads::Bf16 }
    }
}

pub(super) struct StaticGemm {
    kernels: Arc<Kernels>,
    pub product: Product,
    on_codes: OwnGemm,
    /// Those on codes first, then those that read BF16; of each the one that is expected to be fastest first.
    pub ways: Vec<StaticWay>,
}

impl StaticGemm {
    /// `product`: the left operand E4M3 with one scale, the right one E4M3 with a scale a row. Compiles nothing yet.
    pub fn new(device: &Device, kernels: &Arc<Kernels>, product: Product) -> Result<Self, CudaError> {
        static_sizes(device, product).map_err(CudaError::Refused)?;
        let on_codes = OwnGemm::new(device, kernels, product)?;
        let Product { rows, cols, reduced, .. } = product;
        // Sizes fit 32 bits: the GEMM on codes has them.
        let (m, n, k) = (rows as u32, cols as u32, reduced as u32);
        let on_the_way = gemm::static_gemm(m, n, k, true, device.multiprocessors);
        let cast_us = gemm::static_cast_us(m, k);
        let launches = on_codes.launches.iter().enumerate();
        let cast_first = launches.map(|(index, launch)| (cast_us + launch.expected_us, StaticWay::CastFirst(index)));
        let on_the_way = on_the_way.into_iter().map(|launch| (launch.expected_us, StaticWay::OnTheWay(launch)));
        let mut of_bf16: Vec<(f64, StaticWay)> = cast_first.chain(on_the_way).collect();
        of_bf16.sort_by(|a, b| a.0.total_cmp(&b.0));
        let of_codes = (0..on_codes.launches.len()).map(StaticWay::Codes);
        let ways = of_codes.chain(of_bf16.into_iter().map(|(_, way)| way)).collect();
        Ok(Self { kernels: kernels.clone(), product, on_codes, ways })
    }

    /// Puts the product on the stream, by the way of that index.
    pub fn run(&self, stream: &Stream, at: Places, index: usize) -> Result<(), CudaError> {
        match self.ways[index] {
            StaticWay::Codes(launch) => self.on_codes.run(stream, at.operands, launch),
            StaticWay::CastFirst(launch) => {
                cast_static(stream, &self.kernels, self.product, at)?;
                self.on_codes.run(stream, at.operands, launch)
            }
            StaticWay::OnTheWay(launch) => self.on_the_way(stream, at, launch),
        }
    }

    fn on_the_way(&self, stream: &Stream, at: Places, launch: StaticLaunch) -> Result<(), CudaError> {
        let StaticLaunch { entry, grid, shape, x_rows, w_rows, .. } = launch;
        let Product { rows, cols, reduced, .. } = self.product;
        let map = |matrix| stream.device.tensor_map(matrix);
        let arguments = Arguments::new()
            .structure(map(matrix(at.x, (rows, reduced), true, [x_rows, X_BOX_COLUMNS]))?)
            .structure(map(codes(at.operands.b, (cols, reduced), self.product.b, [w_rows, TILE_K]))?)
            .structure(map(matrix(at.operands.out, (rows, cols), true, Y_BOX))?)
            .value(at.operands.a_scales)
            .value(at.operands.b_scales)
            .value(at.saturated)
            .structure(shape);
        stream.launch(self.kernels.get(entry)?, grid, &arguments)
    }

    /// Whether warpgroups or blocks share k there: sums in another order.
    pub fn shares_k(&self, index: usize) -> bool {
        match self.ways[index] {
            StaticWay::OnTheWay(launch) => launch.grid.cluster > 1 || launch.x_rows < 128,
            StaticWay::Codes(launch) | StaticWay::CastFirst(launch) => self.on_codes.launches[launch].grid.cluster > 1,
        }
    }

    /// For people: what runs.
    pub fn note(&self, index: usize) -> String {
        match self.ways[index] {
            StaticWay::Codes(launch) => self.on_codes.launches[launch].name(),
            StaticWay::CastFirst(launch) => format!("cast_e4m3_static, {}", self.on_codes.launches[launch].name()),
            StaticWay::OnTheWay(launch) => launch.entry.to_owned(),
        }
    }
}

/// The left operand of the product, BF16 at `x`, becomes codes at `operands.a`, by the scale at `operands.a_scales`.
pub(super) fn cast_static(stream: &Stream, kernels: &Kernels, product: Product, at: Places) -> Result<(), CudaError> {
    let (rows, cols) = (product.rows, product.reduced);
    let Places { x, operands, saturated, .. } = at;
    let cast =
        StaticCast { x, scale: operands.a_scales, codes: operands.a, rows, cols, pitch: product.a.pitch_of(cols) };
    cast_codes(stream, kernels, cast, saturated)
}

/// Where a tensor `[rows, cols]` in BF16, its scale and its codes lie; `pitch`: bytes from one row of these to the next.
#[derive(Clone, Copy, Debug)]
pub(super) struct StaticCast {
    pub x: u64,
    pub scale: u64,
    pub codes: u64,
    pub rows: usize,
    pub cols: usize,
    pub pitch: usize,
}

/// `saturated`: a count that is added to.
pub(super) fn cast_codes(stream: &Stream, kernels: &Kernels, at: StaticCast, saturated: u64) -> Result<(), CudaError> {
    let StaticCast { x, scale, codes, rows, cols, pitch } = at;
    let count = (rows * cols) as u64;
    let arguments = Arguments::new().value(x).value(scale).value(codes).value(saturated).value(count);
    let arguments = arguments.value(cols as u32).value(pitch as u32);
    let grid = casts::cast_e4m3_static(count, stream.device.multiprocessors);
    stream.launch(kernels.get("cast_e4m3_static")?, grid, &arguments)
}

/// Why kernels with a static scale do not run that product there.
pub(super) fn static_sizes(device: &Device, product: Product) -> Result<[u32; 3], String> {
    let sizes = suited(device, Product { out: Type::Bf16, ..product })?;
    let is_static = (product.a.of, product.a.scaling, product.b.scaling) == (Type::E4m3, Scaling::Tensor, Scaling::Row);
    if !is_static || !product.fast {
        return Err(format!("LoKA's GEMMs with a static scale do not take {product}"));
    }
    if !product.cols.is_multiple_of(16) || !product.reduced.is_multiple_of(16) {
        return Err(format!("LoKA's GEMMs want sizes of multiples of 16, not {product}"));
    }
    Ok([sizes.m, sizes.n, sizes.k])
}
