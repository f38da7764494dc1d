//! Errors that are found when the whole configuration is put together: which line they name, which
//! word is underlined, and what is to be done.

use weir_tests::{run_cli, tls, Setup};

/// The first error; the word that is underlined; whether something is advised.
struct Said {
    error: String,
    word: String,
    advises: bool,
}

fn said(conf: &str) -> Said {
    let output = run_cli(&["-t"], conf);
    let lines: Vec<&str> = output.stderr.lines().collect();
    let is_told = |l: &&str| l.starts_with("nginx: [emerg] ") || l.starts_with("nginx: [warn] ");
    let error = lines.iter().find(|l| is_told(l)).copied().unwrap_or_default();
    let error = error.split("] ").nth(1).unwrap_or_default().to_string();
    let carets = lines.iter().position(|l| l.trim_start_matches([' ', '|']).starts_with('^'));
    let word = carets.map(|at| {
        let (from, to) = (lines[at].find('^').unwrap(), lines[at].rfind('^').unwrap());
        lines[at - 1].get(from..=to).unwrap_or_default().to_string()
    });
    let advises = output.stderr.contains(" = help: ");
    Said { error, word: word.unwrap_or_default(), advises }
}

/// Each: the block, nginx's message, the word. `FILE:N` is where it is.
fn check(cases: &[(&str, &str, &str)]) {
    let is_weir = run_cli(&["-v"], "").stderr.contains("(weir/");
    let own = tls::self_signed("a.test");
    let files = Setup::new("").file("c.crt", own.cert).file("c.key", own.key);
    let pair = "ssl_certificate %%FILES%%/c.crt; ssl_certificate_key %%FILES%%/c.key;";
    let here = |text: &str| {
        let text = text.replace("PAIR", pair);
        text.replace("%%FILES%%", &files.dir().display().to_string())
    };
    let mut wrong = Vec::new();
    for (conf, error, word) in cases {
        let said = said(&here(&format!("events {{}}\n{conf}")));
        let error = here(error).replace("FILE:", "DIR/nginx.conf:");
        let is_it = said.error == error && (!is_weir || said.word == *word && said.advises);
        let advice = if said.advises { "" } else { ", no advice" };
        if !is_it {
            wrong.push(format!("{conf}\n  said {} at {:?}{advice}", said.error, said.word));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

const MAIL: &str = "server {\nlisten 127.0.0.1:%%PORT_0%%;\nprotocol imap; }";

#[test]
fn hosts() {
    let real = "host not found in set_real_ip_from \"nohost.invalid\" in FILE:3";
    let name = "host not found in resolver \"nohost.invalid:5353\" in FILE:3";
    let mail = |line: &str| format!("mail {{ auth_http 127.0.0.1:1;\n{line}\n{MAIL} }}");
    let http = |line: &str| format!("http {{ root html;\n{line}\n}}");
    let stream = |line: &str| format!("stream {{ preread_timeout 1s;\n{line}\n}}");
    let (from, resolver) = ("set_real_ip_from nohost.invalid;", "resolver nohost.invalid:5353;");
    let net = "set_real_ip_from 10.0.0.0/33;";
    let no_net = "host not found in set_real_ip_from \"10.0.0.0/33\" in FILE:3";
    let mut cases = Vec::new();
    for block in [&mail as &dyn Fn(&str) -> String, &http, &stream] {
        let serve = match block("").split(' ').next() {
            Some("stream") => " server { listen 127.0.0.1:%%PORT_0%%; return x; }",
            Some("http") => " server { listen 127.0.0.1:%%PORT_0%%; }",
            _ => "",
        };
        cases.push((block(&format!("{from}{serve}")), real, "nohost.invalid"));
        cases.push((block(&format!("{resolver}{serve}")), name, "nohost.invalid:5353"));
        cases.push((block(&format!("{net}{serve}")), no_net, "10.0.0.0/33"));
    }
    let zone = "upstream u { zone u 64k;\nresolver nohost.invalid:5353; server a.b:1 resolve; }";
    cases.push((format!("http {{ {zone} }}"), name, "nohost.invalid:5353"));
    cases.push((
        format!("mail {{\nauth_http http://nohost.invalid/a;\n{MAIL} }}"),
        "host not found in auth_http \"nohost.invalid/a\" in FILE:3",
        "http://nohost.invalid/a",
    ));
    let cases: Vec<(&str, &str, &str)> = cases.iter().map(|(c, e, w)| (&c[..], *e, *w)).collect();
    check(&cases);
}

#[test]
fn servers_of_mail() {
    let auth = "mail { auth_http 127.0.0.1:1;";
    let lacks = |what: &str, by: &str| {
        format!("no \"{what}\" is defined for the \"{by}\" directive in FILE:4")
    };
    let listen = "server {\nprotocol imap;\nlisten 127.0.0.1:%%PORT_0%% ssl;";
    let secure = format!("{auth} {listen} }} }}");
    let no_key = format!("{auth} ssl_certificate %%FILES%%/c.crt; {listen} }} }}");
    let two = format!("{auth} {listen}\nPAIR\nssl_certificate %%FILES%%/c.crt; }} }}");
    let start = format!("{auth}\n\nstarttls on; {MAIL} }}");
    let start_key = format!("{auth}\n\nssl_certificate %%FILES%%/c.crt; starttls on; {MAIL} }}");
    check(&[
        (
            &format!("mail {{\n{MAIL} }}"),
            "no \"auth_http\" is defined for server in FILE:3",
            "server",
        ),
        (
            &format!("{auth}\nserver {{ listen 127.0.0.1:%%PORT_0%%; }} }}"),
            "unknown mail protocol for server in FILE:3",
            "server",
        ),
        (&secure, &lacks("ssl_certificate", "listen ... ssl"), "listen"),
        (&no_key, &lacks("ssl_certificate_key", "listen ... ssl"), "listen"),
        (
            &two,
            "no \"ssl_certificate_key\" is defined for certificate \"%%FILES%%/c.crt\" and the \
             \"listen ... ssl\" directive in FILE:4",
            "listen",
        ),
        (&start, &lacks("ssl_certificate", "starttls"), "starttls"),
        (&start_key, &lacks("ssl_certificate_key", "starttls"), "starttls"),
    ]);
}

/// Each in its own server: the one before it has all that it needs.
#[test]
fn tls_of_http_and_stream() {
    let trust = "no ssl_client_certificate or ssl_trusted_certificate for ssl_verify_client";
    let key = "no \"ssl_certificate_key\" is defined for certificate \"%%FILES%%/c.crt\"";
    let none = "no \"ssl_certificate\" is defined for the \"listen ... ssl\" directive in FILE:5";
    let ciphers = "SSL_CTX_set_cipher_list(\"FOO\") failed (SSL: error:0A0000B9:SSL routines::no \
                   cipher match)";
    let mut cases = Vec::new();
    for (block, tail) in [("http", ""), ("stream", "return x;"), ("mail", "protocol imap;")] {
        let begin = match block {
            "mail" => "mail { auth_http 127.0.0.1:1;",
            _ => &format!("{block} {{"),
        };
        let good = "PAIR ssl_client_certificate %%FILES%%/c.crt; ssl_verify_client on;";
        let with = |more: &str| {
            let first = format!("server {{ listen 127.0.0.1:%%PORT_0%% ssl; {good} {tail} }}");
            format!("{begin}\n{first}\n\nserver {{ listen 127.0.0.1:%%PORT_1%% ssl; {tail}\n{more} }} }}")
        };
        cases.push((with("PAIR ssl_verify_client on;"), trust, "ssl_verify_client"));
        cases.push((with("PAIR ssl_ciphers FOO;"), ciphers, "FOO"));
        if block != "mail" {
            cases.push((with("ssl_certificate %%FILES%%/c.crt;"), key, "%%FILES%%/c.crt"));
            cases.push((with(""), none, "listen"));
        }
    }
    let files = |word: &str| word.starts_with("%%");
    let (with_file, plain): (Vec<_>, Vec<_>) = cases.iter().partition(|(_, _, w)| files(w));
    let plain: Vec<(&str, &str, &str)> = plain.iter().map(|(c, e, w)| (&c[..], *e, *w)).collect();
    check(&plain);
    let said = |conf: &str| said(&format!("events {{}}\n{}", conf.replace("%%FILES%%", "/none")));
    for (conf, error, _) in with_file {
        let conf = conf.replace("PAIR", "ssl_reject_handshake on;");
        let conf =
            conf.replace("ssl_client_certificate %%FILES%%/c.crt; ssl_verify_client on;", "");
        let said = said(&conf);
        assert_eq!(said.error, error.replace("%%FILES%%", "/none"));
        if run_cli(&["-v"], "").stderr.contains("(weir/") {
            assert_eq!((&said.word[..], said.advises), ("/none/c.crt", true), "{conf}");
        }
    }
}

#[test]
fn servers_to_be_asked() {
    let verify = "no proxy_ssl_trusted_certificate for proxy_ssl_verify";
    let stream = "server { listen 127.0.0.1:%%PORT_0%%;\nproxy_pass";
    check(&[
        (&format!("stream {{ {stream} u; }} }}"), "no port in upstream \"u\" in FILE:3", "u"),
        (
            "http {\nupstream u { server 127.0.0.1:1 backup; } }",
            "no servers in upstream \"u\" in FILE:3",
            "u",
        ),
        (
            "stream {\nupstream u { server 127.0.0.1:1 backup; } }",
            "no servers in upstream \"u\" in FILE:3",
            "u",
        ),
        (
            "stream {\nupstream u { zone z 64k; server localhost:1 resolve; } }",
            "no resolver defined to resolve names at run time in upstream \"u\" in FILE:3",
            "u",
        ),
        (
            &format!("stream {{ {stream} 127.0.0.1:1; proxy_ssl on;\nproxy_ssl_verify on; }} }}"),
            verify,
            "proxy_ssl_verify",
        ),
        (
            "http { server { listen 127.0.0.1:%%PORT_0%%; location /a { proxy_ssl_verify off; }
             location /b { proxy_pass https://127.0.0.1:1; proxy_ssl_verify on; } } }",
            verify,
            "proxy_ssl_verify",
        ),
    ]);
}

/// A name that is not found is no error: what is without it says each protocol.
#[test]
fn a_server_without_an_address() {
    if !run_cli(&["-v"], "").stderr.contains("(weir/") {
        return weir_tests::skip("nginx does not start without it");
    }
    for (conf, lost, word) in [
        (
            "stream { server { listen 127.0.0.1:%%PORT_0%%; proxy_pass nohost.invalid:80; } }",
            "sessions that need it are closed until it is found",
            "nohost.invalid:80",
        ),
        (
            "http { upstream u { server nohost.invalid; } }",
            "requests that need it get 502 until it is found",
            "nohost.invalid",
        ),
    ] {
        let conf = format!("events {{}} {conf}");
        let output = run_cli(&["-t"], &conf);
        assert!(output.stderr.contains(lost), "{}", output.stderr);
        assert_eq!(said(&conf).word, word, "{}", output.stderr);
    }
}
