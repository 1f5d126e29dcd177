//! GPUs of this process: takes their numbers, gives them opened. They stay open as long as the process, as the kernels
//! that are loaded on them do.

use std::{
    collections::BTreeMap,
    path::PathBuf,
    sync::{Mutex, PoisonError, RwLock},
};

use loka_core::engine::cuda::{
    CudaError, SearchPath,
    raw::{Gpu, cache_folder},
};

static OPENED: RwLock<BTreeMap<i32, &'static Gpu>> = RwLock::new(BTreeMap::new());
/// One opens at a time; whoever uses those that are open does not wait for it.
static OPENING: Mutex<()> = Mutex::new(());

pub fn open(device: i32, folders: &str) -> Result<(), CudaError> {
    let ordinal =
        u32::try_from(device).map_err(|_| CudaError::Refused(format!("device {device} is no number of one")))?;
    let _one = OPENING.lock().unwrap_or_else(PoisonError::into_inner);
    if opened(device).is_ok() {
        return Ok(());
    }
    let mut search = SearchPath::of_environment();
    // Those that were named come first: the caller knows which Python runs.
    search.folders.splice(0..0, folders.split(':').filter(|folder| !folder.is_empty()).map(PathBuf::from));
    let gpu: &'static Gpu = Box::leak(Box::new(Gpu::open(&search, cache_folder(), ordinal)?));
    OPENED.write().unwrap_or_else(PoisonError::into_inner).insert(device, gpu);
    Ok(())
}

pub fn opened(device: i32) -> Result<&'static Gpu, CudaError> {
    let opened = OPENED.read().unwrap_or_else(PoisonError::into_inner);
    opened.get(&device).copied().ok_or_else(|| CudaError::Refused(format!("device {device} is not open: loka_open it")))
}
