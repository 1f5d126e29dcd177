//! Takes a kernel, a GEMM and a site under its mods; says whether the site's tail is the one inside the kernel. And the
//! bound that a tail puts on what it gives.

use crate::model::{Gemm, Kernel, ModSet, NORM_BLOCK, Site};

use super::{block_norm, modified_ops};

/// Operations that give nothing larger than what they get.
const SHRINKING: [&str; 5] = ["swish", "hard_swish", "relu", "gelu", "tanh"];

/// Why `kernel` cannot take that GEMM at that site, whatever its shape: a kernel with a tail of its own is for sites
/// with exactly that tail.
pub fn fits(kernel: &Kernel, gemm: Gemm, site: &Site, mods: &ModSet) -> Result<(), String> {
    if !kernel.has_tail() || gemm != Gemm::Fprop {
        return Ok(());
    }
    let (ops, bias) = modified_ops(site, mods);
    if ops != ["block_norm", "hard_swish"] {
        let tail = if ops.is_empty() { "nothing".to_owned() } else { ops.join(", ") };
        return Err(format!("the kernel ends in BlockNorm and hard swish; what follows this linear is {tail}"));
    }
    if bias {
        return Err("the kernel has no bias, and this linear keeps its own".to_owned());
    }
    let (block, eps) = norm_of(site);
    if block != NORM_BLOCK {
        return Err(format!("the kernel's BlockNorm has blocks of {NORM_BLOCK}, this site's of {block}"));
    }
    if (eps / block_norm::EPS - 1.0).abs() > 1e-3 {
        return Err(format!(
            "the kernel's BlockNorm adds {:e} to the mean square, this site's {eps:e}",
            block_norm::EPS
        ));
    }
    Ok(())
}

/// Block and epsilon of the norm that the site's tail begins with, a BlockNorm under its mods.
fn norm_of(site: &Site) -> (usize, f32) {
    match site.tail.first().filter(|op| op.op == "block_norm") {
        Some(op) => (op.block.unwrap_or_else(|| block_norm::block_of(site.n)), super::tail::eps_of(op)),
        None => (block_norm::block_of(site.n), block_norm::EPS),
    }
}

/// The largest magnitude that the site can hand on under `mods`, known from the manifest alone: where its tail ends in
/// BlockNorm, or in that and an activation that gives nothing larger.
pub fn output_bound(site: &Site, mods: &ModSet) -> Option<f64> {
    let (ops, _) = modified_ops(site, mods);
    let norm = ops.iter().rposition(|op| !SHRINKING.contains(op))?;
    let recorded = site.tail.get(norm)?;
    if ops[norm] != "block_norm" {
        return None;
    }
    let block = recorded.block.filter(|_| recorded.op == "block_norm").unwrap_or_else(|| block_norm::block_of(site.n));
    // A block that does not divide the row is the whole row.
    let block = if block > 0 && site.n.is_multiple_of(block) { block } else { site.n };
    Some((block as f64).sqrt())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{ModKind, SiteId, TailOp, kernel};

    fn site(n: usize, bias: bool, tail: Vec<TailOp>) -> Site {
        let json = format!(r#"{{"id":"a","m":64,"k":64,"n":{n},"dtype":"bf16","bias":{bias}}}"#);
        Site { id: SiteId::new("a"), tail, ..serde_json::from_str(&json).unwrap() }
    }

    fn plain(ops: &[&str]) -> Vec<TailOp> {
        ops.iter().map(|op| TailOp::plain(op)).collect()
    }

    fn block_norm(block: usize, eps: f64) -> TailOp {
        TailOp { block: Some(block), eps: Some(eps), ..TailOp::plain("block_norm") }
    }

    fn refusal(site: &Site, mods: &ModSet) -> String {
        fits(kernel("loka/fp8-block+fast").unwrap(), Gemm::Fprop, site, mods).unwrap_err()
    }

    #[test]
    fn exactly_block_norm_then_hard_swish() {
        let block = kernel("loka/fp8-block+fast").unwrap();
        let (all, none) = (ModSet::all(), ModSet::none());
        let modded = site(512, true, plain(&["layer_norm", "swish"]));
        assert_eq!(fits(block, Gemm::Fprop, &modded, &all), Ok(()));
        let tail = "the kernel ends in BlockNorm and hard swish; what follows this linear is";
        assert_eq!(refusal(&modded, &none), format!("{tail} layer_norm, swish"));
        assert_eq!(refusal(&modded, &all.with(ModKind::HardSwish, false)), format!("{tail} block_norm, swish"));
        assert_eq!(
            refusal(&modded, &all.with(ModKind::NoBias, false)),
            "the kernel has no bias, and this linear keeps its own"
        );
        assert_eq!(
            refusal(&site(512, false, plain(&["swish", "layer_norm"])), &all),
            format!("{tail} hard_swish, block_norm")
        );
        assert_eq!(refusal(&site(512, false, Vec::new()), &all), format!("{tail} nothing"));
        let ragged = site(384, false, plain(&["rms_norm", "swish"]));
        assert_eq!(refusal(&ragged, &all), "the kernel's BlockNorm has blocks of 256, this site's of 384");
        let head = Site { head: true, ..modded.clone() };
        assert_eq!(refusal(&head, &all), "the kernel has no bias, and this linear keeps its own");
        // Kernels without a tail of their own take any.
        assert_eq!(fits(kernel("loka/fp8-static+fast").unwrap(), Gemm::Fprop, &modded, &none), Ok(()));
    }

    #[test]
    fn a_model_that_was_recorded_with_the_mods_fits_as_it_is() {
        let eps = f64::from(f32::EPSILON);
        let tail = |block, eps| vec![block_norm(block, eps), TailOp::plain("hard_swish")];
        let of = |block, eps| site(512, false, tail(block, eps));
        let block = kernel("loka/fp8-block+fast").unwrap();
        assert_eq!(fits(block, Gemm::Fprop, &of(256, eps), &ModSet::none()), Ok(()));
        assert_eq!(fits(block, Gemm::Fprop, &of(256, eps), &ModSet::all()), Ok(()));
        assert_eq!(
            refusal(&of(128, eps), &ModSet::none()),
            "the kernel's BlockNorm has blocks of 256, this site's of 128"
        );
        let other = refusal(&of(256, 1e-5), &ModSet::all());
        assert!(other.starts_with("the kernel's BlockNorm adds 1.19"), "{other}");
    }

    #[test]
    fn a_tail_bounds_what_it_hands_on() {
        let (all, none) = (ModSet::all(), ModSet::none());
        let of = |n, ops: &[&str], mods| output_bound(&site(n, true, plain(ops)), mods);
        assert_eq!(of(512, &["layer_norm", "swish"], &all), Some(16.0));
        assert_eq!(of(512, &["layer_norm", "swish"], &none), None, "a gain may be anything");
        assert_eq!(of(512, &["block_norm"], &none), Some(16.0));
        assert_eq!(of(400, &["block_norm", "relu"], &none), Some(20.0), "one block of the whole row");
        assert_eq!(of(512, &["block_norm", "residual"], &none), None);
        assert_eq!(of(512, &["relu"], &all), None);
        assert_eq!(output_bound(&site(512, true, vec![block_norm(64, 1e-5)]), &none), Some(8.0));
    }
}
