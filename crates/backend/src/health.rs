//! `health_check` and `match` (NGINX Plus's `ngx_http_upstream_hc_module`): servers are asked for a page, or by
//! gRPC's health protocol, in the way of the location that the directive stands in: with its fields, TLS and
//! timeouts.
//!
//! A question is a request of this server's own ([`Request::own`]) that the location's family writes; what reads
//! the answer is what reads answers for clients. Of a body no more than [`BODY_MAX_BYTES`] are looked at.
//!
//! Differences from NGINX Plus are in the rows' notes.
//!
//! [`Request::own`]: weir_http::Request::own

mod ask;
mod grpc;
mod matching;
pub(crate) mod rows;

use crate::conf::ConfOf;
use crate::target::Fixed;
use matching::Match;
use std::collections::BTreeMap;
use std::sync::Arc;
use weir_conf::Position;
use weir_module::{slot, ConfResult, ConfType, Level};
use weir_upstream::health::{Board, Rule};

/// More of an answer's body is not read.
const BODY_MAX_BYTES: usize = 256 * 1024;

/// gRPC's own health protocol.
#[derive(Clone, Debug, Default)]
struct Grpc {
    service: Vec<u8>,
    /// What is to be answered in place of "serving".
    status: Option<u64>,
}

/// What a server is asked.
#[derive(Clone, Debug)]
struct Question {
    uri: Vec<u8>,
    grpc: Option<Grpc>,
    /// At another port than sessions.
    port: Option<u16>,
    /// How long a connection is used for one question after another; 0 for not at all.
    keepalive_ms: u64,
}

/// `health_check` as read.
struct Declared {
    question: Question,
    rule: Rule,
    /// The name of a `match`; empty for none.
    wanted: Vec<u8>,
    at: Position,
}

/// A location's own: those inside have none of it.
#[derive(Default)]
struct HealthLoc {
    checks: Vec<Declared>,
}

impl ConfType for HealthLoc {
    const LEVEL: Level = Level::Location;
    slot!();

    fn merge(&mut self, _: &HealthLoc) -> ConfResult {
        Ok(())
    }
}

/// One check that has been built.
struct Check {
    board: Arc<Board>,
    /// The location whose way its questions go, by its number.
    location: usize,
    conf_of: ConfOf,
    pass: Arc<Fixed>,
    question: Question,
    wanted: Option<Arc<Match>>,
    /// In lines of the log.
    titles: (String, String),
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
