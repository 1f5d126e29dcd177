//! A trace as the source of sites.

use crate::{
    model::{Site, SiteId},
    trace::{SiteStats, Trace},
};

use super::SiteSource;

impl SiteSource for Trace {
    fn sites(&self) -> Vec<Site> {
        self.manifest().sites.clone()
    }

    fn quantile_probs(&self) -> Vec<f64> {
        self.manifest().quantile_probs.clone()
    }

    fn loss(&self) -> f64 {
        self.manifest().loss.value
    }

    fn loss_weight(&self) -> f64 {
        self.manifest().loss.times()
    }

    fn stats(&self, site: &SiteId) -> Result<SiteStats, String> {
        self.site_stats(site).map_err(|error| error.to_string())
    }
}
