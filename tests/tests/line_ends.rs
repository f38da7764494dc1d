//! Line ends that a URI brings along (`%0d%0a`) end no line of the server's: nginx sends them.

use weir_tests::{Origin, Server, Setup};

const CONF: &str = r#"events {} http { error_log %%DIR%%/error.log;
    server { listen 127.0.0.1:%%PORT_0%%; listen 127.0.0.1:%%PORT_1%% http2; root %%DIR%%/html;
        add_header X "$uri" always;
        location /return { return 301 http://there$uri; }
        location /rewrite { rewrite ^/rewrite(.*)$ http://there/$1 redirect; }
        location /page { error_page 404 http://there$uri; return 404; }
        location /realm { auth_basic "r$uri"; auth_basic_user_file %%DIR%%/none; }
        location /body { return 200 "$uri"; }
        location /expires { set $x $uri; add_header Y $x; return 200 ok; }
        location /trailer { add_trailer T "$uri"; proxy_pass http://%%ORIGIN%%/; }
        location /line { proxy_pass http://%%ORIGIN%%$uri; }
        location /args { set $args "a=$uri"; proxy_pass http://%%ORIGIN%%; }
        location /method { proxy_method "GET$uri"; proxy_pass http://%%ORIGIN%%; }
        location /field { proxy_set_header Y "$uri"; proxy_set_header Host "h$uri";
            proxy_pass http://%%ORIGIN%%/; }
        location /cookie { proxy_pass http://%%ORIGIN%%/; proxy_cookie_path / "$uri"; }
        location /redirected { proxy_pass http://%%ORIGIN%%/; proxy_redirect /to "$uri"; }
    } }"#;

const EVIL: &str = "/a%0d%0aEvil:%20yes%0d%0a%0d%0aGET%20/smuggled%20HTTP/1.1%0d%0aEvil:%20yes";

fn start() -> (Server, Origin) {
    let origin = Origin::replying(
        "HTTP/1.1 200 OK\r\nLocation: /to\r\nSet-Cookie: a=b; path=/\r\nTransfer-Encoding: chunked\r\n\r\n\
         2\r\nok\r\n0\r\n\r\n",
    );
    (Setup::new(CONF).set("ORIGIN", origin.address()).start(), origin)
}

#[test]
fn fields_of_answers_stay_one_line() {
    let (server, _origin) = start();
    for path in
        ["/return", "/rewrite", "/page", "/realm", "/expires", "/cookie", "/redirected", "/trailer"]
    {
        let request = format!("GET {path}{EVIL} HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n");
        let raw = String::from_utf8_lossy(&server.raw(request.as_bytes())).into_owned();
        assert!(raw.starts_with("HTTP/1.1 "), "{path}: {raw}");
        let evil = raw.lines().any(|l| l.starts_with("Evil") || l.starts_with("GET"));
        assert!(!evil, "{path}: {raw}");
    }
    let redirect = server.get(&format!("/return{EVIL}"));
    let to = redirect.header("Location").unwrap();
    assert!(to.starts_with("http://there/return/a%0D%0AEvil: yes%0D%0A"), "{to}");
    let x = redirect.header("X").unwrap();
    // A space at a name's end is not part of it there.
    let get = if weir_tests::is_windows() { "GET/smug" } else { "GET /smug" };
    assert!(x.starts_with(&format!("/return/a  Evil: yes    {get}")), "{x}");
    server.expect_error("a variable in \"return\", \"rewrite\",");
    server.expect_error("which were taken out of \"X\"");
    // A body is none of these.
    assert!(server.get("/body/a%0d%0ab").text().contains("/a\r\nb"));
    assert_eq!(server.get("/body/plain%20x").header("X"), Some("/body/plain x"));
}

#[test]
fn requests_to_backends_stay_one() {
    let (server, origin) = start();
    for (n, path) in ["/line", "/args", "/method", "/field"].iter().enumerate() {
        server.get(&format!("{path}{EVIL}"));
        origin.expect_requests(n + 1);
        let request = origin.last_request();
        assert_eq!(request.header("Evil"), None, "{path}");
    }
    assert_eq!(origin.requests().len(), 4);
    for by in ["of \"proxy_pass\" held", "of \"proxy_method\" held", "\"proxy_set_header\" held"] {
        server.expect_error(by);
    }
}

#[test]
fn the_error_log_has_the_servers_lines_only() {
    let server = Server::start(
        "events {} http { server { listen 127.0.0.1:%%PORT_0%%; root %%DIR%%/html; error_log %%DIR%%/error.log; } }",
    );
    server.get("/none%0a2026/01/01%2000:00:00%20[alert]%201%231:%20forged%1b[31m");
    server.expect_error("open() ");
    let log = server.error_log();
    assert!(!log.lines().any(|l| l.starts_with("2026/01/01 00:00:00 [alert] 1#1")), "{log}");
    assert!(log.contains("/none\\x0A2026/01/01 00:00:00 [alert] 1#1: forged\\x1B[31m"), "{log}");
}
