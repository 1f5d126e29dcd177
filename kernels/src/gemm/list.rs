//! The FP8 GEMM kernels, one file of `cu/` each.

use super::shapes::{MAP_BYTES, SHAPE_BYTES, STATIC_SHAPE_BYTES};
use crate::{Argument, ArgumentKind, FP8, Header, KernelSource, TYPES, WARP, number, pointer};

const HOPPER: Header = Header { name: "common/hopper.cuh", text: include_str!("../../cu/common/hopper.cuh") };
const WGMMA: Header = Header { name: "common/wgmma.cuh", text: include_str!("../../cu/common/wgmma.cuh") };
const FP8_GEMM: Header = Header { name: "common/fp8_gemm.cuh", text: include_str!("../../cu/common/fp8_gemm.cuh") };
const STATIC_GEMM: Header =
    Header { name: "common/static_gemm.cuh", text: include_str!("../../cu/common/static_gemm.cuh") };
pub(crate) const BLOCK_TAIL: Header =
    Header { name: "common/block_tail.cuh", text: include_str!("../../cu/common/block_tail.cuh") };
const EXCHANGE: Header = Header { name: "common/exchange.cuh", text: include_str!("../../cu/common/exchange.cuh") };
const HEADERS: &[Header] = &[TYPES, EXCHANGE, HOPPER, WGMMA, FP8_GEMM];
pub(crate) const STATIC_CAST: Header =
    Header { name: "common/static_cast.cuh", text: include_str!("../../cu/common/static_cast.cuh") };
const STATIC_STORE: Header =
    Header { name: "common/static_store.cuh", text: include_str!("../../cu/common/static_store.cuh") };
const STATIC_TILE: Header =
    Header { name: "common/static_tile.cuh", text: include_str!("../../cu/common/static_tile.cuh") };
const STATIC_HEADERS: &[Header] =
    &[TYPES, FP8, BLOCK_TAIL, EXCHANGE, HOPPER, STATIC_CAST, STATIC_STORE, STATIC_TILE, WARP, WGMMA, STATIC_GEMM];

/// wgmma, setmaxnreg: Hopper's own.
const HOPPER_ALONE: &[&str] = &["sm_90a"];

const ARGUMENTS: &[Argument] = &[
    number("x", ArgumentKind::Struct(MAP_BYTES)),
    number("w", ArgumentKind::Struct(MAP_BYTES)),
    number("y", ArgumentKind::Struct(MAP_BYTES)),
    pointer("x_scales"),
    pointer("w_scales"),
    number("shape", ArgumentKind::Struct(SHAPE_BYTES)),
];

const fn gemm(entry: &'static str, source: &'static str, about: &'static str) -> KernelSource {
    KernelSource { entry, source, headers: HEADERS, architectures: HOPPER_ALONE, arguments: ARGUMENTS, about }
}

/// Sorted by entry symbol.
pub const GEMMS: &[KernelSource] = &[
    gemm(
        "sm90_e4m3_gemm_fast_128x192",
        include_str!("../../cu/sm90_e4m3_gemm_fast_128x192.cu"),
        "E4M3 x E4M3 to BF16, fast accumulation, tiles of 128x192.",
    ),
    gemm(
        "sm90_e4m3_gemm_fast_128x256",
        include_str!("../../cu/sm90_e4m3_gemm_fast_128x256.cu"),
        "E4M3 x E4M3 to BF16, fast accumulation, tiles of 128x256.",
    ),
    gemm(
        "sm90_e4m3_gemm_fast_128x64",
        include_str!("../../cu/sm90_e4m3_gemm_fast_128x64.cu"),
        "E4M3 x E4M3 to BF16, fast accumulation, tiles of 128x64.",
    ),
    gemm(
        "sm90_e4m3_gemm_fast_2x128x128",
        include_str!("../../cu/sm90_e4m3_gemm_fast_2x128x128.cu"),
        "E4M3 x E4M3 to BF16, fast accumulation, two tiles of 128x128 in turns.",
    ),
    gemm(
        "sm90_e4m3_gemm_fast_split_128x128",
        include_str!("../../cu/sm90_e4m3_gemm_fast_split_128x128.cu"),
        "E4M3 x E4M3 to BF16, fast accumulation, tiles of 128x128 whose k a cluster shares.",
    ),
    gemm(
        "sm90_e4m3_gemm_fast_split_128x192",
        include_str!("../../cu/sm90_e4m3_gemm_fast_split_128x192.cu"),
        "E4M3 x E4M3 to BF16, fast accumulation, tiles of 128x192 whose k a cluster shares.",
    ),
    gemm(
        "sm90_e4m3_gemm_promoted_128x128",
        include_str!("../../cu/sm90_e4m3_gemm_promoted_128x128.cu"),
        "E4M3 x E4M3 to BF16, promoted to FP32 every 128, tiles of 128x128.",
    ),
    gemm(
        "sm90_e4m3_gemm_promoted_128x192",
        include_str!("../../cu/sm90_e4m3_gemm_promoted_128x192.cu"),
        "E4M3 x E4M3 to BF16, promoted to FP32 every 128, tiles of 128x192.",
    ),
    gemm(
        "sm90_e4m3_gemm_promoted_128x64",
        include_str!("../../cu/sm90_e4m3_gemm_promoted_128x64.cu"),
        "E4M3 x E4M3 to BF16, promoted to FP32 every 128, tiles of 128x64.",
    ),
    gemm(
        "sm90_e4m3_gemm_promoted_split_128x128",
        include_str!("../../cu/sm90_e4m3_gemm_promoted_split_128x128.cu"),
        "E4M3 x E4M3 to BF16, promoted to FP32 every 128, tiles of 128x128 whose k a cluster shares.",
    ),
    gemm(
        "sm90_e4m3_gemm_promoted_split_128x192",
        include_str!("../../cu/sm90_e4m3_gemm_promoted_split_128x192.cu"),
        "E4M3 x E4M3 to BF16, promoted to FP32 every 128, tiles of 128x192 whose k a cluster shares.",
    ),
    gemm(
        "sm90_e5m2_gemm_fast_128x192",
        include_str!("../../cu/sm90_e5m2_gemm_fast_128x192.cu"),
        "E5M2 x E4M3 to BF16, fast accumulation, tiles of 128x192.",
    ),
    gemm(
        "sm90_e5m2_gemm_fast_128x256",
        include_str!("../../cu/sm90_e5m2_gemm_fast_128x256.cu"),
        "E5M2 x E4M3 to BF16, fast accumulation, tiles of 128x256.",
    ),
    gemm(
        "sm90_e5m2_gemm_fast_128x64",
        include_str!("../../cu/sm90_e5m2_gemm_fast_128x64.cu"),
        "E5M2 x E4M3 to BF16, fast accumulation, tiles of 128x64.",
    ),
    gemm(
        "sm90_e5m2_gemm_fast_2x128x128",
        include_str!("../../cu/sm90_e5m2_gemm_fast_2x128x128.cu"),
        "E5M2 x E4M3 to BF16, fast accumulation, two tiles of 128x128 in turns.",
    ),
    gemm(
        "sm90_e5m2_gemm_fast_split_128x128",
        include_str!("../../cu/sm90_e5m2_gemm_fast_split_128x128.cu"),
        "E5M2 x E4M3 to BF16, fast accumulation, tiles of 128x128 whose k a cluster shares.",
    ),
    gemm(
        "sm90_e5m2_gemm_fast_split_128x192",
        include_str!("../../cu/sm90_e5m2_gemm_fast_split_128x192.cu"),
        "E5M2 x E4M3 to BF16, fast accumulation, tiles of 128x192 whose k a cluster shares.",
    ),
    gemm(
        "sm90_e5m2_gemm_promoted_128x128",
        include_str!("../../cu/sm90_e5m2_gemm_promoted_128x128.cu"),
        "E5M2 x E4M3 to BF16, promoted to FP32 every 128, tiles of 128x128.",
    ),
    gemm(
        "sm90_e5m2_gemm_promoted_128x192",
        include_str!("../../cu/sm90_e5m2_gemm_promoted_128x192.cu"),
        "E5M2 x E4M3 to BF16, promoted to FP32 every 128, tiles of 128x192.",
    ),
    gemm(
        "sm90_e5m2_gemm_promoted_128x64",
        include_str!("../../cu/sm90_e5m2_gemm_promoted_128x64.cu"),
        "E5M2 x E4M3 to BF16, promoted to FP32 every 128, tiles of 128x64.",
    ),
    gemm(
        "sm90_e5m2_gemm_promoted_split_128x128",
        include_str!("../../cu/sm90_e5m2_gemm_promoted_split_128x128.cu"),
        "E5M2 x E4M3 to BF16, promoted to FP32 every 128, tiles of 128x128 whose k a cluster shares.",
    ),
    gemm(
        "sm90_e5m2_gemm_promoted_split_128x192",
        include_str!("../../cu/sm90_e5m2_gemm_promoted_split_128x192.cu"),
        "E5M2 x E4M3 to BF16, promoted to FP32 every 128, tiles of 128x192 whose k a cluster shares.",
    ),
];

const STATIC_ARGUMENTS: &[Argument] = &[
    number("x", ArgumentKind::Struct(MAP_BYTES)),
    number("w", ArgumentKind::Struct(MAP_BYTES)),
    number("y", ArgumentKind::Struct(MAP_BYTES)),
    pointer("x_scale"),
    pointer("w_scales"),
    pointer("saturated"),
    number("shape", ArgumentKind::Struct(STATIC_SHAPE_BYTES)),
];

const fn static_gemm(entry: &'static str, source: &'static str, about: &'static str) -> KernelSource {
    KernelSource {
        entry,
        source,
        headers: STATIC_HEADERS,
        architectures: HOPPER_ALONE,
        arguments: STATIC_ARGUMENTS,
        about,
    }
}

/// x in BF16, cast on its way in by a scale known beforehand. Sorted by entry symbol.
pub const STATIC_GEMMS: &[KernelSource] = &[
    static_gemm(
        "sm90_bf16_gemm_static_128x128",
        include_str!("../../cu/sm90_bf16_gemm_static_128x128.cu"),
        "BF16 cast by a static scale x E4M3 to BF16, fast accumulation, tiles of 128x128.",
    ),
    static_gemm(
        "sm90_bf16_gemm_static_128x256",
        include_str!("../../cu/sm90_bf16_gemm_static_128x256.cu"),
        "BF16 cast by a static scale x E4M3 to BF16, fast accumulation, tiles of 128x256.",
    ),
    static_gemm(
        "sm90_bf16_gemm_static_64x128",
        include_str!("../../cu/sm90_bf16_gemm_static_64x128.cu"),
        "BF16 cast by a static scale x E4M3 to BF16, fast accumulation, tiles of 64x128.",
    ),
    static_gemm(
        "sm90_bf16_gemm_static_64x256",
        include_str!("../../cu/sm90_bf16_gemm_static_64x256.cu"),
        "BF16 cast by a static scale x E4M3 to BF16, fast accumulation, tiles of 64x256.",
    ),
    static_gemm(
        "sm90_bf16_gemm_static_64x64",
        include_str!("../../cu/sm90_bf16_gemm_static_64x64.cu"),
        "BF16 cast by a static scale x E4M3 to BF16, fast accumulation, tiles of 64x64.",
    ),
    static_gemm(
        "sm90_bf16_gemm_static_split2_128x128",
        include_str!("../../cu/sm90_bf16_gemm_static_split2_128x128.cu"),
        "BF16 cast by a static scale x E4M3 to BF16, fast accumulation, tiles of 128x128, two blocks a tile.",
    ),
    static_gemm(
        "sm90_bf16_gemm_static_split2_128x256",
        include_str!("../../cu/sm90_bf16_gemm_static_split2_128x256.cu"),
        "BF16 cast by a static scale x E4M3 to BF16, fast accumulation, tiles of 128x256, two blocks a tile.",
    ),
];

const BLOCK_ARGUMENTS: &[Argument] = &[
    number("x", ArgumentKind::Struct(MAP_BYTES)),
    number("w", ArgumentKind::Struct(MAP_BYTES)),
    number("h", ArgumentKind::Struct(MAP_BYTES)),
    pointer("x_scale"),
    pointer("w_scales"),
    pointer("h_scale"),
    pointer("saturated"),
    number("shape", ArgumentKind::Struct(STATIC_SHAPE_BYTES)),
];

const ALL_ARGUMENTS: &[Argument] = &[
    number("x", ArgumentKind::Struct(MAP_BYTES)),
    number("w", ArgumentKind::Struct(MAP_BYTES)),
    number("z", ArgumentKind::Struct(MAP_BYTES)),
    number("h", ArgumentKind::Struct(MAP_BYTES)),
    number("codes", ArgumentKind::Struct(MAP_BYTES)),
    pointer("x_scale"),
    pointer("w_scales"),
    pointer("h_scale"),
    pointer("saturated"),
    number("shape", ArgumentKind::Struct(STATIC_SHAPE_BYTES)),
];

const fn block_with(
    arguments: &'static [Argument],
    entry: &'static str,
    source: &'static str,
    about: &'static str,
) -> KernelSource {
    KernelSource { entry, source, headers: STATIC_HEADERS, architectures: HOPPER_ALONE, arguments, about }
}

const fn block(entry: &'static str, source: &'static str, about: &'static str) -> KernelSource {
    block_with(BLOCK_ARGUMENTS, entry, source, about)
}

/// Linear, BlockNorm and hard swish in one. Sorted by entry symbol.
pub const BLOCKS: &[KernelSource] = &[
    block_with(
        ALL_ARGUMENTS,
        "sm90_bf16_block_all_128x256",
        include_str!("../../cu/sm90_bf16_block_all_128x256.cu"),
        "BF16 cast by a static scale x E4M3, BlockNorm, hard swish, to BF16 and E4M3, and to BF16 before the norm; tiles of 128x256.",
    ),
    block_with(
        ALL_ARGUMENTS,
        "sm90_bf16_block_all_64x256",
        include_str!("../../cu/sm90_bf16_block_all_64x256.cu"),
        "BF16 cast by a static scale x E4M3, BlockNorm, hard swish, to BF16 and E4M3, and to BF16 before the norm; tiles of 64x256.",
    ),
    block(
        "sm90_bf16_block_bf16_128x256",
        include_str!("../../cu/sm90_bf16_block_bf16_128x256.cu"),
        "BF16 cast by a static scale x E4M3, BlockNorm, hard swish, to BF16; tiles of 128x256.",
    ),
    block(
        "sm90_bf16_block_bf16_64x256",
        include_str!("../../cu/sm90_bf16_block_bf16_64x256.cu"),
        "BF16 cast by a static scale x E4M3, BlockNorm, hard swish, to BF16; tiles of 64x256.",
    ),
    block(
        "sm90_bf16_block_e4m3_128x256",
        include_str!("../../cu/sm90_bf16_block_e4m3_128x256.cu"),
        "BF16 cast by a static scale x E4M3, BlockNorm, hard swish, to E4M3 by a static scale; tiles of 128x256.",
    ),
    block(
        "sm90_bf16_block_e4m3_64x256",
        include_str!("../../cu/sm90_bf16_block_e4m3_64x256.cu"),
        "BF16 cast by a static scale x E4M3, BlockNorm, hard swish, to E4M3 by a static scale; tiles of 64x256.",
    ),
    block_with(
        ALL_ARGUMENTS,
        "sm90_e4m3_block_all_128x256",
        include_str!("../../cu/sm90_e4m3_block_all_128x256.cu"),
        "E4M3 x E4M3, BlockNorm, hard swish, to BF16 and E4M3, and to BF16 before the norm; tiles of 128x256.",
    ),
    block_with(
        ALL_ARGUMENTS,
        "sm90_e4m3_block_all_64x256",
        include_str!("../../cu/sm90_e4m3_block_all_64x256.cu"),
        "E4M3 x E4M3, BlockNorm, hard swish, to BF16 and E4M3, and to BF16 before the norm; tiles of 64x256.",
    ),
    block(
        "sm90_e4m3_block_bf16_128x256",
        include_str!("../../cu/sm90_e4m3_block_bf16_128x256.cu"),
        "E4M3 x E4M3, BlockNorm, hard swish, to BF16; tiles of 128x256.",
    ),
    block(
        "sm90_e4m3_block_bf16_64x256",
        include_str!("../../cu/sm90_e4m3_block_bf16_64x256.cu"),
        "E4M3 x E4M3, BlockNorm, hard swish, to BF16; tiles of 64x256.",
    ),
    block(
        "sm90_e4m3_block_e4m3_128x256",
        include_str!("../../cu/sm90_e4m3_block_e4m3_128x256.cu"),
        "E4M3 x E4M3, BlockNorm, hard swish, to E4M3 by a static scale; tiles of 128x256.",
    ),
    block(
        "sm90_e4m3_block_e4m3_64x256",
        include_str!("../../cu/sm90_e4m3_block_e4m3_64x256.cu"),
        "E4M3 x E4M3, BlockNorm, hard swish, to E4M3 by a static scale; tiles of 64x256.",
    ),
];
