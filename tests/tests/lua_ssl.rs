//! Lua in handshakes with clients, and TLS of its sockets: certificates, sessions and answers of OCSP responders that
//! code has chosen.

use rustls::version::{TLS12, TLS13};
use weir_tests::ocsp::{Responder, Says};
use weir_tests::tls::{self_signed, Authority, Pair, Tls};
use weir_tests::{expect_soon, run_cli, Server, Setup};

/// With `text_of`, which answers what is in a file.
const BEGIN: &str = r#"events {} error_log %%DIR%%/error.log debug; http { default_type text/plain;
    lua_shared_dict sessions 100k;
    init_by_lua_block { function text_of(name)
        local f = assert(io.open("%%DIR%%/" .. name)) local text = f:read("*a") f:close() return text end } "#;

/// A server whose own certificate is `own`, with those of `a.test` and `b.test` besides.
fn start(conf: &str) -> (Server, [Pair; 3], Authority) {
    let authority = Authority::new("ca");
    let pairs = [self_signed("own.test"), authority.issue("a.test"), authority.issue("b.test")];
    let conf = format!("{BEGIN}{conf} }}");
    let mut setup = Setup::new(&conf).file("ca.crt", &authority.cert);
    for (name, pair) in ["own", "a", "b"].iter().zip(&pairs) {
        setup = setup.file(format!("{name}.crt"), &pair.cert);
        setup = setup.file(format!("{name}.key"), &pair.key);
    }
    (setup.start(), pairs, authority)
}

const OWN: &str = "ssl_certificate %%DIR%%/own.crt; ssl_certificate_key %%DIR%%/own.key;";

#[test]
fn code_chooses_the_certificate_and_may_wait() {
    let conf = format!(
        r#"server {{ listen 127.0.0.1:%%PORT_0%% ssl; {OWN}
        ssl_certificate_by_lua_block {{
            local ssl = require "ngx.ssl"
            local name = assert(ssl.server_name())
            ngx.ctx.name = name
            ngx.sleep(0.001)
            if name == "refused.test" then return ngx.exit(ngx.ERROR) end
            if name == "broken.test" then error("on purpose") end
            local file = ({{ ["a.test"] = "a", ["b.test"] = "b" }})[name]
            if not file then return end
            assert(ssl.clear_certs())
            if file == "a" then
                assert(ssl.set_der_cert(assert(ssl.cert_pem_to_der(text_of("a.crt")))))
                assert(ssl.set_der_priv_key(assert(ssl.priv_key_pem_to_der(text_of("a.key")))))
            else
                assert(ssl.set_cert(assert(ssl.parse_pem_cert(text_of("b.crt")))))
                assert(ssl.set_priv_key(assert(ssl.parse_pem_priv_key(text_of("b.key")))))
            end
        }}
        location / {{ content_by_lua_block {{ ngx.say("met ", ngx.ctx.name, " ", ngx.get_phase()) }} }} }}"#
    );
    let (server, [own, a, b], _) = start(&conf);
    let client = Tls::default();
    for (name, pair) in [("a.test", &a), ("b.test", &b), ("own.test", &own)] {
        let conn = client.connect(server.port(0), name).unwrap();
        assert!(conn.shows(pair), "{name}");
        assert_eq!(conn.get(name, "/").text(), format!("met {name} content\n"));
    }
    // What goes on with a session needs no certificate, and code is not asked.
    let runs =
        || server.error_log().matches("ssl_certificate_by_lua: cert cb exit code: 1").count();
    let before = runs();
    assert!(client.connect(server.port(0), "a.test").unwrap().is_resumed());
    assert_eq!(runs(), before);
    for name in ["refused.test", "broken.test"] {
        assert!(client.connect(server.port(0), name).is_err(), "{name}");
    }
    expect_soon("both in the log", || server.error_log().matches("cert cb error").count() == 2);
    assert!(server.error_log().contains("on purpose"));
    assert!(server.error_log().contains("context: ssl_certificate_by_lua*, client: 127.0.0.1"));
}

/// A key of another certificate is refused where it is set, and what has none is not offered.
#[test]
fn a_certificate_needs_its_key() {
    let conf = format!(
        r#"server {{ listen 127.0.0.1:%%PORT_0%% ssl; {OWN}
        ssl_certificate_by_lua_block {{
            local ssl = require "ngx.ssl"
            ngx.log(ngx.WARN, "no text: ", select(2, ssl.set_der_cert("nothing")))
            assert(ssl.set_der_cert(ssl.cert_pem_to_der(text_of("a.crt"))))
            ngx.log(ngx.WARN, "other: ", select(2, ssl.set_der_priv_key(ssl.priv_key_pem_to_der(text_of("b.key")))))
        }} }}"#
    );
    let (server, _, _) = start(&conf);
    assert!(Tls::default().connect(server.port(0), "a.test").is_err());
    let log = server.error_log();
    assert!(log.contains("no text: d2i_X509_bio() failed"), "{log}");
    assert!(log.contains("other: SSL_use_PrivateKey() failed"), "{log}");
}

#[test]
fn the_hello_is_seen_and_versions_are_chosen_by_it() {
    let conf = format!(
        r#"server {{ listen 127.0.0.1:%%PORT_0%% ssl; {OWN}
        ssl_client_hello_by_lua_block {{
            local hello, ssl = require "ngx.ssl.clienthello", require "ngx.ssl"
            local name = hello.get_client_hello_server_name()
            local addr, kind = ssl.raw_client_addr()
            ngx.ctx.seen = table.concat({{ name, table.concat(hello.get_supported_versions(), ","),
                #hello.get_client_hello_ext(0), kind .. #addr, ssl.server_port() == %%PORT_0%% and "port" or "",
                #hello.get_client_hello_ciphers() > 2 and "suites" or "", #ssl.get_client_random() }}, " ")
            if name == "old.test" then assert(hello.set_protocols({{ "TLSv1.2" }})) end
            if name == "none.test" then assert(hello.set_protocols({{ "TLSv1.1" }})) end
            if name == "refused.test" then ngx.exit(ngx.ERROR) end
        }}
        location / {{ content_by_lua_block {{ ngx.say(ngx.ctx.seen, " ", ngx.var.ssl_protocol) }} }} }}"#
    );
    let (server, _, _) = start(&conf);
    let (client, port) = (Tls::default(), server.port(0));
    assert_eq!(
        client.get(port, "new.test", "/").text(),
        "new.test TLSv1.2,TLSv1.3 13 inet4 port suites 32 TLSv1.3\n"
    );
    assert!(client.get(port, "old.test", "/").text().ends_with(" TLSv1.2\n"));
    for name in ["none.test", "refused.test"] {
        assert!(client.connect(port, name).is_err(), "{name}");
    }
    expect_soon("the refusal in the log", || server.error_log().contains("callback failed"));
}

/// Sessions are kept by code alone: with what it has stored clients go on, also where it waits for that.
#[test]
fn code_keeps_sessions() {
    let conf = format!(
        r#"ssl_session_store_by_lua_block {{
            local session = require "ngx.ssl.session"
            ngx.shared.sessions:set(assert(session.get_session_id()), assert(session.get_serialized_session()))
        }}
        ssl_session_fetch_by_lua_block {{
            local session = require "ngx.ssl.session"
            ngx.sleep(0.001)
            local text = ngx.shared.sessions:get(assert(session.get_session_id()))
            if text then assert(session.set_serialized_session(text)) end
        }}
        server {{ listen 127.0.0.1:%%PORT_0%% ssl; {OWN} ssl_session_tickets off;
            location /forget {{ content_by_lua_block {{ ngx.shared.sessions:flush_all() ngx.say("done") }} }}
            location / {{ return 200 "$ssl_session_reused\n"; }} }}"#
    );
    let (server, _, _) = start(&conf);
    let (client, port) = (Tls::speaking(&[&TLS12], None), server.port(0));
    assert_eq!(client.get(port, "own.test", "/").text(), ".\n");
    let again = client.connect(port, "own.test").unwrap();
    assert!(again.is_resumed());
    assert_eq!(again.get("own.test", "/forget").text(), "done\n");
    assert!(!client.connect(port, "own.test").unwrap().is_resumed());
    // As in OpenResty, nothing is asked of code with TLS 1.3.
    let newer = Tls::speaking(&[&TLS13], None);
    newer.get(port, "own.test", "/");
    assert!(server
        .error_log()
        .contains("ssl_session_store_by_lua*: skipped since TLS version >= 1.3"));
}

#[test]
fn code_asks_for_a_certificate() {
    let conf = format!(
        r#"server {{ listen 127.0.0.1:%%PORT_0%% ssl; {OWN}
        ssl_certificate_by_lua_block {{
            local ssl = require "ngx.ssl"
            if ssl.server_name() == "asks.test" then
                assert(ssl.verify_client(ssl.parse_pem_cert(text_of("ca.crt")), 1))
            end
        }}
        location / {{ return 200 "$ssl_client_verify $ssl_client_s_dn\n"; }} }}"#
    );
    let (server, [own, a, _], _) = start(&conf);
    let ask = |pair, name| Tls::showing(pair).get(server.port(0), name, "/").text();
    assert_eq!(ask(Some(&a), "asks.test"), "SUCCESS CN=a.test\n");
    assert_eq!(ask(Some(&own), "asks.test"), "FAILED:self-signed certificate CN=own.test\n");
    assert_eq!(ask(None, "asks.test"), "NONE \n");
    assert_eq!(ask(Some(&a), "other.test"), "NONE \n");
}

/// Code asks the responder itself, by a socket, and staples what it says.
#[test]
fn code_asks_responders() {
    let authority = Authority::new("issuer");
    let responder = Responder::start(authority.signer());
    let pair = authority.issue_asked("asked.test", &responder.url());
    let conf = format!(
        r#"{BEGIN} server {{ listen 127.0.0.1:%%PORT_0%% ssl; {OWN}
        ssl_certificate_by_lua_block {{
            local ssl, ocsp = require "ngx.ssl", require "ngx.ocsp"
            local chain = ssl.cert_pem_to_der(text_of("own.crt") .. text_of("issuer.crt"))
            local url = assert(ocsp.get_ocsp_responder_from_der_chain(chain))
            local question = assert(ocsp.create_ocsp_request(chain))
            local host, port = url:match("^http://([^:]+):(%d+)/")
            local sock = ngx.socket.tcp()
            assert(sock:connect(host, tonumber(port)))
            assert(sock:send("GET /" .. ngx.escape_uri(ngx.encode_base64(question)) .. " HTTP/1.0\r\n\r\n"))
            local answer = assert(sock:receive("*a")):match("\r\n\r\n(.*)")
            local ok, e = ocsp.validate_ocsp_response(answer, chain)
            ngx.log(ngx.WARN, "the responder says: ", ok, " ", e)
            if ok then assert(ocsp.set_ocsp_status_resp(answer)) end
        }} }} }}"#
    );
    let server = Setup::new(&conf)
        .file("own.crt", &pair.cert)
        .file("own.key", &pair.key)
        .file("issuer.crt", &authority.cert)
        .start();
    let client = Tls::default();
    assert!(!client.stapled(server.port(0), "one.test").is_empty());
    responder.says(Says::Revoked);
    assert!(client.stapled(server.port(0), "two.test").is_empty());
    responder.says(Says::Forged);
    assert!(client.stapled(server.port(0), "three.test").is_empty());
    let log = server.error_log();
    assert!(log.contains("certificate status \"revoked\" in the OCSP response"), "{log}");
    assert!(log.contains("nil OCSP_basic_verify() failed"), "{log}");
}

/// Of a socket's sessions, the one that code hands in is gone on with, and no other.
#[test]
fn sockets_go_on_with_the_session_they_are_given() {
    let conf = r#"lua_ssl_trusted_certificate %%DIR%%/ca.crt; lua_ssl_key_log %%DIR%%/keys.log;
        server { listen 127.0.0.1:%%PORT_1%% ssl; ssl_verify_client optional_no_ca;
            ssl_certificate %%DIR%%/a.crt; ssl_certificate_key %%DIR%%/a.key; ssl_session_cache builtin;
            return 200 "$ssl_session_reused $ssl_client_s_dn\n"; }
        server { listen 127.0.0.1:%%PORT_0%%; location / { content_by_lua_block {
            local ssl = require "ngx.ssl"
            local function ask(session, shown)
                local sock = ngx.socket.tcp()
                assert(sock:connect("127.0.0.1", %%PORT_1%%))
                if shown then
                    assert(sock:setclientcert(ssl.parse_pem_cert(text_of(shown .. ".crt")), ssl.parse_pem_priv_key(text_of(shown .. ".key"))))
                end
                local made = assert(sock:sslhandshake(session, "a.test", true, true))
                assert(sock:send("GET / HTTP/1.0\r\n\r\n"))
                ngx.say(type(made), " ", assert(sock:receive("*a")):match("\r\n\r\n(.*)\n"))
                return made
            end
            local session = ask()
            ask() session = ask(session) ask(session) ask(false) ask(session, "b")
            ngx.say(select(2, ngx.socket.tcp():setclientcert("text", "text")))
        } } }"#;
    let (server, _, _) = start(conf);
    assert_eq!(
        server.get("/").text(),
        "cdata . \ncdata . \ncdata r \ncdata r \nboolean . \ncdata . CN=b.test\n\
         bad cert arg: cdata expected, got string\n"
    );
    let keys = std::fs::read_to_string(server.dir().join("keys.log")).unwrap();
    assert!(keys.contains("CLIENT_TRAFFIC_SECRET_0 "), "{keys}");
}

#[test]
fn code_is_in_files_too() {
    let conf = format!(
        "ssl_client_hello_by_lua_file %%DIR%%/said.lua; ssl_certificate_by_lua_file %%DIR%%/said.lua;
        ssl_session_fetch_by_lua_file %%DIR%%/said.lua; ssl_session_store_by_lua_file %%DIR%%/said.lua;
        {OWN} ssl_session_tickets off; server {{ listen 127.0.0.1:%%PORT_0%% ssl; return 200 ok; }}"
    );
    let own = self_signed("own.test");
    let server = Setup::new(&format!("{BEGIN}{conf} }}"))
        .file("said.lua", "ngx.log(ngx.WARN, 'here is ', ngx.get_phase())")
        .file("own.crt", own.cert)
        .file("own.key", own.key)
        .start();
    let client = Tls::speaking(&[&TLS12], None);
    client.get(server.port(0), "own.test", "/");
    client.get(server.port(0), "own.test", "/");
    for phase in ["ssl_client_hello", "ssl_cert", "ssl_session_store", "ssl_session_fetch"] {
        assert!(server.error_log().contains(&format!("here is {phase},")), "{phase}");
    }
}

#[test]
fn what_makes_no_sense_is_refused() {
    for (line, expected) in [
        ("server { ssl_certificate_by_lua_block { } }", "no ssl configured for the server"),
        ("server { ssl_session_fetch_by_lua_block { } }", "not allowed here"),
        (
            "server { ssl_client_hello_by_lua_block { } ssl_client_hello_by_lua_block { } }",
            "duplicate",
        ),
    ] {
        let said = run_cli(&["-t"], &format!("events {{}} http {{ {line} }}"));
        assert!(said.stderr.contains(expected), "{line}: {}", said.stderr);
    }
}
