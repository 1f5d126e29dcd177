//! Takes a plan's kernel, gives what export formats tell apart: how its operands are scaled and summed.

use crate::model::{Accumulation, Format, Gemm, Granularity, Kernel, KernelId};

/// From high precision to the finest scales.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Scheme {
    High,
    /// One scale for x, known beforehand, and one for the weight: no finer than one of each by its own amax.
    Delayed,
    Tensor,
    /// One scale for the gradient, known beforehand, in E4M3: what targets have tensorwise is E5M2, which has a bit less.
    DelayedGradient,
    /// One scale for x, known beforehand, and one a row of the weight. No target has it.
    Static,
    Row,
    Block,
}

impl Scheme {
    pub const FP8: [Self; 3] = [Self::Tensor, Self::Row, Self::Block];

    /// As sentences and settings call it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::High => "high precision",
            Self::Tensor => "tensorwise",
            Self::Delayed | Self::DelayedGradient => "delayed",
            Self::Static => "static",
            Self::Row => "rowwise",
            Self::Block => "blockwise",
        }
    }

    pub fn is_fp8(self) -> bool {
        self != Self::High
    }

    /// This, or the next finer one that a target has, or high precision: never a coarser one, which nobody probed.
    pub fn nearest(self, has: &[Self]) -> Self {
        let finer = Self::FP8.into_iter().filter(|scheme| self.is_fp8() && *scheme >= self);
        finer.into_iter().find(|scheme| has.contains(scheme)).unwrap_or(Self::High)
    }
}

/// What the plan wants of one GEMM.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Wanted {
    pub scheme: Scheme,
    pub power_of_two: bool,
    pub fast: bool,
    pub is_tf32: bool,
    /// LoKA's own GEMM.
    pub is_own: bool,
    /// BlockNorm and hard swish are inside the kernel.
    pub has_tail: bool,
    /// The right operand has one scale where the left one has one a row.
    pub coarse_weight: bool,
}

impl Wanted {
    /// `None`: the kernel is not in the catalogue.
    pub fn of(name: &KernelId, gemm: Gemm) -> Option<Self> {
        name.known().map(|kernel| Self::of_kernel(kernel, gemm))
    }

    /// The same GEMM left to the model's own precision.
    pub fn in_high_precision(self) -> Self {
        Self { scheme: Scheme::High, is_own: false, has_tail: false, coarse_weight: false, fast: false, ..self }
    }

    pub fn of_kernel(kernel: &Kernel, gemm: Gemm) -> Self {
        let numerics = kernel.numerics(gemm);
        let scheme = match numerics.a.granularity {
            Granularity::None => Scheme::High,
            Granularity::Tensor => Scheme::Tensor,
            Granularity::Row => Scheme::Row,
            Granularity::Block1x128 | Granularity::Block128x128 => Scheme::Block,
            Granularity::Static if kernel.is_delayed() && gemm == Gemm::Fprop => Scheme::Delayed,
            Granularity::Static if kernel.is_delayed() => Scheme::DelayedGradient,
            Granularity::Static => Scheme::Static,
        };
        Self {
            scheme,
            power_of_two: numerics.a.power_of_two,
            fast: numerics.accumulation == Accumulation::Fast,
            is_tf32: numerics.a.format == Format::Tf32,
            is_own: kernel.is_own(),
            has_tail: kernel.has_tail(),
            coarse_weight: scheme == Scheme::Row && numerics.b.granularity == Granularity::Tensor,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn schemes_of_the_catalogue() {
        let of = |name: &str, gemm| Wanted::of(&KernelId::new(name), gemm).unwrap();
        assert_eq!(of("cublaslt/bf16", Gemm::Wgrad).scheme, Scheme::High);
        assert!(of("cublaslt/tf32", Gemm::Fprop).is_tf32);
        assert_eq!(of("torchao/rowwise_with_gw_hp", Gemm::Wgrad).scheme, Scheme::High);
        assert!(of("torchao/rowwise_with_gw_hp", Gemm::Dgrad).coarse_weight);
        assert!(of("torchao/rowwise", Gemm::Fprop).fast && !of("torchao/rowwise", Gemm::Dgrad).fast);
        assert!(of("loka/fp8-rowwise", Gemm::Fprop).is_own && of("te/blockwise", Gemm::Fprop).power_of_two);
        assert_eq!(of("loka/fp8-static+fast", Gemm::Dgrad).scheme, Scheme::Static);
        assert_eq!(of("cublaslt/fp8-delayed", Gemm::Fprop).scheme, Scheme::Delayed);
        assert_eq!(of("cublaslt/fp8-delayed+fast", Gemm::Wgrad).scheme, Scheme::DelayedGradient);
        assert!(of("loka/fp8-block+fast", Gemm::Fprop).has_tail && !of("loka/fp8-static+fast", Gemm::Fprop).has_tail);
        assert_eq!(Wanted::of(&KernelId::new("x/y"), Gemm::Fprop), None);
    }

    #[test]
    fn never_coarser() {
        use Scheme::{Block, Delayed, DelayedGradient, High, Row, Static, Tensor};
        assert_eq!(Row.nearest(&[Tensor, Block]), Block);
        assert_eq!(Block.nearest(&[Tensor, Row]), High);
        assert_eq!(Tensor.nearest(&[Tensor, Block]), Tensor);
        assert_eq!(High.nearest(&[Block]), High);
        // Its weight has a scale a row, and so must what takes its place.
        assert_eq!(Static.nearest(&[Tensor, Row, Block]), Row);
        assert_eq!(Static.nearest(&[Tensor]), High);
        assert_eq!(Delayed.nearest(&[Tensor, Row]), Tensor);
        // Tensorwise gradients are E5M2.
        assert_eq!(DelayedGradient.nearest(&[Tensor, Block]), Block);
        assert_eq!(DelayedGradient.nearest(&[Tensor]), High);
    }
}
