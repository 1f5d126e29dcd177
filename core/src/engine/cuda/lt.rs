//! cuBLASLt: matrix products as tensor cores run them, in every scaling that LoKA knows.
//!
//! Products are row-major ([`Product`]); cuBLASLt is column-major, so that its first operand is our B.

use std::{
    ffi::{c_int, c_void},
    path::PathBuf,
    sync::Arc,
};

use cudarc::cublaslt::sys::{
    cublasComputeType_t, cublasLtMatmulAlgo_t, cublasLtMatmulDesc_t, cublasLtMatmulDescAttributes_t as DescAttribute,
    cublasLtMatmulHeuristicResult_t, cublasLtMatmulPreference_t,
    cublasLtMatmulPreferenceAttributes_t as PreferenceAttribute, cublasLtMatrixLayout_t, cudaDataType_t,
};
use cudarc::driver::sys::CUstream;

use super::{
    CudaError,
    libraries::{Loaded, SearchPath, symbols},
    product::{Compute, Product, ProductOperand, Scaling, Type},
    stream::{Buffer, Stream},
};

type Handle = *mut c_void;

symbols! {
    /// Of libcublasLt.
    LtApi {
        fn cublasLtGetVersion() -> usize;
        fn cublasLtCreate(*mut Handle) -> c_int;
        fn cublasLtMatmulDescCreate(*mut cublasLtMatmulDesc_t, cublasComputeType_t, cudaDataType_t) -> c_int;
        fn cublasLtMatmulDescDestroy(cublasLtMatmulDesc_t) -> c_int;
        fn cublasLtMatmulDescSetAttribute(cublasLtMatmulDesc_t, DescAttribute, *const c_void, usize) -> c_int;
        fn cublasLtMatrixLayoutCreate(*mut cublasLtMatrixLayout_t, cudaDataType_t, u64, u64, i64) -> c_int;
        fn cublasLtMatrixLayoutDestroy(cublasLtMatrixLayout_t) -> c_int;
        fn cublasLtMatmulPreferenceCreate(*mut cublasLtMatmulPreference_t) -> c_int;
        fn cublasLtMatmulPreferenceDestroy(cublasLtMatmulPreference_t) -> c_int;
        fn cublasLtMatmulPreferenceSetAttribute(cublasLtMatmulPreference_t, PreferenceAttribute, *const c_void, usize) -> c_int;
        fn cublasLtMatmulAlgoGetHeuristic(Handle, cublasLtMatmulDesc_t, cublasLtMatrixLayout_t, cublasLtMatrixLayout_t, cublasLtMatrixLayout_t, cublasLtMatrixLayout_t, cublasLtMatmulPreference_t, c_int, *mut HeuristicResult, *mut c_int) -> c_int;
        fn cublasLtMatmul(Handle, cublasLtMatmulDesc_t, *const c_void, *const c_void, cublasLtMatrixLayout_t, *const c_void, cublasLtMatrixLayout_t, *const c_void, *const c_void, cublasLtMatrixLayout_t, *mut c_void, cublasLtMatrixLayout_t, *const cublasLtMatmulAlgo_t, *mut c_void, usize, CUstream) -> c_int;
    }
}

/// cuBLASLt's own, with the status as the number that it is: a newer library may return one that an enum
/// of ours does not list.
#[repr(C)]
#[derive(Clone, Copy)]
pub(super) struct HeuristicResult {
    algo: cublasLtMatmulAlgo_t,
    workspace: usize,
    status: c_int,
    waves: f32,
    reserved: [c_int; 4],
}

const _: () = assert!(size_of::<HeuristicResult>() == size_of::<cublasLtMatmulHeuristicResult_t>());

/// FP8 with scales for rows and blocks came with 12.9.
const OLDEST: usize = 120_900;

/// What NVIDIA advises for Hopper.
pub(super) const WORKSPACE_BYTES: usize = 32 << 20;

macro_rules! lt {
    ($lt:expr, $symbol:ident($($argument:expr),* $(,)?)) => {{
        // SAFETY: handles made by cuBLASLt, device addresses of the sizes that the plan names, and pointers
        // valid for the call.
        #[expect(unsafe_code, reason = "a call of cuBLASLt")]
        let status = unsafe { ($lt.api.$symbol)($($argument),*) };
        if status == 0 { Ok(()) } else { Err(CudaError::Library { call: stringify!($symbol), name: status_name(status) }) }
    }};
}

fn status_name(status: c_int) -> &'static str {
    match status {
        1 => "not initialised",
        3 => "out of memory",
        7 => "invalid value",
        8 => "architecture mismatch",
        11 => "mapping error",
        13 => "execution failed",
        14 => "internal error",
        15 => "not supported",
        16 => "licence error",
        _ => "unknown status",
    }
}

/// The library on the current device.
pub(super) struct Lt {
    api: LtApi,
    handle: Handle,
    pub version: String,
    pub path: PathBuf,
}

// SAFETY: a cuBLASLt handle may be used from many threads at a time (NVIDIA's documentation says so).
#[expect(unsafe_code, reason = "raw handles of a thread-safe library")]
unsafe impl Send for Lt {}
// SAFETY: as above.
#[expect(unsafe_code, reason = "raw handles of a thread-safe library")]
unsafe impl Sync for Lt {}

impl Lt {
    pub fn open(search: &SearchPath) -> Result<Arc<Self>, CudaError> {
        let (api, library) = search.open("cublasLt", Self::accept)?;
        let mut lt = Self { api, handle: std::ptr::null_mut(), version: version_of(&api), path: library.path.clone() };
        lt!(lt, cublasLtCreate(&mut lt.handle))?;
        Ok(Arc::new(lt))
    }

    fn accept(library: &Loaded) -> Result<LtApi, CudaError> {
        let api = LtApi::load(library)?;
        // SAFETY: no arguments, no state.
        #[expect(unsafe_code, reason = "a call of cuBLASLt")]
        let version = unsafe { (api.cublasLtGetVersion)() };
        if version < OLDEST {
            return Err(CudaError::OldCublasLt { found: version_of(&api), path: library.path.clone() });
        }
        Ok(api)
    }
}

fn version_of(api: &LtApi) -> String {
    // SAFETY: no arguments, no state.
    #[expect(unsafe_code, reason = "a call of cuBLASLt")]
    let version = unsafe { (api.cublasLtGetVersion)() };
    format!("{}.{}.{}", version / 10_000, version / 100 % 100, version % 100)
}

/// One way of running a product, as the heuristics gave it.
#[derive(Clone, Copy)]
pub(super) struct Algorithm {
    algo: cublasLtMatmulAlgo_t,
    pub workspace: usize,
}

impl Algorithm {
    /// All that tells it from another, good for the same version of the library.
    pub fn data(&self) -> [u64; 8] {
        self.algo.data
    }
}

/// A product ready to be run on one stream at a time.
pub(super) struct Plan {
    lt: Arc<Lt>,
    pub product: Product,
    desc: cublasLtMatmulDesc_t,
    a: cublasLtMatrixLayout_t,
    b: cublasLtMatrixLayout_t,
    out: cublasLtMatrixLayout_t,
    /// The heuristics' order: the first is what the library would take.
    pub algorithms: Vec<Algorithm>,
}

// SAFETY: descriptors are used by one thread at a time: `run` takes `&mut self`.
#[expect(unsafe_code, reason = "raw handles")]
unsafe impl Send for Plan {}

/// Where the operands and scales of one run lie.
#[derive(Clone, Copy, Debug)]
pub(super) struct Addresses {
    pub a: u64,
    pub b: u64,
    pub out: u64,
    pub a_scales: u64,
    pub b_scales: u64,
}

impl Addresses {
    /// Of operands without scales.
    pub fn unscaled(a: u64, b: u64, out: u64) -> Self {
        Self { a, b, out, a_scales: 0, b_scales: 0 }
    }
}

impl Plan {
    /// `wanted`: how many algorithms to ask the heuristics for.
    pub fn new(lt: &Arc<Lt>, product: Product, wanted: usize) -> Result<Self, CudaError> {
        let (compute, scale) = match product.compute {
            Compute::F64 => (cublasComputeType_t::CUBLAS_COMPUTE_64F, Type::F64),
            Compute::F32 => (cublasComputeType_t::CUBLAS_COMPUTE_32F, Type::F32),
            Compute::Tf32 => (cublasComputeType_t::CUBLAS_COMPUTE_32F_FAST_TF32, Type::F32),
        };
        let mut plan = Self {
            lt: lt.clone(),
            product,
            desc: std::ptr::null_mut(),
            a: std::ptr::null_mut(),
            b: std::ptr::null_mut(),
            out: std::ptr::null_mut(),
            algorithms: Vec::new(),
        };
        lt!(lt, cublasLtMatmulDescCreate(&mut plan.desc, compute, scale.code()))?;
        // Column-major: the first operand is our B, and a row-major [rows, reduced] is its transpose.
        let transpose = |operand: ProductOperand, first: bool| i32::from(operand.transposed != first);
        plan.attribute(DescAttribute::CUBLASLT_MATMUL_DESC_TRANSA, transpose(product.b, true))?;
        plan.attribute(DescAttribute::CUBLASLT_MATMUL_DESC_TRANSB, transpose(product.a, false))?;
        if product.a.of.is_fp8() {
            plan.attribute(DescAttribute::CUBLASLT_MATMUL_DESC_FAST_ACCUM, i8::from(product.fast))?;
            if let (Some(a), Some(b)) = (product.a.scaling.mode(), product.b.scaling.mode()) {
                plan.attribute(DescAttribute::CUBLASLT_MATMUL_DESC_A_SCALE_MODE, b as i32)?;
                plan.attribute(DescAttribute::CUBLASLT_MATMUL_DESC_B_SCALE_MODE, a as i32)?;
            }
        }
        // Any aligned address will do to ask the heuristics; `run` sets the real ones.
        plan.scales(1 << 20, 1 << 20)?;
        plan.a = layout(lt, product.b, product.cols, product.reduced)?;
        plan.b = layout(lt, product.a, product.rows, product.reduced)?;
        lt!(
            lt,
            cublasLtMatrixLayoutCreate(
                &mut plan.out,
                product.out.code(),
                product.cols as u64,
                product.rows as u64,
                product.cols as i64
            )
        )?;
        plan.ask(wanted)?;
        Ok(plan)
    }

    fn attribute<T: Copy>(&self, attribute: DescAttribute, value: T) -> Result<(), CudaError> {
        lt!(self.lt, cublasLtMatmulDescSetAttribute(self.desc, attribute, (&raw const value).cast(), size_of::<T>()))
    }

    fn scales(&self, a: u64, b: u64) -> Result<(), CudaError> {
        if self.product.a.scaling == Scaling::None {
            return Ok(());
        }
        self.attribute(DescAttribute::CUBLASLT_MATMUL_DESC_A_SCALE_POINTER, b)?;
        self.attribute(DescAttribute::CUBLASLT_MATMUL_DESC_B_SCALE_POINTER, a)
    }

    fn ask(&mut self, wanted: usize) -> Result<(), CudaError> {
        let mut preference: cublasLtMatmulPreference_t = std::ptr::null_mut();
        lt!(self.lt, cublasLtMatmulPreferenceCreate(&mut preference))?;
        let bytes: u64 = WORKSPACE_BYTES as u64;
        let limit = PreferenceAttribute::CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES;
        let mut results = vec![
            HeuristicResult {
                algo: cublasLtMatmulAlgo_t { data: [0; 8] },
                workspace: 0,
                status: -1,
                waves: 0.0,
                reserved: [0; 4]
            };
            wanted
        ];
        let mut found: c_int = 0;
        let set = lt!(
            self.lt,
            cublasLtMatmulPreferenceSetAttribute(preference, limit, (&raw const bytes).cast(), size_of::<u64>())
        );
        let asked = set.and_then(|()| {
            lt!(
                self.lt,
                cublasLtMatmulAlgoGetHeuristic(
                    self.lt.handle,
                    self.desc,
                    self.a,
                    self.b,
                    self.out,
                    self.out,
                    preference,
                    wanted as c_int,
                    results.as_mut_ptr(),
                    &mut found
                )
            )
        });
        let _ = lt!(self.lt, cublasLtMatmulPreferenceDestroy(preference));
        let usable = results.iter().take(found.unsigned_abs() as usize).filter(|result| result.status == 0);
        self.algorithms = usable.map(|result| Algorithm { algo: result.algo, workspace: result.workspace }).collect();
        if asked.is_err() || self.algorithms.is_empty() {
            return Err(CudaError::NoAlgorithm(self.product.to_string()));
        }
        Ok(())
    }

    /// Puts the product on the stream, by the algorithm of that index.
    pub fn run(
        &mut self,
        stream: &Stream,
        at: Addresses,
        algorithm: usize,
        workspace: &Buffer<u8>,
    ) -> Result<(), CudaError> {
        self.scales(at.a_scales, at.b_scales)?;
        let beta = f64::from(u8::from(self.product.accumulate));
        let (one, beta_f32, beta_f64) = ((1f32, 1f64), beta as f32, beta);
        let wide = self.product.compute == Compute::F64;
        let alpha: *const c_void = if wide { (&raw const one.1).cast() } else { (&raw const one.0).cast() };
        let beta: *const c_void = if wide { (&raw const beta_f64).cast() } else { (&raw const beta_f32).cast() };
        let chosen = self.algorithms[algorithm];
        lt!(
            self.lt,
            cublasLtMatmul(
                self.lt.handle,
                self.desc,
                alpha,
                at.b as *const c_void,
                self.a,
                at.a as *const c_void,
                self.b,
                beta,
                at.out as *const c_void,
                self.out,
                at.out as *mut c_void,
                self.out,
                &chosen.algo,
                workspace.address() as *mut c_void,
                chosen.workspace.min(workspace.len()),
                stream.handle()
            )
        )
    }
}

impl Drop for Plan {
    fn drop(&mut self) {
        for layout in [self.a, self.b, self.out].into_iter().filter(|layout| !layout.is_null()) {
            let _ = lt!(self.lt, cublasLtMatrixLayoutDestroy(layout));
        }
        if !self.desc.is_null() {
            let _ = lt!(self.lt, cublasLtMatmulDescDestroy(self.desc));
        }
    }
}

fn layout(lt: &Lt, operand: ProductOperand, rows: usize, reduced: usize) -> Result<cublasLtMatrixLayout_t, CudaError> {
    // What is row-major [x, y] to us is column-major [y, x] to cuBLASLt.
    let (inner, outer) = if operand.transposed { (rows, reduced) } else { (reduced, rows) };
    let mut layout = std::ptr::null_mut();
    let pitch = operand.pitch_of(inner) as i64;
    lt!(lt, cublasLtMatrixLayoutCreate(&mut layout, operand.of.code(), inner as u64, outer as u64, pitch))?;
    Ok(layout)
}
