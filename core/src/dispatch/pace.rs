//! Takes what a step took as recorded and what a plan saves of it, gives a warning where the host is, or would be, the slower
//! one: times of GEMMs are the GPU's, and a GPU that waits for launches gains nothing by faster GEMMs.

use super::{Target, Totals, Warning, WarningKind};

const REMEDY: &str = "Replay the step as CUDA graphs, torch.compile(..., mode=\"reduce-overhead\"): there this plan pays by the GPU's time";

/// What a GEMM in FP8 takes a host beyond BF16's, in a compiled step: guards, casts, scales. Measured were .04 to .2 ms, and the host
/// itself took a third more or less from one process to the next (docs/engineering/training.md): reason to say "may".
const HOST_MS_A_GEMM: f64 = 0.043;
const HOST_MS_A_GEMM_AT_MOST: f64 = 0.2;

/// `num_low`: GEMMs of the plan in low precision, asked where it matters. `None`: the host keeps ahead, nobody looked, nothing is saved, or the step is
/// replayed.
pub(super) fn host_bound(target: &Target, totals: &Totals, num_low: impl FnOnce() -> usize) -> Option<Warning> {
    let pace = target.launched_pace().filter(|_| totals.saved_us > 0.0)?;
    let (host_ms, step_ms) = pace.in_training_ms();
    let left_ms = step_ms - totals.saved_us / 1e3;
    let host_then = host_ms + HOST_MS_A_GEMM * num_low() as f64;
    let (host, step) = (ms(host_ms), ms(step_ms));
    let text = if pace.is_the_hosts() {
        format!(
            "the GPU waited for its host while this was recorded (the host takes {host} ms to launch a step of {step}): launched, \
             faster GEMMs gain nothing there, and each launch that FP8 adds costs. {REMEDY}"
        )
    } else if host_then >= left_ms {
        format!(
            "the host took {host} ms to launch a step of {step} while this was recorded. FP8 adds {HOST_MS_A_GEMM} to \
             {HOST_MS_A_GEMM_AT_MOST} ms a GEMM ({} ms or more) and leaves the GPU {} ms of work: launched, the host may be the slower \
             one, and `loka.apply` goes back to BF16 where that is faster. {REMEDY}",
            ms(host_then - host_ms),
            ms(left_ms.max(0.0))
        )
    } else {
        return None;
    };
    Some(Warning { kind: WarningKind::SlowHost, ..Warning::whole(text) })
}

/// Three digits.
fn ms(value: f64) -> String {
    format!("{value:.*}", if value < 10.0 { 2 } else { 1 })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        dispatch::testing::results,
        model::{ResultsMeta, Runtime},
    };
    use serde_json::{Value, json};

    fn warned(pace: Value, runtime: Runtime, saved_us: f64) -> Option<String> {
        let mut meta: ResultsMeta = results(&["a"], Vec::new()).meta;
        meta.manifest.run.extra.insert("pace".to_owned(), pace);
        let totals = Totals { saved_us, ..Totals::default() };
        host_bound(&Target::of(&meta, runtime), &totals, || 10).map(|warning| warning.text)
    }

    fn pace(waited: u64, host_ms: f64) -> Value {
        json!({"steps": 6, "waited": waited, "host_ms": host_ms, "step_ms": 10.6})
    }

    #[test]
    fn a_host_that_is_slower_or_would_be_is_told_of() {
        let is = warned(pace(6, 10.2), Runtime::Launched, 2140.0).unwrap();
        assert!(is.contains("10.2 ms to launch a step of 10.6") && is.contains("reduce-overhead"), "{is}");
        let would = warned(pace(0, 8.9), Runtime::Launched, 2140.0).unwrap();
        assert!(
            would.contains("adds 0.043 to 0.2 ms a GEMM (0.43 ms or more) and leaves the GPU 8.46 ms of work: launched, the host may"),
            "{would}"
        );
        let among = json!({"steps": 6, "waited": 0, "host_ms": 8.0, "step_ms": 12.4, "period_ms": 8.9});
        let line_up = warned(among, Runtime::Launched, 1000.0);
        assert!(
            line_up.is_some_and(|text| text.contains("8.00 ms to launch a step of 8.90")),
            "not by what it takes from idle on"
        );
        let shorter = json!({"steps": 6, "waited": 6, "host_ms": 9.0, "step_ms": 12.4, "period_ms": 8.9});
        assert!(
            warned(shorter, Runtime::Launched, 10.0)
                .is_some_and(|text| text.contains("8.90 ms to launch a step of 8.90"))
        );
        let barely = warned(pace(0, 8.1), Runtime::Launched, 2140.0);
        assert!(
            barely.is_some_and(|text| text.contains("8.10 ms") && text.contains("leaves the GPU 8.46 ms")),
            "by what FP8 adds alone"
        );
    }

    #[test]
    fn nothing_is_said_where_the_host_keeps_ahead_or_nothing_is_known() {
        assert_eq!(warned(pace(0, 5.0), Runtime::Launched, 2140.0), None);
        assert_eq!(warned(pace(6, 10.2), Runtime::Graph, 2140.0), None);
        assert_eq!(warned(pace(6, 10.2), Runtime::Launched, 0.0), None);
        for strange in [
            json!(7),
            json!({"steps": 0, "waited": 0, "host_ms": 1.0, "step_ms": 1.0}),
            json!({"steps": 3, "waited": 4, "host_ms": 1.0, "step_ms": 1.0}),
            json!({"steps": 3, "waited": 3, "host_ms": -1.0, "step_ms": 1e300}),
            json!({"steps": 3, "waited": 3, "host_ms": 9.0, "step_ms": 9.0, "period_ms": 0.0}),
            json!({"steps": -3, "waited": 3, "host_ms": 1.0, "step_ms": 1.0}),
            json!({"steps": 3, "waited": 3, "host_ms": "1", "step_ms": 1.0}),
        ] {
            assert_eq!(warned(strange, Runtime::Launched, 2140.0), None);
        }
    }
}
