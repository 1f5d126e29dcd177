//! A product and the ways to run it: the library's algorithms, or our own kernels. Takes what is to be multiplied,
//! gives one thing that is timed, remembered and named without caring whose it is.

use super::{
    CudaError,
    block::OwnBlock,
    gemm::OwnGemm,
    lt::{Addresses, Plan},
    static_gemm::StaticGemm,
    stream::{Buffer, Stream},
};

/// In what form a way takes the left operand. Whatever has no scale known beforehand takes it as it was cast.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Reads {
    Codes,
    /// BF16: cast on its way in, or by a launch of its own that the way brings along.
    Bf16,
}

/// Where operands, outputs and what a static scale needs beside them lie.
#[derive(Clone, Copy, Debug)]
pub(super) struct Places {
    /// `a`: codes, which a way that reads BF16 may write.
    pub operands: Addresses,
    /// The left operand in BF16.
    pub x: u64,
    /// One 64-bit count of saturated elements, added to.
    pub saturated: u64,
    /// A block's outputs beside the one in BF16, which is `operands.out`: codes with their scale, and in BF16 what
    /// BlockNorm reads.
    pub h_codes: u64,
    pub h_scale: u64,
    pub z: u64,
}

impl Places {
    /// Of a product without a block's outputs.
    pub fn of(operands: Addresses, x: u64, saturated: u64) -> Self {
        Self { operands, x, saturated, h_codes: 0, h_scale: 0, z: 0 }
    }
}

pub(super) enum Runner {
    Library(Plan),
    Own(OwnGemm),
    Static(StaticGemm),
    Block(OwnBlock),
}

impl Runner {
    /// Ways to run it, those that are expected to be fastest first.
    pub fn ways(&self, reads: Reads) -> Vec<usize> {
        let of = |count: usize, form: &dyn Fn(usize) -> Reads| (0..count).filter(|way| form(*way) == reads).collect();
        match self {
            Self::Library(plan) => (0..plan.algorithms.len()).collect(),
            Self::Own(own) => (0..own.launches.len()).collect(),
            Self::Static(gemm) => of(gemm.ways.len(), &|way| gemm.ways[way].reads()),
            Self::Block(block) => of(block.ways.len(), &|way| block.ways[way].reads()),
        }
    }

    /// True where some ways read BF16 and cast it themselves.
    pub fn casts_left(&self) -> bool {
        matches!(self, Self::Static(_) | Self::Block(_))
    }

    /// What tells way `index` from the others, in this process and later ones.
    pub fn identity(&self, index: usize) -> [u64; 8] {
        match self {
            Self::Library(plan) => plan.algorithms[index].data(),
            Self::Own(own) => {
                let launch = own.launches[index];
                named(launch.w_rows, &launch.name())
            }
            Self::Static(_) | Self::Block(_) => named(0, &self.note(index)),
        }
    }

    /// Under what name the fastest way is remembered.
    pub fn name(&self) -> String {
        match self {
            Self::Library(plan) => format!("{:?}", plan.product),
            Self::Own(own) => format!("loka {:?}", own.product),
            Self::Static(gemm) => format!("loka static {:?}", gemm.product),
            Self::Block(block) => format!("loka block {:?} {}", block.product, block.stores),
        }
    }

    pub fn run(&mut self, stream: &Stream, at: Places, index: usize, workspace: &Buffer<u8>) -> Result<(), CudaError> {
        match self {
            Self::Library(plan) => plan.run(stream, at.operands, index, workspace),
            Self::Own(own) => own.run(stream, at.operands, index),
            Self::Static(gemm) => gemm.run(stream, at, index),
            Self::Block(block) => block.run(stream, at, index),
        }
    }

    /// For people: which way, of how many.
    pub fn note(&self, index: usize) -> String {
        match self {
            Self::Library(plan) => format!(
                "algorithm {} of {}, {} MB workspace",
                index + 1,
                plan.algorithms.len(),
                plan.algorithms[index].workspace >> 20
            ),
            Self::Own(own) => own.launches[index].name(),
            Self::Static(gemm) => gemm.note(index),
            Self::Block(block) => block.note(index),
        }
    }
}

/// The columns of a tile, and the first half of a hash of the name: an edited list forgets nothing.
fn named(columns: u32, name: &str) -> [u64; 8] {
    let hash = name
        .bytes()
        .fold(0xCBF2_9CE4_8422_2325, |hash: u64, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01B3));
    [u64::from(columns), hash, 0, 0, 0, 0, 0, 0]
}
