//! Operations that Lua asks for. What is an error of the caller's, and its words, is mostly the Lua side's.

mod balancer;
mod blocking;
pub(crate) mod capture;
pub(crate) mod control;
pub(crate) mod dict;
pub(crate) mod encode;
mod errlog;
mod headers;
mod line;
mod ocsp;
pub(crate) mod output;
pub(crate) mod pipe;
pub(crate) mod pool;
pub(crate) mod process;
mod proxy_ssl;
pub(crate) mod raw;
pub(crate) mod regex;
mod request;
pub(crate) mod semaphore;
mod session;
pub(crate) mod socket;
mod ssl;
pub(crate) mod ssl_client;
mod time;
mod timers;
mod udp;
mod var;
mod worker_thread;

use crate::machine::OpRow;
use std::sync::OnceLock;

/// All of them, by their numbers; the first one tells Lua their names.
pub(crate) fn ops() -> &'static [&'static OpRow] {
    static OPS: OnceLock<Vec<&'static OpRow>> = OnceLock::new();
    OPS.get_or_init(|| {
        let lists: [&'static [OpRow]; 26] = [
            // The first tells the names.
            control::OPS,
            balancer::OPS,
            blocking::OPS,
            errlog::OPS,
            capture::OPS,
            dict::OPS,
            output::OPS,
            headers::OPS,
            request::OPS,
            var::OPS,
            encode::OPS,
            time::OPS,
            timers::OPS,
            semaphore::OPS,
            regex::OPS,
            socket::OPS,
            raw::OPS,
            udp::OPS,
            ssl::OPS,
            ocsp::OPS,
            ssl_client::OPS,
            proxy_ssl::OPS,
            session::OPS,
            process::OPS,
            pipe::OPS,
            worker_thread::OPS,
        ];
        lists.iter().flat_map(|list| list.iter()).collect()
    })
}

/// The number of an operation; that of none where there is none of that name.
pub(crate) fn number_of(name: &str) -> i32 {
    ops().iter().position(|row| row.name == name).map_or(-1, |at| at as i32)
}
