//! Regular expressions on long subjects, and those that cannot tell.

use weir_tests::{Origin, Server, Setup};

/// `/admin/` and pieces behind it, `bytes` in all.
fn long_uri(bytes: usize) -> String {
    format!("/admin/{}", "a/".repeat(bytes / 2))
}

const LONG: &str = r#"events {} http { large_client_header_buffers 4 2m; client_max_body_size 0;
    map $uri $mapped { default no; "~^/([^/]+/)*admin/" yes; }
    map $http_referer $short { default no; "~^(?:x|/|dmin|a)+$" yes; }
    server { listen 127.0.0.1:%%PORT_0%%;
        location ~ "^/([^/]+/)*admin/" { deny all; }
        location / { return 200 open; } }
    server { listen 127.0.0.1:%%PORT_1%%;
        location /if { valid_referers "~^(([^/]+)/)+$"; if ($http_x !~ "^/([^/]+/)*admin/") { return 200 open; }
            return 200 "$mapped $short $invalid_referer"; }
        rewrite "^/([^/]+/)*admin/([^/]+/)*(end)$" /rewritten/$3 break;
        fastcgi_split_path_info "^((?:/[^/]+)+/)(end/.*)$";
        location /split { return 200 "$fastcgi_path_info"; }
        location / { return 200 "$mapped $uri"; } }
}"#;

#[test]
fn a_long_uri_does_not_slip_by_its_location() {
    let server = Server::start(LONG);
    for bytes in [10, 2_800, 7_000, 60_000, 1_000_000] {
        assert_eq!(server.get(&long_uri(bytes)).status, 403, "{bytes}");
    }
    assert_eq!(server.get("/other/").text(), "open");
}

#[test]
fn long_subjects_match_wherever_they_are_asked_for() {
    let server = Server::start(LONG);
    let there = server.on(1);
    for bytes in [10, 2_800, 60_000, 1_000_000] {
        let long = long_uri(bytes);
        assert_eq!(there.get(&format!("{long}end")).text(), "no /rewritten/end", "{bytes}");
        assert_eq!(there.get(&long).text()[..5], *"yes /", "{bytes}");
        let fields = format!("X: {long}\r\nReferer: http://x{long}\r\n");
        assert_eq!(there.get_with("/if", &fields).text(), "no no ", "{bytes}");
        let split = format!("/split{long}end/x");
        assert_eq!(there.get(&split).text(), "end/x", "{bytes}");
    }
}

#[test]
fn what_a_backend_sends_is_rewritten_however_long_it_is() {
    let long = long_uri(200_000);
    let reply = format!(
        "HTTP/1.1 302 Found\r\nLocation: {long}\r\nSet-Cookie: a=b; path={long}\r\n\
         Content-Length: 0\r\n\r\n"
    );
    let origin = Origin::replying(reply);
    let server = Setup::new(
        r#"events {} http { server { listen 127.0.0.1:%%PORT_0%%; location / {
            proxy_pass http://%%ORIGIN%%; proxy_buffer_size 1m; proxy_buffers 4 1m;
            proxy_busy_buffers_size 1m;
            proxy_redirect ~^/([^/]+/)*admin/([^/]+/)*$ /$2;
            proxy_cookie_path ~^/([^/]+/)*admin/([^/]+/)*$ /$2; } } }"#,
    )
    .set("ORIGIN", origin.address())
    .start();
    let response = server.get("/");
    let port = server.port(0);
    let to = format!("http://localhost:{port}/a/");
    assert!(matches!(response.header("Location"), Some(to_) if to_ == to || to_ == "/a/"));
    assert_eq!(response.header("Set-Cookie"), Some("a=b; path=/a/"));
}

/// An expression that is through with its steps at once, on a subject that has some.
const TRIES: &str = "(*LIMIT_MATCH=20)^/?([ab]|[ab][ab])*[!?]$";

const GIVEN_UP: &str = r#"events {} http { error_log %%DIR%%/error.log;
    map $arg_x $guard { default open; "~%%TRIES%%" secret; }
    server { listen 127.0.0.1:%%PORT_0%%;
        location ~ "%%TRIES%%" { deny all; }
        location / { return 200 open; }
        location = /if { if ($arg_x ~ "%%TRIES%%") { return 403; } return 200 open; }
        location = /rewrite { set $y $arg_x; rewrite "%%TRIES%%" /x; return 200 open; } }
    server { listen 127.0.0.1:%%PORT_0%%; server_name "~(*LIMIT_MATCH=20)^w(w|ww)*[!?]$";
        location / { return 200 guarded; } }
    server { listen 127.0.0.1:%%PORT_1%%; root %%DIR%%/html; error_page 500 /500.html;
        location = /return { return 200 "$guard"; }
        location = /redirect { return 301 "http://there/$guard"; }
        location = /set { set $v "$guard"; return 200 open; }
        location = /header { add_header X "$guard" always; add_header Z "1"; }
        location = /not-if { if ($guard = secret) { return 403; } }
        location = /proxied { proxy_pass http://%%ORIGIN%%; proxy_set_header X "$guard"; }
        location = /answered { proxy_pass http://%%ORIGIN%%; proxy_redirect ~%%TRIES%% /; }
        location = /cookie { proxy_pass http://%%ORIGIN%%; proxy_cookie_path ~%%TRIES%% /; }
        location = /try { try_files /$guard /header =404; }
        location = /referer { valid_referers "~%%TRIES%%";
            if ($invalid_referer) { return 403; } return 200 open; }
        location = /key { limit_req zone=z; } }
    limit_req_zone $guard zone=z:64k rate=100r/s;
}"#;

fn given_up() -> (Server, Origin) {
    let origin = Origin::replying(
        "HTTP/1.1 302 Found\r\nLocation: /abababababab\r\nSet-Cookie: a=b; path=/abababababab\r\n\
         Content-Length: 0\r\n\r\n",
    );
    let setup = Setup::new(GIVEN_UP).set("ORIGIN", origin.address()).set("TRIES", TRIES);
    let mut setup = setup.file("html/500.html", "page of the error");
    for name in ["header", "not-if", "open", "secret", "key"] {
        setup = setup.file(format!("html/{name}"), "open");
    }
    (setup.start(), origin)
}

#[test]
fn a_match_that_is_given_up_is_not_taken_for_no() {
    let (server, _origin) = given_up();
    for path in ["/abababababab", "/if?x=abababababab"] {
        assert_eq!(server.get(path).status, 500, "{path}");
    }
    server.expect_error("[alert]");
    server.expect_error("match() failed: -47");
    server.expect_error(&format!("on \"/abababababab\" using \"{TRIES}\""));
    // nginx closes the connection without a word.
    let raw = server.raw(b"GET /x HTTP/1.0\r\nHost: wwwwwwwwwwwwwwwwwww\r\n\r\n");
    let said = String::from_utf8_lossy(&raw);
    assert!(said.is_empty() || said.starts_with("HTTP/1.1 500 "), "{said}");
}

/// nginx takes the default of the map, and would show what is guarded by it.
#[test]
fn a_variable_that_cannot_be_told_ends_the_request() {
    let (server, origin) = given_up();
    let there = server.on(1);
    let paths = ["return", "redirect", "set", "header", "not-if", "proxied", "try", "key"];
    for path in paths {
        let response = there.get(&format!("/{path}?x=abababababab"));
        assert_eq!(response.status, 500, "{path}");
        assert_eq!(response.text(), "page of the error", "{path}");
        assert_eq!(response.header("Location"), None, "{path}");
        assert_eq!(response.header("Z"), None, "{path}");
    }
    assert_eq!(origin.connections(), 0, "it was asked all the same");
    let response = there.get_with("/referer", "Referer: http://abababababab\r\n");
    assert_eq!(response.status, 500);
    for path in ["/answered", "/cookie"] {
        let response = there.get(path);
        assert_eq!(response.status, 500, "{path}");
        assert_eq!(response.header("Location"), None, "{path}");
        assert_eq!(response.header("Set-Cookie"), None, "{path}");
    }
    let response = there.get("/return?x=c");
    assert_eq!(response.text(), "open");
}

/// Error pages that ask the expression again that could not tell.
const ASKED_AGAIN: &str = r#"events {} http { error_log %%DIR%%/error.log;
    map $http_x $blocked { default 0; "~%%TRIES%%" 1; }
    map $blocked $outer { default ""; 1 1; }
    server { listen 127.0.0.1:%%PORT_0%%; recursive_error_pages %%RECURSIVE%%;
        location = /uri { error_page 500 =200 /fallback; if ($blocked) { return 403; } return 200 open; }
        location = /fallback { if ($blocked) { return 403; } return 200 open; }
        location = /named { error_page 500 = @named; if ($outer) { return 403; } return 200 open; }
        location @named { if ($outer) { return 403; } return 200 "open $blocked"; }
        location = /kept { error_page 500 = @kept; set $x $blocked; if ($x) { return 403; } return 200 open; }
        location @kept { if ($x) { return 403; } return 200 open; }
        location = /header { error_page 500 =200 /plain; if ($blocked) { return 403; } }
        location = /plain { add_header X "<$blocked>" always; return 200 open; }
        location = /away { error_page 500 =302 http://elsewhere/$blocked; if ($blocked) { return 403; } }
        location = /referer { error_page 500 = @referer; valid_referers "~%%TRIES%%";
            if ($invalid_referer = "") { return 403; } return 200 open; }
        location @referer { valid_referers "~%%TRIES%%";
            if ($invalid_referer = "") { return 403; } return 200 open; } }
    server { listen 127.0.0.1:%%PORT_1%%; root %%DIR%%/html; recursive_error_pages %%RECURSIVE%%;
        error_page 403 404 500 502 /err.html;
        set $bad $blocked;
        location = /err.html { if ($bad) { return 403; } return 200 open; }
        location / { if ($bad) { return 403; } return 200 open; } }
    server { listen 127.0.0.1:%%PORT_2%%; recursive_error_pages %%RECURSIVE%%;
        set $bad $blocked; error_page 500 = @bad;
        location @bad { if ($bad) { return 403; } return 200 open; }
        location / { return 200 open; } }
}"#;

#[test]
fn an_error_page_that_asks_again_fails_again() {
    let fields = "X: abababababab\r\nReferer: http://abababababab\r\n";
    for recursive in ["off", "on"] {
        let setup = Setup::new(ASKED_AGAIN).set("TRIES", TRIES).set("RECURSIVE", recursive);
        let server = setup.start();
        let paths = ["/uri", "/named", "/kept", "/header", "/away", "/referer"];
        let all = paths.map(|path| (0, path));
        for (at, path) in all.into_iter().chain([(1, "/"), (1, "/err.html"), (2, "/")]) {
            let answer = server.on(at).get_with(path, fields);
            assert_eq!(answer.status, 500, "{recursive} {at} {path}: {}", answer.text());
            assert!(!answer.text().contains("open"), "{path}");
            assert_eq!(answer.header("Location"), None, "{path}");
        }
        for path in ["/uri", "/named", "/kept"] {
            assert_eq!(server.get(path).text(), "open", "{path}");
        }
    }
}

/// The header has left when a page's command asks: the command fails, as one with a broken expression
/// does, and the page goes on.
#[test]
fn a_page_says_that_a_command_could_not_tell() {
    const SAID: &str = "[an error occurred while processing the directive]";
    let page = "<!--# if expr=\"$arg_x = /%%TRIES%%/\" -->yes<!--# endif -->|\
                <!--# if expr=\"$guard = open\" -->shown<!--# endif -->|\
                <!--# echo var=\"guard\" -->|<!--# set var=\"v\" value=\"$guard\" -->end";
    let server = Setup::new(
        r#"events {} http { error_log %%DIR%%/error.log;
            map $arg_x $guard { default open; "~%%TRIES%%" secret; }
            server { listen 127.0.0.1:%%PORT_0%%; root %%DIR%%/html; ssi on; ssi_types *; } }"#,
    )
    .set("TRIES", TRIES)
    // A "$" begins a variable there, and a "/" would end the expression.
    .file("html/page", page.replace("%%TRIES%%", "(*LIMIT_MATCH=20)^([ab]|[ab][ab])*[!?]"))
    .start();
    let text = server.get("/page?x=abababababab").text();
    // As behind any broken "if": its text stands, and its "endif" has nothing to end.
    let parts: Vec<&str> = text.split('|').collect();
    assert_eq!(parts[0], format!("{SAID}yes{SAID}"), "{text}");
    server.expect_error("[alert]");
    if weir_tests::binary().ends_with("nginx") {
        return;
    }
    // nginx takes the default of the map.
    assert_eq!(parts[1], SAID, "{text}");
    assert_eq!(parts[2..], [SAID, &format!("{SAID}end")], "{text}");
    assert_eq!(server.get("/page?x=c").text(), "|shown|open|end");
}
