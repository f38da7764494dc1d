//! Paths are bytes: a name that is not UTF-8 is as good as another, wherever a path can come from.

use std::cell::RefCell;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};
use std::process::Command;
use weir_tests::tools::finish;
use weir_tests::{
    binary, expect_soon, free_port, listens_on, tls, Origin, Peer, Server, Setup, Signal, PATIENCE,
};

/// Bytes of a text in which `~` stands for a byte that no UTF-8 has.
fn bytes(text: &str) -> Vec<u8> {
    text.bytes().map(|b| if b == b'~' { 0xff } else { b }).collect()
}

fn path(text: &str) -> PathBuf {
    OsStr::from_bytes(&bytes(text)).into()
}

fn in_dir(text: &str, dir: &Path) -> Vec<u8> {
    bytes(&text.replace("%%DIR%%", &dir.display().to_string()))
}

/// Both texts are in files whose names are found by a pattern and are not UTF-8 themselves.
fn start(http: &str, server: &str, fill: impl Fn(Setup) -> Setup) -> Server {
    let setup = Setup::new(
        "error_log %%DIR%%/error.log; events {} http { include %%DIR%%/c*/h[t]*.conf;
            server { include %%DIR%%/c*/s[e]*.conf; listen 127.0.0.1:%%PORT_0%%; } }",
    );
    let (http, server) = (in_dir(http, setup.dir()), in_dir(server, setup.dir()));
    fill(setup.file(path("c~/ht~.conf"), http).file(path("c~/se~.conf"), server)).start()
}

fn body(server: &Server, target: &str) -> String {
    let r = server.get(target);
    match r.status {
        200 => String::from_utf8_lossy(&r.body).into_owned(),
        status => panic!("{target}: {status}\n{}", server.error_log()),
    }
}

#[test]
fn files_of_requests() {
    let server = start(
        "",
        "root %%DIR%%/html~; index none ~.html;
         location /alias/ { alias %%DIR%%/html~/sub~/; }
         location /try/ { try_files /none~ /~.txt =404; }
         location /vars/ { root %%DIR%%/$arg_dir~; }
         location /if/ { if (-f $document_root/~.txt) { return 200 there; } return 404; }
         location /kept/ { open_file_cache max=9; alias %%DIR%%/html~/; }
         location /links/ { disable_symlinks on; alias %%DIR%%/html~/; }
         location /map/ { charset_types *; return 200 $document_root; }",
        |setup| {
            let files = ["~.txt", "sub~/in", "sub~/~.html", "vars/v"];
            files.iter().fold(setup, |s, name| s.file(path(&format!("html~/{name}")), *name))
        },
    );
    for (target, wanted) in [
        ("/%ff.txt", "~.txt"),
        ("/%FF.txt?x", "~.txt"),
        ("/alias/in", "sub~/in"),
        ("/alias/", "sub~/~.html"),
        ("/sub%ff/", "sub~/~.html"),
        ("/try/x", "~.txt"),
        ("/vars/v?dir=html", "vars/v"),
        ("/if/", "there"),
        ("/kept/%ff.txt", "~.txt"),
        ("/kept/%ff.txt", "~.txt"),
        ("/links/%ff.txt", "~.txt"),
    ] {
        assert_eq!(body(&server, target), wanted, "{target}");
    }
    assert!(server.get("/map/").body.ends_with(b"/html\xff"));
    assert_eq!(
        server.get("/sub%ff").header("Location").map(|l| l.ends_with("/sub%FF/")),
        Some(true)
    );
}

#[test]
fn listings() {
    let server = start(
        "",
        "root %%DIR%%/html~; autoindex on;
         location /json/ { alias %%DIR%%/html~/; autoindex_format json; }
         location /xml/ { alias %%DIR%%/html~/; autoindex_format xml; }",
        |setup| setup.file(path("html~/~.txt"), "x"),
    );
    for (target, wanted) in [
        ("/", "<a href=\"%FF.txt\">~.txt</a>"),
        ("/json/", "\"name\":\"~.txt\""),
        ("/xml/", ">~.txt</file>"),
    ] {
        let (page, wanted) = (server.get(target).body, bytes(wanted));
        let found = page.windows(wanted.len()).any(|w| w == wanted);
        assert!(found, "{target}: {}", String::from_utf8_lossy(&page));
    }
}

#[test]
fn logs() {
    let syslog = RefCell::new(None);
    let server = start(
        "log_format plain $uri;",
        "root %%DIR%%/html~; access_log %%DIR%%/~.log plain; access_log %%DIR%%/~$arg_name.log plain;
         error_log %%DIR%%/e~.log notice; error_log syslog:server=unix:%%DIR%%/~.sock notice; auth_basic x; auth_basic_user_file %%DIR%%/u~;
         location /x { auth_basic off; }",
        |setup| {
            let at = setup.dir().join(path("~.sock"));
            syslog.replace(Some(UnixDatagram::bind(at).unwrap()));
            setup.file(path("html~/x"), "x").file(path("u~"), "me:{PLAIN}it\n")
        },
    );
    assert_eq!(server.get_with("/?name=of", "Authorization: Basic bWU6aXQ=\r\n").status, 403);
    assert_eq!(body(&server, "/x?name=of"), "x");
    for (name, wanted) in [("~.log", "/\n/x\n"), ("~of.log", "/\n/x\n")] {
        expect_soon(name, || {
            std::fs::read(server.dir().join(path(name))).is_ok_and(|t| t == wanted.as_bytes())
        });
    }
    let errors = std::fs::read(server.dir().join(path("e~.log"))).unwrap();
    let shown = b"directory index of \"";
    let has = |text: &[u8]| text.windows(shown.len()).any(|w| w == shown);
    let (syslog, mut line) = (syslog.take().unwrap(), [0; 2000]);
    syslog.set_read_timeout(Some(PATIENCE)).unwrap();
    let n = syslog.recv(&mut line).unwrap();
    assert!(has(&errors) && has(&line[..n]), "{}", String::from_utf8_lossy(&line[..n]));
}

#[test]
fn temporary_and_kept_files() {
    let origin =
        Origin::replying("HTTP/1.1 200 OK\r\nContent-Length: 4\r\nConnection: close\r\n\r\nkept");
    let server = start(
        "proxy_cache_path %%DIR%%/cache~ keys_zone=z:1m; proxy_temp_path %%DIR%%/p~;
         client_body_temp_path %%DIR%%/b~;",
        &"location / { proxy_pass http://%%ORIGIN%%; proxy_cache z; proxy_cache_valid 1h; }
         location /store/ { proxy_pass http://%%ORIGIN%%; proxy_store %%DIR%%/s~$uri; }
         location /body { client_body_in_file_only clean; proxy_pass http://%%ORIGIN%%; }"
            .replace("%%ORIGIN%%", &origin.address()),
        |setup| setup,
    );
    assert_eq!(body(&server, "/a"), "kept");
    expect_soon("a file in the cache", || {
        std::fs::read_dir(server.dir().join(path("cache~"))).is_ok_and(|d| d.count() == 1)
    });
    assert_eq!(body(&server, "/a"), "kept");
    assert_eq!(origin.requests().len(), 1);
    assert_eq!(body(&server, "/store/%ff"), "kept");
    let stored = server.dir().join(path("s~/store/~"));
    expect_soon("a stored file", || std::fs::read(&stored).is_ok_and(|t| t == b"kept"));
    assert_eq!(server.post("/body", "x").status, 200);
    assert!(server.dir().join(path("b~")).is_dir() && server.dir().join(path("p~")).is_dir());
}

#[test]
fn sockets() {
    let setup = |setup: Setup| setup.file("html/x", "unix");
    let server = start(
        "upstream u { server unix:%%DIR%%/s~; } server { listen unix:%%DIR%%/s~; root %%DIR%%/html;
            location /where { return 200 $server_addr; } }",
        "location /direct/ { proxy_pass http://unix:%%DIR%%/s~:/; }
         location /named/ { proxy_pass http://u/; }
         location /vars/ { set $at unix:%%DIR%%/s~; proxy_pass http://$at:/x; }
         location /addr { proxy_pass http://u/where; add_header X-Asked $upstream_addr; }",
        setup,
    );
    for target in ["/direct/x", "/named/x", "/vars/x"] {
        assert_eq!(body(&server, target), "unix", "{target}");
    }
    let (shown, told) = (server.get("/addr"), format!("unix:{}/s~", server.dir().display()));
    // What a header holds is shown as Latin-1.
    assert_eq!(shown.header("X-Asked"), Some(&*told.replace('~', "\u{ff}")));
    assert_eq!(shown.body, bytes(&told));
}

#[test]
fn certificates() {
    let pair = tls::self_signed("localhost");
    let (fixed, named) = (free_port().to_string(), free_port().to_string());
    let at = |text: &str| text.replace("FIXED", &fixed).replace("NAMED", &named);
    let http = "ssl_password_file %%DIR%%/w~; ssl_client_certificate %%DIR%%/~.crt; ssl_verify_client optional;
         server { listen 127.0.0.1:FIXED ssl; return 200 $ssl_protocol;
            ssl_certificate %%DIR%%/~.crt; ssl_certificate_key %%DIR%%/~.key; ssl_session_ticket_key %%DIR%%/t~; }
         server { listen 127.0.0.1:NAMED ssl; return 200 $ssl_protocol;
            ssl_certificate %%DIR%%/$ssl_server_name~.crt; ssl_certificate_key %%DIR%%/$ssl_server_name~.key; }";
    let inner =
        "location / { proxy_pass https://127.0.0.1:FIXED; proxy_ssl_certificate %%DIR%%/~.crt;
            proxy_ssl_certificate_key %%DIR%%/~.key; proxy_ssl_verify on; proxy_ssl_name localhost;
            proxy_ssl_trusted_certificate %%DIR%%/~.crt; }";
    let server = start(&at(http), &at(inner), |setup| {
        let setup = setup.file(path("w~"), "x").file(path("t~"), [b'x'; 80]);
        ["", "localhost"].iter().fold(setup, |s, name| {
            let s = s.file(path(&format!("{name}~.crt")), &pair.cert);
            s.file(path(&format!("{name}~.key")), &pair.key)
        })
    });
    let client = tls::Tls::default();
    let named = named.parse().unwrap();
    let all = || {
        assert_eq!(body(&server, "/"), "TLSv1.3");
        assert_eq!(client.get(named, "localhost", "/").text(), "TLSv1.3");
    };
    all();
    let more = at(inner) + "location /new { return 200 new; }";
    server.write(path("c~/se~.conf"), in_dir(&more, server.dir()));
    server.signal(Signal::Hup);
    expect_soon("another configuration", || server.get("/new").text() == "new");
    all();
}

#[test]
fn on_the_command_line() {
    let port = free_port();
    let conf = format!(
        "events {{}} daemon off; pid l~.pid; http {{ access_log off; server {{ listen 127.0.0.1:{port}; root h~; }} }}"
    );
    let setup = Setup::new("").file(path("p~/c~.conf"), bytes(&conf)).file(path("p~/h~/x"), "x");
    let at = |name| setup.dir().join(path(name));
    let command = || {
        let mut command = Command::new(binary());
        command
            .arg("-p")
            .arg(at("p~"))
            .arg("-c")
            .arg(at("p~/c~.conf"))
            .arg("-e")
            .arg(path("e~.log"));
        command.arg("-g").arg(OsStr::from_bytes(&bytes("user root; error_log g~.log info;")));
        command
    };
    let tested = finish(command().arg("-t"), b"");
    assert_eq!(tested.code, 0, "{}", tested.stderr);
    let mut child = command().spawn().unwrap();
    expect_soon("it listens", || listens_on(port));
    assert_eq!(Peer::Tcp(port).get("/x").text(), "x");
    assert!(at("p~/g~.log").exists() && at("p~/l~.pid").exists());
    let stopped = finish(command().arg("-s").arg("stop"), b"");
    assert_eq!(stopped.code, 0, "{}", stopped.stderr);
    expect_soon("its end", || matches!(child.try_wait(), Ok(Some(_))));
}
