//! JSON-RPC 2.0, one message a line: takes a line, gives the request or notification in it, or the error that answers it;
//! takes a result or an error, gives a line.

use serde_json::{Map, Value, json};

/// Errors by the numbers that JSON-RPC and MCP have for them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Code {
    Parse,
    InvalidRequest,
    MethodNotFound,
    InvalidParams,
    Internal,
    /// MCP 2026-07-28.
    UnsupportedVersion,
}

impl Code {
    fn number(self) -> i32 {
        match self {
            Self::Parse => -32700,
            Self::InvalidRequest => -32600,
            Self::MethodNotFound => -32601,
            Self::InvalidParams => -32602,
            Self::Internal => -32603,
            Self::UnsupportedVersion => -32022,
        }
    }
}

/// Why a request has no result.
#[derive(Clone, Debug, PartialEq)]
pub struct RpcError {
    pub code: Code,
    pub message: String,
    pub data: Option<Value>,
}

impl RpcError {
    pub fn new(code: Code, message: impl Into<String>) -> Self {
        Self { code, message: message.into(), data: None }
    }

    pub fn params(message: impl Into<String>) -> Self {
        Self::new(Code::InvalidParams, message)
    }
}

/// Text or a whole number, as it came.
pub type RequestId = Value;

#[derive(Clone, Debug, PartialEq)]
pub struct Request {
    pub id: RequestId,
    pub method: String,
    pub params: Map<String, Value>,
}

/// What a line, or one of a batch, is.
#[derive(Clone, Debug, PartialEq)]
pub enum Incoming {
    Request(Request),
    Notification {
        method: String,
        params: Map<String, Value>,
    },
    /// An answer: to nothing, since this server asks nothing.
    Response,
    /// It is answered with that, under the id that it has, if it has one.
    Wrong(RequestId, RpcError),
}

/// A line of its own, or several at once.
#[derive(Clone, Debug, PartialEq)]
pub enum Message {
    One(Incoming),
    Batch(Vec<Incoming>),
}

pub fn read(line: &str) -> Message {
    match serde_json::from_str::<Value>(line) {
        Err(error) => Message::One(wrong(Value::Null, Code::Parse, format!("not JSON: {error}"))),
        Ok(Value::Array(all)) if all.is_empty() => {
            Message::One(wrong(Value::Null, Code::InvalidRequest, "an empty batch".to_owned()))
        }
        Ok(Value::Array(all)) => Message::Batch(all.into_iter().map(incoming).collect()),
        Ok(one) => Message::One(incoming(one)),
    }
}

fn wrong(id: RequestId, code: Code, message: String) -> Incoming {
    Incoming::Wrong(id, RpcError::new(code, message))
}

fn incoming(value: Value) -> Incoming {
    let Value::Object(mut fields) = value else {
        return wrong(Value::Null, Code::InvalidRequest, "a message is an object".to_owned());
    };
    let id = fields.remove("id");
    let is_id = |id: &Value| id.is_string() || id.is_i64() || id.is_u64();
    // What it is answered under, whatever else is wrong with it.
    let known = id.clone().filter(is_id).unwrap_or(Value::Null);
    let invalid = |message: &str| wrong(known.clone(), Code::InvalidRequest, message.to_owned());
    if fields.get("jsonrpc").and_then(Value::as_str) != Some("2.0") {
        return invalid("jsonrpc is not \"2.0\"");
    }
    let method = match fields.remove("method") {
        Some(Value::String(method)) => method,
        Some(_) => return invalid("method is no text"),
        None if fields.contains_key("result") || fields.contains_key("error") => return Incoming::Response,
        None => return invalid("there is no method"),
    };
    let params = match fields.remove("params") {
        None => Map::new(),
        Some(Value::Object(params)) => params,
        Some(_) if id.is_none() => Map::new(),
        Some(_) => return wrong(known, Code::InvalidParams, "params is no object".to_owned()),
    };
    match id {
        None => Incoming::Notification { method, params },
        Some(id) if is_id(&id) => Incoming::Request(Request { id, method, params }),
        Some(_) => invalid("id is neither text nor a whole number"),
    }
}

pub fn answer(id: &RequestId, outcome: Result<Value, RpcError>) -> Value {
    match outcome {
        Ok(result) => json!({"jsonrpc": "2.0", "id": id, "result": result}),
        Err(RpcError { code, message, data }) => {
            let mut error = json!({"code": code.number(), "message": message});
            if let Some(data) = data {
                error["data"] = data;
            }
            json!({"jsonrpc": "2.0", "id": id, "error": error})
        }
    }
}

pub fn notification(method: &str, params: &Value) -> Value {
    json!({"jsonrpc": "2.0", "method": method, "params": params})
}

#[cfg(test)]
mod tests {
    use super::*;

    fn code(line: &str) -> (Value, i32) {
        match read(line) {
            Message::One(Incoming::Wrong(id, error)) => (id, error.code.number()),
            other => panic!("{line}: {other:?}"),
        }
    }

    #[test]
    fn requests_notifications_and_answers_are_told_apart() {
        let request = read(r#"{"jsonrpc":"2.0","id":"a","method":"ping","params":{"x":1}}"#);
        let Message::One(Incoming::Request(request)) = request else { panic!("{request:?}") };
        assert_eq!((request.id, request.method.as_str(), request.params.len()), (json!("a"), "ping", 1));
        let one = |line| match read(line) {
            Message::One(one) => one,
            Message::Batch(all) => panic!("{all:?}"),
        };
        assert!(matches!(one(r#"{"jsonrpc":"2.0","method":"x","params":[1]}"#), Incoming::Notification { .. }));
        assert_eq!(one(r#"{"jsonrpc":"2.0","id":3,"result":{}}"#), Incoming::Response);
        assert!(matches!(read(r#"[{"jsonrpc":"2.0","id":3,"method":"ping"}]"#), Message::Batch(all) if all.len() == 1));
    }

    #[test]
    fn every_wrong_message_has_one_error_under_its_id() {
        let null = Value::Null;
        for (line, id, number) in [
            ("", &null, -32700),
            ("{", &null, -32700),
            ("\u{1}", &null, -32700),
            ("[]", &null, -32600),
            ("3", &null, -32600),
            ("null", &null, -32600),
            (r#"{"id":1,"method":"ping"}"#, &json!(1), -32600),
            (r#"{"jsonrpc":"1.0","id":1,"method":"ping"}"#, &json!(1), -32600),
            (r#"{"jsonrpc":"2.0","id":1}"#, &json!(1), -32600),
            (r#"{"jsonrpc":"2.0","id":1,"method":7}"#, &json!(1), -32600),
            (r#"{"jsonrpc":"2.0","id":null,"method":"ping"}"#, &null, -32600),
            (r#"{"jsonrpc":"2.0","id":1.5,"method":"ping"}"#, &null, -32600),
            (r#"{"jsonrpc":"2.0","id":{},"method":"ping"}"#, &null, -32600),
            (r#"{"jsonrpc":"2.0","id":"x","method":"ping","params":[1]}"#, &json!("x"), -32602),
        ] {
            assert_eq!(code(line), (id.clone(), number), "{line}");
        }
        // As deep as it likes: a parser that calls itself must not run out of stack.
        assert_eq!(code(&"[".repeat(1_000_000)).1, -32700);
        assert_eq!(code(&format!("{}1", r#"{"a":"#.repeat(100_000))).1, -32700);
    }

    #[test]
    fn errors_have_their_data() {
        let error = RpcError { data: Some(json!({"supported": []})), ..RpcError::params("no") };
        let answer = answer(&json!(4), Err(error));
        assert_eq!(
            answer.to_string(),
            r#"{"error":{"code":-32602,"data":{"supported":[]},"message":"no"},"id":4,"jsonrpc":"2.0"}"#
        );
    }
}
