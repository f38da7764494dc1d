//! A configuration that nothing uses any more gives its memory back: after ten reloads a server
//! needs little more than after its start, whatever connections wait meanwhile. (nginx closes its
//! idle connections with each reload; here they are kept, and take the new configuration.)

use std::path::PathBuf;
use std::sync::{mpsc, Mutex};
use std::time::Duration;
use weir_tests::h2::H2;
use weir_tests::tls::self_signed;
use weir_tests::{expect_soon, wait_for, Next, Origin, Server, Setup, Signal, PATIENCE};

const SERVERS: usize = 300;
const RELOADS: usize = 10;
/// What a process may need more for other reasons: its stacks, its buffers, the text of the
/// configuration that is being read.
const ALLOWANCE_KB: u64 = 6 * 1024;
/// A debug binary reads so many servers slowly where others compile beside it.
const RELOAD_PATIENCE: Duration = Duration::from_secs(60);

fn many(main: &str, answer: usize) -> String {
    let mut conf = format!(
        "{main} error_log %%DIR%%/error.log info; worker_processes 2; events {{}} http {{
            keepalive_timeout 600s; http2 on; ssl_certificate %%DIR%%/cert; ssl_certificate_key %%DIR%%/key;
            server {{ listen 127.0.0.1:%%PORT_0%%; location / {{ return 200 {answer}; }} }}\n"
    );
    for i in 0..SERVERS {
        conf += &format!(
            "server {{ listen 127.0.0.1:%%PORT_1%% ssl; server_name h{i}; location /a/ {{ root /a; }}
                location /b/ {{ proxy_pass http://127.0.0.1:1; }} location /c/ {{ return 204; }} }}\n"
        );
    }
    conf + "}"
}

/// The proportional set size of the server's processes.
fn memory_kb(server: &Server) -> u64 {
    let of = |pid: u32| {
        let text = std::fs::read_to_string(format!("/proc/{pid}/smaps_rollup")).unwrap_or_default();
        let line = text.lines().find_map(|l| l.strip_prefix("Pss:")).unwrap_or_default();
        line.trim().trim_end_matches(" kB").parse::<u64>().unwrap_or(0)
    };
    children(server.pid()).into_iter().chain([server.pid()]).map(of).sum()
}

fn children(pid: u32) -> Vec<u32> {
    let tasks = std::fs::read_dir(format!("/proc/{pid}/task")).unwrap();
    let lists = tasks.flatten().map(|t| t.path().join("children"));
    let text: String = lists.filter_map(|l: PathBuf| std::fs::read_to_string(l).ok()).collect();
    text.split_whitespace().filter_map(|p| p.parse().ok()).collect()
}

fn stays_small(main: &str) {
    let pair = self_signed("h0");
    let setup = Setup::new(&many(main, 0)).file("cert", &pair.cert).file("key", &pair.key);
    let mut server = setup.start();
    let mut idle: Vec<_> = (0..20).map(|_| server.connect()).collect();
    idle.iter_mut().for_each(|c| assert_eq!(c.get("/").text(), "0"));
    let mut streams: Vec<_> = (0..5).map(|_| H2::connect(&server)).collect();
    streams.iter_mut().for_each(|c| assert_eq!(c.fetch("/").text(), "0"));
    let start_kb = memory_kb(&server);
    assert!(start_kb > 0);
    for turn in 1..=RELOADS {
        let peer = server.on(0);
        server.replace_conf(&many(main, turn));
        server.signal(Signal::Hup);
        let answers = || peer.get("/").text() == turn.to_string();
        assert!(wait_for(answers, RELOAD_PATIENCE), "reload {turn}: {}", server.error_log());
        let gone = format!("configuration {turn} is no longer in use");
        let is_gone = || server.error_log().contains(&gone);
        assert!(wait_for(is_gone, RELOAD_PATIENCE), "{gone}: {}", server.error_log());
    }
    let limit_kb = start_kb * 13 / 10 + ALLOWANCE_KB;
    let mut now_kb = 0;
    let fits = wait_for(
        || {
            now_kb = memory_kb(&server);
            now_kb <= limit_kb
        },
        PATIENCE,
    );
    assert!(fits, "{start_kb} KB after the start, {now_kb} KB after {RELOADS} reloads");
    idle.iter_mut().for_each(|c| assert_eq!(c.get("/").text(), RELOADS.to_string()));
    streams.iter_mut().for_each(|c| assert_eq!(c.fetch("/").text(), RELOADS.to_string()));
}

#[test]
fn ten_reloads_with_a_master() {
    stays_small("master_process on;");
}

#[test]
fn ten_reloads_in_one_process() {
    stays_small("master_process off;");
}

#[test]
fn a_request_in_flight_keeps_its_configuration_until_it_ends() {
    let (go, gate) = mpsc::channel();
    let gate = Mutex::new(gate);
    let origin = Origin::start(move |_, conn| {
        let _ = gate.lock().unwrap().recv_timeout(PATIENCE);
        conn.reply("200 OK", "", "finished");
        Next::Keep
    });
    let conf = |answer: &str| {
        format!(
            "error_log %%DIR%%/error.log info; events {{}} http {{ server {{ listen 127.0.0.1:%%PORT_0%%;
                location /slow {{ proxy_pass http://{}; add_header X-By {answer}; }}
                location / {{ return 200 {answer}; }} }} }}",
            origin.address()
        )
    };
    let mut server = Server::start(&conf("old"));
    let mut busy = server.connect();
    busy.send_get("/slow");
    origin.expect_requests(1);
    let peer = server.on(0);
    server.reload(&conf("new"), || peer.get("/").text() == "new");
    let gone = "configuration 1 is no longer in use";
    assert!(!server.error_log().contains(gone));
    go.send(()).unwrap();
    let answer = busy.response();
    assert_eq!((answer.header("X-By"), answer.text().as_str()), (Some("old"), "finished"));
    server.expect_error(gone);
    assert_eq!(busy.get("/").text(), "new", "the connection goes on");
}

#[test]
fn a_connection_to_an_address_that_is_gone_ends_when_it_is_idle() {
    let conf = |more: &str| {
        format!(
            "error_log %%DIR%%/error.log info; events {{}} http {{ keepalive_timeout 600s; http2 on;
                server {{ listen 127.0.0.1:%%PORT_0%%; {more} location / {{ return 200 ok; }} }} }}"
        )
    };
    let mut server = Server::start(&conf("listen 127.0.0.1:%%PORT_1%%;"));
    let mut idle = server.on(1).connect();
    assert_eq!(idle.get("/").text(), "ok");
    let mut stream = H2::over(server.on(1).connect());
    stream.greet(&[]);
    assert_eq!(stream.fetch("/").text(), "ok");
    let gone = server.port(1);
    let refused = || std::net::TcpStream::connect(("127.0.0.1", gone)).is_err();
    server.reload(&conf(""), refused);
    assert!(idle.is_closed());
    assert_eq!(stream.goaway(), 0);
}

#[test]
fn a_serving_process_started_again_has_the_newest_configuration() {
    let conf = |answer: &str| {
        format!(
            "master_process on; error_log %%DIR%%/error.log notice; events {{}} http {{ server {{
                listen 127.0.0.1:%%PORT_0%%; location / {{ return 200 {answer}; }} }} }}"
        )
    };
    let mut server = Server::start(&conf("old"));
    let peer = server.on(0);
    server.reload(&conf("new"), || peer.get("/").text() == "new");
    let before = server.children();
    if before.is_empty() {
        return weir_tests::skip("there is a master only as root");
    }
    // What is on disk now has not been taken.
    server.replace_conf(&conf("later"));
    before.iter().for_each(|pid| weir_tests::signal(*pid, weir_tests::Signal::Kill));
    expect_soon("another serving process", || {
        let now = server.children();
        !now.is_empty() && now.iter().all(|p| !before.contains(p))
    });
    assert_eq!(peer.get("/").text(), "new");
}
