//! Directives that are given twice in a block: which are refused, and which add up.

use weir_tests::{run_cli, Server};

const MAIN: &[&str] = &["debug_points stop", "ssl_object_cache_inheritable on"];
const EVENTS: &[&str] = &["epoll_events 64", "worker_aio_requests 32", "worker_connections 64"];
/// In `stream` too.
const BLOCK: &[&str] = &[
    "map_hash_bucket_size 64",
    "map_hash_max_size 2048",
    "server_names_hash_bucket_size 64",
    "server_names_hash_max_size 512",
    "variables_hash_bucket_size 64",
    "variables_hash_max_size 1024",
];
const SERVER: &[&str] = &[
    "connection_pool_size 512",
    "http2_pool_size 4k",
    "http2_streams_index_size 32",
    "request_pool_size 4k",
];
const LOCATION: &[&str] = &[
    "aio_write on",
    "fastcgi_send_lowat 0",
    "gzip_buffers 32 4k",
    "gzip_hash 64k",
    "gzip_no_buffer on",
    "gzip_window 32k",
    "open_file_cache_events on",
    "postpone_gzipping 0",
    "proxy_headers_hash_bucket_size 64",
    "proxy_headers_hash_max_size 512",
    "proxy_send_lowat 0",
    "read_ahead 0",
    "send_lowat 0",
    "types_hash_bucket_size 64",
    "types_hash_max_size 1024",
];
const REFERER: &[&str] = &["referer_hash_bucket_size 64", "referer_hash_max_size 2048"];

/// What directives are put into.
type Block<'a> = &'a dyn Fn(&str) -> String;

#[test]
fn what_is_refused() {
    let http = |inner: &str| format!("events {{}} http {{ {inner} }}");
    let cases: [(&[&str], Block); 10] = [
        (&["least_time header"], &|two| http(&format!("upstream u {{ server [::1]:1; {two} }}"))),
        (&["least_time connect"], &|two| {
            format!("events {{}} stream {{ upstream u {{ server [::1]:1; {two} }} }}")
        }),
        (MAIN, &|two| format!("{two} events {{}}")),
        (EVENTS, &|two| format!("events {{ {two} }}")),
        (BLOCK, &http),
        (BLOCK, &|two| format!("events {{}} stream {{ {two} }}")),
        (SERVER, &|two| http(&format!("server {{ {two} }}"))),
        (LOCATION, &http),
        (LOCATION, &|two| http(&format!("server {{ location / {{ {two} }} }}"))),
        (REFERER, &|two| http(&format!("server {{ location / {{ {two} }} }}"))),
    ];
    let mut wrong = Vec::new();
    for (directives, block) in cases {
        for directive in directives {
            let conf = block(&format!("{directive};\n{directive};"));
            let said = run_cli(&["-t"], &conf);
            let name = directive.split(' ').next().unwrap_or_default();
            let error = format!("[emerg] \"{name}\" directive is duplicate in DIR/nginx.conf:2");
            if said.code != 1 || !said.stderr.contains(&error) {
                wrong.push(format!("{conf}\n{}", said.stderr));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// Once in each block is not twice.
#[test]
fn once_in_each_block() {
    let all = [LOCATION, REFERER].concat().join("; ") + ";";
    let http = [BLOCK, SERVER, LOCATION].concat().join("; ") + ";";
    let conf = format!(
        "{}; events {{ {}; }} http {{ {http} server {{ listen 127.0.0.1:%%PORT_0%%; {all}
         location /a {{ {all} }} location /b {{ {all} location /b/c {{ {all} }} }} }}
         server {{ listen 127.0.0.1:%%PORT_1%%; {all} {}; }} }} stream {{ {}; }}",
        MAIN.join("; "),
        EVENTS.join("; "),
        SERVER.join("; "),
        BLOCK.join("; "),
    );
    let said = run_cli(&["-t"], &conf);
    assert_eq!(said.code, 0, "{}", said.stderr);
}

/// Words of a list and expressions are added to those before; nginx warns of the same word.
#[test]
fn what_adds_up() {
    let server = Server::start(
        "events {} http { gzip on; gzip_min_length 0; gzip_types text/plain; default_type text/plain;
         gzip_proxied expired; gzip_proxied any; gzip_disable one; gzip_disable two;
         keepalive_disable msie6; keepalive_disable none;
         server { listen 127.0.0.1:%%PORT_0%%; location / { return 200 text; } } }",
    );
    let encoding = |agent: &str| {
        let headers = format!("Via: x\r\nAccept-Encoding: gzip\r\nUser-Agent: {agent}\r\n");
        server.get_with("/", &headers).header("Content-Encoding").map(str::to_string)
    };
    for (agent, expected) in [("one", None), ("two", None), ("three", Some("gzip"))] {
        assert_eq!(encoding(agent).as_deref(), expected, "{agent}");
    }
    let conf = "events {} http {\ngzip_proxied any;\ngzip_proxied any; }";
    let said = run_cli(&["-t"], conf);
    let warning = "nginx: [warn] duplicate value \"any\" in DIR/nginx.conf:3";
    assert_eq!((said.code, said.stderr.lines().next()), (0, Some(warning)));
}
