//! Takes a running server, gives what its process has of the machine.

use super::Server;

/// Of one moment. Linux alone says so.
#[derive(Clone, Copy, Debug)]
pub struct ProcessUsage {
    /// Resident.
    pub megabytes: f64,
    pub cpu_seconds: f64,
    pub descriptors: usize,
}

impl ProcessUsage {
    pub fn of(server: &Server) -> Self {
        let process = format!("/proc/{}", server.child.id());
        let read = |file: &str| std::fs::read_to_string(format!("{process}/{file}")).unwrap();
        let status = read("status");
        let line = status.lines().find(|line| line.starts_with("VmRSS:")).unwrap();
        let kilobytes: f64 = line.split_whitespace().nth(1).unwrap().parse().unwrap();
        let stat = read("stat");
        let fields: Vec<&str> = stat.rsplit_once(") ").unwrap().1.split(' ').collect();
        let ticks: f64 = fields[11].parse::<f64>().unwrap() + fields[12].parse::<f64>().unwrap();
        let descriptors = std::fs::read_dir(format!("{process}/fd")).unwrap().count();
        Self { megabytes: kilobytes / 1024.0, cpu_seconds: ticks / 100.0, descriptors }
    }
}
