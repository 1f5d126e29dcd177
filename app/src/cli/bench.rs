//! `loka bench`: shapes in, a kernel database with raw samples out.

use std::{
    cell::{Cell, RefCell},
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

use loka_core::{
    bench::{
        self, BenchEvent, Condition, KernelDb, Measurement, Moved, REPEATS_WITHIN, Watch, moved, parse_shapes,
        shapes_of, summarise,
    },
    engine::{self, Control, Engine, EngineError, TimeOptions},
    model::{Gemm, GemmShape, Kernel, KernelRecord, Runtime},
    parts::PartOf,
    tables::{read_kernels, write_kernels},
    trace::Trace,
};

use crate::{files, probing, store::PartStore};

mod part;
mod sites_part;

use super::{
    bench_report,
    output::{self, Outcome},
    patterns,
    sites::SiteBench,
};

#[derive(clap::Args, Debug)]
pub struct BenchArgs {
    /// A CSV of m,k,n or a trace.
    #[arg(long, value_name = "FILE|TRACE")]
    shapes: PathBuf,
    /// The kernel database to write, *.kernels.parquet; with --sites the table of site times, *.sites.json; with
    /// --part, of either, the folder of the parts, or its URL.
    #[arg(long)]
    pub out: PathBuf,
    /// One part of a bench that is split, such as 3/40: it is written into the folder --out under a name of its own,
    /// unless it is there already. `loka merge` joins all of them.
    #[arg(long, value_name = "PART/PARTS", conflicts_with_all = ["csv", "against", "minutes"])]
    part: Option<PartOf>,
    /// Refuse to run on another device than one whose name has this in it, such as H200.
    #[arg(long, value_name = "NAME")]
    device: Option<String>,
    /// Only kernels that match, e.g. 'cublaslt/fp8-*'; may be given again. BF16 is always timed beside them.
    #[arg(long = "kernels", value_name = "GLOB")]
    kernels: Vec<String>,
    /// Which of a linear's GEMMs.
    #[arg(long, value_delimiter = ',', default_value = "fprop,dgrad,wgrad")]
    gemms: Vec<Gemm>,
    /// Samples of each kernel and sequence.
    #[arg(long, default_value_t = 31, value_parser = clap::value_parser!(u64).range(5..=10_000))]
    samples: u64,
    /// Stop after so many minutes, with what was timed by then.
    #[arg(long, value_name = "N", value_parser = super::probe::minutes)]
    minutes: Option<Duration>,
    /// Also write the medians as compact text.
    #[arg(long, value_name = "FILE")]
    csv: Option<PathBuf>,
    /// An earlier database of the same shapes: exit 1 when the medians moved.
    #[arg(long, value_name = "OLD.kernels.parquet")]
    against: Option<PathBuf>,
    #[arg(long, default_value = "auto", value_parser = ["auto", "cuda"])]
    engine: String,
    /// Time the kernels of PyTorch, TorchAO, DeepGEMM, FBGEMM and Transformer Engine too, as far as the Python
    /// has them.
    #[arg(long)]
    libraries: bool,
    /// The Python whose libraries those are; with --sites the one that trains, with PyTorch.
    #[arg(long, default_value = "python3")]
    python: PathBuf,
    /// Time whole sites instead: a linear's GEMMs together, as loka.apply runs them in a compiled model.
    #[arg(long, conflicts_with_all = ["csv", "against", "libraries", "gemms", "minutes"])]
    sites: bool,
    /// Where those sites run: launched and graph, which one measurement gives, or inference.
    #[arg(long, default_value = "launched", requires = "sites")]
    runtime: Runtime,
    /// Tell progress on stderr, a line of JSON each, for the program that started this one.
    #[arg(long, requires = "part")]
    progress: bool,
}

pub fn run(args: &BenchArgs, json: bool) -> anyhow::Result<Outcome> {
    let shapes = shapes(args)?;
    if args.sites {
        return sites(args, json, &shapes);
    }
    let kernels = kernels(args)?;
    let gemms = each_once(&args.gemms);
    let old = args.against.as_ref().map(|path| read_kernels(path)).transpose()?;
    let place = args.part.map(|_| PartStore::of(&args.out)).transpose()?;
    match &place {
        Some(place) => place.check_writable()?,
        None => files::check_writable(&args.out)?,
    }
    args.csv.as_ref().map(|path| files::check_writable(path)).transpose()?;
    // The CPU emulates and has nothing to time: auto is CUDA too.
    let engine = engine::open(if args.engine == "auto" { "cuda" } else { &args.engine })?;
    if let Some(wanted) = &args.device {
        probing::check_device(&engine.describe().device, wanted)?;
    }
    if args.libraries {
        probing::load_libraries(&args.python)?;
    }
    output::note(&probing::engine_line(engine.as_ref()));
    let now = probing::now_rfc3339();
    let samples = usize::try_from(args.samples)?;
    let options = TimeOptions { samples, ..TimeOptions::default() };
    let what = Measurement { shapes: &shapes, gemms: &gemms, kernels: &kernels, options, recorded_at: &now };
    if let (Some(part), Some(place)) = (args.part, place) {
        let work = part::PartWork { what, part, place: &place, tells: args.progress };
        return part::run(&work, engine.as_ref(), json);
    }
    let (records, ended, condition) = time(engine.as_ref(), &what, &args.out, args.minutes);
    finish(args, json, records, ended, &condition, old.as_ref())
}

/// Nothing is written where nothing could be timed.
fn sites(args: &BenchArgs, json: bool, shapes: &[GemmShape]) -> anyhow::Result<Outcome> {
    let named = if args.kernels.is_empty() { Vec::new() } else { patterns::kernels(&args.kernels)? };
    let place = args.part.map(|_| PartStore::of(&args.out)).transpose()?;
    match &place {
        Some(place) => place.check_writable()?,
        None => files::check_writable(&args.out)?,
    }
    let (mut worker, bench) = SiteBench::start(&args.python, args.runtime, &named, u32::try_from(args.samples)?)?;
    if let Some(wanted) = &args.device {
        probing::check_device(&bench.device, wanted)?;
    }
    if let (Some(part), Some(place)) = (args.part, &place) {
        let work = sites_part::SitesWork { shapes, bench: &bench, part, place };
        return sites_part::run(&work, |shapes| bench.part(&mut worker, shapes, args.progress), json);
    }
    let times = bench.time(&mut worker, shapes, None)?;
    if times.num_timed() == 0 {
        output::complain(&anyhow::anyhow!("no site could be timed: {}", args.shapes.display()));
        return Ok(Outcome::Failed);
    }
    files::write_atomically(&args.out, times.to_json().as_bytes())?;
    if json {
        times.rows.iter().try_for_each(output::json)?;
        output::json(
            &serde_json::json!({"written": args.out, "device": times.device, "num_timed": times.num_timed()}),
        )?;
    } else {
        output::line(&format!("{}: {}", super::sites::summary(&times), args.out.display()));
    }
    Ok(Outcome::Done)
}

fn shapes(args: &BenchArgs) -> anyhow::Result<Vec<GemmShape>> {
    let path = &args.shapes;
    if path.is_dir() || path.extension().is_some_and(|end| end == "safetensors") {
        return Ok(shapes_of(&Trace::open(path)?.manifest().sites));
    }
    let text = crate::files::read_text(path)?;
    parse_shapes(&text).map_err(|error| anyhow::anyhow!("{error}: {}", path.display()))
}

/// Without patterns, those that LoKA's own engine runs.
fn kernels(args: &BenchArgs) -> anyhow::Result<Vec<&'static Kernel>> {
    let chosen = patterns::kernels(&args.kernels)?;
    let all = !args.kernels.is_empty() || args.libraries;
    Ok(chosen.into_iter().filter(|kernel| all || kernel.is_native()).collect())
}

fn each_once(gemms: &[Gemm]) -> Vec<Gemm> {
    Gemm::ALL.into_iter().filter(|gemm| gemms.contains(gemm)).collect()
}

/// What was timed is written now and then, so that a killed run leaves most of it.
const SAVE_EVERY: Duration = Duration::from_secs(10);

fn time(
    engine: &dyn Engine,
    what: &Measurement<'_>,
    out: &Path,
    limit: Option<Duration>,
) -> (Vec<KernelRecord>, Result<(), EngineError>, Condition) {
    let control = Control::new();
    let watch = RefCell::new(Watch::start(&engine.describe().device));
    let records = RefCell::new(Vec::new());
    let (started, timed, saved) = (Instant::now(), Cell::new(0), Cell::new(Instant::now()));
    let sink = |event| match event {
        BenchEvent::Records(new) => {
            records.borrow_mut().extend(new);
            if saved.get().elapsed() > SAVE_EVERY {
                // The last writing tells of a full disk.
                drop(write_kernels(out, &KernelDb { name: String::new(), records: records.borrow().clone() }));
                saved.set(Instant::now());
            }
        }
        BenchEvent::Progress { done, of } => {
            watch.borrow_mut().look();
            timed.set(done);
            let left = started.elapsed().as_secs_f64() * (of - done) as f64 / done as f64;
            let left = limit.map_or(left, |limit| left.min(limit.saturating_sub(started.elapsed()).as_secs_f64()));
            output::progress(&format!("timing {done} of {of} · {left:.0} s left"));
            if done < of && limit.is_some_and(|limit| started.elapsed() >= limit) {
                control.cancel();
            }
        }
        BenchEvent::Problem { gemm, shape, reason } => {
            output::note(&format!("warning: {gemm} {} x {} x {} was not timed: {reason}", shape.m, shape.k, shape.n));
        }
    };
    let ended = bench::measure(engine, what, &control, &sink);
    output::progress_done();
    if control.is_cancelled() {
        output::note("the time is over: what was not timed by now is left out");
    }
    let records = records.into_inner();
    let condition = watch.into_inner().finish(&records);
    (records, ended, condition)
}

/// Whatever was timed is written, also when the device went away in the middle.
fn finish(
    args: &BenchArgs,
    json: bool,
    records: Vec<KernelRecord>,
    ended: Result<(), EngineError>,
    condition: &Condition,
    old: Option<&KernelDb>,
) -> anyhow::Result<Outcome> {
    let lost = ended.err();
    if records.is_empty() {
        let reason = lost.map_or("no GEMM could be timed".to_owned(), |error| error.to_string());
        output::complain(&anyhow::anyhow!("{reason}: {}", args.shapes.display()));
        return Ok(Outcome::Failed);
    }
    let database = KernelDb { name: String::new(), records };
    write_kernels(&args.out, &database)?;
    if let Some(path) = &args.csv {
        files::write_atomically(path, bench::to_csv(&database.records).as_bytes())?;
    }
    let summary = summarise(&database.records);
    let moved: Option<Option<Moved>> = old.map(|old| moved(&database.records, &old.records));
    if json {
        bench_report::json(&args.out, &database.records, &summary, condition, moved.as_ref(), lost.as_ref())?;
    } else {
        bench_report::print(&args.out, &database.records, &summary, condition);
        moved.as_ref().into_iter().for_each(|moved| bench_report::print_moved(moved.as_ref()));
    }
    if let Some(error) = lost {
        let kept = database.records.len();
        output::complain(&anyhow::anyhow!("{error}; {kept} finished records are kept: {}", args.out.display()));
        return Ok(Outcome::Failed);
    }
    let repeats = moved.is_none_or(|moved| moved.is_some_and(|moved| moved.p90 <= REPEATS_WITHIN));
    Ok(if repeats { Outcome::Done } else { Outcome::Failed })
}
