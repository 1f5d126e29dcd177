//! Takes shapes and kernels, gives what whole sites take by them: through a worker that compiles a model around each.

use std::{
    cmp::Reverse,
    ops::Range,
    sync::{
        Condvar, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, AtomicUsize, Ordering},
        mpsc::{self, Sender},
    },
    thread,
};

use crate::{
    engine::{
        Control,
        worker::{SiteRequest, TimeOptions, Worker, WorkerConfig, WorkerError, WorkerSite},
    },
    model::{Gemm, GemmShape, Kernel, KernelId, Runtime, SiteTime, Spread, baseline_kernel, kernel},
};

use super::quantile::quantile_of;

/// Samples of each site, at least.
pub const MIN_SITE_SAMPLES: u32 = 15;

/// Of BF16 from its median over the runs of a shape: more than a power cap and clocks make.
const MAX_DRIFT: f64 = 1.15;

/// Timed wherever nothing else is asked for: what `loka.apply` runs fastest in a compiled step. Rows have errors that the first has
/// not; one scale a tensor found in the step itself has those of the first or more, and takes longer.
const FAMILIES: [&str; 3] = ["cublaslt/fp8-delayed+fast", "cublaslt/fp8-rowwise+fast", "cublaslt/fp8-tensorwise+fast"];

/// Timed beside them where a model is served: what reads codes that a block stores (`crate::dispatch::chain`).
const READS_CODES: &str = "loka/fp8-static+fast";

/// Scales that follow, with fast accumulation and without.
const DELAYED: [&str; 2] = ["cublaslt/fp8-delayed+fast", "cublaslt/fp8-delayed"];

/// The default families of a runtime and, of `named`, those that one kernel can run all of: never BF16.
pub fn site_families(named: &[&'static Kernel], runtime: Runtime) -> Vec<&'static Kernel> {
    let serving = (runtime == Runtime::Inference).then_some(READS_CODES);
    let mut families: Vec<&'static Kernel> = FAMILIES.into_iter().chain(serving).filter_map(kernel).collect();
    for more in named.iter().filter(|more| !more.high_precision()) {
        if !families.iter().any(|family| family.name == more.name) {
            families.push(more);
        }
    }
    families
}

/// By every family, each set of the runtime's GEMMs that it runs, the others in BF16. What plans choose most comes first,
/// should time not reach for all: after each GEMM by itself, all three together. What pairs take can be told from those.
pub fn site_triples(families: &[&'static Kernel], runtime: Runtime) -> Vec<[KernelId; 3]> {
    let bf16 = baseline_kernel();
    let mut triples: Vec<[KernelId; 3]> = Vec::new();
    for family in families {
        let of_set = |set: u32, kernel: &Kernel| {
            let within = |at: usize| set >> at & 1 == 1;
            let runs = |at: usize| kernel.not_applied(Gemm::ALL[at], runtime).is_none();
            let id = |at: usize| if within(at) { kernel.id() } else { bf16.clone() };
            (0..3).all(|at| !within(at) || runs(at)).then(|| [0, 1, 2].map(id))
        };
        let of_family = |set: u32| of_set(set, family);
        // What does not pay alone, the worker does not try together with others.
        let mut mine: Vec<_> = [1, 2, 4].into_iter().filter_map(of_family).collect();
        // Fast accumulation may cost more than casts do (docs/concepts/method.md), a weight's gradient most often: then what
        // accumulates in FP32 is safe, and has to be timed to be chosen. Alone is enough: Dispatch knows of the fast ones what
        // their casts save each other. But this is what the default policy mostly asks for.
        let promoted = promoted(family);
        let of_promoted = |set: u32| of_set(set, promoted?);
        mine.extend(of_promoted(4));
        if let Some(wgrad) = promoted.filter(|_| runtime != Runtime::Inference) {
            mine.push([family.id(), family.id(), wgrad.id()]);
        }
        mine.extend(of_family(7));
        mine.extend([1, 2].into_iter().filter_map(of_promoted));
        mine.extend([3, 5, 6].into_iter().filter_map(of_family));
        mine.retain(|triple| !triples.contains(triple));
        triples.extend(mine);
    }
    triples
}

/// What accumulates in FP32 beside a family that accumulates fast: of scales that follow alone, for want of time.
fn promoted(family: &Kernel) -> Option<&'static Kernel> {
    let [fast, promoted] = DELAYED;
    kernel(promoted).filter(|_| family.name == fast)
}

/// What is to be timed.
#[derive(Clone, Copy, Debug)]
pub struct SiteMeasurement<'a> {
    pub shapes: &'a [GemmShape],
    /// Rows are of all that are [timed together](Runtime::timed_together) with it.
    pub runtime: Runtime,
    pub triples: &'a [[KernelId; 3]],
    pub options: TimeOptions,
    /// On the CPU by emulated kernels: the protocol's tests. Nothing of it is a figure.
    pub emulate: bool,
}

/// What came of a measurement: rows in the order of shapes, triples and runtimes, and why it ended early, if it did.
#[derive(Debug, Default)]
pub struct MeasuredSites {
    pub rows: Vec<SiteTime>,
    pub ended: Option<WorkerError>,
}

/// As many workers as pay: a compiler needs about two cores, and nobody waits for more than eight.
pub fn num_site_workers() -> usize {
    (std::thread::available_parallelism().map_or(1, usize::from) / 2).clamp(1, 8)
}

/// Times every shape by every three kernels. Nearly all of the time goes into compiling, so up to `num_workers` processes,
/// the first of them `worker`, compile side by side; while one of them times, nobody compiles ([`Turns`]). A request has one
/// triple, so that what kills a worker costs one row. What did not fit into the GPU's memory beside the others, or was
/// disturbed by somebody else's work on it, is tried once more when they are gone. The first family of kernels comes first,
/// the largest shapes before the others. `report` gets how many shapes and triples are done, of how many. Ends early when the
/// first worker is given up or `control` says so, with the rows that there are.
pub fn measure_sites(
    worker: &mut Worker,
    num_workers: usize,
    what: &SiteMeasurement<'_>,
    control: &Control,
    report: &mut dyn FnMut(usize, usize),
) -> MeasuredSites {
    let work = SiteWork::new(what);
    let siblings: Vec<WorkerConfig> = (1..num_workers.min(work.units.len())).map(|_| worker.config().clone()).collect();
    let mut found: Vec<Option<TimedRows>> = vec![None; work.num_timed()];
    let all = found.len();
    let (tell, told) = mpsc::channel();
    let ended = thread::scope(|scope| {
        for config in siblings {
            let (work, tell) = (&work, tell.clone());
            scope.spawn(move || {
                // One that does not start is no loss: the others do its part.
                let Ok(mut sibling) = Worker::start(config) else { return };
                drop(work.take_part(&mut sibling, control, &tell));
            });
        }
        let (shared, first) = (&work, &mut *worker);
        let first = scope.spawn(move || {
            let ended = shared.take_part(first, control, &tell);
            shared.is_over.store(ended.is_some(), Ordering::Relaxed);
            ended
        });
        let mut done = 0;
        for (at, timed) in told {
            done += 1;
            report(done, all);
            found[at] = Some(timed);
        }
        first.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    });
    if ended.is_none() {
        for at in work.to_be_repeated(&found) {
            if !control.is_cancelled() {
                found[at] = work.time(worker, at).ok();
            }
        }
        for at in work.disturbed(&found) {
            let reason = "BF16 of this shape took another time than in the other runs: something else was on the GPU";
            found[at] = Some(work.failed(at, reason));
        }
    }
    MeasuredSites { rows: found.into_iter().flatten().flatten().collect(), ended }
}

/// Who may use the GPU: any number of workers that compile, which keeps it busy too, or one that times. Whoever waits to
/// time comes before those who would compile next: otherwise one after the other would slip in, and nobody would time.
#[derive(Default)]
struct Turns {
    now: Mutex<Turn>,
    changed: Condvar,
}

#[derive(Default)]
struct Turn {
    compiling: usize,
    waiting: usize,
    is_timing: bool,
}

impl Turns {
    fn compile<T>(&self, work: impl FnOnce() -> T) -> T {
        let _ends = {
            let busy = |turn: &mut Turn| turn.is_timing || turn.waiting > 0;
            let mut turn = self.changed.wait_while(self.now(), busy).unwrap_or_else(PoisonError::into_inner);
            turn.compiling += 1;
            Ends { turns: self, end: |turn| turn.compiling -= 1 }
        };
        work()
    }

    fn time<T>(&self, work: impl FnOnce() -> T) -> T {
        let _ends = {
            let mut turn = self.now();
            turn.waiting += 1;
            let busy = |turn: &mut Turn| turn.is_timing || turn.compiling > 0;
            let mut turn = self.changed.wait_while(turn, busy).unwrap_or_else(PoisonError::into_inner);
            (turn.waiting, turn.is_timing) = (turn.waiting - 1, true);
            Ends { turns: self, end: |turn| turn.is_timing = false }
        };
        work()
    }

    fn now(&self) -> MutexGuard<'_, Turn> {
        self.now.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Ends a turn, whatever came of it.
struct Ends<'a> {
    turns: &'a Turns,
    end: fn(&mut Turn),
}

impl Drop for Ends<'_> {
    fn drop(&mut self) {
        (self.end)(&mut self.turns.now());
        self.turns.changed.notify_all();
    }
}

/// What a shape and a triple give: a row of each runtime that is timed together.
type TimedRows = Vec<SiteTime>;

/// Shapes and triples to be timed, in units that workers take: a shape by one family of kernels, for which BF16 is compiled once.
struct SiteWork<'a> {
    what: &'a SiteMeasurement<'a>,
    turns: Turns,
    units: Vec<Range<usize>>,
    next: AtomicUsize,
    is_over: AtomicBool,
}

impl<'a> SiteWork<'a> {
    fn new(what: &'a SiteMeasurement<'a>) -> Self {
        let bf16 = baseline_kernel();
        // Of one recipe, accumulated fast or not: they share what is compiled for BF16, and are wanted together.
        let family =
            |triple: &[KernelId; 3]| triple.iter().find(|id| **id != bf16).map(|first| first.casts().to_owned());
        let mut units = Vec::new();
        for (shape, size) in what.shapes.iter().enumerate() {
            let mut begin = shape * what.triples.len();
            let products = size.m as u128 * size.k as u128 * size.n as u128;
            for (of, same) in what.triples.chunk_by(|one, next| family(one) == family(next)).enumerate() {
                units.push((of, Reverse(products), begin..begin + same.len()));
                begin += same.len();
            }
        }
        // What gains most is known first, should somebody not want to wait for the rest.
        units.sort_by_key(|(of, size, _)| (*of, *size));
        let units = units.into_iter().map(|(_, _, rows)| rows).collect();
        Self { what, turns: Turns::default(), units, next: AtomicUsize::new(0), is_over: AtomicBool::new(false) }
    }

    fn num_timed(&self) -> usize {
        self.what.shapes.len() * self.what.triples.len()
    }

    /// Times unit after unit; gives why it ended before there were no more.
    fn take_part(
        &self,
        worker: &mut Worker,
        control: &Control,
        tell: &Sender<(usize, TimedRows)>,
    ) -> Option<WorkerError> {
        let mut has_answered = false;
        while let Some(unit) = self.units.get(self.next.fetch_add(1, Ordering::Relaxed)) {
            for at in unit.clone() {
                if control.is_cancelled() || self.is_over.load(Ordering::Relaxed) {
                    return None;
                }
                let timed = match self.time(worker, at) {
                    // Neither PyTorch nor a GPU, or it died too often: nothing else would be timed either.
                    Err(error) if !has_answered || matches!(error, WorkerError::GaveUp { .. }) => return Some(error),
                    Err(error) => self.failed(at, &error.to_string()),
                    Ok(timed) => timed,
                };
                has_answered = true;
                // Nobody listens any more where the caller is gone.
                drop(tell.send((at, timed)));
            }
        }
        None
    }

    /// # Errors
    /// The worker refuses, or is given up; one that died costs these rows.
    fn time(&self, worker: &mut Worker, at: usize) -> Result<TimedRows, WorkerError> {
        let (shape, triple) = self.asked(at);
        let asked = SiteRequest {
            shape,
            runtime: self.what.runtime,
            triples: std::slice::from_ref(triple),
            options: &self.what.options,
            emulate: self.what.emulate,
        };
        let compiled = self.turns.compile(|| worker.compile(&asked));
        match compiled.and_then(|()| self.turns.time(|| worker.sites(&asked))) {
            Ok(rows) => Ok(rows
                .into_iter()
                .next()
                .map_or_else(|| self.failed(at, "it gave no times"), |row| site_times(shape, self.what.runtime, &row))),
            Err(error @ (WorkerError::GaveUp { .. } | WorkerError::Refused { .. })) => Err(error),
            Err(error) => Ok(self.failed(at, &error.to_string())),
        }
    }

    fn failed(&self, at: usize, reason: &str) -> TimedRows {
        let (shape, triple) = self.asked(at);
        let of = |runtime: &Runtime| failed(shape, *runtime, triple.clone(), reason.to_owned());
        self.what.runtime.timed_together().iter().map(of).collect()
    }

    fn asked(&self, at: usize) -> (GemmShape, &[KernelId; 3]) {
        let per_shape = self.what.triples.len();
        (self.what.shapes[at / per_shape], &self.what.triples[at % per_shape])
    }

    /// Those that are missing, found no memory, or were disturbed.
    fn to_be_repeated(&self, found: &[Option<TimedRows>]) -> Vec<usize> {
        let mut at: Vec<usize> =
            (0..found.len()).filter(|at| found[*at].as_deref().is_none_or(is_out_of_memory)).collect();
        at.extend(self.disturbed(found));
        at.sort_unstable();
        at
    }

    /// Those whose BF16 took another time than the median of its shape: one model, timed anew beside every three kernels.
    fn disturbed(&self, found: &[Option<TimedRows>]) -> Vec<usize> {
        let per_shape = self.what.triples.len();
        let bf16_us = |timed: &Option<TimedRows>| timed.as_ref()?.last()?.medians_us().map(|(bf16, _)| bf16);
        let mut disturbed = Vec::new();
        for (shape, timed) in found.chunks(per_shape.max(1)).enumerate() {
            let all: Vec<f64> = timed.iter().filter_map(bf16_us).collect();
            let Some(usual) = quantile_of(&all, 0.5) else { continue };
            let is_off = |us: f64| (us / usual).max(usual / us) > MAX_DRIFT;
            let off = timed.iter().enumerate().filter(|(_, timed)| bf16_us(timed).is_some_and(is_off));
            disturbed.extend(off.map(|(at, _)| shape * per_shape + at));
        }
        disturbed
    }
}

fn is_out_of_memory(timed: &[SiteTime]) -> bool {
    timed.iter().any(|row| row.reason.as_deref().is_some_and(|reason| reason.contains("OutOfMemory")))
}

fn failed(shape: GemmShape, runtime: Runtime, kernels: [KernelId; 3], reason: String) -> SiteTime {
    SiteTime { shape, runtime, kernels, site: None, bf16: None, codes: None, samples: 0, reason: Some(reason) }
}

/// What was measured with `runtime`, as each that is timed together takes it.
fn site_times(shape: GemmShape, runtime: Runtime, row: &WorkerSite) -> TimedRows {
    runtime.timed_together().iter().map(|runtime| site_time(shape, *runtime, row)).collect()
}

fn site_time(shape: GemmShape, runtime: Runtime, row: &WorkerSite) -> SiteTime {
    let WorkerSite { kernels, site_us, bf16_us, codes_us, reason, .. } = row;
    let kernels = kernels.clone();
    let launches = |us: f64| if runtime == Runtime::Launched { us } else { 0.0 };
    match (spread(site_us, launches(row.launch_us)), spread(bf16_us, launches(row.bf16_launch_us))) {
        (Some(site), Some(bf16)) => {
            let samples = site_us.len().min(bf16_us.len()) as u64;
            let codes = spread(codes_us, launches(row.launch_us));
            SiteTime {
                shape,
                runtime,
                kernels,
                site: Some(site),
                bf16: Some(bf16),
                codes,
                samples,
                reason: reason.clone(),
            }
        }
        _ => failed(shape, runtime, kernels, reason.clone().unwrap_or_else(|| "it gave no times".to_owned())),
    }
}

/// Of samples, each with `more_us` beside.
fn spread(samples_us: &[f64], more_us: f64) -> Option<Spread> {
    let of = |p| quantile_of(samples_us, p).map(|us| us + more_us);
    let spread = Spread { us: of(0.5)?, p10_us: of(0.1)?, p90_us: of(0.9)? };
    spread.is_sound().then_some(spread)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_set_of_gemms_that_a_family_runs() {
        let rowwise = kernel("cublaslt/fp8-rowwise+fast").unwrap();
        let own = kernel("loka/fp8-static+fast").unwrap();
        let names = |families: &[&'static Kernel], runtime| site_triples(families, runtime);
        assert_eq!(names(&[rowwise], Runtime::Launched).len(), 7);
        assert_eq!(names(&[own], Runtime::Graph).len(), 3, "it has no wgrad");
        let forward = names(&[rowwise], Runtime::Inference);
        assert_eq!(forward, [["cublaslt/fp8-rowwise+fast", "cublaslt/bf16", "cublaslt/bf16"].map(KernelId::new)]);
        let families = site_families(&[own, rowwise, kernel("cublaslt/tf32").unwrap()], Runtime::Launched);
        assert_eq!(families.iter().filter(|family| family.name == rowwise.name).count(), 1);
        assert!(families.contains(&own) && families.iter().all(|family| !family.high_precision()));
    }

    type Asked = (GemmShape, [KernelId; 3], Runtime);

    fn measured(behaviour: &str, num_workers: usize) -> (MeasuredSites, usize, Vec<Asked>) {
        let folder = tempfile::tempdir().unwrap();
        let starts = folder.path().join("starts");
        let mut worker = Worker::start(WorkerConfig::doubled(behaviour, &starts)).unwrap();
        let families = ["cublaslt/fp8-rowwise+fast", "cublaslt/fp8-tensorwise+fast"].map(|name| kernel(name).unwrap());
        let triples = site_triples(&families, Runtime::Launched);
        let shapes = [16, 32, 64].map(|m| GemmShape { m, k: 32, n: 16 });
        let options = TimeOptions::default();
        let what =
            SiteMeasurement { shapes: &shapes, runtime: Runtime::Launched, triples: &triples, options, emulate: true };
        let mut told = 0;
        let found = measure_sites(&mut worker, num_workers, &what, &Control::new(), &mut |done, of| {
            told += 1;
            assert_eq!((done, of), (told, 42));
        });
        let both = |shape: GemmShape, triple: &[KernelId; 3]| {
            [Runtime::Launched, Runtime::Graph].map(|runtime| (shape, triple.clone(), runtime))
        };
        let all = shapes.iter().flat_map(|shape| triples.iter().flat_map(|triple| both(*shape, triple))).collect();
        (found, std::fs::read(starts).unwrap().len(), all)
    }

    #[test]
    fn workers_side_by_side_give_what_one_gives() {
        for num_workers in [1, 4] {
            let (found, starts, all) = measured("fine", num_workers);
            assert_eq!((found.ended, starts), (None, num_workers));
            let rows: Vec<_> = found.rows.iter().map(|row| (row.shape, row.kernels.clone(), row.runtime)).collect();
            assert_eq!(rows, all, "in order, whoever was first");
            let medians = |row: &SiteTime| if row.runtime == Runtime::Launched { (12.0, 22.0) } else { (4.0, 2.0) };
            assert!(found.rows.iter().all(|row| row.medians_us() == Some(medians(row))));
        }
    }

    #[test]
    fn a_worker_that_refuses_ends_it_with_the_reason() {
        let (found, ..) = measured("refuses", 2);
        let reason = found.ended.map(|error| error.to_string());
        assert_eq!((found.rows.len(), reason.as_deref()), (0, Some("k = 100 is not a multiple of 16")));
    }

    #[test]
    fn what_the_default_policy_asks_for_is_timed_first() {
        let all = site_triples(&site_families(&[], Runtime::Launched), Runtime::Launched);
        let names: Vec<[&str; 3]> = all.iter().map(|triple| [0, 1, 2].map(|at| triple[at].as_str())).collect();
        let ([fast, promoted], bf16) = (DELAYED, "cublaslt/bf16");
        assert_eq!(names.len(), 25);
        let alone = [[fast, bf16, bf16], [bf16, fast, bf16], [bf16, bf16, fast], [bf16, bf16, promoted]];
        assert_eq!(names[..4], alone);
        assert_eq!(names[4..8], [[fast, fast, promoted], [fast; 3], [promoted, bf16, bf16], [bf16, promoted, bf16]]);
        let block = kernel("loka/fp8-block+fast").unwrap();
        let served = site_triples(&site_families(&[block], Runtime::Inference), Runtime::Inference);
        let forward: Vec<&str> = served.iter().map(|[fprop, ..]| fprop.as_str()).collect();
        assert_eq!(forward[..2], DELAYED);
        assert_eq!(forward[4..], ["loka/fp8-static+fast", "loka/fp8-block+fast"]);
        let named = site_families(&[kernel(promoted).unwrap()], Runtime::Graph);
        let with_named = site_triples(&named, Runtime::Graph);
        let distinct: std::collections::HashSet<_> = with_named.iter().collect();
        assert_eq!((with_named.len(), distinct.len()), (29, 29), "nothing twice");
    }

    #[test]
    fn a_recipe_s_rows_are_one_unit_of_work() {
        let triples = site_triples(&site_families(&[], Runtime::Launched), Runtime::Launched);
        let shapes = [16, 64].map(|m| GemmShape { m, k: 32, n: 16 });
        let options = TimeOptions::default();
        let what =
            SiteMeasurement { shapes: &shapes, runtime: Runtime::Launched, triples: &triples, options, emulate: true };
        let units = SiteWork::new(&what).units;
        assert_eq!(units, [25..36, 0..11, 36..43, 11..18, 43..50, 18..25], "the larger shape before the smaller");
    }

    #[test]
    fn samples_become_a_median_with_its_spread() {
        let shape = GemmShape { m: 4, k: 2, n: 2 };
        let kernels = ["cublaslt/fp8-rowwise+fast", "cublaslt/bf16", "cublaslt/bf16"].map(KernelId::new);
        let row = |site_us: &[f64], reason: Option<&str>| WorkerSite {
            kernels: kernels.clone(),
            site_us: site_us.to_vec(),
            bf16_us: site_us.iter().map(|us| us + 1.0).collect(),
            codes_us: site_us.iter().map(|us| us - 0.5).collect(),
            launch_us: 20.0,
            bf16_launch_us: 8.0,
            reason: reason.map(str::to_owned),
        };
        let medians = |runtime, samples| -> Vec<_> {
            let rows = site_times(shape, runtime, &row(samples, None));
            rows.iter().map(|row| (row.runtime, row.medians_us())).collect()
        };
        let training = [(Runtime::Launched, Some((11.0, 22.0))), (Runtime::Graph, Some((3.0, 2.0)))];
        for runtime in [Runtime::Launched, Runtime::Graph] {
            assert_eq!(medians(runtime, &[1.0, 2.0, 3.0]), training, "one measurement is of both");
        }
        assert_eq!(medians(Runtime::Inference, &[1.0, 2.0, 3.0]), [(Runtime::Inference, Some((3.0, 2.0)))]);
        let timed = site_time(shape, Runtime::Graph, &row(&[1.0, 2.0, 3.0], None));
        assert_eq!((timed.codes.map(|codes| codes.us), timed.samples), (Some(1.5), 3));
        let lost = site_time(shape, Runtime::Graph, &row(&[], Some("out of memory")));
        assert_eq!((lost.medians_us(), lost.reason.as_deref()), (None, Some("out of memory")));
        let mad = site_time(shape, Runtime::Graph, &row(&[f64::NAN], None));
        assert_eq!(mad.reason.as_deref(), Some("it gave no times"));
    }
}
