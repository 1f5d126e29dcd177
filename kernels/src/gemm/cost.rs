//! What a GEMM of ours is expected to take on an H200: takes how the work is cut, gives microseconds. Only the order of
//! kernels matters: on another GPU, and where something else runs beside them, all of them change together.
//!
//! A wave is the tiles that the multiprocessors work on at once, one each. Of every stage of k a tile takes what the
//! tensor cores take, and what it waits for operands: the more tiles of a wave there are, the longer, since all read
//! through the same L2; and the fewer of them share what they read, as where y is narrow, since that comes from memory.
//! Rows of x in BF16 whose length is no multiple of 128 bytes lie across its lines; those of codes are taken to begin
//! with one ([`crate::casts::pitch`]).
//! Fitted and judged by `benches/choice.py`; docs/engineering/kernels.md has what the choice loses.

/// How a product is cut.
#[derive(Clone, Copy, Debug)]
pub(super) struct Cut {
    pub m: u32,
    pub n: u32,
    pub k: u32,
    /// Blocks, each with a tile or its part of one.
    pub units: u32,
    /// Of k, a block.
    pub stages: u32,
    /// Of a tile.
    pub rows: u32,
    pub columns: u32,
    /// Of an element of x: 1, 2. Of w it is 1.
    pub x_bytes: u32,
    /// Tiles down that are walked together.
    pub group: u32,
    pub multiprocessors: u32,
}

/// Of one kernel.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Cost {
    /// The products of a stage.
    pub stage_us: f64,
    /// A kilobyte of operands of a stage, for every thousand tiles of the wave.
    pub traffic_us: f64,
    /// A megabyte of operands that a wave reads in a stage, each counted once.
    pub distinct_us: f64,
    /// Everything of a tile that does not grow with k.
    pub tile_us: f64,
    pub launch_us: f64,
}

/// What is read from a row that does not begin with a line of the L2, beyond what is needed.
const OF_LINES: f64 = 0.058;
/// A megabyte of y.
const STORE_US: f64 = 0.053;

impl Cut {
    /// Tiles that a whole wave has down and across, and blocks that share each.
    fn wave(&self) -> [u32; 3] {
        let (down, across) = (self.m.div_ceil(self.rows), self.n.div_ceil(self.columns));
        let splits = (self.units / (down * across)).max(1);
        let tiles = self.units.min(self.multiprocessors) / splits;
        let high = down.min(self.group);
        let wide = across.min(tiles.div_ceil(high).max(1));
        [if wide == across { down.min(tiles.div_ceil(wide)) } else { high }, wide, splits]
    }
}

impl Cost {
    pub const fn new([stage_us, traffic_us, distinct_us, tile_us, launch_us]: [f64; 5]) -> Self {
        Self { stage_us, traffic_us, distinct_us, tile_us, launch_us }
    }

    pub fn expected_us(&self, cut: Cut) -> f64 {
        let Cut { m, n, k, units, stages, rows, columns, x_bytes, multiprocessors, .. } = cut;
        let of_x = if x_bytes > 1 && !(k * x_bytes).is_multiple_of(128) { 1.0 + OF_LINES } else { 1.0 };
        let (x_kb, w_kb) = (0.128 * f64::from(rows * x_bytes) * of_x, 0.128 * f64::from(columns));
        let [high, wide, splits] = cut.wave();
        let distinct_mb = f64::from(splits) / 1e3 * (f64::from(high) * x_kb + f64::from(wide) * w_kb);
        let wave = |tiles: u32| {
            let waits = f64::from(tiles) / 1e3 * (x_kb + w_kb) * self.traffic_us + distinct_mb * self.distinct_us;
            f64::from(stages) * (self.stage_us + waits) + self.tile_us
        };
        let left = units % multiprocessors;
        let waves =
            f64::from(units / multiprocessors) * wave(multiprocessors) + if left > 0 { wave(left) } else { 0.0 };
        waves + 2e-6 * f64::from(m) * f64::from(n) * STORE_US + self.launch_us
    }
}

/// What `cast_e4m3_static` of `[rows, cols]` is expected to take, in front of a GEMM that reads its codes.
pub fn static_cast_us(rows: u32, cols: u32) -> f64 {
    const LAUNCH_US: f64 = 3.077;
    /// A megabyte of BF16 read and codes written.
    const TRAFFIC_US: f64 = 0.280;
    LAUNCH_US + 3e-6 * f64::from(rows) * f64::from(cols) * TRAFFIC_US
}
