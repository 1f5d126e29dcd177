//! The tables that a question is about, and how it is asked.

use std::{
    panic::{self, AssertUnwindSafe},
    sync::Mutex,
};

use loka_core::{
    bench::KernelDb,
    model::{Gemm, Results},
    plan::Plan,
    tables::{kernel_columns, result_columns},
};
use polars_core::prelude::DataFrame;
use polars_lazy::frame::IntoLazy as _;
use polars_sql::SQLContext;

use crate::{Answer, QueryError, frame::FrameColumns, plans::plan_columns};

/// A table's name and its columns with their types, in order.
pub struct Described {
    pub name: &'static str,
    pub num_rows: usize,
    pub columns: Vec<(String, &'static str)>,
}

/// One table a kind of file; several files of a kind are one below the other, told apart by the column `file`.
#[derive(Default)]
pub struct Tables {
    results: Option<DataFrame>,
    kernels: Option<DataFrame>,
    plans: Option<DataFrame>,
}

impl Tables {
    /// Rows of `loka probe`, with which model they are of and when they were made.
    pub fn add_results(&mut self, file: &str, results: &Results) -> Result<(), QueryError> {
        let mut columns = FrameColumns::default();
        let height = results.rows.len();
        columns.label("file", file, height);
        columns.label("model", &results.meta.manifest.model.name, height);
        columns.label("trace", &results.meta.trace_digest, height);
        columns.label("time", &results.meta.time, height);
        result_columns(&mut columns, results);
        append(&mut self.results, columns)
    }

    /// Latencies of `loka bench`, without their raw samples.
    pub fn add_kernels(&mut self, file: &str, database: &KernelDb) -> Result<(), QueryError> {
        let mut columns = FrameColumns::default();
        columns.label("file", file, database.records.len());
        kernel_columns(&mut columns, &database.records);
        append(&mut self.kernels, columns)
    }

    /// What a plan chose, a row a site and GEMM.
    pub fn add_plan(&mut self, file: &str, plan: &Plan) -> Result<(), QueryError> {
        let mut columns = FrameColumns::default();
        let height = plan.sites.len() * Gemm::ALL.len();
        columns.label("file", file, height);
        columns.label("plan", &plan.name, height);
        columns.label("model", &plan.model.name, height);
        columns.label("trace", &plan.trace_digest, height);
        columns.label("policy", &plan.policy.name, height);
        columns.label("runtime", plan.runtime.as_str(), height);
        plan_columns(&mut columns, plan);
        append(&mut self.plans, columns)
    }

    fn each(&self) -> impl Iterator<Item = (&'static str, &DataFrame)> {
        let named = [("results", &self.results), ("kernels", &self.kernels), ("plans", &self.plans)];
        named.into_iter().filter_map(|(name, frame)| Some((name, frame.as_ref()?)))
    }

    pub fn describe(&self) -> Vec<Described> {
        let described = |(name, frame): (&'static str, &DataFrame)| Described {
            name,
            num_rows: frame.height(),
            columns: frame
                .columns()
                .iter()
                .map(|column| (column.name().to_string(), type_of(column.dtype())))
                .collect(),
        };
        self.each().map(described).collect()
    }

    /// One SELECT, in the SQL of polars (<https://docs.pola.rs/api/python/stable/reference/sql/index.html>). Tables are
    /// scanned for the columns and rows that it needs, and nothing else of them.
    pub fn ask(&self, sql: &str) -> Result<Answer, QueryError> {
        let known: Vec<&str> = self.each().map(|(name, _)| name).collect();
        let answer = without_panics(|| {
            let mut context = SQLContext::new();
            for (name, frame) in self.each() {
                context.register(name, frame.clone().lazy());
            }
            context.execute(sql).and_then(|lazy| lazy.collect())
        })?;
        let frame = answer.map_err(|error| sql_error(&error.to_string(), &known))?;
        Answer::of(&frame)
    }
}

fn append(table: &mut Option<DataFrame>, columns: FrameColumns) -> Result<(), QueryError> {
    let frame = columns.into_frame()?;
    match table {
        Some(table) => table.vstack_mut(&frame).map(drop).map_err(|error| QueryError::Frame(error.to_string())),
        None => {
            *table = Some(frame);
            Ok(())
        }
    }
}

/// As SQL calls it.
fn type_of(dtype: &polars_core::prelude::DataType) -> &'static str {
    use polars_core::prelude::DataType;
    match dtype {
        DataType::String => "text",
        DataType::Boolean => "boolean",
        DataType::Float64 => "double",
        _ => "bigint",
    }
}

/// What polars does not finish it leaves by a panic, a function that it parses and does not know among them. Its message
/// is kept, and nothing is printed.
fn without_panics<T>(ask: impl FnOnce() -> T) -> Result<T, QueryError> {
    // Hooks are the process's: two questions at once take turns.
    static HOOK: Mutex<()> = Mutex::new(());
    let _turn = HOOK.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    let before = panic::take_hook();
    panic::set_hook(Box::new(|_| {}));
    // Of what is asked nothing is looked at after a panic.
    let outcome = panic::catch_unwind(AssertUnwindSafe(ask));
    panic::set_hook(before);
    outcome.map_err(|payload| {
        let text = payload.downcast_ref::<String>().map(String::as_str);
        let text = text.or_else(|| payload.downcast_ref::<&str>().copied()).unwrap_or("it did not say why");
        QueryError::GaveUp(first_line(text).to_owned())
    })
}

/// polars adds hints and the plan so far on further lines.
fn first_line(text: &str) -> &str {
    text.lines().next().unwrap_or_default().trim()
}

fn sql_error(text: &str, known: &[&str]) -> QueryError {
    let line = first_line(text).trim_start_matches("SQL interface error: ").trim_start_matches("sql parser error: ");
    let asked = line.split("relation '").nth(1).and_then(|rest| rest.split_once("' was not found"));
    if let Some((asked, _)) = asked {
        let known = if known.is_empty() { "none".to_owned() } else { known.join(", ") };
        return QueryError::NoTable { asked: asked.to_owned(), known };
    }
    // All 66 of them follow there.
    let column = line.split("unable to find column ").nth(1).and_then(|rest| rest.split(';').next());
    if let Some(column) = column {
        return QueryError::NoColumn(column.trim().trim_matches('"').to_owned());
    }
    QueryError::Sql(line.to_owned())
}
