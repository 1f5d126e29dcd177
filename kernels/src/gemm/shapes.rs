//! What every GEMM's launch is told: structures that the kernels mirror, and sizes that all of them share.

/// `CUtensorMap`, as the driver fills it in.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TensorMap {
    pub words: [u64; 16],
}

pub const MAP_BYTES: u32 = 128;
const _: () = assert!(size_of::<TensorMap>() == MAP_BYTES as usize, "cu/common/hopper.cuh mirrors it");

/// The struct of `cu/common/fp8_gemm.cuh`, field by field.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct GemmShape {
    pub m: u32,
    pub n: u32,
    pub k: u32,
    pub tiles_down: u32,
    pub tiles_across: u32,
    /// Tiles down that are walked together, so that a wave of blocks shares what it reads through the L2.
    pub group: u32,
    /// 1: a scale a row; 0: one scale.
    pub x_scale_step: u32,
    pub w_scale_step: u32,
}

pub const SHAPE_BYTES: u32 = 32;
const _: () = assert!(size_of::<GemmShape>() == SHAPE_BYTES as usize, "cu/common/fp8_gemm.cuh mirrors it");

/// The struct of `cu/common/static_tile.cuh`, field by field: the others as in [`GemmShape`].
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StaticShape {
    pub m: u32,
    pub n: u32,
    pub k: u32,
    pub tiles_down: u32,
    pub tiles_across: u32,
    pub group: u32,
    /// What a block that can store all of it does store: [`super::STORE_Z`] and its like.
    pub stores: u32,
    pub w_scale_step: u32,
    /// The address of a bias, BF16 `[n]`, aligned to 4 bytes; 0, as launches come, is none.
    pub bias: u64,
}

pub const STATIC_SHAPE_BYTES: u32 = 40;
const _: () = assert!(size_of::<StaticShape>() == STATIC_SHAPE_BYTES as usize, "cu/common/static_tile.cuh mirrors it");

/// Rows of a tile, and elements of k in a stage.
pub const TILE_M: u32 = 128;
pub const TILE_K: u32 = 128;
/// Rows and columns of y that one store writes.
pub const Y_BOX: [u32; 2] = [16, 64];
pub const THREADS: u32 = 384;
/// Two barriers: where x is cast, the warpgroups multiply in turns.
pub const TURNS_BYTES: u32 = 16;
/// Rows of x in one load.
pub const X_ROWS: u32 = TILE_M;
