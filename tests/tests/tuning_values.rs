//! Directives that tune: what is said well is accepted, alone and all together, and what is said
//! wrong is refused with the directive's name.

use weir_tests::{run_cli, Setup};

/// Context, a value that is right, one that is wrong.
const ROWS: &[(&str, &str, &str)] = &[
    ("main", "debug_points abort", "debug_points maybe"),
    ("main", "lock_file logs/lock", "lock_file"),
    ("main", "pcre_jit on", "pcre_jit yes"),
    ("main", "ssl_object_cache_inheritable off", "ssl_object_cache_inheritable no"),
    ("main", "thread_pool some threads=2 max_queue=8", "thread_pool some threads=x"),
    ("main", "timer_resolution 100ms", "timer_resolution soon"),
    ("main", "worker_cpu_affinity auto", "worker_cpu_affinity 012"),
    ("main", "worker_priority -1", "worker_priority high"),
    ("main", "worker_rlimit_core 1m", "worker_rlimit_core big"),
    ("main", "worker_rlimit_nofile 4096", "worker_rlimit_nofile many"),
    ("main", "working_directory %%DIR%%", "working_directory"),
    ("events", "accept_mutex on", "accept_mutex maybe"),
    ("events", "accept_mutex_delay 100ms", "accept_mutex_delay x"),
    ("events", "epoll_events 64", "epoll_events few"),
    ("events", "worker_aio_requests 8", "worker_aio_requests x"),
    ("http", "map_hash_bucket_size 64", "map_hash_bucket_size x"),
    ("http", "map_hash_max_size 512", "map_hash_max_size x"),
    ("http", "server_names_hash_bucket_size 64", "server_names_hash_bucket_size x"),
    ("http", "server_names_hash_max_size 512", "server_names_hash_max_size x"),
    ("http", "types_hash_bucket_size 64", "types_hash_bucket_size x"),
    ("http", "types_hash_max_size 512", "types_hash_max_size x"),
    ("http", "variables_hash_bucket_size 64", "variables_hash_bucket_size x"),
    ("http", "variables_hash_max_size 512", "variables_hash_max_size x"),
    ("http", "proxy_headers_hash_bucket_size 64", "proxy_headers_hash_bucket_size x"),
    ("http", "proxy_headers_hash_max_size 512", "proxy_headers_hash_max_size x"),
    ("http", "request_pool_size 8k", "request_pool_size 8x"),
    ("http", "http2_recv_buffer_size 64k", "http2_recv_buffer_size x"),
    ("http", "http2_pool_size 4k", "http2_pool_size"),
    ("http", "http2_streams_index_size 32", "http2_streams_index_size"),
    ("server", "ssl_session_timeout 1h", "ssl_session_timeout x"),
    ("server", "ssl_prefer_server_ciphers on", "ssl_prefer_server_ciphers x"),
    ("server", "ssl_ciphers HIGH:!aNULL", "ssl_ciphers"),
    ("server", "ssl_ecdh_curve auto", "ssl_ecdh_curve"),
    ("location", "aio threads", "aio x"),
    ("location", "aio_write on", "aio_write x"),
    ("location", "client_body_in_single_buffer on", "client_body_in_single_buffer x"),
    ("location", "gzip_buffers 4 8k", "gzip_buffers 4"),
    ("location", "gzip_hash 8k", "gzip_hash 3k"),
    ("location", "gzip_no_buffer on", "gzip_no_buffer x"),
    ("location", "gzip_proxied any", "gzip_proxied x"),
    ("location", "gzip_window 8k", "gzip_window 3k"),
    ("location", "keepalive_disable safari", "keepalive_disable netscape"),
    ("location", "keepalive_time 1h", "keepalive_time x"),
    ("location", "limit_conn_log_level warn", "limit_conn_log_level debug"),
    ("location", "limit_req_log_level warn", "limit_req_log_level debug"),
    ("location", "lingering_close always", "lingering_close x"),
    ("location", "lingering_time 10s", "lingering_time x"),
    ("location", "msie_padding off", "msie_padding x"),
    ("location", "msie_refresh off", "msie_refresh x"),
    ("location", "open_file_cache_events on", "open_file_cache_events x"),
    ("location", "output_buffers 2 16k", "output_buffers x"),
    ("location", "postpone_gzipping 100", "postpone_gzipping x"),
    ("location", "postpone_output 1000", "postpone_output x"),
    ("location", "read_ahead 64k", "read_ahead x"),
    ("location", "reset_timedout_connection on", "reset_timedout_connection x"),
    ("location", "send_lowat 0", "send_lowat x"),
    ("location", "ssi_ignore_recycled_buffers on", "ssi_ignore_recycled_buffers x"),
    ("location", "ssi_min_file_chunk 2k", "ssi_min_file_chunk x"),
    ("location", "subrequest_output_buffer_size 8k", "subrequest_output_buffer_size x"),
    ("location", "tcp_nodelay off", "tcp_nodelay x"),
    ("location", "tcp_nopush on", "tcp_nopush x"),
    ("location", "uninitialized_variable_warn off", "uninitialized_variable_warn x"),
];

/// The configuration with these lines in their places.
fn conf(lines: &[(&str, &str)]) -> String {
    let of = |context: &str| {
        let lines = lines.iter().filter(|(c, _)| *c == context);
        lines.map(|(_, line)| format!("{line};\n")).collect::<String>()
    };
    format!(
        "{}events {{ {} }} http {{ {} server {{ listen 127.0.0.1:%%PORT_0%%; {}
            location / {{ {} return 200 fine; }} }} }}",
        of("main"),
        of("events"),
        of("http"),
        of("server"),
        of("location")
    )
}

#[test]
fn right_values_are_accepted_together() {
    let lines: Vec<_> = ROWS.iter().map(|(context, right, _)| (*context, *right)).collect();
    let server = Setup::new(&conf(&lines)).start();
    assert_eq!(server.get("/").text(), "fine");
}

#[test]
fn wrong_values_are_refused_by_name() {
    let mut wrong = Vec::new();
    for (context, _, line) in ROWS {
        let output = run_cli(&["-t"], &conf(&[(context, line)]));
        let name = line.split(' ').next().unwrap_or_default();
        let value = line.split(' ').next_back().unwrap_or_default();
        let error = output.stderr.lines().find(|l| l.contains("[emerg]")).unwrap_or_default();
        // nginx names the directive or the value, and always the place.
        let named = error.contains(name) || error.contains(value);
        if output.code == 0 || !named || !error.contains("nginx.conf:") {
            wrong.push(format!("{line}: {} {error}", output.code));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// Words of old releases: accepted with a warning that says what to write now, or nothing to.
#[test]
fn what_is_obsolete_is_said_to_be() {
    for line in [
        "http2_idle_timeout 3m",
        "http2_max_field_size 4k",
        "http2_max_header_size 16k",
        "http2_max_requests 1000",
        "http2_recv_timeout 30s",
        "http2_max_concurrent_pushes 10",
        "http2_push /x",
        "http2_push_preload on",
    ] {
        let output = run_cli(&["-t"], &conf(&[("server", line)]));
        let name = line.split(' ').next().unwrap_or_default();
        let said = output.stderr.lines().any(|l| l.contains("[warn]") && l.contains(name));
        assert!(output.code == 0 && said, "{line}: {} {}", output.code, output.stderr);
    }
}

#[test]
fn what_cannot_be_honoured_is_refused_with_what_to_do() {
    for (context, line, advice) in [
        ("events", "debug_connection 127.0.0.1", "\"error_log … debug\" logs for all clients"),
        ("location", "msie_refresh on", "remove the directive"),
        ("server", "ssl_ech_file %%DIR%%/ech.pem", "remove the directive"),
    ] {
        let output = run_cli(&["-t"], &conf(&[(context, line)]));
        assert!(output.code != 0 && output.stderr.contains(advice), "{}", output.stderr);
    }
}
