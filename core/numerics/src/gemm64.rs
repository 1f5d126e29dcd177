//! The reference GEMM: FP32 operands, products and sums in FP64.

use pulp::{Arch, Simd, WithSimd};

use super::{
    panels::{Panels, Side},
    vectorized::vectorized,
};

/// Panels widened to FP64, same layout.
#[derive(Clone, Debug)]
pub struct Panels64 {
    pub side: Side,
    pub rows: usize,
    pub depth: usize,
    pub width: usize,
    pub data: Vec<f64>,
}

impl From<&Panels> for Panels64 {
    fn from(panels: &Panels) -> Self {
        let mut wide = Self::empty(panels);
        wide.widen(panels);
        wide
    }
}

impl Panels64 {
    /// Memory to widen into, with the layout of `like`.
    pub fn empty(like: &Panels) -> Self {
        Self { side: like.side, rows: 0, depth: 0, width: like.width, data: Vec::new() }
    }

    /// Takes the values of `panels`, keeping the memory.
    pub fn widen(&mut self, panels: &Panels) {
        (self.side, self.rows, self.depth, self.width) = (panels.side, panels.rows, panels.depth, panels.width);
        self.data.resize(panels.data.len(), 0.0);
        vectorized!((from: &'a [f32] = &panels.data, to: &'a mut [f64] = &mut self.data) -> () {
            for (to, from) in to.iter_mut().zip(from) {
                *to = f64::from(*from);
            }
        });
    }
}

/// `out[i, j] = sum_d a[i, d] b[j, d]`, all in FP64. `out` is `[a.rows, b.rows]`, row-major.
pub fn gemm_f64(a: &Panels64, b: &Panels64, out: &mut [f64]) {
    assert_eq!(a.depth, b.depth, "operands of different depth");
    assert!(a.side == Side::Left && b.side == Side::Right, "operands on the wrong side");
    assert_eq!(out.len(), a.rows * b.rows, "output of another size");
    Arch::new().dispatch(Product64 { a, b, out });
}

struct Product64<'a> {
    a: &'a Panels64,
    b: &'a Panels64,
    out: &'a mut [f64],
}

impl WithSimd for Product64<'_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) {
        if S::REGISTER_COUNT >= 32 { self.run::<S, 12, 6>(simd) } else { self.run::<S, 6, 3>(simd) }
    }
}

/// Depth of a stretch whose panels stay near: partial sums are added in FP64, so nothing is lost.
const STRETCH: usize = 512;

impl Product64<'_> {
    /// `MR`: width of a left panel. `HALF`: rows that a register tile takes of it, because an FP64
    /// tile is twice as wide in registers.
    #[inline(always)]
    fn run<S: Simd, const MR: usize, const HALF: usize>(self, simd: S) {
        let (width_a, width_b) = (self.a.width, self.b.width);
        let (depth, cols) = (self.a.depth, self.b.rows);
        self.out.fill(0.0);
        for first in (0..depth).step_by(STRETCH) {
            let last = (first + STRETCH).min(depth);
            for (pb, right) in self.b.data.chunks_exact(depth * width_b).enumerate() {
                let (right, _) = S::as_simd_f64s(&right[first * width_b..last * width_b]);
                let first_col = pb * width_b;
                let filled = width_b.min(cols - first_col);
                for (pa, left) in self.a.data.chunks_exact(depth * width_a).enumerate() {
                    let left = &left[first * width_a..last * width_a];
                    for half in 0..MR / HALF {
                        let tile = products::<S, MR, HALF>(simd, left, right, half * HALF);
                        for (r, lanes) in tile.iter().enumerate() {
                            let row = pa * width_a + half * HALF + r;
                            if row < self.a.rows {
                                let sums: &[f64] = pulp::bytemuck::cast_slice(lanes);
                                let start = row * cols + first_col;
                                let target = &mut self.out[start..start + filled];
                                target.iter_mut().zip(sums).for_each(|(to, sum)| *to += sum);
                            }
                        }
                    }
                }
            }
        }
    }
}

#[inline(always)]
fn products<S: Simd, const MR: usize, const HALF: usize>(
    simd: S,
    left: &[f64],
    right: &[S::f64s],
    first: usize,
) -> [[S::f64s; 4]; HALF] {
    let mut tile = [[simd.splat_f64s(0.0); 4]; HALF];
    let (left, _) = left.as_chunks::<MR>();
    let (right, _) = right.as_chunks::<4>();
    for (a, b) in left.iter().zip(right) {
        for r in 0..HALF {
            let a = simd.splat_f64s(a[first + r]);
            for v in 0..4 {
                tile[r][v] = simd.mul_add_e_f64s(a, b[v], tile[r][v]);
            }
        }
    }
    tile
}
