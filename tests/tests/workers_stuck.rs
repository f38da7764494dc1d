//! A worker that is stuck stops nobody else, although with `reuseport` the kernel goes on giving it
//! its part of the connections. (nginx lets them wait: on it this test fails.)

use std::time::{Duration, Instant};
use weir_tests::{Pipe, Server, Setup};

/// Blocks one worker, and returns how long others waited for their answers meanwhile.
fn waits_beside_a_stuck_worker(server: &Server, pipe: &mut Pipe) -> Vec<Duration> {
    let mut stuck = server.connect();
    assert_eq!(stuck.get("/before").text(), "ok");
    // Its worker reads the list of users.
    let line = "Authorization: Basic YTpi";
    stuck.send(format!("GET /secret HTTP/1.1\r\nHost: localhost\r\n{line}\r\n\r\n").as_bytes());
    pipe.open();
    let mut waits = Vec::new();
    let start = Instant::now();
    while waits.len() < 200 || start.elapsed() < Duration::from_secs(1) {
        let start = Instant::now();
        assert_eq!(server.get("/").text(), "ok");
        waits.push(start.elapsed());
    }
    assert!(stuck.is_silent(Duration::from_millis(1)), "the worker was not stuck");
    pipe.close();
    assert_eq!(stuck.response().status, 401);
    waits.sort();
    waits
}

/// How often workers are told to be back; of one worker not every time is told at once.
fn returns(log: &str) -> usize {
    let later = |line: &str| {
        let (_, rest) = line.split_once("was away from its event loop ")?;
        rest.split_once(" more times")?.0.parse::<usize>().ok()
    };
    log.matches("is back in its event loop").count() + log.lines().filter_map(later).sum::<usize>()
}

#[test]
fn others_take_the_connections_of_a_stuck_worker() {
    for workers in [2, 4] {
        let setup = Setup::new(&format!(
            "worker_processes {workers}; error_log %%DIR%%/error.log notice; events {{}}
             http {{ access_log off; server {{ listen 127.0.0.1:%%PORT_0%% reuseport;
                location / {{ return 200 ok; }}
                location /secret {{ auth_basic s; auth_basic_user_file %%DIR%%/pipe; }} }} }}"
        ));
        let mut pipe = Pipe::make(setup.dir().join("pipe"));
        let server = setup.start();
        for times in 1..=2 {
            let waits = waits_beside_a_stuck_worker(&server, &mut pipe);
            let (median, longest) = (waits[waits.len() / 2], waits[waits.len() - 1]);
            assert!(longest < Duration::from_millis(700), "{longest:?}");
            assert!(median < Duration::from_millis(50), "{median:?}");
            server.expect_error("has not come back to its event loop for");
            weir_tests::expect_soon("it is back", || returns(&server.error_log()) >= times);
        }
    }
}
