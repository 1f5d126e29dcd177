//! Takes shapes of operands; gives the cast kernels and the geometry of their launches.
//!
//! A launch casts one or two operands. Its function here takes them as [`CastOperand`]s with their
//! shape, flags and addresses set, fills in how the grid is divided among them, and gives the
//! [`LaunchGrid`]; the operands are then the kernel's two arguments. An absent operand is the default one.
//!
//! | recipe | launches |
//! |---|---|
//! | rowwise | [`cast_rowwise`] with [`ROW_CAST`] |
//! | columnwise (the transposed copy has a scale a row) | [`cast_rowwise`] with [`COLUMN_AMAX`], [`cast_columnwise`] |
//! | tensorwise | [`amax_tensor`], [`cast_tensorwise`] |
//! | 1x128, 128x128 | [`cast_blockwise`] |
//! | by a scale known beforehand | [`cast_e4m3_static`], or with a transposed copy [`cast_static_turned`]; [`transpose_codes`] of codes |

use crate::{
    Argument, ArgumentKind, CAST, FP8, Header, KernelSource, LaunchGrid, TYPES, WARP, WITH_FP8_CASTS,
    gemm::STATIC_CAST, number, pointer,
};

const STATIC_HEADERS: &[Header] = &[TYPES, FP8, WARP];
const TILE: Header = Header { name: "common/tile.cuh", text: include_str!("../cu/common/tile.cuh") };
pub(crate) const WARP_TILE: Header =
    Header { name: "common/warp_tile.cuh", text: include_str!("../cu/common/warp_tile.cuh") };
const HEADERS: &[Header] = &[TYPES, FP8, WARP, CAST];
const STATIC_TURNED_HEADERS: &[Header] = &[TYPES, FP8, WARP, CAST, STATIC_CAST, WARP_TILE];
const TILE_HEADERS: &[Header] = &[TYPES, FP8, WARP, CAST, TILE];

/// Scales are rounded up to a power of two.
pub const POWER_OF_TWO: u32 = 1;
/// Codes are E5M2, not E4M3.
pub const AS_E5M2: u32 = 2;
/// `cast_blockwise`: one scale for 128 x 128 elements, not for 1 x 128.
pub const BLOCK_128X128: u32 = 4;
/// `cast_rowwise`: cast the operand. One of this and [`COLUMN_AMAX`].
pub const ROW_CAST: u32 = 8;
/// `cast_rowwise`: leave the partials that `cast_columnwise` wants.
pub const COLUMN_AMAX: u32 = 16;

/// Bytes of a line of memory: a product reads codes fastest whose rows begin with one.
pub const LINE: usize = 128;

/// From one row of `cols` codes to the next, where each is to begin with a line of memory. Over a `cols` that is no
/// multiple of 32 a product takes up to three quarters longer where rows lie behind one another.
pub const fn pitch(cols: usize) -> usize {
    cols.next_multiple_of(LINE)
}

/// One operand of a cast: the struct of `cu/common/cast.cuh`, field by field. Addresses are device
/// addresses, 0 for an output that is not wanted. `blocks`, `tiles` and `tile_rows` are the launch's to fill in.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CastOperand {
    /// BF16 `[rows, cols]` row-major.
    pub x: u64,
    /// `[rows, cols]`
    pub codes: u64,
    pub scales: u64,
    /// `[cols, rows]`
    pub codes_t: u64,
    pub scales_t: u64,
    /// [`partials_bytes`] of memory, aligned to 16 bytes: the first of two launches writes there what the
    /// second reads. One operand's alone.
    pub partials: u64,
    pub rows: u32,
    pub cols: u32,
    pub blocks: u32,
    pub flags: u32,
    pub tiles: u32,
    pub tile_rows: u32,
    /// Bytes from one row of `codes` to the next; 0, which the launch fills in: rows lie behind one another.
    pub pitch: u32,
    /// The same of `codes_t`.
    pub pitch_t: u32,
}

const OPERAND_BYTES: u32 = 80;
const _: () = assert!(size_of::<CastOperand>() == OPERAND_BYTES as usize, "cu/common/cast.cuh mirrors it");

const OPERANDS: &[Argument] =
    &[number("a", ArgumentKind::Struct(OPERAND_BYTES)), number("b", ArgumentKind::Struct(OPERAND_BYTES))];

/// Sorted by entry symbol.
pub const CASTS: &[KernelSource] = &[
    KernelSource {
        entry: "amax_tensor",
        source: include_str!("../cu/amax_tensor.cu"),
        headers: HEADERS,
        architectures: WITH_FP8_CASTS,
        arguments: OPERANDS,
        about: "The amax of BF16 operands, block by block, for cast_tensorwise.",
    },
    KernelSource {
        entry: "cast_blockwise",
        source: include_str!("../cu/cast_blockwise.cu"),
        headers: TILE_HEADERS,
        architectures: WITH_FP8_CASTS,
        arguments: OPERANDS,
        about: "BF16 to FP8 codes, as they lie and transposed, with scales of 1x128 or 128x128 blocks.",
    },
    KernelSource {
        entry: "cast_columnwise",
        source: include_str!("../cu/cast_columnwise.cu"),
        headers: TILE_HEADERS,
        architectures: WITH_FP8_CASTS,
        arguments: OPERANDS,
        about: "BF16 to transposed FP8 codes with one scale a column.",
    },
    KernelSource {
        entry: "cast_e4m3_static",
        source: include_str!("../cu/cast_e4m3_static.cu"),
        headers: STATIC_HEADERS,
        architectures: WITH_FP8_CASTS,
        arguments: &[
            pointer("x"),
            pointer("scale_at"),
            pointer("codes"),
            pointer("saturated_total"),
            number("count", ArgumentKind::U64),
            number("cols", ArgumentKind::U32),
            number("pitch", ArgumentKind::U32),
        ],
        about: "BF16 to E4M3 codes by a scale known beforehand, counting the elements that saturate.",
    },
    KernelSource {
        entry: "cast_rowwise",
        source: include_str!("../cu/cast_rowwise.cu"),
        headers: HEADERS,
        architectures: WITH_FP8_CASTS,
        arguments: OPERANDS,
        about: "BF16 rows to FP8 codes and one scale a row in one pass over memory; or the amax of columns.",
    },
    KernelSource {
        entry: "cast_static_turned",
        source: include_str!("../cu/cast_static_turned.cu"),
        headers: STATIC_TURNED_HEADERS,
        architectures: WITH_FP8_CASTS,
        arguments: &[number("operands", ArgumentKind::Struct(size_of::<StaticOperands>() as u32))],
        about: "BF16 to E4M3 codes by scales known beforehand, as they lie and transposed, up to four matrices at once.",
    },
    KernelSource {
        entry: "cast_tensorwise",
        source: include_str!("../cu/cast_tensorwise.cu"),
        headers: TILE_HEADERS,
        architectures: WITH_FP8_CASTS,
        arguments: OPERANDS,
        about: "BF16 to FP8 codes, as they lie and transposed, with one scale for the tensor.",
    },
    KernelSource {
        entry: "transpose_codes",
        source: include_str!("../cu/transpose_codes.cu"),
        headers: TILE_HEADERS,
        architectures: WITH_FP8_CASTS,
        arguments: OPERANDS,
        about: "FP8 codes transposed.",
    },
];

impl CastOperand {
    fn elements(&self) -> u64 {
        u64::from(self.rows) * u64::from(self.cols)
    }

    fn is_turned(&self) -> bool {
        self.codes_t != 0
    }

    fn has(&self, flag: u32) -> bool {
        self.flags & flag != 0
    }

    fn fill_pitches(&mut self) {
        self.pitch = if self.pitch == 0 { self.cols } else { self.pitch };
        self.pitch_t = if self.pitch_t == 0 { self.rows } else { self.pitch_t };
    }
}

/// `blocks`: of each operand, already set.
fn grid(operands: &mut [CastOperand; 2], threads: u32) -> LaunchGrid {
    operands.iter_mut().for_each(CastOperand::fill_pitches);
    LaunchGrid::line(operands[0].blocks + operands[1].blocks, threads)
}

/// The share of `most` blocks that goes to an operand by its elements, at least 1.
fn share(most: u32, operand: &CastOperand, total: u64) -> u32 {
    let blocks = u64::from(most) * operand.elements() / total.max(1);
    u32::try_from(blocks).unwrap_or(most).clamp(1, most.max(1))
}

fn narrowed(blocks: u64) -> u32 {
    u32::try_from(blocks).unwrap_or(u32::MAX)
}

/// Of `cast_e4m3_static` over `count` elements.
pub fn cast_e4m3_static(count: u64, multiprocessors: u32) -> LaunchGrid {
    // A block of 256 threads takes four 8-element vectors each, then strides.
    LaunchGrid::line(narrowed(count.div_ceil(8192).min(8 * u64::from(multiprocessors))), 256)
}

/// One matrix of [`cast_static_turned`]: the struct of `cu/cast_static_turned.cu`, field by field. Addresses are device
/// addresses, 0 for an output that is not wanted.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StaticOperand {
    /// BF16 `[rows, cols]` row-major.
    pub x: u64,
    /// FP32, a power of two.
    pub scale: u64,
    /// `[rows, cols]`
    pub codes: u64,
    /// `[cols, rows]`
    pub codes_t: u64,
    /// A u64 to which elements beyond 448 times the scale are added.
    pub saturated: u64,
    /// An FP32 that is raised to the largest magnitude.
    pub amax: u64,
    pub rows: u32,
    pub cols: u32,
}

/// Matrices that one launch of [`cast_static_turned`] takes.
pub const STATIC_OPERANDS: usize = 4;

/// The argument of `cast_static_turned`; absent operands come last.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StaticOperands {
    pub of: [StaticOperand; STATIC_OPERANDS],
    /// The launch's to fill in.
    pub first: [u32; STATIC_OPERANDS],
}

const _: () = assert!(size_of::<StaticOperands>() == 240, "cu/cast_static_turned.cu mirrors it");

/// Blocks that give codes transposed, one for each tile of 32 rows by 256 columns; None where they are too many.
pub(crate) fn turned_tiles([rows, cols]: [u32; 2]) -> Option<u32> {
    rows.div_ceil(32).checked_mul(cols.div_ceil(256)).filter(|&tiles| i32::try_from(tiles).is_ok())
}

/// Of `cast_static_turned`. None where an operand's columns are no multiple of 8, rows that are wanted transposed none of
/// 16, or tiles too many.
pub fn cast_static_turned(operands: &mut StaticOperands) -> Option<LaunchGrid> {
    let mut blocks = 0u32;
    for (operand, first) in operands.of.iter().zip(&mut operands.first) {
        if !operand.cols.is_multiple_of(8) || (operand.codes_t != 0 && !operand.rows.is_multiple_of(16)) {
            return None;
        }
        *first = blocks;
        let tiles = turned_tiles([operand.rows, operand.cols])?;
        blocks = blocks.checked_add(tiles).filter(|&blocks| i32::try_from(blocks).is_ok())?;
    }
    Some(LaunchGrid { programmatic: true, ..LaunchGrid::line(blocks, 256) })
}

/// Bytes of the partials of an operand, whichever kernels it goes through, in any company.
pub fn partials_bytes(rows: u32, cols: u32, multiprocessors: u32) -> u64 {
    let of_tensor = 4 * u64::from(AMAX_BLOCKS * multiprocessors.max(1));
    let tiles = u64::from(rows.div_ceil(AMAX_ROWS).min(MOST_TILES));
    of_tensor.max(2 * tiles * u64::from(cols).next_multiple_of(256))
}

// ---- cast_rowwise -------------------------------------------------------------------------------

/// Rows up to this go to a part of a warp: the kernel decides by the same number.
const SHORT_ROW: u32 = 1024;
/// Vectors of eight columns that a thread keeps in registers, of rows up to [`MANY_THREADS_ROW`] and of longer
/// ones: the kernel has code for these two.
const KEPT: u32 = 4;
const MOST_KEPT: u32 = 8;
/// Up to here more threads a row are faster than more columns a thread.
const MANY_THREADS_ROW: u32 = 16_384;
const MOST_THREADS: u32 = 1024;
/// 8 is the most that every GPU schedules.
const MOST_PARTS: u32 = 8;
/// Rows of a column amax tile are at least this, and the tiles at most that: each block of
/// `cast_columnwise` reads the partials of all tiles.
const AMAX_ROWS: u32 = 64;
const MOST_TILES: u32 = 128;
/// Warps of it that a multiprocessor holds, by its registers.
const RESIDENT_WARPS: u32 = 32;

/// Of `cast_rowwise`. `has_clusters`: compute capability 9.0 and later; a launch without them reads
/// rows of more than 65,536 twice.
pub fn cast_rowwise(operands: &mut [CastOperand; 2], multiprocessors: u32, has_clusters: bool) -> LaunchGrid {
    let most_parts = if has_clusters { MOST_PARTS } else { 1 };
    let cast = |o: &&CastOperand| o.has(ROW_CAST) && o.rows > 0;
    let kept = operands.iter().filter(cast).filter(|o| keeps_rows(o, most_parts)).map(|o| o.cols).max();
    let longest = kept.or(operands.iter().filter(cast).map(|o| o.cols).max());
    let cluster = kept.map_or(1, parts_for);
    let columns = operands.iter().filter(|o| o.has(COLUMN_AMAX)).map(CastOperand::elements).sum();
    let threads = longest.map_or(256, |cols| row_threads(cols, cluster));
    for operand in operands.iter_mut() {
        (operand.tiles, operand.tile_rows) = (0, 0);
        let blocks = if operand.elements() == 0 {
            0
        } else if operand.has(COLUMN_AMAX) {
            column_tiles(operand, share(RESIDENT_WARPS * multiprocessors / (threads / 32), operand, columns))
        } else if operand.cols <= SHORT_ROW {
            operand.rows.div_ceil(threads / 32 * rows_of_warp(operand.cols))
        } else if !keeps_rows(operand, most_parts) {
            operand.rows
        } else if operand.cols <= 8 * KEPT * threads {
            operand.tile_rows = KEPT;
            operand.rows
        } else {
            operand.tile_rows = MOST_KEPT;
            operand.tiles = rows_ahead(threads, cluster, multiprocessors);
            operand.rows * cluster
        };
        // A cluster works on one operand.
        operand.blocks = blocks.next_multiple_of(cluster);
    }
    LaunchGrid { cluster, ..grid(operands, threads) }
}

/// Whether long rows of it stay in registers: vectors must start where they may and their blocks suffice.
fn keeps_rows(operand: &CastOperand, most_parts: u32) -> bool {
    let is_aligned = operand.cols.is_multiple_of(8)
        && operand.pitch.is_multiple_of(8)
        && operand.x.is_multiple_of(16)
        && operand.codes.is_multiple_of(8);
    is_aligned && operand.cols > SHORT_ROW && operand.cols.div_ceil(8 * MOST_KEPT * MOST_THREADS) <= most_parts
}

/// Blocks that share a row.
fn parts_for(cols: u32) -> u32 {
    cols.div_ceil(8 * MOST_KEPT * MOST_THREADS).next_power_of_two()
}

/// Rows between the one a block casts and the one it fetches to L2 for a later block: as many as the GPU holds
/// at once. 0, none, where three blocks or more of a multiprocessor take turns with memory.
fn rows_ahead(threads: u32, parts: u32, multiprocessors: u32) -> u32 {
    let resident = 32 * RESIDENT_WARPS / threads;
    if resident > 2 { 0 } else { (resident * multiprocessors / parts).max(1) }
}

fn row_threads(cols: u32, parts: u32) -> u32 {
    if cols <= SHORT_ROW {
        return 256;
    }
    // A block's share is whole lines of 128 codes.
    let share = cols.div_ceil(parts).next_multiple_of(128);
    let kept = if cols <= MANY_THREADS_ROW { KEPT } else { MOST_KEPT };
    share.div_ceil(8 * kept).next_multiple_of(32).clamp(64, MOST_THREADS)
}

/// Rows that a warp holds side by side: lanes a row are a power of two.
fn rows_of_warp(cols: u32) -> u32 {
    32 / cols.div_ceil(8).next_power_of_two().min(32)
}

/// Sets tiles and their rows; gives the blocks.
fn column_tiles(operand: &mut CastOperand, wanted: u32) -> u32 {
    let across = operand.cols.div_ceil(256);
    let most = operand.rows.div_ceil(AMAX_ROWS).min(MOST_TILES);
    operand.tile_rows = operand.rows.div_ceil((wanted / across).clamp(1, most));
    operand.tiles = operand.rows.div_ceil(operand.tile_rows);
    operand.tiles * across
}

// ---- cast_columnwise, cast_tensorwise -----------------------------------------------------------

/// Blocks of 256 threads that a multiprocessor holds.
const RESIDENT: u32 = 4;

/// Threads of the kernels with tiles of `threads / 4` rows by 128 columns: few tiles are made smaller
/// ones, so that more multiprocessors have one.
fn tile_threads(operands: &[CastOperand; 2], multiprocessors: u32) -> u32 {
    let tiles: u64 = operands.iter().map(|o| tiles_of(o, 64)).sum();
    if tiles < 2 * u64::from(multiprocessors) { 128 } else { 256 }
}

fn tiles_of(operand: &CastOperand, rows: u32) -> u64 {
    u64::from(operand.rows.div_ceil(rows)) * u64::from(operand.cols.div_ceil(128))
}

/// Of `cast_columnwise`, right after a [`cast_rowwise`] on the same operands left `tiles` and the partials.
pub fn cast_columnwise(operands: &mut [CastOperand; 2], multiprocessors: u32) -> LaunchGrid {
    let threads = tile_threads(operands, multiprocessors);
    let total = operands.iter().map(CastOperand::elements).sum();
    for operand in operands.iter_mut() {
        operand.blocks =
            if operand.elements() == 0 { 0 } else { strip_blocks(operand, threads, multiprocessors, total) };
    }
    LaunchGrid { programmatic: true, ..grid(operands, threads) }
}

/// Each block of a strip reads the partials once. Where they are few, blocks are many and the GPU evens
/// out the load; where they are many, as many blocks as are resident at once.
fn strip_blocks(operand: &CastOperand, threads: u32, multiprocessors: u32, total: u64) -> u32 {
    let strips = operand.cols.div_ceil(128);
    let resident = share(RESIDENT * multiprocessors, operand, total);
    let splits = if threads == 128 {
        u32::MAX
    } else if operand.tiles > 32 {
        resident / strips
    } else {
        (4 * resident).div_ceil(strips)
    };
    strips * splits.clamp(1, operand.rows.div_ceil(threads / 4))
}

/// Blocks of `amax_tensor` a multiprocessor at most; each leaves a partial.
const AMAX_BLOCKS: u32 = 4;

/// Of `amax_tensor`; sets `tiles`, the number of partials, too.
pub fn amax_tensor(operands: &mut [CastOperand; 2], multiprocessors: u32) -> LaunchGrid {
    let total = operands.iter().map(CastOperand::elements).sum();
    for operand in operands.iter_mut() {
        // Two vectors of eight a thread: then every load is in flight at once.
        let wanted = narrowed(operand.elements().div_ceil(2 * 8 * 256));
        operand.blocks = wanted.min(share(AMAX_BLOCKS * multiprocessors, operand, total));
        operand.tiles = operand.blocks;
    }
    grid(operands, 256)
}

/// Of `cast_tensorwise`, right after an [`amax_tensor`] on the same operands left `tiles` and the partials.
pub fn cast_tensorwise(operands: &mut [CastOperand; 2], multiprocessors: u32) -> LaunchGrid {
    let turned = operands.iter().any(|o| o.is_turned() && o.elements() > 0);
    let threads = if turned { tile_threads(operands, multiprocessors) } else { 256 };
    let total = operands.iter().map(CastOperand::elements).sum();
    for operand in operands.iter_mut() {
        let wanted = if operand.is_turned() {
            tiles_of(operand, threads / 4)
        } else {
            // A vector of eight a thread, until every multiprocessor is full.
            operand.elements().div_ceil(8 * u64::from(threads))
        };
        let most = share(RESIDENT * 256 / threads * multiprocessors, operand, total);
        operand.blocks = narrowed(wanted).min(most);
    }
    LaunchGrid { programmatic: true, ..grid(operands, threads) }
}

/// Of `transpose_codes`: `codes` to `codes_t`.
pub fn transpose_codes(operands: &mut [CastOperand; 2]) -> LaunchGrid {
    for operand in operands.iter_mut() {
        operand.blocks = narrowed(tiles_of(operand, 64));
    }
    LaunchGrid { programmatic: true, ..grid(operands, 256) }
}

// ---- cast_blockwise -----------------------------------------------------------------------------

/// Of `cast_blockwise`.
pub fn cast_blockwise(operands: &mut [CastOperand; 2], multiprocessors: u32) -> LaunchGrid {
    // The more rows a thread has the less each costs, as long as every multiprocessor has blocks.
    let tile_rows = |o: &CastOperand, most| if o.is_turned() || o.has(BLOCK_128X128) { 128 } else { most };
    let blocks = |most| operands.iter().map(|o| tiles_of(o, tile_rows(o, most))).sum::<u64>();
    let most = [64, 32].into_iter().find(|&most| blocks(most) >= 2 * u64::from(multiprocessors)).unwrap_or(16);
    for operand in operands.iter_mut() {
        operand.tile_rows = tile_rows(operand, most);
        operand.blocks = narrowed(tiles_of(operand, operand.tile_rows));
    }
    grid(operands, 256)
}

/// Scales of a `[rows, cols]` operand's codes as `cast_blockwise` writes them; of its transposed copy
/// with the two exchanged.
pub fn num_block_scales(rows: u32, cols: u32, is_square: bool) -> u64 {
    let blocks = u64::from(cols.div_ceil(128));
    if is_square { u64::from(rows.div_ceil(128)) * blocks.next_multiple_of(4) } else { blocks * u64::from(rows) }
}

#[cfg(test)]
#[path = "casts_tests.rs"]
mod tests;
