//! `loka serve` and `loka mcp` by the real binary: who comes in and what they get, sessions of several people, what is sent
//! there, and a cluster behind it. One program for all: they wait more than they work, and so do it at the same time.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test stops at the first surprise")]

#[cfg(unix)]
mod cluster;
mod http;
mod live;
mod mcp;
mod people;
mod upload;
