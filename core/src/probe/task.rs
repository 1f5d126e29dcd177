//! One site under one set of mods: draws taken so far, whether to go on, and the rows they give.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use crate::{
    engine::{Backend, Drawn, Engine, EngineError, EngineInfo, SiteEngine, SiteJob, StaticScales},
    model::{
        ErrorSummary, Estimate, Fidelity, Gemm, GemmShape, Kernel, ModSet, ResultRow, Site, StaticScale, charge_excess,
        kernel,
    },
    mods::fits,
    stats::{Dependence, ExampleRows, GradientNoise, SquareOverShare, loss_cost_factor},
};

use super::{
    ProbeConfig,
    evidence::{Against, Evidence, Noise},
};

/// Draws between two looks at the intervals.
const BATCH: u64 = 8;

/// Draws of the first pass over all sites: enough for an interval, quick enough for a first picture.
const FIRST_LOOK: u64 = 4;

/// A site in the making. Holds what was learnt, not the site's tensors: a model may have thousands.
pub struct SiteTask {
    pub site: Site,
    evidence: BTreeMap<(Gemm, Backend), Evidence>,
    sampler: Arc<str>,
    /// The site's own.
    mods: ModSet,
    scales: StaticScales,
    noise: Noise,
    rows: ExampleRows,
    /// How many times a log loss the recorded one is.
    loss_weight: f64,
    /// Directions that cannot be drawn, and why.
    failed: BTreeMap<Gemm, String>,
    /// Directions drawn to the end.
    ended: BTreeSet<Gemm>,
}

/// How far one call goes.
struct Advance<'a> {
    engine: &'a dyn Engine,
    config: &'a ProbeConfig,
    dependence: Option<&'a Dependence>,
    first_look: bool,
    stop: &'a dyn Fn() -> bool,
}

impl SiteTask {
    pub fn new(site: Site, loss_weight: f64) -> Self {
        Self {
            site,
            evidence: BTreeMap::new(),
            sampler: "".into(),
            mods: ModSet::none(),
            scales: StaticScales::default(),
            noise: Noise::default(),
            rows: ExampleRows::default(),
            loss_weight,
            failed: BTreeMap::new(),
            ended: BTreeSet::new(),
        }
    }

    /// True while a direction has draws to come.
    pub fn is_open(&self) -> bool {
        let is_open =
            |gemm: &Gemm| self.site.runs(*gemm) && !self.ended.contains(gemm) && !self.failed.contains_key(gemm);
        Gemm::ALL.iter().any(is_open)
    }

    fn shape(&self) -> GemmShape {
        GemmShape { m: self.site.m, k: self.site.k, n: self.site.n }
    }

    /// Draws until `stop` says so or all is settled, calling `report` with fresh rows now and then. `stop` may
    /// wait: it is asked between draws, and once a direction's rows were reported.
    /// `first_look`: only the first few draws of each GEMM. A lost engine is an error at once: it is asked for
    /// nothing more, and what was reported stays good.
    pub fn advance(
        &mut self,
        job: SiteJob,
        engine: &dyn Engine,
        config: &ProbeConfig,
        first_look: bool,
        stop: &dyn Fn() -> bool,
        report: &mut dyn FnMut(Vec<ResultRow>),
    ) -> Result<(), EngineError> {
        (self.mods, self.scales) = (job.mods.clone(), job.scales.clone());
        self.noise.of_batch = self.noise.of_batch.or_else(|| GradientNoise::of(&job.stats));
        self.rows = ExampleRows::of(&job.stats);
        // Behind a modified block x is another model's.
        let dependence = Dependence::of(&job.stats).filter(|_| job.upstream.is_empty());
        self.noise.by_step = dependence.as_ref().and_then(|known| SquareOverShare::of(&job.stats, known));
        let mut prepared = engine.site(job)?;
        self.sampler = prepared.sampler().into();
        for gemm in Gemm::ALL {
            if self.failed.contains_key(&gemm) || !self.site.runs(gemm) {
                continue;
            }
            let how = Advance { engine, config, dependence: dependence.as_ref(), first_look, stop };
            match self.advance_gemm(gemm, prepared.as_mut(), &how, report) {
                Ok(false) => {}
                Ok(true) => {
                    self.ended.insert(gemm);
                }
                Err(error @ EngineError::Lost(_)) => return Err(error),
                Err(error) => {
                    self.failed.insert(gemm, error.to_string());
                }
            }
            report(self.rows(gemm, engine, config));
            if stop() {
                break;
            }
        }
        Ok(())
    }

    /// True when it was drawn to the end.
    fn advance_gemm(
        &mut self,
        gemm: Gemm,
        prepared: &mut dyn SiteEngine,
        how: &Advance<'_>,
        report: &mut dyn FnMut(Vec<ResultRow>),
    ) -> Result<bool, EngineError> {
        let Advance { engine, config, dependence, first_look, stop } = *how;
        let all = self.ways(gemm, engine, config);
        for way in &all {
            let (factor, least_noise) = self.of_dependence(gemm, *way, dependence);
            let entry = self.entry(gemm, *way);
            (entry.loss_cost_factor, entry.least_noise) = (factor, least_noise);
        }
        if !first_look && let Some((rows, sums)) = prepared.heldout(gemm, &all) {
            self.take_heldout(gemm, &all, rows, sums);
        }
        let limit = if first_look { FIRST_LOOK.min(config.max_draws) } else { config.max_draws };
        let against = self.against(gemm);
        let mut done = all.iter().map(|way| self.draws(gemm, *way)).min().unwrap_or(0);
        while done < limit {
            if stop() {
                return Ok(false);
            }
            let open: Vec<Backend> = all.iter().copied().filter(|way| !self.entry(gemm, *way).settled).collect();
            if open.is_empty() {
                break;
            }
            for (way, drawn) in open.iter().zip(prepared.draw(gemm, &open, done)?) {
                self.entry(gemm, *way).take_drawn(drawn, &against);
            }
            done += 1;
            if done >= config.min_draws && (done - config.min_draws).is_multiple_of(BATCH) {
                self.settle(gemm, &open, config);
                if !engine.wants_first_look() {
                    report(self.rows(gemm, engine, config));
                }
            }
        }
        Ok(!first_look)
    }

    /// The factor of its loss cost, and the least share of noise.
    fn of_dependence(&self, gemm: Gemm, way: Backend, known: Option<&Dependence>) -> (Option<f64>, Option<f64>) {
        let numerics = match way {
            Backend::Numerics(numerics) => Some(numerics),
            Backend::Library(name) => kernel(name).map(|kernel| kernel.numerics(gemm)),
        };
        let right = if gemm == Gemm::Wgrad { self.scales.of_right(gemm).ok() } else { None };
        let scales = [self.scales.of(gemm).ok(), right];
        match (gemm, numerics) {
            (Gemm::Fprop, Some(numerics)) => (Some(loss_cost_factor(self.rows, known, numerics, scales)), None),
            (Gemm::Wgrad, Some(numerics)) => (None, known.and_then(|known| known.wgrad_noise_share(numerics, scales))),
            // Its error is in dx, row by row, and that of rows of dy alone.
            (Gemm::Dgrad, _) | (_, None) => (None, None),
        }
    }

    fn against(&self, gemm: Gemm) -> Against {
        let cols = self.shape().rows_reduced_cols(gemm).2;
        Against { gemm, cols, noise: self.noise.of_batch, loss_weight: self.loss_weight }
    }

    fn entry(&mut self, gemm: Gemm, way: Backend) -> &mut Evidence {
        self.evidence.entry((gemm, way)).or_default()
    }

    /// Draws taken while a way was still open: all open ones have the same.
    fn draws(&self, gemm: Gemm, way: Backend) -> u64 {
        let evidence = self.evidence.get(&(gemm, way));
        evidence.map_or(0, |evidence| if evidence.settled { u64::MAX } else { evidence.mere.len() as u64 })
    }

    /// The different ways of the kernels that can run here, so that kernels which share one are measured once.
    fn ways(&self, gemm: Gemm, engine: &dyn Engine, config: &ProbeConfig) -> Vec<Backend> {
        let runs = |kernel: &&&Kernel| self.supports(kernel, gemm, engine).is_ok();
        let all: BTreeSet<Backend> =
            config.kernels.iter().filter(runs).map(|kernel| engine.way(kernel, gemm)).collect();
        all.into_iter().collect()
    }

    /// Why that kernel cannot run here: the engine, the shape, the site's tail, or no scale.
    fn supports(&self, kernel: &Kernel, gemm: Gemm, engine: &dyn Engine) -> Result<(), String> {
        engine.supports(kernel, gemm, self.shape())?;
        fits(kernel, gemm, &self.site, &self.mods)?;
        self.static_scale(kernel, gemm).transpose().map(|_| ())
    }

    /// `None`: the kernel finds its scales itself.
    fn static_scale(&self, kernel: &Kernel, gemm: Gemm) -> Option<Result<StaticScale, String>> {
        self.scales.for_kernel(kernel, gemm)
    }

    fn settle(&mut self, gemm: Gemm, open: &[Backend], config: &ProbeConfig) {
        let outputs = self.outputs(gemm);
        for way in open {
            let evidence = self.evidence.entry((gemm, *way)).or_default();
            let Some(mut summary) = evidence.summary(outputs, config.confidence) else { continue };
            summary.noise = evidence.noise_share(&self.noise, gemm, config.confidence);
            summary.bias = summary.bias.map(Estimate::magnitude);
            evidence.settled |= config.thresholds.iter().all(|threshold| {
                let estimate = summary.metric(threshold.metric);
                estimate.is_none_or(|estimate| estimate.hi <= threshold.bound || estimate.lo > threshold.bound)
            });
        }
    }

    /// Outputs of the whole GEMM: MERE depends on how many there are.
    fn outputs(&self, gemm: Gemm) -> f64 {
        let (rows, _, cols) = self.shape().rows_reduced_cols(gemm);
        rows as f64 * cols as f64
    }

    fn take_heldout(&mut self, gemm: Gemm, all: &[Backend], rows: u64, drawn: Vec<Drawn>) {
        let (outputs, against) = (self.outputs(gemm), self.against(gemm));
        for (way, drawn) in all.iter().zip(drawn) {
            let mut alone = Evidence::default();
            alone.take_drawn(drawn, &against);
            let summary = alone.summary(outputs, 0.95);
            self.entry(gemm, *way).fidelity = summary.map(|summary| Fidelity {
                rows,
                heldout_rel_l2: summary.rel_l2.value,
                heldout_mere: summary.mere.value,
            });
        }
    }

    /// Rows of every asked kernel at one GEMM, as known now.
    fn rows(&self, gemm: Gemm, engine: &dyn Engine, config: &ProbeConfig) -> Vec<ResultRow> {
        let info = engine.describe();
        let mut rows: Vec<ResultRow> =
            config.kernels.iter().map(|kernel| self.row(gemm, kernel, engine, &info, config)).collect();
        charge_excess(&mut rows);
        rows
    }

    fn row(
        &self,
        gemm: Gemm,
        kernel: &Kernel,
        engine: &dyn Engine,
        info: &EngineInfo,
        config: &ProbeConfig,
    ) -> ResultRow {
        let known = self.evidence.get(&(gemm, engine.way(kernel, gemm)));
        let mods = config.mods.of(&self.site.id);
        let refused = known.and_then(|evidence| evidence.refused.clone());
        let support = self.supports(kernel, gemm, engine).and_then(|()| refused.map_or(Ok(()), Err));
        let evidence = known.filter(|_| support.is_ok());
        let reason = support.clone().err().or_else(|| self.failed.get(&gemm).cloned());
        ResultRow {
            site: self.site.id.clone(),
            gemm,
            kernel: kernel.id(),
            mods: mods.clone(),
            shape: self.shape(),
            supported: support.is_ok(),
            reason: reason.map(Into::into),
            error: evidence.and_then(|evidence| {
                let summary = evidence.summary(self.outputs(gemm), config.confidence)?;
                let mut noise = evidence.noise_share(&self.noise, gemm, config.confidence);
                // The error of high precision is mostly that of the stored result, not of casts.
                if let Some(noise) = noise.as_mut().filter(|_| kernel.high_precision()) {
                    noise.steps = None;
                }
                let Some(cut) = self.noise.cut(kernel, gemm) else { return Some(ErrorSummary { noise, ..summary }) };
                if let Some(noise) = noise.as_mut() {
                    noise.steps = noise.steps.map(|steps| steps.and(cut));
                }
                let bias = summary.bias.map(|bias| bias.at_most(-cut.last));
                Some(ErrorSummary { noise, bias, ..summary })
            }),
            latency: (config.latency)(kernel, gemm, &self.site, mods),
            fidelity: evidence.and_then(|evidence| evidence.fidelity),
            flushed: evidence.and_then(Evidence::mean_flushed),
            static_scale: evidence.and_then(|_| self.static_scale(kernel, gemm)?.ok()),
            sampler: self.sampler.clone(),
            engine: info.name.into(),
            device: info.device.as_str().into(),
            seed: config.seed,
        }
    }
}
