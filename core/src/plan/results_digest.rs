//! Takes the rows of a results file, gives their SHA-256, the same on every platform.
//!
//! Rows in the order (site, gemm, kernel, mods); the fields of each in the order of [`ResultRow`].
//! Text: its length in bytes as a little-endian u64, then UTF-8. Numbers: 8 bytes, little-endian,
//! -0 as 0. Optional: a byte 0, or 1 and the value. What came later stands last, under its name and only
//! where there is a value: results that lack it keep their digest. Binary and not JSON: 240,000 rows are hashed on
//! every `loka plan`, and printing their numbers would take longer than all the rest.

use std::{
    collections::{HashMap, HashSet},
    hash::Hash,
};

use sha2::{Digest, Sha256};

use crate::model::{ErrorSummary, Estimate, Fidelity, Gemm, Latency, ModSet, ResultRow};

use crate::model::sha256;

pub fn results_digest(rows: &[ResultRow]) -> String {
    let keys = sort_keys(rows);
    let mut order: Vec<usize> = (0..rows.len()).collect();
    order.sort_by_key(|index| keys[*index]);
    let mut hasher = Sha256::new();
    let mut bytes = Bytes(Vec::with_capacity(1024));
    for index in order {
        bytes.0.clear();
        bytes.row(&rows[index]);
        hasher.update(&bytes.0);
    }
    sha256(hasher)
}

/// (site, gemm, kernel, mods), names as their ranks: comparing 240,000 rows by text misses the cache
/// at every step and took half of a plan.
fn sort_keys(rows: &[ResultRow]) -> Vec<(usize, Gemm, usize, usize)> {
    let sites = ranks(rows.iter().map(|row| &row.site));
    let kernels = ranks(rows.iter().map(|row| &row.kernel));
    let sets: HashMap<&ModSet, String> = rows
        .iter()
        .map(|row| &row.mods)
        .collect::<HashSet<_>>()
        .into_iter()
        .map(|set| (set, set.to_string()))
        .collect();
    let names = ranks(sets.values());
    rows.iter().map(|row| (sites[&row.site], row.gemm, kernels[&row.kernel], names[&sets[&row.mods]])).collect()
}

fn ranks<'a, T: Ord + Hash>(values: impl Iterator<Item = &'a T>) -> HashMap<&'a T, usize> {
    let mut distinct: Vec<&T> = values.collect::<HashSet<_>>().into_iter().collect();
    distinct.sort();
    distinct.into_iter().enumerate().map(|(rank, value)| (value, rank)).collect()
}

struct Bytes(Vec<u8>);

impl Bytes {
    fn int(&mut self, value: u64) {
        self.0.extend(value.to_le_bytes());
    }

    fn float(&mut self, value: f64) {
        self.0.extend((value + 0.0).to_le_bytes());
    }

    fn text(&mut self, value: &str) {
        self.int(value.len() as u64);
        self.0.extend(value.as_bytes());
    }

    fn optional<T>(&mut self, value: Option<T>, write: impl FnOnce(&mut Self, T)) {
        self.0.push(u8::from(value.is_some()));
        if let Some(value) = value {
            write(self, value);
        }
    }

    fn estimate(&mut self, value: Estimate) {
        [value.value, value.lo, value.hi].into_iter().for_each(|part| self.float(part));
    }

    fn row(&mut self, row: &ResultRow) {
        self.text(row.site.as_str());
        self.text(row.gemm.as_str());
        self.text(row.kernel.as_str());
        self.text(&row.mods.to_string());
        [row.shape.m, row.shape.k, row.shape.n].into_iter().for_each(|size| self.int(size as u64));
        self.0.push(u8::from(row.supported));
        self.optional(row.reason.as_deref(), Self::text);
        self.optional(row.error.as_ref(), Self::error);
        self.latency(&row.latency);
        self.optional(row.fidelity, Self::fidelity);
        [&row.sampler, &row.engine, &row.device].into_iter().for_each(|text| self.text(text));
        self.int(row.seed);
        self.later("static_scale", row.static_scale.map(|known| f64::from(known.scale)));
        self.later("saturation", row.static_scale.map(|known| known.saturation));
        self.later("cached_us", row.latency.cached_us);
        self.later("flushed", row.flushed);
        // What is charged of a loss cost is derived from other rows' and in none of its own.
        let noise = row.error.as_ref().and_then(|error| error.noise);
        self.later_estimate("noise_share", noise.map(|noise| noise.share));
        if let Some(noise) = noise {
            self.text(noise.basis.as_str());
        }
        let steps = noise.and_then(|noise| noise.steps);
        self.later("rel_l2_first", steps.map(|steps| steps.first));
        self.later("rel_l2_last", steps.map(|steps| steps.last));
        self.later_estimate("bias", row.error.as_ref().and_then(|error| error.bias));
    }

    fn later(&mut self, name: &str, value: Option<f64>) {
        if let Some(value) = value {
            self.text(name);
            self.float(value);
        }
    }

    fn later_estimate(&mut self, name: &str, estimate: Option<Estimate>) {
        if let Some(estimate) = estimate {
            self.text(name);
            self.estimate(estimate);
        }
    }

    fn error(&mut self, error: &ErrorSummary) {
        self.int(error.draws);
        self.int(error.zeros_skipped);
        self.estimate(error.mere);
        self.estimate(error.rel_l2);
        [error.sqnr_db, error.median_rel, error.max_abs].into_iter().for_each(|value| self.float(value));
        self.optional(error.block_rel_l2, Self::estimate);
        self.optional(error.loss_cost, Self::estimate);
    }

    fn latency(&mut self, latency: &Latency) {
        let range = [latency.latency_us, latency.latency_lo_us, latency.latency_hi_us];
        let parts = [latency.gemm_us, latency.cast_us, latency.baseline_us, latency.tail_us];
        range.into_iter().chain(parts).for_each(|value| self.optional(value, Self::float));
        self.text(latency.source.as_str());
        self.text(&latency.note);
    }

    fn fidelity(&mut self, fidelity: Fidelity) {
        self.int(fidelity.rows);
        self.float(fidelity.heldout_rel_l2);
        self.float(fidelity.heldout_mere);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        dispatch::testing::{results, row},
        model::{Gemm, NoiseBasis, NoiseShare, StaticScale, StepErrors},
    };

    #[test]
    fn the_order_of_rows_does_not_matter_and_every_field_does() {
        let noise = NoiseShare { share: Estimate::exact(0.01), basis: NoiseBasis::Recorded, steps: None };
        let mut rows = results(&["a", "b"], vec![row("a", Gemm::Fprop, "te/current", 0.1, Some(1.2), 1e-6)]).rows;
        rows[0].error.as_mut().unwrap().noise = Some(noise);
        let digest = results_digest(&rows);
        let mut reversed = rows.clone();
        reversed.reverse();
        assert_eq!(results_digest(&reversed), digest);
        let changes: [fn(&mut ResultRow); 14] = [
            |row| row.error.as_mut().unwrap().noise = None,
            |row| {
                let noise = row.error.as_mut().unwrap().noise.as_mut().unwrap();
                noise.steps = Some(StepErrors { first: 0.0, last: 0.0 });
            },
            |row| row.error.as_mut().unwrap().bias = Some(Estimate::exact(0.5)),
            |row| row.seed += 1,
            |row| row.reason = Some("".into()),
            |row| row.latency.note = format!("{} ", row.latency.note).into(),
            |row| row.latency.tail_us = Some(0.0),
            |row| row.error.as_mut().unwrap().mere.hi += 1e-12,
            |row| row.error = None,
            |row| row.supported = false,
            |row| row.static_scale = Some(StaticScale { scale: 0.5, saturation: 0.0 }),
            |row| row.static_scale = Some(StaticScale { scale: 0.5, saturation: 1e-9 }),
            |row| row.latency.cached_us = Some(0.0),
            |row| row.flushed = Some(0.0),
        ];
        for change in changes {
            let mut changed = rows.clone();
            change(&mut changed[0]);
            assert_ne!(results_digest(&changed), digest);
        }
    }

    /// Golden: a plan made elsewhere must find the same digest.
    #[test]
    fn the_digest_of_fixed_rows_is_fixed() {
        let mut rows = vec![row("a", Gemm::Fprop, "te/current", 0.5, Some(2.0), 0.25)];
        rows[0].error.as_mut().unwrap().bias = None;
        assert_eq!(results_digest(&rows), "sha256:6047ff5c775c922bc4af11e3aebc69de937f8c700dc9f81977fb7120276d13f9");
    }
}
