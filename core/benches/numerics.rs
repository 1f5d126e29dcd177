//! Throughput of casts, GEMMs, normals and metrics at the sizes that a probe uses.

use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use loka_core::{
    model::{Accumulation, Format, Granularity, Matrix, OperandCast},
    numerics::{
        CastPanels, DrawStats, Epilogue, Panels, Panels64, Reference, Scales, Side, cast_into, cast_panels, gemm,
        gemm_f64, rng::Rng,
    },
};

fn normal(rows: usize, cols: usize, name: &str) -> Matrix {
    let mut matrix = Matrix::zeros(rows, cols);
    Rng::new(1, &[name.as_bytes()]).fill_normal(&mut matrix.data);
    matrix
}

fn casts(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("cast 512x512 FP32");
    let panels = Panels::pack(Side::Right, &normal(512, 512, "weight"));
    group.throughput(Throughput::Elements(512 * 512));
    let forms = [
        ("bf16", OperandCast::unscaled(Format::Bf16)),
        ("tf32", OperandCast::unscaled(Format::Tf32)),
        ("e4m3 tensor", OperandCast::scaled(Format::E4m3, Granularity::Tensor)),
        ("e5m2 tensor", OperandCast::scaled(Format::E5m2, Granularity::Tensor)),
        ("e4m3 row", OperandCast::scaled(Format::E4m3, Granularity::Row)),
        ("e4m3 1x128", OperandCast::scaled(Format::E4m3, Granularity::Block1x128)),
        ("e4m3 128x128", OperandCast::scaled(Format::E4m3, Granularity::Block128x128)),
    ];
    for (name, cast) in forms {
        let mut to = CastPanels::empty(&panels);
        group.bench_function(name, |bencher| bencher.iter(|| cast_into(&panels, cast, None, &mut to)));
    }
    group.finish();
}

fn gemms(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("gemm");
    for (m, k, n) in [(48, 512, 512), (64, 8192, 64)] {
        let (a, b) = (normal(m, k, "a"), normal(n, k, "b"));
        let (left, right) = (Panels::pack(Side::Left, &a), Panels::pack(Side::Right, &b));
        // Elements are multiply-adds: twice the rate is FLOP/s.
        group.throughput(Throughput::Elements((m * k * n) as u64));
        let shape = format!("{m}x{k}x{n}");
        let row = OperandCast::scaled(Format::E4m3, Granularity::Row);
        let block = OperandCast::scaled(Format::E4m3, Granularity::Block1x128);
        for (name, cast, accumulation) in [
            ("fp32", row, Accumulation::Fp32),
            ("promoted", row, Accumulation::Promoted),
            ("promoted, block scales", block, Accumulation::Promoted),
            ("fast", row, Accumulation::Fast),
        ] {
            let (a, b) = (cast_panels(&left, cast, None), cast_panels(&right, cast, None));
            let mut out = vec![0f32; m * n];
            group.bench_function(BenchmarkId::new(name, &shape), |bencher| {
                bencher.iter(|| gemm(&a, &b, accumulation, Epilogue::StoreBf16, &mut out));
            });
        }
        let (a, b) = (Panels64::from(&left), Panels64::from(&right));
        let mut out = vec![0f64; m * n];
        group.bench_function(BenchmarkId::new("fp64 reference", &shape), |bencher| {
            bencher.iter(|| gemm_f64(&a, &b, &mut out));
        });
    }
    group.finish();
}

fn sampling_and_metrics(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("per element");
    let mut values = vec![0f32; 1 << 18];
    group.throughput(Throughput::Elements(values.len() as u64));
    group.bench_function("standard normals", |bencher| {
        bencher.iter(|| Rng::new(1, &[b"bench"]).fill_normal(&mut values));
    });
    let (m, k, n) = (48, 512, 512);
    let (left, right) = (Panels::pack(Side::Left, &normal(m, k, "a")), Panels::pack(Side::Right, &normal(n, k, "b")));
    let mut exact = vec![0f64; m * n];
    gemm_f64(&Panels64::from(&left), &Panels64::from(&right), &mut exact);
    let plain = |panels: Panels| CastPanels { panels, scales: Scales::None };
    let mut out = vec![0f32; m * n];
    gemm(&plain(left), &plain(right), Accumulation::Fp32, Epilogue::StoreBf16, &mut out);
    group.throughput(Throughput::Elements((m * n) as u64));
    let reference = Reference::new(n, exact);
    let mut difference = Vec::new();
    group.bench_function("all error metrics", |bencher| {
        bencher.iter(|| DrawStats::measure(&out, &reference, &mut difference));
    });
    group.finish();
}

criterion_group!(benches, casts, gemms, sampling_and_metrics);
criterion_main!(benches);
