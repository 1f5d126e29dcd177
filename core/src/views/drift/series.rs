//! Takes a recorded series of any length; gives at most 512 points that keep its peaks.

use serde::{Deserialize, Serialize};

use crate::trace::{Series, SiteStats};

pub const MAX_POINTS: usize = 512;

/// Neighbouring steps, as far apart as their values are.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Bucket {
    pub first_step: i64,
    pub last_step: i64,
    /// Smallest and largest finite value; `None`: there is none.
    pub range: Option<(f64, f64)>,
    /// Overflow is what one looks for in a series: it is counted, not dropped.
    pub num_not_finite: u32,
}

/// One series, ready to draw.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SeriesView {
    pub name: String,
    pub points: Vec<Bucket>,
    pub num_steps: usize,
    /// Over all finite values.
    pub range: Option<(f64, f64)>,
    /// The last finite value.
    pub last: Option<f64>,
}

impl SeriesView {
    /// `Input amax`; a name that we do not know stays as it is.
    pub fn label(&self) -> String {
        match self.name.as_str() {
            "input_amax" => "Input amax".to_owned(),
            "weight_amax" => "Weight amax".to_owned(),
            "grad_amax" => "Gradient amax".to_owned(),
            "bias_norm" => "Bias norm".to_owned(),
            "weight_grad_norm" => "Weight gradient, norm".to_owned(),
            "weight_grad_noise" => "Weight gradient, norm of its noise".to_owned(),
            "weight_grad_e4m3" => "Weight gradient, error of E4M3 casts".to_owned(),
            "weight_grad_fast" => "Weight gradient, cut by fast accumulation".to_owned(),
            other => other.to_owned(),
        }
    }

    /// The points that hold a step, or the nearest.
    pub fn at(&self, step: i64) -> Option<&Bucket> {
        at_step(&self.points, step, |point| (point.first_step, point.last_step))
    }

    fn of(series: &Series) -> Self {
        let points: Vec<Bucket> = buckets(series);
        let ranges = points.iter().filter_map(|bucket| bucket.range);
        let range = ranges.reduce(|a, b| (a.0.min(b.0), a.1.max(b.1)));
        let last = series.values.iter().rev().find(|value| value.is_finite()).map(|value| f64::from(*value));
        Self { name: series.name.clone(), points, num_steps: series.steps.len(), range, last }
    }
}

/// Of what is in the order of steps: what holds a step, or is the nearest to it.
pub(super) fn at_step<T>(all: &[T], step: i64, ends: impl Fn(&T) -> (i64, i64)) -> Option<&T> {
    let away = |of: &T| {
        let (first, last) = ends(of);
        first.saturating_sub(step).max(step.saturating_sub(last)).max(0)
    };
    let after = all.partition_point(|of| ends(of).1 < step);
    let near = &all[after.saturating_sub(1)..(after + 1).min(all.len())];
    near.iter().min_by_key(|of| away(of))
}

/// Amax of the operands first, then the rest by name.
pub(in crate::views) fn series_views(stats: &SiteStats) -> Vec<SeriesView> {
    let mut views: Vec<SeriesView> = stats.series.iter().map(SeriesView::of).collect();
    let known = [
        "input_amax",
        "weight_amax",
        "grad_amax",
        "weight_grad_norm",
        "weight_grad_noise",
        "weight_grad_e4m3",
        "weight_grad_fast",
        "bias_norm",
    ];
    let place = |name: &str| known.iter().position(|of| *of == name).unwrap_or(known.len());
    views.sort_by(|a, b| place(&a.name).cmp(&place(&b.name)).then(a.name.cmp(&b.name)));
    views
}

fn buckets(series: &Series) -> Vec<Bucket> {
    let per_bucket = series.steps.len().div_ceil(MAX_POINTS).max(1);
    let pairs = series.steps.chunks(per_bucket).zip(series.values.chunks(per_bucket));
    let bucket = |(steps, values): (&[i64], &[f32])| {
        let finite = values.iter().copied().filter(|value| value.is_finite()).map(f64::from);
        let range = finite.map(|value| (value, value)).reduce(|a, b| (a.0.min(b.0), a.1.max(b.1)));
        let num_not_finite = values.iter().filter(|value| !value.is_finite()).count() as u32;
        let (first_step, last_step) = (steps.first().copied()?, steps.last().copied()?);
        Some(Bucket { first_step, last_step, range, num_not_finite })
    };
    pairs.filter_map(bucket).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn series(values: Vec<f32>) -> Series {
        Series { name: "input_amax".to_owned(), steps: (0..values.len() as i64).map(|at| at * 10).collect(), values }
    }

    #[test]
    fn a_short_series_stays_whole() {
        let view = SeriesView::of(&series(vec![1.0, 3.0, 2.0]));
        assert_eq!(view.points.len(), 3);
        assert_eq!(
            view.points[1],
            Bucket { first_step: 10, last_step: 10, range: Some((3.0, 3.0)), num_not_finite: 0 }
        );
        assert_eq!((view.range, view.last, view.num_steps), (Some((1.0, 3.0)), Some(2.0), 3));
    }

    #[test]
    fn a_step_between_two_points_is_the_nearer_ones() {
        let view = SeriesView::of(&series(vec![1.0, 3.0, 2.0]));
        let first = |step| view.at(step).map(|point| point.first_step);
        assert_eq!([-9, 0, 4, 6, 10, 14, 16, 999].map(|step| first(step).unwrap()), [0, 0, 0, 10, 10, 10, 20, 20]);
        assert_eq!(SeriesView::of(&series(Vec::new())).at(3), None);
    }

    #[test]
    fn peaks_and_overflow_survive() {
        let mut values = vec![1.0; 100_000];
        values[54_321] = 99.0;
        values[54_400] = 0.25;
        values[77_777] = f32::NAN;
        let view = SeriesView::of(&series(values));
        assert!(view.points.len() <= MAX_POINTS && view.points.len() > MAX_POINTS / 2);
        assert_eq!(view.range, Some((0.25, 99.0)));
        assert_eq!(view.points.iter().map(|bucket| bucket.num_not_finite).sum::<u32>(), 1);
        let ends = (view.points[0].first_step, view.points[view.points.len() - 1].last_step);
        assert_eq!(ends, (0, 999_990), "no step is left out");
    }
}
