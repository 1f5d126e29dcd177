//! `loka query`: files and a question in SQL in, a table out.

use std::path::PathBuf;

#[derive(clap::Args, Debug)]
#[command(
    after_help = "Tables are `results` (rows of loka probe), `kernels` (of loka bench) and `plans` (a row a site and GEMM). Each has \
    the column `file`, so that runs can be told apart and joined. The SQL is that of polars.\n\n\
    \x20 loka query 'SELECT kernel, gemm, MEDIAN(rel_l2) AS rel_l2, COUNT(*) AS gemms FROM results GROUP BY kernel, gemm \
    ORDER BY rel_l2' runs/*.results.parquet\n\
    \x20 loka query --tables runs/"
)]
pub struct QueryArgs {
    /// One SELECT; with --tables the first file.
    sql: String,
    /// Results, kernel databases and plans, or folders that have some.
    files: Vec<PathBuf>,
    /// Print the tables' columns and types instead.
    #[arg(long)]
    tables: bool,
    /// Write the answer here, *.csv or *.parquet, instead of printing it.
    #[arg(long, conflicts_with = "tables")]
    out: Option<PathBuf>,
}

#[cfg(not(feature = "query"))]
pub fn run(_: &QueryArgs, _: bool) -> anyhow::Result<super::Outcome> {
    anyhow::bail!(
        "this build has no SQL (it was made without the feature `query`): cargo build --release --package loka --features query"
    )
}

#[cfg(feature = "query")]
pub use with_polars::run;

#[cfg(feature = "query")]
mod with_polars {
    use std::path::{Path, PathBuf};

    use loka_core::{
        model::FileMagic,
        plan::Plan,
        tables::{Cause, MemoryColumns, read_kernels, read_results, write_table},
    };
    use loka_query::{Answer, Cell, Tables};
    use serde_json::{Map, Value, json};

    use super::{
        super::output::{self, Outcome, TextTable},
        QueryArgs,
    };
    use crate::files;

    pub fn run(args: &QueryArgs, json: bool) -> anyhow::Result<Outcome> {
        let mut paths = args.files.clone();
        if args.tables {
            paths.insert(0, PathBuf::from(&args.sql));
        }
        anyhow::ensure!(!paths.is_empty(), "no files to ask: loka query SQL FILE...");
        if let Some(out) = &args.out {
            ending(out)?;
            files::check_writable(out)?;
        }
        let tables = read(&paths)?;
        if args.tables {
            return describe(&tables, json);
        }
        let answer = tables.ask(&args.sql)?;
        match &args.out {
            Some(out) => write(out, &answer, json)?,
            None if json => print_json(&answer)?,
            None => print(&answer),
        }
        Ok(Outcome::Done)
    }

    fn read(paths: &[PathBuf]) -> anyhow::Result<Tables> {
        let mut files = Vec::new();
        for path in paths {
            if path.is_dir() { files.extend(of_folder(path)?) } else { files.push(path.clone()) }
        }
        let mut tables = Tables::default();
        for (at, file) in files.iter().enumerate() {
            output::progress(&format!("reading {} of {}: {}", at + 1, files.len(), file.display()));
            let added = add(&mut tables, file);
            if added.is_err() {
                output::progress_done();
            }
            added?;
        }
        output::progress_done();
        Ok(tables)
    }

    /// Those of its files that are for this, by name.
    fn of_folder(folder: &Path) -> anyhow::Result<Vec<PathBuf>> {
        let failed = |error: std::io::Error| anyhow::anyhow!("{}: {}", files::reason(&error), folder.display());
        let entries = folder.read_dir().map_err(failed)?.collect::<Result<Vec<_>, _>>().map_err(failed)?;
        let is_ours = |path: &PathBuf| {
            let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
            !name.starts_with('.') && [".parquet", ".plan.json"].iter().any(|ending| name.ends_with(ending))
        };
        let mut files: Vec<PathBuf> = entries.into_iter().map(|entry| entry.path()).filter(is_ours).collect();
        files.sort();
        anyhow::ensure!(
            !files.is_empty(),
            "no results, kernel database or plan is in this folder: {}",
            folder.display()
        );
        Ok(files)
    }

    fn add(tables: &mut Tables, path: &Path) -> anyhow::Result<()> {
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let at = |error: &dyn std::fmt::Display| anyhow::anyhow!("{error}: {}", path.display());
        if !name.ends_with(".parquet") {
            let plan =
                Plan::from_json(&files::read_document(path, "results, a kernel database or a plan", FileMagic::Plan)?);
            return tables.add_plan(&name, &plan.map_err(|error| at(&error))?).map_err(|error| at(&error));
        }
        match read_results(path) {
            Ok(results) => tables.add_results(&name, &results),
            Err(error) if matches!(error.cause, Cause::NoMetadata) => tables.add_kernels(&name, &read_kernels(path)?),
            Err(error) => return Err(error.into()),
        }
        .map_err(|error| at(&error))
    }

    fn describe(tables: &Tables, json: bool) -> anyhow::Result<Outcome> {
        for table in tables.describe() {
            if json {
                let columns =
                    table.columns.iter().map(|(name, kind)| json!({"column": name, "type": kind})).collect::<Vec<_>>();
                output::json(&json!({"table": table.name, "rows": table.num_rows, "columns": columns}))?;
                continue;
            }
            output::line(&format!("{}: {} rows", table.name, table.num_rows));
            for (name, kind) in &table.columns {
                output::line(&format!("  {name} {kind}"));
            }
        }
        Ok(Outcome::Done)
    }

    fn print(answer: &Answer) {
        let head = |column: &loka_query::Column| format!("{}{}", if column.is_number { ">" } else { "" }, column.name);
        let heads: Vec<String> = answer.columns.iter().map(head).collect();
        let mut table = TextTable::new(&heads.iter().map(String::as_str).collect::<Vec<_>>());
        for row in 0..answer.num_rows {
            table.row(answer.columns.iter().map(|column| shown(&column.cells[row])));
        }
        table.print();
    }

    /// For people; JSON and files have every digit.
    fn shown(cell: &Cell) -> String {
        match cell {
            Cell::Null => "-".to_owned(),
            Cell::Flag(flag) => flag.to_string(),
            Cell::Int(int) => int.to_string(),
            Cell::Float(float) => output::short(*float),
            Cell::Text(text) => text.clone(),
        }
    }

    /// What JSON has no number for (infinities, NaN) is a text.
    fn value(cell: &Cell) -> Value {
        match cell {
            Cell::Null => Value::Null,
            Cell::Flag(flag) => json!(flag),
            Cell::Int(int) => json!(int),
            Cell::Float(float) if float.is_finite() => json!(float),
            Cell::Float(float) => json!(float.to_string()),
            Cell::Text(text) => json!(text),
        }
    }

    fn print_json(answer: &Answer) -> anyhow::Result<()> {
        for row in 0..answer.num_rows {
            let pairs = answer.columns.iter().map(|column| (column.name.clone(), value(&column.cells[row])));
            output::json(&pairs.collect::<Map<String, Value>>())?;
        }
        Ok(())
    }

    /// `true`: Parquet.
    fn ending(out: &Path) -> anyhow::Result<bool> {
        match out.extension().and_then(std::ffi::OsStr::to_str) {
            Some("parquet") => Ok(true),
            Some("csv") => Ok(false),
            _ => anyhow::bail!("an answer is written as *.csv or *.parquet: {}", out.display()),
        }
    }

    fn write(out: &Path, answer: &Answer, json: bool) -> anyhow::Result<()> {
        if ending(out)? {
            let mut columns = MemoryColumns::default();
            answer.fill(&mut columns);
            write_table(out, columns)?;
        } else {
            files::write_atomically(out, &csv_of(answer)?)?;
        }
        if json {
            output::json(&json!({"written": out.display().to_string(), "num_rows": answer.num_rows}))
        } else {
            output::line(&format!("{} rows: {}", answer.num_rows, out.display()));
            Ok(())
        }
    }

    fn csv_of(answer: &Answer) -> anyhow::Result<Vec<u8>> {
        let mut writer = csv::Writer::from_writer(Vec::new());
        writer.write_record(answer.columns.iter().map(|column| column.name.as_str()))?;
        let text = |cell: &Cell| match cell {
            Cell::Null => String::new(),
            Cell::Float(float) => float.to_string(),
            other => shown(other),
        };
        for row in 0..answer.num_rows {
            writer.write_record(answer.columns.iter().map(|column| text(&column.cells[row])))?;
        }
        Ok(writer.into_inner()?)
    }
}
