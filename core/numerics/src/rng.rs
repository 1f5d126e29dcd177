//! Counter-based random numbers: Philox4x32-10 (Salmon et al., SC'11) and standard normals.
//!
//! A draw's numbers depend on (seed, stream, index) alone, so they are the same on any number of
//! threads, in any order, and on a GPU that runs the same generator.

use super::vectorized::vectorized;

const M0: u32 = 0xD251_1F53;
const M1: u32 = 0xCD9E_8D57;
const W0: u32 = 0x9E37_79B9;
const W1: u32 = 0xBB67_AE85;

/// Blocks generated side by side, so that rounds run along vectors.
const LANES: usize = 16;

/// One Philox4x32-10 block.
#[inline(always)]
pub fn philox4x32(mut counter: [u32; 4], mut key: [u32; 2]) -> [u32; 4] {
    for _ in 0..10 {
        let p0 = u64::from(M0) * u64::from(counter[0]);
        let p1 = u64::from(M1) * u64::from(counter[2]);
        counter =
            [(p1 >> 32) as u32 ^ counter[1] ^ key[0], p1 as u32, (p0 >> 32) as u32 ^ counter[3] ^ key[1], p0 as u32];
        key = [key[0].wrapping_add(W0), key[1].wrapping_add(W1)];
    }
    counter
}

/// Where a run of normals starts: all that another device needs to make the same ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Normals {
    pub key: [u32; 2],
    pub stream: u64,
    pub first_block: u64,
}

/// A sequence of random numbers named by a seed and a stream. Cloning repeats it.
#[derive(Clone, Debug)]
pub struct Rng {
    key: [u32; 2],
    stream: u64,
    next_block: u64,
}

impl Rng {
    /// `names`: whatever tells this stream from others (site, GEMM, draw, operand), mixed by FNV-1a
    /// so that neighbouring names give unrelated streams.
    pub fn new(seed: u64, names: &[&[u8]]) -> Self {
        let mut hash = 0xCBF2_9CE4_8422_2325u64;
        for name in names {
            for byte in name.iter().chain(&[0xFF]) {
                hash = (hash ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01B3);
            }
        }
        Self { key: [seed as u32, (seed >> 32) as u32], stream: hash, next_block: 0 }
    }

    /// Leaves the next `count` normals to someone else.
    pub fn reserve_normals(&mut self, count: usize) -> Normals {
        let first_block = self.next_block;
        self.next_block += count.div_ceil(4 * LANES) as u64 * LANES as u64;
        Normals { key: self.key, stream: self.stream, first_block }
    }

    /// Fills with independent standard normals (Box-Muller in FP32; tails to 6.7 sigma).
    pub fn fill_normal(&mut self, values: &mut [f32]) {
        let Normals { key, stream, first_block: first } = self.reserve_normals(values.len());
        vectorized!((values: &'a mut [f32] = values, first: u64 = first, stream: u64 = stream, key: [u32; 2] = key) -> () {
            fill_normal(values, first, stream, key);
        });
    }

    /// Uniform in (0, 1), 32 random bits.
    pub fn uniform(&mut self) -> f64 {
        let block = self.block();
        (f64::from(block[0]) + 0.5) / 4_294_967_296.0
    }

    /// Uniform in `0..bound` (bias below 2^-32 times bound).
    pub fn below(&mut self, bound: usize) -> usize {
        let block = self.block();
        ((u128::from(u64::from(block[1]) << 32 | u64::from(block[0])) * bound as u128) >> 64) as usize
    }

    /// `count` different indices out of `0..of`, ascending; all of them when `count >= of`.
    pub fn subset(&mut self, count: usize, of: usize) -> Vec<usize> {
        if count >= of {
            return (0..of).collect();
        }
        // Floyd's algorithm: one draw an element, whatever `of` is.
        let mut chosen = std::collections::BTreeSet::new();
        for last in of - count..of {
            let pick = self.below(last + 1);
            if !chosen.insert(pick) {
                chosen.insert(last);
            }
        }
        chosen.into_iter().collect()
    }

    fn block(&mut self) -> [u32; 4] {
        let block = self.next_block;
        self.next_block += 1;
        let counter = [block as u32, (block >> 32) as u32, self.stream as u32, (self.stream >> 32) as u32];
        philox4x32(counter, self.key)
    }
}

#[inline(always)]
fn fill_normal(values: &mut [f32], first: u64, stream: u64, key: [u32; 2]) {
    let mut chunks = values.chunks_exact_mut(4 * LANES);
    let mut block = first;
    for chunk in &mut chunks {
        let normals = normals(block, stream, key);
        chunk.copy_from_slice(normals.as_flattened());
        block += LANES as u64;
    }
    let rest = chunks.into_remainder();
    if !rest.is_empty() {
        let normals = normals(block, stream, key);
        rest.copy_from_slice(&normals.as_flattened()[..rest.len()]);
    }
}

/// 64 normals from 16 blocks.
#[inline(always)]
#[expect(clippy::needless_range_loop, reason = "lanes side by side are what the vectoriser looks for")]
fn normals(block: u64, stream: u64, key: [u32; 2]) -> [[f32; LANES]; 4] {
    // 32-bit words in 64-bit lanes: a product then needs no shuffle on either side.
    const LOW: u64 = 0xFFFF_FFFF;
    let mut wide = [[0u64; LANES]; 4];
    for lane in 0..LANES {
        let index = block + lane as u64;
        wide[0][lane] = index & LOW;
        wide[1][lane] = index >> 32;
        wide[2][lane] = stream & LOW;
        wide[3][lane] = stream >> 32;
    }
    let mut key = key;
    for _ in 0..10 {
        for lane in 0..LANES {
            let p0 = u64::from(M0) * (wide[0][lane] & LOW);
            let p1 = u64::from(M1) * (wide[2][lane] & LOW);
            let one = (p1 >> 32) ^ wide[1][lane] ^ u64::from(key[0]);
            let three = (p0 >> 32) ^ wide[3][lane] ^ u64::from(key[1]);
            wide[0][lane] = one;
            wide[1][lane] = p1 & LOW;
            wide[2][lane] = three;
            wide[3][lane] = p0 & LOW;
        }
        key = [key[0].wrapping_add(W0), key[1].wrapping_add(W1)];
    }
    let mut counter = [[0u32; LANES]; 4];
    for (narrow, wide) in counter.as_flattened_mut().iter_mut().zip(wide.as_flattened()) {
        *narrow = *wide as u32;
    }
    let mut out = [[0f32; LANES]; 4];
    for pair in 0..2 {
        for lane in 0..LANES {
            let (sin, cos) = sin_cos_turn(counter[2 * pair + 1][lane]);
            let radius = (-2.0 * ln_uniform(counter[2 * pair][lane])).sqrt();
            out[2 * pair][lane] = radius * cos;
            out[2 * pair + 1][lane] = radius * sin;
        }
    }
    out
}

/// ln((bits + 1) / 2^32), relative error about 1e-6. Cephes `logf`'s polynomial.
#[inline(always)]
fn ln_uniform(bits: u32) -> f32 {
    // In FP32 the largest values round up to exactly 1, whose logarithm is 0: a radius of 0 is fine.
    let uniform = (bits as f32 + 1.0) * 2.328_306_4e-10;
    let raw = uniform.to_bits();
    // Mantissa in [sqrt(1/2), sqrt(2)), so that the polynomial's argument stays small.
    let shifted = raw.wrapping_add(0x3F80_0000 - 0x3F35_04F3);
    let exponent = (shifted >> 23) as i32 - 127;
    let m = f32::from_bits((shifted & 0x7F_FFFF) + 0x3F35_04F3) - 1.0;
    let mut p = 7.037_683_6e-2f32;
    for c in [
        -1.151_461e-1,
        1.167_699_9e-1,
        -1.242_014_1e-1,
        1.424_932_3e-1,
        -1.666_805_7e-1,
        2.000_071_4e-1,
        -2.499_999_4e-1,
        3.333_333e-1,
    ] {
        p = p * m + c;
    }
    let z = m * m;
    exponent as f32 * std::f32::consts::LN_2 + (m - 0.5 * z + z * m * p)
}

/// sine and cosine of `bits / 2^32` turns: the top two bits pick the quadrant.
#[inline(always)]
fn sin_cos_turn(bits: u32) -> (f32, f32) {
    // Within a quadrant, an angle in [-pi/4, pi/4).
    let quadrant = bits.wrapping_add(0x2000_0000) >> 30;
    let offset = bits.wrapping_sub(quadrant << 30) as i32;
    let t = offset as f32 * (std::f32::consts::TAU / 4_294_967_296.0);
    let t2 = t * t;
    let sin = t + t * t2 * (-1.666_665_5e-1 + t2 * (8.332_161e-3 - t2 * 1.951_529_6e-4));
    let cos = 1.0 - 0.5 * t2 + t2 * t2 * (4.166_664_6e-2 + t2 * (-1.388_731_6e-3 + t2 * 2.443_315_7e-5));
    let (s, c) = if quadrant & 1 == 0 { (sin, cos) } else { (cos, -sin) };
    if quadrant & 2 == 0 { (s, c) } else { (-s, -c) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn philox_known_answers() {
        // Random123's kat_vectors.
        assert_eq!(philox4x32([0; 4], [0; 2]), [0x6627_e8d5, 0xe169_c58d, 0xbc57_ac4c, 0x9b00_dbd8]);
        assert_eq!(philox4x32([u32::MAX; 4], [u32::MAX; 2]), [0x408f_276d, 0x41c8_3b0e, 0xa20b_c7c6, 0x6d54_51fd]);
    }

    #[test]
    fn normals_have_the_right_moments_and_tails() {
        let mut values = vec![0f32; 1 << 20];
        Rng::new(7, &[b"moments"]).fill_normal(&mut values);
        let n = values.len() as f64;
        let mean = values.iter().map(|v| f64::from(*v)).sum::<f64>() / n;
        let moment = |p: i32| values.iter().map(|v| f64::from(*v).powi(p)).sum::<f64>() / n;
        assert!(mean.abs() < 0.004, "{mean}");
        assert!((moment(2) - 1.0).abs() < 0.006);
        assert!(moment(3).abs() < 0.015);
        assert!((moment(4) - 3.0).abs() < 0.05);
        let beyond_3 = values.iter().filter(|v| v.abs() > 3.0).count() as f64 / n;
        assert!((beyond_3 / 0.0026998 - 1.0).abs() < 0.08, "{beyond_3}");
    }

    #[test]
    fn elementary_functions_are_close() {
        for i in 0..100_000u32 {
            let bits = i.wrapping_mul(42_949) ^ i;
            let exact = ((f64::from(bits) + 1.0) / 4_294_967_296.0).ln();
            assert!((f64::from(ln_uniform(bits)) - exact).abs() < 2e-6 * exact.abs().max(0.1), "{bits}");
            let angle = f64::from(bits) / 4_294_967_296.0 * std::f64::consts::TAU;
            let (s, c) = sin_cos_turn(bits);
            assert!((f64::from(s) - angle.sin()).abs() < 1e-6, "{bits}");
            assert!((f64::from(c) - angle.cos()).abs() < 1e-6, "{bits}");
        }
    }

    #[test]
    fn subsets_are_sorted_and_distinct() {
        let mut rng = Rng::new(1, &[b"subset"]);
        let subset = rng.subset(64, 512);
        assert_eq!(subset.len(), 64);
        assert!(subset.windows(2).all(|pair| pair[0] < pair[1]));
        assert_eq!(rng.subset(9, 4), vec![0, 1, 2, 3]);
    }
}
