//! `weir trace`: one request, and what it went through.

use std::process::Command;
use weir_tests::tls;
use weir_tests::{binary, expect_soon, run_cli, Next, Origin, Server, Setup};

const CONF: &str = "worker_processes 1; pid the.pid; error_log e.log notice; events {} http {
    proxy_cache_path %%DIR%%/cache keys_zone=c:1m; limit_req_zone $uri zone=l:64k rate=1000r/s;
    ssl_certificate a.crt; ssl_certificate_key a.key;
    log_format seen $http_weir_trace; access_log seen.log seen;
    server { listen 127.0.0.1:%%PORT_0%%; listen 127.0.0.1:%%PORT_1%% ssl; server_name traced;
        location /slow { limit_req zone=l burst=9; allow all; proxy_cache c; proxy_cache_valid 1h; proxy_pass http://%%ORIGIN%%; }
        location /page { ssi on; ssi_types *; alias %%DIR%%/html; }
        location /part { return 200 part; } location /none { return 444; }
        location /nobody { proxy_pass http://nobody; } }
    upstream nobody { zone nobody 64k; server 127.0.0.1:1 down; } }";

fn start(origin: &Origin) -> Server {
    let pair = tls::self_signed("localhost");
    let server = Setup::new(CONF)
        .set("ORIGIN", origin.address())
        .file("html/p.html", "<!--#include virtual=\"/part\" -->")
        .file("a.crt", pair.cert)
        .file("a.key", pair.key)
        .start();
    expect_soon("a pid file", || server.read("the.pid").ends_with('\n'));
    server
}

fn trace(server: &Server, arguments: &[&str]) -> (bool, String, String) {
    let mut command = Command::new(binary());
    command.arg("trace").arg("-c").arg(server.dir().join("nginx.conf"));
    command.arg("-p").arg(server.dir()).args(arguments).current_dir(server.dir());
    let out = command.output().unwrap();
    let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
    (out.status.success(), text(out.stdout), text(out.stderr))
}

/// 444: what has no answer has a trace.
#[test]
fn one_that_is_closed_without_an_answer() {
    let origin = slow();
    let server = start(&origin);
    let (done, text, error) =
        trace(&server, &[&format!("http://127.0.0.1:{}/none", server.port(0))]);
    assert!(done && text.contains("status 444, 0 bytes"), "{text}{error}");
    // Nor has it begun before the request where there is nobody to ask.
    let (done, text, error) =
        trace(&server, &[&format!("http://127.0.0.1:{}/nobody", server.port(0))]);
    assert!(done && !text.contains(" -") && text.contains("\nupstream nobody "), "{text}{error}");
    let (done, _, error) = trace(&server, &["http://nosuch.invalid/"]);
    assert!(!done && error.contains("--to"), "{error}");
}

fn slow() -> Origin {
    Origin::start(|_, conn| {
        std::thread::sleep(std::time::Duration::from_millis(200));
        conn.reply("200 OK", "", "late");
        Next::Keep
    })
}

#[test]
fn servers_that_were_asked_and_the_cache() {
    let origin = slow();
    let server = start(&origin);
    let url = format!("http://127.0.0.1:{}/slow?a=1", server.port(0));
    let (done, text, error) = trace(&server, &[&url]);
    assert!(done, "{error}");
    let first = text.lines().next().unwrap();
    assert_eq!(first, format!("GET {url} HTTP/1.1"), "{text}");
    assert!(text.contains("status 200, ") && text.contains("server \"traced\""), "{text}");
    assert!(text.contains("cache MISS"), "{text}");
    let upstream = text.lines().find(|line| line.starts_with("upstream 127.0.0.1")).unwrap();
    let content = text.lines().find(|line| line.starts_with("content passed on ")).unwrap();
    let begin = |line: &str, at| line.split_ascii_whitespace().nth(at).unwrap().parse::<f64>();
    let (upstream_ms, content_ms) = (begin(upstream, 2).unwrap(), begin(content, 3).unwrap());
    assert!(
        upstream_ms >= content_ms && content_ms >= 0.0,
        "it begins no earlier than its cause: {text}"
    );
    let at = |what| text.find(what).unwrap_or_else(|| panic!("{what}: {text}"));
    assert!(at("\npreaccess ") < at("\naccess ") && at("\naccess ") < at("\ncontent "), "{text}");
    assert!(upstream.contains("|") && upstream.contains(" status 200"), "{text}");
    let took: f64 = upstream.split_ascii_whitespace().nth(3).unwrap().parse().unwrap();
    assert!((190.0..5000.0).contains(&took), "{upstream}");
    let note = |name: &str| {
        let mut words = upstream.split_ascii_whitespace().skip_while(|word| *word != name);
        words.nth(1).and_then(|ms| ms.parse::<f64>().ok()).unwrap_or(0.0)
    };
    let (header, response) = (note("header"), note("response"));
    assert!(0.0 < header && header <= response && response <= took + 0.002, "{upstream}");
    assert!(text.contains("preaccess ") && text.contains("limit_req"), "{text}");
    assert!(text.lines().any(|l| l.starts_with("content ") && l.contains(" waited ")), "{text}");
    // From what is kept: nobody is asked.
    let (done, text, _) = trace(&server, &["--json", &url]);
    assert!(done && text.contains("\"upstream_cache_status\":\"HIT\""), "{text}");
    assert!(!text.contains("\"kind\":\"upstream\""), "{text}");
    assert_eq!(origin.requests().len(), 1);
    // Others have nothing of it.
    server.get("/part");
    let seen = server.log_lines("seen.log", 3);
    assert_eq!(seen[2], "-");
    assert_eq!(seen[0].len(), 32);
}

#[test]
fn parts_and_handshakes() {
    let origin = slow();
    let server = start(&origin);
    let url = format!("https://localhost:{}/page/p.html", server.port(1));
    let to = format!("127.0.0.1:{}", server.port(1));
    let (done, text, error) = trace(&server, &["--to", &to, "-H", "X-A: b", &url]);
    assert!(done, "{error}");
    assert!(text.contains("\nTLS: TLSv1.3 TLS_") && !text.contains(" .\n"), "{text}");
    assert!(text.lines().any(|line| line.starts_with("tls handshake ")), "{text}");
    assert!(text.lines().any(|line| line.starts_with("  subrequest /part ")), "{text}");
    assert!(
        text.lines()
            .any(|line| line.starts_with("  server_rewrite") || line.starts_with("  rewrite")),
        "{text}"
    );
}

#[test]
fn a_word_is_good_once_and_only_here() {
    let origin = slow();
    let server = start(&origin);
    let other = start(&origin);
    let url = format!("http://127.0.0.1:{}/part", other.port(0));
    let (done, _, error) = trace(&server, &[&url]);
    assert!(!done && error.contains("has not come to this server"), "{error}");
    let url = format!("http://127.0.0.1:{}/part", server.port(0));
    assert!(trace(&server, &[&url]).0);
    let word = server.log_lines("seen.log", 1)[0].clone();
    assert_eq!(server.get_with("/part", &format!("Weir-Trace: {word}\r\n")).status, 200);
    for (arguments, expected) in [
        (&["x"][..], "is no URL"),
        (&[], "needs a URL"),
        (&["-H", "A: b\r\nC: d", &url], "has characters that none may have"),
        (&["-X"], "requires a value"),
    ] {
        let (done, _, error) = trace(&server, arguments);
        assert!(!done && error.contains(expected), "{error}");
    }
    let help = run_cli(&["trace", "--help"], "events {}");
    assert!(help.stdout.contains("--to ADDRESS"), "{}", help.stdout);
}

#[test]
fn the_times_of_phases_as_a_variable() {
    let origin = slow();
    let server = Setup::new(
        "worker_processes 1; events {} http { log_format times \"$request_phase_times\"; access_log times.log times;
            server { listen 127.0.0.1:%%PORT_0%%;
                location / { allow all; proxy_pass http://%%ORIGIN%%; }
                location /at_once { set $a b; return 200 a; } } }",
    )
    .set("ORIGIN", origin.address())
    .start();
    assert_eq!(server.get("/").status, 200);
    assert_eq!(server.get("/at_once").status, 200);
    let lines = server.log_lines("times.log", 2);
    let content = lines[0].split(' ').find_map(|word| word.strip_prefix("content=")).unwrap();
    assert!(content.parse::<f64>().unwrap() >= 0.19, "{}", lines[0]);
    assert!(!lines[1].contains("content="), "{}", lines[1]);
}
