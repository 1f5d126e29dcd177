//! The trace reader from outside: every broken file of the corpus refused in its exact words, the real
//! trace read whole and against an independent reader, shards merged, files written and read back.

use std::{
    fs,
    path::{Path, PathBuf},
};

use loka_core::{
    model::SiteId,
    trace::{Covariance, SiteStats, Trace, TraceError, WeightStats, merge, write},
};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

fn corpus() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("corpus")
}

fn sample() -> PathBuf {
    root().join("sample-traces/wukong-clicks.trace.safetensors")
}

/// The first refusal: at opening, or of a site when it is read.
fn refusal(path: &Path) -> Result<Trace, TraceError> {
    let trace = Trace::open(path)?;
    for entry in trace.sites() {
        trace.site_stats(&entry.site.id)?;
    }
    Ok(trace)
}

#[test]
fn broken_traces_are_refused_in_these_words() {
    let corpus = corpus();
    let listing = fs::read_to_string(corpus.join("traces.tsv")).unwrap();
    let prefix = format!("{}/", corpus.display());
    let mut failures = Vec::new();
    for line in listing.lines() {
        let (file, expected) = line.split_once('\t').unwrap();
        let found = match refusal(&corpus.join(file)) {
            Ok(_) => "accepted".to_owned(),
            Err(error) => error.to_string().replace(&prefix, ""),
        };
        if found != expected {
            failures.push(format!("{file}\n  expected {expected}\n  found    {found}"));
        }
    }
    assert!(failures.is_empty(), "{}", failures.join("\n"));
    assert!(listing.lines().count() > 60, "the corpus is there");
    assert!(refusal(&corpus.join("good.trace.safetensors")).is_ok(), "what the others are broken from is whole");
}

#[test]
fn every_broken_file_is_listed() {
    let listing = fs::read_to_string(corpus().join("traces.tsv")).unwrap();
    let listed: Vec<&str> = listing.lines().filter_map(|line| line.split('\t').next()).collect();
    for entry in fs::read_dir(corpus()).unwrap() {
        let entry = entry.unwrap();
        let name = entry.file_name().into_string().unwrap();
        if name.ends_with(".trace.safetensors") && name != "good.trace.safetensors" {
            assert!(listed.contains(&name.as_str()), "{name} is not in traces.tsv");
        }
    }
}

#[test]
fn one_bad_site_does_not_hide_the_other() {
    let listing = fs::read_to_string(corpus().join("traces.tsv")).unwrap();
    let of_a_site = |line: &&str| line.contains(": net.top.0") && !line.contains("listed twice");
    let mut checked = 0;
    for line in listing.lines().filter(of_a_site) {
        let file = line.split('\t').next().unwrap();
        let Ok(trace) = Trace::open(&corpus().join(file)) else { continue };
        assert_eq!(trace.check_all().len(), 1, "{file}");
        assert!(trace.site_stats(&SiteId::new("net.top.2")).is_ok(), "{file}");
        checked += 1;
    }
    assert!(checked > 40, "{checked}");
}

#[test]
fn the_sample_reads_whole() {
    let trace = Trace::open(&sample()).unwrap();
    assert_eq!(trace.name(), "wukong-clicks.trace.safetensors");
    assert_eq!(trace.sites().len(), 14);
    assert_eq!(trace.manifest().run.step, 6000);
    assert_eq!(trace.check_all(), vec![]);
    let bytes = fs::read(sample()).unwrap();
    let from_bytes = Trace::from_bytes("sample", bytes).unwrap();
    assert_eq!(from_bytes.digest(), trace.digest());
    assert_eq!(trace.digest(), "sha256:713a3c09894feae6e386394cde1d14aa094dbb4ac5fd23d1eaf9a74566a8da9b");
    for entry in trace.sites() {
        assert_eq!(entry.problem, None);
        assert_eq!(from_bytes.site(&entry.site.id), Some(entry));
    }
}

/// They travel with every clone: all within 40 MB, and each sound to the last tensor.
#[test]
fn every_sample_reads_whole_and_is_small() {
    let samples: Vec<PathBuf> = fs::read_dir(root().join("sample-traces"))
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.extension().is_some_and(|extension| extension == "safetensors"))
        .collect();
    assert!(samples.len() >= 5, "{samples:?}");
    for path in &samples {
        let trace = refusal(path).unwrap();
        assert!(trace.manifest().loss.value > 0.0, "{}", path.display());
        assert!(trace.sites().iter().all(|entry| entry.problem.is_none()), "{}", path.display());
    }
    assert!(samples.iter().map(|path| fs::metadata(path).unwrap().len()).sum::<u64>() < 40_000_000);
}

#[test]
fn the_sample_agrees_with_the_safetensors_crate() {
    let bytes = fs::read(sample()).unwrap();
    let reference = safetensors::SafeTensors::deserialize(&bytes).unwrap();
    let trace = Trace::open(&sample()).unwrap();
    for entry in trace.sites() {
        let id = &entry.site.id;
        let stats = trace.site_stats(id).unwrap();
        let f32s = |tensor: &str| -> Vec<f32> {
            let view = reference.tensor(&format!("{id}/{tensor}")).unwrap();
            assert_eq!(view.dtype(), safetensors::Dtype::F32);
            view.data().chunks_exact(4).map(|b| f32::from_le_bytes([b[0], b[1], b[2], b[3]])).collect()
        };
        assert_eq!(stats.input.mean, f32s("input.mean").into_iter().map(f64::from).collect::<Vec<_>>());
        assert_eq!(stats.input.quantiles, Some(f32s("input.quantiles")));
        assert_eq!(stats.bias, Some(f32s("bias")));
        let weight = reference.tensor(&format!("{id}/weight")).unwrap();
        // BF16 is the upper half of F32.
        let widen = |b: &[u8]| f32::from_bits(u32::from(u16::from_le_bytes([b[0], b[1]])) << 16);
        let expected: Vec<f32> = weight.data().chunks_exact(2).map(widen).collect();
        assert_eq!(stats.weight, WeightStats::Snapshot(expected));
    }
}

#[test]
fn the_sample_written_reads_back_the_same() {
    let trace = Trace::open(&sample()).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("copy.trace.safetensors");
    let data = merge(std::slice::from_ref(&trace)).unwrap();
    write(&path, &data).unwrap();
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1, "no temporary is left");
    safetensors::SafeTensors::deserialize(&fs::read(&path).unwrap()).unwrap();

    let copy = Trace::open(&path).unwrap();
    assert_eq!(copy.manifest(), trace.manifest());
    for entry in trace.sites() {
        assert_eq!(copy.site(&entry.site.id), Some(entry));
        assert_eq!(copy.site_stats(&entry.site.id).unwrap(), trace.site_stats(&entry.site.id).unwrap());
    }
    // Replacing a mapped file leaves the map of the old one whole.
    write(&path, &data).unwrap();
    assert_eq!(copy.check_all(), vec![]);
    // A folder of one file is that file.
    let as_folder = Trace::open(folder.path()).unwrap();
    assert_eq!((as_folder.name(), as_folder.digest()), (copy.name(), copy.digest()));
}

#[test]
fn writing_nowhere_is_an_error_and_leaves_nothing() {
    let data = merge(&[Trace::open(&corpus().join("good.trace.safetensors")).unwrap()]).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("absent/out.trace.safetensors");
    let error = write(&path, &data).unwrap_err();
    assert_eq!(error.to_string(), format!("no such file or folder: {}", path.display()));
    let taken = folder.path().join("taken");
    fs::create_dir(&taken).unwrap();
    assert!(write(&taken, &data).is_err(), "a folder is not replaced");
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
}

/// The covariance with the factor multiplied out.
fn dense(cov: &Covariance, size: usize) -> Vec<f64> {
    match cov {
        Covariance::Full(values) => values.clone(),
        Covariance::Factor { factor, rank, diag } => {
            let rows: Vec<&[f64]> = factor.chunks_exact(*rank).collect();
            let dot = |i: usize, j: usize| rows[i].iter().zip(rows[j]).map(|(a, b)| a * b).sum::<f64>();
            (0..size * size)
                .map(|at| dot(at / size, at % size) + if at % (size + 1) == 0 { diag[at / size] } else { 0.0 })
                .collect()
        }
    }
}

fn moved(mut stats: SiteStats, by: f64, rows: u64) -> SiteStats {
    stats.input.mean.iter_mut().for_each(|mean| *mean += by);
    stats.input.count = rows;
    stats
}

#[test]
fn shards_of_the_sample_merge_by_chans_rule() {
    let trace = Trace::open(&sample()).unwrap();
    let id = SiteId::new("net.layers.0.fmb.mlp.0");
    let (counts, shifts) = ([1000_u64, 3000, 500], [0.0, 0.1, -0.05]);
    let folder = tempfile::tempdir().unwrap();
    for rank in 0..3 {
        let mut data = merge(std::slice::from_ref(&trace)).unwrap();
        data.manifest.run.rank = rank as u64;
        data.sites = data.sites.into_iter().map(|stats| moved(stats, shifts[rank], counts[rank])).collect();
        write(&folder.path().join(format!("rank-{rank}.trace.safetensors")), &data).unwrap();
    }
    let merged = Trace::open(folder.path()).unwrap();
    assert_eq!(merged.check_all(), vec![]);
    let stats = merged.site_stats(&id).unwrap();
    let one = trace.site_stats(&id).unwrap();
    assert_eq!(stats.input.count, 4500);
    assert_eq!(stats.weight, one.weight);

    // All shards have the same covariance: what their means add has rank one and is the same everywhere.
    let (n, k) = (4500.0, one.site.k);
    let middle: f64 = (0..3).map(|i| counts[i] as f64 * shifts[i]).sum::<f64>() / n;
    let between: f64 = (0..3).map(|i| counts[i] as f64 * (shifts[i] - middle).powi(2)).sum::<f64>() / (n - 1.0);
    let expected: Vec<f64> = dense(&one.input.cov, k).iter().map(|cov| cov * (n - 3.0) / (n - 1.0) + between).collect();
    let found = dense(&stats.input.cov, k);
    for i in 0..k {
        let (found, expected) = (found[i * (k + 1)], expected[i * (k + 1)]);
        assert!((found / expected - 1.0).abs() < 1e-5, "variance {i}: {found}, expected {expected}");
    }
    let norm = |values: &mut dyn Iterator<Item = f64>| values.map(|x| x * x).sum::<f64>().sqrt();
    let off = norm(&mut found.iter().zip(&expected).map(|(a, b)| a - b)) / norm(&mut expected.iter().copied());
    // numpy's eigh, cut to 48 of these 49 columns, loses exactly as much: it is the least possible.
    assert!((off - 0.061_027_977).abs() < 1e-8, "49 columns cut to 48 lose {off}");

    // The folder and the file that `loka merge` writes of it are the same trace.
    let shards: Vec<Trace> = (0..3)
        .map(|rank| Trace::open(&folder.path().join(format!("rank-{rank}.trace.safetensors"))).unwrap())
        .collect();
    let out = folder.path().join("merged.safetensors");
    write(&out, &merge(&shards).unwrap()).unwrap();
    let file = Trace::open(&out).unwrap();
    assert_eq!(file.manifest(), merged.manifest());
    assert_eq!(file.sites(), merged.sites());
}

/// As `loka.Recorder` writes a run of DDP: one shard has the weights, whichever rank it is.
#[test]
fn one_shard_of_a_run_has_its_weights() {
    let trace = Trace::open(&sample()).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let path = |rank: u64| folder.path().join(format!("w-rank{rank}.trace.safetensors"));
    let mut sizes = Vec::new();
    for rank in 0..3 {
        let mut data = merge(std::slice::from_ref(&trace)).unwrap();
        data.manifest.run.rank = rank;
        if rank != 1 {
            let there = serde_json::json!({"rank": 1, "file": "w-rank1.trace.safetensors"});
            data.manifest.run.extra.insert("weights_in".to_owned(), there);
        }
        write(&path(rank), &data).unwrap();
        sizes.push(fs::metadata(path(rank)).unwrap().len());
    }
    let bytes = |site: &loka_core::model::Site| 2 * site.k as u64 * site.n as u64;
    let weights: u64 = trace.manifest().sites.iter().map(bytes).sum();
    assert!(sizes[0] + weights < sizes[1] && sizes[0] == sizes[2], "{sizes:?}, {weights} of weights");
    let whole = Trace::open(folder.path()).unwrap();
    assert_eq!(whole.check_all(), vec![]);
    for entry in trace.sites() {
        let (one, all) = (trace.site_stats(&entry.site.id).unwrap(), whole.site_stats(&entry.site.id).unwrap());
        assert_eq!((&all.weight, &all.weight_hist, &all.bias), (&one.weight, &one.weight_hist, &one.bias));
        assert_eq!(all.input.count, 3 * one.input.count);
    }
    // Each by itself: whole, or a line that says where the weights are. The same of what is in memory.
    assert!(Trace::open(&path(1)).is_ok() && Trace::open_shard(&path(0)).is_ok());
    let line = |file: &str| {
        format!(
            "it has no weights: they are in w-rank1.trace.safetensors, rank 1's; take both, or their folder: {file}"
        )
    };
    let shown = path(0).display().to_string();
    assert_eq!(Trace::open(&path(0)).unwrap_err().to_string(), line(&shown));
    assert_eq!(Trace::from_bytes("b", fs::read(path(0)).unwrap()).unwrap_err().to_string(), line("b"));
    fs::remove_file(path(1)).unwrap();
    assert_eq!(Trace::open(folder.path()).unwrap_err().to_string(), line(&shown));
}
