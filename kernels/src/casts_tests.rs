//! Geometry of the casts' launches.

use super::*;

const H200: u32 = 132;

fn operand(rows: u32, cols: u32, flags: u32) -> CastOperand {
    CastOperand { rows, cols, flags, ..CastOperand::default() }
}

fn turned(rows: u32, cols: u32) -> CastOperand {
    CastOperand { codes_t: 256, ..operand(rows, cols, 0) }
}

fn shapes() -> impl Iterator<Item = (u32, u32)> {
    let sizes = [1, 7, 16, 100, 256, 1000, 1024, 1032, 4096, 16384, 16392, 65536, 123_200, 200_000];
    sizes.into_iter().flat_map(move |rows| sizes.into_iter().map(move |cols| (rows, cols)))
}

#[test]
fn each_tile_of_codes_that_are_transposed_has_a_block() {
    let codes = |rows, cols| CastOperand { rows, cols, ..CastOperand::default() };
    let mut operands = [codes(65, 129), codes(64, 128)];
    assert_eq!(transpose_codes(&mut operands).blocks, [5, 1, 1]);
    assert_eq!(operands.map(|operand| operand.blocks), [4, 1]);
    assert!(transpose_codes(&mut [codes(0, 128), CastOperand::default()]).is_empty());
}

#[test]
fn the_static_cast_fills_the_gpu_and_no_more() {
    for (count, blocks) in [(8192 * 4096, 1056), (8193, 2), (0, 0)] {
        assert_eq!(cast_e4m3_static(count, H200), LaunchGrid::line(blocks, 256), "{count}");
    }
    assert!(cast_e4m3_static(0, H200).is_empty());
}

#[test]
fn each_matrix_cast_by_a_known_scale_has_its_own_blocks() {
    let of = |rows, cols, codes_t| StaticOperand { rows, cols, codes_t, ..StaticOperand::default() };
    let mut operands = StaticOperands { of: [of(48, 520, 256), of(33, 8, 0), of(0, 0, 0), of(0, 0, 0)], first: [0; 4] };
    let grid = cast_static_turned(&mut operands).expect("it runs");
    assert_eq!((grid.blocks, operands.first), ([8, 1, 1], [0, 6, 8, 8]));
    for wrong in [of(33, 8, 256), of(16, 12, 0), of(u32::MAX, u32::MAX - 7, 0)] {
        operands.of[1] = wrong;
        assert_eq!(cast_static_turned(&mut operands), None, "{wrong:?}");
    }
    assert!(cast_static_turned(&mut StaticOperands::default()).expect("nothing to do").is_empty());
}

#[test]
fn rows_are_divided_so_that_they_stay_in_registers() {
    for (rows, cols, blocks, threads, cluster) in [
        (2048, 256, 256, 256, 1),
        (2048, 64, 64, 256, 1),
        (2048, 1024, 256, 256, 1),
        (2048, 1032, 2048, 64, 1),
        (8192, 4096, 8192, 128, 1),
        (100, 16384, 100, 512, 1),
        (100, 16392, 100, 288, 1),
        (100, 17280, 100, 288, 1),
        (100, 61440, 100, 960, 1),
        (100, 123_200, 200, 992, 2),
        (100, 524_288, 800, 1024, 8),
        (100, 524_296, 100, 1024, 1),
        (100, 4100, 100, 160, 1),
    ] {
        let mut operands = [operand(rows, cols, ROW_CAST), CastOperand::default()];
        let found = cast_rowwise(&mut operands, H200, true);
        assert_eq!(found, LaunchGrid { cluster, ..LaunchGrid::line(blocks, threads) }, "{rows} x {cols}");
        assert_eq!((operands[0].blocks, operands[1].blocks), (blocks, 0));
        assert_eq!(cast_rowwise(&mut operands, H200, false).cluster, 1);
    }
    assert!(cast_rowwise(&mut [CastOperand::default(); 2], H200, true).is_empty());
}

#[test]
fn every_row_has_a_block_and_clusters_do_not_straddle() {
    for (rows, cols) in shapes() {
        let mut operands = [operand(rows, cols, ROW_CAST), operand(cols.min(5000), rows, COLUMN_AMAX)];
        let found = cast_rowwise(&mut operands, H200, true);
        let [a, b] = operands;
        assert!(found.threads.is_multiple_of(32) && (64..=MOST_THREADS).contains(&found.threads));
        assert!(a.blocks.is_multiple_of(found.cluster) && b.blocks.is_multiple_of(found.cluster));
        if cols > SHORT_ROW {
            let parts = if a.tile_rows == MOST_KEPT { found.cluster } else { 1 };
            assert_eq!(a.blocks, (rows * parts).next_multiple_of(found.cluster));
            assert_eq!(a.tile_rows != 0, cols.is_multiple_of(8), "{rows} x {cols}");
            let share = cols.div_ceil(8).div_ceil(parts).next_multiple_of(16);
            assert!(share <= found.threads * a.tile_rows || a.tile_rows == 0, "{rows} x {cols}");
        }
        assert!(b.tiles * b.tile_rows >= b.rows && (b.tiles - 1) * b.tile_rows < b.rows);
        assert!(b.blocks >= b.tiles * b.cols.div_ceil(256));
    }
}

#[test]
fn few_blocks_fetch_ahead() {
    for (cols, ahead) in [(16384, 0), (17280, 0), (30720, 264), (61440, 132), (123_200, 66)] {
        let mut operands = [operand(2048, cols, ROW_CAST), CastOperand::default()];
        cast_rowwise(&mut operands, H200, true);
        assert_eq!(operands[0].tiles, ahead, "{cols}");
    }
}

#[test]
fn rows_of_different_lengths_share_a_launch() {
    let mut operands = [operand(100, 123_200, ROW_CAST), operand(100, 4096, ROW_CAST)];
    assert_eq!(cast_rowwise(&mut operands, H200, true).cluster, 2);
    assert_eq!((operands[0].tile_rows, operands[1].tile_rows), (MOST_KEPT, KEPT));
    assert_eq!((operands[0].blocks, operands[1].blocks), (200, 100));
    cast_rowwise(&mut operands, H200, false);
    assert_eq!((operands[0].tile_rows, operands[0].blocks), (0, 100));
    // Rows that go element by element do not count for the threads of the others.
    let mut operands = [operand(100, 30_001, ROW_CAST), operand(100, 4096, ROW_CAST)];
    assert_eq!(cast_rowwise(&mut operands, H200, true).threads, 128);
    operands[1].x = 8;
    cast_rowwise(&mut operands, H200, true);
    assert_eq!((operands[0].tile_rows, operands[1].tile_rows), (0, 0));
}

#[test]
fn partials_fit() {
    for (rows, cols) in shapes() {
        for other in [CastOperand::default(), operand(4096, 4096, COLUMN_AMAX), operand(64, 2048, ROW_CAST)] {
            let bytes = partials_bytes(rows, cols, H200);
            let mut operands = [operand(rows, cols, COLUMN_AMAX), other];
            cast_rowwise(&mut operands, H200, true);
            assert!(u64::from(operands[0].tiles) * u64::from(cols.next_multiple_of(256)) * 2 <= bytes);
            let grid = amax_tensor(&mut operands, H200);
            assert!(u64::from(operands[0].tiles) * 4 <= bytes && operands[0].tiles > 0);
            assert_eq!(grid.blocks[0], operands[0].blocks + operands[1].blocks);
        }
    }
}

#[test]
fn strips_are_whole_and_tiles_all_have_a_block() {
    for (rows, cols) in shapes() {
        let mut operands = [operand(rows, cols, COLUMN_AMAX), operand(cols, rows, COLUMN_AMAX)];
        cast_rowwise(&mut operands, H200, true);
        let found = cast_columnwise(&mut operands, H200);
        assert!([128, 256].contains(&found.threads));
        for o in operands {
            assert!(o.blocks >= o.cols.div_ceil(128) && o.blocks.is_multiple_of(o.cols.div_ceil(128)));
        }
    }
}

#[test]
fn small_operands_are_spread() {
    let mut operands = [turned(2048, 256), CastOperand::default()];
    assert_eq!(cast_tensorwise(&mut operands, H200), LaunchGrid { programmatic: true, ..LaunchGrid::line(128, 128) });
    assert_eq!(cast_blockwise(&mut operands, H200), LaunchGrid::line(32, 256));
    let mut operands = [operand(2048, 256, 0), operand(256, 256, 0)];
    assert_eq!(cast_blockwise(&mut operands, H200), LaunchGrid::line(256 + 32, 256));
    assert_eq!((operands[0].tile_rows, operands[1].blocks), (16, 32));
    assert_eq!(amax_tensor(&mut operands, H200), LaunchGrid::line(128 + 16, 256));
    assert_eq!(cast_tensorwise(&mut operands, H200).blocks, [256 + 32, 1, 1]);
    let mut operands = [operand(2048, 2048, 0), operand(2048, 2048, BLOCK_128X128)];
    assert_eq!(cast_blockwise(&mut operands, H200), LaunchGrid::line(512 + 256, 256));
    let mut operands = [operand(2048, 1024, 0), CastOperand::default()];
    assert_eq!(cast_blockwise(&mut operands, H200), LaunchGrid::line(512, 256));
}

#[test]
fn large_operands_fill_the_gpu_and_no_more() {
    let mut operands = [turned(65536, 4096), turned(4096, 4096)];
    assert_eq!(cast_tensorwise(&mut operands, H200).threads, 256);
    assert_eq!((operands[0].blocks, operands[1].blocks), (496, 31));
    amax_tensor(&mut operands, H200);
    assert_eq!((operands[0].tiles, operands[1].tiles), (496, 31));
    assert_eq!(cast_blockwise(&mut operands, H200), LaunchGrid::line(512 * 32 + 32 * 32, 256));
}

#[test]
fn flags_agree_with_the_header() {
    for (name, flag) in [
        ("POWER_OF_TWO", POWER_OF_TWO),
        ("AS_E5M2", AS_E5M2),
        ("BLOCK_128X128", BLOCK_128X128),
        ("ROW_CAST", ROW_CAST),
        ("COLUMN_AMAX", COLUMN_AMAX),
    ] {
        assert!(CAST.text.contains(&format!("static constexpr u32 {name} = {flag};")), "{name}");
    }
}

#[test]
fn block_scales_are_counted_with_their_padding() {
    assert_eq!(num_block_scales(300, 200, false), 2 * 300);
    assert_eq!(num_block_scales(300, 200, true), 3 * 4);
}
