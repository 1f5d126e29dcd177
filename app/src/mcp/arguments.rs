//! What a tool is asked for: takes arguments as a model wrote them, gives them read, or one line that says what was expected.

use loka_core::{
    model::{Gemm, KernelId, Metric, SiteId, catalogue},
    session::Session,
};
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};

use crate::nearest::did_you_mean;

/// Characters of a name that is repeated in an error.
const SHOWN: usize = 80;

/// All of them: one that is not known is refused, or a slip of the model would pass for an answer.
pub fn read<T: DeserializeOwned>(arguments: Map<String, Value>) -> Result<T, String> {
    serde_json::from_value(Value::Object(arguments)).map_err(|error| format!("arguments: {error}"))
}

fn shown(name: &str) -> String {
    loka_core::model::visible_within(name, SHOWN)
}

/// A site of the open trace by its whole name.
pub fn site(session: &Session, name: &str) -> Result<SiteId, String> {
    let id = SiteId::new(name);
    if session.index().at(&id).is_some() {
        return Ok(id);
    }
    let known = session.index().ids().iter().map(SiteId::as_str);
    Err(format!("no site is called '{}'{}", shown(name), did_you_mean(name, known)))
}

pub fn gemm(name: &str) -> Result<Gemm, String> {
    name.parse().map_err(|_| format!("no GEMM is called '{}': there are fprop, dgrad and wgrad", shown(name)))
}

pub fn metric(name: &str) -> Result<Metric, String> {
    let known = Metric::ALL.map(|metric| (metric.as_str(), metric));
    word("metric", name, &known)
}

/// A kernel of the catalogue.
pub fn kernel(name: &str) -> Result<KernelId, String> {
    if catalogue().iter().any(|kernel| kernel.name == name) {
        return Ok(KernelId::new(name));
    }
    let known = catalogue().iter().map(|kernel| kernel.name);
    Err(format!("no kernel is called '{}'{}", shown(name), did_you_mean(name, known)))
}

/// One of a few words.
pub fn word<T: Copy>(what: &str, given: &str, known: &[(&str, T)]) -> Result<T, String> {
    known.iter().find(|(word, _)| *word == given).map(|(_, value)| *value).ok_or_else(|| {
        let words: Vec<&str> = known.iter().map(|(word, _)| *word).collect();
        format!("no {what} is called '{}': there are {}", shown(given), words.join(", "))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_unknown_is_named_with_what_there_is() {
        assert_eq!(gemm("forward").unwrap_err(), "no GEMM is called 'forward': there are fprop, dgrad and wgrad");
        let line = kernel("cublaslt/fp8-rowise").unwrap_err();
        assert!(line.contains("did you mean 'cublaslt/fp8-rowwise'"), "{line}");
        assert_eq!(word("order", "time", &[("time", 1)]), Ok(1));
        assert_eq!(word("order", "x", &[("a", 1), ("b", 2)]).unwrap_err(), "no order is called 'x': there are a, b");
        assert!(gemm(&"x".repeat(1_000_000)).unwrap_err().len() < 200);
    }
}
