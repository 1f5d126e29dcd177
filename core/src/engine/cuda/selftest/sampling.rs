//! Random numbers and what makes samples of them, bit for bit as on the CPU.

use loka_kernels::probing;

use crate::{
    numerics::rng::Rng,
    stats::copula_of,
    trace::{Covariance, Distribution},
};

use super::{
    super::{
        CudaError,
        arguments::Arguments,
        sources::upload_copula,
        stream_context::{DeviceCopula, StreamContext, Tensor},
    },
    CheckOutcome, POISONS, Problem, Suite,
    guarded::{Guarded, same_floats},
    inputs::{Kind, normals},
    launch,
};

pub(super) fn check(suite: &mut Suite<'_>) -> Result<(), CudaError> {
    for count in [1, 63, 64, 65, 4096, 100_003] {
        for offset in [0, 4] {
            let name = format!("fill_normal [{count}]{}", if offset > 0 { ", unaligned" } else { "" });
            suite.check(name, |lane| fill_normal(lane, count, offset))?;
        }
    }
    suite.check("fill_normal [2, 1000], one run behind another".to_owned(), two_runs)?;
    for (rows, cols) in [(1, 1), (3, 7), (17, 48), (130, 272), (5, 4100)] {
        suite.check(format!("add_mean [{rows}, {cols}]"), |lane| add_mean(lane, rows, cols))?;
        for stride in [cols, cols.next_multiple_of(64)] {
            let name = format!("add_scaled_noise [{rows}, {cols}], rows of {stride}");
            suite.check(name, |lane| add_scaled_noise(lane, rows, cols, stride))?;
        }
    }
    for (features, probs) in [(1, 2), (7, 5), (48, 9), (300, 33)] {
        for kind in [Kind::Normal, Kind::Mixed, Kind::OneNan, Kind::OneInfinity] {
            let name = format!("copula_map [37, {features}] of {probs} quantiles, {}", kind.name());
            suite.check(name, |lane| copula_map(lane, features, probs, kind))?;
        }
    }
    Ok(())
}

fn fill_normal(lane: &StreamContext, count: usize, offset: usize) -> CheckOutcome {
    let mut rng = Rng::new(0x1234_5678_9ABC, &[b"selftest", b"normals"]);
    // Not from the generator's first block.
    rng.reserve_normals(640);
    let mut wanted = vec![0f32; count];
    rng.clone().fill_normal(&mut wanted);
    let from = rng.reserve_normals(count);
    for poison in POISONS {
        let out = Guarded::poisoned(lane, 4 * count, offset, poison)?;
        let arguments = Arguments::new()
            .value(out.address())
            .value(count as u64)
            .value(from.first_block)
            .value(from.stream)
            .value(from.key[0])
            .value(from.key[1]);
        launch(lane, "fill_normal", probing::fill_normal(count as u64), &arguments)?;
        same_floats("normals", &out.read(lane)?, &wanted)?;
    }
    Ok(())
}

/// The second run goes on where the first one ended, as on the CPU.
fn two_runs(lane: &mut StreamContext) -> CheckOutcome {
    let mut on_device = Rng::new(5, &[b"two runs"]);
    let mut here = on_device.clone();
    for _ in 0..2 {
        let out = lane.stream.alloc::<f32>(1000)?;
        lane.fill_normal(&out, on_device.reserve_normals(1000))?;
        let mut wanted = vec![0f32; 1000];
        here.fill_normal(&mut wanted);
        same_floats("normals", &lane.stream.download(&out)?, &wanted)?;
    }
    Ok(())
}

/// `values` changed in place by a method of the lane; a guard lies behind them.
fn in_place(
    lane: &mut StreamContext,
    values: &[f32],
    rows: usize,
    change: impl Fn(&mut StreamContext, &Tensor) -> Result<(), CudaError>,
) -> Result<Vec<f32>, Problem> {
    const GUARD: usize = 64;
    let mut guarded = values.to_vec();
    guarded.resize(values.len() + GUARD, f32::MIN_POSITIVE);
    let tensor = Tensor { data: lane.stream.upload(&guarded)?, rows, cols: values.len() / rows };
    change(lane, &tensor)?;
    let mut out = lane.stream.download(&tensor.data)?;
    let guard = out.split_off(values.len());
    same_floats("guard", &guard, &[f32::MIN_POSITIVE; GUARD])?;
    Ok(out)
}

fn add_mean(lane: &mut StreamContext, rows: usize, cols: usize) -> CheckOutcome {
    let (values, mean) = (normals(rows * cols, "values"), normals(cols, "mean"));
    let on_device = lane.stream.upload(&mean)?;
    let out = in_place(lane, &values, rows, |lane, tensor| lane.add_mean(tensor, &on_device))?;
    let wanted: Vec<f32> = values.iter().enumerate().map(|(index, value)| value + mean[index % cols]).collect();
    same_floats("sums", &out, &wanted)
}

fn add_scaled_noise(lane: &mut StreamContext, rows: usize, cols: usize, stride: usize) -> CheckOutcome {
    let (values, deviations) = (normals(rows * cols, "values"), normals(cols, "deviations"));
    let noise = normals(rows * stride, "noise");
    let (noise_there, deviations_there) = (lane.stream.upload(&noise)?, lane.stream.upload(&deviations)?);
    let out = in_place(lane, &values, rows, |lane, tensor| {
        lane.add_scaled_noise(tensor, &noise_there, stride, &deviations_there)
    })?;
    // Product and sum are rounded each.
    let of = |index: usize| values[index] + noise[index / cols * stride + index % cols] * deviations[index % cols];
    same_floats("sums", &out, &(0..values.len()).map(of).collect::<Vec<f32>>())
}

fn copula_map(lane: &mut StreamContext, features: usize, num_probs: usize, kind: Kind) -> CheckOutcome {
    let probs: Vec<f64> = (0..num_probs).map(|p| (p as f64 + 0.5) / num_probs as f64).collect();
    let steps = normals(features * num_probs, "quantiles");
    let mut quantiles = Vec::with_capacity(steps.len());
    for of_feature in steps.chunks_exact(num_probs) {
        // Ascending; some features stay at a value for a while, as rectified ones do.
        let mut value = -1.5f32;
        quantiles.extend(of_feature.iter().map(|step| {
            value += step.max(0.0);
            value
        }));
    }
    let variances = normals(features, "variances");
    let mut cov = vec![0f64; features * features];
    (0..features).for_each(|j| cov[j * features + j] = f64::from(variances[j] * variances[j]));
    let distribution = Distribution {
        count: 100,
        mean: vec![0.5; features],
        cov: Covariance::Full(cov),
        quantiles: Some(quantiles),
        hist: None,
        amax: Some(9.0),
    };
    let nothing = || Problem::Wrong("no map from these quantiles".to_owned());
    let map = copula_of(&distribution, &probs).ok_or_else(nothing)?;
    let values = kind.values(37 * features);
    let mut wanted = values.clone();
    map.map_rows(&mut wanted);
    let on_device: DeviceCopula = upload_copula(lane, &map)?;
    let out = in_place(lane, &values, 37, |lane, tensor| lane.copula_map(tensor, &on_device))?;
    same_floats("values", &out, &wanted)
}
