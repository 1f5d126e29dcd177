//! Takes the sizes of linear + BlockNorm + hard swish; gives the kernel that runs all of it
//! (`cu/common/static_gemm.cuh`) and how it is launched.
//!
//! h `[m, n]` = hard swish(BlockNorm(x w^T)), blocks of 256 columns. x is BF16, cast by a scale known beforehand on its
//! way in, or E4M3 already; so is what is stored: |BlockNorm| is at most 16, so that a scale of 2^-4 saturates nothing.

use super::{GemmShape, THREADS, TILE_K, Y_BOX};
use crate::Grid;

/// Columns of a tile, and of a block of BlockNorm.
pub const BLOCK_COLUMNS: u32 = 256;

/// What a block reads, and what it stores.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum BlockType {
    Bf16,
    E4m3,
}

/// One kernel at one size: all that a launch needs but the addresses.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct BlockLaunch {
    pub entry: &'static str,
    pub grid: Grid,
    pub shape: GemmShape,
    /// Rows and columns of x in one load, and of h in one store; of w it is [`BLOCK_COLUMNS`] rows of [`TILE_K`].
    pub x_box: [u32; 2],
    pub h_box: [u32; 2],
}

/// By x, by h, by the rows of a tile: 128, 64.
const ENTRIES: [[[&str; 2]; 2]; 2] = [
    [
        ["sm90_bf16_block_bf16_128x256", "sm90_bf16_block_bf16_64x256"],
        ["sm90_bf16_block_e4m3_128x256", "sm90_bf16_block_e4m3_64x256"],
    ],
    [
        ["sm90_e4m3_block_bf16_128x256", "sm90_e4m3_block_bf16_64x256"],
        ["sm90_e4m3_block_e4m3_128x256", "sm90_e4m3_block_e4m3_64x256"],
    ],
];

fn is_codes(of: BlockType) -> bool {
    of == BlockType::E4m3
}

/// Of both rings, as the kernel's file has them.
fn stages(x: BlockType, rows: u32) -> u32 {
    if is_codes(x) || rows == 64 { 4 } else { 3 }
}

/// The rings of x and w with two barriers a stage each, two boxes of h a warp, the columns' scales for both
/// warpgroups; of low tiles the sums of squares that the warpgroups tell one another, of two tiles where there may be
/// a second.
fn shared_bytes(x: BlockType, rows: u32) -> u32 {
    let x_columns = if is_codes(x) { TILE_K } else { 2 * TILE_K };
    let ring = stages(x, rows) * (rows * x_columns + BLOCK_COLUMNS * TILE_K + 32);
    let squares = match (rows, x) {
        (128, _) => 0,
        (_, BlockType::Bf16) => 512,
        (_, BlockType::E4m3) => 1024,
    };
    ring + 8 * 2 * Y_BOX[0] * Y_BOX[1] * 2 + 2 * 4 * BLOCK_COLUMNS + squares
}

/// The kernel for x `[m, k]` and w `[n, k]` in E4M3 with a scale a row, or one, on a GPU with so many multiprocessors.
/// None where sizes are 0, n no multiple of 256 or k none of 16.
pub fn block_gemm(
    [m, n, k]: [u32; 3],
    (x, h): (BlockType, BlockType),
    w_scaled_by_rows: bool,
    multiprocessors: u32,
) -> Option<BlockLaunch> {
    if m == 0 || n == 0 || k == 0 || !n.is_multiple_of(BLOCK_COLUMNS) || !k.is_multiple_of(16) {
        return None;
    }
    let tiles_across = n / BLOCK_COLUMNS;
    // Low tiles read more; they pay where high ones would leave half of the GPU idle. In BF16 the warpgroups share k.
    let is_low = m.div_ceil(64) * tiles_across <= multiprocessors && (is_codes(x) || k > TILE_K);
    let rows = if is_low { 64 } else { 128 };
    let tiles_down = m.div_ceil(rows);
    let blocks = (tiles_down * tiles_across).min(multiprocessors.max(1));
    let square = (f64::from(multiprocessors) * f64::from(BLOCK_COLUMNS) / f64::from(rows)).sqrt();
    let group = (square.round() as u32).max(1);
    let w_scale_step = u32::from(w_scaled_by_rows);
    Some(BlockLaunch {
        entry: ENTRIES[usize::from(is_codes(x))][usize::from(is_codes(h))][usize::from(is_low)],
        grid: Grid { shared_bytes: shared_bytes(x, rows), programmatic: true, ..Grid::line(blocks, THREADS) },
        shape: GemmShape { m, n, k, tiles_down, tiles_across, group, x_scale_step: 0, w_scale_step },
        x_box: [rows, if is_codes(x) { TILE_K } else { TILE_K / 2 }],
        h_box: [Y_BOX[0], if is_codes(h) { 2 * Y_BOX[1] } else { Y_BOX[1] }],
    })
}

/// Whether `cast_e4m3_static` and a block of codes are expected to be faster than the block that casts x on its way in,
/// which costs .25 us a stage of 128 of k on an H200; the cast moves three bytes an element.
pub fn casts_first([m, n, k]: [u32; 3], multiprocessors: u32) -> bool {
    let waves = (m.div_ceil(128) * n.div_ceil(BLOCK_COLUMNS)).div_ceil(multiprocessors.max(1));
    let bytes = 3.0 * f64::from(m) * f64::from(k);
    f64::from(waves) * f64::from(k.div_ceil(TILE_K)) * 0.25 > 2.5 + bytes / 3.7e6
}

#[cfg(test)]
mod tests {
    use super::{
        BlockType::{Bf16, E4m3},
        *,
    };
    use crate::gemm::BLOCKS;

    const H200: u32 = 132;
    const TYPES: [BlockType; 2] = [Bf16, E4m3];

    fn each() -> impl Iterator<Item = (&'static str, BlockType, BlockType, u32)> {
        TYPES.into_iter().flat_map(|x| TYPES.into_iter().map(move |h| (x, h))).flat_map(|(x, h)| {
            let entries = ENTRIES[usize::from(is_codes(x))][usize::from(is_codes(h))];
            entries.into_iter().zip([128, 64]).map(move |(entry, rows)| (entry, x, h, rows))
        })
    }

    #[test]
    fn every_entry_is_listed_and_its_file_says_the_same() {
        let entries: Vec<&str> = each().map(|(entry, ..)| entry).collect();
        let listed: Vec<&str> = BLOCKS.iter().map(|kernel| kernel.entry).collect();
        assert_eq!(entries, listed);
        for (entry, x, h, rows) in each() {
            let tail = if is_codes(h) { "BLOCK_E4M3" } else { "BLOCK_BF16" };
            let used = format!("StaticGemm<{rows}, 256, {}, 1, {}, Tail::{tail}>::run(", stages(x, rows), is_codes(x));
            assert!(crate::find(entry).expect("listed").source.contains(&used), "{entry}: {used}");
            let name = |of| if is_codes(of) { "e4m3" } else { "bf16" };
            assert_eq!(entry, format!("sm90_{}_block_{}_{rows}x256", name(x), name(h)));
        }
    }

    #[test]
    fn shared_memory_fits_a_hopper_block() {
        for (entry, x, _, rows) in each() {
            assert!(shared_bytes(x, rows) <= 232_448, "{entry}");
        }
    }

    #[test]
    fn launches_cover_the_output() {
        for size in [[1, 256, 16], [129, 512, 144], [1024, 2048, 2048], [12_288, 2048, 2048]] {
            for (x, h) in [(Bf16, E4m3), (E4m3, E4m3), (E4m3, Bf16)] {
                let launch = block_gemm(size, (x, h), true, H200).expect("it runs");
                let GemmShape { tiles_down, tiles_across, .. } = launch.shape;
                assert!(tiles_down * launch.x_box[0] >= size[0] && tiles_across * BLOCK_COLUMNS == size[1]);
                assert_eq!(launch.grid.blocks[0], (tiles_down * tiles_across).min(H200));
                // Warpgroups that share k have one tile, and each has some of k.
                let shares_k = launch.x_box[0] == 64 && x == Bf16;
                assert!(!shares_k || (tiles_down * tiles_across <= H200 && size[2] > TILE_K), "{launch:?}");
            }
        }
    }

    #[test]
    fn sizes_without_whole_blocks_have_no_kernel() {
        for size in [[0, 256, 16], [16, 128, 16], [16, 256, 24], [16, 256, 0]] {
            assert_eq!(block_gemm(size, (E4m3, Bf16), true, H200), None);
        }
    }

    #[test]
    fn many_columns_of_tiles_want_x_cast_first() {
        assert!(casts_first([6144, 4096, 4096], H200));
        assert!(!casts_first([1024, 2048, 2048], H200));
        assert!(!casts_first([6144, 2048, 2048], H200));
    }
}
