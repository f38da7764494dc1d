//! Lua in requests and in sessions of `stream`: OpenResty's directives and interface on LuaJIT.
//!
//! A worker has one Lua state for each generation of the configuration and block with code ([`vm`]). A handler is a coroutine of it and
//! what Lua calls a *run*: Lua's side keeps its threads, Rust's side what they wait for ([`run`]). The two meet in
//! [`border`], the only file with `unsafe`, by two functions: Rust enters a run, Lua asks for an operation
//! ([`api`]). The request is lent for the time of one entry and never kept.

#![warn(missing_docs, unreachable_pub)]

mod apart;
mod api;
mod balancer;
mod border;
mod code;
mod conf;
mod crossing;
mod filters;
mod machine;
mod phases;
pub mod profile;
mod proxy_ssl;
mod rows;
mod run;
mod site;
mod ssl;
mod stream;
mod symbols;
mod trim;
mod vm;
mod watch;

pub use api::process::has_master;
pub use filters::FILTERS;
pub use proxy_ssl::{MODULE as PROXY_SSL, STREAM as STREAM_PROXY_SSL};
pub use rows::dicts;
pub use rows::{FIRST, LAST, LOGS, MODULE};
pub use ssl::MODULE as SSL;
pub use stream::rows::{MODULE as STREAM, POSTPONED as STREAM_POSTPONED};
pub use vm::attempt_init;
