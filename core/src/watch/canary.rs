//! Takes the lines that a training run's canary leaves (`loka.apply(..., health_log=FILE)`), gives what each says of a GEMM.

use serde::Deserialize;

use super::Test;
use crate::model::{Gemm, SiteId};

/// One check of one GEMM while the model trained.
#[derive(Clone, Debug, PartialEq)]
pub struct CanaryCheck {
    /// Which GEMM, as [`Test::Canary`].
    pub test: Test,
    pub step: u64,
    /// Relative L2 error, as the plan has it and as it was; `None`: it was no number.
    pub predicted: Option<f64>,
    pub seen: Option<f64>,
    /// Beyond what chance and the prediction's own error allow, by the canary's bounds.
    pub is_off: bool,
}

#[derive(Deserialize)]
struct HealthLine {
    plan: String,
    #[serde(default)]
    rank: u64,
    site: SiteId,
    gemm: Gemm,
    step: Option<u64>,
    predicted: Option<f64>,
    seen: Option<f64>,
    verdict: String,
}

/// A line of the log. `Ok(None)`: it is of another plan, or of a GEMM that was not checked. `Err`: it is no such line.
pub fn canary_check(line: &str, plan: &str) -> Result<Option<CanaryCheck>, String> {
    let line: HealthLine =
        serde_json::from_str(line).map_err(|error| format!("not a line of a health log: {error}"))?;
    let (Some(step), true) = (line.step, line.plan == plan) else { return Ok(None) };
    if ["not checked", "not run"].contains(&line.verdict.as_str()) {
        return Ok(None);
    }
    let test = Test::Canary { site: line.site, gemm: line.gemm, rank: line.rank };
    let is_off = line.verdict == "off";
    Ok(Some(CanaryCheck { test, step, predicted: line.predicted, seen: line.seen, is_off }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_read_as_the_canary_writes_them() {
        let line = |plan: &str, verdict: &str, step: &str| {
            format!(
                r#"{{"time": "2026-11-26T08:00:00Z", "step": {step}, "rank": 0, "plan": "{plan}", "site": "top.0", "gemm": "wgrad",
                "kernel": "cublaslt/fp8-delayed", "predicted": 0.012, "seen": null, "saturated": 0.0, "flushed": 0.25,
                "verdict": "{verdict}", "note": ""}}"#
            )
        };
        let check = canary_check(&line("p", "off", "7"), "p").unwrap().unwrap();
        assert_eq!(check.test.to_string(), "top.0:wgrad canary");
        assert_eq!((check.step, check.predicted, check.seen, check.is_off), (7, Some(0.012), None, true));
        assert!(!canary_check(&line("p", "ok", "7"), "p").unwrap().unwrap().is_off);
        for other in [line("q", "off", "7"), line("p", "not run", "7"), line("p", "not checked", "null")] {
            assert_eq!(canary_check(&other, "p"), Ok(None));
        }
        let third = line("p", "off", "7").replace(r#""rank": 0"#, r#""rank": 3"#);
        assert_eq!(canary_check(&third, "p").unwrap().unwrap().test.to_string(), "top.0:wgrad canary of rank 3");
        assert!(canary_check("{", "p").unwrap_err().starts_with("not a line of a health log: "));
    }
}
