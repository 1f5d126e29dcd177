//! Traces in memory: written and read back, broken in one place, merged.

use std::sync::Arc;

use serde_json::{Value, json};

use super::*;
use crate::model::{Loss, Manifest, Matrix, Site, SiteId};

fn site(id: &str, k: usize, n: usize, feeds: &[&str]) -> Site {
    let value = json!({"id": id, "class": "torch.nn.Linear", "m": 8, "k": k, "n": n, "dtype": "f32", "bias": true,
        "tail": [{"op": "layer_norm", "eps": 1e-5, "affine": true, "kept": 1}], "feeds": feeds, "colour": "red"});
    serde_json::from_value(value).unwrap()
}

fn distribution(features: usize, rank: Option<usize>) -> Distribution {
    let mean = (0..features).map(|i| i as f64 - 0.5).collect();
    let full = |at: usize| if at.is_multiple_of(features + 1) { 2.0 } else { 0.25 };
    let cov = match rank {
        None => Covariance::Full((0..features * features).map(full).collect()),
        Some(rank) => {
            let factor = (0..features * rank).map(|at| (at % 3) as f64).collect();
            Covariance::Factor { factor, rank, diag: vec![0.5; features] }
        }
    };
    let quantiles = (0..features).flat_map(|i| [i as f32 - 1.0, i as f32, i as f32 + 1.0]).collect();
    Distribution { count: 100, mean, cov, quantiles: Some(quantiles), hist: Some(vec![7; 82]), amax: Some(3.5) }
}

fn moments() -> GradientMoments {
    let squares = |from: usize| (0..160).map(|at| (from + at) as f64).collect();
    let magnitudes = Magnitudes { input: squares(1), grad_output: squares(3) };
    GradientMoments { count: 20, xg2: 0.5, mean2: -1e-3, by_example: true, magnitudes: Some(Arc::new(magnitudes)) }
}

fn stats(site: &Site) -> SiteStats {
    let (n, k) = (site.n, site.k);
    let series = |name: &str| Series { name: name.into(), steps: vec![0, 10], values: vec![1.0, f32::NAN] };
    SiteStats {
        site: site.clone(),
        input: distribution(k, Some(2)),
        grad_output: Some(distribution(n, None)),
        cross_cov: Some((0..n * k).map(|i| i as f32 * 0.1).collect()),
        noise: Some(moments()),
        weight: WeightStats::Snapshot((0..n * k).map(|i| i as f32).collect()),
        weight_hist: Some(vec![1; 82]),
        weight_amax: Some(1e-60),
        bias: Some(vec![0.1; n]),
        gamma: Some(vec![1.0; n]),
        beta: None,
        heldout_input: Some(Matrix { rows: 2, cols: k, data: vec![0.3; 2 * k] }),
        heldout_grad_output: Some(Matrix { rows: 2, cols: n, data: vec![0.5; 2 * n] }),
        series: vec![series("bias_norm"), series("input_amax")],
        ranks: None,
    }
}

fn manifest(sites: Vec<Site>) -> Manifest {
    let value = json!({"version": 1, "model": {"name": "w", "family": "wukong"}, "run": {"id": "r", "rank": 0, "step": 5},
        "loss": {"name": "log_loss", "value": 0.5}, "quantile_probs": [0.1, 0.5, 0.9], "sites": [], "later": {"a": [1, null]}});
    Manifest { sites, ..serde_json::from_value(value).unwrap() }
}

fn data() -> TraceData {
    let mut sites = vec![site("net.0", 4, 3, &["net.1"]), site("net.1", 3, 2, &[])];
    sites[1].tail.clear();
    let mut all: Vec<SiteStats> = sites.iter().map(stats).collect();
    all[1].weight = WeightStats::MatrixNormal {
        mean: vec![0.5; 6],
        row_cov: Covariance::Factor { factor: Vec::new(), rank: 0, diag: vec![0.5, 2.0] },
        col_cov: distribution(3, Some(1)).cov,
    };
    all[1].grad_output = None;
    all[1].cross_cov = None;
    all[1].noise = None;
    TraceData { manifest: manifest(sites), sites: all }
}

fn shard(rank: u64, change: impl Fn(&mut TraceData)) -> Trace {
    let mut data = data();
    data.manifest.run.rank = rank;
    change(&mut data);
    Trace::from_data(&format!("rank-{rank}"), &data).unwrap()
}

/// NaN is not equal to itself: compared as text, where it is.
fn same(a: &impl std::fmt::Debug, b: &impl std::fmt::Debug) -> bool {
    format!("{a:?}") == format!("{b:?}")
}

/// F32 is what is stored.
fn narrowed(mut data: TraceData) -> TraceData {
    let narrow = |values: &mut Vec<f64>| values.iter_mut().for_each(|value| *value = f64::from(*value as f32));
    for stats in &mut data.sites {
        for part in std::iter::once(&mut stats.input).chain(stats.grad_output.as_mut()) {
            narrow(&mut part.mean);
            match &mut part.cov {
                Covariance::Full(values) => narrow(values),
                Covariance::Factor { factor, diag, .. } => {
                    narrow(factor);
                    narrow(diag);
                }
            }
        }
    }
    data
}

#[test]
fn what_was_written_reads_back() {
    let data = data();
    let trace = Trace::from_data("t", &data).unwrap();
    assert_eq!(trace.check_all(), vec![]);
    assert_eq!(trace.manifest(), &data.manifest);
    let back = merge(std::slice::from_ref(&trace)).unwrap();
    assert!(same(&back, &data), "{back:#?}");
    assert_eq!(Trace::from_data("u", &back).unwrap().digest(), trace.digest());
}

#[test]
fn coverage_is_known_without_data() {
    let trace = Trace::from_data("t", &data()).unwrap();
    let [first, second] = trace.sites() else { panic!() };
    assert_eq!(first.problem, None);
    let expected = Coverage {
        covariance: Some(CovarianceKind::Factor { rank: 2 }),
        grad_covariance: Some(CovarianceKind::Full),
        weight: Some(WeightKind::Snapshot),
        quantiles: true,
        grad_quantiles: true,
        grad_output: true,
        cross_cov: true,
        heldout_rows: 2,
        heldout_grad_rows: 2,
        series: vec!["bias_norm".into(), "input_amax".into()],
    };
    assert_eq!(first.coverage, expected);
    assert_eq!(second.coverage.weight, Some(WeightKind::MatrixNormal));
    assert!(!second.coverage.grad_output && !second.coverage.cross_cov);
    assert_eq!(trace.site(&SiteId::new("net.1")), Some(second));
    assert!(trace.site_stats(&SiteId::new("x")).is_err());
}

/// The problems of a trace in which `change` broke the first site.
fn problem(change: impl Fn(&mut TraceData)) -> String {
    let mut data = data();
    change(&mut data);
    let trace = Trace::from_data("t", &data).unwrap();
    assert!(trace.site_stats(&SiteId::new("net.1")).is_ok(), "the other site works");
    match trace.check_all().as_slice() {
        [(id, problem)] if id.as_str() == "net.0" => problem.clone(),
        other => panic!("{other:?}"),
    }
}

fn full_grad(data: &mut TraceData) -> &mut Vec<f64> {
    match &mut data.sites[0].grad_output.as_mut().unwrap().cov {
        Covariance::Full(values) => values,
        Covariance::Factor { .. } => panic!(),
    }
}

#[test]
fn bad_values_are_named() {
    assert_eq!(problem(|data| data.sites[0].input.count = 1), "input.count is 1, expected at least 2");
    assert_eq!(problem(|data| data.sites[0].input.mean[2] = f64::NAN), "input.mean is NaN at [2], not finite");
    assert_eq!(problem(|data| full_grad(data)[4] = -1.0), "grad_output.cov is -1 at [1, 1], negative");
    let crooked = "grad_output.cov is not symmetric: 0.5 at [0, 1], 0.25 at [1, 0]";
    assert_eq!(problem(|data| full_grad(data)[1] = 0.5), crooked);
    let descends = "input.quantiles descends at [0, 1]";
    assert_eq!(problem(|data| data.sites[0].input.quantiles.as_mut().unwrap()[0] = 9.0), descends);
    assert_eq!(
        problem(|data| data.sites[0].bias.as_mut().unwrap()[1] = f32::INFINITY),
        "bias is inf at [1], not finite"
    );
    assert_eq!(problem(|data| data.sites[0].weight_amax = Some(-1.0)), "weight.amax is -1 at [0], negative");
}

#[test]
fn rounding_is_not_asymmetry() {
    let mut data = data();
    full_grad(&mut data)[1] = 0.2501;
    let trace = Trace::from_data("t", &data).unwrap();
    let stats = trace.site_stats(&SiteId::new("net.0")).unwrap();
    let Covariance::Full(values) = stats.grad_output.unwrap().cov else { panic!() };
    assert_eq!(values[1], values[3]);
    assert!((values[1] - 0.25005).abs() < 1e-7);
}

#[test]
fn bad_sites_are_named() {
    assert_eq!(problem(|data| data.manifest.sites[0].k = 0), "k = 0");
    assert_eq!(
        problem(|data| data.manifest.sites[0].m = usize::MAX),
        format!("m = {}, k = 4, n = 3 are too large", usize::MAX)
    );
    assert_eq!(problem(|data| data.manifest.sites[0].k = 5), "input.mean has shape [4], expected [5]");
    assert_eq!(problem(|data| data.manifest.sites[0].feeds[0] = SiteId::new("x")), "feeds the unknown site x");
    assert_eq!(
        problem(|data| data.manifest.sites[0].feeds[0] = SiteId::new("net.0")),
        "feeds net.0, which is not after it"
    );
    let other_size = |data: &mut TraceData| {
        data.manifest.sites.push(Site { k: 9, ..site("net.2", 9, 9, &[]) });
        data.sites.push(stats(&data.manifest.sites[2]));
        data.manifest.sites[0].feeds[0] = SiteId::new("net.2");
    };
    assert_eq!(problem(other_size), "feeds net.2, whose k is 9, with n = 3");
    assert_eq!(problem(|data| drop(data.sites.remove(0))), "input.count is missing");
    assert_eq!(problem(|data| data.sites[0].gamma = None), "tail.gamma is missing");
    assert_eq!(problem(|data| data.sites[0].grad_output = None), "grad_output.mean is missing");
}

#[test]
fn shards_merge_as_a_folder_and_into_a_file() {
    let second = |data: &mut TraceData| {
        data.manifest.loss = Loss { value: 0.7, weight: Some(0.25), ..data.manifest.loss.clone() }
    };
    let shards = [shard(1, second), shard(0, |_| ())];
    let folder = Trace::from_shards("run", "run", shards.to_vec()).unwrap();
    assert_eq!(folder.check_all(), vec![]);
    let merged = merge(&shards).unwrap();
    assert_eq!(merged.manifest, *folder.manifest());
    assert_eq!(merged.manifest.run.rank, 0);
    assert!((merged.manifest.loss.value - 0.6).abs() < 1e-15);
    assert_eq!(merged.manifest.loss.weight, Some(0.25), "of the one that knows it");
    assert_eq!(merged.manifest.extra["merged_ranks"], json!([0, 1]));
    assert_eq!(merged.manifest.extra["quantiles_approximate"], Value::from(true));

    let stats = &merged.sites[0];
    assert_eq!(stats.input.count, 200);
    assert_eq!(stats.input.hist, Some(vec![14; 82]));
    assert_eq!(stats.heldout_input.as_ref().unwrap().rows, 4);
    assert_eq!(stats.heldout_grad_output.as_ref().unwrap().rows, 4);
    assert_eq!(stats.series.len(), 2);

    let again = Trace::from_data("m", &merged).unwrap();
    for (a, b) in again.sites().iter().zip(folder.sites()) {
        assert_eq!(a, b, "the same sites, problems and coverage");
    }
    let back = merge(std::slice::from_ref(&again)).unwrap();
    assert!(same(&back, &narrowed(merged)));
}

#[test]
fn a_shard_more_can_be_merged_later() {
    let shards = [shard(0, |_| ()), shard(1, |_| ()), shard(2, |data| data.manifest.loss.value = 0.8)];
    let at_once = merge(&shards).unwrap();
    let two = Trace::from_data("two", &merge(&shards[..2]).unwrap()).unwrap();
    let in_steps = merge(&[shards[2].clone(), two.clone()]).unwrap();
    assert_eq!(in_steps.manifest, at_once.manifest);
    assert_eq!(in_steps.sites[0].input.count, 300);
    let twice = merge(&[two, shards[1].clone()]).unwrap_err();
    assert_eq!(twice.to_string(), "rank 1 is in two too: rank-1");
}

/// A maximum over ranks hides whose it is.
#[test]
fn each_ranks_largest_values_are_kept_however_they_are_merged() {
    let rank = |number: u64, amax: f64| shard(number, move |data| data.sites[0].input.amax = Some(amax));
    let shards = [rank(0, 1.0), rank(1, 2.0), rank(2, 50.0), rank(3, 1.5)];
    let at_once = merge(&shards).unwrap();
    let kept = at_once.sites[0].ranks.clone().unwrap();
    assert_eq!((kept.ranks, kept.input.amax), (vec![0, 1, 2, 3], vec![1.0, 2.0, 50.0, 1.5]));
    let [front, back] = [0..2, 2..4].map(|of| Trace::from_data("some", &merge(&shards[of]).unwrap()).unwrap());
    assert_eq!(merge(&[back, front]).unwrap().sites[0].ranks, at_once.sites[0].ranks);
    let written = Trace::from_data("m", &at_once).unwrap();
    assert_eq!(written.site_ranks(&SiteId::new("net.0")).unwrap(), at_once.sites[0].ranks);
    for trace in [written, Trace::from_shards("run", "run", shards.to_vec()).unwrap()] {
        let found = RanksApart::of(&trace);
        assert_eq!((found.num_ranks, found.apart.len()), (4, 1));
        let apart = &found.apart[0];
        assert_eq!((apart.rank, apart.num_sites, apart.site.as_str(), apart.of_gradient), (2, 1, "net.0", false));
        assert!((apart.most.ratio - 50.0 / 1.75).abs() < 1e-6);
    }
    assert_eq!(RanksApart::of(&shards[0]), RanksApart::default(), "of one rank nothing is told");
    // Lists that cannot be are that site's problem.
    let problem = |change: fn(&mut RankExtremes)| {
        let mut data = at_once.clone();
        change(data.sites[0].ranks.as_mut().unwrap());
        let trace = Trace::from_data("m", &data).unwrap();
        trace.site_stats(&SiteId::new("net.0")).unwrap_err().cause()
    };
    assert!(problem(|ranks| ranks.ranks[1] = 0).starts_with("ranks.rank"), "{}", problem(|ranks| ranks.ranks[1] = 0));
    assert!(problem(|ranks| ranks.input.amax[2] = -1.0).starts_with("ranks.input_amax"));
}

#[test]
fn shards_of_different_runs_are_refused() {
    let refusal =
        |change: &dyn Fn(&mut TraceData)| merge(&[shard(0, |_| ()), shard(1, change)]).unwrap_err().to_string();
    assert_eq!(refusal(&|data| data.manifest.run.id = "s".into()), "run id is s, but r in rank-0: rank-1");
    assert_eq!(refusal(&|data| data.manifest.run.step = 6), "step is 6, but 5 in rank-0: rank-1");
    assert_eq!(refusal(&|data| data.manifest.sites[0].m = 9), "m is 9, but 8 in rank-0: net.0: rank-1");
    let fewer = |data: &mut TraceData| drop((data.sites.pop(), data.manifest.sites.pop()));
    assert_eq!(refusal(&fewer), "the number of sites is 1, but 2 in rank-0: rank-1");
    assert_eq!(merge(&[]).unwrap_err().to_string(), "nothing to merge: no shards");
}

#[test]
fn ranks_may_differ_in_the_rows_of_a_routed_expert() {
    let expert = |m: usize| {
        move |data: &mut TraceData| {
            let sites = data.manifest.sites.iter_mut().chain(data.sites.iter_mut().map(|stats| &mut stats.site));
            for site in sites.filter(|site| site.id.as_str() == "net.0") {
                site.m = m;
                site.extra.insert("rows".to_owned(), json!({"min": 0, "mean": 4.5, "max": m, "steps": 10}));
            }
        }
    };
    let merged = merge(&[shard(0, expert(7)), shard(1, expert(9))]).unwrap();
    assert_eq!(merged.manifest.sites[0].m, 9);
}

#[test]
fn a_site_that_cannot_be_merged_does_not_hide_the_others() {
    let full = shard(1, |data| data.sites[0].input.cov = distribution(4, None).cov);
    let merged = merge(&[shard(0, |_| ()), full]).unwrap();
    assert_eq!(merged.sites.len(), 1);
    let reason = "input.cov is full, but factored in rank-0 (rank-1)";
    assert_eq!(merged.manifest.sites[0].extra["unusable"], reason);
    let back = Trace::from_data("m", &merged).unwrap();
    assert_eq!(back.sites()[0].problem.as_deref(), Some(reason));
    assert_eq!(back.sites()[1].problem, None);

    let bad = shard(1, |data| data.sites[0].input.count = 0);
    let folder = Trace::from_shards("run", "run", vec![shard(0, |_| ()), bad]).unwrap();
    assert_eq!(folder.sites()[0].problem, None, "data is not read at opening");
    let expected = (SiteId::new("net.0"), "input.count is 0, expected at least 2 (rank-1)".to_owned());
    assert_eq!(folder.check_all(), vec![expected]);
}

#[test]
fn what_one_shard_lacks_is_left_out_and_said() {
    let without = shard(1, |data| {
        data.sites[0].cross_cov = None;
        data.sites[0].heldout_grad_output = None;
    });
    let merged = merge(&[shard(0, |_| ()), without]).unwrap();
    assert_eq!(merged.manifest.sites[0].extra["left_out"], json!(["cross_cov", "sample.grad_output"]));
    assert_eq!(merged.sites[0].cross_cov, None);
    assert_eq!(merged.sites[0].heldout_grad_output, None);
    assert_eq!(merged.sites[0].heldout_input.as_ref().unwrap().rows, 4);
    assert!(merged.sites[0].grad_output.is_some());
}

/// As the recorder writes them: one shard of a run has the weights.
#[test]
fn weights_come_from_the_shard_that_has_them() {
    let whole = |rank: u64| shard(rank, |data| data.sites[0].input.count = 100 + rank);
    let without = |rank: u64| {
        let mut data = data();
        data.manifest.run.rank = rank;
        data.manifest.run.extra.insert("weights_in".to_owned(), json!({"rank": 3, "file": "w-rank3"}));
        data.sites[0].input.count = 100 + rank;
        let name = format!("rank-{rank}");
        Trace::from_container(&name, &name, Box::new(data.to_bytes().unwrap())).unwrap()
    };
    let joined = merge(&[without(1), whole(3), without(2)]).unwrap();
    let [first, second] = joined.sites.as_slice() else { panic!() };
    let alone = whole(3).site_stats(&SiteId::new("net.0")).unwrap();
    assert_eq!((first.input.count, &first.weight, &first.weight_hist), (306, &alone.weight, &alone.weight_hist));
    assert!(matches!(second.weight, WeightStats::MatrixNormal { .. }));
    assert_eq!(joined.manifest.run.extra.get("weights_in"), None);
    let folder = Trace::from_shards("run", "run", vec![without(1), whole(3), without(2)]).unwrap();
    assert_eq!(folder.sites()[0].coverage.weight, Some(WeightKind::Snapshot));
    let again = Trace::from_data("m", &joined).unwrap();
    assert_eq!((folder.check_all(), again.check_all()), (vec![], vec![]));
    // In steps, too, and not without.
    let two = Trace::from_data("two", &merge(&[whole(3), without(1)]).unwrap()).unwrap();
    assert_eq!(merge(&[without(2), two]).unwrap().manifest, joined.manifest);
    let line = "it has no weights: they are in w-rank3, rank 3's; take both, or their folder: rank-1";
    assert_eq!(merge(&[without(2), without(1)]).unwrap_err().to_string(), line);
    let error = merge(&[without(1)]).unwrap_err();
    assert!(error.lacks_weights() && error.to_string() == line, "{error}");
    // By itself it is listed, not read.
    assert_eq!(without(1).sites()[0].problem, None);
    assert!(without(1).site_stats(&SiteId::new("net.0")).is_err());
}

/// Any byte of the header wrong, the file cut anywhere: an answer or an error, never a panic.
#[test]
fn damage_never_panics() {
    let good = data().to_bytes().unwrap();
    let header = 8 + u64::from_le_bytes(*good.first_chunk().unwrap()) as usize;
    let mut opened = 0;
    for at in 0..header {
        for value in [b'0', b'9', b'"', 0xff] {
            let mut bad = good.clone();
            bad[at] = value;
            if let Ok(trace) = Trace::from_bytes("t", bad) {
                trace.check_all();
                opened += 1;
            }
        }
    }
    assert!(opened > 100, "some damage is to one site only, or to none: {opened}");
    for length in (0..good.len()).step_by(7) {
        assert!(Trace::from_bytes("t", good[..length].to_vec()).is_err(), "{length} bytes of {}", good.len());
    }
}
