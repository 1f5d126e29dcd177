//! Takes a kernel and a GEMM, gives the number and the short name of what it computes there: the same for all kernels that
//! compute the same, whoever runs them.

use std::sync::LazyLock;

use crate::model::{Accumulation, Format, Gemm, GemmNumerics, Granularity, Kernel, catalogue};

/// More recipes than the catalogue has at any GEMM.
pub(super) const MOST_RECIPES: usize = 32;

/// By a kernel's place in the catalogue and by GEMM: the first kernel that computes the same there. What computes alike is
/// of one recipe, whatever its library calls it: torchao's tensorwise sums as PyTorch's `+fast` in fprop, and not in dgrad.
static RECIPES: LazyLock<Vec<[u8; 3]>> = LazyLock::new(|| {
    let all = catalogue();
    let first = |kernel: &Kernel, gemm| all.iter().position(|of| of.numerics(gemm) == kernel.numerics(gemm));
    all.iter().map(|kernel| Gemm::ALL.map(|gemm| first(kernel, gemm).unwrap_or_default() as u8)).collect()
});

/// The recipe of a kernel of the catalogue: the number of the first kernel that has it.
pub(super) fn recipe(kernel: usize, gemm: Gemm) -> usize {
    RECIPES.get(kernel).map_or(0, |of| usize::from(of[gemm as usize]))
}

/// What tells recipes apart, short enough for a column: `row+fast`, `block 2^n`.
pub(super) fn short_recipe(of: GemmNumerics) -> String {
    let (left, right) = (of.a, of.b);
    let scales = match (left.granularity, right.granularity) {
        (Granularity::None, _) => return left.format.as_str().to_lowercase(),
        (Granularity::Tensor, _) => "tensor",
        (Granularity::Row, Granularity::Tensor) => "row, tensor",
        (Granularity::Row, _) => "row",
        (Granularity::Block1x128 | Granularity::Block128x128, _) => "block",
        (Granularity::Static, _) if of.output == Format::F32 => "static+tail",
        (Granularity::Static, Granularity::Row) => "static",
        (Granularity::Static, _) => "delayed",
    };
    // Static scales always are.
    let power_of_two = if left.power_of_two && left.granularity != Granularity::Static { " 2^n" } else { "" };
    let fast = if of.accumulation == Accumulation::Fast { "+fast" } else { "" };
    format!("{scales}{power_of_two}{fast}")
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn recipes_are_as_many_as_there_is_room_for_and_have_a_name_each() {
        for gemm in Gemm::ALL {
            let numbers: BTreeSet<usize> = (0..catalogue().len()).map(|kernel| recipe(kernel, gemm)).collect();
            let names: BTreeSet<String> =
                numbers.iter().map(|number| short_recipe(catalogue()[*number].numerics(gemm))).collect();
            assert_eq!(names.len(), numbers.len(), "{gemm}: {names:?}");
            assert!(numbers.iter().all(|number| *number < MOST_RECIPES));
        }
    }
}
