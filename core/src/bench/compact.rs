//! Takes kernel records, gives a compact CSV without raw samples, and back: what is embedded for a build
//! that reads no Parquet.
//!
//! Circumstances are lines `# device: NVIDIA H200`, good for all rows below until the next; times are
//! rounded to nanoseconds, far below what a sample varies by.

use std::fmt::Write as _;

use crate::model::{GemmShape, KernelId, KernelRecord};

const HEADER: &str = "kernel,gemm,m,k,n,gemm_us,cast_us,latency_us,latency_p10_us,latency_p90_us,latency_cached_us,\
                      latency_cached_p10_us,latency_cached_p90_us,tail_us,supported,samples,reason";

/// Files of before kernels had tails inside lack this column.
const TAIL: &str = "tail_us,";

const CIRCUMSTANCES: [&str; 4] = ["device", "driver", "versions", "recorded_at"];

fn circumstances(record: &KernelRecord) -> [&str; 4] {
    [&record.device, &record.driver, &record.versions, &record.recorded_at]
}

/// All that `from_csv` gives back: everything but raw samples and notes.
pub fn to_csv(records: &[KernelRecord]) -> String {
    let (mut text, mut current) = (String::new(), None);
    for record in records {
        let now = circumstances(record);
        if current != Some(now) {
            for (name, value) in CIRCUMSTANCES.iter().zip(now) {
                let _ = writeln!(text, "# {name}: {}", one_line(value));
            }
            if current.is_none() {
                text += HEADER;
                text.push('\n');
            }
            current = Some(now);
        }
        let GemmShape { m, k, n } = record.shape;
        let _ = write!(text, "{},{},{m},{k},{n}", record.kernel, record.gemm);
        for time in record.times().into_iter().chain([record.tail_us]) {
            let _ = write!(text, ",{}", time.map_or(String::new(), |us| rounded(us).to_string()));
        }
        let reason = one_line(record.reason.as_deref().unwrap_or_default());
        let _ = writeln!(text, ",{},{},{reason}", record.supported, record.samples);
    }
    if records.is_empty() { format!("{HEADER}\n") } else { text }
}

/// To nanoseconds. A quarter of an hour or more has none, and could not be read back once it is beyond what a float has.
fn rounded(us: f64) -> f64 {
    if us < 1e9 { (us * 1e3).round() / 1e3 } else { us }
}

fn one_line(text: &str) -> String {
    text.replace(['\n', '\r'], " ")
}

/// The records of such a text, or what is wrong with which line.
pub fn from_csv(text: &str) -> Result<Vec<KernelRecord>, String> {
    let (mut records, mut now) = (Vec::new(), [const { String::new() }; 4]);
    let (mut headed, mut has_tail, without_tail) = (false, false, HEADER.replace(TAIL, ""));
    for (index, line) in text.lines().enumerate() {
        let fault = |problem: String| format!("line {}: {problem}", index + 1);
        if let Some(comment) = line.strip_prefix('#') {
            let (name, value) = comment.split_once(':').unwrap_or((comment, ""));
            if let Some(at) = CIRCUMSTANCES.iter().position(|known| *known == name.trim()) {
                now[at] = value.trim().to_owned();
            }
        } else if (line == HEADER || line == without_tail) && !headed {
            (headed, has_tail) = (true, line == HEADER);
        } else if !line.trim().is_empty() {
            if !headed {
                return Err(fault("not the header of a kernel database".to_owned()));
            }
            records.push(record(line, has_tail, &now).map_err(fault)?);
        }
    }
    Ok(records)
}

fn record(line: &str, has_tail: bool, now: &[String; 4]) -> Result<KernelRecord, String> {
    // The reason is last and may have commas of its own.
    let times_of = 8 + usize::from(has_tail);
    let fields: Vec<&str> = line.splitn(8 + times_of, ',').collect();
    let wrong = || format!("{} columns, it must have {}", fields.len(), 8 + times_of);
    let [kernel, gemm, m, k, n, times @ .., supported, samples, reason] = fields.as_slice() else {
        return Err(wrong());
    };
    if times.len() != times_of {
        return Err(wrong());
    }
    let size = |text: &str| {
        let size = text.parse::<usize>().ok().filter(|size| *size > 0);
        size.ok_or_else(|| format!("'{text}' is not a size"))
    };
    let time = |index: usize| match times.get(index).copied().unwrap_or_default() {
        "" => Ok(None),
        text => match text.parse::<f64>() {
            Ok(us) if us >= 0.0 && us.is_finite() => Ok(Some(us)),
            _ => Err(format!("'{text}' is not a time")),
        },
    };
    let [device, driver, versions, recorded_at] = now.clone();
    Ok(KernelRecord {
        kernel: KernelId::new(kernel),
        gemm: gemm.parse()?,
        shape: GemmShape { m: size(m)?, k: size(k)?, n: size(n)? },
        gemm_us: time(0)?,
        cast_us: time(1)?,
        latency_us: time(2)?,
        latency_p10_us: time(3)?,
        latency_p90_us: time(4)?,
        latency_cached_us: time(5)?,
        latency_cached_p10_us: time(6)?,
        latency_cached_p90_us: time(7)?,
        tail_us: time(8)?,
        supported: supported.parse().map_err(|_| format!("'{supported}' is neither true nor false"))?,
        reason: (!reason.is_empty()).then(|| (*reason).to_owned()),
        samples: samples.parse().map_err(|_| format!("'{samples}' is not a count"))?,
        device,
        driver,
        versions,
        recorded_at,
        gemm_samples_us: Vec::new(),
        latency_samples_us: Vec::new(),
        cached_samples_us: Vec::new(),
        note: String::new(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::KernelDb;

    #[test]
    fn a_database_there_and_back() {
        let rounded = |us: Option<f64>| us.map(|us| (us * 1e3).round() / 1e3);
        let mut all: Vec<KernelRecord> = KernelDb::builtin().into_iter().flat_map(|db| db.records).collect();
        all[3].tail_us = Some(2.125);
        let back = from_csv(&to_csv(&all)).unwrap();
        for record in &mut all {
            record.gemm_us = rounded(record.gemm_us);
            record.cast_us = rounded(record.cast_us);
            record.latency_us = rounded(record.latency_us);
            record.latency_cached_us = rounded(record.latency_cached_us);
            record.tail_us = rounded(record.tail_us);
        }
        assert_eq!(back, all);
        assert!(all.iter().any(|record| record.reason.as_ref().is_some_and(|reason| reason.contains(", got"))));
        assert_eq!(from_csv(&to_csv(&[])), Ok(Vec::new()));
        // Found by the fuzzer: a time that has no nanoseconds, and a line that ends in the middle of a reason.
        all.truncate(1);
        (all[0].gemm_us, all[0].reason) = (Some(1e308), Some("two\rlines".to_owned()));
        let back = from_csv(&to_csv(&all)).unwrap();
        assert_eq!((back[0].gemm_us, back[0].reason.as_deref()), (Some(1e308), Some("two lines")));
    }

    #[test]
    fn broken_lines_are_named() {
        let good = "cublaslt/bf16,fprop,1,2,3,,,,,,,,,,true,0,";
        // Without the tail's column, as before.
        let before = format!("{}\n{}\n", HEADER.replace(TAIL, ""), good.replacen(",,", ",", 1));
        assert_eq!(from_csv(&before).unwrap().len(), 1);
        assert_eq!(from_csv(&format!("{HEADER}\n{good}\n")).unwrap().len(), 1);
        for (line, words) in [
            ("cublaslt/bf16,fprop,1,2,3", "line 2: 5 columns, it must have 17"),
            (&good.replace("fprop", "up"), "line 2: unknown GEMM 'up' (fprop, dgrad or wgrad)"),
            (&good.replace(",2,", ",0,"), "line 2: '0' is not a size"),
            (&good.replace("3,,", "3,-1,"), "line 2: '-1' is not a time"),
            (&good.replace("3,,", "3,NaN,"), "line 2: 'NaN' is not a time"),
            (&good.replace("true", "yes"), "line 2: 'yes' is neither true nor false"),
            (&good.replace("true,0", "true,x"), "line 2: 'x' is not a count"),
        ] {
            assert_eq!(from_csv(&format!("{HEADER}\n{line}\n")), Err(words.to_owned()));
        }
        assert_eq!(from_csv("m,k,n\n"), Err("line 1: not the header of a kernel database".to_owned()));
    }
}
