//! Takes a plan and the model's modules, gives each module with what is wanted of it, and what no target keeps.

use std::collections::HashMap;

use crate::{
    model::{Fixed, Gemm, Kernel, kernel},
    plan::{Plan, PlanSite},
};

use super::{
    Export, File, LossKind, Module, PROVENANCE_SUFFIX, Refusal, Target,
    loss::Losses,
    provenance::Provenance,
    resolution::LEFT,
    scheme::{Scheme, Wanted},
    text::{one_line, pretty},
};

/// A site that is a linear of the model, with what each of its GEMMs should be.
#[derive(Clone, Copy)]
pub struct Site<'a> {
    pub planned: &'a PlanSite,
    pub gemms: [Wanted; 3],
}

impl Site<'_> {
    pub fn name(&self) -> &str {
        self.planned.site.as_str()
    }

    pub fn gemm(&self, gemm: Gemm) -> Wanted {
        self.gemms[gemm as usize]
    }

    pub fn is_fp8(&self) -> bool {
        self.gemms.iter().any(|wanted| wanted.scheme.is_fp8())
    }
}

pub struct Job<'a> {
    pub plan: &'a Plan,
    pub modules: &'a [Module],
    /// Beside each module the site that it is.
    pub sites: Vec<Option<Site<'a>>>,
    pub target: Target,
    pub provenance: Provenance,
    missing: Vec<&'a PlanSite>,
    /// Left in high precision, in part or whole, as their widths are no multiples of 16.
    ragged: Vec<&'a PlanSite>,
    /// No modules.
    ours_alone: Vec<&'a PlanSite>,
}

/// What a target wrote.
pub struct Written {
    pub files: Vec<File>,
    /// The files have no place for it.
    pub provenance_beside: bool,
    /// What each module should become, in the words of the target's `resolve`.
    pub settings: Vec<String>,
    pub losses: Losses,
    pub notes: Vec<String>,
}

impl Written {
    pub fn new(text: String, settings: Vec<String>, losses: Losses) -> Self {
        let files = vec![File { suffix: String::new(), text }];
        Self { files, provenance_beside: false, settings, losses, notes: Vec::new() }
    }
}

impl<'a> Job<'a> {
    pub fn new(plan: &'a Plan, modules: &'a [Module], target: Target, status: &str) -> Result<Self, Refusal> {
        let (mut planned, mut ragged) = (HashMap::with_capacity(plan.sites.len()), Vec::new());
        for site in &plan.sites {
            let mut gemms = wanted(site)?;
            if target != Target::ModelExplorer && keep_whole_widths(site, &mut gemms) {
                ragged.push(site);
            }
            planned.insert(site.site.as_str(), Site { planned: site, gemms });
        }
        fixed(plan, target)?;
        let is_there = |module: &Module| module.is_linear() || target == Target::ModelExplorer;
        let sites: Vec<_> = modules
            .iter()
            .map(|module| is_there(module).then(|| planned.remove(module.name.as_str())).flatten())
            .collect();
        let left = plan.sites.iter().filter(|site| planned.contains_key(site.site.as_str()));
        let (ours_alone, missing): (Vec<_>, Vec<_>) = left.partition(|site| site.is_ours_alone());
        if sites.iter().all(Option::is_none) {
            return Err(Refusal::new("no site of the plan is a linear of the model"));
        }
        Ok(Self {
            plan,
            modules,
            sites,
            target,
            provenance: Provenance::new(plan, target, status),
            missing,
            ragged,
            ours_alone,
        })
    }

    /// Every linear of the model with its site; those that the plan does not list stay in high precision.
    pub fn linears(&self) -> impl Iterator<Item = (usize, &'a Module, Option<&Site<'a>>)> {
        let all = self.modules.iter().zip(&self.sites).enumerate();
        all.filter(|(_, (module, _))| module.is_linear()).map(|(at, (module, site))| (at, module, site.as_ref()))
    }

    pub fn finish(&self, mut written: Written) -> Export {
        let mut losses = std::mem::take(&mut written.losses);
        if self.target != Target::ModelExplorer {
            self.common_losses(&mut losses);
        }
        let losses = losses.into_vec();
        let mut notes = self.notes();
        notes.append(&mut written.notes);
        if written.provenance_beside {
            let mut json = self.provenance.json();
            json["losses"] = losses.iter().map(ToString::to_string).collect();
            written.files.push(File { suffix: PROVENANCE_SUFFIX.to_owned(), text: pretty(&json) + "\n" });
        }
        let is_set = |(module, setting): &(&Module, &String)| module.is_linear() && *setting != LEFT;
        let num_set = self.modules.iter().zip(&written.settings).filter(is_set).count();
        // Model Explorer's settings say which nodes have a colour, whatever their kernels are.
        let (num_fp8, num_shown) = match self.target {
            Target::ModelExplorer => (self.sites.iter().flatten().filter(|site| site.is_fp8()).count(), Some(num_set)),
            _ => (num_set, None),
        };
        Export { files: written.files, losses, notes, num_modules: self.modules.len(), num_fp8, num_shown }
    }

    /// What no target can say, whichever it is.
    fn common_losses(&self, losses: &mut Losses) {
        for site in &self.missing {
            losses.add(LossKind::Missing, "in the plan, not among the model's linears", site.site.as_str());
        }
        for site in self.ours_alone.iter().filter(|site| Gemm::ALL.into_iter().any(|gemm| is_low(site, gemm))) {
            let text = "parameters that a function reads are no modules to name: loka.apply alone runs these in FP8";
            losses.add(LossKind::Missing, text, site.site.as_str());
        }
        for site in self.plan.mods.iter().filter(|(_, mods)| !mods.is_empty()).map(|(site, _)| site) {
            let text = "model changes are not in the file: the model must have them (loka.mods.apply)";
            losses.add(LossKind::Mods, text, site.as_str());
        }
        for site in &self.ragged {
            let text = "k or n is no multiple of 16, which loka.apply alone pads for FP8: high precision instead";
            losses.add(LossKind::Widths, text, site.site.as_str());
        }
        for site in self.sites.iter().flatten() {
            if site.gemms.iter().any(|wanted| wanted.is_own) {
                let text = "LoKA's own GEMMs become the framework's: errors stay near, measured times do not";
                losses.add(LossKind::Kernels, text, site.name());
            }
            if site.gemms.iter().any(|wanted| wanted.has_tail) {
                let text =
                    "BlockNorm and hard swish inside LoKA's kernel become the model's own steps after the linear";
                losses.add(LossKind::Kernels, text, site.name());
            }
            if site.gemms.iter().any(|wanted| wanted.is_tf32) {
                let text = "TF32 is not in the file: these GEMMs run in the model's own precision";
                losses.add(LossKind::HighPrecision, text, site.name());
            }
        }
    }

    fn notes(&self) -> Vec<String> {
        let unplanned: Vec<String> =
            self.linears().filter(|(.., site)| site.is_none()).map(|(_, module, _)| one_line(&module.name)).collect();
        let named = unplanned.iter().take(3).cloned().collect::<Vec<_>>().join(", ");
        match unplanned.len() {
            0 => Vec::new(),
            1 => vec![format!("1 linear is not in the plan and stays in high precision: {named}")],
            count => vec![format!("{count} linears are not in the plan and stay in high precision: {named}, …")],
        }
    }
}

/// Takes GEMMs out of FP8 whose sizes no framework's kernels take as they are; gives whether there were any.
fn keep_whole_widths(site: &PlanSite, gemms: &mut [Wanted; 3]) -> bool {
    let is_whole = |size: Option<usize>| size.is_none_or(|size| size.is_multiple_of(16));
    let mut found = false;
    for (wanted, gemm) in gemms.iter_mut().zip(Gemm::ALL) {
        // The n rows that wgrad stores may be any number.
        let fits = is_whole(site.k) && (gemm == Gemm::Wgrad || is_whole(site.n));
        if wanted.scheme.is_fp8() && !fits {
            *wanted = wanted.in_high_precision();
            found = true;
        }
    }
    found
}

/// A layer that is named in FP8 and computes something of its own would run as another model, or not start on the day of
/// training.
fn fixed(plan: &Plan, target: Target) -> Result<(), Refusal> {
    if target == Target::ModelExplorer {
        return Ok(());
    }
    let low = |site: &&PlanSite| Gemm::ALL.into_iter().any(|gemm| is_low(site, gemm));
    let problem = |site: &PlanSite| {
        let fixed = Fixed::of(site.forward.as_ref()?, "")?;
        Some(format!("site '{}' cannot be in FP8: {fixed}", one_line(site.site.as_str())))
    };
    let mut problems: Vec<String> = plan.sites.iter().filter(low).filter_map(problem).collect();
    match problems.len() {
        0 => Ok(()),
        1 => Err(Refusal::new(problems.remove(0))),
        count => Err(Refusal::with(format!("{count} sites cannot be in FP8"), problems)),
    }
}

fn is_low(site: &PlanSite, gemm: Gemm) -> bool {
    site.choice(gemm).kernel.is_low_precision()
}

fn wanted(site: &PlanSite) -> Result<[Wanted; 3], Refusal> {
    let unknown = |gemm: Gemm| {
        let (site, kernel) = (one_line(site.site.as_str()), one_line(site.choice(gemm).kernel.as_str()));
        Refusal::new(format!("site '{site}' {gemm} has the kernel '{kernel}', which this program does not know"))
    };
    let of = |gemm: Gemm| Wanted::of(&site.choice(gemm).kernel, gemm).ok_or_else(|| unknown(gemm));
    Ok([of(Gemm::Fprop)?, of(Gemm::Dgrad)?, of(Gemm::Wgrad)?])
}

/// Adds what differs between what the plan wants of a GEMM and what the target's kernel does.
pub fn numeric_losses(losses: &mut Losses, site: &str, wanted: Wanted, actual: Wanted) {
    let (from, to) = (wanted.scheme, actual.scheme);
    if !from.is_fp8() {
        return;
    }
    if from != to {
        let text = match to {
            Scheme::High => format!("{} scales are not in the file: high precision instead", from.as_str()),
            _ => format!("{} scales are not in the file: {} instead", from.as_str(), to.as_str()),
        };
        losses.add(LossKind::Granularity, text, site);
    }
    if !to.is_fp8() {
        return;
    }
    let powers = |yes| if yes { "powers of two" } else { "any number" };
    if wanted.power_of_two != actual.power_of_two {
        let text = format!("scales are {}, in the plan {}", powers(actual.power_of_two), powers(wanted.power_of_two));
        losses.add(LossKind::Scales, text, site);
    }
    let sums = |yes| if yes { "fast" } else { "with promotion to FP32" };
    if wanted.fast != actual.fast {
        let text = format!("sums are {}, in the plan {}", sums(actual.fast), sums(wanted.fast));
        losses.add(LossKind::Accumulation, text, site);
    }
}

/// A catalogue entry that says what a target's recipe does; the names are of the catalogue.
pub fn entry(name: &str) -> Result<&'static Kernel, Refusal> {
    kernel(name).ok_or_else(|| Refusal::new(format!("the kernel '{name}' is not in the catalogue")))
}
