//! The kernels that LoKA knows: `library/recipe`, the numerics of each in every direction, and what
//! shapes the hardware or the library refuses.

use std::{
    cmp::Ordering,
    fmt,
    sync::{Arc, LazyLock},
};

use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::{Accumulation, Format, Gemm, GemmNumerics, GemmShape, Granularity, OperandCast};

/// `library/recipe`, e.g. `cublaslt/fp8-rowwise+fast`. Cheap to clone and to compare; sorts by name.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct KernelId(KernelName);

/// A kernel of the catalogue is its number there: every view asks every row which kernel it is of and whether that is in
/// low precision, and neither is to be a walk to a name somewhere in memory, let alone a look-up by it.
#[derive(Clone, PartialEq, Eq, Hash)]
enum KernelName {
    Known(u8),
    /// Never the name of one that is known: so two ids are equal where their names are.
    Other(Arc<str>),
}

impl KernelId {
    pub fn new(name: &str) -> Self {
        Self(number(name).map_or_else(|| KernelName::Other(name.into()), KernelName::Known))
    }

    pub fn as_str(&self) -> &str {
        match &self.0 {
            KernelName::Known(number) => CATALOGUE[usize::from(*number)].name,
            KernelName::Other(name) => name,
        }
    }

    /// Its entry in the catalogue.
    pub fn known(&self) -> Option<&'static Kernel> {
        self.number().map(|number| &CATALOGUE[number])
    }

    /// Its place in the catalogue, for tables by kernel.
    pub fn number(&self) -> Option<usize> {
        match self.0 {
            KernelName::Known(number) => Some(usize::from(number)),
            KernelName::Other(_) => None,
        }
    }

    pub fn library(&self) -> &str {
        self.as_str().split_once('/').map_or(self.as_str(), |(library, _)| library)
    }

    pub fn recipe(&self) -> &str {
        self.as_str().split_once('/').map_or("", |(_, recipe)| recipe)
    }

    /// How its operands are cast: kernels of one such name differ in how they accumulate alone.
    pub fn casts(&self) -> &str {
        self.as_str().strip_suffix("+fast").unwrap_or(self.as_str())
    }

    /// In the catalogue, and narrower than BF16. A name that nobody knows is neither high nor low.
    pub fn is_low_precision(&self) -> bool {
        self.known().is_some_and(|kernel| !kernel.high_precision())
    }
}

/// A copy of the text is kept only where the catalogue has no such kernel.
impl From<&Arc<str>> for KernelId {
    fn from(name: &Arc<str>) -> Self {
        Self(number(name).map_or_else(|| KernelName::Other(name.clone()), KernelName::Known))
    }
}

impl Ord for KernelId {
    fn cmp(&self, other: &Self) -> Ordering {
        if self == other { Ordering::Equal } else { self.as_str().cmp(other.as_str()) }
    }
}

impl PartialOrd for KernelId {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl fmt::Debug for KernelId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("KernelId").field(&self.as_str()).finish()
    }
}

impl Serialize for KernelId {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.as_str())
    }
}

impl<'de> Deserialize<'de> for KernelId {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Arc::<str>::deserialize(deserializer).map(|name| Self::from(&name))
    }
}

impl fmt::Display for KernelId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// Columns that share one mean square in [`Kernel::has_tail`] kernels: a tile of the output is as wide.
pub const NORM_BLOCK: usize = 256;

/// Features from which on they are padded: of fewer, such as those of a head of one output, FP8 would multiply mostly zeros.
pub const NARROWEST: usize = 16;

/// Multiples that BF16's rows want, in elements, and elements of a weight from which on they are given them.
pub(super) const BF16_MULTIPLE: usize = 8;
pub(super) const BF16_LARGE: usize = 1 << 16;

/// The widths that `loka.apply` gives a linear of k inputs and n outputs whose three GEMMs stay in BF16; `None` where it
/// leaves them. Of rows that are no multiples of 16 bytes cuBLAS's GEMMs take up to five times as long, and torch.compile
/// pads some of them, not always the same ones (docs/engineering/kernels.md). As in python/loka/kernels/padding.py.
pub fn padded_in_bf16(k: usize, n: usize) -> Option<(usize, usize)> {
    let is_odd = !(k.is_multiple_of(BF16_MULTIPLE) && n.is_multiple_of(BF16_MULTIPLE));
    let is_worth = k.min(n) >= NARROWEST && k.saturating_mul(n) >= BF16_LARGE;
    let whole = |size: usize| size.checked_next_multiple_of(BF16_MULTIPLE);
    (is_odd && is_worth).then_some((whole(k)?, whole(n)?))
}

/// The scheme behind a recipe's name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Scheme {
    Tf32,
    Bf16,
    Tensorwise,
    Rowwise {
        power_of_two: bool,
    },
    RowwiseGwHp,
    Blockwise {
        power_of_two: bool,
    },
    /// One E4M3 scale a tensor: the weight's by its amax, those of x and dy known beforehand ("delayed scaling").
    Delayed,
    /// The left operand by a scale known beforehand, the weight by rows.
    Static,
    /// The same with the site's BlockNorm and hard swish in the epilogue.
    StaticBlock,
}

/// One catalogue entry: who runs it, and with what numerics.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Kernel {
    pub name: &'static str,
    scheme: Scheme,
    accumulation: Accumulate,
    pub about: &'static str,
}

/// In which directions a kernel uses fast accumulation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Accumulate {
    Never,
    Fprop,
    Always,
}

const fn entry(name: &'static str, scheme: Scheme, accumulation: Accumulate, about: &'static str) -> Kernel {
    Kernel { name, scheme, accumulation, about }
}

/// In the order in which tables and views show them. Sources of the numerics: docs/reference/numerics.md; torchao
/// `Float8LinearConfig.from_recipe_name` (power-of-two scales in both rowwise recipes, fast
/// accumulation in fprop only); Transformer Engine (`Float8CurrentScaling`, `Float8BlockScaling`
/// with power-of-two scales, `DelayedScaling`); DeepGEMM on Hopper (FP32 scales, promotion every 128).
static CATALOGUE: &[Kernel] = &[
    entry("cublaslt/tf32", Scheme::Tf32, Accumulate::Never, "TF32 operands, FP32 output"),
    entry("cublaslt/bf16", Scheme::Bf16, Accumulate::Never, "BF16, the baseline"),
    entry(
        "cublaslt/fp8-tensorwise",
        Scheme::Tensorwise,
        Accumulate::Never,
        "one scale a tensor; E4M3 forward, E5M2 gradients",
    ),
    entry("cublaslt/fp8-tensorwise+fast", Scheme::Tensorwise, Accumulate::Always, "tensorwise, fast accumulation"),
    entry(
        "cublaslt/fp8-rowwise",
        Scheme::Rowwise { power_of_two: false },
        Accumulate::Never,
        "one scale a row, E4M3 everywhere",
    ),
    entry(
        "cublaslt/fp8-rowwise+fast",
        Scheme::Rowwise { power_of_two: false },
        Accumulate::Always,
        "rowwise, fast accumulation",
    ),
    entry(
        "cublaslt/fp8-blockwise",
        Scheme::Blockwise { power_of_two: false },
        Accumulate::Never,
        "1x128 activations and gradients, 128x128 weights",
    ),
    entry(
        "cublaslt/fp8-delayed",
        Scheme::Delayed,
        Accumulate::Never,
        "one scale a tensor, E4M3 everywhere; those of x and dy known beforehand",
    ),
    entry("cublaslt/fp8-delayed+fast", Scheme::Delayed, Accumulate::Always, "delayed scaling, fast accumulation"),
    entry(
        "loka/fp8-tensorwise",
        Scheme::Tensorwise,
        Accumulate::Never,
        "LoKA's own GEMM; one scale a tensor; E4M3 forward, E5M2 gradients",
    ),
    entry(
        "loka/fp8-tensorwise+fast",
        Scheme::Tensorwise,
        Accumulate::Always,
        "LoKA's own GEMM, tensorwise, fast accumulation",
    ),
    entry(
        "loka/fp8-rowwise",
        Scheme::Rowwise { power_of_two: false },
        Accumulate::Never,
        "LoKA's own GEMM; one scale a row, E4M3 everywhere",
    ),
    entry(
        "loka/fp8-rowwise+fast",
        Scheme::Rowwise { power_of_two: false },
        Accumulate::Always,
        "LoKA's own GEMM, rowwise, fast accumulation",
    ),
    entry(
        "loka/fp8-static+fast",
        Scheme::Static,
        Accumulate::Always,
        "LoKA's own GEMM; x in BF16, cast on its way in by a scale known beforehand, fast accumulation",
    ),
    entry(
        "loka/fp8-block+fast",
        Scheme::StaticBlock,
        Accumulate::Always,
        "the same with BlockNorm(256) and hard swish in its epilogue; for a site whose tail is these two",
    ),
    entry("pytorch/bf16", Scheme::Bf16, Accumulate::Never, "torch.mm, eager"),
    entry(
        "pytorch/fp8-tensorwise+fast",
        Scheme::Tensorwise,
        Accumulate::Always,
        "torch._scaled_mm with compiled casts, eager",
    ),
    entry(
        "pytorch/fp8-rowwise+fast",
        Scheme::Rowwise { power_of_two: false },
        Accumulate::Always,
        "torch._scaled_mm with compiled casts, eager",
    ),
    entry(
        "pytorch/fp8-blockwise",
        Scheme::Blockwise { power_of_two: false },
        Accumulate::Never,
        "torch scaled_mm with compiled casts, eager",
    ),
    entry("torchao/tensorwise", Scheme::Tensorwise, Accumulate::Fprop, "torchao Float8Linear"),
    entry(
        "torchao/rowwise",
        Scheme::Rowwise { power_of_two: true },
        Accumulate::Fprop,
        "torchao Float8Linear, power-of-two scales",
    ),
    entry(
        "torchao/rowwise_with_gw_hp",
        Scheme::RowwiseGwHp,
        Accumulate::Fprop,
        "rowwise; tensorwise weight in dgrad, BF16 wgrad",
    ),
    entry("deepgemm/blockwise", Scheme::Blockwise { power_of_two: false }, Accumulate::Never, "DeepGEMM, FP32 scales"),
    entry("fbgemm/rowwise", Scheme::Rowwise { power_of_two: false }, Accumulate::Always, "FBGEMM f8f8bf16_rowwise"),
    entry("te/current", Scheme::Tensorwise, Accumulate::Fprop, "Transformer Engine, current scaling"),
    entry(
        "te/blockwise",
        Scheme::Blockwise { power_of_two: true },
        Accumulate::Never,
        "Transformer Engine, block scaling with power-of-two scales",
    ),
];

/// Every kernel that LoKA knows, in display order.
pub fn catalogue() -> &'static [Kernel] {
    CATALOGUE
}

/// The catalogue's entry of that name.
pub fn kernel(name: &str) -> Option<&'static Kernel> {
    number(name).map(|number| &CATALOGUE[usize::from(number)])
}

fn number(name: &str) -> Option<u8> {
    BY_NAME[slot(name)].iter().find(|number| CATALOGUE[usize::from(**number)].name == name).copied()
}

/// Asked for every row that is read: a walk through all names would be felt at 100,000 rows.
static BY_NAME: LazyLock<[Vec<u8>; NUM_SLOTS]> = LazyLock::new(|| {
    let mut slots: [Vec<u8>; NUM_SLOTS] = std::array::from_fn(|_| Vec::new());
    (0..).zip(CATALOGUE).for_each(|(number, kernel)| slots[slot(kernel.name)].push(number));
    slots
});

const NUM_SLOTS: usize = 64;

/// The end of a name and its length tell most kernels apart.
fn slot(name: &str) -> usize {
    let ends = name.bytes().rev().step_by(3).take(6);
    ends.fold(name.len(), |sum, byte| sum.wrapping_mul(31) ^ usize::from(byte)) % NUM_SLOTS
}

/// The high-precision kernel that speed-ups are measured against.
pub fn baseline_kernel() -> KernelId {
    KernelId::new("cublaslt/bf16")
}

impl Kernel {
    pub fn id(&self) -> KernelId {
        KernelId::new(self.name)
    }

    /// True for the kernels that LoKA's own engine runs; others are run through their library.
    pub fn is_native(&self) -> bool {
        ["cublaslt", "loka"].contains(&self.id().library())
    }

    /// True for LoKA's own GEMMs (`loka_kernels::gemm`).
    pub fn is_own(&self) -> bool {
        // By its name: asked for every row of every view.
        self.name.starts_with("loka/")
    }

    /// True for the kernels that a plan may fall back on: nothing narrower than BF16.
    pub fn high_precision(&self) -> bool {
        matches!(self.scheme, Scheme::Tf32 | Scheme::Bf16)
    }

    /// True where nothing of that GEMM is in FP8, as wgrad of a recipe that keeps it in BF16.
    pub fn is_high_precision_at(&self, gemm: Gemm) -> bool {
        let numerics = self.numerics(gemm);
        [numerics.a, numerics.b].iter().all(|cast| cast.granularity == Granularity::None)
    }

    /// True where the left operand's scale is known before the operand is: [`super::StaticScale`].
    pub fn is_static(&self) -> bool {
        self.casts_on_the_way() || self.is_delayed()
    }

    /// True where the scales of x and dy follow them from step to step in training.
    pub fn is_delayed(&self) -> bool {
        self.scheme == Scheme::Delayed
    }

    /// True where the GEMM reads its left operand in BF16 and casts it by a static scale.
    pub fn casts_on_the_way(&self) -> bool {
        matches!(self.scheme, Scheme::Static | Scheme::StaticBlock)
    }

    /// True where the site's tail is part of the kernel: only some tails fit (`mods::fits`), and latencies are of
    /// GEMM and tail together.
    pub fn has_tail(&self) -> bool {
        self.scheme == Scheme::StaticBlock
    }

    /// What this kernel does to the operands of one GEMM.
    pub fn numerics(&self, gemm: Gemm) -> GemmNumerics {
        use Format::{Bf16, E4m3, E5m2, F32, Tf32};
        use Granularity::{Block1x128, Block128x128, Row, Static, Tensor};
        let fast = match self.accumulation {
            Accumulate::Never => false,
            Accumulate::Fprop => gemm == Gemm::Fprop,
            Accumulate::Always => true,
        };
        let fp8 = if fast { Accumulation::Fast } else { Accumulation::Promoted };
        let (a, b, accumulation, output) = match self.scheme {
            Scheme::Tf32 => (OperandCast::unscaled(Tf32), OperandCast::unscaled(Tf32), Accumulation::Fp32, F32),
            Scheme::Bf16 => (OperandCast::unscaled(Bf16), OperandCast::unscaled(Bf16), Accumulation::Fp32, Bf16),
            Scheme::Tensorwise => {
                let gradient = if gemm == Gemm::Fprop { E4m3 } else { E5m2 };
                (OperandCast::scaled(gradient, Tensor), OperandCast::scaled(E4m3, Tensor), fp8, Bf16)
            }
            Scheme::Rowwise { power_of_two } => {
                let cast = OperandCast { format: E4m3, granularity: Row, power_of_two };
                (cast, cast, fp8, Bf16)
            }
            Scheme::RowwiseGwHp => {
                let row = OperandCast::scaled_pow2(E4m3, Row);
                match gemm {
                    Gemm::Fprop => (row, row, fp8, Bf16),
                    Gemm::Dgrad => (row, OperandCast::scaled_pow2(E4m3, Tensor), fp8, Bf16),
                    Gemm::Wgrad => (OperandCast::unscaled(Bf16), OperandCast::unscaled(Bf16), Accumulation::Fp32, Bf16),
                }
            }
            Scheme::Blockwise { power_of_two } => {
                let right = if gemm == Gemm::Wgrad { Block1x128 } else { Block128x128 };
                let cast = |granularity| OperandCast { format: E4m3, granularity, power_of_two };
                (cast(Block1x128), cast(right), fp8, Bf16)
            }
            Scheme::Delayed => {
                let known = OperandCast::scaled_pow2(E4m3, Static);
                let right = if gemm == Gemm::Wgrad { known } else { OperandCast::scaled(E4m3, Tensor) };
                (known, right, fp8, Bf16)
            }
            // The block's sums go into the norm before anything rounds them.
            Scheme::Static | Scheme::StaticBlock => {
                let output = if self.scheme == Scheme::Static { Bf16 } else { F32 };
                (OperandCast::scaled_pow2(E4m3, Static), OperandCast::scaled(E4m3, Row), fp8, output)
            }
        };
        GemmNumerics { a, b, accumulation, output }
    }

    /// Of sizes that this kernel reduces or stores in rows: FP8 tensor cores read 16 elements at a time along the
    /// reduced dimension and store rows of a multiple of 16; blockwise scales need whole blocks of 128 where the library
    /// does not fill the last one up itself, as Transformer Engine does (docs/reference/gpu.md, docs/reference/numerics.md).
    pub(crate) fn multiple_of(&self, gemm: Gemm) -> usize {
        match self.numerics(gemm).a {
            OperandCast { granularity: Granularity::Block1x128, .. } if self.id().library() != "te" => 128,
            OperandCast { format: Format::E4m3 | Format::E5m2, .. } => 16,
            _ => 1,
        }
    }

    /// The shape that `loka.apply` runs: sizes are padded with zeros to whole blocks and to what a library asks. Examples
    /// may be any number; so may features, where LoKA's runtime casts, and in BF16 ([`padded_in_bf16`]). Zeros change no
    /// other numerics.
    pub fn as_run(&self, gemm: Gemm, shape: GemmShape) -> GemmShape {
        let multiple = self.multiple_of(gemm);
        let is_padded = multiple == 128 || gemm == Gemm::Wgrad || !self.is_cast_by_loka();
        let m = if is_padded { shape.m.next_multiple_of(multiple) } else { shape.m };
        let GemmShape { k, n, .. } = shape;
        let whole = |size: usize| size.checked_next_multiple_of(multiple).unwrap_or(size);
        let pad = |size: usize| if size < NARROWEST { size } else { whole(size) };
        let (k, n) = match self.numerics(gemm).a.format {
            _ if self.pads_features(gemm) => (pad(k), pad(n)),
            Format::Bf16 if self.is_cast_by_loka() => padded_in_bf16(k, n).unwrap_or((k, n)),
            _ => (k, n),
        };
        GemmShape { m, k, n }
    }

    /// LoKA's runtime casts for PyTorch's kernels too.
    fn is_cast_by_loka(&self) -> bool {
        ["cublaslt", "loka", "pytorch"].contains(&self.id().library())
    }

    /// Whether features may be any number from [`NARROWEST`] on: LoKA's runtime pads them before it casts. Whole blocks of
    /// 128 would be too much, and a block's norm goes over what is there.
    pub(super) fn pads_features(&self, gemm: Gemm) -> bool {
        self.is_cast_by_loka() && self.multiple_of(gemm) == 16 && self.scheme != Scheme::StaticBlock
    }

    /// Why this kernel cannot run a GEMM of that shape; `None` when it can. Sizes are padded ([`Self::as_run`]); the n rows
    /// that wgrad stores may be any number, but for blockwise scales and in Transformer Engine.
    pub fn refuses(&self, gemm: Gemm, shape: GemmShape) -> Option<String> {
        match (self.scheme, gemm) {
            (Scheme::Static, Gemm::Wgrad) => {
                return Some("wgrad reads both operands transposed, which casting on the way in cannot".to_owned());
            }
            (Scheme::StaticBlock, Gemm::Dgrad | Gemm::Wgrad) => return Some("only fprop has a tail".to_owned()),
            (Scheme::StaticBlock, Gemm::Fprop) if !shape.n.is_multiple_of(NORM_BLOCK) => {
                return Some(format!("n = {} is not a multiple of {NORM_BLOCK}", shape.n));
            }
            _ => {}
        }
        let multiple = self.multiple_of(gemm);
        let (k, n) = (("k", shape.k), ("n", shape.n));
        let sizes: &[(&str, usize)] = match gemm {
            Gemm::Dgrad => &[n, k],
            Gemm::Wgrad if multiple < 128 && self.id().library() != "te" => &[k],
            Gemm::Fprop | Gemm::Wgrad => &[k, n],
        };
        if self.pads_features(gemm) {
            let narrow = sizes.iter().find(|(_, size)| *size < NARROWEST);
            return narrow.map(|(name, size)| format!("{name} = {size} is less than {NARROWEST}"));
        }
        let odd = sizes.iter().find(|(_, size)| !size.is_multiple_of(multiple));
        odd.map(|(name, size)| format!("{name} = {size} is not a multiple of {multiple}"))
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use super::*;

    #[test]
    fn an_id_is_its_name_whether_the_catalogue_has_it_or_not() {
        let mut ids: Vec<KernelId> = catalogue().iter().map(Kernel::id).collect();
        ids.extend(["a/unknown", "te/unknown"].map(KernelId::new));
        for id in &ids {
            assert_eq!((id, id.as_str()), (&KernelId::from(&Arc::from(id.as_str())), id.to_string().as_str()));
            let json = serde_json::to_string(id).unwrap();
            assert_eq!(json, format!("\"{id}\""));
            assert_eq!(serde_json::from_str::<KernelId>(&json).unwrap(), *id);
            assert_eq!(id.known().map(|known| known.name), kernel(id.as_str()).map(|known| known.name));
        }
        ids.sort();
        assert!(ids.is_sorted_by(|a, b| a.as_str() < b.as_str()), "by name, also between known and unknown");
        assert_eq!(size_of::<KernelId>(), 16, "rows have one each");
    }

    #[test]
    fn examples_are_padded_and_features_where_loka_casts() {
        let shape = GemmShape { m: 1000, k: 256, n: 128 };
        let run = |name: &str, gemm| kernel(name).unwrap().as_run(gemm, shape).m;
        assert_eq!(run("cublaslt/bf16", Gemm::Wgrad), 1000);
        assert_eq!(run("cublaslt/fp8-rowwise", Gemm::Fprop), 1000);
        assert_eq!(run("cublaslt/fp8-rowwise", Gemm::Wgrad), 1008);
        assert_eq!(run("fbgemm/rowwise", Gemm::Dgrad), 1008);
        assert_eq!(run("pytorch/fp8-blockwise", Gemm::Fprop), 1024);
        let run = |name: &str, gemm, m, k, n| {
            let of = kernel(name).unwrap().as_run(gemm, GemmShape { m, k, n });
            (of.m, of.k, of.n)
        };
        assert_eq!(run("cublaslt/fp8-rowwise", Gemm::Fprop, 1000, 429, 1), (1000, 432, 1));
        assert_eq!(run("loka/fp8-static+fast", Gemm::Dgrad, 1000, 1677, 1044), (1000, 1680, 1056));
        assert_eq!(run("cublaslt/bf16", Gemm::Wgrad, 1000, 1677, 1044), (1000, 1680, 1048));
        assert_eq!(run("cublaslt/bf16", Gemm::Wgrad, 1000, 429, 100), (1000, 429, 100));
        assert_eq!(run("te/current", Gemm::Fprop, 1000, 1677, 1044), (1008, 1677, 1044));
        for kernel in catalogue().iter().filter(|kernel| !kernel.has_tail()) {
            let whole = GemmShape { m: 1024, ..shape };
            for gemm in Gemm::ALL {
                assert_eq!(kernel.refuses(gemm, shape), kernel.refuses(gemm, whole), "{} {gemm}", kernel.name);
            }
        }
        let of = |name: &str, gemm, k, n| kernel(name).unwrap().refuses(gemm, GemmShape { m: 1, k, n });
        assert_eq!(of("cublaslt/fp8-delayed", Gemm::Wgrad, 16, 1), None);
        assert_eq!(of("cublaslt/fp8-delayed", Gemm::Fprop, 16, 1).unwrap(), "n = 1 is less than 16");
        assert_eq!(of("loka/fp8-static+fast", Gemm::Dgrad, 429, 1677), None);
        assert_eq!(of("loka/fp8-block+fast", Gemm::Fprop, 429, 512).unwrap(), "k = 429 is not a multiple of 16");
        assert_eq!(of("deepgemm/blockwise", Gemm::Wgrad, 128, 64).unwrap(), "n = 64 is not a multiple of 128");
        assert_eq!(of("te/blockwise", Gemm::Dgrad, 144, 48), None);
        assert_eq!(of("te/current", Gemm::Wgrad, 144, 20).unwrap(), "n = 20 is not a multiple of 16");
        assert_eq!(of("te/blockwise", Gemm::Fprop, 72, 48).unwrap(), "k = 72 is not a multiple of 16");
    }

    #[test]
    fn delayed_scaling_has_three_casts() {
        let delayed = kernel("cublaslt/fp8-delayed+fast").unwrap();
        let known = OperandCast::scaled_pow2(Format::E4m3, Granularity::Static);
        let weight = OperandCast::scaled(Format::E4m3, Granularity::Tensor);
        let casts = Gemm::ALL.map(|gemm| (delayed.numerics(gemm).a, delayed.numerics(gemm).b));
        assert_eq!(casts, [(known, weight), (known, weight), (known, known)]);
        assert!(Gemm::ALL.iter().all(|gemm| delayed.numerics(*gemm).accumulation == Accumulation::Fast));
        let promoted = kernel("cublaslt/fp8-delayed").unwrap();
        assert!(Gemm::ALL.iter().all(|gemm| promoted.numerics(*gemm).accumulation == Accumulation::Promoted));
        assert!(delayed.is_static() && !delayed.casts_on_the_way() && delayed.is_native() && !delayed.is_own());
    }
}
