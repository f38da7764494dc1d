//! The wall clock is set while the server runs, by an hour forward or back. Only dates follow it:
//! what is timed, and what is kept for a time in memory, goes on. (nginx goes by the wall clock in
//! what is told here, unless a test says otherwise.)

use std::path::{Path, PathBuf};
use weir_tests::{expect_soon, skip, tools, Next, Origin, Server, Setup};

const HOUR_SECS: i64 = 3600;

/// The library that stands between a program and the clocks, as the program `faketime` has it.
fn library() -> Option<PathBuf> {
    let program = tools::need("faketime")?.path;
    let libraries = program.parent()?.parent()?.join("lib");
    let dirs = std::fs::read_dir(libraries).ok()?.flatten();
    dirs.map(|d| d.path().join("faketime/libfaketimeMT.so.1")).find(|p| p.exists())
}

/// Sets the clock of the server in that directory so far off.
fn set_clock(dir: &Path, secs: i64) {
    std::fs::write(dir.join("clock.new"), format!("{secs:+}\n")).unwrap();
    std::fs::rename(dir.join("clock.new"), dir.join("clock")).unwrap();
}

const ENVIRONMENT: [&str; 4] =
    ["FAKETIME_NO_CACHE", "FAKETIME_DONT_FAKE_MONOTONIC", "DONT_FAKE_MONOTONIC", "LD_PRELOAD"];

fn start(http: &str, origin: &Origin) -> Option<Server> {
    let library = library()?;
    // nginx keeps of its environment what it is told to.
    let env: String = ENVIRONMENT.iter().map(|name| format!("env {name}; ")).collect();
    let setup = Setup::new(&format!(
        "{env} env FAKETIME_TIMESTAMP_FILE; master_process off; events {{}} http {{ {http} }}"
    ));
    set_clock(setup.dir(), 0);
    let clock = setup.dir().join("clock").display().to_string();
    let mut setup = setup.set("ORIGIN", origin.address()).env("FAKETIME_TIMESTAMP_FILE", &clock);
    for name in ENVIRONMENT {
        let library = library.to_str()?;
        setup = setup.env(name, if name == "LD_PRELOAD" { library } else { "1" });
    }
    Some(setup.start())
}

fn is_nginx() -> bool {
    weir_tests::binary().ends_with("nginx")
}

/// True of nginx too, but for the time that its log tells.
#[test]
fn connections_and_timeouts_go_on() {
    let slow = Origin::start(|_, conn| {
        std::thread::sleep(std::time::Duration::from_millis(300));
        conn.reply("200 OK", "", "slow");
        Next::Keep
    });
    let conf = "log_format t '$request_time $status'; access_log %%DIR%%/access.log t;
        server { listen 127.0.0.1:%%PORT_0%%; keepalive_timeout 60s;
            location /date { return 200 $msec; }
            location / { proxy_pass http://%%ORIGIN%%; proxy_read_timeout 60s; } }";
    let Some(server) = start(conf, &slow) else { return };
    let mut kept = server.connect();
    let mut date = || -> f64 { kept.get("/date").text().parse().unwrap() };
    let begin = date();
    for (n, secs) in [HOUR_SECS, 0, -HOUR_SECS, 0].into_iter().enumerate() {
        let mut waits = server.connect();
        waits.send_get("/");
        slow.expect_requests(n + 1);
        set_clock(server.dir(), secs);
        let off = date() - begin - secs as f64;
        assert!((-1.0..60.0).contains(&off), "{off} s off");
        assert_eq!(waits.response().text(), "slow");
    }
    if !is_nginx() {
        for line in server.log_lines("access.log", 9) {
            let time: f64 = line.split_once(' ').unwrap().0.parse().unwrap();
            assert!((0.0..60.0).contains(&time), "{line}");
        }
    }
}

#[test]
fn a_server_that_failed_is_tried_again_in_its_time() {
    if is_nginx() {
        return skip("nginx leaves it out until the clock is where it was");
    }
    let conf =
        "upstream u { server 127.0.0.1:%%PORT_1%% fail_timeout=1s; server %%ORIGIN%% backup; }
        server { listen 127.0.0.1:%%PORT_0%%; location / {
            proxy_pass http://u; proxy_next_upstream http_500; } }
        server { listen 127.0.0.1:%%PORT_1%%; root %%DIR%%; location / { try_files /up =500; } }";
    let backup = Origin::start(|_, conn| {
        conn.reply("200 OK", "", "backup");
        Next::Keep
    });
    let Some(server) = start(conf, &backup) else { return };
    assert_eq!(server.get("/").text(), "backup");
    set_clock(server.dir(), -HOUR_SECS);
    server.write("up", "again");
    expect_soon("it is tried", || server.get("/").text() == "again");
}

#[test]
fn what_is_inactive_leaves_the_cache_in_its_time() {
    if is_nginx() {
        return skip("nginx keeps it until the clock is where it was");
    }
    let conf = "proxy_cache_path %%DIR%%/cache keys_zone=c:1m inactive=1s;
        server { listen 127.0.0.1:%%PORT_0%%; location / {
            proxy_pass http://%%ORIGIN%%; proxy_cache c; proxy_cache_valid 200 10d; } }";
    let origin = Origin::replying("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok");
    let Some(server) = start(conf, &origin) else { return };
    assert_eq!(server.get("/").text(), "ok");
    set_clock(server.dir(), -HOUR_SECS);
    let entries = || std::fs::read_dir(server.dir().join("cache")).map_or(0, Iterator::count);
    expect_soon("it is gone", || entries() == 0);
}
