//! What a recipe fixes: types, scale granularity and accumulation of one GEMM, and so its error.

use std::fmt;

use serde::{Deserialize, Serialize};

/// An element type on the way into a GEMM.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Format {
    F32,
    /// 10 mantissa bits, FP32's exponent; round to nearest even.
    Tf32,
    Bf16,
    E4m3,
    E5m2,
}

impl Format {
    /// As the field writes it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::F32 => "FP32",
            Self::Tf32 => "TF32",
            Self::Bf16 => "BF16",
            Self::E4m3 => "E4M3",
            Self::E5m2 => "E5M2",
        }
    }
}

/// How many elements share a scale. Rows are rows of the operand *as the GEMM reads it*, with the
/// reduced dimension last; blocks of 128 run along the reduced dimension.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Granularity {
    /// No scale: the format's range is enough.
    None,
    Tensor,
    Row,
    Block1x128,
    Block128x128,
    /// One for the tensor, known before the tensor is: [`StaticScale`].
    Static,
}

/// The scale of a [`Granularity::Static`] operand: a code stands for code * scale, and a value beyond 448 * scale
/// saturates.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct StaticScale {
    /// A power of two, so that scaling itself is exact.
    #[serde(with = "wide")]
    pub scale: f32,
    /// Probability that at least one element of a step's whole tensor saturates.
    pub saturation: f64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct OperandCast {
    pub format: Format,
    pub granularity: Granularity,
    /// The scale is rounded to a power of two so that scaling itself is exact.
    pub power_of_two: bool,
}

impl OperandCast {
    pub const fn unscaled(format: Format) -> Self {
        Self { format, granularity: Granularity::None, power_of_two: false }
    }

    pub const fn scaled(format: Format, granularity: Granularity) -> Self {
        Self { format, granularity, power_of_two: false }
    }

    pub const fn scaled_pow2(format: Format, granularity: Granularity) -> Self {
        Self { format, granularity, power_of_two: true }
    }
}

/// In a text as all of its digits: the few that tell an FP32 apart are no power of two to a reader in FP64.
mod wide {
    use serde::{Deserialize as _, Deserializer, Serializer};

    pub fn serialize<S: Serializer>(scale: &f32, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_f64(f64::from(*scale))
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<f32, D::Error> {
        f64::deserialize(from).map(|scale| scale as f32)
    }
}

/// `2^-4, no step saturates`, `2^-7, a step in 2,700 saturates`.
impl fmt::Display for StaticScale {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "2^{:.0}, ", self.scale.log2())?;
        match self.saturation {
            never if never <= 0.0 => f.write_str("no step saturates"),
            // Tails so far out are a model's word: no more digits than that.
            rare if rare < 1e-6 => f.write_str("less than a step in a million saturates"),
            share => write!(f, "a step in {} saturates", grouped((1.0 / share).round())),
        }
    }
}

/// Of at most a million: a comma before the last three digits.
fn grouped(count: f64) -> String {
    if count < 1000.0 { format!("{count}") } else { format!("{},{:03}", (count / 1000.0).floor(), count % 1000.0) }
}

/// How the tensor core sums along the reduced dimension.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Accumulation {
    /// FP32 throughout.
    Fp32,
    /// 13 bits below the largest of 32 products and the sum, promoted to FP32 every 128 along the reduced
    /// dimension.
    Promoted,
    /// The same from beginning to end.
    Fast,
}

/// All that decides a GEMM's error. `a` is the left operand (x, dy, dy^T), `b` the right one (W, W, x).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct GemmNumerics {
    pub a: OperandCast,
    pub b: OperandCast,
    pub accumulation: Accumulation,
    /// The type that the GEMM stores.
    pub output: Format,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_scale_is_written_in_full() {
        let known = StaticScale { scale: 2f32.powi(-13), saturation: 0.0 };
        let text = serde_json::to_string(&known).unwrap();
        assert_eq!(text, r#"{"scale":0.0001220703125,"saturation":0.0}"#);
        assert_eq!(serde_json::from_str::<StaticScale>(&text).unwrap(), known);
        let bytes = postcard::to_allocvec(&known).unwrap();
        assert_eq!(postcard::from_bytes::<StaticScale>(&bytes).unwrap(), known);
    }

    #[test]
    fn a_scale_in_words() {
        let words = |scale, saturation| StaticScale { scale, saturation }.to_string();
        assert_eq!(words(0.0625, 0.0), "2^-4, no step saturates");
        assert_eq!(words(8.0, 3.7e-4), "2^3, a step in 2,703 saturates");
        assert_eq!(words(1.0, 1e-3), "2^0, a step in 1,000 saturates");
        assert_eq!(words(1.0, 0.25), "2^0, a step in 4 saturates");
        assert_eq!(words(0.5, 2.6e-9), "2^-1, less than a step in a million saturates");
    }
}
