//! MCP's versions: takes a request, gives which it is of. Two ways to agree on one: a handshake first (`initialize`, up to
//! 2025-11-25), or a version with every request (2026-07-28).

use serde_json::{Value, json};

use super::message::{Code, Request, RpcError};

/// Versions that begin with `initialize`, the newest first.
const HANDSHAKE: [&str; 4] = ["2025-11-25", "2025-06-18", "2025-03-26", "2024-11-05"];
/// Versions that every request names.
const STATELESS: [&str; 1] = ["2026-07-28"];
/// The only version in which several messages come on one line.
const BATCHES: &str = "2025-03-26";

const VERSION_KEY: &str = "io.modelcontextprotocol/protocolVersion";
const CAPABILITIES_KEY: &str = "io.modelcontextprotocol/clientCapabilities";
const SERVER_KEY: &str = "io.modelcontextprotocol/serverInfo";

/// What a client may keep: what this program can do does not change while it runs, the session does.
const CACHED: [(&str, u64); 5] = [
    ("server/discover", 3_600_000),
    ("tools/list", 3_600_000),
    ("prompts/list", 3_600_000),
    ("resources/templates/list", 3_600_000),
    ("resources/list", 0),
];

/// How a request's version was agreed on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Era {
    Handshake,
    Stateless,
}

/// What was agreed on by `initialize`.
#[derive(Debug, Default)]
pub struct Protocol {
    negotiated: Option<&'static str>,
}

impl Protocol {
    pub fn takes_batches(&self) -> bool {
        self.negotiated == Some(BATCHES)
    }

    pub fn era_of(&self, request: &Request) -> Result<Era, RpcError> {
        let meta = request.params.get("_meta").and_then(Value::as_object);
        let Some(asked) = meta.and_then(|meta| meta.get(VERSION_KEY)) else {
            let first = matches!(request.method.as_str(), "initialize" | "ping");
            if self.negotiated.is_some() || first {
                return Ok(Era::Handshake);
            }
            let message = format!("say initialize first, or name a version in _meta: {VERSION_KEY}");
            // Also the answer to a `server/discover` that names none.
            return Err(RpcError::params(message));
        };
        let asked = asked.as_str().ok_or_else(|| RpcError::params(format!("{VERSION_KEY} is no text")))?;
        if !STATELESS.contains(&asked) {
            return Err(RpcError {
                code: Code::UnsupportedVersion,
                message: "Unsupported protocol version".to_owned(),
                data: Some(json!({"supported": supported(), "requested": asked})),
            });
        }
        let capabilities = meta.and_then(|meta| meta.get(CAPABILITIES_KEY));
        if !capabilities.is_some_and(Value::is_object) {
            return Err(RpcError::params(format!("{CAPABILITIES_KEY} is missing in _meta")));
        }
        Ok(Era::Stateless)
    }

    /// The version asked for, or the newest that has a handshake.
    pub fn negotiate(&mut self, asked: &str) -> &'static str {
        let version = HANDSHAKE.into_iter().find(|known| *known == asked).unwrap_or(HANDSHAKE[0]);
        self.negotiated = Some(version);
        version
    }
}

pub fn supported() -> Vec<&'static str> {
    STATELESS.into_iter().chain(HANDSHAKE).collect()
}

pub fn server_info() -> Value {
    json!({"name": "loka", "title": "LoKA", "version": env!("CARGO_PKG_VERSION")})
}

/// What a result has besides in a version without a handshake.
pub fn stateless(mut result: Value, method: &str) -> Value {
    result["resultType"] = json!("complete");
    result["_meta"] = json!({SERVER_KEY: server_info()});
    let cached = CACHED.into_iter().find(|(known, _)| *known == method).map(|(_, ttl)| ttl);
    if let Some(ttl) = cached.or((method == "resources/read").then_some(0)) {
        result["ttlMs"] = json!(ttl);
        result["cacheScope"] = json!("private");
    }
    result
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(method: &str, params: Value) -> Request {
        let Value::Object(params) = params else { panic!("{params}") };
        Request { id: json!(1), method: method.to_owned(), params }
    }

    #[test]
    fn a_known_version_is_kept_and_an_unknown_one_answered_with_the_newest() {
        let mut protocol = Protocol::default();
        for version in HANDSHAKE {
            assert_eq!(protocol.negotiate(version), version);
        }
        for asked in ["", "2026-07-28", "2099-01-01", "1"] {
            assert_eq!(protocol.negotiate(asked), "2025-11-25");
        }
    }

    #[test]
    fn nothing_is_served_before_a_version_is_agreed_on() {
        let mut protocol = Protocol::default();
        let early = protocol.era_of(&request("tools/list", json!({}))).unwrap_err();
        assert_eq!(early.code, Code::InvalidParams);
        assert_eq!(protocol.era_of(&request("initialize", json!({}))), Ok(Era::Handshake));
        protocol.negotiate("2025-11-25");
        assert_eq!(protocol.era_of(&request("tools/list", json!({}))), Ok(Era::Handshake));
    }

    #[test]
    fn a_request_that_names_its_version_needs_no_handshake() {
        let protocol = Protocol::default();
        let with = |version: Value, capabilities: Value| {
            let meta = json!({"_meta": {VERSION_KEY: version, CAPABILITIES_KEY: capabilities}});
            protocol.era_of(&request("tools/list", meta))
        };
        assert_eq!(with(json!("2026-07-28"), json!({})), Ok(Era::Stateless));
        let other = with(json!("1900-01-01"), json!({})).unwrap_err();
        assert_eq!(other.code, Code::UnsupportedVersion);
        assert_eq!(other.data.unwrap()["requested"], "1900-01-01");
        assert_eq!(with(json!(7), json!({})).unwrap_err().code, Code::InvalidParams);
        assert_eq!(with(json!("2026-07-28"), json!(null)).unwrap_err().code, Code::InvalidParams);
        assert!(!protocol.takes_batches());
    }
}
