//! Takes a job, gives a Python file that converts linears to torchao's float8 training, each by its recipe; takes
//! that file, gives each module's recipe. A recipe has a choice a GEMM, one scale a tensor or a row.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::{
    export::{
        LossKind, Module, Refusal,
        job::{Job, Site, Written, numeric_losses},
        loss::Losses,
        resolution::{LEFT, Resolved, unknown},
        scheme::{Scheme, Wanted},
    },
    model::{Gemm, KernelId},
};

use super::python;

const OFF: &str = "off";

/// torchao's own recipes, which are in our catalogue.
const NAMED: [&str; 3] = ["tensorwise", "rowwise", "rowwise_with_gw_hp"];

/// A recipe of the file: by name, or a word a GEMM.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
enum Recipe {
    Named { name: String },
    Gemms(Gemms),
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Gemms {
    fprop: String,
    dgrad: String,
    wgrad: String,
    fast: Vec<Gemm>,
    scales: String,
}

pub fn write(job: &Job<'_>) -> Result<Written, Refusal> {
    let (mut settings, mut losses) = (vec![LEFT.to_owned(); job.modules.len()], Losses::default());
    let (mut recipes, mut modules) = (BTreeMap::new(), Vec::new());
    for (at, module, site) in job.linears() {
        let recipe = site.and_then(|site| recipe(site, &mut losses));
        let label = recipe.as_ref().map_or(OFF.to_owned(), label);
        if let Some(recipe) = recipe {
            settings[at].clone_from(&label);
            recipes.insert(label.clone(), recipe);
        }
        modules.push((module.name.clone(), Value::from(label)));
    }
    let template = include_str!("torchao.py.txt");
    let data = [("provenance", job.provenance.json()), ("recipes", json!(recipes))];
    let text = python::with_data(template, &job.provenance.comments(), &data, &modules);
    Ok(Written::new(text, settings, losses))
}

/// What torchao can do of what is wanted; `None`: nothing in FP8.
fn recipe(site: &Site<'_>, losses: &mut Losses) -> Option<Recipe> {
    let mut of_site = Losses::default();
    let mut actual = site.gemms;
    for (actual, wanted) in actual.iter_mut().zip(site.gemms) {
        actual.scheme = wanted.scheme.nearest(&[Scheme::Tensor, Scheme::Row]);
    }
    let [_, dgrad, wgrad] = actual;
    let is_split = dgrad.scheme.is_fp8() && wgrad.scheme.is_fp8() && dgrad.scheme != wgrad.scheme;
    if is_split {
        let text = "dgrad and wgrad cast the gradient to one type: wgrad, of another scheme than dgrad, stays in high precision";
        of_site.add(LossKind::PerGemm, text, site.name());
        actual[2].scheme = Scheme::High;
    }
    let in_fp8 = |wanted: &Wanted| wanted.scheme.is_fp8();
    let power_of_two = actual.iter().filter(|wanted| in_fp8(wanted)).all(|wanted| wanted.power_of_two);
    for ((actual, wanted), gemm) in actual.iter_mut().zip(site.gemms).zip(Gemm::ALL) {
        actual.power_of_two = power_of_two;
        if gemm != Gemm::Wgrad || !is_split {
            numeric_losses(&mut of_site, site.name(), wanted, *actual);
        }
    }
    losses.add_once(of_site);
    actual.iter().any(in_fp8).then(|| named(&actual).unwrap_or_else(|| Recipe::Gemms(gemms(&actual))))
}

/// torchao's own recipe with these numerics.
fn named(actual: &[Wanted; 3]) -> Option<Recipe> {
    let same = |name: &&str| {
        let kernel = KernelId::new(&format!("torchao/{name}"));
        Gemm::ALL.into_iter().zip(actual).all(|(gemm, actual)| {
            Wanted::of(&kernel, gemm).is_some_and(|of| {
                let high = !of.scheme.is_fp8() && !actual.scheme.is_fp8();
                let numerics =
                    |wanted: &Wanted| (wanted.scheme, wanted.power_of_two, wanted.fast, wanted.coarse_weight);
                high || numerics(&of) == numerics(actual)
            })
        })
    };
    NAMED.iter().find(|name| same(name)).map(|name| Recipe::Named { name: (*name).to_owned() })
}

fn gemms(actual: &[Wanted; 3]) -> Gemms {
    let word = |gemm: Gemm| {
        let wanted = actual[gemm as usize];
        match wanted.scheme {
            Scheme::Tensor => "tensorwise",
            Scheme::Row if wanted.coarse_weight => "rowwise x tensorwise",
            Scheme::Row => "rowwise",
            Scheme::High | Scheme::Delayed | Scheme::DelayedGradient | Scheme::Static | Scheme::Block => OFF,
        }
        .to_owned()
    };
    let is_fast = |gemm: &Gemm| actual[*gemm as usize].fast && actual[*gemm as usize].scheme.is_fp8();
    let powers = actual.iter().any(|wanted| wanted.scheme.is_fp8() && wanted.power_of_two);
    Gemms {
        fprop: word(Gemm::Fprop),
        dgrad: word(Gemm::Dgrad),
        wgrad: word(Gemm::Wgrad),
        fast: Gemm::ALL.into_iter().filter(is_fast).collect(),
        scales: if powers { "powers of two" } else { "any number" }.to_owned(),
    }
}

/// How modules refer to it: from its content, so that a label cannot say another thing than its recipe.
fn label(recipe: &Recipe) -> String {
    match recipe {
        Recipe::Named { name } => name.clone(),
        Recipe::Gemms(gemms) => {
            let fast = |gemm: Gemm| if gemms.fast.contains(&gemm) { "+fast" } else { "" };
            let part = |word: &str, gemm: Gemm| format!("{gemm} {word}{}", fast(gemm));
            let parts =
                [part(&gemms.fprop, Gemm::Fprop), part(&gemms.dgrad, Gemm::Dgrad), part(&gemms.wgrad, Gemm::Wgrad)];
            format!("{}, scales {}", parts.join(", "), gemms.scales)
        }
    }
}

#[derive(Deserialize)]
struct TorchaoFile {
    recipes: BTreeMap<String, Recipe>,
    modules: BTreeMap<String, String>,
}

pub fn resolve(text: &str, modules: &[Module]) -> Resolved {
    let file: TorchaoFile = python::data_of(text)?;
    unknown(file.modules.keys().map(String::as_str), modules)?;
    let resolve = |module: &Module| match file.modules.get(&module.name) {
        Some(off) if off == OFF => Ok(LEFT.to_owned()),
        Some(name) => file.recipes.get(name).map(label).ok_or_else(|| format!("there is no recipe '{name}'")),
        None if module.is_linear() => Ok("an error when it is applied: not listed".to_owned()),
        None => Ok(LEFT.to_owned()),
    };
    modules.iter().map(resolve).collect()
}
