//! What goes wrong on the way to a GPU, and on it.

use std::path::PathBuf;

use crate::engine::EngineError;

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CudaError {
    #[error("{}", missing(.0))]
    NoLibrary(&'static str),
    #[error("the library has no {name}; it is older than CUDA 12.9: {}", .path.display())]
    NoSymbol { name: String, path: PathBuf },
    #[error("cuBLASLt {found} has no rowwise and blockwise FP8, which came with 12.9: {}", .path.display())]
    OldCublasLt { found: String, path: PathBuf },
    #[error("the NVIDIA driver speaks CUDA {found}; LoKA needs 12.0 or later")]
    OldDriver { found: String },
    #[error("the NVIDIA driver is installed but finds no GPU ({0})")]
    NoDevice(String),
    #[error("{device} has compute capability {major}.{minor}; FP8 needs 8.9 or later")]
    NoFp8 { device: String, major: i32, minor: i32 },
    #[error("out of GPU memory: {wanted_mb} MB wanted, {free_mb} MB free")]
    OutOfMemory { wanted_mb: u64, free_mb: u64 },
    #[error("{call} failed: {name}")]
    Driver { call: &'static str, name: String, code: i32 },
    #[error("{call} failed: {name}")]
    Library { call: &'static str, name: &'static str },
    #[error("cuBLASLt has no algorithm for {0}")]
    NoAlgorithm(String),
    #[error("NVRTC refused {entry}: {log}")]
    Compile { entry: &'static str, log: String },
    #[error("{0}")]
    Refused(String),
}

fn missing(stem: &str) -> String {
    match stem {
        "cuda" => "no NVIDIA driver: libcuda.so.1 was not found".to_owned(),
        "cublasLt" => "no cuBLASLt: libcublasLt.so was not found beside the system's libraries, in CUDA_HOME or in the active Python (pip install nvidia-cublas)".to_owned(),
        "nvrtc" => "no NVRTC: libnvrtc.so was not found beside the system's libraries, in CUDA_HOME or in the active Python (pip install nvidia-cuda-nvrtc)".to_owned(),
        stem => format!("lib{stem}.so was not found"),
    }
}

/// Errors after which CUDA answers every further call of the process with the same error.
const STICKY: [i32; 11] = [700, 702, 710, 714, 715, 716, 717, 718, 719, 220, 214];

impl CudaError {
    /// True when the context is lost: nothing more will run on this device in this process.
    pub fn is_sticky(&self) -> bool {
        matches!(self, Self::Driver { code, .. } if STICKY.contains(code))
    }
}

impl From<CudaError> for EngineError {
    fn from(error: CudaError) -> Self {
        if error.is_sticky() {
            EngineError::Lost(format!("the GPU is lost to this process: {error}"))
        } else {
            EngineError::Failed(error.to_string())
        }
    }
}
