//! Latencies looked up, modelled, measured, and what they are compared with.

use super::*;

fn at(name: &str, gemm: Gemm, (m, k, n): (usize, usize, usize)) -> Latency {
    older().latency(&KernelId::new(name), gemm, GemmShape { m, k, n })
}

/// From the databases that were timed from PyTorch.
fn older() -> Latencies {
    let later = |database: &KernelDb| ["native", "libraries"].iter().any(|name| database.name.contains(name));
    Latencies::new(&KernelDb::builtin().into_iter().filter(|database| !later(database)).collect::<Vec<_>>())
}

#[test]
fn a_recorded_shape_is_given_as_it_was_timed() {
    let latency = at("cublaslt/fp8-rowwise+fast", Gemm::Fprop, (2048, 256, 768));
    assert_eq!(latency.source, LatencySource::Recorded);
    assert_eq!(latency.latency_us, Some(9.684000164270401));
    assert_eq!(latency.baseline_us, Some(4.142666546006997));
    assert_eq!(latency.latency_lo_us, None, "p10 was not recorded");
    assert!(latency.note.starts_with("recorded on NVIDIA H200, driver 580, PyTorch 2.11"), "{}", latency.note);
}

#[test]
fn baselines_come_from_the_same_library() {
    let eager = at("pytorch/fp8-rowwise+fast", Gemm::Fprop, (2048, 512, 512));
    assert_eq!(eager.baseline_us, Some(8.576000109314919));
    let own = at("pytorch/bf16", Gemm::Fprop, (2048, 512, 512));
    assert_eq!(own.speedup(), Some(1.0));
}

#[test]
fn an_unrecorded_shape_is_modelled_and_says_so() {
    let latency = at("pytorch/fp8-rowwise+fast", Gemm::Fprop, (8192, 512, 512));
    assert_eq!(latency.source, LatencySource::Modelled);
    assert!(latency.latency_lo_us < latency.latency_us && latency.latency_us < latency.latency_hi_us);
    assert!(latency.note.contains("27 shapes") && latency.note.contains("nine in ten"), "{}", latency.note);
    assert!(!latency.note.contains("fprop records"));
}

#[test]
fn backward_directions_are_modelled_from_forward_records() {
    for gemm in [Gemm::Dgrad, Gemm::Wgrad] {
        let latency = at("cublaslt/fp8-rowwise+fast", gemm, (2048, 512, 512));
        assert_eq!(latency.source, LatencySource::Modelled);
        assert!(latency.note.contains(&format!("{gemm} is modelled from fprop records")), "{}", latency.note);
    }
    let (fprop, wgrad) = (Gemm::Fprop, Gemm::Wgrad);
    let us = |gemm| at("cublaslt/fp8-rowwise+fast", gemm, (8192, 520 * 16, 512)).latency_us.unwrap();
    assert!(us(wgrad) > us(fprop), "transposed copies cost");
}

#[test]
fn a_bare_gemm_gives_no_latency() {
    for shape in [(2048, 512, 512), (8192, 512, 512)] {
        let latency = at("cublaslt/fp8-tensorwise+fast", Gemm::Fprop, shape);
        assert_eq!((latency.latency_us, latency.source), (None, LatencySource::None));
        assert!(latency.gemm_us.is_some());
        assert!(latency.note.contains("without casts"), "{}", latency.note);
        assert_eq!(latency.speedup(), None);
    }
}

#[test]
fn what_nobody_timed_has_none_and_says_why() {
    let latency = at("deepgemm/blockwise", Gemm::Fprop, (2048, 512, 512));
    assert_eq!(latency, Latency::unknown("no latency of deepgemm/blockwise was recorded"));
    let refused = at("pytorch/fp8-blockwise", Gemm::Fprop, (2048, 256, 768));
    assert!(refused.note.contains("scale_b must have shape 4 x 6"), "{}", refused.note);
    let head = at("pytorch/fp8-rowwise+fast", Gemm::Fprop, (8192, 512, 1));
    assert_eq!(&*head.note, "does not run there: n = 1 is less than 16");
}

#[test]
fn the_libraries_records_answer_for_what_only_they_have_and_beside_their_own_bf16() {
    let all = KernelDb::builtin();
    let (last, before) = all.split_last().unwrap();
    assert_eq!(last.name, "h200-libraries-cuda-graphs");
    let (latencies, without) = (Latencies::builtin(), Latencies::new(before));
    let (mut libraries, mut compared) = (BTreeSet::new(), 0);
    for record in &last.records {
        let (kernel, gemm, shape) = (&record.kernel, record.gemm, record.shape);
        let (now, then) = (latencies.latency(kernel, gemm, shape), without.latency(kernel, gemm, shape));
        if then != Latency::unknown(&format!("no latency of {kernel} was recorded")) {
            assert_eq!(now, then, "other figures stay what they were");
            continue;
        }
        libraries.insert(kernel.library());
        if record.supported {
            let bf16 = last.lookup(&crate::model::baseline_kernel(), gemm, shape).unwrap();
            assert_eq!((now.latency_us, now.baseline_us), (record.latency_us, bf16.latency_us), "{kernel} {gemm}");
            assert_eq!((now.source, now.device()), (LatencySource::Recorded, Some("NVIDIA H200")));
            compared += 1;
        } else {
            assert!(now.note.starts_with("does not run there: ") && now.device().is_none(), "{}", now.note);
        }
    }
    assert_eq!(libraries.into_iter().collect::<Vec<_>>(), ["deepgemm", "fbgemm", "te"]);
    assert_eq!(compared, 4 * (37 + 2 * 12) - 2);
}

#[test]
fn a_note_says_the_gpu_in_every_form() {
    let latencies = Latencies::builtin();
    let device = |name: &str, m: usize| {
        let latency = latencies.latency(&KernelId::new(name), Gemm::Fprop, GemmShape { m, k: 2048, n: 2048 });
        (latency.source, latency.device().map(str::to_owned))
    };
    let on = |gpu: &str| Some(gpu.to_owned());
    assert_eq!(device("cublaslt/bf16", 2048), (LatencySource::Recorded, on("NVIDIA H200")));
    assert_eq!(device("cublaslt/bf16", 2064), (LatencySource::Modelled, on("NVIDIA H200")));
    assert_eq!(device("te/current", 2064), (LatencySource::Modelled, on("NVIDIA H200")));
    assert_eq!(device("cublaslt/nothing", 2048), (LatencySource::None, None));
    let here =
        Latency::unknown("measured here on NVIDIA L4, driver CUDA 13.0, loka 0.1.0; BF16 was not measured beside it");
    assert_eq!(here.device(), Some("NVIDIA L4"));
    assert!(here.told().starts_with("measured on NVIDIA L4, driver"), "{}", here.told());
}

#[test]
fn fits_are_as_good_as_the_docs_say() {
    let latencies = older();
    for (name, p50, p90) in [
        ("cublaslt/bf16", 0.07, 0.11),
        ("cublaslt/fp8-rowwise+fast", 0.05, 0.12),
        ("pytorch/bf16", 0.04, 0.08),
        ("pytorch/fp8-rowwise+fast", 0.07, 0.20),
        ("pytorch/fp8-tensorwise+fast", 0.11, 0.26),
        ("pytorch/fp8-blockwise", 0.10, 0.26),
    ] {
        let fit = latencies.fits(&KernelId::new(name), Gemm::Fprop).unwrap().latency.as_ref().unwrap();
        assert!(fit.error.p50 < p50 && fit.error.p90 < p90, "{name} {:?}", fit.error);
    }
}

/// Every direction of every native kernel in the built-in database: what the aim is.
#[test]
fn native_fits_keep_the_aim() {
    for database in KernelDb::builtin().into_iter().filter(|database| database.name.contains("native")) {
        for (id, timed) in Latencies::new(&[database]).kernels {
            for (gemm, fits) in &timed.fits {
                let Some(fit) = &fits.latency else { continue };
                // Seen with --nocapture: docs/engineering/performance.md has the table.
                println!("{id} {gemm}: p50 {:.3}, p90 {:.3}", fit.error.p50, fit.error.p90);
                assert!(fit.error.p50 < 0.10 && fit.error.p90 < 0.25, "{id} {gemm} {:?}", fit.error);
            }
        }
    }
}

#[test]
fn a_direction_is_modelled_from_its_own_records() {
    let mut database = KernelDb::builtin().into_iter().find(|database| database.name.contains("cublaslt")).unwrap();
    let doubled = |us: Option<f64>| us.map(|us| 2.0 * us);
    let backward: Vec<KernelRecord> = database
        .records
        .iter()
        .map(|r| KernelRecord { gemm: Gemm::Wgrad, latency_us: doubled(r.latency_us), ..r.clone() })
        .collect();
    database.records.extend(backward);
    let latencies = Latencies::new(&[database]);
    let shape = GemmShape { m: 4096, k: 2048, n: 1024 };
    let at = |gemm| latencies.latency(&KernelId::new("cublaslt/bf16"), gemm, shape);
    assert!(!at(Gemm::Wgrad).note.contains("is modelled from"), "{}", at(Gemm::Wgrad).note);
    assert!(at(Gemm::Dgrad).note.contains("dgrad is modelled from fprop records"));
    assert!(at(Gemm::Wgrad).latency_us.unwrap() > 1.5 * at(Gemm::Fprop).latency_us.unwrap());
}

/// Ten shapes of BF16, of a kernel with a static scale and of the one with the tail inside, by simple laws.
fn with_static_kernels() -> KernelDb {
    let shape = |i: usize| GemmShape { m: 2048, k: 512 * i, n: 1024 };
    let of = |name: &str, i: usize, us: f64| KernelRecord {
        latency_us: Some(us + 1.0 + i as f64),
        latency_cached_us: Some(us + i as f64),
        gemm_us: Some(us - 1.0 + i as f64),
        ..KernelRecord::blank(KernelId::new(name), Gemm::Fprop, shape(i))
    };
    let block = |i| KernelRecord { tail_us: Some(3.0), ..of("loka/fp8-block+fast", i, 6.0) };
    let all = |i| [of("cublaslt/bf16", i, 9.0), of("loka/fp8-static+fast", i, 5.0), block(i)];
    KernelDb { name: "made-up".to_owned(), records: (1..=10).flat_map(all).collect() }
}

#[test]
fn the_weight_cast_before_has_its_own_time_recorded_and_modelled() {
    let latencies = Latencies::new(&[with_static_kernels()]);
    let at =
        |k| latencies.latency(&KernelId::new("loka/fp8-static+fast"), Gemm::Fprop, GemmShape { m: 2048, k, n: 1024 });
    assert_eq!((at(1024).gemm_us, at(1024).cached_us, at(1024).latency_us), (Some(6.0), Some(7.0), Some(8.0)));
    let modelled = at(1280);
    assert_eq!(modelled.source, LatencySource::Modelled);
    for (us, law) in [(modelled.gemm_us, 6.5), (modelled.cached_us, 7.5), (modelled.latency_us, 8.5)] {
        assert!((us.unwrap() / law - 1.0).abs() < 0.05, "{us:?} for {law}");
    }
    let other =
        latencies.latency(&KernelId::new("cublaslt/bf16"), Gemm::Fprop, GemmShape { m: 2048, k: 1280, n: 1024 });
    assert_eq!(other.cached_us, None, "asked for where x in codes may save something");
}

#[test]
fn a_kernel_with_the_tail_inside_is_compared_with_bf16_and_the_tail() {
    let database = with_static_kernels();
    let id = KernelId::new("loka/fp8-block+fast");
    let at = |latencies: &Latencies, k| latencies.latency(&id, Gemm::Fprop, GemmShape { m: 2048, k, n: 1024 });
    for latencies in
        [Latencies::new(std::slice::from_ref(&database)), Latencies::default().with_measured(&database.records)]
    {
        let recorded = at(&latencies, 1024);
        assert_eq!((recorded.baseline_us, recorded.tail_us), (Some(12.0 + 3.0), Some(3.0)));
        assert_eq!(recorded.speedup(), Some(15.0 / 9.0));
    }
    let modelled = at(&Latencies::new(std::slice::from_ref(&database)), 1280);
    assert!((modelled.tail_us.unwrap() - 3.0).abs() < 1e-6, "{modelled:?}");
    assert!((modelled.baseline_us.unwrap() / 15.5 - 1.0).abs() < 0.05, "{modelled:?}");
    // Without a time of the tail there is nothing to compare with.
    let untimed: Vec<KernelRecord> =
        database.records.iter().map(|record| KernelRecord { tail_us: None, ..record.clone() }).collect();
    assert_eq!(at(&Latencies::default().with_measured(&untimed), 1024).baseline_us, None);
}

#[test]
fn rows_that_a_kernel_pads_are_paid_for() {
    let us = |name: &str, gemm, m| at(name, gemm, (m, 512, 512)).latency_us.unwrap();
    let wgrad = |m| us("cublaslt/fp8-rowwise+fast", Gemm::Wgrad, m);
    assert_eq!(wgrad(10_001), wgrad(10_016));
    assert!(us("cublaslt/bf16", Gemm::Wgrad, 10_001) < us("cublaslt/bf16", Gemm::Wgrad, 10_016));
    // What was recorded at the padded rows is what runs.
    let padded = at("cublaslt/fp8-rowwise+fast", Gemm::Wgrad, (2041, 256, 768));
    assert_eq!(padded.latency_us, at("cublaslt/fp8-rowwise+fast", Gemm::Wgrad, (2048, 256, 768)).latency_us);
}
