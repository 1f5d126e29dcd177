//! One run as a line of a table.

use loka_tests::serving::ProcessUsage;

use crate::watcher::Seen;

pub struct Report {
    clients: usize,
    rows_per_second: f64,
    /// Parts of one included.
    num_probes: f64,
    frames: usize,
    /// Of one window.
    megabytes: f64,
    /// Every window has the frames of every other, in the same order.
    alike: bool,
    /// The window that followed and one that joined last have the same session.
    same: bool,
    marks_ms: Vec<f64>,
    missing: usize,
    /// At the start, after each quarter, at the end.
    memory: Vec<ProcessUsage>,
}

impl Report {
    pub const HEAD: &str = "| round | windows | probes | rows/s | frames, MB each | alike | same session | marked commands seen | p50 ms | p99 ms | max ms | server MB at the start and after each quarter | server CPU s |\n|--:|--:|--:|--:|--:|---|---|--:|--:|--:|--:|--:|--:|";

    pub fn of(
        clients: usize,
        num_probes: f64,
        rows_per_second: f64,
        seen: Vec<Seen>,
        same: bool,
        memory: Vec<ProcessUsage>,
    ) -> Self {
        let most = seen.iter().map(|seen| seen.marks_ms.len()).max().unwrap_or_default();
        let missing = seen.iter().map(|seen| most - seen.marks_ms.len()).sum();
        let alike = seen.windows(2).all(|pair| overlap(&pair[0].frames, &pair[1].frames));
        let frames = seen.first().map_or(0, |seen| seen.frames.len());
        let megabytes = seen.first().map_or(0.0, |seen| seen.bytes as f64 / 1e6);
        let mut marks_ms: Vec<f64> = seen.into_iter().flat_map(|seen| seen.marks_ms).collect();
        marks_ms.sort_by(f64::total_cmp);
        Self { clients, rows_per_second, num_probes, frames, megabytes, alike, same, marks_ms, missing, memory }
    }

    pub fn line(&self, round: usize) -> String {
        let at = |share: f64| {
            let last = self.marks_ms.len().saturating_sub(1);
            self.marks_ms.get((share * last as f64).round() as usize).map_or("".to_owned(), |ms| format!("{ms:.1}"))
        };
        let megabytes: Vec<String> = self.memory.iter().map(|memory| format!("{:.0}", memory.megabytes)).collect();
        let cpu = |at: Option<&ProcessUsage>| at.map_or(0.0, |memory| memory.cpu_seconds);
        let yes = |yes: bool| if yes { "yes" } else { "NO" };
        format!(
            "| {} | {} | {:.2} | {:.0} | {}, {:.1} | {} | {} | {} ({} missed) | {} | {} | {} | {} | {:.1} |",
            round + 1,
            self.clients,
            self.num_probes,
            self.rows_per_second,
            self.frames,
            self.megabytes,
            yes(self.alike),
            yes(self.same),
            self.marks_ms.len(),
            self.missing,
            at(0.5),
            at(0.99),
            at(1.0),
            megabytes.join(", "),
            cpu(self.memory.last()) - cpu(self.memory.first()),
        )
    }
}

/// Windows join and leave at their own moments: where one begins in the other's frames, the rest is the same. What
/// tells who is there is sent when somebody comes, and is no part of the session: frames before the last join are
/// left out by looking at the second half.
fn overlap(one: &[u64], other: &[u64]) -> bool {
    let half = one.len() / 2;
    let Some(first) = one.get(half) else { return one.len() == other.len() };
    let Some(start) = other.iter().position(|frame| frame == first) else { return false };
    let (one, other) = (&one[half..], &other[start..]);
    let common = one.len().min(other.len());
    // Both stopped within a moment of each other.
    common + 8 >= one.len().max(other.len()) && one[..common] == other[..common]
}
