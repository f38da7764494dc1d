//! Directives that nginx, Tengine or OpenResty have and this version has not: each is refused as
//! unknown, with a hint that says so. A name that ends in `*` stands for all that begin so.

const HTTP3: &str =
    "this version of Weir has no HTTP/3 yet; remove the directive: clients fall back to HTTP/1.1";
const TUNNEL: &str = "this version of Weir has no CONNECT tunnels yet";
const STREAM: &str = "this version of Weir has no stream section yet; remove the block";
const MAIL: &str = "this version of Weir has no mail section yet; remove the block";
const LUA: &str = "this version of Weir has no Lua yet; remove the directive";
const MODULES: &str = "Weir has its modules built in and loads none; remove the directive";
const LATER: &str = "this version of Weir does not have it yet; remove the directive";
const PERL: &str = "Weir has no embedded Perl; use map, set or rewrite instead";
const TENGINE: &str = "this Tengine directive is not in this version of Weir; remove it";

pub const MISSING: &[(&str, &str)] = &[
    ("load_module", MODULES),
    ("ssl_engine", "Weir's TLS is rustls, which has no OpenSSL engines; remove the directive"),
    ("http3*", HTTP3),
    ("quic_*", HTTP3),
    ("tunnel_*", TUNNEL),
    ("stream", STREAM),
    ("mail", MAIL),
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
    ("dav_*", LATER),
    ("create_full_put_path", LATER),
    ("min_delete_depth", LATER),
    ("modern_browser*", LATER),
    ("ancient_browser*", LATER),
    ("degrad*", LATER),
    ("flv", LATER),
    ("mp4*", LATER),
    ("geoip_*", LATER),
    ("image_filter*", LATER),
    ("xslt_*", LATER),
    ("xml_entities", LATER),
    ("xml_external_entities", LATER),
    ("perl*", PERL),
    ("concat*", TENGINE),
    ("footer*", TENGINE),
    ("trim*", TENGINE),
    ("check", TENGINE),
    ("check_*", TENGINE),
    ("dyups_*", TENGINE),
    ("session_sticky*", TENGINE),
    ("dso", TENGINE),
];
