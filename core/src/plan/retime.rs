//! Takes results and what kernels take on a device, gives the same errors with those times: one probe plans for every type
//! of GPU that a fleet has.

use crate::{
    dispatch::parallel,
    model::{Latency, LatencySource, ResultRow, Results, Site, SiteIndex},
    probe::LatencyOf,
};

/// What became of times that were there.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Retimed {
    /// Rows that were measured on that very device, at their own shape: no database knows better.
    pub kept: usize,
    /// The device of times of whole sites that are left out, since it is another one.
    pub dropped_sites: Option<String>,
}

/// So many rows have a second latency at once.
const AT_ONCE: usize = 1 << 16;

/// Puts `latency` in the place of every row's, but where it was measured on `device` already. No row keeps another
/// device's time.
pub fn retime(results: &mut Results, device: &str, latency: &LatencyOf) -> Retimed {
    let Results { meta, rows } = results;
    let (sites, index) = (&meta.manifest.sites, SiteIndex::new(&meta.manifest.sites));
    let is_own =
        |row: &ResultRow| row.latency.source == LatencySource::Measured && row.latency.device() == Some(device);
    let anew = |row: &ResultRow| {
        let site = index.at(&row.site).and_then(|at| sites.get(at));
        (!is_own(row)).then(|| at_site(row, site, latency))
    };
    let mut kept = 0;
    for rows in rows.chunks_mut(AT_ONCE) {
        let latencies = parallel::map(rows.len(), |at| anew(&rows[at]));
        for (row, latency) in rows.iter_mut().zip(latencies) {
            match latency {
                Some(latency) => row.latency = latency,
                None => kept += 1,
            }
        }
    }
    let dropped_sites = meta.site_times.take_if(|times| times.device != device).map(|times| times.device);
    Retimed { kept, dropped_sites }
}

fn at_site(row: &ResultRow, site: Option<&Site>, latency: &LatencyOf) -> Latency {
    match (row.kernel.known(), site) {
        (Some(kernel), Some(site)) => latency(kernel, row.gemm, site, &row.mods),
        (None, _) => Latency::unknown(&format!("{} is not a kernel that this program knows", row.kernel)),
        (_, None) => Latency::unknown("no such site is in the trace"),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::{
        dispatch::testing,
        model::{Gemm, KernelId, SiteTimes},
    };

    fn of_device(device: &str, source: LatencySource, us: f64) -> Latency {
        let how = if source == LatencySource::Measured { "measured here" } else { "recorded" };
        let note = format!("{how} on {device}, driver 1, loka");
        Latency { latency_us: Some(us), baseline_us: Some(2.0 * us), source, ..Latency::unknown(&note) }
    }

    #[test]
    fn no_row_keeps_the_time_of_another_device() {
        let row = |kernel: &str| testing::row("a", Gemm::Fprop, kernel, 0.1, Some(1.5), 0.0);
        let mut results = testing::results(&["a"], vec![row("te/current"), row("cublaslt/fp8-rowwise"), row("x/y")]);
        let before: Vec<_> = results.rows.iter().map(|row| row.error.clone()).collect();
        let h200 = |us| of_device("NVIDIA H200", LatencySource::Measured, us);
        for row in &mut results.rows {
            row.latency = match row.kernel.as_str() {
                "te/current" => of_device("NVIDIA H100", LatencySource::Measured, 3.0),
                _ => h200(5.0),
            };
        }
        let times = SiteTimes { device: "NVIDIA H200".to_owned(), ..SiteTimes::default() };
        results.meta.site_times = Some(times.clone());
        let database: LatencyOf = Arc::new(|_, _, _, _| of_device("NVIDIA H100", LatencySource::Recorded, 7.0));
        let said = retime(&mut results, "NVIDIA H100", &database);
        assert_eq!(said, Retimed { kept: 1, dropped_sites: Some("NVIDIA H200".to_owned()) });
        for row in &results.rows {
            let expected = match row.kernel.as_str() {
                "te/current" => (Some(3.0), Some("NVIDIA H100")),
                "x/y" => (None, None),
                _ => (Some(7.0), Some("NVIDIA H100")),
            };
            assert_eq!((row.latency.latency_us, row.latency.device()), expected, "{}", row.kernel);
        }
        let unknown = results.rows.iter().find(|row| row.kernel == KernelId::new("x/y")).unwrap();
        assert_eq!(&*unknown.latency.note, "x/y is not a kernel that this program knows");
        assert_eq!(results.rows.iter().map(|row| row.error.clone()).collect::<Vec<_>>(), before, "errors stay");
        // Times of whole sites of that device do, too.
        results.meta.site_times = Some(times);
        assert_eq!(retime(&mut results, "NVIDIA H200", &database).dropped_sites, None);
        assert!(results.meta.site_times.is_some());
    }

    /// More than one piece of work, and more than one thread.
    #[test]
    fn every_row_is_timed_anew_however_many_there_are() {
        let mut results = testing::results(&["a"], Vec::new());
        let row = results.rows[0].clone();
        results.rows = vec![row; AT_ONCE + 1000];
        let database: LatencyOf = Arc::new(|_, _, _, _| of_device("NVIDIA H100", LatencySource::Recorded, 7.0));
        assert_eq!(retime(&mut results, "NVIDIA H100", &database), Retimed::default());
        assert!(results.rows.iter().all(|row| row.latency.latency_us == Some(7.0)));
    }
}
