//! Faults that a machine may have, played by stand-ins for NVIDIA's libraries: compiled here, loaded by path as
//! the real ones are. They say "done" to everything but the fault at hand; what a GPU computes is for
//! `loka selftest --gpu`.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "tests")]

use std::{
    path::{Path, PathBuf},
    process::Command,
    sync::Arc,
};

use super::{CudaEngine, CudaError, SearchPath};
use crate::{
    engine::{Backend, Engine, EngineError, SiteJob, StaticScales, TimeOptions},
    model::{Gemm, GemmShape, Kernel, ModSet, catalogue, kernel},
    stats::SamplerKind,
    trace::Trace,
};

/// Bodies that do something; every other function that we load just returns 0.
const DRIVER: &str = r#"
int cuInit(unsigned f) { return INIT; }
int cuDriverGetVersion(int* v) { *v = DRIVER_VERSION; return 0; }
int cuGetErrorName(int code, const char** s) { *s = code == 100 ? "CUDA_ERROR_NO_DEVICE" : code == 2 ? "CUDA_ERROR_OUT_OF_MEMORY" : "CUDA_ERROR_ILLEGAL_ADDRESS"; return 0; }
int cuDeviceGetCount(int* n) { *n = DEVICES; return 0; }
int cuDeviceGetName(char* s, int n, int d) { for (int i = 0; i < 9; i++) s[i] = "Stand-in"[i]; return 0; }
int cuDeviceGetPCIBusId(char* s, int n, int d) { s[0] = 0; return 0; }
int cuDeviceGetAttribute(int* v, int a, int d) { *v = a == 75 ? MAJOR : a == 76 ? 0 : a == 38 ? 1 << 20 : a == 97 ? 232448 : 8; return 0; }
int cuMemGetInfo_v2(unsigned long* f, unsigned long* t) { *f = *t = 8000000000ul; return 0; }
int cuMemAllocAsync(unsigned long* p, unsigned long n, void* s) { static unsigned long next = 4096; if (n > LARGEST) return 2; *p = next; next += n + 4096; return 0; }
int cuLaunchKernelEx(void* c, void* f, void** a, void** e) { return LAUNCH; }
"#;

const LT: &str = r#"
unsigned long cublasLtGetVersion(void) { return LT_VERSION; }
int cublasLtMatmulAlgoGetHeuristic(void* h, void* d, void* a, void* b, void* c, void* o, void* p, int n, char* r, int* found) { for (int i = 0; i < 104; i++) r[i] = 0; *found = 1; return 0; }
"#;

const NVRTC: &str = r#"
int nvrtcVersion(int* a, int* b) { *a = 13; *b = 0; return 0; }
int nvrtcGetCUBINSize(void* p, unsigned long* n) { *n = 4; return 0; }
int nvrtcGetProgramLogSize(void* p, unsigned long* n) { *n = 26; return 0; }
int nvrtcGetProgramLog(void* p, char* s) { const char* t = "kernel.cu(1): error: no.\n"; while ((*s++ = *t++)); return 0; }
int nvrtcCompileProgram(void* p, int n, void* o) { return COMPILE; }
"#;

/// A machine by its stand-ins.
struct Machine {
    folder: tempfile::TempDir,
}

/// Names of the functions that a list of `symbols!` declares, from its source.
fn symbols(source: &str, prefix: &str) -> Vec<String> {
    let names = source.lines().filter_map(|line| line.trim().strip_prefix("fn ")?.split_once('('));
    names.map(|(name, _)| name.to_owned()).filter(|name| name.starts_with(prefix)).collect()
}

impl Machine {
    fn new() -> Self {
        Self { folder: tempfile::tempdir().unwrap() }
    }

    fn library(self, file: &str, prefix: &str, list: &str, bodies: &str, faults: &[&str]) -> Self {
        let source = self.folder.path().join(format!("{file}.c"));
        let rest = symbols(list, prefix).into_iter().filter(|name| !bodies.contains(&format!(" {name}(")));
        let text: String = rest.map(|name| format!("int {name}() {{ return 0; }}\n")).collect();
        std::fs::write(&source, text + bodies).unwrap();
        let defaults = [
            "INIT=0",
            "DRIVER_VERSION=13000",
            "DEVICES=1",
            "MAJOR=9",
            "LARGEST=1ul<<40",
            "LAUNCH=0",
            "LT_VERSION=130100",
            "COMPILE=0",
        ];
        let set = |name: &str| faults.iter().any(|fault| fault.split('=').next() == name.split('=').next());
        let all = defaults.iter().filter(|default| !set(default)).chain(faults).map(|value| format!("-D{value}"));
        let compiled = Command::new("cc")
            .args(["-shared", "-fPIC", "-w", "-o"])
            .arg(self.folder.path().join(file))
            .arg(&source)
            .args(all)
            .status()
            .unwrap();
        assert!(compiled.success(), "{file}");
        self
    }

    fn driver(self, faults: &[&str]) -> Self {
        self.library("libcuda.so.1", "cu", include_str!("driver.rs"), DRIVER, faults)
    }

    fn cublaslt(self, faults: &[&str]) -> Self {
        self.library("libcublasLt.so.13", "cublasLt", include_str!("lt.rs"), LT, faults)
    }

    fn nvrtc(self, faults: &[&str]) -> Self {
        self.library("libnvrtc.so.13", "nvrtc", include_str!("nvrtc.rs"), NVRTC, faults)
    }

    fn whole(faults: &[&str]) -> Self {
        Self::new().driver(faults).cublaslt(faults).nvrtc(faults)
    }

    fn open(&self, cache: Option<PathBuf>) -> Result<CudaEngine, CudaError> {
        CudaEngine::open(&SearchPath::only(vec![self.folder.path().to_owned()]), cache)
    }

    /// Why it does not open.
    fn problem(&self) -> String {
        let problem = self.open(None).err().expect("a fault").to_string();
        assert!(!problem.contains('\n'), "{problem}");
        problem.replace(&self.folder.path().display().to_string(), "FOLDER")
    }
}

fn job() -> SiteJob {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../sample-traces/wukong-clicks.trace.safetensors");
    let trace = Trace::open(&path).unwrap();
    let site = trace.sites()[0].site.id.clone();
    SiteJob {
        stats: Arc::new(trace.site_stats(&site).unwrap()),
        upstream: Vec::new(),
        quantile_probs: trace.manifest().quantile_probs.clone().into(),
        mods: ModSet::none(),
        sampler: SamplerKind::Copula,
        seed: 0,
        scales: StaticScales::default(),
    }
}

fn ways() -> [Backend; 1] {
    [Backend::Numerics(kernel("cublaslt/fp8-rowwise").unwrap().numerics(Gemm::Fprop))]
}

#[test]
fn a_missing_library_is_named_with_a_way_to_get_it() {
    assert_eq!(Machine::new().problem(), "no NVIDIA driver: libcuda.so.1 was not found");
    let no_blas = Machine::new().driver(&[]).problem();
    assert!(no_blas.starts_with("no cuBLASLt") && no_blas.contains("pip install nvidia-cublas"), "{no_blas}");
    let no_nvrtc = Machine::new().driver(&[]).cublaslt(&[]).problem();
    assert!(no_nvrtc.starts_with("no NVRTC") && no_nvrtc.contains("pip install nvidia-cuda-nvrtc"), "{no_nvrtc}");
}

#[test]
fn what_is_too_old_says_what_it_is() {
    let driver = Machine::whole(&["DRIVER_VERSION=11040"]).problem();
    assert_eq!(driver, "the NVIDIA driver speaks CUDA 11.4; LoKA needs 12.0 or later");
    let blas = Machine::whole(&["LT_VERSION=120805"]).problem();
    assert_eq!(
        blas,
        "cuBLASLt 12.8.5 has no rowwise and blockwise FP8, which came with 12.9: FOLDER/libcublasLt.so.13"
    );
    let gpu = Machine::whole(&["MAJOR=8"]).problem();
    assert_eq!(gpu, "Stand-in has compute capability 8.0; FP8 needs 8.9 or later");
}

#[test]
fn a_driver_without_a_gpu_says_so() {
    let init = Machine::whole(&["INIT=100"]).problem();
    assert_eq!(init, "the NVIDIA driver is installed but finds no GPU (cuInit failed: CUDA_ERROR_NO_DEVICE)");
    let none = Machine::whole(&["DEVICES=0"]).problem();
    assert_eq!(none, "the NVIDIA driver is installed but finds no GPU (none listed)");
}

#[test]
fn a_library_that_is_no_library_is_as_missing() {
    let machine = Machine::new();
    std::fs::write(machine.folder.path().join("libcuda.so.1"), b"not an ELF file").unwrap();
    assert_eq!(machine.problem(), "no NVIDIA driver: libcuda.so.1 was not found");
    let stripped = Machine::new().driver(&[]).library("libcublasLt.so.13", "none", "", LT, &[]);
    let problem = stripped.problem();
    assert!(problem.starts_with("the library has no cublasLt") && problem.contains("FOLDER"), "{problem}");
}

#[test]
fn memory_that_runs_out_costs_the_site_alone() {
    let machine = Machine::whole(&["LARGEST=20000000ul"]);
    let engine = machine.open(None).unwrap();
    let Err(EngineError::Failed(reason)) = engine.site(job()).map(|_| ()) else { panic!("memory was enough") };
    assert_eq!(reason, "out of GPU memory: 33 MB wanted, 8000 MB free");
    assert!(engine.device.lost().is_none(), "other sites go on");
}

#[test]
fn an_error_that_sticks_loses_the_engine_and_no_more() {
    let machine = Machine::whole(&["LAUNCH=700"]);
    let engine = machine.open(None).unwrap();
    let mut site = engine.site(job()).unwrap();
    let error = site.draw(Gemm::Fprop, &ways(), 0).unwrap_err();
    let text = "the GPU is lost to this process: cuLaunchKernelEx failed: CUDA_ERROR_ILLEGAL_ADDRESS";
    assert_eq!(error, EngineError::Lost(text.to_owned()));
    drop(site);
    // Later calls answer the same without asking the driver again.
    assert!(matches!(engine.site(job()).map(|_| ()), Err(EngineError::Lost(_))));
    assert!(engine.device.lost().is_some());
}

#[test]
fn a_kernel_that_does_not_compile_names_itself() {
    let engine = Machine::whole(&["COMPILE=6"]).open(None).unwrap();
    let error = engine.site(job()).unwrap().draw(Gemm::Fprop, &ways(), 0).unwrap_err();
    assert_eq!(error.to_string(), "NVRTC refused fill_normal: kernel.cu(1): error: no.");
}

/// The stand-in launches whatever it is given and computes nothing: every way of every kernel is tried, none is timed.
#[test]
fn kernels_that_compute_nothing_are_not_timed() {
    let engine = Machine::whole(&[]).open(None).unwrap();
    let options = TimeOptions { samples: 1, sample_us: 10.0, algorithms: 1 };
    for (gemm, m) in [(Gemm::Fprop, 512), (Gemm::Fprop, 16), (Gemm::Dgrad, 256)] {
        let shape = GemmShape { m, k: 512, n: 768 };
        let runs = |kernel: &&Kernel| kernel.is_native() && kernel.refuses(gemm, shape).is_none();
        let kernels: Vec<&'static Kernel> = catalogue().iter().filter(runs).collect();
        let timed = engine.time(&kernels, gemm, shape, &options).unwrap();
        assert_eq!(timed.len(), kernels.len());
        for (id, outcome) in timed {
            let reason = outcome.unwrap_err();
            assert!(reason.starts_with("the output of ") && reason.ends_with(": not timed"), "{id}: {reason}");
        }
    }
}

#[test]
fn a_cache_that_cannot_be_written_or_is_torn_costs_time_alone() {
    let machine = Machine::whole(&[]);
    let cache = tempfile::tempdir().unwrap();
    // A file where the folder should be: nothing can be kept.
    let blocked = cache.path().join("blocked");
    std::fs::write(&blocked, b"").unwrap();
    for folder in [blocked, cache.path().join("fresh")] {
        let engine = machine.open(Some(folder)).unwrap();
        assert!(engine.kernels.get("fill_normal").is_ok());
    }
    for file in std::fs::read_dir(cache.path().join("fresh/cubins")).unwrap() {
        std::fs::write(file.unwrap().path(), b"torn").unwrap();
    }
    std::fs::write(cache.path().join("fresh/algorithms.json"), b"{").unwrap();
    let engine = machine.open(Some(cache.path().join("fresh"))).unwrap();
    assert!(engine.kernels.get("fill_normal").is_ok());
}
