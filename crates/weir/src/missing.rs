//! Directives that nginx, Tengine or OpenResty have and this version has not, and those that nginx
//! has had: each is refused as unknown, with a hint that says so. A name that ends in `*` stands for
//! all that begin so.

const HTTP3: &str =
    "this version of Weir has no HTTP/3 yet; remove the directive: clients fall back to HTTP/1.1";
const LUA: &str = "this version of Weir has no such directive of Lua's yet; remove it";
const PERL: &str = "Weir has no embedded Perl; use map, set or rewrite instead";
/// Of modules that others make: whose it is, and what Weir has instead.
const DATABASES: &str = "Weir asks no databases; pass the location on to a program that does";
const ICONV: &str =
    "this directive of iconv is not in Weir; use charset, source_charset and charset_map";
const NJS: &str =
    "Weir has no njs; use map, set, rewrite or return, or a backend for what computes";
const MODSECURITY: &str =
    "Weir has no ModSecurity; use a proxy that has it in front, or auth_request";
const VTS: &str = "this directive of nginx-module-vts is not in Weir: everything is counted, status_zone names what is counted together, and api, metrics and dashboard show it; vhost_traffic_status_display is there";
const STATUS: &str = "Weir shows its figures by api (NGINX Plus' JSON), metrics (for Prometheus) and vhost_traffic_status_display (of nginx-module-vts), each in a location";
const OWN_METRICS: &str = "this directive of Angie is not in Weir; status_zone, api and metrics show what is counted, a log_format and weir analyze what is not";
const OTEL: &str =
    "Weir's OpenTelemetry has the directives of nginx's own module: write otel_exporter, otel_trace and otel_trace_context";
const ECHO: &str = "it does nothing in OpenResty either; remove the directive";
const ACME: &str = "Weir obtains no certificates itself; use certbot or another client that writes ssl_certificate's files and reloads";
const RTMP: &str = "Weir does no RTMP; use a streaming server of its own for it";
const PAGESPEED: &str = "Weir rewrites no pages; remove the directive";
const PURGE: &str =
    "Weir always purges beside its workers; remove the directive, purger= of proxy_cache_path sets a pace";
const AUTH: &str = "Weir does not ask PAM, LDAP or Kerberos itself; use auth_request with a service that does, or auth_basic";
const XSLT: &str = "Weir has no XSLT: no library for it that is memory safe is kept up; pass the location on to a program that transforms, or have the browser do it by an xml-stylesheet instruction, which sub_filter can put in";
const UPLOAD: &str = "this directive of an upload module is not in Weir; pass the request on, client_body_in_file_only keeps its body in a file";
const PROGRESS: &str = "Weir does not tell how far an upload has come; have the page ask its own request (XMLHttpRequest's upload events), stub_status json shows open requests";
const UPSTREAM_LIMITS: &str = "write max_conns= at the servers of the upstream, queue in it for who is to wait, and zone, so that workers share the count";
const NCHAN: &str = "Weir has no publish and subscribe; pass the location on to a server that has";
const PLUS: &str = "this directive of NGINX Plus is not in this version of Weir; remove it";
const MULTI: &str =
    "Weir does not send several requests over one connection to a Dubbo server; use proxy_pass to an HTTP port, or grpc_pass, which has streams";
/// Of Tengine, what is tied to systems and libraries that are not there.
const NTLS: &str = "Weir's TLS is rustls, which has no SM2, SM3 and SM4 (NTLS); write ssl_certificate and ssl_certificate_key with an \
    RSA or ECDSA pair, and put a proxy that speaks NTLS in front where it must be spoken";
const XQUIC: &str = "Weir has no HTTP/3 yet, by XQUIC or otherwise; remove the directive: clients fall back to HTTP/2 and HTTP/1.1";
const DUBBO: &str =
    "Weir speaks no Dubbo; use grpc_pass to a server that speaks Triple, or proxy_pass to a gateway";
const XUDP: &str = "Weir has no sockets of XDP (XUDP); remove the directive";
const TFS: &str =
    "Weir speaks no TFS and no Tair; use proxy_pass to a gateway for the storage, with proxy_cache";
const INGRESS: &str =
    "Weir reads no routes of Tengine's ingress controller; write server and location blocks, or map";
const RTSIG: &str =
    "nginx dropped real-time signals in 1.9.0; remove the directive: Weir uses epoll";
const EVENTS: &str = "it tunes the events of another system; remove the directive: Weir uses epoll";
const PROCS: &str =
    "Weir starts no other programs' processes (Tengine's procs); have the system's manager (systemd) start them";
const BACKTRACE: &str =
    "Weir writes no backtraces of crashes itself; use worker_rlimit_core and working_directory";
const DEBUG: &str =
    "this page of Tengine's insides is not in Weir; use stub_status json, which counts connections, requests and zones";
const SSL_ASYNC: &str =
    "it is for OpenSSL's hardware engines, which rustls has not; remove the directive";
const SOCKET_BUFFER: &str =
    "Weir leaves the socket buffers of backends to the system (net.ipv4.tcp_wmem, tcp_rmem); remove the directive";
const UNBUFFERED_BODY: &str = "Weir sends an unbuffered request body on as it comes; write proxy_request_buffering off and client_body_buffer_size";

/// What nginx itself has had under that name, and knows no more.
const SPDY: &str = "nginx dropped SPDY in 1.9.5; remove the directive and write \"http2 on\"";
const PEERS: &str = "nginx dropped it; it is now a parameter of server in upstream, as in \"server backend1 max_fails=3 fail_timeout=30s\"";
const REDIRECT_ERRORS: &str = "nginx renamed it to …_intercept_errors";
const PASSED_HEADER: &str =
    "nginx dropped it; write proxy_pass_header or proxy_hide_header with the field's name";
const SET_HEADER: &str = "nginx dropped it; write proxy_set_header, as in \"proxy_set_header Host $host\" or \"proxy_set_header X-Real-IP $remote_addr\"";
const HOST_NAMES: &str = "nginx dropped it; remove the directive";

pub const MISSING: &[(&str, &str)] = &[
    ("ssl_engine", "Weir's TLS is rustls, which has no OpenSSL engines; remove the directive"),
    ("quic_bpf", HTTP3),
    (
        "fancyindex_name_length",
        "fancyindex dropped it in 0.5.0; remove the directive: a style sheet (fancyindex_css_href) cuts long names with text-overflow",
    ),
    (
        "ssl",
        "nginx dropped it in 1.25.1; remove the directive and write \"listen 443 ssl\" for each \
         address that speaks TLS",
    ),
    ("status", STATUS),
    ("status_format", STATUS),
    ("prometheus", STATUS),
    ("prometheus_template*", STATUS),
    ("api_config_files", "this directive of Angie is not in Weir, whose tree shows no files; remove it, weir -T shows them to who may read them"),
    ("metric", OWN_METRICS),
    ("metric_zone", OWN_METRICS),
    ("metric_complex_zone", OWN_METRICS),
    ("docker_*", "Weir asks no Docker; write \"server NAME:PORT resolve;\" with a resolver and a zone, or put servers by the api (write=on) and a state file"),
    ("auto_redirect", "this directive of Angie is not in Weir; write \"location = /path { return 301 /path/; }\""),
    ("response_time_factor", "this directive of Angie is not in Weir: least_time weighs what it has seen lately by itself; remove it"),
    ("sticky_secret", "this directive of Angie is not in Weir; remove it: sticky cookie gives out the server's route, or a digest of its address"),
    ("sticky_strict", "this directive of Angie is not in Weir; remove it: where a client's server cannot be asked another one is"),
    ("spdy_*", SPDY),
    ("limit_zone", "nginx dropped it in 1.7.6; write \"limit_conn_zone $variable zone=NAME:SIZE\""),
    ("open_file_cache_retest", "nginx renamed it to open_file_cache_valid"),
    ("satisfy_any", "nginx dropped it; write \"satisfy any\" for on and \"satisfy all\" for off"),
    ("proxy_upstream_*", PEERS),
    ("fastcgi_upstream_*", PEERS),
    ("memcached_upstream_*", PEERS),
    ("proxy_redirect_errors", REDIRECT_ERRORS),
    ("fastcgi_redirect_errors", REDIRECT_ERRORS),
    ("proxy_pass_server", PASSED_HEADER),
    ("proxy_pass_x_powered_by", PASSED_HEADER),
    ("proxy_hide_server", PASSED_HEADER),
    ("proxy_preserve_host", SET_HEADER),
    ("proxy_set_x_*", SET_HEADER),
    ("fastcgi_x_powered_by", "nginx dropped it; write \"fastcgi_hide_header X-Powered-By\""),
    ("optimize_server_names", HOST_NAMES),
    ("optimize_host_names", HOST_NAMES),
    ("restrict_host_names", HOST_NAMES),
    ("so_keepalive", "it is a parameter of listen, as in \"listen 80 so_keepalive=on\""),
    ("post_accept_timeout", "nginx dropped it; \"listen 80 deferred\" comes nearest"),
    ("connections", "nginx renamed it to worker_connections"),
    ("gzip_min_http_version", "nginx renamed it to gzip_http_version"),
    (
        "proxy_downstream_buffer",
        "nginx renamed it to proxy_buffer_size, and has it in the stream section only",
    ),
    ("lua_*", LUA),
    ("xslt_*", XSLT),
    ("xml_entities", XSLT),
    ("xml_external_entities", XSLT),
    ("js_*", NJS),
    ("modsecurity*", MODSECURITY),
    ("vhost_traffic_status*", VTS),
    ("opentelemetry*", OTEL),
    ("opentracing*", OTEL),
    ("echo_abort_parent", ECHO),
    ("memc_upstream_*", PEERS),
    ("drizzle_*", DATABASES),
    ("postgres_*", DATABASES),
    ("rds_csv*", DATABASES),
    ("rds_json*", DATABASES),
    ("iconv_*", ICONV),
    ("set_iconv", ICONV),
    ("acme_*", ACME),
    ("rtmp*", RTMP),
    ("pagespeed*", PAGESPEED),
    ("cache_purge_background_queue", PURGE),
    ("cache_purge_queue_size", PURGE),
    ("cache_purge_batch_size", PURGE),
    ("cache_purge_throttle_ms", PURGE),
    ("auth_pam*", AUTH),
    ("auth_ldap*", AUTH),
    ("auth_gss*", AUTH),
    ("ldap_server", AUTH),
    ("upload_progress*", PROGRESS),
    ("report_uploads", PROGRESS),
    ("track_uploads", PROGRESS),
    ("upload_*", UPLOAD),
    ("fair", "write least_time header in the upstream, by which servers that answer sooner are asked more, or least_conn"),
    (
        "jvm_route",
        "write \"sticky route $variable\" in the upstream and route=NAME, as srun_id= is called, at its servers; a map \
         takes the name out of $cookie_jsessionid",
    ),
    (
        "cache_purge",
        "a module of that name is not needed: write proxy_cache_purge (fastcgi_cache_purge, …) with a value that says \
         which requests purge",
    ),
    ("limit_upstream_*", UPSTREAM_LIMITS),
    ("nchan_*", NCHAN),
    ("push_stream*", NCHAN),
    ("auth_oidc*", PLUS),
    ("zone_sync*", PLUS),
    ("session_log*", PLUS),
    ("f4f*", PLUS),
    ("hls*", PLUS),
    ("perl*", PERL),
    ("dso", "modules are part of the program; remove the block"),
    ("reuse_port", "write it at the socket, as in \"listen 80 reuseport\""),
    ("dyups_upstream_conf", "Tengine has deprecated it; include the file in the http block instead"),
    ("enable_ntls", NTLS),
    ("proxy_enable_ntls", NTLS),
    ("grpc_enable_ntls", NTLS),
    ("uwsgi_enable_ntls", NTLS),
    ("ssl_enc_certificate*", NTLS),
    ("ssl_sign_certificate*", NTLS),
    ("proxy_ssl_enc_certificate*", NTLS),
    ("proxy_ssl_sign_certificate*", NTLS),
    ("grpc_ssl_enc_certificate*", NTLS),
    ("grpc_ssl_sign_certificate*", NTLS),
    ("uwsgi_ssl_enc_certificate*", NTLS),
    ("uwsgi_ssl_sign_certificate*", NTLS),
    ("ssl_async", SSL_ASYNC),
    (
        "ssl_verify_client_exception",
        "write the exception as a server or location of its own: \"ssl_verify_client optional\" and an \"if\" on \
         $ssl_client_verify where certificates are needed",
    ),
    (
        "ssl_sni_force",
        "names that no server has are refused by a default server with \"ssl_reject_handshake on\"",
    ),
    ("xquic_*", XQUIC),
    ("dubbo_*", DUBBO),
    ("xudp_*", XUDP),
    ("max_retries", XUDP),
    ("tfs_*", TFS),
    ("tair_timeout", TFS),
    ("ingress_*", INGRESS),
    ("rtsig_*", RTSIG),
    ("devpoll_*", EVENTS),
    ("eventport_*", EVENTS),
    ("kqueue_*", EVENTS),
    ("iocp_*", EVENTS),
    ("post_acceptex", EVENTS),
    ("acceptex_read", EVENTS),
    ("processes", PROCS),
    ("process", PROCS),
    ("count", PROCS),
    ("priority", PROCS),
    ("delay_start", PROCS),
    ("respawn", PROCS),
    ("backtrace_*", BACKTRACE),
    ("debug_conn", DEBUG),
    ("debug_pool", DEBUG),
    ("debug_timer", DEBUG),
    ("slab_stat", DEBUG),
    ("proxy_sndbuf_size", SOCKET_BUFFER),
    ("proxy_rcvbuf_size", SOCKET_BUFFER),
    ("fastcgi_sndbuf_size", SOCKET_BUFFER),
    ("fastcgi_rcvbuf_size", SOCKET_BUFFER),
    ("client_body_buffers", UNBUFFERED_BODY),
    ("client_body_postpone_size", UNBUFFERED_BODY),
    ("master_env", "Weir's master asks for nothing by its environment; write env"),
    ("log_empty_request", "requests of which nothing has come are not logged; remove the directive"),
    (
        "rr_discarded_range",
        "write vnswrr in the upstream, whose turns begin anywhere, or a zone, in which workers share their turns",
    ),
    ("multi", MULTI),
];
