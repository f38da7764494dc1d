//! The files and the memory of `proxy_cache_path`: restarts, broken files, bounds.

use std::path::{Path, PathBuf};
use weir_tests::{expect_soon, run_cli, skip, Next, Origin, Server, Setup, Signal};

fn conf(path: &str, location: &str) -> String {
    format!(
        "events {{}} http {{ proxy_cache_path {path};
            server {{ listen 127.0.0.1:%%PORT_0%%; add_header X-Status $upstream_cache_status;
                location / {{ proxy_pass http://%%ORIGIN%%; proxy_cache c; proxy_cache_valid 1m;
                    {location} }} }} }}"
    )
}

fn start(origin: &Origin, path: &str, location: &str) -> Server {
    Setup::new(&conf(path, location)).set("ORIGIN", origin.address()).start()
}

/// Answers so many bytes.
fn sized(bytes: usize) -> Origin {
    Origin::start(move |_, conn| {
        conn.reply("200 OK", "Content-Type: text/html\r\n", &"x".repeat(bytes));
        Next::Keep
    })
}

fn status(server: &Server, path: &str) -> String {
    server.get(path).header("X-Status").unwrap_or_default().to_string()
}

fn files(dir: &Path) -> Vec<PathBuf> {
    let Ok(entries) = std::fs::read_dir(dir) else { return Vec::new() };
    let each = |path: PathBuf| if path.is_dir() { files(&path) } else { vec![path] };
    entries.flatten().flat_map(|e| each(e.path())).collect()
}

/// A directory that outlives a server.
struct Shared(PathBuf);

impl Shared {
    fn new(name: &str) -> Shared {
        let dir = std::env::temp_dir().join(format!("weir-cache-{name}-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&dir);
        std::fs::create_dir_all(&dir).unwrap();
        Shared(dir)
    }

    fn path(&self, parameters: &str) -> String {
        format!("{} keys_zone=c:1m {parameters}", self.0.display())
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

#[test]
fn a_store_survives_a_restart_and_a_reload() {
    let (origin, dir) = (sized(10), Shared::new("restart"));
    let path = dir.path("levels=1:2");
    let server = start(&origin, &path, "");
    assert_eq!(status(&server, "/a"), "MISS");
    drop(server);
    let mut server = start(&origin, &path, "");
    assert_eq!(status(&server, "/a"), "HIT");
    let conf = conf(&path, "add_header X-New 1;").replace("%%ORIGIN%%", &origin.address());
    server.reload(&conf, || true);
    expect_soon("still a hit", || status(&server, "/a") != "MISS");
    assert_eq!(origin.requests().len(), 1);
}

#[test]
fn a_large_answer_comes_from_its_file() {
    let origin = sized(3_000_000);
    let server = start(&origin, "%%DIR%%/c keys_zone=c:1m use_temp_path=off", "");
    for want in ["MISS", "HIT", "HIT"] {
        let r = server.get("/big");
        assert_eq!((r.header("X-Status"), r.body.len()), (Some(want), 3_000_000));
    }
    assert_eq!(files(&server.dir().join("c")).len(), 1);
}

#[test]
fn broken_and_foreign_files_are_dropped() {
    let (origin, dir) = (sized(1000), Shared::new("broken"));
    let path = dir.path("memory=0");
    let server = start(&origin, &path, "");
    for (i, spoil) in [
        (|text: &mut Vec<u8>| text.truncate(500)) as fn(&mut Vec<u8>),
        |text| text.extend_from_slice(b"more"),
        |text| text[20] ^= 1,
        |text| text.clear(),
        |text| *text = b"not ours at all, and long enough to be looked at".repeat(20),
    ]
    .iter()
    .enumerate()
    {
        let uri = format!("/{i}");
        let before = files(&dir.0);
        assert_eq!(status(&server, &uri), "MISS");
        let file = files(&dir.0).into_iter().find(|f| !before.contains(f)).unwrap();
        assert_eq!(status(&server, &uri), "HIT");
        let mut text = std::fs::read(&file).unwrap();
        spoil(&mut text);
        std::fs::write(&file, text).unwrap();
        assert_eq!(status(&server, &uri), "MISS", "{i}");
        assert_eq!(status(&server, &uri), "HIT", "{i}");
    }
}

#[test]
fn a_kill_in_mid_write_leaves_nothing_to_be_served() {
    let (ready, gate) = std::sync::mpsc::channel::<()>();
    let gate = std::sync::Mutex::new(gate);
    let origin = Origin::start(move |request, conn| {
        if request.target() == "/again" {
            conn.reply("200 OK", "", "whole");
            return Next::Keep;
        }
        conn.write("HTTP/1.1 200 OK\r\nContent-Length: 400000\r\n\r\n");
        conn.write(vec![b'x'; 200_000]);
        let _ = gate.lock().unwrap().recv_timeout(weir_tests::PATIENCE);
        Next::Close
    });
    let dir = Shared::new("kill");
    let path = dir.path("use_temp_path=off");
    let mut server = start(&origin, &path, "proxy_cache_key same;");
    let mut client = server.connect();
    client.send_get("/half");
    expect_soon("half of the file", || {
        files(&dir.0).iter().any(|f| f.metadata().is_ok_and(|m| m.len() > 100_000))
    });
    server.signal(Signal::Kill);
    server.wait_exit();
    ready.send(()).unwrap();
    let server = start(&origin, &path, "proxy_cache_key same;");
    let r = server.get("/again");
    assert_eq!((r.header("X-Status"), r.text().as_str()), (Some("MISS"), "whole"));
}

/// An entry as the store writes it, for many at once: a copy of one that the server wrote.
#[test]
fn a_hundred_thousand_entries_do_not_keep_it_from_serving() {
    let (origin, dir) = (sized(10), Shared::new("many"));
    let path = format!("{} keys_zone=c:64m levels=2", dir.0.display());
    let server = start(&origin, &path, "");
    assert_eq!(status(&server, "/wanted"), "MISS");
    drop(server);
    let file = files(&dir.0).remove(0);
    for n in 0..100_000u32 {
        let name = format!("{:032x}", u128::from(n) * 0x9e37_79b9_7f4a_7c15_f39c_c060);
        let sub = dir.0.join(&name[30..]);
        if n < 256 {
            let _ = std::fs::create_dir(&sub);
        }
        if std::fs::hard_link(&file, sub.join(&name)).is_err() {
            // A file has so many links at most, and so many directories may be missing.
            let _ = std::fs::create_dir(&sub);
            let _ = std::fs::copy(&file, sub.join(&name));
        }
    }
    let begun = std::time::Instant::now();
    let server = start(&origin, &path, "");
    assert_eq!(status(&server, "/wanted"), "HIT");
    assert_eq!(status(&server, "/other"), "MISS");
    assert!(begun.elapsed().as_secs() < 5);
}

#[test]
fn the_manager_keeps_the_size() {
    let origin = sized(1000);
    let server =
        start(&origin, "%%DIR%%/c keys_zone=c:1m max_size=8k inactive=1s manager_sleep=50ms", "");
    (0..20).for_each(|n| drop(server.get(&format!("/{n}"))));
    weir_tests::wait_for(|| files(&server.dir().join("c")).is_empty(), weir_tests::PATIENCE * 3);
    assert!(files(&server.dir().join("c")).len() < 3);
}

#[test]
fn compressed_forms_are_kept_with_their_answer() {
    let origin = sized(5000);
    let server = start(&origin, "%%DIR%%/c keys_zone=c:1m", "gzip on; gzip_min_length 0;");
    let gzip = "Accept-Encoding: gzip\r\n";
    let first = server.get_with("/", gzip);
    assert!(first.is_chunked(), "made on the way");
    let second = server.get_with("/", gzip);
    // A form that is kept is whole, so its length is known.
    assert_eq!(second.header("X-Status"), Some("HIT"));
    assert_eq!(second.header("Content-Encoding"), Some("gzip"));
    assert_eq!(second.content_length(), Some(second.body.len()));
    assert_eq!(server.get_with("/", gzip).body, second.body);
    assert_eq!(server.get("/").body.len(), 5000);
}

#[test]
fn without_memory_answers_come_from_files() {
    let origin = sized(5000);
    let server = start(&origin, "%%DIR%%/c keys_zone=c:1m memory=0", "gzip on; gzip_min_length 0;");
    server.get("/");
    let r = server.get_with("/", "Accept-Encoding: gzip\r\n");
    assert_eq!((r.header("X-Status"), r.is_chunked()), (Some("HIT"), true));
}

#[test]
fn a_file_removed_by_hand_is_noticed() {
    let origin = sized(10);
    let server = start(&origin, "%%DIR%%/c keys_zone=c:1m", "");
    server.get("/");
    assert_eq!(status(&server, "/"), "HIT");
    files(&server.dir().join("c")).iter().for_each(|f| std::fs::remove_file(f).unwrap());
    expect_soon("asked again", || status(&server, "/") == "MISS");
}

/// What was in memory is there again without being asked for, after an end and a kill.
#[test]
fn memory_begins_as_it_was() {
    if !run_cli(&["-v"], "").stderr.contains("(weir/") {
        return skip("nginx has no memory tier");
    }
    let (origin, dir) = (sized(10_000), Shared::new("warm"));
    let start = |parameters: &str| {
        let conf = format!(
            "error_log %%DIR%%/error.log notice; master_process off; {}",
            conf(&dir.path(parameters), "} location = /status { stub_status json;")
        );
        Setup::new(&conf).set("ORIGIN", origin.address()).start()
    };
    let figure = |server: &Server, name: &str| -> u64 {
        let text = server.get("/status").text();
        let rest = text.split(&format!("\"{name}\":")).nth(1).unwrap_or_else(|| panic!("{text}"));
        let digits: String = rest.trim_start().chars().take_while(char::is_ascii_digit).collect();
        digits.parse().unwrap_or_else(|_| panic!("{text}"))
    };
    let loaded = |server: &Server| {
        expect_soon("the loader is through", || {
            server.get("/status").text().contains("\"cold\":false")
        });
        figure(server, "memory_bytes")
    };
    let mut server = start("");
    assert_eq!(loaded(&server), 0);
    (0..10).for_each(|n| assert_eq!(status(&server, &format!("/{n}")), "MISS"));
    let used = figure(&server, "memory_bytes");
    assert!(used > 100_000);
    server.signal(Signal::Quit);
    server.wait_exit();
    assert!(dir.0.join("memory.list").is_file());
    let mut server = start("");
    assert_eq!(loaded(&server), used);
    server.signal(Signal::Kill);
    server.wait_exit();
    let server = start("");
    assert_eq!(loaded(&server), used, "a kill has lost nothing that was noted");
    assert!((0..10).all(|n| status(&server, &format!("/{n}")) == "HIT"));
    assert_eq!(origin.requests().len(), 10);
    drop(server);
    // Of no more than there is room for, of other levels, and none.
    assert!(loaded(&start("memory=50k")) <= 51_200);
    let server = start("levels=1:2");
    assert_eq!(loaded(&server), 0);
    server.expect_error("memory.list\" is of other \"levels\": memory begins empty");
    drop(server);
    std::fs::write(dir.0.join("memory.list"), "odd").unwrap();
    let server = start("");
    assert_eq!(loaded(&server), 0);
    server.expect_error("memory.list\" is not a list of what was in memory: memory begins empty");
}
