//! Takes shapes and kernels, gives what whole sites take by them: through a worker that compiles a model around each.

use crate::{
    engine::{
        Control,
        worker::{TimeOptions, Worker, WorkerError, WorkerSite},
    },
    model::{GemmShape, Kernel, KernelId, Runtime, SiteTime, Spread, baseline_kernel, kernel},
};

use super::quantile::quantile_of;

/// Samples of each site, at least.
pub const MIN_SITE_SAMPLES: u32 = 15;

/// Timed wherever nothing else is asked for: what `loka.apply` runs fastest in a compiled step.
const FAMILIES: [&str; 3] = ["cublaslt/fp8-delayed+fast", "cublaslt/fp8-tensorwise+fast", "cublaslt/fp8-rowwise+fast"];

/// The default families and, of `named`, those that one kernel can run all of: never BF16.
pub fn site_families(named: &[&'static Kernel]) -> Vec<&'static Kernel> {
    let mut families: Vec<&'static Kernel> = FAMILIES.into_iter().filter_map(kernel).collect();
    for more in named.iter().filter(|more| !more.high_precision()) {
        if !families.iter().any(|family| family.name == more.name) {
            families.push(more);
        }
    }
    families
}

/// By every family, each set of the runtime's GEMMs that it runs, the others in BF16.
pub fn site_triples(families: &[&'static Kernel], runtime: Runtime) -> Vec<[KernelId; 3]> {
    let bf16 = baseline_kernel();
    let mut triples = Vec::new();
    for family in families {
        let runs = |at: usize| {
            let gemm = crate::model::Gemm::ALL[at];
            family.not_applied(gemm, runtime).is_none()
        };
        // GEMMs by themselves first: what does not pay alone, the worker does not try together with others.
        for set in [1_u32, 2, 4, 3, 5, 6, 7] {
            let within = |at: usize| set >> at & 1 == 1;
            if (0..3).all(|at| !within(at) || runs(at)) {
                triples.push([0, 1, 2].map(|at| if within(at) { family.id() } else { bf16.clone() }));
            }
        }
    }
    triples
}

/// What is to be timed.
#[derive(Clone, Copy, Debug)]
pub struct SiteMeasurement<'a> {
    pub shapes: &'a [GemmShape],
    pub runtime: Runtime,
    pub triples: &'a [[KernelId; 3]],
    pub options: TimeOptions,
    /// On the CPU by emulated kernels: the protocol's tests. Nothing of it is a figure.
    pub emulate: bool,
}

/// One site after the other, so that what kills the worker costs one row; `report` gets each row with how many are done
/// of all. Ends early when the worker is given up or `control` says so.
///
/// # Errors
/// The worker cannot time sites at all, or is given up.
pub fn measure_sites(
    worker: &mut Worker,
    what: &SiteMeasurement<'_>,
    control: &Control,
    report: &mut dyn FnMut(SiteTime, usize, usize),
) -> Result<(), WorkerError> {
    let all = what.shapes.len() * what.triples.len();
    let mut done = 0;
    for shape in what.shapes {
        for triple in what.triples {
            if control.is_cancelled() {
                return Ok(());
            }
            let asked = worker.sites(*shape, what.runtime, std::slice::from_ref(triple), &what.options, what.emulate);
            let row = match asked {
                Ok(rows) => rows.into_iter().next().map(|row| site_time(*shape, what.runtime, row)),
                // Neither PyTorch nor a GPU: no other row would be timed either.
                Err(error @ (WorkerError::GaveUp { .. } | WorkerError::Refused { .. })) if done == 0 => {
                    return Err(error);
                }
                Err(error @ WorkerError::GaveUp { .. }) => return Err(error),
                Err(error) => Some(failed(*shape, what.runtime, triple.clone(), error.to_string())),
            };
            done += 1;
            if let Some(row) = row {
                report(row, done, all);
            }
        }
    }
    Ok(())
}

fn failed(shape: GemmShape, runtime: Runtime, kernels: [KernelId; 3], reason: String) -> SiteTime {
    SiteTime { shape, runtime, kernels, site: None, bf16: None, samples: 0, reason: Some(reason) }
}

fn site_time(shape: GemmShape, runtime: Runtime, row: WorkerSite) -> SiteTime {
    let WorkerSite { kernels, site_us, bf16_us, reason } = row;
    match (spread(&site_us), spread(&bf16_us)) {
        (Some(site), Some(bf16)) => {
            let samples = site_us.len().min(bf16_us.len()) as u64;
            SiteTime { shape, runtime, kernels, site: Some(site), bf16: Some(bf16), samples, reason }
        }
        _ => failed(shape, runtime, kernels, reason.unwrap_or_else(|| "it gave no times".to_owned())),
    }
}

fn spread(samples_us: &[f64]) -> Option<Spread> {
    let of = |p| quantile_of(samples_us, p);
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
        let families = site_families(&[own, rowwise, kernel("cublaslt/tf32").unwrap()]);
        assert_eq!(families.iter().filter(|family| family.name == rowwise.name).count(), 1);
        assert!(families.contains(&own) && families.iter().all(|family| !family.high_precision()));
    }

    #[test]
    fn samples_become_a_median_with_its_spread() {
        let shape = GemmShape { m: 4, k: 2, n: 2 };
        let kernels = ["cublaslt/fp8-rowwise+fast", "cublaslt/bf16", "cublaslt/bf16"].map(KernelId::new);
        let row = |site_us: &[f64], reason: Option<&str>| WorkerSite {
            kernels: kernels.clone(),
            site_us: site_us.to_vec(),
            bf16_us: site_us.iter().map(|us| us + 1.0).collect(),
            reason: reason.map(str::to_owned),
        };
        let timed = site_time(shape, Runtime::Graph, row(&[1.0, 2.0, 3.0], None));
        assert_eq!((timed.medians_us(), timed.samples), (Some((3.0, 2.0)), 3));
        let lost = site_time(shape, Runtime::Graph, row(&[], Some("out of memory")));
        assert_eq!((lost.medians_us(), lost.reason.as_deref()), (None, Some("out of memory")));
        let mad = site_time(shape, Runtime::Graph, row(&[f64::NAN], None));
        assert_eq!(mad.reason.as_deref(), Some("it gave no times"));
    }
}
