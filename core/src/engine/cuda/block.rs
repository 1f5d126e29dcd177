//! Linear + BlockNorm + hard swish in one kernel: takes x in BF16 or as codes with a scale known beforehand, the weight
//! as codes with a scale a row; gives h in BF16, h in codes by another scale known beforehand, and what BlockNorm reads,
//! each where it is wanted.

use std::sync::Arc;

use loka_kernels::gemm::{self, BLOCK_COLUMNS, BlockLaunch, BlockType, CODES_BOX, STORE_CODES, STORE_H, TILE_K};

use super::{
    CudaError,
    arguments::Arguments,
    driver::Device,
    gemm::{codes, matrix},
    ops::Kernels,
    product::Product,
    runner::{Places, Reads},
    static_gemm::{cast_static, static_sizes},
    stream::Stream,
};

/// One way to run a block.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum BlockWay {
    /// x is codes.
    Codes(BlockLaunch),
    /// `cast_e4m3_static` of x, then the block on codes.
    CastFirst(BlockLaunch),
    /// x cast on its way in.
    OnTheWay(BlockLaunch),
}

impl BlockWay {
    pub fn reads(&self) -> Reads {
        if matches!(self, Self::Codes(_)) { Reads::Codes } else { Reads::Bf16 }
    }

    fn launch(&self) -> (&BlockLaunch, BlockType) {
        match self {
            Self::Codes(launch) | Self::CastFirst(launch) => (launch, BlockType::E4m3),
            Self::OnTheWay(launch) => (launch, BlockType::Bf16),
        }
    }
}

pub(super) struct OwnBlock {
    kernels: Arc<Kernels>,
    pub product: Product,
    /// Bits of `STORE_H` and its like.
    pub stores: u32,
    /// Those on codes first, then those that read BF16; of each the one that is expected to be fastest first.
    pub ways: Vec<BlockWay>,
}

impl OwnBlock {
    /// `product`: as of a GEMM with a static scale, whose output type says nothing here. Compiles nothing yet.
    pub fn new(device: &Device, kernels: &Arc<Kernels>, product: Product, stores: u32) -> Result<Self, CudaError> {
        let size = static_sizes(device, product).map_err(CudaError::Refused)?;
        let multiprocessors = device.multiprocessors;
        let launch = |x| match stores {
            STORE_H => gemm::block_gemm(size, (x, BlockType::Bf16), true, multiprocessors),
            STORE_CODES => gemm::block_gemm(size, (x, BlockType::E4m3), true, multiprocessors),
            _ => gemm::block_all(size, x, stores, true, multiprocessors),
        };
        let (Some(on_codes), Some(on_the_way)) = (launch(BlockType::E4m3), launch(BlockType::Bf16)) else {
            return Err(CudaError::Refused(format!("a block wants whole ones of {BLOCK_COLUMNS} columns: {product}")));
        };
        let mut of_bf16 = [BlockWay::OnTheWay(on_the_way), BlockWay::CastFirst(on_codes)];
        if gemm::casts_first(size, multiprocessors) {
            of_bf16.reverse();
        }
        let ways = std::iter::once(BlockWay::Codes(on_codes)).chain(of_bf16).collect();
        Ok(Self { kernels: kernels.clone(), product, stores, ways })
    }

    /// Puts the block on the stream, by the way of that index.
    pub fn run(&self, stream: &Stream, at: Places, index: usize) -> Result<(), CudaError> {
        let way = self.ways[index];
        let Product { rows, cols, reduced, .. } = self.product;
        if let BlockWay::CastFirst(_) = way {
            cast_static(stream, &self.kernels, self.product, at)?;
        }
        let (BlockLaunch { entry, grid, shape, x_box, h_box, .. }, x) = way.launch();
        let Product { a, b, .. } = self.product;
        let (x_at, x_map) = match x {
            BlockType::Bf16 => (at.x, matrix(at.x, (rows, reduced), true, *x_box)),
            BlockType::E4m3 => (at.operands.a, codes(at.operands.a, (rows, reduced), a, *x_box)),
        };
        let map = |matrix| stream.device.tensor_map(matrix);
        // A map of nothing cannot be made, and of what is not stored nobody reads it: x stands in.
        let or_any = |address| if address == 0 { x_at } else { address };
        let to_bf16 = |address| map(matrix(or_any(address), (rows, cols), true, *h_box));
        let to_codes = || map(matrix(or_any(at.h_codes), (rows, cols), false, CODES_BOX));
        let w_map = codes(at.operands.b, (cols, reduced), b, [BLOCK_COLUMNS, TILE_K]);
        let mut arguments = Arguments::new().structure(map(x_map)?).structure(map(w_map)?);
        arguments = match self.stores {
            STORE_H => arguments.structure(to_bf16(at.operands.out)?),
            STORE_CODES => arguments.structure(to_codes()?),
            _ => {
                let (z, h) = (to_bf16(at.z)?, to_bf16(at.operands.out)?);
                arguments.structure(z).structure(h).structure(to_codes()?)
            }
        };
        let arguments = arguments
            .value(at.operands.a_scales)
            .value(at.operands.b_scales)
            .value(at.h_scale)
            .value(at.saturated)
            .structure(*shape);
        stream.launch(self.kernels.get(entry)?, *grid, &arguments)
    }

    /// For people: what runs.
    pub fn note(&self, index: usize) -> String {
        let way = self.ways[index];
        let cast = if matches!(way, BlockWay::CastFirst(_)) { "cast_e4m3_static, " } else { "" };
        format!("{cast}{}", way.launch().0.entry)
    }
}
