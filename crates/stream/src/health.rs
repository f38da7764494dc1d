//! `health_check` and `match` of `stream` (NGINX Plus's `ngx_stream_upstream_hc_module`): servers are connected to
//! in the way of the server block that the directive stands in (its TLS, its addresses, its timeouts), or sent a
//! datagram; a `match` says what is sent, and what is to come.

mod ask;
mod rows;

pub use rows::MODULE;

use std::collections::BTreeMap;
use std::sync::Arc;
use weir_conf::Position;
use weir_module::{merge_values, slot, ConfResult, ConfType, Level, Val};
use weir_script::regex::Regex;
use weir_upstream::health::{Board, Rule};

/// What has to come.
enum Expected {
    /// First of all.
    Bytes(Vec<u8>),
    /// Anywhere.
    Like(Regex),
}

/// One `match` block.
#[derive(Default)]
struct Match {
    send: Vec<u8>,
    expect: Option<Expected>,
}

/// `health_check` as read.
struct Declared {
    rule: Rule,
    /// The name of a `match`; empty for none.
    wanted: Vec<u8>,
    /// Servers are asked at another port than sessions are.
    port: Option<u16>,
    udp: bool,
    at: Position,
}

#[derive(Default)]
struct HealthSrv {
    check: Option<Declared>,
    timeout_ms: Val<u64>,
}

impl ConfType for HealthSrv {
    const LEVEL: Level = Level::Server;
    slot!();

    fn merge(&mut self, parent: &HealthSrv) -> ConfResult {
        merge_values!(self, parent; timeout_ms = 5000);
        Ok(())
    }
}

/// One check that has been built.
struct Check {
    board: Arc<Board>,
    /// The server whose way its questions go, by its number.
    server: usize,
    wanted: Option<Arc<Match>>,
    port: Option<u16>,
    udp: bool,
    timeout_ms: u64,
}

#[derive(Default)]
struct HealthMain {
    matches: BTreeMap<Vec<u8>, Arc<Match>>,
    checks: Vec<Arc<Check>>,
}

impl ConfType for HealthMain {
    const LEVEL: Level = Level::Main;
    slot!();
}
