//! Takes a job, gives a Python file with a quantizer factory for Transformer Engine's CustomRecipe, a choice a GEMM;
//! takes that file, gives what each module's GEMMs become.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::{Value, json};

use crate::{
    export::{
        Module, Refusal,
        job::{Job, Site, Written, entry, numeric_losses},
        loss::Losses,
        resolution::{LEFT, Resolved, unknown},
        scheme::{Scheme, Wanted},
    },
    model::Gemm,
};

use super::python;

/// Scheme, its word in the file, and the kernel whose numerics it has.
const KINDS: [(Scheme, &str, &str); 2] =
    [(Scheme::Tensor, "fp8_current", "te/current"), (Scheme::Block, "fp8_block", "te/blockwise")];

const HIGH: &str = "bf16";

pub fn write(job: &Job<'_>) -> Result<Written, Refusal> {
    let (mut settings, mut losses) = (vec![LEFT.to_owned(); job.modules.len()], Losses::default());
    let mut modules = Vec::new();
    for (at, module, site) in job.linears() {
        let words = match site {
            Some(site) => words(site, &mut losses)?,
            None => [HIGH; 3],
        };
        settings[at] = setting(words);
        modules.push((module.name.clone(), json!(words)));
    }
    let template = include_str!("te.py.txt");
    let data: [(&str, Value); 1] = [("provenance", job.provenance.json())];
    let text = python::with_data(template, &job.provenance.comments(), &data, &modules);
    Ok(Written::new(text, settings, losses))
}

fn words(site: &Site<'_>, losses: &mut Losses) -> Result<[&'static str; 3], Refusal> {
    let has = KINDS.map(|(scheme, ..)| scheme);
    let (mut words, mut of_site) = ([HIGH; 3], Losses::default());
    for (word, gemm) in words.iter_mut().zip(Gemm::ALL) {
        let wanted = site.gemm(gemm);
        let scheme = wanted.scheme.nearest(&has);
        if let Some((_, name, kernel)) = KINDS.into_iter().find(|(kind, ..)| *kind == scheme) {
            *word = name;
            numeric_losses(&mut of_site, site.name(), wanted, Wanted::of_kernel(entry(kernel)?, gemm));
        }
    }
    losses.add_once(of_site);
    Ok(words)
}

fn setting(words: [&str; 3]) -> String {
    if words == [HIGH; 3] { LEFT.to_owned() } else { words.join("/") }
}

#[derive(Deserialize)]
struct TeFile {
    modules: BTreeMap<String, [String; 3]>,
}

pub fn resolve(text: &str, modules: &[Module]) -> Resolved {
    let file: TeFile = python::data_of(text)?;
    unknown(file.modules.keys().map(String::as_str), modules)?;
    let known = |word: &String| word == HIGH || KINDS.iter().any(|(_, name, _)| name == word);
    if let Some(word) = file.modules.values().flatten().find(|word| !known(word)) {
        return Err(format!("'{word}' is no kind of quantizer"));
    }
    let resolve = |module: &Module| match file.modules.get(&module.name) {
        Some([fprop, dgrad, wgrad]) => setting([fprop, dgrad, wgrad]),
        None if module.is_linear() => "an error when it is applied: not listed".to_owned(),
        None => LEFT.to_owned(),
    };
    Ok(modules.iter().map(resolve).collect())
}
