//! `weir profile` and `google_perftools_profiles`: where the workers spend their time.

use std::io::{Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use weir_tests::{binary, expect_soon, run_cli, tools, Load, Peer, Server, Setup, Signal};

const CONF: &str = "worker_processes 2; pid the.pid; error_log e.log notice; events {} http { \
     gzip on; gzip_comp_level 9; gzip_min_length 1; gzip_types *; access_log off; \
     server { listen 127.0.0.1:%%PORT_0%%; } }";

const REQUEST: &[u8] =
    b"GET /t.txt HTTP/1.1\r\nHost: a\r\nConnection: close\r\nAccept-Encoding: gzip\r\n\r\n";

fn start(conf: &str) -> Server {
    let text: String = (0..20_000).map(|n| format!("{} ", n * 7919 % 10_007)).collect();
    let server = Setup::new(conf).file("html/t.txt", text).start();
    expect_soon("a pid file", || server.read("the.pid").ends_with('\n'));
    // Windows' serving process, which is asked, begins behind that.
    expect_soon("workers", || server.read("e.log").contains("start worker process"));
    server
}

/// The process whose threads are the workers.
fn serving(server: &Server) -> u32 {
    server.children().first().copied().unwrap_or(server.pid())
}

/// Clients that ask again and again for what has to be compressed.
fn load_on(server: &Server) -> Load {
    Load::on(&Peer::Tcp(server.port(0)), REQUEST, 2, b"HTTP/1.1 200")
}

fn command(server: &Server, arguments: &[&str]) -> Command {
    let mut command = Command::new(binary());
    command.arg("profile").arg("-c").arg(server.dir().join("nginx.conf"));
    command.args(["-p"]).arg(server.dir()).args(arguments).current_dir(server.dir());
    command.stderr(Stdio::piped());
    command
}

fn begin(server: &Server, arguments: &[&str]) -> Child {
    command(server, arguments).spawn().unwrap()
}

#[track_caller]
fn profile(server: &Server, arguments: &[&str]) {
    let output = command(server, arguments).output().unwrap();
    assert!(output.status.success(), "{output:?}");
}

/// The error of a profile that is not made.
#[track_caller]
fn refused(server: &Server, arguments: &[&str]) -> String {
    let output = command(server, arguments).output().unwrap();
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// A varint, and what is behind it.
fn varint(bytes: &[u8]) -> (u64, &[u8]) {
    let len = bytes.iter().position(|b| b & 0x80 == 0).unwrap() + 1;
    let value = bytes[..len].iter().rev().fold(0, |v, b| v << 7 | u64::from(b & 0x7f));
    (value, &bytes[len..])
}

/// The fields of a message of protobuf: numbers, or bytes.
fn fields(mut bytes: &[u8]) -> Vec<(u64, u64, Vec<u8>)> {
    let mut out = Vec::new();
    while !bytes.is_empty() {
        let (key, rest) = varint(bytes);
        let (value, rest) = varint(rest);
        let (inner, rest) = match key & 7 {
            0 => (&[][..], rest),
            2 => rest.split_at(value as usize),
            other => panic!("a field of kind {other}"),
        };
        out.push((key >> 3, value, inner.to_vec()));
        bytes = rest;
    }
    out
}

/// Samples of a pprof file, and its texts.
fn decode(path: &Path) -> (u64, Vec<String>) {
    let mut bytes = Vec::new();
    let file = std::fs::File::open(path).unwrap();
    flate2::read::GzDecoder::new(file).read_to_end(&mut bytes).unwrap();
    let all = fields(&bytes);
    let texts = all.iter().filter(|f| f.0 == 6).map(|f| String::from_utf8_lossy(&f.2).into_owned());
    let values = all.iter().filter(|f| f.0 == 2).flat_map(|f| fields(&f.2)).filter(|f| f.0 == 2);
    (values.map(|f| varint(&f.2).0).sum(), texts.collect())
}

/// The event loop, or what it is a part of in a build that puts functions into their callers.
fn is_loop(text: &str) -> bool {
    text.contains("event_loop") || text.contains("weir::workers::")
}

#[test]
fn a_profile_under_load_has_samples_with_names_and_the_server_goes_on() {
    let server = start(CONF);
    let load = load_on(&server);
    let mut asking = begin(&server, &["--seconds", "4", "--frequency", "199", "-o", "out.pb.gz"]);
    let logged = || std::fs::read_to_string(server.dir().join("e.log")).unwrap_or_default();
    expect_soon("a profile", || logged().contains("a profile of 4 s is made"));
    // One at a time.
    let text = refused(&server, &["--seconds", "1", "-o", "two.pb.gz"]);
    assert!(text.contains("a profile is being made already"), "{text}");
    let before = load.answers();
    expect_soon("answers during the profile", || load.answers() > before + 20);
    assert!(asking.try_wait().unwrap().is_none(), "it is over already");
    assert!(asking.wait().unwrap().success());
    let out = server.dir().join("out.pb.gz");
    let (samples, texts) = decode(&out);
    assert!(samples > 10, "{samples}");
    assert_eq!(texts.first().map(String::as_str), Some(""));
    let has = |part: &str| texts.iter().any(|t| t.contains(part));
    assert!(has("worker 0") || has("worker 1"), "{texts:?}");
    assert!(has("zlib_rs") || has("deflate"), "{texts:?}");
    assert!(texts.iter().any(|t| is_loop(t)), "callers are found up to the loop: {texts:?}");
    let Some(go) = tools::need("go") else { return };
    let told = Command::new(go.path).args(["tool", "pprof", "-top"]).arg(&out).output().unwrap();
    let told = String::from_utf8_lossy(&told.stdout).into_owned();
    assert!(told.contains("Type: cpu") && told.contains("Showing nodes"), "{told}");
}

#[test]
fn a_flame_graph_and_folded_stacks() {
    let server = start(CONF);
    let _load = load_on(&server);
    profile(&server, &["--seconds", "1", "--frequency", "199", "-o", "out.svg"]);
    let svg = server.read("out.svg");
    assert!(svg.starts_with("<svg ") && is_loop(&svg), "{svg}");
    profile(&server, &["--seconds", "1", "--frequency", "199", "--worker", "1", "-o", "out.txt"]);
    let folded = server.read("out.txt");
    assert!(
        folded.lines().count() > 1 && folded.lines().all(|l| l.starts_with("worker 1;")),
        "{folded}"
    );
}

#[test]
fn a_process_is_asked_by_its_number() {
    let server = start(CONF);
    let _load = load_on(&server);
    let mut command = Command::new(binary());
    command.args([
        "profile",
        "--seconds",
        "1",
        "-o",
        "out.txt",
        "-p",
        &server.own_pid().to_string(),
    ]);
    let output = command.current_dir(server.dir()).output().unwrap();
    assert!(output.status.success(), "{output:?}");
    assert!(server.read("out.txt").contains("worker "));
}

#[test]
fn bounds_are_held_and_an_idle_server_has_no_samples() {
    let server = start(CONF);
    for (arguments, why) in [
        (["--seconds", "301"], "seconds is a number from 1 to 300"),
        (["--frequency", "1001"], "frequency is a number from 1 to 1000"),
        (["--worker", "2"], "there is no such worker"),
        (["--frequency", "0"], "frequency is a number from 1 to 1000"),
    ] {
        let text = refused(&server, &[&arguments[..], &["-o", "no.svg"]].concat());
        assert!(text.contains(why), "{text}");
    }
    let text = refused(&server, &["--seconds", "1", "-o", "no.svg"]);
    assert!(text.contains("there are no samples"), "{text}");
    assert!(!server.dir().join("no.svg").exists());
}

#[test]
fn a_profile_ends_when_nobody_waits_for_it() {
    let server = start(CONF);
    let mut asking = begin(&server, &["--seconds", "300", "-o", "never.pb.gz"]);
    let logged = || std::fs::read_to_string(server.dir().join("e.log")).unwrap_or_default();
    expect_soon("a profile", || logged().contains("a profile of 300 s is made"));
    asking.kill().unwrap();
    asking.wait().unwrap();
    let again = || command(&server, &["--seconds", "1", "-o", "again.pb.gz"]).output().unwrap();
    expect_soon("room for the next", || again().status.success());
}

fn ask(server: &Server, text: &[u8]) -> String {
    let mut link = UnixStream::connect(server.dir().join("the.pid.control")).unwrap();
    link.write_all(text).unwrap();
    let mut answer = String::new();
    // What the server has not read resets the connection behind its answer.
    let _ = link.read_to_string(&mut answer);
    answer
}

#[test]
fn the_control_socket_is_its_owners_and_its_questions_have_bounds() {
    let mut server = start(CONF);
    let path = server.dir().join("the.pid.control");
    assert_eq!(path.metadata().unwrap().permissions().mode() & 0o777, 0o600);
    let version = ask(&server, b"version\n");
    assert!(
        version.starts_with("ok ") && version.contains(&format!("process {}", serving(&server))),
        "{version}"
    );
    assert_eq!(ask(&server, b"nonsense\n"), "error there is no question \"nonsense\"\n");
    assert_eq!(ask(&server, b"version x=1\n"), "error \"version\" has no word \"x=1\"\n");
    assert_eq!(ask(&server, &[b'x'; 4096]), "error a question is one line\n");
    // Under a new pid file's name after a reload, and gone at the end.
    let conf = CONF.replace("the.pid", "new.pid");
    let new = server.dir().join("new.pid.control");
    server.reload(&conf, || new.exists());
    assert!(!path.exists());
    assert!(UnixStream::connect(&new).is_ok());
    server.signal(Signal::Quit);
    assert_eq!(server.wait_exit(), Some(0));
    assert!(!new.exists());
}

#[test]
fn google_perftools_profiles_is_written_at_the_end() {
    let mut server =
        start(&CONF.replace("events {}", "google_perftools_profiles %%DIR%%/cpu; events {}"));
    let serving = serving(&server);
    let load = load_on(&server);
    expect_soon("answers", || load.answers() > 50);
    let text = refused(&server, &["--seconds", "1", "-o", "two.pb.gz"]);
    assert!(text.contains("a profile is being made already"), "{text}");
    drop(load);
    server.signal(Signal::Quit);
    assert_eq!(server.wait_exit(), Some(0));
    let (samples, texts) = decode(&server.dir().join(format!("cpu.{serving}")));
    assert!(samples > 0 && texts.iter().any(|t| is_loop(t)), "{samples} {texts:?}");
}

#[test]
fn a_reload_begins_and_ends_a_lasting_profile() {
    let mut server = start(CONF);
    let serving = serving(&server);
    let file = server.dir().join(format!("cpu.{serving}"));
    let with = CONF.replace("events {}", "google_perftools_profiles %%DIR%%/cpu; events {}");
    let is_busy = |server: &Server| {
        let output = command(server, &["--seconds", "1", "-o", "busy.txt"]).output().unwrap();
        String::from_utf8_lossy(&output.stderr).contains("a profile is being made already")
    };
    server.replace_conf(&with);
    server.signal(Signal::Hup);
    expect_soon("a profile", || is_busy(&server));
    server.replace_conf(CONF);
    server.signal(Signal::Hup);
    expect_soon("its file", || file.exists());
    expect_soon("room for another", || !is_busy(&server));
}

#[test]
fn help_and_mistakes() {
    let help = run_cli(&["profile", "--help"], "");
    assert_eq!(help.code, 0);
    for word in ["--seconds", "--frequency", "--worker", "-o FILE", "-p PID", "pprof"] {
        assert!(help.stdout.contains(word), "{word}: {help:?}");
    }
    let nobody = run_cli(&["profile"], "pid no.pid; events {}");
    assert_eq!(nobody.code, 1);
    assert!(nobody.stderr.contains("asking the server at"), "{nobody:?}");
    let wrong = run_cli(&["profile", "--seconds", "x"], "events {}");
    assert!(wrong.stderr.contains("invalid number \"x\""), "{wrong:?}");
}
