//! Takes kernel sources, gives cubins: from the disk where they were compiled before, else from NVRTC.
//!
//! A cubin's name is the hash of all that decides it: source, headers, architecture, compiler version. Each
//! file carries its own digest, so that a torn or edited one is compiled anew, and a cache that cannot be
//! written costs time alone.

use std::{
    ffi::{CString, c_char, c_int},
    path::{Path, PathBuf},
};

use loka_kernels::KernelSource;
use sha2::{Digest, Sha256};

use super::{
    CudaError,
    libraries::{Loaded, SearchPath, symbols},
};

type Program = *mut std::ffi::c_void;

symbols! {
    /// Of libnvrtc.
    NvrtcApi {
        fn nvrtcVersion(*mut c_int, *mut c_int) -> c_int;
        fn nvrtcCreateProgram(*mut Program, *const c_char, *const c_char, c_int, *const *const c_char, *const *const c_char) -> c_int;
        fn nvrtcCompileProgram(Program, c_int, *const *const c_char) -> c_int;
        fn nvrtcGetCUBINSize(Program, *mut usize) -> c_int;
        fn nvrtcGetCUBIN(Program, *mut c_char) -> c_int;
        fn nvrtcGetProgramLogSize(Program, *mut usize) -> c_int;
        fn nvrtcGetProgramLog(Program, *mut c_char) -> c_int;
        fn nvrtcDestroyProgram(*mut Program) -> c_int;
    }
}

/// Length of the digest in front of a cached cubin.
const DIGEST: usize = 32;

/// The compiler, and where its results are kept.
pub(super) struct Nvrtc {
    api: NvrtcApi,
    pub version: String,
    pub path: PathBuf,
    cache: Option<PathBuf>,
}

macro_rules! nvrtc {
    ($self:expr, $symbol:ident($($argument:expr),* $(,)?)) => {{
        // SAFETY: handles made by NVRTC and pointers valid for the call.
        #[expect(unsafe_code, reason = "a call of NVRTC")]
        let status = unsafe { ($self.api.$symbol)($($argument),*) };
        if status == 0 { Ok(()) } else { Err(CudaError::Library { call: stringify!($symbol), name: status_name(status) }) }
    }};
}

fn status_name(status: c_int) -> &'static str {
    match status {
        1 => "out of memory",
        2 => "program creation failure",
        3 => "invalid input",
        4 => "invalid program",
        5 => "invalid option",
        6 => "compilation error",
        7 => "builtin operation failure",
        _ => "internal error",
    }
}

impl Nvrtc {
    /// `cache`: the folder for cubins; `None`: compile every time.
    pub fn open(search: &SearchPath, cache: Option<PathBuf>) -> Result<Self, CudaError> {
        let (api, library) = search.open("nvrtc", NvrtcApi::load)?;
        load_builtins(&library);
        let mut compiler = Self { api, version: String::new(), path: library.path.clone(), cache };
        let (mut major, mut minor) = (0, 0);
        nvrtc!(compiler, nvrtcVersion(&mut major, &mut minor))?;
        compiler.version = format!("{major}.{minor}");
        Ok(compiler)
    }

    /// The cubin of a kernel for `architecture`.
    pub fn cubin(&self, kernel: &KernelSource, architecture: &str) -> Result<Vec<u8>, CudaError> {
        let file = self.cache.as_ref().map(|folder| folder.join(self.file_name(kernel, architecture)));
        if let Some(cubin) = file.as_deref().and_then(read_cached) {
            return Ok(cubin);
        }
        let cubin = self.compile(kernel, architecture)?;
        if let Some(file) = file {
            // A read-only or full disk costs the next start some seconds, no more.
            drop(write_cached(&file, &cubin));
        }
        Ok(cubin)
    }

    fn file_name(&self, kernel: &KernelSource, architecture: &str) -> String {
        let mut hash = Sha256::new();
        let headers = kernel.headers.iter().flat_map(|header| [header.name, header.text]);
        for part in [kernel.source, architecture, &self.version, env!("CARGO_PKG_VERSION")].into_iter().chain(headers) {
            hash.update((part.len() as u64).to_le_bytes());
            hash.update(part);
        }
        let digest: String = hash.finalize().iter().take(8).map(|byte| format!("{byte:02x}")).collect();
        format!("{}.{architecture}.{digest}.cubin", kernel.entry)
    }

    fn compile(&self, kernel: &KernelSource, architecture: &str) -> Result<Vec<u8>, CudaError> {
        let name = |text: &str| CString::new(text).unwrap_or_default();
        let (source, file) = (name(kernel.source), name(&format!("{}.cu", kernel.entry)));
        let texts: Vec<CString> = kernel.headers.iter().map(|header| name(header.text)).collect();
        let names: Vec<CString> = kernel.headers.iter().map(|header| name(header.name)).collect();
        let pointers = |strings: &[CString]| strings.iter().map(|text| text.as_ptr()).collect::<Vec<_>>();
        let (texts, names) = (pointers(&texts), pointers(&names));
        let mut program: Program = std::ptr::null_mut();
        nvrtc!(
            self,
            nvrtcCreateProgram(
                &mut program,
                source.as_ptr(),
                file.as_ptr(),
                names.len() as c_int,
                texts.as_ptr(),
                names.as_ptr()
            )
        )?;
        let options = [name(&format!("--gpu-architecture={architecture}")), name("--std=c++17")];
        let options = pointers(&options);
        let compiled = nvrtc!(self, nvrtcCompileProgram(program, options.len() as c_int, options.as_ptr()));
        let cubin = match compiled {
            Ok(()) => self.bytes_of(program),
            Err(_) => Err(CudaError::Compile { entry: kernel.entry, log: self.log_of(program) }),
        };
        let _ = nvrtc!(self, nvrtcDestroyProgram(&mut program));
        cubin
    }

    fn bytes_of(&self, program: Program) -> Result<Vec<u8>, CudaError> {
        let mut size = 0;
        nvrtc!(self, nvrtcGetCUBINSize(program, &mut size))?;
        let mut bytes = vec![0u8; size];
        nvrtc!(self, nvrtcGetCUBIN(program, bytes.as_mut_ptr().cast()))?;
        Ok(bytes)
    }

    /// The first line that says what is wrong.
    fn log_of(&self, program: Program) -> String {
        let mut size = 0;
        if nvrtc!(self, nvrtcGetProgramLogSize(program, &mut size)).is_err() {
            return "no log".to_owned();
        }
        let mut bytes = vec![0u8; size];
        if nvrtc!(self, nvrtcGetProgramLog(program, bytes.as_mut_ptr().cast())).is_err() {
            return "no log".to_owned();
        }
        let text = String::from_utf8_lossy(&bytes);
        let wrong = text.lines().find(|line| line.contains("error")).or(text.lines().next());
        wrong.unwrap_or("no log").trim_end_matches('\0').to_owned()
    }
}

/// NVRTC opens its builtins by bare name, and some versions do not look beside themselves.
fn load_builtins(library: &Loaded) {
    let Some(folder) = library.folder() else { return };
    for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
        if entry.file_name().to_string_lossy().starts_with("libnvrtc-builtins.so") {
            drop(Loaded::open(&entry.path()));
        }
    }
}

fn read_cached(file: &Path) -> Option<Vec<u8>> {
    let bytes = std::fs::read(file).ok()?;
    let (digest, cubin) = bytes.split_at_checked(DIGEST)?;
    (Sha256::digest(cubin)[..] == *digest).then(|| cubin.to_vec())
}

fn write_cached(file: &Path, cubin: &[u8]) -> std::io::Result<()> {
    let folder = file.parent().unwrap_or(Path::new("."));
    std::fs::create_dir_all(folder)?;
    let mut temporary = tempfile::NamedTempFile::new_in(folder)?;
    std::io::Write::write_all(&mut temporary, &Sha256::digest(cubin))?;
    std::io::Write::write_all(&mut temporary, cubin)?;
    temporary.persist(file)?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cached_cubin_comes_back_and_a_torn_one_does_not() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("deeper").join("kernel.cubin");
        write_cached(&file, b"cubin").unwrap();
        assert_eq!(read_cached(&file).as_deref(), Some(&b"cubin"[..]));
        let bytes = std::fs::read(&file).unwrap();
        std::fs::write(&file, &bytes[..bytes.len() - 1]).unwrap();
        assert_eq!(read_cached(&file), None);
        std::fs::write(&file, b"short").unwrap();
        assert_eq!(read_cached(&file), None);
    }
}
