//! A worker that is stuck stops nobody else, although with `reuseport` the kernel goes on giving it
//! its part of the connections. (nginx lets them wait: on it this test fails.)

use std::fs::{File, OpenOptions};
use std::io::{Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::time::{Duration, Instant};
use weir_tests::{Server, Setup};

/// A pipe under a name that is full: whoever writes to it waits.
struct FullPipe(File);

impl FullPipe {
    fn make(path: &Path) -> FullPipe {
        let made = std::process::Command::new("mkfifo").arg(path).status().unwrap();
        assert!(made.success());
        const O_NONBLOCK: i32 = 0o4000;
        let pipe = OpenOptions::new().read(true).write(true).custom_flags(O_NONBLOCK).open(path);
        FullPipe(pipe.unwrap())
    }

    fn fill(&mut self) {
        for piece in [&[b'.'; 4096][..], b"."] {
            while self.0.write(piece).is_ok() {}
        }
    }

    fn empty(&mut self) {
        let mut buf = [0; 65536];
        while self.0.read(&mut buf).is_ok() {}
    }
}

/// Blocks one worker, and returns how long others waited for their answers meanwhile.
fn waits_beside_a_stuck_worker(server: &Server, pipe: &mut FullPipe) -> Vec<Duration> {
    let mut stuck = server.connect();
    assert_eq!(stuck.get("/before").text(), "ok");
    pipe.fill();
    stuck.send_get("/logged");
    assert_eq!(stuck.response().text(), "ok");
    // Its worker now waits for the log.
    stuck.send_get("/after");
    let mut waits = Vec::new();
    let start = Instant::now();
    while waits.len() < 200 || start.elapsed() < Duration::from_secs(1) {
        let start = Instant::now();
        assert_eq!(server.get("/").text(), "ok");
        waits.push(start.elapsed());
    }
    assert!(stuck.is_silent(Duration::from_millis(1)), "the worker was not stuck");
    pipe.empty();
    assert_eq!(stuck.response().text(), "ok");
    waits.sort();
    waits
}

#[test]
fn others_take_the_connections_of_a_stuck_worker() {
    for workers in [2, 4] {
        let setup = Setup::new(&format!(
            "worker_processes {workers}; error_log %%DIR%%/error.log notice; events {{}}
             http {{ access_log off; server {{ listen 127.0.0.1:%%PORT_0%% reuseport;
                location / {{ return 200 ok; }}
                location /logged {{ access_log %%DIR%%/pipe; return 200 ok; }} }} }}"
        ));
        let mut pipe = FullPipe::make(&setup.dir().join("pipe"));
        let server = setup.start();
        for times in 1..=2 {
            let waits = waits_beside_a_stuck_worker(&server, &mut pipe);
            let (median, longest) = (waits[waits.len() / 2], waits[waits.len() - 1]);
            assert!(longest < Duration::from_millis(700), "{longest:?}");
            assert!(median < Duration::from_millis(50), "{median:?}");
            server.expect_error("has not come back to its event loop for");
            weir_tests::expect_soon("it is back", || {
                server.error_log().matches("is back in its event loop").count() == times
            });
        }
    }
}
