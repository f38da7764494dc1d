//! `check` (Tengine's `ngx_http_upstream_check_module`): servers of an upstream are asked by one of a few
//! protocols, whatever requests are passed on by, and `check_status` shows what was found out.
//!
//! A question has `timeout` in all. Of an answer no more is read than decides, and of a body that stands in the
//! way of the next question no more than [`BODY_MAX_BYTES`].

mod ask;
mod rows;
mod status;

pub use rows::MODULE;

use std::collections::BTreeMap;
use std::sync::Arc;
use weir_module::{slot, ConfType, Level};
use weir_upstream::health::{Board, Rule};
use weir_upstream::UpstreamRef;

const BODY_MAX_BYTES: usize = 64 * 1024;

/// What servers are asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Tcp,
    Http,
    SslHello,
    Mysql,
    Ajp,
    Fastcgi,
}

impl Kind {
    const NAMES: [(&str, Kind); 6] = [
        ("tcp", Kind::Tcp),
        ("http", Kind::Http),
        ("ssl_hello", Kind::SslHello),
        ("mysql", Kind::Mysql),
        ("ajp", Kind::Ajp),
        ("fastcgi", Kind::Fastcgi),
    ];

    fn name(self) -> &'static str {
        Kind::NAMES.iter().find(|(_, kind)| *kind == self).map_or("", |(name, _)| name)
    }
}

/// `check` itself.
#[derive(Clone)]
struct How {
    kind: Kind,
    rule: Rule,
    timeout_ms: u64,
    /// Servers are asked at another port than requests are passed on to.
    port: Option<u16>,
}

/// What an upstream says of its checks.
#[derive(Clone)]
struct Declared {
    how: Option<How>,
    send: Vec<u8>,
    /// The classes of statuses (2 for 2xx) that are good.
    alive: Vec<u16>,
    /// Questions that a connection carries.
    requests: u64,
    params: Vec<(Vec<u8>, Vec<u8>)>,
}

impl Default for Declared {
    fn default() -> Declared {
        let param = |name: &str, value: &str| (name.into(), value.into());
        Declared {
            how: None,
            send: b"GET / HTTP/1.0\r\n\r\n".to_vec(),
            alive: vec![2, 3],
            requests: 1,
            params: vec![
                param("REQUEST_METHOD", "GET"),
                param("REQUEST_URI", "/"),
                param("SCRIPT_FILENAME", "index.php"),
            ],
        }
    }
}

/// A check that has been built.
struct Check {
    board: Arc<Board>,
    how: How,
    /// What is sent.
    send: Vec<u8>,
    alive: Vec<u16>,
    requests: u64,
}

#[derive(Default)]
struct CheckMain {
    /// By the upstreams' places.
    declared: BTreeMap<usize, (UpstreamRef, Declared)>,
    checks: Vec<Arc<Check>>,
}

impl ConfType for CheckMain {
    const LEVEL: Level = Level::Main;
    slot!();
}
