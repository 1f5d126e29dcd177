//! Takes the sizes of linear + BlockNorm + hard swish; gives the kernel that runs all of it
//! (`cu/common/static_gemm.cuh`) and how it is launched.
//!
//! h `[m, n]` = hard swish(BlockNorm(x w^T)), blocks of 256 columns. x is BF16, cast by a scale known beforehand on its
//! way in, or E4M3 already; so is what is stored: |BlockNorm| is at most 16, so that a scale of 2^-4 saturates nothing.
//! A training step keeps more of it: [`block_all`]. A bias goes in front of BlockNorm: set it in the launch's shape.

use super::{
    cost::static_cast_us,
    shapes::{StaticShape, THREADS, TILE_K, TURNS_BYTES, Y_BOX},
};
use crate::LaunchGrid;

/// Columns of a tile, and of a block of BlockNorm.
pub const BLOCK_COLUMNS: u32 = 256;

/// What a block reads, and what it stores.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum BlockType {
    Bf16,
    E4m3,
}

/// Outputs of [`block_all`], bits of [`StaticShape::stores`]: z = x w^T in BF16, h in BF16, h in E4M3.
pub const STORE_Z: u32 = 1;
pub const STORE_H: u32 = 2;
pub const STORE_CODES: u32 = 4;

/// Rows and columns of codes of h that one store writes.
pub const CODES_BOX: [u32; 2] = [Y_BOX[0], 2 * Y_BOX[1]];

/// One kernel at one size: all that a launch needs but the addresses.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct BlockLaunch {
    pub entry: &'static str,
    pub grid: LaunchGrid,
    pub shape: StaticShape,
    /// Rows and columns of x in one load, and of h in one store (of [`block_all`]: of z and h, codes by [`CODES_BOX`]);
    /// of w it is [`BLOCK_COLUMNS`] rows of [`TILE_K`].
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

/// Those that can store all, by x, by the rows of a tile: 128, 64.
const ALL_ENTRIES: [[&str; 2]; 2] = [
    ["sm90_bf16_block_all_128x256", "sm90_bf16_block_all_64x256"],
    ["sm90_e4m3_block_all_128x256", "sm90_e4m3_block_all_64x256"],
];

fn is_codes(of: BlockType) -> bool {
    of == BlockType::E4m3
}

/// Of both rings, as the kernel's file has them.
fn stages(x: BlockType, rows: u32) -> u32 {
    if is_codes(x) || rows == 64 { 4 } else { 3 }
}

/// The rings of x and w with two barriers a stage each, two boxes of h a warp, the columns' scales for both
/// warpgroups; where x is cast, their turns; of low tiles the sums of squares that the warpgroups tell one another, of two
/// tiles where there may be a second.
fn shared_bytes(x: BlockType, rows: u32) -> u32 {
    let x_columns = if is_codes(x) { TILE_K } else { 2 * TILE_K };
    let ring = stages(x, rows) * (rows * x_columns + BLOCK_COLUMNS * TILE_K + 32);
    let squares = match (rows, x) {
        (128, _) => 0,
        (_, BlockType::Bf16) => 512,
        (_, BlockType::E4m3) => 1024,
    };
    let turns = if is_codes(x) { 0 } else { TURNS_BYTES };
    ring + 8 * 2 * Y_BOX[0] * Y_BOX[1] * 2 + 2 * 4 * BLOCK_COLUMNS + turns + squares
}

/// The kernel for x `[m, k]` and w `[n, k]` in E4M3 with a scale a row, or one, on a GPU with so many multiprocessors.
/// None where sizes are 0, n no multiple of 256 or k none of 16.
pub fn block_gemm(
    size: [u32; 3],
    (x, h): (BlockType, BlockType),
    w_scaled_by_rows: bool,
    multiprocessors: u32,
) -> Option<BlockLaunch> {
    let h_box = if is_codes(h) { CODES_BOX } else { Y_BOX };
    let entries = ENTRIES[usize::from(is_codes(x))][usize::from(is_codes(h))];
    launch(size, x, entries, w_scaled_by_rows, multiprocessors).map(|launch| BlockLaunch { h_box, ..launch })
}

/// The same with any of z, h and its codes as outputs: `stores` has bits [`STORE_Z`], [`STORE_H`] and [`STORE_CODES`].
/// The map of what is not stored is not read.
pub fn block_all(
    size: [u32; 3],
    x: BlockType,
    stores: u32,
    w_scaled_by_rows: bool,
    multiprocessors: u32,
) -> Option<BlockLaunch> {
    let entries = ALL_ENTRIES[usize::from(is_codes(x))];
    let mut found = launch(size, x, entries, w_scaled_by_rows, multiprocessors)?;
    found.shape.stores = stores;
    Some(found)
}

/// `entries`: of tiles of 128 rows, of 64.
fn launch(
    [m, n, k]: [u32; 3],
    x: BlockType,
    entries: [&'static str; 2],
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
        entry: entries[usize::from(is_low)],
        grid: LaunchGrid {
            shared_bytes: shared_bytes(x, rows),
            programmatic: true,
            ..LaunchGrid::line(blocks, THREADS)
        },
        shape: StaticShape { m, n, k, tiles_down, tiles_across, group, stores: 0, w_scale_step, bias: 0 },
        x_box: [rows, if is_codes(x) { TILE_K } else { TILE_K / 2 }],
        h_box: Y_BOX,
    })
}

/// Whether `cast_e4m3_static` and a block of codes are expected to be faster than the block that casts x on its way in,
/// which costs .25 us a stage of 128 of k on an H200.
pub fn casts_first([m, n, k]: [u32; 3], multiprocessors: u32) -> bool {
    let waves = (m.div_ceil(128) * n.div_ceil(BLOCK_COLUMNS)).div_ceil(multiprocessors.max(1));
    f64::from(waves) * f64::from(k.div_ceil(TILE_K)) * 0.25 > static_cast_us(m, k)
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

    fn name(of: BlockType) -> &'static str {
        if is_codes(of) { "e4m3" } else { "bf16" }
    }

    /// Entry, type of x, what is stored as in the entry's name, rows of a tile.
    fn each() -> impl Iterator<Item = (&'static str, BlockType, &'static str, u32)> {
        TYPES.into_iter().flat_map(|x| {
            let [to_bf16, to_codes] = ENTRIES[usize::from(is_codes(x))];
            let all = ALL_ENTRIES[usize::from(is_codes(x))];
            [(all, "all"), (to_bf16, "bf16"), (to_codes, "e4m3")].into_iter().flat_map(move |(entries, stored)| {
                entries.into_iter().zip([128, 64]).map(move |(entry, rows)| (entry, x, stored, rows))
            })
        })
    }

    #[test]
    fn every_entry_is_listed_and_its_file_says_the_same() {
        let entries: Vec<&str> = each().map(|(entry, ..)| entry).collect();
        let listed: Vec<&str> = BLOCKS.iter().map(|kernel| kernel.entry).collect();
        assert_eq!(entries, listed);
        for (entry, x, stored, rows) in each() {
            let tail = format!("BLOCK_{}", stored.to_uppercase());
            let used = format!("StaticGemm<{rows}, 256, {}, 1, {}, Tail::{tail}>", stages(x, rows), is_codes(x));
            assert!(crate::find(entry).expect("listed").source.contains(&used), "{entry}: {used}");
            assert_eq!(entry, format!("sm90_{}_block_{stored}_{rows}x256", name(x)));
        }
    }

    #[test]
    fn the_device_has_the_same_bits_of_outputs() {
        let source = crate::find(ALL_ENTRIES[0][0]).expect("listed");
        let text = source.headers.iter().find(|header| header.name == "common/static_tile.cuh").expect("included").text;
        let bits = format!("STORE_Z = {STORE_Z}, STORE_H = {STORE_H}, STORE_CODES = {STORE_CODES};");
        assert!(text.contains(&bits), "{bits}");
    }

    #[test]
    fn what_stores_all_is_launched_like_what_stores_one() {
        for size in [[1, 256, 16], [1024, 2048, 2048], [12_288, 2048, 2048]] {
            for x in TYPES {
                let one = block_gemm(size, (x, Bf16), true, H200).expect("it runs");
                let all = block_all(size, x, STORE_Z | STORE_CODES, true, H200).expect("it runs");
                assert_eq!((all.grid, all.x_box, all.h_box), (one.grid, one.x_box, one.h_box));
                assert_eq!(all.shape, StaticShape { stores: 5, ..one.shape });
            }
        }
        assert_eq!(block_all([16, 128, 16], Bf16, STORE_H, true, H200), None);
    }

    #[test]
    fn launches_cover_the_output() {
        for size in [[1, 256, 16], [129, 512, 144], [1024, 2048, 2048], [12_288, 2048, 2048]] {
            for (x, h) in [(Bf16, E4m3), (E4m3, E4m3), (E4m3, Bf16)] {
                let launch = block_gemm(size, (x, h), true, H200).expect("it runs");
                let StaticShape { tiles_down, tiles_across, .. } = launch.shape;
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
