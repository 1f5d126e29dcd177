//! The device as NVIDIA's management library sees it. Reads alone: no clock, power or mode is ever set.
//!
//! The library's own declarations are the crate nvml-wrapper-sys; the safe crate above it brings derive
//! macros that rebuild half the tree, for the dozen calls below.

#![allow(unsafe_code, reason = "the management library is C; each call has its SAFETY line")]

use std::{ffi::CStr, ptr::null_mut};

use nvml_wrapper_sys::bindings as sys;
use sys::{NvmlLib, nvmlDevice_t};

use super::{Clock, DeviceState};

const SUCCESS: sys::nvmlReturn_t = sys::nvmlReturn_enum_NVML_SUCCESS;

/// More processes than anyone shares a GPU among.
const MAX_PROCESSES: usize = 64;

/// Bits and their words. Idling is not among them: it says that nobody asked for more.
const REASONS: [(u32, &str); 7] = [
    (sys::nvmlClocksThrottleReasonApplicationsClocksSetting, "application clocks are set"),
    (sys::nvmlClocksThrottleReasonSwPowerCap, "power cap"),
    (sys::nvmlClocksThrottleReasonHwSlowdown, "hardware slowdown"),
    (sys::nvmlClocksThrottleReasonSyncBoost, "clocks tied to another GPU"),
    (sys::nvmlClocksThrottleReasonSwThermalSlowdown, "thermal slowdown by the driver"),
    (sys::nvmlClocksThrottleReasonHwThermalSlowdown, "thermal slowdown by the hardware"),
    (sys::nvmlClocksThrottleReasonHwPowerBrakeSlowdown, "power brake"),
];

/// The library, loaded and initialised.
struct Library(NvmlLib);

impl Drop for Library {
    fn drop(&mut self) {
        if let Ok(shutdown) = &self.0.nvmlShutdown {
            // SAFETY: initialised in `open`, and no handle outlives `self`.
            let _ = unsafe { shutdown() };
        }
    }
}

impl Library {
    fn open() -> Option<Self> {
        // The versioned name is what a driver installs; the bare one comes with a development package.
        // SAFETY: NVIDIA's library has no initialisers that could harm; a missing symbol is an Err of its field.
        let load = |name: &str| unsafe { NvmlLib::new(name) }.ok();
        let library = ["libnvidia-ml.so.1", "libnvidia-ml.so"].into_iter().find_map(load)?;
        let init = *library.nvmlInit_v2.as_ref().ok()?;
        // SAFETY: takes nothing; may be called again in one process, each with its shutdown.
        (unsafe { init() } == SUCCESS).then_some(Self(library))
    }

    fn devices(&self) -> Vec<nvmlDevice_t> {
        let (Ok(count), Ok(by_index)) = (&self.0.nvmlDeviceGetCount_v2, &self.0.nvmlDeviceGetHandleByIndex_v2) else {
            return Vec::new();
        };
        let mut number = 0;
        // SAFETY: writes one unsigned int.
        if unsafe { count(&raw mut number) } != SUCCESS {
            return Vec::new();
        }
        let handle = |index| {
            let mut device = null_mut();
            // SAFETY: writes one handle, good until shutdown.
            (unsafe { by_index(index, &raw mut device) } == SUCCESS).then_some(device)
        };
        (0..number).filter_map(handle).collect()
    }

    fn name(&self, device: nvmlDevice_t) -> Option<String> {
        let mut bytes = [0; 96];
        let get = self.0.nvmlDeviceGetName.as_ref().ok()?;
        // SAFETY: writes at most the given length, its terminating zero included.
        let done = unsafe { get(device, bytes.as_mut_ptr(), bytes.len() as u32) } == SUCCESS;
        // SAFETY: the array is zeroed, so some byte ends the text even if the call wrote none.
        done.then(|| unsafe { CStr::from_ptr(bytes.as_ptr()) }.to_string_lossy().into_owned())
    }

    fn processes(&self, device: nvmlDevice_t) -> Vec<u32> {
        // SAFETY: a C struct of integers, for which zero is a value.
        let mut infos: [sys::nvmlProcessInfo_t; MAX_PROCESSES] = unsafe { std::mem::zeroed() };
        let mut count = infos.len() as u32;
        let Ok(get) = &self.0.nvmlDeviceGetComputeRunningProcesses_v3 else { return Vec::new() };
        // SAFETY: writes at most `count` entries, and how many.
        if unsafe { get(device, &raw mut count, infos.as_mut_ptr()) } != SUCCESS {
            return Vec::new();
        }
        infos.iter().take(count as usize).map(|info| info.pid).collect()
    }

    /// The busiest process beside this one, over the samples that the driver still keeps.
    fn others_busy(&self, device: nvmlDevice_t) -> Option<u32> {
        // SAFETY: a C struct of integers, for which zero is a value.
        let mut samples: [sys::nvmlProcessUtilizationSample_t; MAX_PROCESSES] = unsafe { std::mem::zeroed() };
        let mut count = samples.len() as u32;
        let get = self.0.nvmlDeviceGetProcessUtilization.as_ref().ok()?;
        // SAFETY: writes at most `count` entries, and how many.
        if unsafe { get(device, samples.as_mut_ptr(), &raw mut count, 0) } != SUCCESS {
            return None;
        }
        let others = samples.iter().take(count as usize).filter(|sample| sample.pid != std::process::id());
        Some(others.map(|sample| sample.smUtil).max().unwrap_or(0))
    }

    fn busy_percent(&self, device: nvmlDevice_t) -> Option<u32> {
        let mut rates = sys::nvmlUtilization_t { gpu: 0, memory: 0 };
        let get = self.0.nvmlDeviceGetUtilizationRates.as_ref().ok()?;
        // SAFETY: writes one struct.
        (unsafe { get(device, &raw mut rates) } == SUCCESS).then_some(rates.gpu)
    }

    fn memory_used_mb(&self, device: nvmlDevice_t) -> Option<u64> {
        let mut memory = sys::nvmlMemory_t { total: 0, free: 0, used: 0 };
        let get = self.0.nvmlDeviceGetMemoryInfo.as_ref().ok()?;
        // SAFETY: writes one struct.
        (unsafe { get(device, &raw mut memory) } == SUCCESS).then_some(memory.used / 1_000_000)
    }

    fn throttles(&self, device: nvmlDevice_t) -> Vec<String> {
        let mut bits = 0;
        let Ok(get) = &self.0.nvmlDeviceGetCurrentClocksThrottleReasons else { return Vec::new() };
        // SAFETY: writes one unsigned long long.
        let read = unsafe { get(device, &raw mut bits) } == SUCCESS;
        let set = |bit: u32| read && bits & u64::from(bit) != 0;
        REASONS.iter().filter(|(bit, _)| set(*bit)).map(|(_, word)| (*word).to_owned()).collect()
    }

    fn clock(&self, device: nvmlDevice_t, domain: sys::nvmlClockType_t) -> Option<Clock> {
        let (now, max) =
            (self.0.nvmlDeviceGetClockInfo.as_ref().ok()?, self.0.nvmlDeviceGetMaxClockInfo.as_ref().ok()?);
        let (mut now_mhz, mut max_mhz) = (0, 0);
        // SAFETY: each writes one unsigned int.
        let read = unsafe {
            now(device, domain, &raw mut now_mhz) == SUCCESS && max(device, domain, &raw mut max_mhz) == SUCCESS
        };
        read.then_some(Clock { now_mhz, max_mhz })
    }

    fn temperature_c(&self, device: nvmlDevice_t) -> Option<u32> {
        let mut degrees = 0;
        let get = self.0.nvmlDeviceGetTemperature.as_ref().ok()?;
        let sensor = sys::nvmlTemperatureSensors_enum_NVML_TEMPERATURE_GPU;
        // SAFETY: writes one unsigned int.
        (unsafe { get(device, sensor, &raw mut degrees) } == SUCCESS).then_some(degrees)
    }
}

/// One device of the library.
pub(super) struct Watched {
    library: Library,
    device: nvmlDevice_t,
}

impl Watched {
    /// The device that this process computes on, known by its name; or why that cannot be told.
    pub(super) fn find(name: &str) -> Result<Self, String> {
        let library =
            Library::open().ok_or_else(|| "NVIDIA's management library (libnvidia-ml) is not there".to_owned())?;
        let named: Vec<nvmlDevice_t> =
            library.devices().into_iter().filter(|device| library.name(*device).as_deref() == Some(name)).collect();
        let ours = |device: &&nvmlDevice_t| library.processes(**device).contains(&std::process::id());
        let device = match named.as_slice() {
            [] => return Err(format!("the management library lists no {name}")),
            [only] => *only,
            several => *several.iter().find(ours).ok_or_else(|| {
                format!("the management library lists {} devices called {name} and not which is used", several.len())
            })?,
        };
        Ok(Self { library, device })
    }

    pub(super) fn state(&self) -> DeviceState {
        let (library, device) = (&self.library, self.device);
        let all = library.processes(device);
        DeviceState {
            busy_percent: library.busy_percent(device),
            // In a container a process has another number outside: one of them is taken to be this one.
            other_processes: all.len().saturating_sub(1),
            others_busy_percent: library.others_busy(device).filter(|_| all.contains(&std::process::id())),
            memory_used_mb: library.memory_used_mb(device),
            throttles: library.throttles(device),
            sm_clock: library.clock(device, sys::nvmlClockType_enum_NVML_CLOCK_SM),
            memory_clock: library.clock(device, sys::nvmlClockType_enum_NVML_CLOCK_MEM),
            temperature_c: library.temperature_c(device),
        }
    }
}
