//! Says on what was measured, and how much memory this process holds.

use std::fs;

/// CPU model, cores, system, compiler: one line.
pub fn describe() -> String {
    let cores = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    let build = if cfg!(debug_assertions) { "debug build" } else { "release build" };
    format!("{}, {cores} cores, {}, {}, {build}", processor(), system(), compiler())
}

fn processor() -> String {
    field("/proc/cpuinfo", "model name").unwrap_or_else(|| std::env::consts::ARCH.to_owned())
}

fn system() -> String {
    let name = fs::read_to_string("/etc/os-release").unwrap_or_default();
    let name = name.lines().find_map(|line| line.strip_prefix("PRETTY_NAME="));
    let kernel = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    format!("{} (Linux {})", name.unwrap_or("unknown").trim_matches('"'), kernel.trim())
}

fn compiler() -> String {
    let asked = std::process::Command::new("rustc").arg("--version").output();
    asked.map_or_else(|_| "rustc unknown".to_owned(), |said| String::from_utf8_lossy(&said.stdout).trim().to_owned())
}

fn field(file: &str, name: &str) -> Option<String> {
    let text = fs::read_to_string(file).ok()?;
    let line = text.lines().find(|line| line.starts_with(name))?;
    Some(line.split_once(':')?.1.trim().to_owned())
}

/// Megabytes that this process has in memory.
pub fn resident_mb() -> f64 {
    let kilobytes = field("/proc/self/status", "VmRSS").and_then(|text| text.split(' ').next()?.parse::<f64>().ok());
    kilobytes.map_or(f64::NAN, |kilobytes| kilobytes / 1e3)
}
