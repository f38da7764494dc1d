//! Which tables there are, and what is in them. Columns that a narrow screen has no room for are the last ones.

use crate::table::What::{Busy, Bytes, BytesRate, Count, Rate, Share, State, Text, Time, Used};
use crate::table::{Column, Rows, Table, What};

const fn col(title: &'static str, key: &'static str, what: What) -> Column {
    Column { title, key, what }
}

const fn table(
    (title, key): (&'static str, &'static str),
    path: &'static str,
    rows: Rows,
    columns: &'static [Column],
    none: &'static str,
) -> Table {
    Table { title, key, path, rows, is_own: false, columns, none }
}

pub const WHOLE: usize = 0;
pub const SERVERS: usize = 1;

/// Of the whole, in [`WHOLE`].
pub mod whole {
    pub const VERSION: usize = 0;
    pub const PID: usize = 1;
    pub const ACTIVE: usize = 2;
    pub const IDLE: usize = 3;
    pub const ACCEPTED: usize = 4;
    pub const DROPPED: usize = 5;
    pub const REQUESTS: usize = 6;
    pub const CURRENT: usize = 7;
    pub const HANDSHAKES: usize = 8;
}

/// Of a server, in [`SERVERS`].
pub mod server {
    pub const OK: usize = 1;
    pub const MOVED: usize = 2;
    pub const REFUSED: usize = 3;
    pub const FAILED: usize = 4;
    pub const P50: usize = 5;
    pub const P95: usize = 6;
    pub const P99: usize = 7;
    pub const RECEIVED: usize = 8;
    pub const SENT: usize = 9;
}

/// Of requests, for servers and locations alike.
const REQUESTS: &[Column] = &[
    col("req/s", "requests_per_second", Rate(&["requests"])),
    col("2xx/s", "2xx_per_second", Rate(&["responses/2xx"])),
    col("3xx/s", "3xx_per_second", Rate(&["responses/3xx"])),
    col("4xx/s", "4xx_per_second", Rate(&["responses/4xx"])),
    col("5xx/s", "5xx_per_second", Rate(&["responses/5xx"])),
    col("p50", "p50_ms", Time("latency", 0.5)),
    col("p95", "p95_ms", Time("latency", 0.95)),
    col("p99", "p99_ms", Time("latency", 0.99)),
    col("in/s", "received_bytes_per_second", BytesRate(&["received"])),
    col("out/s", "sent_bytes_per_second", BytesRate(&["sent"])),
    col("now", "processing", Count("processing")),
    col("total", "requests", Count("requests")),
    col("closed/s", "discarded_per_second", Rate(&["discarded"])),
    col("tls/s", "handshakes_per_second", Rate(&["ssl/handshakes"])),
];

const CACHE_USED: &[&str] =
    &["hit/responses", "stale/responses", "updating/responses", "revalidated/responses"];
const CACHE_ALL: &[&str] = &[
    "hit/responses",
    "stale/responses",
    "updating/responses",
    "revalidated/responses",
    "miss/responses",
    "expired/responses",
    "bypass/responses",
];

const TABLES_OF_ALL: [Table; 8] = [
    table(
        ("All", "whole"),
        "",
        Rows::One,
        &[
            col("version", "version", Text("nginx/version")),
            col("pid", "pid", Text("nginx/pid")),
            col("active", "active", Count("connections/active")),
            col("idle", "idle", Count("connections/idle")),
            col("conn/s", "connections_per_second", Rate(&["connections/accepted"])),
            col("dropped/s", "dropped_per_second", Rate(&["connections/dropped"])),
            col("req/s", "requests_per_second", Rate(&["http/requests/total"])),
            col("now", "requests_current", Count("http/requests/current")),
            col("tls/s", "handshakes_per_second", Rate(&["ssl/handshakes"])),
        ],
        "",
    ),
    table(
        ("Servers", "server_zones"),
        "http/server_zones",
        Rows::Named,
        REQUESTS,
        "no server of http",
    ),
    table(
        ("Locations", "location_zones"),
        "http/location_zones",
        Rows::Named,
        REQUESTS,
        "no location is counted by itself: write \"status_zone NAME;\" in those that are to be",
    ),
    table(
        ("Servers of upstreams", "upstreams"),
        "http/upstreams",
        Rows::Peers,
        &[
            col("state", "state", State("state")),
            col("req/s", "requests_per_second", Rate(&["requests"])),
            col("now", "active", Count("active")),
            col("of", "max_conns", Count("max_conns")),
            col("5xx/s", "5xx_per_second", Rate(&["responses/5xx"])),
            col("fails/s", "fails_per_second", Rate(&["fails"])),
            col("p50", "p50_ms", Time("latency/response", 0.5)),
            col("p95", "p95_ms", Time("latency/response", 0.95)),
            col("p99", "p99_ms", Time("latency/response", 0.99)),
            col("connect", "connect_p95_ms", Time("latency/connect", 0.95)),
            col("in/s", "received_bytes_per_second", BytesRate(&["received"])),
            col("out/s", "sent_bytes_per_second", BytesRate(&["sent"])),
            col("4xx/s", "4xx_per_second", Rate(&["responses/4xx"])),
            col("fails", "fails", Count("fails")),
            col("weight", "weight", Text("weight")),
            col("backup", "backup", Text("backup")),
            col("checks/s", "checks_per_second", Rate(&["health_checks/checks"])),
            col("bad/s", "checks_failed_per_second", Rate(&["health_checks/fails"])),
        ],
        "no request is passed on: there is no upstream",
    ),
    table(
        ("Caches", "caches"),
        "http/caches",
        Rows::Named,
        &[
            col("hits", "hit_percent", Share(CACHE_USED, CACHE_ALL)),
            col("req/s", "requests_per_second", Rate(CACHE_ALL)),
            col("hit/s", "hits_per_second", Rate(&["hit/responses"])),
            col("miss/s", "misses_per_second", Rate(&["miss/responses"])),
            col("stale/s", "stale_per_second", Rate(&["stale/responses", "updating/responses"])),
            col("expired/s", "expired_per_second", Rate(&["expired/responses"])),
            col("bypass/s", "bypass_per_second", Rate(&["bypass/responses"])),
            col("size", "size", Bytes("size")),
            col("full", "size_percent", Used("size", "max_size")),
            col("entries", "entries", Count("entries")),
            col("memory", "memory_bytes", Bytes("memory_bytes")),
            col("out/s", "bytes_per_second", BytesRate(&["hit/bytes", "miss/bytes"])),
            col(
                "evicted/s",
                "evicted_per_second",
                Rate(&["evictions/size", "evictions/keys", "evictions/memory"]),
            ),
        ],
        "nothing is stored: there is no proxy_cache_path",
    ),
    table(
        ("Limits of requests", "limit_reqs"),
        "http/limit_reqs",
        Rows::Named,
        &[
            col("passed/s", "passed_per_second", Rate(&["passed"])),
            col("delayed/s", "delayed_per_second", Rate(&["delayed"])),
            col("refused/s", "rejected_per_second", Rate(&["rejected"])),
            col("refused", "rejected", Count("rejected")),
            col("dry run/s", "dry_run_per_second", Rate(&["delayed_dry_run", "rejected_dry_run"])),
            col("full", "used_percent", Used("used_bytes", "size_bytes")),
            col("size", "size_bytes", Bytes("size_bytes")),
        ],
        "there is no limit_req_zone",
    ),
    table(
        ("Limits of connections", "limit_conns"),
        "http/limit_conns",
        Rows::Named,
        LIMIT_CONNS,
        "there is no limit_conn_zone in http",
    ),
    table(
        ("Shared memory", "slabs"),
        "slabs",
        Rows::Named,
        &[
            col("used", "pages_used", Count("pages/used")),
            col("free", "pages_free", Count("pages/free")),
        ],
        "no zones",
    ),
];

const LIMIT_CONNS: &[Column] = &[
    col("passed/s", "passed_per_second", Rate(&["passed"])),
    col("refused/s", "rejected_per_second", Rate(&["rejected"])),
    col("refused", "rejected", Count("rejected")),
    col("dry run/s", "dry_run_per_second", Rate(&["rejected_dry_run"])),
    col("full", "used_percent", Used("used_bytes", "size_bytes")),
    col("size", "size_bytes", Bytes("size_bytes")),
];

const OTHER_TABLES: [Table; 8] = [
    Table {
        is_own: true,
        ..table(
            ("System", "system"),
            "system",
            Rows::Listed("name"),
            &[
                col("used", "used", Count("used")),
                col("of", "max", Count("max")),
                col("full", "used_percent", Used("used", "max")),
            ],
            "the system's limits are not told by this server",
        )
    },
    Table {
        is_own: true,
        ..table(
            ("Workers", "workers"),
            "workers",
            Rows::Listed("id"),
            &[
                col("busy", "busy_percent", Busy("busy_time")),
                col("req/s", "requests_per_second", Rate(&["http/requests/total"])),
                col("conn/s", "connections_per_second", Rate(&["connections/accepted"])),
                col("active", "active", Count("connections/active")),
                col("idle", "idle", Count("connections/idle")),
                col("waits", "queued_percent", Busy("queued_time")),
                col("in turn ms", "busy_ms", Count("busy_ms")),
                col("dropped/s", "dropped_per_second", Rate(&["connections/dropped"])),
                col("pid", "pid", Text("pid")),
            ],
            "workers are not told by this server",
        )
    },
    table(
        ("Stream servers", "stream_server_zones"),
        "stream/server_zones",
        Rows::Named,
        &[
            col("conn/s", "connections_per_second", Rate(&["connections"])),
            col("now", "processing", Count("processing")),
            col("2xx/s", "2xx_per_second", Rate(&["sessions/2xx"])),
            col("4xx/s", "4xx_per_second", Rate(&["sessions/4xx"])),
            col("5xx/s", "5xx_per_second", Rate(&["sessions/5xx"])),
            col("p50", "p50_ms", Time("session_time", 0.5)),
            col("p99", "p99_ms", Time("session_time", 0.99)),
            col("in/s", "received_bytes_per_second", BytesRate(&["received"])),
            col("out/s", "sent_bytes_per_second", BytesRate(&["sent"])),
            col("total", "connections", Count("connections")),
        ],
        "no server of stream is counted: write \"status_zone NAME;\" in those that are to be",
    ),
    table(
        ("Stream upstreams", "stream_upstreams"),
        "stream/upstreams",
        Rows::Peers,
        &[
            col("state", "state", State("state")),
            col("conn/s", "connections_per_second", Rate(&["connections"])),
            col("now", "active", Count("active")),
            col("fails/s", "fails_per_second", Rate(&["fails"])),
            col("connect", "connect_p95_ms", Time("latency/connect", 0.95)),
            col("first", "first_byte_p95_ms", Time("latency/first_byte", 0.95)),
            col("in/s", "received_bytes_per_second", BytesRate(&["received"])),
            col("out/s", "sent_bytes_per_second", BytesRate(&["sent"])),
            col("fails", "fails", Count("fails")),
        ],
        "no session is passed on: there is no upstream of stream",
    ),
    table(
        ("Limits of stream", "stream_limit_conns"),
        "stream/limit_conns",
        Rows::Named,
        LIMIT_CONNS,
        "there is no limit_conn_zone in stream",
    ),
    table(
        ("TLS", "tls"),
        "ssl",
        Rows::One,
        &[
            col("tls/s", "handshakes_per_second", Rate(&["handshakes"])),
            col("failed/s", "failed_per_second", Rate(&["handshakes_failed"])),
            col("resumed", "resumed_percent", Share(&["session_reuses"], &["handshakes"])),
            col("p50", "p50_ms", Time("handshake_time", 0.5)),
            col("p95", "p95_ms", Time("handshake_time", 0.95)),
            col("p99", "p99_ms", Time("handshake_time", 0.99)),
        ],
        "no handshakes are told by this server",
    ),
    table(
        ("Counts of TLS", "tls_counts"),
        "ssl",
        Rows::Numbers,
        &[col("a second", "per_second", Rate(&[""])), col("total", "total", Count(""))],
        "no handshakes are told by this server",
    ),
    table(
        ("Upstreams", "upstream_states"),
        "http/upstreams",
        Rows::Named,
        &[
            col("state", "state", State("state")),
            col("waiting", "queue_size", Count("queue/size")),
            col("of", "queue_max_size", Count("queue/max_size")),
            col("refused/s", "queue_overflows_per_second", Rate(&["queue/overflows"])),
            col("wait p50", "queue_wait_p50_ms", Time("queue/wait", 0.5)),
            col("wait p99", "queue_wait_p99_ms", Time("queue/wait", 0.99)),
            col("refused", "queue_overflows", Count("queue/overflows")),
            col("keepalive", "keepalive", Count("keepalive")),
        ],
        "no request is passed on: there is no upstream",
    ),
];

pub const COUNT: usize = TABLES_OF_ALL.len() + OTHER_TABLES.len();

pub fn tables() -> impl Iterator<Item = &'static Table> {
    const FIRST: &[Table] = &TABLES_OF_ALL;
    const OTHERS: &[Table] = &OTHER_TABLES;
    FIRST.iter().chain(OTHERS)
}

/// The views of one table or several, by their numbers.
pub const VIEWS: &[(&str, &[usize])] = &[
    ("servers", &[SERVERS]),
    ("locations", &[2]),
    ("upstreams", &[15, 3]),
    ("caches", &[4]),
    ("limits", &[5, 6, 7, 8]),
    ("workers", &[9]),
    ("stream", &[10, 11, 12]),
    ("tls", &[13, 14]),
];
