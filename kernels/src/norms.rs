//! Takes the shape of a linear's output; gives the kernels of BlockNorm and hard swish behind it by themselves, forward
//! and backward, and the geometry of their launches. [`crate::gemm`] has the forward in one kernel with the product.
//!
//! Blocks of BlockNorm have [`BLOCK_COLUMNS`] columns: a warp holds one, eight columns a lane.

use crate::{
    Argument, ArgumentKind, CAST, FP8, Header, KernelSource, LaunchGrid, TYPES, WARP, WITH_FP8_CASTS,
    casts::{WARP_TILE, turned_tiles},
    gemm::{BLOCK_COLUMNS, BLOCK_TAIL, STATIC_CAST},
    number, pointer,
};

const NORM: Header = Header { name: "common/norm.cuh", text: include_str!("../cu/common/norm.cuh") };
const HEADERS: &[Header] = &[TYPES, FP8, WARP, CAST, BLOCK_TAIL, NORM];
const GRADIENT: Header =
    Header { name: "common/block_gradient.cuh", text: include_str!("../cu/common/block_gradient.cuh") };
const BACKWARD_HEADERS: &[Header] = &[TYPES, FP8, WARP, CAST, BLOCK_TAIL, NORM, GRADIENT];
const STATIC_BACKWARD_HEADERS: &[Header] =
    &[TYPES, FP8, WARP, CAST, BLOCK_TAIL, NORM, GRADIENT, STATIC_CAST, WARP_TILE];

const FORWARD_ARGUMENTS: &[Argument] =
    &[pointer("z"), pointer("h"), pointer("codes"), pointer("scale_at"), number("count", ArgumentKind::U64)];

const BACKWARD_ARGUMENTS: &[Argument] = &[
    pointer("dh"),
    pointer("z"),
    pointer("dz"),
    pointer("codes"),
    pointer("row_scales"),
    number("n", ArgumentKind::U32),
];

const STATIC_BACKWARD_ARGUMENTS: &[Argument] = &[
    pointer("dh"),
    pointer("z"),
    pointer("dz"),
    pointer("codes"),
    pointer("codes_t"),
    pointer("scale_at"),
    pointer("saturated_total"),
    pointer("amax"),
    number("m", ArgumentKind::U32),
    number("n", ArgumentKind::U32),
];

/// Sorted by entry symbol.
pub const NORMS: &[KernelSource] = &[
    KernelSource {
        entry: "block_backward",
        source: include_str!("../cu/block_backward.cu"),
        headers: BACKWARD_HEADERS,
        architectures: WITH_FP8_CASTS,
        arguments: BACKWARD_ARGUMENTS,
        about: "The gradient through hard swish and BlockNorm to BF16 and to E4M3 by rows.",
    },
    KernelSource {
        entry: "block_backward_static",
        source: include_str!("../cu/block_backward_static.cu"),
        headers: STATIC_BACKWARD_HEADERS,
        architectures: WITH_FP8_CASTS,
        arguments: STATIC_BACKWARD_ARGUMENTS,
        about: "The gradient through hard swish and BlockNorm to E4M3 by a static scale, as it lies and transposed.",
    },
    KernelSource {
        entry: "block_norm_hard_swish",
        source: include_str!("../cu/block_norm_hard_swish.cu"),
        headers: HEADERS,
        architectures: WITH_FP8_CASTS,
        arguments: FORWARD_ARGUMENTS,
        about: "BlockNorm and hard swish of BF16, to BF16 and to E4M3 by a static scale.",
    },
];

/// Blocks of 256 threads that a multiprocessor holds of the forward.
const RESIDENT: u32 = 4;
const FORWARD_THREADS: u32 = 256;

/// Why a matrix with rows of `n` has no kernel here when BlockNorm's blocks have `block` columns.
fn refused(n: u32, block: u32) -> bool {
    block != BLOCK_COLUMNS || !n.is_multiple_of(BLOCK_COLUMNS)
}

/// Of `block_norm_hard_swish` over z `[m, n]`, whose `count` is m n. None for other blocks than of
/// [`BLOCK_COLUMNS`] columns, or rows that are not whole blocks.
pub fn block_norm_hard_swish([m, n]: [u32; 2], block: u32, multiprocessors: u32) -> Option<LaunchGrid> {
    if refused(n, block) {
        return None;
    }
    let per_block = u64::from(FORWARD_THREADS / 32) * u64::from(BLOCK_COLUMNS);
    let wanted = (u64::from(m) * u64::from(n)).div_ceil(per_block);
    let most = RESIDENT * multiprocessors.max(1);
    Some(LaunchGrid {
        programmatic: true,
        ..LaunchGrid::line(u32::try_from(wanted).unwrap_or(most).min(most), FORWARD_THREADS)
    })
}

/// The longest row of [`block_backward`]: two blocks for each of 32 warps.
pub const LONGEST_BACKWARD: u32 = 2 * 32 * BLOCK_COLUMNS;
/// Rows up to here have a warp for each block.
const SHORT_BACKWARD: u32 = 2 * BLOCK_COLUMNS;

/// Of `block_backward` over dh and z `[m, n]`. None as for [`block_norm_hard_swish`], and for rows beyond
/// [`LONGEST_BACKWARD`].
pub fn block_backward([m, n]: [u32; 2], block: u32) -> Option<LaunchGrid> {
    if refused(n, block) || n > LONGEST_BACKWARD {
        return None;
    }
    let blocks = n / BLOCK_COLUMNS;
    let warps = if n <= SHORT_BACKWARD { blocks } else { blocks.div_ceil(2) };
    // Without columns there is nothing to do in any row.
    let rows = if n == 0 { 0 } else { m };
    Some(LaunchGrid { programmatic: true, ..LaunchGrid::line(rows, 32 * warps.max(1)) })
}

/// Of `block_backward_static` over dh and z `[m, n]`: a block for each tile. None as for [`block_norm_hard_swish`], and
/// where codes are wanted transposed and m is no multiple of 16.
pub fn block_backward_static([m, n]: [u32; 2], block: u32, is_turned: bool) -> Option<LaunchGrid> {
    if refused(n, block) || (is_turned && !m.is_multiple_of(16)) {
        return None;
    }
    Some(LaunchGrid { programmatic: true, ..LaunchGrid::line(turned_tiles([m, n])?, 256) })
}

#[cfg(test)]
mod tests {
    use super::*;

    const H200: u32 = 132;

    #[test]
    fn the_devices_block_is_the_hosts() {
        assert!(NORM.text.contains(&format!("BLOCK = {BLOCK_COLUMNS};")));
    }

    #[test]
    fn a_small_matrix_has_a_warp_for_each_block_and_a_large_one_fills_the_gpu() {
        let blocks = |m, n| block_norm_hard_swish([m, n], 256, H200).expect("it runs").blocks[0];
        assert_eq!(blocks(1, 256), 1);
        assert_eq!(blocks(100, 1024), 50);
        assert_eq!(blocks(12_288, 2048), 4 * H200);
        assert_eq!(blocks(u32::MAX, 4096), 4 * H200);
        assert!(block_norm_hard_swish([0, 256], 256, H200).expect("nothing to do").is_empty());
    }

    #[test]
    fn a_row_of_the_backward_fits_its_warps() {
        for blocks in 1..=64 {
            let n = 256 * blocks;
            let grid = block_backward([7, n], 256).expect("it runs");
            let warps = grid.threads / 32;
            // As the kernel decides: one block a warp where these suffice.
            let kept = if n <= grid.threads * 8 { 1 } else { 2 };
            assert!(warps * kept >= blocks && warps * kept < blocks + kept && grid.threads <= 1024, "{n}");
            assert_eq!(grid.blocks, [7, 1, 1]);
        }
        assert!(block_backward([0, 256], 256).expect("nothing to do").is_empty());
        assert!(block_backward([5, 0], 256).expect("nothing to do").is_empty());
    }

    #[test]
    fn other_blocks_and_broken_rows_have_no_kernel() {
        for (n, block) in [(256, 128), (512, 512), (128, 256), (300, 256)] {
            assert_eq!(block_norm_hard_swish([16, n], block, H200), None, "{n} {block}");
            assert_eq!(block_backward([16, n], block), None, "{n} {block}");
            assert_eq!(block_backward_static([16, n], block, false), None, "{n} {block}");
        }
        assert_eq!(block_backward([16, LONGEST_BACKWARD + 256], 256), None);
    }

    #[test]
    fn codes_are_transposed_in_whole_pieces() {
        let blocks = |m, n, is_turned| block_backward_static([m, n], 256, is_turned).map(|grid| grid.blocks[0]);
        assert_eq!(blocks(33, 512, false), Some(4));
        assert_eq!(blocks(33, 512, true), None);
        assert_eq!(blocks(48, 65_536, true), Some(512));
        assert_eq!(blocks(u32::MAX, u32::MAX - 255, false), None);
        assert!(block_backward_static([0, 256], 256, true).expect("nothing to do").is_empty());
    }
}
