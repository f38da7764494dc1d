//! `state` files that somebody else writes too: another server, or whoever puts one there by hand. What any server has
//! answered as done is there afterwards, and what stands in a file at a reload counts.

use std::fs::Permissions;
use std::os::unix::fs::{symlink, PermissionsExt as _};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::Mutex;
use weir_tests::figures::number;
use weir_tests::{expect_soon, Peer, Response, Server, Setup, Signal};

const CONF: &str =
    "error_log %%DIR%%/error.log notice; events {} http { access_log off; keepalive_timeout 0;
    keyval_zone zone=z:64k state=%%S%%/z.json; keyval $arg_k $v zone=z;
    upstream u { zone u 64k; state %%S%%/u.conf; }
    upstream h { zone h 64k; hash $uri; state %%S%%/h.conf; }
    server { listen 127.0.0.1:%%PORT_0%%; location / { return 200 '$v'; }
        location /api { api write=on; allow 127.0.0.1; deny all; } } }";

const PAIRS: &str = "/api/9/http/keyvals/z";
const SERVERS: &str = "/api/9/http/upstreams/u/servers";

fn start() -> Server {
    let setup = Setup::new(CONF);
    let dir = setup.dir().display().to_string();
    setup.set("S", dir).start()
}

fn send(to: &Peer, method: &str, path: &str, body: &str) -> Response {
    to.send_json(method, path, body)
}

fn reload(server: &Server) {
    let generation = || number(&server.get("/api/9/nginx").text(), "generation");
    let before = generation();
    server.signal(Signal::Hup);
    expect_soon("the next configuration serves", || generation() > before);
}

fn put(dir: &Path, name: &str, text: &str) {
    std::fs::write(dir.join("beside"), text).unwrap();
    std::fs::rename(dir.join("beside"), dir.join(name)).unwrap();
}

/// The servers that were put and not taken away, by who asks now this server and now that.
fn write(both: &[Peer; 2], n: usize, go_on: &AtomicBool, left: &Mutex<Vec<u64>>) {
    let mut turn = n;
    while go_on.load(Ordering::Relaxed) {
        turn += 1;
        let added = send(&both[turn % 2], "POST", SERVERS, "{\"server\":\"127.0.0.1:9\"}");
        assert_eq!(added.status, 201, "{}", added.text());
        let id = number(&added.text(), "id");
        if turn.is_multiple_of(16) {
            left.lock().unwrap().push(id);
            continue;
        }
        let path = format!("{SERVERS}/{id}");
        let gone = send(&both[(turn / 2) % 2], "DELETE", &path, "");
        assert_eq!(gone.status, 200, "{}", gone.text());
    }
}

#[test]
fn two_servers_that_reload_lose_nothing() {
    const RELOADS: usize = 16;
    let one = start();
    let two = Setup::new(CONF).set("S", one.dir().display()).start();
    let (go_on, left) = (AtomicBool::new(true), Mutex::default());
    std::thread::scope(|scope| {
        for n in 0..4 {
            let both = [one.on(0), two.on(0)];
            let (go_on, left) = (&go_on, &left);
            scope.spawn(move || write(&both, n * 5, go_on, left));
        }
        for n in 0..RELOADS {
            reload(if n % 3 == 0 { &one } else { &two });
        }
        go_on.store(false, Ordering::Relaxed);
    });
    let mut expected = left.into_inner().unwrap();
    expected.sort_unstable();
    for server in [&one, &two] {
        let text = server.get(SERVERS).text();
        let ids: Vec<u64> = text
            .split("\"id\":")
            .skip(1)
            .filter_map(|t| t.split(',').next()?.parse().ok())
            .collect();
        assert_eq!(ids, expected);
    }
}

#[test]
fn what_stands_in_a_file_at_a_reload_counts() {
    let server = start();
    let to = server.on(0);
    assert_eq!(send(&to, "POST", SERVERS, "{\"server\":\"127.0.0.1:1\"}").status, 201);
    assert_eq!(send(&to, "POST", PAIRS, "{\"a\":\"1\"}").status, 201);
    let before = [server.read("u.conf"), server.read("z.json")];
    assert_eq!(send(&to, "PATCH", &format!("{SERVERS}/0"), "{\"weight\":7}").status, 200);
    assert_eq!(send(&to, "POST", SERVERS, "{\"server\":\"127.0.0.1:2\"}").status, 201);
    assert_eq!(send(&to, "PATCH", PAIRS, "{\"a\":\"2\"}").status, 204);
    // In place, as by `cp`: an older text is as good as another.
    std::fs::write(server.dir().join("u.conf"), &before[0]).unwrap();
    std::fs::write(server.dir().join("z.json"), &before[1]).unwrap();
    reload(&server);
    assert_eq!(server.get("/?k=a").text(), "1");
    let shown = server.get(SERVERS).text();
    assert!(shown.starts_with("[{\"id\":0,\"server\":\"127.0.0.1:1\",\"weight\":1,"), "{shown}");
    assert_eq!(shown.matches("\"id\"").count(), 1, "{shown}");
    // What is put in next stands behind it, and has a number of its own.
    assert_eq!(send(&to, "POST", PAIRS, "{\"b\":\"3\"}").status, 201);
    let added = send(&to, "POST", SERVERS, "{\"server\":\"127.0.0.1:3\"}").text();
    assert!(added.starts_with("{\"id\":2,"), "{added}");
    std::fs::write(server.dir().join("u.conf"), "server 127.0.0.1:4 weight=5;\n").unwrap();
    std::fs::write(server.dir().join("z.json"), "{\"a\":\"edited\"}").unwrap();
    reload(&server);
    assert_eq!(server.get(PAIRS).text(), "{\"a\":\"edited\"}");
    let shown = server.get(SERVERS).text();
    assert!(shown.contains("\"127.0.0.1:4\",\"weight\":5,"), "{shown}");
    // A reload without another text changes nothing.
    reload(&server);
    assert_eq!(server.get(SERVERS).text(), shown);
}

#[test]
fn what_is_no_server_is_not_taken_for_one() {
    let server = start();
    let to = server.on(0);
    assert_eq!(send(&to, "POST", SERVERS, "{\"server\":\"127.0.0.1:1\"}").status, 201);
    for (text, expected) in [
        ("keepalive 5;", "\"keepalive\" is no server"),
        ("server 127.0.0.1:2; zone x 64k;", "\"zone\" is no server"),
        ("server;", "\"server\" is no server"),
        ("server 127.0.0.1:2 { }", "\"server\" has a block"),
    ] {
        put(server.dir(), "u.conf", text);
        let refused = send(&to, "POST", SERVERS, "{\"server\":\"127.0.0.1:3\"}");
        assert_eq!(refused.status, 500, "{text}");
        server.expect_error(expected);
        assert_eq!(server.get(SERVERS).text().matches("\"id\"").count(), 1, "{text}");
        assert_eq!(server.read("u.conf"), text);
    }
    // What its balancing does not have is refused as when the configuration is read.
    put(server.dir(), "h.conf", "server 127.0.0.1:1; server 127.0.0.1:2 backup;");
    server.expect_error("balancing method does not support parameter \"backup\"");
    assert_eq!(server.get("/api/9/http/upstreams/h/servers").text(), "[]");
}

/// Its owner alone reads a new one; rights that somebody has given it stay, and so does a link to it.
#[test]
fn a_link_stays_and_its_file_is_written() {
    let server = start();
    let (to, dir) = (server.on(0), server.dir());
    let mode = |name: &str| std::fs::metadata(dir.join(name)).unwrap().permissions().mode() & 0o777;
    assert_eq!(send(&to, "POST", PAIRS, "{\"a\":\"1\"}").status, 201);
    assert_eq!(mode("z.json"), 0o600);
    std::fs::create_dir(dir.join("real")).unwrap();
    std::fs::rename(dir.join("z.json"), dir.join("real/pairs")).unwrap();
    std::fs::set_permissions(dir.join("real/pairs"), Permissions::from_mode(0o640)).unwrap();
    symlink("real/pairs", dir.join("z.json")).unwrap();
    symlink("real/not-yet", dir.join("u.conf")).unwrap();
    assert_eq!(send(&to, "POST", PAIRS, "{\"b\":\"2\"}").status, 201);
    assert_eq!(send(&to, "POST", SERVERS, "{\"server\":\"127.0.0.1:1\"}").status, 201);
    for (link, file, text) in
        [("z.json", "real/pairs", "\"b\":\"2\""), ("u.conf", "real/not-yet", "127.0.0.1:1")]
    {
        assert!(dir.join(link).is_symlink(), "{link}");
        assert!(server.read(file).contains(text), "{file}");
    }
    assert_eq!((mode("real/pairs"), mode("real/not-yet")), (0o640, 0o600));
}

/// What was left by a process that was killed goes, and what another zone is kept in stays.
#[test]
fn a_file_beside_it_that_is_anothers_stays() {
    let conf =
        CONF.replace("upstream h", "keyval_zone zone=n:64k state=%%S%%/z.json.1.new; upstream h");
    let setup = Setup::new(&conf);
    let dir = setup.dir().display().to_string();
    let server = setup.set("S", &dir).start();
    let to = server.on(0);
    std::fs::write(server.dir().join("z.json.2.new"), "{").unwrap();
    assert_eq!(send(&to, "POST", "/api/9/http/keyvals/n", "{\"k\":\"v\"}").status, 201);
    assert_eq!(send(&to, "POST", PAIRS, "{\"a\":\"1\"}").status, 201);
    assert!(server.read("z.json.1.new").contains("\"k\":\"v\""));
    assert!(!server.dir().join("z.json.2.new").exists());
}
