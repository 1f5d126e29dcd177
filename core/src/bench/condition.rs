//! Takes looks at the device around and during a run, and the run's own samples; gives what makes its
//! figures doubtful, in plain sentences.
//!
//! Nothing here changes the device. Where its state cannot be read (no libnvidia-ml, a container that hides
//! it) the samples still tell of drift, and the condition says that the rest is unknown.

#[cfg(feature = "cuda")]
mod nvml;

use serde::Serialize;

use crate::model::{KernelRecord, baseline_kernel};

use super::quantile::{geomean, quantile_of};

/// BF16 of the same shape: more than this between first and last third of its samples is a drift.
const DRIFT: f64 = 0.02;

/// (p90 - p10) / median of one shape's BF16 samples.
const SPREAD: f64 = 0.10;

/// Percent of time that a kernel of someone else ran before the first sample of ours.
const BUSY_PERCENT: u32 = 5;

/// A clock as a share of its maximum, below which figures are of a slower device.
const CLOCK_SHARE: f64 = 0.9;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Clock {
    pub now_mhz: u32,
    pub max_mhz: u32,
}

/// One look at the device. `None` and empty: not known, or nothing to say.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct DeviceState {
    /// Share of the last moments in which any kernel ran.
    pub busy_percent: Option<u32>,
    /// Processes on the device beside this one.
    pub other_processes: usize,
    /// The largest share of the multiprocessors' time that one of them had lately.
    pub others_busy_percent: Option<u32>,
    pub memory_used_mb: Option<u64>,
    /// Why clocks are below what they could be; idling is no reason.
    pub throttles: Vec<String>,
    pub sm_clock: Option<Clock>,
    pub memory_clock: Option<Clock>,
    pub temperature_c: Option<u32>,
}

/// Whether a run's figures can be trusted.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Condition {
    /// Sentences; none: nothing speaks against the figures.
    pub warnings: Vec<String>,
    /// Why the device's state could not be read.
    pub unknown: Option<String>,
    pub before: Option<DeviceState>,
    pub after: Option<DeviceState>,
    /// Medians over the looks during the run.
    pub sm_clock: Option<Clock>,
    pub memory_clock: Option<Clock>,
}

/// Looks at one device before, during and after a run.
pub struct Watch {
    #[cfg(feature = "cuda")]
    device: Result<nvml::Watched, String>,
    looks: Vec<DeviceState>,
}

impl Watch {
    /// Finds the device of that name and looks at it: before the first sample.
    pub fn start(device_name: &str) -> Self {
        #[cfg(not(feature = "cuda"))]
        let _ = device_name;
        let mut watch = Self {
            #[cfg(feature = "cuda")]
            device: nvml::Watched::find(device_name),
            looks: Vec::new(),
        };
        watch.look();
        watch
    }

    /// One more look, between two shapes: the clocks are still those of the last one.
    pub fn look(&mut self) {
        #[cfg(feature = "cuda")]
        if let Ok(device) = &self.device {
            self.looks.push(device.state());
        }
    }

    /// After the last sample.
    pub fn finish(mut self, records: &[KernelRecord]) -> Condition {
        self.look();
        let mut condition = judge(&self.looks, records);
        #[cfg(feature = "cuda")]
        {
            condition.unknown = self.device.err();
        }
        #[cfg(not(feature = "cuda"))]
        {
            condition.unknown = Some("this build cannot read the device's state".to_owned());
        }
        condition
    }
}

/// The first look is from before the run, the last from after it.
fn judge(looks: &[DeviceState], records: &[KernelRecord]) -> Condition {
    let during = if looks.len() > 2 { &looks[1..looks.len() - 1] } else { looks };
    let sm_clock = median_clock(during, |look| look.sm_clock);
    let memory_clock = median_clock(during, |look| look.memory_clock);
    let mut warnings: Vec<String> = looks.first().map(busy).unwrap_or_default();
    warnings.extend(others(looks));
    warnings.extend(throttled(looks));
    warnings.extend(slow_clock("multiprocessors'", sm_clock));
    warnings.extend(slow_clock("memory's", memory_clock));
    warnings.extend(drift(records));
    warnings.extend(spread(records));
    Condition {
        warnings,
        unknown: None,
        before: looks.first().cloned(),
        after: looks.last().cloned(),
        sm_clock,
        memory_clock,
    }
}

fn median_clock(looks: &[DeviceState], of: fn(&DeviceState) -> Option<Clock>) -> Option<Clock> {
    let clocks: Vec<Clock> = looks.iter().filter_map(of).collect();
    let now: Vec<f64> = clocks.iter().map(|clock| f64::from(clock.now_mhz)).collect();
    Some(Clock { now_mhz: quantile_of(&now, 0.5)? as u32, max_mhz: clocks.first()?.max_mhz })
}

fn busy(before: &DeviceState) -> Vec<String> {
    let share = before.busy_percent.filter(|share| *share > BUSY_PERCENT);
    let used = before.memory_used_mb.map_or(String::new(), |mb| format!(", {mb} MB of its memory in use"));
    share
        .map(|share| format!("The GPU was {share} % busy before the first sample{used}: someone else works on it."))
        .into_iter()
        .collect()
}

fn others(looks: &[DeviceState]) -> Option<String> {
    let processes = looks.iter().map(|look| look.other_processes).max().filter(|count| *count > 0)?;
    let share = looks.iter().filter_map(|look| look.others_busy_percent).max();
    let busy = match share {
        Some(share) if share > BUSY_PERCENT => format!(", one of them up to {share} % busy"),
        // A process that only holds memory disturbs nobody's timing.
        Some(_) => return None,
        None => String::new(),
    };
    let noun = if processes == 1 { "process shares" } else { "processes share" };
    Some(format!("{processes} other {noun} the GPU{busy}."))
}

fn throttled(looks: &[DeviceState]) -> Option<String> {
    let mut reasons: Vec<&str> = looks.iter().flat_map(|look| &look.throttles).map(String::as_str).collect();
    reasons.sort_unstable();
    reasons.dedup();
    let when = looks.iter().filter(|look| !look.throttles.is_empty()).count();
    let looked = looks.len();
    (!reasons.is_empty()).then(|| format!("The GPU was throttled in {when} of {looked} looks: {}.", reasons.join(", ")))
}

fn slow_clock(whose: &str, clock: Option<Clock>) -> Option<String> {
    let Clock { now_mhz, max_mhz } = clock?;
    let slow = f64::from(now_mhz) < CLOCK_SHARE * f64::from(max_mhz);
    slow.then(|| format!("The {whose} clock was {now_mhz} MHz of {max_mhz} MHz (median over the run)."))
}

fn baselines(records: &[KernelRecord]) -> impl Iterator<Item = &KernelRecord> {
    let id = baseline_kernel();
    records.iter().filter(move |record| record.kernel == id && record.latency_samples_us.len() >= 6)
}

/// Kernels are interleaved, so a drift of the baseline is one of the device.
fn drift(records: &[KernelRecord]) -> Option<String> {
    let ratio = |record: &KernelRecord| {
        let samples = &record.latency_samples_us;
        let third = samples.len() / 3;
        let (first, last) = (&samples[..third], &samples[samples.len() - third..]);
        Some(quantile_of(last, 0.5)? / quantile_of(first, 0.5)?)
    };
    let ratios: Vec<f64> = baselines(records).filter_map(ratio).filter(|ratio| ratio.is_finite()).collect();
    let change = geomean(&ratios)? - 1.0;
    let word = if change > 0.0 { "slower" } else { "faster" };
    (change.abs() > DRIFT).then(|| {
        format!(
            "BF16 became {:.1} % {word} from the first third of its samples to the last (mean over {} GEMMs): the clocks drifted.",
            100.0 * change.abs(),
            ratios.len()
        )
    })
}

fn spread(records: &[KernelRecord]) -> Option<String> {
    let spread = |record: &KernelRecord| {
        let at = |p| quantile_of(&record.latency_samples_us, p);
        Some((at(0.9)? - at(0.1)?) / at(0.5)?)
    };
    let all: Vec<(f64, &KernelRecord)> =
        baselines(records).filter_map(|record| Some((spread(record)?, record))).collect();
    let wide = all.iter().filter(|(share, _)| *share > SPREAD).count();
    let (worst, record) = all.iter().max_by(|a, b| a.0.total_cmp(&b.0))?;
    let (gemm, shape) = (record.gemm, record.shape);
    (wide > 0).then(|| {
        format!(
            "BF16 varies by more than {:.0} % from p10 to p90 at {wide} of {} GEMMs, most at {gemm} {} x {} x {}: {:.0} %.",
            100.0 * SPREAD,
            all.len(),
            shape.m,
            shape.k,
            shape.n,
            100.0 * worst
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::KernelDb;

    fn baseline(samples: impl Fn(usize) -> f64) -> KernelRecord {
        let database = KernelDb::builtin().into_iter().find(|database| database.name.contains("cublaslt")).unwrap();
        KernelRecord { latency_samples_us: (0..30).map(samples).collect(), ..database.records[0].clone() }
    }

    fn calm() -> DeviceState {
        DeviceState {
            busy_percent: Some(0),
            sm_clock: Some(Clock { now_mhz: 1980, max_mhz: 1980 }),
            memory_clock: Some(Clock { now_mhz: 3201, max_mhz: 3201 }),
            ..DeviceState::default()
        }
    }

    #[test]
    fn a_calm_device_and_steady_samples_give_no_warning() {
        let steady = baseline(|i| 10.0 + 0.01 * (i % 3) as f64);
        let condition = judge(&[calm(), calm(), calm()], &[steady]);
        assert_eq!(condition.warnings, Vec::<String>::new());
        assert_eq!(condition.sm_clock, Some(Clock { now_mhz: 1980, max_mhz: 1980 }));
        assert!(judge(&[], &[]).warnings.is_empty());
    }

    #[test]
    fn a_busy_or_slow_device_is_told() {
        let before = DeviceState { busy_percent: Some(37), memory_used_mb: Some(900), ..calm() };
        let slow = DeviceState {
            other_processes: 1,
            others_busy_percent: Some(60),
            throttles: vec!["power cap".to_owned()],
            sm_clock: Some(Clock { now_mhz: 1200, max_mhz: 1980 }),
            ..calm()
        };
        let warnings = judge(&[before, slow.clone(), slow, calm()], &[]).warnings;
        assert_eq!(
            warnings,
            [
                "The GPU was 37 % busy before the first sample, 900 MB of its memory in use: someone else works on it.",
                "1 other process shares the GPU, one of them up to 60 % busy.",
                "The GPU was throttled in 2 of 4 looks: power cap.",
                "The multiprocessors' clock was 1200 MHz of 1980 MHz (median over the run).",
            ]
        );
        let holding = DeviceState { other_processes: 1, others_busy_percent: Some(0), ..calm() };
        assert!(judge(&[holding.clone(), holding], &[]).warnings.is_empty());
    }

    #[test]
    fn samples_tell_of_drift_and_spread() {
        let warnings = judge(&[], &[baseline(|i| 10.0 + 0.05 * i as f64)]).warnings;
        assert_eq!(warnings.len(), 2);
        assert!(warnings[0].starts_with("BF16 became 9.") && warnings[0].contains("% slower from"), "{warnings:?}");
        assert!(warnings[1].contains("at 1 of 1 GEMMs, most at fprop 2048 x 256 x 768"), "{warnings:?}");
    }

    #[test]
    fn without_the_library_nothing_fails() {
        let condition = Watch::start("no such device").finish(&[]);
        assert!(condition.unknown.is_some() && condition.warnings.is_empty(), "{condition:?}");
    }
}
