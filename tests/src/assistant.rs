//! `loka mcp` as a client has it: the real binary on pipes, requests with their answers, and lines of any kind.

#![allow(clippy::expect_used, reason = "a test stops at the first surprise")]
#![allow(clippy::needless_pass_by_value, reason = "what is asked is written where it is asked")]

use std::{
    ffi::OsStr,
    io::{BufRead as _, BufReader, Write as _},
    path::Path,
    process::{Child, ChildStdin, Command, Stdio},
    sync::mpsc::{Receiver, channel},
    time::Duration,
};

use serde_json::{Value, json};

use crate::loka;

/// No answer takes longer: a debug build opens a trace and its results meanwhile.
const PATIENCE: Duration = Duration::from_secs(120);

/// A running server, killed when it is dropped.
pub struct Assistant {
    child: Child,
    stdin: Option<ChildStdin>,
    lines: Receiver<String>,
    last_id: u64,
}

impl Assistant {
    pub fn start<S: AsRef<OsStr>>(folder: &Path, args: impl IntoIterator<Item = S>) -> Self {
        let mut command = Command::new(loka());
        command.arg("mcp").args(args).current_dir(folder);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut child = command.spawn().unwrap();
        let (stdin, stdout) = (child.stdin.take(), child.stdout.take().unwrap());
        let (sender, lines) = channel();
        std::thread::spawn(move || {
            for line in BufReader::new(stdout).lines() {
                if sender.send(line.unwrap()).is_err() {
                    return;
                }
            }
        });
        Self { child, stdin, lines, last_id: 0 }
    }

    /// The same after the handshake.
    pub fn greeted<S: AsRef<OsStr>>(folder: &Path, args: impl IntoIterator<Item = S>) -> Self {
        let mut assistant = Self::start(folder, args);
        let params = json!({"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "test", "version": "1"}});
        let answer = assistant.ask("initialize", params);
        assert_eq!(answer["result"]["protocolVersion"], "2025-11-25", "{answer}");
        assistant.say(&json!({"jsonrpc": "2.0", "method": "notifications/initialized"}).to_string());
        assistant
    }

    /// A line as it is.
    pub fn say(&mut self, line: &str) {
        self.say_bytes(format!("{line}\n").as_bytes());
    }

    pub fn say_bytes(&mut self, bytes: &[u8]) {
        let stdin = self.stdin.as_mut().unwrap();
        stdin.write_all(bytes).unwrap();
        stdin.flush().unwrap();
    }

    /// The next line, which has to be a message.
    #[track_caller]
    pub fn hear(&mut self) -> Value {
        let line = self.lines.recv_timeout(PATIENCE).expect("no answer comes");
        let message: Value = serde_json::from_str(&line).unwrap_or_else(|error| panic!("{error}: {line}"));
        let of = |one: &Value| one["jsonrpc"] == "2.0";
        assert!(message.as_array().map_or_else(|| of(&message), |all| all.iter().all(of)), "{line}");
        message
    }

    #[track_caller]
    pub fn ask(&mut self, method: &str, params: Value) -> Value {
        self.last_id += 1;
        let id = self.last_id;
        self.say(&json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params}).to_string());
        loop {
            let message = self.hear();
            if message["id"] == id {
                return message;
            }
            assert!(message["id"].is_null() && message["method"].is_string(), "unasked: {message}");
        }
    }

    /// A tool's result: its text and its data. `Err`: what is wrong, in words.
    #[track_caller]
    pub fn call(&mut self, tool: &str, arguments: Value) -> Result<(String, Value), String> {
        let answer = self.ask("tools/call", json!({"name": tool, "arguments": arguments}));
        let result = &answer["result"];
        assert!(result.is_object(), "{answer}");
        let text = result["content"][0]["text"].as_str().unwrap().to_owned();
        if result["isError"] == true { Err(text) } else { Ok((text, result["structuredContent"].clone())) }
    }

    /// Says no more; the exit code.
    pub fn end(mut self) -> Option<i32> {
        self.stdin = None;
        let start = std::time::Instant::now();
        loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                assert_eq!(self.lines.recv_timeout(PATIENCE).ok(), None, "something was left to say");
                return status.code();
            }
            assert!(start.elapsed() < PATIENCE, "it does not end");
            std::thread::sleep(Duration::from_millis(10));
        }
    }
}

impl Drop for Assistant {
    fn drop(&mut self) {
        drop(self.child.kill());
        drop(self.child.wait());
    }
}
