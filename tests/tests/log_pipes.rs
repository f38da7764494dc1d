//! Logs that somebody reads from a fifo: a reader that stalls costs lines and stops no request.

use std::fs::File;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::Command;
use std::thread::JoinHandle;
use weir_tests::{expect_soon, is_alive, signal, skip, Server, Setup, Signal};

/// Makes a fifo; its reader is there once the server has opened it.
fn fifo(path: &Path) -> JoinHandle<File> {
    assert!(Command::new("mkfifo").arg(path).status().unwrap().success());
    let path = path.to_path_buf();
    std::thread::spawn(move || File::open(path).unwrap())
}

fn start(conf: &str) -> (Server, File) {
    let setup = Setup::new(conf);
    let reader = fifo(&setup.dir().join("pipe"));
    (setup.start(), reader.join().unwrap())
}

/// Asks for more than pipe and queue hold, on a kept connection.
fn flood(server: &Server) {
    let mut client = server.connect();
    for n in 0..900 {
        assert_eq!(client.get(&format!("/{n}{}", "x".repeat(2500))).status, 404);
    }
}

/// Reads until a line has this in it; how many lines that took.
fn lines_until(lines: &mut impl Iterator<Item = String>, wanted: &str) -> usize {
    lines.position(|line| line.contains(wanted)).expect("the line comes")
}

#[test]
fn a_stalled_reader_of_the_access_log() {
    for buffer in ["", "buffer=8k flush=10ms"] {
        let (server, pipe) = start(
            &"worker_processes 1; events {} http { keepalive_requests 10000; log_not_found off;
                log_format l $request_uri; access_log %%DIR%%/pipe l BUFFER;
                server { listen 127.0.0.1:%%PORT_0%%; root %%DIR%%; } }"
                .replace("BUFFER", buffer),
        );
        flood(&server);
        expect_soon("the log says what was lost", || {
            server.get("/");
            server.error_log().contains("were dropped")
        });
        let mut lines = BufReader::new(pipe).lines().map_while(Result::ok);
        let read = lines_until(&mut lines, "/300x");
        assert_eq!(read, 300, "what was kept is in order and whole");
        server.get("/behind");
        lines_until(&mut lines, "/behind");
    }
}

#[test]
fn a_stalled_reader_of_the_error_log() {
    let (server, pipe) = start(
        "worker_processes 1; error_log %%DIR%%/pipe; events {} http { keepalive_requests 10000;
            access_log off; server { listen 127.0.0.1:%%PORT_0%%; root %%DIR%%; } }",
    );
    flood(&server);
    let mut lines = BufReader::new(pipe).lines().map_while(Result::ok);
    lines_until(&mut lines, "/300x");
    let told = std::thread::spawn(move || lines_until(&mut lines, "were dropped"));
    expect_soon("the log says what was lost", || {
        server.get("/more");
        told.is_finished()
    });
}

#[test]
fn nothing_is_lost_at_the_end() {
    let (mut server, pipe) = start(
        "worker_processes 1; events {} http { access_log %%DIR%%/pipe;
            server { listen 127.0.0.1:%%PORT_0%%; root %%DIR%%; } }",
    );
    let lines = std::thread::spawn(move || BufReader::new(pipe).lines().count());
    for n in 0..100 {
        server.get(&format!("/{n}"));
    }
    server.signal(Signal::Quit);
    assert_eq!(server.wait_exit(), Some(0));
    assert_eq!(lines.join().unwrap(), 100);
}

/// Fills it, as somebody does who keeps both ends open.
fn fill(path: &Path) -> File {
    use std::io::Write;
    use std::os::unix::fs::OpenOptionsExt;
    const NONBLOCK: i32 = 0o4000;
    let pipe = File::options().read(true).write(true).custom_flags(NONBLOCK).open(path).unwrap();
    for size in [4096, 1] {
        while (&pipe).write(&b"x".repeat(size)).is_ok() {}
    }
    pipe
}

#[test]
fn a_full_pipe_does_not_hold_the_master() {
    if weir_tests::binary().ends_with("nginx") {
        return skip("nginx waits for the reader");
    }
    let (mut server, pipe) = start(
        "worker_processes 1; error_log %%DIR%%/pipe notice; events {} http { access_log off;
            server { listen 127.0.0.1:%%PORT_0%%; location / { return 200 ok; } } }",
    );
    let [child] = server.children()[..] else { return skip("no master") };
    let _full = fill(&server.dir().join("pipe"));
    server.signal(Signal::Usr1);
    server.signal(Signal::Hup);
    signal(child, Signal::Kill);
    expect_soon("another serving process", || {
        server.children().iter().any(|pid| *pid != child && is_alive(*pid))
    });
    assert_eq!(server.get("/").text(), "ok");
    let mut lines = BufReader::new(pipe).lines().map_while(Result::ok);
    let told = std::thread::spawn(move || lines_until(&mut lines, "were dropped"));
    expect_soon("the log says what was lost", || {
        server.signal(Signal::Hup);
        told.is_finished()
    });
    server.signal(Signal::Quit);
    assert_eq!(server.wait_exit(), Some(0));
}

/// A log whose name has variables, and standard error: both are found out while requests are answered.
#[test]
fn a_full_pipe_does_not_hold_a_worker() {
    if weir_tests::binary().ends_with("nginx") {
        return skip("nginx waits for the reader");
    }
    for is_stderr in [false, true] {
        let setup = Setup::new(
            &"worker_processes 1; error_log stderr; events {} http { access_log off;
                server { listen 127.0.0.1:%%PORT_0%%; root %%DIR%%; ACCESS
                    location /ok { return 200 ok; } } }"
                .replace(
                    "ACCESS",
                    if is_stderr { "" } else { "access_log %%DIR%%/pipe$arg_none;" },
                ),
        );
        let path = setup.dir().join(if is_stderr { "stderr" } else { "pipe" });
        assert!(Command::new("mkfifo").arg(&path).status().unwrap().success());
        let full = fill(&path);
        let server = setup.start();
        let mut client = server.connect();
        for _ in 0..3 {
            assert_eq!(client.get("/none").status, 404, "{is_stderr}");
            assert_eq!(client.get("/ok").text(), "ok", "{is_stderr}");
        }
        drop(client);
        // With room again lines come.
        let mut lines = BufReader::new(Blocking(full)).lines().map_while(Result::ok);
        let wanted = if is_stderr { "/none" } else { "GET /ok" };
        let told = std::thread::spawn(move || lines_until(&mut lines, wanted));
        expect_soon("a line", || {
            server.get("/ok");
            told.is_finished()
        });
    }
}

/// Reads on where there is nothing yet.
struct Blocking(File);

impl std::io::Read for Blocking {
    fn read(&mut self, to: &mut [u8]) -> std::io::Result<usize> {
        loop {
            match self.0.read(to) {
                Err(e) if e.kind() == std::io::ErrorKind::WouldBlock => std::thread::yield_now(),
                other => return other,
            }
        }
    }
}
