//! Lua in handshakes with the servers that requests are passed to: what they are shown, and what is thought of what
//! they show.

use weir_tests::tls::{self_signed, Authority};
use weir_tests::{run_cli, Server, Setup};

/// Passed on to a server of `a.test` that says whose certificate it was shown.
fn start(locations: &str) -> Server {
    let conf = format!(
        r#"events {{}} error_log %%DIR%%/error.log debug; http {{
        init_by_lua_block {{ function text_of(name)
            local f = assert(io.open("%%DIR%%/" .. name)) local text = f:read("*a") f:close() return text end }}
        server {{ listen 127.0.0.1:%%PORT_1%% ssl; ssl_verify_client optional_no_ca; keepalive_timeout 60s;
            ssl_certificate %%DIR%%/a.crt; ssl_certificate_key %%DIR%%/a.key; return 200 "$ssl_client_s_dn $connection_requests\n"; }}
        upstream kept {{ server 127.0.0.1:%%PORT_1%%; keepalive 4; }}
        proxy_http_version 1.1; proxy_set_header Connection ""; proxy_ssl_name a.test; proxy_ssl_verify on;
        proxy_ssl_trusted_certificate %%DIR%%/ca.crt; proxy_ssl_certificate %%DIR%%/own.crt; proxy_ssl_certificate_key %%DIR%%/own.key;
        server {{ listen 127.0.0.1:%%PORT_0%%; {locations} }} }}"#
    );
    let authority = Authority::new("ca");
    let mut setup = Setup::new(&conf).file("ca.crt", &authority.cert);
    for (name, pair) in [
        ("a", authority.issue("a.test")),
        ("own", self_signed("own.test")),
        ("other", self_signed("other.test")),
    ] {
        setup =
            setup.file(format!("{name}.crt"), &pair.cert).file(format!("{name}.key"), &pair.key);
    }
    setup
        .file("wait.lua", "ngx.sleep(0.001) ngx.log(ngx.WARN, 'here is ', ngx.get_phase())")
        .start()
}

#[test]
fn code_chooses_what_servers_are_shown() {
    let server = start(
        r#"location /usual { proxy_pass https://kept; proxy_ssl_certificate_by_lua_file %%DIR%%/wait.lua; }
        location /other { proxy_pass https://kept; proxy_ssl_certificate_by_lua_block {
            local ssl, cert = require "ngx.ssl", require "ngx.ssl.proxysslcert"
            ngx.sleep(0.001)
            assert(cert.set_cert(assert(ssl.parse_pem_cert(text_of("other.crt")))))
            assert(cert.set_priv_key(assert(ssl.parse_pem_priv_key(text_of("other.key"))))) } }
        location /none { proxy_pass https://kept; proxy_ssl_certificate_by_lua_block { require("ngx.ssl.proxysslcert").clear_certs() } }
        location /refused { proxy_pass https://kept; proxy_ssl_certificate_by_lua_block { ngx.exit(ngx.ERROR) } }
        location /late { proxy_pass https://kept; proxy_connect_timeout 50ms; proxy_ssl_certificate_by_lua_block { ngx.sleep(10) } }"#,
    );
    let get = |path: &str| server.get(path).text();
    assert_eq!(get("/usual"), "CN=own.test 1\n");
    assert!(server
        .error_log()
        .contains("here is proxy_ssl_cert while loading proxy ssl certificate by lua"));
    // Of the connections with a certificate that code has chosen, none is used again.
    assert_eq!(
        (get("/other"), get("/other")),
        ("CN=other.test 1\n".into(), "CN=other.test 1\n".into())
    );
    assert_eq!(get("/none"), " 1\n");
    assert_eq!(get("/usual"), "CN=own.test 2\n");
    assert_eq!((server.get("/refused").status, server.get("/late").status), (502, 504));
    let log = server.error_log();
    assert!(log.contains("callback failed) while SSL handshaking to upstream"), "{log}");
    assert!(
        log.contains(
            "timed out (110: Connection timed out) while loading proxy ssl certificate by lua"
        ),
        "{log}"
    );
}

#[test]
fn code_judges_what_servers_show() {
    let server = start(
        r#"location /good { proxy_pass https://kept; proxy_ssl_verify_by_lua_file %%DIR%%/wait.lua; }
        location /refused { proxy_pass https://kept; proxy_ssl_verify_by_lua_block { ngx.sleep(0.001) ngx.exit(ngx.ERROR) } }
        location /untrusted { proxy_pass https://kept; proxy_ssl_trusted_certificate %%DIR%%/own.crt; proxy_ssl_verify_by_lua_block { ngx.log(ngx.WARN, "not asked") } }
        location /alone { proxy_pass https://kept; proxy_ssl_trusted_certificate %%DIR%%/own.crt; lua_upstream_skip_openssl_default_verify on;
            proxy_ssl_verify_by_lua_block {
                local verify = require "ngx.ssl.proxysslverify"
                if verify.get_verify_cert() and ngx.var.arg_bad then verify.set_verify_result(26) end } }"#,
    );
    let status = |path: &str| server.get(path).status;
    assert_eq!((status("/good"), status("/refused")), (200, 502));
    assert_eq!((status("/untrusted"), status("/alone?bad=1"), status("/alone")), (502, 502, 200));
    let log = server.error_log();
    assert!(log.contains("here is proxy_ssl_verify") && !log.contains("not asked"), "{log}");
    assert!(log.contains("certificate verify failed) while SSL handshaking to upstream"), "{log}");
    assert!(log.contains("upstream SSL certificate verify error: (26:by code)"), "{log}");
}

#[test]
fn what_would_not_be_heard_is_refused() {
    for (lines, expected) in [
        (
            "proxy_pass http://127.0.0.1:1; proxy_ssl_certificate_by_lua_block { }",
            "proxy_pass https url",
        ),
        (
            "proxy_pass http://127.0.0.1:1; proxy_ssl_verify_by_lua_block { }",
            "proxy_pass https url",
        ),
        ("lua_upstream_skip_openssl_default_verify on;", "would trust anybody"),
    ] {
        let conf = format!("events {{}} http {{ server {{ location / {{ {lines} }} }} }}");
        let said = run_cli(&["-t"], &conf);
        assert!(said.stderr.contains(expected), "{lines}: {}", said.stderr);
    }
}
