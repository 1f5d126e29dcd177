//! `loka export`: a plan in, the files of one framework out; or what they would lose, and nothing.

use std::path::{Path, PathBuf};

use loka_core::export::{Export, Module, Refusal, Target, export, modules_from_text, modules_of, status_of};
use serde_json::json;

use crate::files;

use super::{
    check::read_plan,
    output::{self, Outcome, TextTable},
};

#[derive(clap::Args, Debug)]
pub struct ExportArgs {
    #[arg(required_unless_present = "list")]
    plan: Option<PathBuf>,
    /// The framework, and what for: see --list.
    #[arg(long, required_unless_present = "list")]
    to: Option<Target>,
    /// The file to write; more are written beside it where the format needs them.
    #[arg(long, required_unless_present = "list")]
    out: Option<PathBuf>,
    /// Write it although the target cannot say all of the plan; without this losses are listed and nothing is written.
    #[arg(long)]
    allow_loss: bool,
    /// The model's modules, a name a line, optionally a tab and the class; the plan's sites when left out.
    #[arg(long)]
    modules: Option<PathBuf>,
    /// The targets, with the versions that each was proved with.
    #[arg(long)]
    list: bool,
}

pub fn run(args: &ExportArgs, json: bool) -> anyhow::Result<Outcome> {
    if args.list {
        list(json)?;
        return Ok(Outcome::Done);
    }
    let (Some(plan_path), Some(target), Some(out)) = (&args.plan, args.to, &args.out) else {
        anyhow::bail!("a plan, --to and --out are needed");
    };
    let plan = read_plan(plan_path)?;
    let modules = match &args.modules {
        Some(path) => read_modules(path)?,
        None => modules_of(&plan),
    };
    match export(&plan, &modules, target, &status_of(&plan)) {
        Ok(export) if args.allow_loss || export.losses.is_empty() => {
            write(out, &export)?;
            tell(args, target, &export, Some(out), json)?;
            Ok(Outcome::Done)
        }
        Ok(export) => {
            tell(args, target, &export, None, json)?;
            Ok(Outcome::Failed)
        }
        Err(refusal) => {
            refuse(&refusal, json)?;
            Ok(Outcome::Failed)
        }
    }
}

fn read_modules(path: &Path) -> anyhow::Result<Vec<Module>> {
    modules_from_text(&files::read_text(path)?).map_err(|error| anyhow::anyhow!("{error}: {}", path.display()))
}

/// What the file's name becomes with a suffix behind it.
fn beside(out: &Path, suffix: &str) -> PathBuf {
    let mut name = out.as_os_str().to_owned();
    name.push(suffix);
    name.into()
}

fn write(out: &Path, export: &Export) -> anyhow::Result<()> {
    for file in &export.files {
        files::write_atomically(&beside(out, &file.suffix), file.text.as_bytes())?;
    }
    Ok(())
}

/// `written`: `None` when the losses kept it from being written.
fn tell(
    args: &ExportArgs,
    target: Target,
    export: &Export,
    written: Option<&PathBuf>,
    json: bool,
) -> anyhow::Result<()> {
    let files: Vec<PathBuf> =
        written.iter().flat_map(|out| export.files.iter().map(|file| beside(out, &file.suffix))).collect();
    if json {
        for loss in &export.losses {
            output::json(&json!({"loss": loss}))?;
        }
        return output::json(&json!({
            "written": files, "target": target.as_str(), "proved_with": target.proved_with(),
            "num_modules": export.num_modules, "num_fp8": export.num_fp8, "num_shown": export.num_shown,
            "num_losses": export.losses.len(), "notes": export.notes,
        }));
    }
    export.losses.iter().for_each(|loss| output::line(&format!("loses {loss}")));
    export.notes.iter().for_each(|note| output::note(&format!("note: {note}")));
    if files.is_empty() {
        let plan = args.plan.as_deref().unwrap_or(Path::new(""));
        output::line(&format!("nothing written: accept these losses with --allow-loss: {}", plan.display()));
        return Ok(());
    }
    output::line(&export.summary(target));
    files.iter().for_each(|file| output::line(&format!("written: {}", file.display())));
    Ok(())
}

fn refuse(refusal: &Refusal, json: bool) -> anyhow::Result<()> {
    if json {
        return output::json(&json!({"refused": refusal.cause, "differences": refusal.differences, "written": []}));
    }
    refusal.lines().iter().for_each(|line| output::line(line));
    output::line("nothing written");
    Ok(())
}

fn list(json: bool) -> anyhow::Result<()> {
    let mut table = TextTable::new(&["target", "proved with", "what is written"]);
    for target in Target::ALL {
        if json {
            output::json(&json!({
                "target": target.as_str(), "proved_with": target.proved_with(), "about": target.about(),
            }))?;
        }
        table.row([target.as_str(), target.proved_with(), target.about()].map(str::to_owned));
    }
    if !json {
        table.print();
    }
    Ok(())
}
