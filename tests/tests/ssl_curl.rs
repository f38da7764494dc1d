//! HTTPS and HTTP/2 with curl, which brings another TLS library and another HTTP/2 client.

use weir_tests::tls::{Authority, Pair};
use weir_tests::tools::{self, Tool};
use weir_tests::{skip, CliOutput, Next, Origin, Server, Setup};

fn numbers() -> String {
    (0..20_000).map(|n| format!("{n} and no more\n")).collect()
}

/// A site with its redirect, on ports 1 and 0.
fn site(origin: &str) -> (Server, Authority) {
    let authority = Authority::new("root");
    let Pair { cert, key } = authority.issue("localhost");
    let server = Setup::new(
        "events {} http { ssl_certificate %%DIR%%/a.crt; ssl_certificate_key %%DIR%%/a.key;
            types { text/plain txt; } gzip on; gzip_types text/plain; client_max_body_size 0;
            server { listen 127.0.0.1:%%PORT_0%%; http2 on;
                return 301 https://$host:%%PORT_1%%$request_uri; }
            server { listen 127.0.0.1:%%PORT_1%% ssl; http2 on; root %%DIR%%/html;
                ssl_verify_client optional; ssl_client_certificate %%DIR%%/root.crt;
                location /no { return 403; }
                location /up { proxy_pass http://%%ORIGIN%%; }
                location /who { return 200 '$ssl_client_verify $ssl_client_s_dn'; }
                location /vars { return 200 '$server_protocol $ssl_protocol $ssl_alpn_protocol'; } } }",
    )
    .set("ORIGIN", origin)
    .file("a.crt", cert)
    .file("a.key", key)
    .file("root.crt", &authority.cert)
    .file("html/index.html", "<h1>home</h1>")
    .file("html/numbers.txt", numbers())
    .start();
    (server, authority)
}

fn curl() -> Option<Tool> {
    let curl = tools::need("curl")?;
    if !curl.run(&["-V"]).stdout.contains("HTTP2") {
        skip("this curl has no HTTP/2");
        return None;
    }
    Some(curl)
}

/// Trusts the site's authority and nobody else.
#[track_caller]
fn fetch(curl: &Tool, server: &Server, url: &str, arguments: &[&str]) -> CliOutput {
    fetch_with(curl, server, url, arguments, b"")
}

#[track_caller]
fn fetch_with(
    curl: &Tool,
    server: &Server,
    url: &str,
    arguments: &[&str],
    body: &[u8],
) -> CliOutput {
    let root = server.dir().join("root.crt").display().to_string();
    let common = ["-q", "-sS", "-4", "-m", "30", "--noproxy", "*", "--cacert", &root];
    curl.run_with(&[&common, arguments, &[url]].concat(), body)
}

#[track_caller]
fn body(said: CliOutput) -> String {
    assert_eq!(said.code, 0, "{said:?}");
    said.stdout
}

#[test]
fn a_redirect_is_followed_to_the_verified_site() {
    let Some(curl) = curl() else { return };
    let (server, _) = site("127.0.0.1:1");
    let (plain, site) = (server.port(0), server.port(1));
    let shown = ["-w", "|%{response_code} %{num_redirects} %{url_effective} %{ssl_verify_result}"];
    let there = format!("http://localhost:{plain}/index.html?a=b");
    let moved = body(fetch(&curl, &server, &there, &shown));
    assert!(moved.ends_with(&format!("|301 0 {there} 0")), "{moved}");
    for version in ["--http1.1", "--http2", "--http2-prior-knowledge"] {
        let page = body(fetch(&curl, &server, &there, &[&["-L", version], &shown[..]].concat()));
        let expected = format!("<h1>home</h1>|200 1 https://localhost:{site}/index.html?a=b 0");
        assert_eq!(page, expected, "{version}");
    }
    // 60: the certificate is not one for this name, or of nobody known.
    let other = fetch(&curl, &server, &format!("https://127.0.0.1:{site}/"), &[]);
    assert_eq!(other.code, 60, "{other:?}");
    let untrusted =
        fetch(&curl, &server, &format!("https://localhost:{site}/"), &["--cacert", "/dev/null"]);
    assert_ne!(untrusted.code, 0, "{untrusted:?}");
    let mistaken = fetch(&curl, &server, &format!("http://localhost:{site}/"), &shown);
    let mistaken = body(mistaken);
    assert!(mistaken.contains("The plain HTTP request was sent to HTTPS port"), "{mistaken}");
    assert!(mistaken.contains("|400 0 "), "{mistaken}");
}

#[test]
fn versions_are_negotiated() {
    let Some(curl) = curl() else { return };
    let (server, _) = site("127.0.0.1:1");
    let url = format!("https://localhost:{}/vars", server.port(1));
    for (arguments, expected) in [
        (&["--http1.1"][..], "HTTP/1.1 TLSv1.3 http/1.1"),
        (&["--http2"], "HTTP/2.0 TLSv1.3 h2"),
        (&["--http2", "--tls-max", "1.2"], "HTTP/2.0 TLSv1.2 h2"),
        (&["--http1.1", "--tls-max", "1.2"], "HTTP/1.1 TLSv1.2 http/1.1"),
        (&["--no-alpn", "--tls-max", "1.2"], "HTTP/1.1 TLSv1.2 "),
    ] {
        assert_eq!(body(fetch(&curl, &server, &url, arguments)), expected, "{arguments:?}");
    }
}

#[test]
fn certificates_of_clients() {
    let Some(curl) = curl() else { return };
    let (server, authority) = site("127.0.0.1:1");
    let (known, strange) = (authority.issue("client"), Authority::new("other").issue("stranger"));
    for (name, pair) in [("known", known), ("strange", strange)] {
        server.write(format!("{name}.pem"), pair.cert + &pair.key);
    }
    let url = format!("https://localhost:{}/who", server.port(1));
    let showing = |name: &str| {
        let file = server.dir().join(format!("{name}.pem")).display().to_string();
        body(fetch(&curl, &server, &url, &["--http2", "-w", "|%{response_code}", "-E", &file]))
    };
    assert_eq!(showing("known"), "SUCCESS CN=client|200");
    let refused = showing("strange");
    assert!(refused.contains("The SSL certificate error") && refused.ends_with("|400"));
    assert_eq!(body(fetch(&curl, &server, &url, &[])), "NONE ");
}

#[test]
fn bodies_go_up_in_frames() {
    let Some(curl) = curl() else { return };
    let origin = Origin::start(|request, conn| {
        let sum: u64 = request.body.iter().map(|b| u64::from(*b)).sum();
        conn.reply("200 OK", "", &format!("{} {sum}", request.body.len()));
        Next::Keep
    });
    let (server, _) = site(&origin.address());
    let url = format!("https://localhost:{}/up", server.port(1));
    let upload: Vec<u8> = (0..700_000u32).map(|n| (n % 251) as u8).collect();
    let sum: u64 = upload.iter().map(|b| u64::from(*b)).sum();
    for how in [
        &["--http2", "--data-binary", "@-"][..],
        // Without a length.
        &["--http2", "-T", "-", "-X", "POST"],
        &["--http1.1", "-H", "Transfer-Encoding: chunked", "--data-binary", "@-"],
    ] {
        let said = body(fetch_with(&curl, &server, &url, how, &upload));
        assert_eq!(said, format!("{} {sum}", upload.len()), "{how:?}");
    }
}

#[test]
fn parts_and_compressed_forms() {
    let Some(curl) = curl() else { return };
    let (server, _) = site("127.0.0.1:1");
    let url = format!("https://localhost:{}/numbers.txt", server.port(1));
    let text = numbers();
    for version in ["--http1.1", "--http2"] {
        let part = body(fetch(&curl, &server, &url, &[version, "-r", "100-199"]));
        assert_eq!(part, text[100..200], "{version}");
        assert!(body(fetch(&curl, &server, &url, &[version])) == text, "{version}");
        let size = ["-w", "|%{size_download} %{response_code}", "--compressed", version];
        let said = body(fetch(&curl, &server, &url, &size));
        let (page, shown) = said.rsplit_once('|').unwrap();
        let (size, status) = shown.split_once(' ').unwrap();
        assert!(page == text && status == "200", "{version}: {shown}");
        assert!(size.parse::<usize>().unwrap() < text.len() / 2, "{version}: {size} bytes");
    }
    // Several at a time on one connection.
    let all = ["--http2", "-Z", "-w", "%{num_connects} ", "-o", "/dev/null"];
    let eight = format!("https://localhost:{}/numbers.txt?[1-8]", server.port(1));
    let said = body(fetch(&curl, &server, &eight, &all));
    let connects: u32 = said.split_whitespace().map(|n| n.parse::<u32>().unwrap()).sum();
    assert!((1..8).contains(&connects), "{said}");
}

/// An answer comes before the request's body has: what says that the rest is not wanted comes behind the answer,
/// in a record of its own.
#[test]
fn an_early_answer_is_seen() {
    let Some(curl) = curl() else { return };
    let origin = Origin::start(|_, _| Next::Close);
    let (server, _authority) = site(&origin.address());
    let url = format!("https://localhost:{}/no", server.port(1));
    for bytes in [2_000, 1_000_000] {
        for _ in 0..10 {
            let output =
                ["--http2", "-o", "/dev/null", "-w", "%{http_code}", "--data-binary", "@-"];
            let said = fetch_with(&curl, &server, &url, &output, &vec![b'x'; bytes]);
            assert_eq!(
                (said.code, said.stdout.as_str()),
                (0, "403"),
                "{bytes} bytes: {}",
                said.stderr
            );
        }
    }
}
