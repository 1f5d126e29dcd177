//! Takes a library's name, gives where it is and its symbols, or why not.
//!
//! NVIDIA's libraries come from three places: the system loader, a toolkit (`CUDA_HOME`), and the pip
//! packages of the active Python, where PyTorch keeps its own. All are looked at, so that a machine with
//! nothing but a driver and PyTorch works. cudarc could load them too, but ties a build to one CUDA
//! major version and panics when any symbol of its hundreds is missing; we ask for the few that we call.

use std::{
    env,
    path::{Path, PathBuf},
};

use libloading::os::unix::{Library, RTLD_GLOBAL, RTLD_NOW};

use super::CudaError;

/// Newest first. 12 is what PyTorch's CUDA 12 builds carry.
const MAJORS: [u32; 2] = [13, 12];

/// Where to look. The default is this process's environment; tests name folders.
#[derive(Clone, Debug)]
pub struct SearchPath {
    /// Ask the system loader too.
    pub system: bool,
    pub folders: Vec<PathBuf>,
}

impl SearchPath {
    /// The system loader, then a toolkit, then the active Python's packages.
    pub fn of_environment() -> Self {
        let mut folders = Vec::new();
        let toolkits = ["CUDA_HOME", "CUDA_PATH"].into_iter().filter_map(|name| env::var_os(name).map(PathBuf::from));
        for toolkit in toolkits.chain([PathBuf::from("/usr/local/cuda")]) {
            folders.extend([toolkit.join("lib64"), toolkit.join("targets/x86_64-linux/lib")]);
        }
        folders.extend(python_prefixes().iter().flat_map(|prefix| packages_of(prefix)));
        Self { system: true, folders }
    }

    /// Only these folders: for tests.
    pub fn only(folders: Vec<PathBuf>) -> Self {
        Self { system: false, folders }
    }

    /// Everything that a library named `stem` may be called, the most wanted first.
    fn candidates(&self, stem: &str) -> Vec<PathBuf> {
        let versioned = MAJORS.map(|major| format!("lib{stem}.so.{major}"));
        // libcuda.so.1 is the driver's, whatever its version.
        let names: Vec<String> =
            versioned.into_iter().chain([format!("lib{stem}.so.1"), format!("lib{stem}.so")]).collect();
        let system = names.iter().filter(|_| self.system).map(PathBuf::from);
        let inside = self.folders.iter().flat_map(|folder| names.iter().map(|name| folder.join(name)));
        system.chain(inside.filter(|path| path.exists())).collect()
    }

    /// The first library of that name which loads and which `accept` finds good; else the reason of the
    /// one that came nearest.
    pub(super) fn open<T>(
        &self,
        stem: &'static str,
        accept: impl Fn(&Loaded) -> Result<T, CudaError>,
    ) -> Result<(T, Loaded), CudaError> {
        let mut refused = None;
        for path in self.candidates(stem) {
            let Ok(loaded) = Loaded::open(&path) else { continue };
            match accept(&loaded) {
                Ok(api) => return Ok((api, loaded)),
                Err(reason) => refused = refused.or(Some(reason)),
            }
        }
        Err(refused.unwrap_or(CudaError::NoLibrary(stem)))
    }
}

/// Prefixes of the Pythons that `python3` may mean: a virtual environment first. Not canonical: a
/// virtual environment's interpreter is a link, and its packages lie beside the link.
fn python_prefixes() -> Vec<PathBuf> {
    let mut prefixes: Vec<PathBuf> = env::var_os("VIRTUAL_ENV").map(PathBuf::from).into_iter().collect();
    let path = env::var_os("PATH").unwrap_or_default();
    for folder in env::split_paths(&path).filter(|folder| folder.join("python3").exists()) {
        prefixes.extend(folder.parent().map(Path::to_path_buf));
    }
    prefixes
}

/// `site-packages/nvidia/*/lib` of one Python.
fn packages_of(prefix: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for version in entries(&prefix.join("lib")).filter(|path| name_starts(path, "python3")) {
        for packages in ["site-packages", "dist-packages"] {
            found.extend(entries(&version.join(packages).join("nvidia")).map(|package| package.join("lib")));
        }
    }
    found.retain(|folder| folder.is_dir());
    // A folder is listed in any order; the answer must not depend on it. Newest CUDA first (cu13 before cu12).
    found.sort_by(|a, b| b.cmp(a));
    found
}

fn entries(folder: &Path) -> impl Iterator<Item = PathBuf> {
    std::fs::read_dir(folder).into_iter().flatten().filter_map(|entry| entry.ok().map(|entry| entry.path()))
}

fn name_starts(path: &Path, start: &str) -> bool {
    path.file_name().and_then(|name| name.to_str()).is_some_and(|name| name.starts_with(start))
}

/// A library that stays loaded as long as the process: its threads may outlive anything of ours.
#[derive(Clone, Debug)]
pub(super) struct Loaded {
    library: &'static Library,
    pub path: PathBuf,
}

impl Loaded {
    #[expect(unsafe_code, reason = "loading a shared library runs its constructors")]
    pub fn open(path: &Path) -> Result<Self, libloading::Error> {
        // SAFETY: NVIDIA's libraries have no constructors with requirements on us. Global, because NVRTC opens
        // its builtins by bare name and finds them only among what is already known.
        let library = unsafe { Library::open(Some(path), RTLD_NOW | RTLD_GLOBAL) }?;
        Ok(Self { library: Box::leak(Box::new(library)), path: path.to_owned() })
    }

    /// The folder that the library really lies in, when it was found by path.
    pub fn folder(&self) -> Option<&Path> {
        self.path.parent().filter(|folder| !folder.as_os_str().is_empty())
    }

    /// A function of the library.
    ///
    /// # Safety
    /// `F` must be the function's type.
    #[expect(unsafe_code, reason = "the caller vouches for the type")]
    pub unsafe fn symbol<F: Copy>(&self, name: &str) -> Result<F, CudaError> {
        // SAFETY: the caller's promise.
        let symbol = unsafe { self.library.get::<F>(name.as_bytes()) };
        symbol.map(|symbol| *symbol).map_err(|_| CudaError::NoSymbol { name: name.to_owned(), path: self.path.clone() })
    }
}

/// Declares a struct of function pointers and how to load them all.
macro_rules! symbols {
    ($(#[$doc:meta])* $name:ident { $(fn $symbol:ident($($argument:ty),* $(,)?) -> $result:ty;)* }) => {
        $(#[$doc])*
        #[derive(Clone, Copy)]
        #[expect(non_snake_case, reason = "named as in NVIDIA's headers")]
        pub(super) struct $name {
            $(pub $symbol: unsafe extern "C" fn($($argument),*) -> $result,)*
        }

        impl $name {
            #[expect(unsafe_code, reason = "the types are those of NVIDIA's headers")]
            pub fn load(library: &$crate::engine::cuda::libraries::Loaded) -> Result<Self, $crate::engine::cuda::CudaError> {
                // SAFETY: every type is the one that NVIDIA's header declares for that name.
                Ok(Self { $($symbol: unsafe { library.symbol(stringify!($symbol)) }?,)* })
            }
        }
    };
}
pub(super) use symbols;
