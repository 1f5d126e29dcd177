//! Every target over hostile names and all kernels: what is written resolves to the plan, or nothing is written.

use super::{
    testing::{HOSTILE, plan, uniform},
    *,
};
use crate::{dispatch::testing::Dice, model::catalogue};

fn run(plan: &Plan, target: Target) -> Result<Export, Refusal> {
    export(plan, &modules_of(plan), target, "")
}

fn losses(export: &Export) -> Vec<String> {
    export.losses.iter().map(Loss::to_string).collect()
}

#[test]
fn layers_1_is_not_layers_10() {
    let plan = plan(&[
        uniform("m.layers.1.fc1", "torchao/rowwise"),
        uniform("m.layers.10.fc1", "cublaslt/bf16"),
        ("layers.1", ["torchao/rowwise", "torchao/rowwise", "cublaslt/bf16"]),
        uniform("layers.10", "cublaslt/bf16"),
        uniform("fc1", "cublaslt/bf16"),
    ]);
    for target in Target::ALL {
        let export = run(&plan, target).unwrap_or_else(|refusal| panic!("{target}: {:?}", refusal.lines()));
        assert_eq!(export.num_modules, 5, "{target}");
        assert!(export.files[0].suffix.is_empty() && export.files[0].text.ends_with('\n'), "{target}");
        assert_eq!(run(&plan, target).unwrap(), export, "{target}: the same again");
    }
}

/// Names as they are, and put together from each other: prefixes, suffixes, and names within names.
fn names(dice: &mut Dice) -> Vec<String> {
    let mut names = std::collections::BTreeSet::new();
    for _ in 0..1 + dice.below(12) {
        let mut name = HOSTILE[dice.below(HOSTILE.len())].to_owned();
        while dice.below(3) == 0 {
            let other = HOSTILE[dice.below(HOSTILE.len())];
            let dot = if dice.below(4) == 0 { "" } else { "." };
            name = if dice.below(2) == 0 { format!("{name}{dot}{other}") } else { format!("{other}{dot}{name}") };
        }
        if dice.below(6) == 0 {
            name = name.to_uppercase();
        }
        names.insert(name);
    }
    names.into_iter().collect()
}

#[test]
fn hostile_names_survive_or_are_refused() {
    let (mut dice, kernels) = (Dice::new(3), catalogue());
    let (mut written, mut refused) = ([0; Target::ALL.len()], Vec::new());
    for _ in 0..400 {
        let names = names(&mut dice);
        let mut kernel = || if dice.below(3) == 0 { "cublaslt/bf16" } else { kernels[dice.below(kernels.len())].name };
        let sites: Vec<(&str, [&str; 3])> =
            names.iter().map(|name| (name.as_str(), [kernel(), kernel(), kernel()])).collect();
        let plan = plan(&sites);
        let mut modules = modules_of(&plan);
        // One is of another class, one the plan does not know.
        modules.push(Module::new("another.linear", "torch.nn.Linear"));
        modules.push(Module::new("an.activation", "ReLU"));
        for (number, target) in Target::ALL.into_iter().enumerate() {
            match export(&plan, &modules, target, "draft: 1 of 2 approvals\n") {
                Ok(_) => written[number] += 1,
                Err(refusal) => refused.push((target, refusal.lines())),
            }
        }
    }
    // Refusals are for what cannot be said, each with its reason, and they are few.
    for (target, lines) in &refused {
        let known =
            ["the plan has no forward GEMM in FP8", "everything is in FP8", "Model Explorer would show", "hf would"];
        let drops = lines[0].ends_with("is replaced, and the linears inside it are dropped");
        let known = drops || known.iter().any(|known| lines[0].starts_with(known));
        let differs = lines[0].contains("would not match the plan's layers") && lines.len() > 1;
        assert!(known || differs, "{target}: {lines:#?}");
    }
    assert!(written.iter().all(|count| *count > 300), "{written:?} {refused:#?}");
}

/// Literal patterns are looked up; that must be what trying every pattern gives.
#[test]
fn the_fast_way_is_the_definition() {
    use matchers::{CompressedTensors, FirstMatch, FqnToConfig, LastMatch, Quark, Sections, escape_glob, escape_regex};
    let mut dice = Dice::new(11);
    for _ in 0..200 {
        let (mut tried, names) = (names(&mut dice), names(&mut dice));
        let mut with = |loose: &[&str], exact: &dyn Fn(&str) -> String| -> Vec<String> {
            let mut patterns: Vec<String> = names.iter().map(|name| exact(name)).collect();
            patterns.insert(dice.below(patterns.len() + 1), loose[dice.below(loose.len())].to_owned());
            patterns.insert(dice.below(patterns.len() + 1), loose[dice.below(loose.len())].to_owned());
            patterns
        };
        let globs = with(&["*1", "a*", "[!a]*", "*.?", "*"], &escape_glob);
        let searched = with(&["1", "a.b", r"\Aa", r"\.1\Z"], &|name| format!("\\A(?:{}|a)\\Z", escape_regex(name)));
        let started = with(&["re:a", "Linear", "re:.*1"], &|name| format!("re:{}\\Z", escape_regex(name)));
        let whole = with(&["re:a.*", "a", "_default"], &|name| format!("re:{}", escape_regex(name)));
        let skipped = with(&["1", "a.b", "a", "layers.1", "m.*"], &|name| format!("{}\\Z", escape_regex(name)));
        let sections = Sections::new(searched.iter().map(|text| matchers::Pattern::new(text).unwrap()).collect());
        let first = FirstMatch::new(&globs);
        let last = LastMatch::new(&globs);
        let quark = Quark::new(&globs[..1], &globs);
        let tensors = CompressedTensors::new(&started, &started[..1]).unwrap();
        let config = FqnToConfig::new(&whole).unwrap();
        let skips = matchers::SkipList::new(&skipped).unwrap();
        tried.extend(names.iter().cloned());
        for name in &tried {
            assert_eq!(sections.of(name), sections.of_by_definition(name), "{name:?} {searched:?}");
            assert_eq!(first.of(name), first.of_by_definition(name), "{name:?} {globs:?}");
            assert_eq!(last.of(name), last.of_by_definition(name), "{name:?} {globs:?}");
            assert_eq!(quark.of(name), quark.of_by_definition(name), "{name:?} {globs:?}");
            assert_eq!(tensors.of(name, &["Linear"]), tensors.of_by_definition(name, &["Linear"]), "{name:?}");
            assert_eq!(config.of(name, &["weight"]), config.of_by_definition(name, &["weight"]), "{name:?}");
            assert_eq!(skips.hits(name), skips.hits_by_definition(name), "{name:?} {skipped:?}");
        }
    }
}

#[test]
fn a_loose_pattern_is_refused() {
    let plan = plan(&[uniform("m.layers.1", "cublaslt/bf16"), uniform("m.layers.10", "te/current")]);
    let modules = modules_of(&plan);
    let job = Job::new(&plan, &modules, Target::Nvdlfw, "").unwrap();
    let format = targets::format(Target::Nvdlfw);
    let written = (format.write)(&job).unwrap();
    let text = &written.files[0].text;
    assert!(resolution::check(&job, &written.settings, (format.resolve)(text, &modules)).is_ok());
    let loose = text.replace("\\\\A(?:", "").replace(")\\\\Z", "");
    assert_ne!(loose, *text);
    let refusal = resolution::check(&job, &written.settings, (format.resolve)(&loose, &modules)).unwrap_err();
    assert_eq!(
        refusal.lines(),
        [
            "nvdlfw would not match the plan's layers: 1 differ",
            "  m.layers.10: left in high precision; the plan: as the run"
        ]
    );
}

/// A file whose names miss the model is refused, in every format that has names.
#[test]
fn a_name_that_hits_nothing_is_refused() {
    let plan = plan(&[uniform("m.a", "cublaslt/bf16"), uniform("m.b", "te/current")]);
    let modules = modules_of(&plan);
    for target in Target::ALL {
        let job = Job::new(&plan, &modules, target, "").unwrap();
        let format = targets::format(target);
        let written = (format.write)(&job).unwrap();
        let text = &written.files[0].text;
        let misspelt = text.replace("m.b", "m.c").replace("m/b", "m/c").replace("m\\\\.a", "m\\\\.c");
        let misspelt = if target == Target::Hf { misspelt.replace("m.a", "m.c") } else { misspelt };
        assert_ne!(misspelt, *text, "{target}");
        let resolved = (format.resolve)(&misspelt, &modules);
        assert!(resolution::check(&job, &written.settings, resolved).is_err(), "{target}");
    }
}

#[test]
fn modules_that_the_plan_lacks_stay_in_high_precision() {
    let plan =
        plan(&[uniform("a", "torchao/tensorwise"), uniform("gone", "cublaslt/bf16"), uniform("b", "cublaslt/bf16")]);
    let modules = modules_from_text("a\tnn.Linear\nextra\tLinear\nact\tReLU\nb\n").unwrap();
    for target in Target::ALL {
        let export = export(&plan, &modules, target, "").unwrap();
        if target != Target::ModelExplorer {
            assert_eq!(
                export.losses[0].to_string(),
                "missing: in the plan, not among the model's linears (1 site: gone)"
            );
        }
        assert_eq!(export.notes[0], "1 linear is not in the plan and stays in high precision: extra");
        let num_shown = (target == Target::ModelExplorer).then_some(2);
        assert_eq!((export.num_fp8, export.num_shown), (1, num_shown), "{target}");
    }
    let other = modules_from_text("x\ny\n").unwrap();
    let refusal = export(&plan, &other, Target::Te, "").unwrap_err();
    assert_eq!(refusal.lines(), ["no site of the plan is a linear of the model"]);
}

#[test]
fn mods_own_kernels_and_tf32_are_losses() {
    let mut plan =
        plan(&[uniform("a", "loka/fp8-tensorwise"), uniform("b", "cublaslt/tf32"), uniform("c", "cublaslt/bf16")]);
    plan.mods.insert(crate::model::SiteId::new("a"), crate::model::ModSet::all());
    let export = run(&plan, Target::Te).unwrap();
    assert_eq!(
        losses(&export),
        [
            "mods: model changes are not in the file: the model must have them (loka.mods.apply) (1 site: a)",
            "accumulation: sums are fast, in the plan with promotion to FP32 (1 site: a)",
            "kernels: LoKA's own GEMMs become the framework's: errors stay near, measured times do not (1 site: a)",
            "high-precision: TF32 is not in the file: these GEMMs run in the model's own precision (1 site: b)",
        ]
    );
    plan.sites[2].wgrad.kernel = crate::model::KernelId::new("x/y");
    let refusal = run(&plan, Target::Te).unwrap_err();
    assert_eq!(refusal.cause, "site 'c' wgrad has the kernel 'x/y', which this program does not know");
}

#[test]
fn what_a_target_has_is_no_loss() {
    for (kernel, target) in [
        ("torchao/tensorwise", Target::Torchao),
        ("torchao/rowwise", Target::Torchao),
        ("torchao/rowwise_with_gw_hp", Target::Torchao),
        ("cublaslt/fp8-rowwise", Target::Torchao),
        ("cublaslt/fp8-tensorwise+fast", Target::Torchao),
        ("te/current", Target::Te),
        ("te/blockwise", Target::Te),
        ("te/current", Target::Megatron),
        ("te/blockwise", Target::Megatron),
        ("pytorch/fp8-rowwise+fast", Target::TorchaoInference),
        ("cublaslt/fp8-blockwise", Target::TorchaoInference),
        ("cublaslt/fp8-blockwise", Target::Hf),
        ("cublaslt/fp8-rowwise", Target::CompressedTensors),
        ("cublaslt/fp8-rowwise", Target::Modelopt),
        ("cublaslt/fp8-rowwise", Target::Quark),
    ] {
        let plan = plan(&[uniform("a", kernel), uniform("b", "cublaslt/bf16")]);
        let export = run(&plan, target).unwrap();
        assert_eq!((losses(&export), export.num_fp8), (Vec::new(), 1), "{kernel} for {target}");
    }
}

/// `loka.apply` pads them; no framework that reads a file does.
#[test]
fn widths_that_only_loka_pads_stay_in_high_precision() {
    let mut plan = plan(&[uniform("whole", "cublaslt/fp8-tensorwise"), uniform("odd", "cublaslt/fp8-tensorwise")]);
    (plan.sites[0].k, plan.sites[0].n) = (Some(512), Some(1024));
    for target in Target::ALL.into_iter().filter(|target| ![Target::Hf, Target::Nvdlfw].contains(target)) {
        for (k, n, is_whole) in [(429, 512, false), (512, 1001, false), (512, 512, true)] {
            (plan.sites[1].k, plan.sites[1].n) = (Some(k), Some(n));
            let export = run(&plan, target).unwrap();
            let lost =
                losses(&export).iter().any(|loss| loss.starts_with("widths: ") && loss.ends_with("(1 site: odd)"));
            assert_eq!(lost, !is_whole && target != Target::ModelExplorer, "{target}: {:?}", losses(&export));
        }
    }
    (plan.sites[1].k, plan.sites[1].n) = (Some(429), Some(512));
    assert_eq!(run(&plan, Target::Torchao).unwrap().num_fp8, 1);
    // wgrad stores any number of rows.
    (plan.sites[1].k, plan.sites[1].n) = (Some(512), Some(1001));
    let export = run(&plan, Target::Torchao).unwrap();
    assert_eq!(export.num_fp8, 2);
    assert!(
        export.files[0].text.contains(r#""odd": "fprop off, dgrad off, wgrad tensorwise"#),
        "{}",
        export.files[0].text
    );
}

#[test]
fn never_less_precise_than_the_plan() {
    let mixed = plan(&[("a", ["te/current", "te/current", "cublaslt/bf16"]), uniform("b", "te/current")]);
    let export = run(&mixed, Target::Megatron).unwrap();
    let whole = "per-gemm: one choice a layer: where not every GEMM is in FP8 the whole layer stays in high precision (1 site: a)";
    assert_eq!((losses(&export), export.num_fp8), (vec![whole.to_owned()], 1));
    let rowwise = plan(&[uniform("a", "torchao/rowwise"), uniform("b", "cublaslt/bf16")]);
    let export = run(&rowwise, Target::Hf).unwrap();
    assert!(losses(&export)[0].starts_with("granularity: rowwise scales are not in the file: blockwise instead"));
    let blockwise = plan(&[uniform("a", "te/blockwise"), uniform("b", "cublaslt/bf16")]);
    let export = run(&blockwise, Target::Torchao).unwrap();
    assert_eq!(export.num_fp8, 0);
    assert!(
        losses(&export)[0].starts_with("granularity: blockwise scales are not in the file: high precision instead")
    );
}

#[test]
fn provenance_is_inside_or_beside() {
    let plan = plan(&[uniform("a", "cublaslt/fp8-tensorwise"), uniform("b", "cublaslt/bf16")]);
    for target in Target::ALL {
        let export = export(&plan, &modules_of(&plan), target, "approved release 2").unwrap();
        let is_beside = export.files.iter().find(|file| file.suffix == PROVENANCE_SUFFIX);
        let text = &is_beside.unwrap_or(&export.files[0]).text;
        for word in [plan.digest.as_str(), "nightly", "approved release 2", target.proved_with()] {
            assert!(text.contains(word), "{target} lacks {word}: {text}");
        }
        let kept = [Target::CompressedTensors, Target::Quark, Target::Hf, Target::ModelExplorer];
        assert_eq!(is_beside.is_some(), kept.contains(&target), "{target}");
    }
}

#[test]
fn targets_by_name() {
    for target in Target::ALL {
        assert_eq!(target.as_str().parse(), Ok(target));
    }
    let unknown = "tensorrt".parse::<Target>().unwrap_err().to_string();
    assert!(unknown.starts_with("unknown target 'tensorrt' (torchao, torchao-inference, te, megatron,"), "{unknown}");
}

/// Each target's file for a plan of names that formats trip over. Where a change is meant, the new text is in the
/// message of the test.
#[test]
fn the_files_are_as_they_were() {
    let kernels = [
        "torchao/rowwise",
        "cublaslt/bf16",
        "te/current",
        "te/blockwise",
        "torchao/rowwise_with_gw_hp",
        "cublaslt/fp8-tensorwise+fast",
        "cublaslt/fp8-rowwise",
    ];
    let names = [
        "m.layers.1.fc1",
        "m.layers.10.fc1",
        "layers.1",
        "layers.10",
        "fc1",
        "a[0]",
        "a*b",
        "q\"uo'te",
        "back\\slash",
        "line\nbreak",
        "re:x",
        "Linear",
        "é.日本",
        "- yaml: #",
        "null",
        "\u{85}\u{2028}x",
    ];
    let sites: Vec<(&str, [&str; 3])> = names
        .into_iter()
        .enumerate()
        .map(|(at, name)| {
            let kernel = kernels[at % kernels.len()];
            (name, [kernel, kernel, if at % 3 == 0 { kernels[1] } else { kernel }])
        })
        .collect();
    let mut plan = plan(&sites);
    plan.digest = "sha256:00".to_owned();
    for (target, expected) in [
        (Target::Torchao, include_str!("snapshots/torchao.py.txt")),
        (Target::TorchaoInference, include_str!("snapshots/torchao-inference.json")),
        (Target::Te, include_str!("snapshots/te.py.txt")),
        (Target::Megatron, include_str!("snapshots/megatron.yaml")),
        (Target::Nvdlfw, include_str!("snapshots/nvdlfw.yaml")),
        (Target::Modelopt, include_str!("snapshots/modelopt.yaml")),
        (Target::CompressedTensors, include_str!("snapshots/compressed-tensors.json")),
        (Target::Quark, include_str!("snapshots/quark.json")),
        (Target::Hf, include_str!("snapshots/hf.json")),
        (Target::ModelExplorer, include_str!("snapshots/model-explorer.json")),
    ] {
        let export = export(&plan, &modules_of(&plan), target, "draft").unwrap();
        let text = &export.files[0].text;
        assert!(text == expected, "{target} is now:\n{text}");
    }
}
