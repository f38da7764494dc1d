//! What metrics say of themselves: whose figure it is, and what.

/// How names begin, longer ones first, and whose figures they are.
const OF: &[(&str, &str)] = &[
    ("weir_http_upstream_peer_", "a server of an upstream"),
    ("weir_stream_upstream_peer_", "a server of a stream upstream"),
    ("weir_http_upstream_queue_", "requests that wait for a server of an upstream"),
    ("weir_http_analytics_zone_", "an analytics_zone"),
    ("weir_http_limit_conn_", "a zone of limit_conn"),
    ("weir_http_limit_req_", "a zone of limit_req"),
    ("weir_http_location_", "a status_zone of locations"),
    ("weir_http_upstream_", "an upstream"),
    ("weir_stream_limit_conn_", "a zone of stream's limit_conn"),
    ("weir_stream_upstream_", "a stream upstream"),
    ("weir_http_cache_", "a cache"),
    ("weir_http_", "an HTTP server"),
    ("weir_stream_", "a stream server"),
    ("weir_mail_", "a mail server"),
    ("weir_resolver_", "a resolver"),
    ("weir_slab_", "a zone's memory"),
    ("weir_worker_", "a worker"),
    ("weir_ship_", "a receiver of shipped events"),
    ("weir_otel_", "the exporter of spans"),
    ("weir_ssl_", "TLS with clients"),
    ("weir_connections_", "connections of clients"),
    ("weir_requests_", "requests of clients"),
    ("weir_processes_", "processes"),
];

/// What the rest of a name is.
const WHAT: &[(&str, &str)] = &[
    ("requests", "Requests begun"),
    ("connections", "Connections begun"),
    ("processing", "Requests or sessions that are being served"),
    ("responses", "Requests ended, by the status that the access log shows"),
    ("responses_by_class", "Requests ended, by the class of that status, from 0 on"),
    ("sessions", "Sessions ended, by the class of their status"),
    ("cached", "Requests ended, by what became of looking in a cache"),
    ("discarded", "Ended without an answer"),
    ("received_bytes", "Bytes received"),
    ("sent_bytes", "Bytes sent"),
    ("protocols", "Requests ended, by the version of HTTP"),
    ("latency_seconds", "How long requests took"),
    ("latency_connect_seconds", "How long connecting took"),
    ("latency_header_seconds", "How long until the header of an answer was there"),
    ("latency_response_seconds", "How long until an answer was there"),
    ("request_time_seconds", "Average time of a request, lately"),
    ("header_time_seconds", "Average time until the header of an answer, lately"),
    ("response_time_seconds", "Average time until the end of an answer, lately"),
    ("connect_time_seconds", "Average time of connecting, lately"),
    ("first_byte_time_seconds", "Average time until the first byte, lately"),
    ("downtime_seconds", "Time for which it was not asked because it had failed"),
    ("state", "1, with the state as a label"),
    ("backup", "1 if it is asked only when others are away"),
    ("weight", "Configured weight"),
    ("active", "Now active"),
    ("idle", "Now idle"),
    ("accepted", "Accepted"),
    ("dropped", "Accepted and not served"),
    ("fails", "Tries that failed"),
    ("unavail", "How often it was counted out"),
    ("keepalive", "Idle connections that are kept"),
    ("zombies", "Servers that are gone from the configuration and still serve requests"),
    ("size", "How many wait now"),
    ("max_size", "How many may wait at most"),
    ("overflows", "How many found no place"),
    ("wait_seconds", "How long they waited"),
    ("size_bytes", "Size in bytes"),
    ("max_size_bytes", "Greatest size in bytes"),
    ("used_bytes", "Bytes in use"),
    ("turn_seconds", "For how long the present turn of the event loop lasts"),
    ("busy_time_seconds", "Time on a processor"),
    ("queued_time_seconds", "Time of waiting for a processor"),
    ("handshakes", "Handshakes that succeeded"),
    ("handshakes_failed", "Handshakes that failed"),
    ("handshake_time_seconds", "How long handshakes took"),
    ("session_reuses", "Sessions that were resumed"),
    ("no_common_protocol", "Handshakes that failed for want of a common version of TLS"),
    ("no_common_cipher", "Handshakes that failed for want of a common cipher"),
    ("handshake_timeout", "Handshakes that were not through in time"),
    ("peer_rejected_cert", "Handshakes where the other side refused the certificate"),
    ("left_out", "Requests that were not counted for want of room"),
    ("respawned", "Processes that were started again"),
    ("current", "Now being read or answered"),
];

/// The text for a name; `at` is where its figure stands in the tree.
pub(super) fn of(name: &str, at: &str) -> String {
    let found = OF.iter().find_map(|(begin, whose)| Some((name.strip_prefix(begin)?, *whose)));
    let place = at.replace('/', " ");
    let (rest, whose) =
        found.unwrap_or_else(|| (name.strip_prefix("weir_").unwrap_or(name), &place));
    match WHAT.iter().find(|(known, _)| *known == rest) {
        Some((_, what)) => format!("{what} ({whose})"),
        None => format!("{} ({whose})", sentence(rest)),
    }
}

fn sentence(words: &str) -> String {
    let text = words.replace('_', " ");
    let mut chars = text.chars();
    let first = chars.next().map(|c| c.to_ascii_uppercase());
    first.into_iter().chain(chars).collect()
}
