//! Warnings of the configuration: which place they name, how often they are said, and which log
//! they go to.

use weir_tests::{run_cli, skip, tls, Server, Setup};

fn is_weir() -> bool {
    run_cli(&["-v"], "").stderr.contains("(weir/")
}

/// The warnings at the start, without program and level.
fn warnings(server: &Server) -> Vec<String> {
    let dir = server.dir().display().to_string();
    let text = server.read("stderr").replace(&dir, "DIR");
    text.lines().filter_map(|l| l.strip_prefix("nginx: [warn] ").map(str::to_string)).collect()
}

#[test]
fn a_directive_is_warned_of_once_at_its_place() {
    if !is_weir() {
        return skip("nginx has what these ask for");
    }
    let pair = tls::self_signed("localhost");
    let server = Setup::new(
        "events {} http {
ssl_protocols TLSv1 TLSv1.1 TLSv1.2 TLSv1.3;
ssl_ciphers ECDHE-ECDSA-AES128-GCM-SHA256:ECDHE-RSA-AES128-GCM-SHA256:DHE-RSA-AES128-GCM-SHA256:DHE-RSA-AES256-SHA;
ssl_dhparam %%DIR%%/dh.pem;
ssl_ecdh_curve X25519:secp521r1;
ssl_certificate %%DIR%%/a.crt; ssl_certificate_key %%DIR%%/a.key;
server { listen 127.0.0.1:%%PORT_0%% ssl; server_name a; }
server { listen 127.0.0.1:%%PORT_0%% ssl; server_name b; }
server { listen 127.0.0.1:%%PORT_0%% ssl; server_name c;
ssl_protocols TLSv1 TLSv1.2;
ssl_conf_command Groups X25519:secp521r1;
proxy_ssl_protocols TLSv1 TLSv1.2;
proxy_ssl_ciphers HIGH:AES128-SHA;
location /a { proxy_pass https://127.0.0.1:1; } location /b { proxy_pass https://127.0.0.1:2; } } }",
    )
    .file("a.crt", pair.cert)
    .file("a.key", pair.key)
    .file("dh.pem", "")
    .start();
    let mut told = warnings(&server);
    told.sort();
    let versions = "left out: Weir speaks TLSv1.2 and TLSv1.3 in DIR/nginx.conf";
    let suites = "left out: Weir has ECDHE with AES-GCM or ChaCha20 in DIR/nginx.conf";
    let curves = "left out: Weir has X25519, prime256v1 and secp384r1 in DIR/nginx.conf";
    let expected = [
        format!("\"proxy_ssl_ciphers\": AES128-SHA {suites}:13"),
        format!("\"proxy_ssl_protocols\": TLSv1 {versions}:12"),
        format!("\"ssl_ciphers\": DHE-RSA-AES128-GCM-SHA256 DHE-RSA-AES256-SHA {suites}:3"),
        format!("\"ssl_conf_command\": secp521r1 {curves}:11"),
        "\"ssl_dhparam\": not used: clients take ECDHE in DIR/nginx.conf:4".to_string(),
        format!("\"ssl_ecdh_curve\": secp521r1 {curves}:5"),
        format!("\"ssl_protocols\": TLSv1 TLSv1.1 {versions}:2"),
        format!("\"ssl_protocols\": TLSv1 {versions}:10"),
    ];
    assert_eq!(told, expected);
}

#[test]
fn a_cache_without_a_key_is_warned_of() {
    let output = run_cli(
        &["-t"],
        "events {} http { fastcgi_cache_path %%DIR%%/c keys_zone=z:1m;
            server { fastcgi_cache z;
            location / { fastcgi_pass 127.0.0.1:1; } location /a { fastcgi_pass 127.0.0.1:1; } }
}",
    );
    let told = "[warn] no \"fastcgi_cache_key\" for \"fastcgi_cache\" in DIR/nginx.conf:";
    assert!(output.stderr.contains(told), "{}", output.stderr);
    if is_weir() {
        assert_eq!(output.stderr.matches("[warn]").count(), 1, "{}", output.stderr);
        assert!(output.stderr.contains("in DIR/nginx.conf:2"), "{}", output.stderr);
    }
}

const DOUBTFUL: &str =
    "error_log %%DIR%%/own.log warn; events {} http { server_name_in_redirect off;
    server { listen 127.0.0.1:%%PORT_0%%; server_name x; return 200 %%WORD%%; }
    server { listen 127.0.0.1:%%PORT_0%%; server_name x; } }";

/// At the start the configuration's log is not yet in force, at a reload that of the old one is.
#[test]
fn warnings_go_to_the_log_in_force_and_to_the_terminal() {
    let mut server = Server::start(&DOUBTFUL.replace("%%WORD%%", "old"));
    let text = format!("conflicting server name \"x\" on 127.0.0.1:{}, ignored", server.port(0));
    assert_eq!(warnings(&server), [&text[..]]);
    assert!(server.error_log().contains("[warn] "), "{}", server.error_log());
    assert!(server.error_log().trim_end().ends_with(&text), "{}", server.error_log());
    assert!(!server.read("own.log").contains(&text));
    let next = DOUBTFUL.replace("%%WORD%%", "new").replace("own.log", "next.log");
    let peer = server.on(0);
    server.reload(&next, || peer.get("/").text() == "new");
    assert!(server.read("own.log").contains(&text), "{}", server.read("own.log"));
    assert!(!server.read("next.log").contains(&text));
    let broken = DOUBTFUL.replace("%%WORD%%", "new").replace("} }", "} nosuch; }");
    server.replace_conf(&broken);
    server.signal(weir_tests::Signal::Hup);
    weir_tests::expect_soon("the refusal", || {
        server.read("next.log").contains("[emerg] ") && server.read("next.log").contains("nosuch")
    });
}

#[test]
fn a_port_that_is_taken_is_told_in_the_configurations_log() {
    let first = Server::start("events {} http { server { listen 127.0.0.1:%%PORT_0%%; } }");
    let setup = Setup::new("");
    let own = setup.dir().join("own.log");
    let conf = format!(
        "error_log {}; events {{}} http {{ server {{ listen 127.0.0.1:{}; }} }}",
        own.display(),
        first.port(0)
    );
    let output = run_cli(&[], &conf);
    assert_eq!(output.code, 1);
    let bind = format!("bind() to 127.0.0.1:{} failed (98: ", first.port(0));
    let log = weir_tests::printed(&std::fs::read(&own).unwrap());
    for text in [&output.stderr, &log] {
        assert!(text.contains("[emerg]") && text.contains(&bind), "{text}");
        assert!(text.trim_end().ends_with("still could not bind()"), "{text}");
    }
}
