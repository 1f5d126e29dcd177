//! What a watch remembers from snapshot to snapshot, and which alarms begin and end. Pure: whoever calls reads and writes.

use std::collections::BTreeMap;

use serde::{Deserialize, Deserializer, Serialize};

use super::{CanaryCheck, DriftEvidence, discoveries};

pub const FORMAT: &str = "loka-watch";
pub const VERSION: u64 = 1;

/// An alarm ends where two snapshots in a row say nothing of the kind.
const QUIET: f64 = 0.2;
const QUIET_SNAPSHOTS: u32 = 2;

/// An alarm that stands.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Alarm {
    /// The snapshot that it began with.
    pub since: String,
    pub what: String,
    #[serde(deserialize_with = "or_nan")]
    pub found: f64,
    #[serde(deserialize_with = "or_nan")]
    pub limit: f64,
    /// Of both snapshots together, that nothing is wrong.
    pub p: f64,
    /// Snapshots in a row that said nothing of the kind.
    #[serde(default)]
    pub quiet: u32,
}

/// The last snapshot that was looked at, in figures.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct SnapshotFigures {
    /// Of training.
    pub step: u64,
    pub num_tests: usize,
    /// That looking at it took.
    pub seconds: f64,
}

/// JSON has null for what is no number.
fn or_nan<'de, D: Deserializer<'de>>(deserializer: D) -> Result<f64, D::Error> {
    Ok(Option::deserialize(deserializer)?.unwrap_or(f64::NAN))
}

/// A watch over one plan, as its file holds it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct WatchState {
    pub format: String,
    pub version: u64,
    /// Digest of the plan.
    pub plan: String,
    /// Digests of the traces that were looked at, with their names, in that order.
    pub seen: Vec<(String, String)>,
    /// Of the last of them; `None` also where the file was written by a version that kept none.
    #[serde(default)]
    pub figures: Option<SnapshotFigures>,
    /// p of every test at the last snapshot that had it.
    pub last: BTreeMap<String, f64>,
    /// Alarms that stand, by their test.
    pub alarms: BTreeMap<String, Alarm>,
    /// Bytes of each health log that were read.
    #[serde(default)]
    pub logs: BTreeMap<String, u64>,
    /// Whether the last check of each GEMM on each rank was off.
    #[serde(default)]
    pub checks: BTreeMap<String, bool>,
}

/// What a snapshot changed, or what was heard of training.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Observed {
    pub num_tests: usize,
    /// Tests, in order of their names.
    pub began: Vec<String>,
    pub ended: Vec<String>,
}

impl Observed {
    /// Nothing began and nothing ended.
    pub fn is_quiet(&self) -> bool {
        self.began.is_empty() && self.ended.is_empty()
    }
}

impl WatchState {
    pub fn new(plan: &str) -> Self {
        Self {
            format: FORMAT.to_owned(),
            version: VERSION,
            plan: plan.to_owned(),
            seen: Vec::new(),
            figures: None,
            last: BTreeMap::new(),
            alarms: BTreeMap::new(),
            logs: BTreeMap::new(),
            checks: BTreeMap::new(),
        }
    }

    /// A state that was kept, where it is of this plan.
    pub fn from_json(text: &str, plan: &str) -> Result<Self, String> {
        let watch: Self = serde_json::from_str(text).map_err(|error| format!("not a watch's state: {error}"))?;
        if (watch.format.as_str(), watch.version) != (FORMAT, VERSION) {
            return Err(format!("not a watch's state: format {} version {}", watch.format, watch.version));
        }
        if watch.plan != plan {
            return Err("it is of another plan: name a state of its own with --state, or remove it".to_owned());
        }
        Ok(watch)
    }

    pub fn has_seen(&self, digest: &str) -> bool {
        self.seen.iter().any(|(seen, _)| seen == digest)
    }

    /// Takes checks of training's canary, in their order. Each has bounds of its own already: an alarm begins with the second
    /// in a row that is off, and ends with the second that is not.
    pub fn check(&mut self, checks: &[CanaryCheck]) -> Observed {
        let mut observed = Observed { num_tests: checks.len(), ..Observed::default() };
        for check in checks {
            let key = check.test.to_string();
            let was_off = self.checks.insert(key.clone(), check.is_off).unwrap_or(false);
            let [found, limit] = [check.seen, check.predicted].map(|value| value.unwrap_or(f64::NAN));
            match self.alarms.get_mut(&key) {
                None if was_off && check.is_off => {
                    let (since, what) = (format!("step {}", check.step), "rel_l2 while training".to_owned());
                    self.alarms.insert(key.clone(), Alarm { since, what, found, limit, p: 0.0, quiet: 0 });
                    observed.began.push(key);
                }
                Some(alarm) => {
                    (alarm.found, alarm.limit) = (found, limit);
                    alarm.quiet = if check.is_off { 0 } else { alarm.quiet + 1 };
                    if alarm.quiet >= QUIET_SNAPSHOTS {
                        self.alarms.remove(&key);
                        observed.ended.push(key);
                    }
                }
                None => {}
            }
        }
        observed.began.sort();
        observed.ended.sort();
        observed
    }

    /// Takes all that a snapshot says. An alarm begins where this snapshot and the one before agree, so far that of all
    /// alarms at most a share of `false_alarms` is false: their draws are apart from each other's, so that of something
    /// that is well both say so with the square of what the weaker says.
    pub fn observe(&mut self, snapshot: &str, digest: &str, evidence: &[DriftEvidence], false_alarms: f64) -> Observed {
        let keys: Vec<String> = evidence.iter().map(|evidence| evidence.test.to_string()).collect();
        let both = |(key, now): (&String, &DriftEvidence)| {
            let before = self.last.get(key).copied().unwrap_or(1.0);
            before.max(now.p).powi(2)
        };
        let joint: Vec<f64> = keys.iter().zip(evidence).map(both).collect();
        let found = discoveries(&joint, false_alarms);
        let mut observed = Observed { num_tests: evidence.len(), ..Observed::default() };
        for (at, (key, now)) in keys.iter().zip(evidence).enumerate() {
            match (self.alarms.get_mut(key), found[at]) {
                (None, true) => {
                    let DriftEvidence { what, found, limit, .. } = now.clone();
                    let alarm = Alarm { since: snapshot.to_owned(), what, found, limit, p: joint[at], quiet: 0 };
                    self.alarms.insert(key.clone(), alarm);
                    observed.began.push(key.clone());
                }
                (Some(alarm), _) => {
                    (alarm.found, alarm.limit) = (now.found, now.limit);
                    alarm.quiet = if now.p > QUIET { alarm.quiet + 1 } else { 0 };
                    if alarm.quiet >= QUIET_SNAPSHOTS {
                        self.alarms.remove(key);
                        observed.ended.push(key.clone());
                    }
                }
                (None, false) => {}
            }
        }
        self.last = keys.into_iter().zip(evidence.iter().map(|evidence| evidence.p)).collect();
        self.seen.push((digest.to_owned(), snapshot.to_owned()));
        observed.began.sort();
        observed.ended.sort();
        observed
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        model::{Gemm, SiteId},
        numerics::rng::Rng,
        watch::{Test, range_evidence},
    };

    fn error(site: usize, p: f64) -> DriftEvidence {
        let test = Test::Error { site: SiteId::new(&format!("s{site}")), gemm: Gemm::Fprop };
        DriftEvidence { test, p, found: 1.0, limit: 0.5, what: "mere".to_owned() }
    }

    #[test]
    fn an_alarm_wants_two_snapshots_to_begin_and_two_to_end() {
        let mut watch = WatchState::new("plan");
        let mut next = |p: f64| {
            let observed = watch.observe("a", "d", &[error(0, p), error(1, 0.5)], 0.005);
            (observed.began.len(), observed.ended.len(), watch.alarms.len())
        };
        assert_eq!(next(1e-9), (0, 0, 0), "one says nothing");
        assert_eq!(next(0.9), (0, 0, 0));
        assert_eq!(next(1e-9), (0, 0, 0));
        assert_eq!(next(1e-9), (1, 0, 1));
        assert_eq!(next(1e-9), (0, 0, 1), "told once");
        assert_eq!(next(0.9), (0, 0, 1));
        assert_eq!(next(0.1), (0, 0, 1), "not quiet yet");
        assert_eq!(next(0.9), (0, 0, 1));
        assert_eq!(next(0.9), (0, 1, 0));
        let text = serde_json::to_string(&watch).unwrap();
        assert_eq!(WatchState::from_json(&text, "plan"), Ok(watch));
        assert!(WatchState::from_json(&text, "other").unwrap_err().starts_with("it is of another plan"));
    }

    fn checked(watch: &mut WatchState, site: &str, is_off: bool) -> (usize, usize, usize) {
        let test = Test::Canary { site: SiteId::new(site), gemm: Gemm::Wgrad, rank: 0 };
        let observed = watch.check(&[CanaryCheck { test, step: 7, predicted: Some(0.01), seen: None, is_off }]);
        (observed.began.len(), observed.ended.len(), watch.alarms.len())
    }

    #[test]
    fn a_canary_that_is_off_twice_in_a_row_is_an_alarm_and_twice_well_its_end() {
        let mut watch = WatchState::new("plan");
        let mut next = |site: &str, is_off: bool| checked(&mut watch, site, is_off);
        assert_eq!(next("a", true), (0, 0, 0), "one says nothing");
        assert_eq!(next("b", true), (0, 0, 0), "another GEMM's is another's");
        assert_eq!(next("a", true), (1, 0, 1));
        // An error that is no number has none in the file, which is read again all the same.
        let text = serde_json::to_string(&watch).unwrap();
        watch = WatchState::from_json(&text, "plan").unwrap();
        assert!(watch.alarms["a:wgrad canary"].found.is_nan());
        let mut next = |site: &str, is_off: bool| checked(&mut watch, site, is_off);
        assert_eq!(next("a", false), (0, 0, 1));
        assert_eq!(next("a", true), (0, 0, 1), "not quiet yet");
        assert_eq!(next("a", false), (0, 0, 1));
        assert_eq!(next("a", false), (0, 1, 0));
    }

    /// The worst there can be without anything wrong: 30,000 GEMMs, every one with its error exactly at its bound. Fewer
    /// than one snapshot in a hundred raises an alarm.
    #[test]
    fn fewer_than_one_false_alarm_in_a_hundred_snapshots() {
        const TESTS: usize = 30_000;
        const SNAPSHOTS: usize = 400;
        let mut rng = Rng::new(1, &[b"watch"]);
        let (mut before, mut alarmed) = (vec![1.0_f64; TESTS], 0);
        for _ in 0..SNAPSHOTS {
            let now: Vec<f64> = (0..TESTS).map(|_| rng.uniform()).collect();
            // `WatchState::observe` without its names: 12 million of them are not made here.
            let joint: Vec<f64> = before.iter().zip(&now).map(|(before, now)| before.max(*now).powi(2)).collect();
            alarmed += usize::from(discoveries(&joint, 0.005).contains(&true));
            before = now;
        }
        assert!(alarmed <= SNAPSHOTS / 100, "{alarmed} of {SNAPSHOTS}");
    }

    /// 3,000 sites whose amax moves by a fifth from step to step of fifty, and some percent from snapshot to snapshot: nothing is
    /// told. Then one doubles: found with the second snapshot that has it, and nothing else.
    #[test]
    fn a_doubled_amax_is_found_within_two_snapshots_and_nothing_else() {
        const SITES: usize = 3_000;
        let mut rng = Rng::new(2, &[b"drift"]);
        let mut run = |site: usize, drift: f32| -> Vec<f32> {
            let mut normals = [0.0_f32; 51];
            rng.fill_normal(&mut normals);
            let level = (1.0 + site as f32 % 7.0) * (0.05 * normals[0]).exp2() * drift;
            normals[1..].iter().map(|normal| level * (0.25 * normal).exp2()).collect()
        };
        let reference: Vec<Vec<f32>> = (0..SITES).map(|site| run(site, 1.0)).collect();
        let mut watch = WatchState::new("plan");
        let mut began = Vec::new();
        for snapshot in 0..30 {
            let drift = |site: usize| if site == 1234 && snapshot >= 25 { 2.0 } else { 1.0 };
            let evidence: Vec<DriftEvidence> = (0..SITES)
                .filter_map(|site| {
                    let id = SiteId::new(&format!("s{site}"));
                    range_evidence((&id, "x"), [&reference[site], &run(site, drift(site))], 1.5, 0.3)
                })
                .collect();
            let observed = watch.observe(&snapshot.to_string(), "d", &evidence, 0.005);
            began.extend(observed.began.into_iter().map(|test| (snapshot, test)));
        }
        assert_eq!(began, [(26, "s1234: range of x".to_owned())]);
    }
}
