//! Directives that nginx, Tengine or OpenResty have and this version has not, and those that nginx
//! has had: each is refused as unknown, with a hint that says so. A name that ends in `*` stands for
//! all that begin so.

const HTTP3: &str =
    "this version of Weir has no HTTP/3 yet; remove the directive: clients fall back to HTTP/1.1";
const LUA: &str = "this version of Weir has no Lua yet; remove the directive";
const PERL: &str = "Weir has no embedded Perl; use map, set or rewrite instead";
/// Of modules that others make: whose it is, and what Weir has instead.
const BROTLI: &str =
    "this directive of ngx_brotli is not in Weir, which compresses with gzip; remove it";
const ZSTD: &str =
    "this directive of zstd-nginx-module is not in Weir, which compresses with gzip; remove it";
const MEMC: &str =
    "this directive of memc is not in Weir; use memcached_pass, or pass the location on to a program that stores";
const REDIS: &str =
    "Weir speaks no Redis; pass the location on to a program that does, or keep answers with proxy_cache";
const SRCACHE: &str =
    "this directive of srcache is not in Weir; use proxy_cache, fastcgi_cache or their kin";
const DATABASES: &str = "Weir asks no databases; pass the location on to a program that does";
const ICONV: &str =
    "this directive of iconv is not in Weir; use charset, source_charset and charset_map";
const GEOIP: &str = "Weir reads no GeoIP databases; use geo with a list of networks, or map on a header that a proxy in front sets";
const NJS: &str =
    "Weir has no njs; use map, set, rewrite or return, or a backend for what computes";
const MODSECURITY: &str =
    "Weir has no ModSecurity; use a proxy that has it in front, or auth_request";
const VTS: &str = "this directive of nginx-module-vts is not in Weir; stub_status counts connections and requests, access_log has the rest";
const OTEL: &str =
    "Weir sends no OpenTelemetry traces; pass $request_id on with proxy_set_header and log it";
const FANCYINDEX: &str = "this directive of fancyindex is not in Weir; use autoindex, with autoindex_format and add_after_body";
const ECHO: &str = "it does nothing in OpenResty either; remove the directive";
const ACME: &str = "Weir obtains no certificates itself; use certbot or another client that writes ssl_certificate's files and reloads";
const RTMP: &str = "Weir does no RTMP; use a streaming server of its own for it";
const PAGESPEED: &str = "Weir rewrites no pages; remove the directive";
const PURGE: &str =
    "this directive of ngx_cache_purge is not in Weir, which has proxy_cache_purge; use that";
const SUBSTITUTIONS: &str = "this directive of the substitutions filter is not in Weir; use sub_filter, sub_filter_once and sub_filter_types";
const AUTH: &str = "Weir does not ask PAM, LDAP or Kerberos itself; use auth_request with a service that does, or auth_basic";
const FILTERED: &str =
    "Weir changes no images and no XML; pass the location on to a program that does";
const UPLOAD: &str = "this directive of an upload module is not in Weir; pass the request on, client_body_in_file_only keeps its body in a file";
const NCHAN: &str = "Weir has no publish and subscribe; pass the location on to a server that has";
const PLUS: &str = "this directive of NGINX Plus is not in this version of Weir; remove it";
const MULTI: &str =
    "Weir does not send several requests over one connection to a Dubbo server; use proxy_pass to an HTTP port, or      grpc_pass, which has streams";
const TENGINE: &str = "this Tengine directive is not in this version of Weir; remove it";
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
        "ssl",
        "nginx dropped it in 1.25.1; remove the directive and write \"listen 443 ssl\" for each \
         address that speaks TLS",
    ),
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
    ("init_by_lua*", LUA),
    ("init_worker_by_lua*", LUA),
    ("exit_worker_by_lua*", LUA),
    ("set_by_lua*", LUA),
    ("rewrite_by_lua*", LUA),
    ("access_by_lua*", LUA),
    ("content_by_lua*", LUA),
    ("header_filter_by_lua*", LUA),
    ("body_filter_by_lua*", LUA),
    ("log_by_lua*", LUA),
    ("balancer_by_lua*", LUA),
    ("server_rewrite_by_lua*", LUA),
    ("precontent_by_lua*", LUA),
    ("geoip_*", GEOIP),
    ("geoip2*", GEOIP),
    ("image_filter*", FILTERED),
    ("xslt_*", FILTERED),
    ("xml_entities", FILTERED),
    ("xml_external_entities", FILTERED),
    ("brotli*", BROTLI),
    ("zstd*", ZSTD),
    ("js_*", NJS),
    ("modsecurity*", MODSECURITY),
    ("vhost_traffic_status*", VTS),
    ("otel_*", OTEL),
    ("opentelemetry*", OTEL),
    ("opentracing*", OTEL),
    ("fancyindex*", FANCYINDEX),
    ("echo_abort_parent", ECHO),
    ("memc_*", MEMC),
    ("redis_*", REDIS),
    ("redis2_*", REDIS),
    ("srcache_*", SRCACHE),
    ("drizzle_*", DATABASES),
    ("postgres_*", DATABASES),
    ("rds_csv*", DATABASES),
    ("rds_json*", DATABASES),
    ("iconv_*", ICONV),
    ("set_iconv", ICONV),
    ("acme_*", ACME),
    ("rtmp*", RTMP),
    ("pagespeed*", PAGESPEED),
    ("cache_purge*", PURGE),
    ("subs_filter*", SUBSTITUTIONS),
    ("auth_pam*", AUTH),
    ("auth_ldap*", AUTH),
    ("auth_gss*", AUTH),
    ("ldap_server", AUTH),
    ("upload_*", UPLOAD),
    ("nchan_*", NCHAN),
    ("push_stream*", NCHAN),
    ("auth_jwt*", PLUS),
    ("auth_oidc*", PLUS),
    ("keyval*", PLUS),
    ("api", PLUS),
    ("status_zone", PLUS),
    ("zone_sync*", PLUS),
    ("session_log*", PLUS),
    ("f4f*", PLUS),
    ("hls*", PLUS),
    ("perl*", PERL),
    ("concat*", TENGINE),
    ("footer*", TENGINE),
    ("trim*", TENGINE),
    ("dyups_*", TENGINE),
    ("session_sticky*", TENGINE),
    ("dso", TENGINE),
    ("multi", MULTI),
];
