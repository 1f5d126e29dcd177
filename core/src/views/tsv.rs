//! Tables to paste into a spreadsheet: takes a snapshot and what was derived of it, gives tab-separated text.
//! Numbers are whole, not rounded for a screen; units stand in the header; a name can neither break the
//! table nor become a formula.

use crate::{
    dispatch::judge,
    model::{Estimate, Gemm, LatencySource, Quadrant, ResultRow, catalogue},
    views::Snapshot,
};

use super::{
    BrushedRows, Column, ViewQuery, Views,
    cell::{value, value_over},
};

/// A line of cells, each as it will stand in the spreadsheet.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Table {
    pub header: Vec<String>,
    pub rows: Vec<Vec<String>>,
}

impl Table {
    fn new(header: &[&str]) -> Self {
        Self { header: header.iter().map(|name| (*name).to_owned()).collect(), rows: Vec::new() }
    }

    /// Lines end with a newline; the header comes first.
    pub fn to_tsv(&self) -> String {
        let lines = std::iter::once(&self.header).chain(&self.rows);
        lines.map(|cells| line(cells)).collect()
    }
}

/// Cells of one line, escaped.
pub fn line(cells: &[String]) -> String {
    let cells: Vec<String> = cells.iter().map(|cell| escaped(cell)).collect();
    cells.join("\t") + "\n"
}

/// A cell's text: tabs and newlines become visible, and what a spreadsheet would run is made text. Numbers
/// keep their sign.
pub fn escaped(text: &str) -> String {
    let plain = text.chars().map(|character| match character {
        '\t' => "\\t".to_owned(),
        '\n' => "\\n".to_owned(),
        '\r' => "\\r".to_owned(),
        other if other.is_control() => other.escape_default().to_string(),
        other => other.to_string(),
    });
    let plain: String = plain.collect();
    let formula = plain.starts_with(['=', '+', '-', '@']) && plain.parse::<f64>().is_err();
    if formula { format!("'{plain}") } else { plain }
}

/// Every digit that it has; nothing where there is no number.
fn number(value: Option<f64>) -> String {
    value.map_or_else(String::new, |value| value.to_string())
}

/// The heatmap: a line a site of `shown`, a column a kernel.
pub fn grid(snapshot: &Snapshot, views: &Views, question: ViewQuery, shown: &[usize]) -> Table {
    let reference = match (&views.versus, question.relative) {
        (Some(versus), _) if question.versus => format!(", over {}'s", versus.name),
        (_, true) => ", over BF16's".to_owned(),
        _ => String::new(),
    };
    let mut table = Table::new(&["site"]);
    let named = |column: &Column| format!("{} {} ({}{reference})", column.gemm, column.kernel, question.metric.label());
    table.header.extend(views.grid.columns.iter().map(named));
    table.rows = shown.iter().map(|at| grid_row(snapshot, views, question, *at)).collect();
    table
}

/// One line of [`grid`].
pub fn grid_row(snapshot: &Snapshot, views: &Views, question: ViewQuery, at: usize) -> Vec<String> {
    let name = snapshot.sites().get(at).map(|site| site.id.to_string()).unwrap_or_default();
    let cells = views.grid.columns.iter();
    let cells = cells.map(|column| number(estimate(snapshot, views, question, at, column).map(|of| of.value)));
    std::iter::once(name).chain(cells).collect()
}

/// One cell of the heatmap: its number, or why there is none.
pub fn grid_cell(snapshot: &Snapshot, views: &Views, question: ViewQuery, at: usize, column: &Column) -> String {
    let reason = || snapshot.row(at, column.gemm, &column.kernel).and_then(|row| row.reason.as_deref());
    match estimate(snapshot, views, question, at, column) {
        Some(estimate) => estimate.value.to_string(),
        None => reason().unwrap_or("no value").to_owned(),
    }
}

fn estimate(snapshot: &Snapshot, views: &Views, question: ViewQuery, at: usize, column: &Column) -> Option<Estimate> {
    let row = snapshot.row(at, column.gemm, &column.kernel)?;
    if let Some(versus) = views.versus.as_ref().filter(|_| question.versus) {
        let base = versus.base(snapshot, at, column.gemm, &column.kernel)?;
        return value_over(row, base, question.metric, snapshot.loss());
    }
    let baseline = &snapshot.document.policy.baseline;
    let base = if question.relative { snapshot.row(at, column.gemm, baseline) } else { None };
    value(row, base, question.metric, snapshot.loss())
}

const POINTS: [&str; 9] =
    ["site", "GEMM", "kernel", "speed-up (× BF16)", "error", "error from", "error to", "verdict", "latency source"];

/// The quadrant's points.
pub fn points(snapshot: &Snapshot, views: &Views) -> Table {
    let mut table = Table::new(&POINTS);
    let metric = snapshot.document.policy.metric;
    table.rows.extend(views.quadrant.points.iter().filter_map(|point| {
        // A point keeps places on the screen's axes; the numbers in full are its row's.
        let (at, kernel) = (point.site as usize, views.quadrant.kernel(point.kernel)?);
        let row = snapshot.row(at, point.gemm, kernel)?;
        let Estimate { value, lo, hi } = row.metric(metric)?;
        let names = [row.site.to_string(), point.gemm.to_string(), kernel.to_string()];
        let numbers = [row.speedup(), Some(value), Some(lo), Some(hi)].map(number);
        let words = [quadrant_word(point.quadrant).to_owned(), source_word(point.source).to_owned()];
        Some(names.into_iter().chain(numbers).chain(words).collect())
    }));
    table
}

/// The rows of a set, in high precision too.
pub fn row_set(snapshot: &Snapshot, set: &BrushedRows) -> Table {
    let mut table = Table::new(&KERNELS);
    table.header.push("verdict".to_owned());
    let (policy, loss) = (&snapshot.document.policy, snapshot.loss());
    table.rows.extend(set.rows().iter().filter_map(|of| {
        let row = snapshot.row(of.site as usize, of.gemm, set.kernel(of)?)?;
        let mut cells = kernel_row(row);
        cells.push(quadrant_word(judge(row, policy, loss).2).to_owned());
        Some(cells)
    }));
    table
}

/// The plan: a line a GEMM.
pub fn choices(snapshot: &Snapshot, views: &Views) -> Table {
    choices_of(snapshot, views, 0..snapshot.sites().len())
}

/// The same of some sites.
pub fn choices_of(snapshot: &Snapshot, views: &Views, sites: impl IntoIterator<Item = usize>) -> Table {
    let metric = snapshot.document.policy.metric;
    let mut table = Table::new(&["site", "GEMM", "kernel", "chosen by"]);
    table.header.push(format!("error ({})", metric.label()));
    table.header.extend(["speed-up (× BF16)", "reason", "runners-up"].map(str::to_owned));
    for at in sites {
        let Some(site) = snapshot.sites().get(at) else { continue };
        for gemm in Gemm::ALL {
            let Some(choice) = views.choice_at(at, gemm) else { continue };
            let by = match choice.source {
                crate::dispatch::ChoiceSource::Dispatch => "policy",
                crate::dispatch::ChoiceSource::Override => "hand",
            };
            let runners: Vec<String> = choice.runners_up.iter().map(ToString::to_string).collect();
            table.rows.push(vec![
                site.id.to_string(),
                gemm.to_string(),
                choice.kernel.to_string(),
                by.to_owned(),
                number(choice.error.get(&metric).copied()),
                number(choice.speedup),
                choice.reason.clone(),
                runners.join(", "),
            ]);
        }
    }
    table
}

const KERNELS: [&str; 14] = [
    "site",
    "GEMM",
    "kernel",
    "MERE",
    "MERE from",
    "MERE to",
    "relative L2",
    "draws",
    "latency (µs)",
    "casts (µs)",
    "speed-up (× BF16)",
    "latency source",
    "mods",
    "no value because",
];

/// Every kernel of one site, in catalogue order.
pub fn kernels(snapshot: &Snapshot, at: usize) -> Table {
    let mut table = Table::new(&KERNELS);
    for gemm in Gemm::ALL {
        let known = catalogue().iter().filter_map(|kernel| snapshot.row(at, gemm, &kernel.id()));
        table.rows.extend(known.map(kernel_row));
    }
    table
}

fn kernel_row(row: &ResultRow) -> Vec<String> {
    let error = row.error.as_ref();
    let mere = error.map(|error| error.mere);
    vec![
        row.site.to_string(),
        row.gemm.to_string(),
        row.kernel.to_string(),
        number(mere.map(|of| of.value)),
        number(mere.map(|of| of.lo)),
        number(mere.map(|of| of.hi)),
        number(error.map(|error| error.rel_l2.value)),
        error.map_or_else(String::new, |error| error.draws.to_string()),
        number(row.latency.latency_us),
        number(row.latency.cast_us),
        number(row.speedup()),
        source_word(row.latency.source).to_owned(),
        row.mods.to_string(),
        row.reason.as_deref().unwrap_or_default().to_owned(),
    ]
}

fn quadrant_word(quadrant: Quadrant) -> &'static str {
    match quadrant {
        Quadrant::SafeFast => "safe and fast",
        Quadrant::SafeSlow => "safe and slow",
        Quadrant::UnsafeFast => "unsafe and fast",
        Quadrant::UnsafeSlow => "unsafe and slow",
        Quadrant::SafeUnknown => "safe, speed unknown",
        Quadrant::UnsafeUnknown => "unsafe, speed unknown",
        Quadrant::Uncertain => "uncertain",
        Quadrant::Unsupported => "unsupported",
    }
}

fn source_word(source: LatencySource) -> &'static str {
    match source {
        LatencySource::Measured => "measured",
        LatencySource::Recorded => "recorded",
        LatencySource::Modelled => "modelled",
        LatencySource::None => "",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::views::{Filter, ShownColumn};
    use crate::{
        dispatch::testing::{results, row},
        model::{KernelId, Metric},
        session::{Event, Session},
    };

    const FAST: &str = "cublaslt/fp8-rowwise+fast";
    const QUESTION: ViewQuery = ViewQuery { metric: Metric::Mere, gemm: None, relative: false, versus: false };

    fn made(site: &str) -> (Snapshot, Views) {
        let mut session = Session::by_paper();
        let rows = vec![row(site, Gemm::Fprop, FAST, 0.123_456_789_012, Some(1.25), 0.0)];
        let results = Box::new(results(&[site], rows).into());
        session.event(Event::ResultsOpened { path: "r.parquet".to_owned(), results });
        let snapshot = session.snapshot().unwrap();
        let views = Views::of(&snapshot, QUESTION, &Views::default());
        (Snapshot::clone(&snapshot), views)
    }

    #[test]
    fn names_can_neither_break_a_table_nor_become_formulas() {
        for (text, safe) in [
            ("net.0", "net.0"),
            ("=HYPERLINK(\"x\")", "'=HYPERLINK(\"x\")"),
            ("+1+2", "'+1+2"),
            ("@SUM", "'@SUM"),
            ("-a", "'-a"),
            ("-0.25", "-0.25"),
            ("a\tb\nc\rd", "a\\tb\\nc\\rd"),
            ("\u{7}bell", "\\u{7}bell"),
            ("\t=1", "\\t=1"),
        ] {
            assert_eq!(escaped(text), safe);
        }
    }

    #[test]
    fn every_line_has_as_many_cells_as_the_header() {
        let (snapshot, views) = made("=cmd|' /C calc'!A0\tx\n");
        let tables = [
            grid(&snapshot, &views, QUESTION, &[0]),
            points(&snapshot, &views),
            choices(&snapshot, &views),
            kernels(&snapshot, 0),
            row_set(
                &snapshot,
                &BrushedRows::of_cells([0], &views.grid, &ShownColumn::all(&views.grid, &Filter::default(), |_| true)),
            ),
        ];
        for table in tables {
            let text = table.to_tsv();
            let lines: Vec<&str> = text.lines().collect();
            assert_eq!(lines.len(), 1 + table.rows.len());
            assert!(!table.rows.is_empty());
            for line in &lines {
                assert_eq!(line.split('\t').count(), table.header.len(), "{line}");
                assert!(!line.starts_with(['=', '+', '-', '@']));
            }
        }
    }

    #[test]
    fn numbers_are_whole_and_say_their_unit() {
        let (snapshot, views) = made("a");
        let table = grid(&snapshot, &views, QUESTION, &[0]);
        let column = Column { gemm: Gemm::Fprop, kernel: KernelId::new(FAST) };
        let at = views.grid.columns.iter().position(|of| *of == column).unwrap();
        assert_eq!(table.rows[0][at + 1], "0.123456789012");
        assert_eq!(table.header[at + 1], format!("fprop {FAST} (MERE)"));
        assert_eq!(grid_cell(&snapshot, &views, QUESTION, 0, &column), "0.123456789012");
        let relative = grid(&snapshot, &views, ViewQuery { relative: true, ..QUESTION }, &[0]);
        assert!(relative.header[at + 1].ends_with("(MERE, over BF16's)"));
        assert!(points(&snapshot, &views).to_tsv().contains("\t1.25\t0.123456789012\t"));
    }

    #[test]
    fn a_cell_without_a_number_says_why() {
        let (snapshot, views) = made("a");
        let waiting = Column { gemm: Gemm::Wgrad, kernel: KernelId::new(FAST) };
        assert_eq!(grid_cell(&snapshot, &views, QUESTION, 0, &waiting), "no value");
    }
}
