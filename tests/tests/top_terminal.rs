//! `weir top` in a terminal: keys, and that the terminal is given back however it ends.

use rustix::pty::{grantpt, openpt, ptsname, unlockpt, OpenptFlags};
use rustix::termios::{tcgetattr, tcsetwinsize, LocalModes, Winsize};
use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::process::{Child, Command, ExitStatus};
use std::sync::{Arc, Mutex};
use weir_tests::{binary, expect_soon, Server, Setup, Signal};

const CONF: &str =
    "daemon on; pid %%DIR%%/the.pid; error_log %%DIR%%/e.log; events {} http { access_log off; \
     server { listen 127.0.0.1:%%PORT_0%%; server_name front.test; \
        location / { return 200 ok; } location /fails { return 503; } } }";
/// The other screen, and back.
const TAKEN: &str = "\x1b[?1049h";
const GIVEN_BACK: &str = "\x1b[?1049l";
const CURSOR: &str = "\x1b[?25h";

/// A program at a terminal.
struct Terminal {
    ours: File,
    theirs: File,
    child: Child,
    seen: Arc<Mutex<Vec<u8>>>,
}

impl Terminal {
    fn run(arguments: &[&str], (rows, columns): (u16, u16), no_color: Option<&str>) -> Terminal {
        let ours = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).unwrap();
        grantpt(&ours).unwrap();
        unlockpt(&ours).unwrap();
        let name = ptsname(&ours, Vec::new()).unwrap();
        let path = Path::new(std::ffi::OsStr::from_bytes(name.to_bytes()));
        let theirs = File::options().read(true).write(true).open(path).unwrap();
        let size = Winsize { ws_row: rows, ws_col: columns, ws_xpixel: 0, ws_ypixel: 0 };
        tcsetwinsize(&theirs, size).unwrap();
        let end = || OwnedFd::from(theirs.try_clone().unwrap());
        let mut command = Command::new(binary());
        command.env_remove("NO_COLOR").envs(no_color.map(|value| ("NO_COLOR", value)));
        let child = command
            .arg("top")
            .args(arguments)
            .env("TERM", "xterm")
            .stdin(end())
            .stdout(end())
            .stderr(end())
            .spawn()
            .unwrap();
        let ours = File::from(ours);
        let seen = Arc::<Mutex<Vec<u8>>>::default();
        let (mut reads, told) = (ours.try_clone().unwrap(), Arc::clone(&seen));
        std::thread::spawn(move || {
            let mut buf = [0; 4096];
            while let Ok(n @ 1..) = reads.read(&mut buf) {
                told.lock().unwrap().extend_from_slice(&buf[..n]);
            }
        });
        Terminal { ours, theirs, child, seen }
    }

    fn of(server: &Server, size: (u16, u16), no_color: Option<&str>) -> Terminal {
        let conf = server.dir().join("nginx.conf");
        let (dir, conf) = (server.dir().to_str().unwrap(), conf.to_str().unwrap());
        Terminal::run(&["-p", dir, "-c", conf, "--interval", "100ms"], size, no_color)
    }

    fn press(&mut self, keys: &str) {
        self.ours.write_all(keys.as_bytes()).unwrap();
    }

    /// All that it has written.
    fn seen(&self) -> String {
        String::from_utf8_lossy(&self.seen.lock().unwrap()).into_owned()
    }

    /// What it writes from now on is looked at.
    fn forget(&self) {
        self.seen.lock().unwrap().clear();
    }

    #[track_caller]
    fn expect(&self, text: &str) {
        expect_soon(text, || words(&self.seen()).contains(text));
    }

    /// What is drawn anew, until it has that: otherwise only what has changed is drawn.
    #[track_caller]
    fn expect_drawn(&mut self, text: &str) {
        expect_soon(text, || {
            self.forget();
            self.press("\x0c");
            let drawn = || words(&self.seen()).contains(text);
            weir_tests::wait_for(drawn, std::time::Duration::from_millis(300))
        });
    }

    fn is_raw(&self) -> bool {
        !tcgetattr(&self.theirs).unwrap().local_modes.contains(LocalModes::ICANON)
    }

    #[track_caller]
    fn end(mut self) -> ExitStatus {
        let mut status = None;
        expect_soon("its end", || {
            status = self.child.try_wait().unwrap();
            status.is_some()
        });
        expect_soon("the screen is given back", || {
            let seen = self.seen();
            seen.rfind(GIVEN_BACK) > seen.rfind(TAKEN) && seen.contains(CURSOR)
        });
        assert!(!self.is_raw());
        status.unwrap()
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Without what moves the cursor and colours.
fn words(text: &str) -> String {
    let mut out = String::new();
    let mut rest = text.chars();
    while let Some(c) = rest.next() {
        match c {
            '\x1b' => {
                // A final letter ends it.
                let _ = rest.find(|c| c.is_ascii_alphabetic());
                out.push(' ');
            }
            c => out.push(c),
        }
    }
    out
}

fn start() -> Server {
    Setup::new(CONF).start()
}

fn stop(server: Server) {
    server.signal(Signal::Term);
    expect_soon("the server is gone", || !server.dir().join("the.pid").exists());
}

#[test]
fn keys_lead_through_it_and_q_ends_it() {
    let server = start();
    let mut terminal = Terminal::of(&server, (24, 80), None);
    terminal.expect("requests/s");
    assert!(terminal.is_raw());
    for (keys, expected) in [
        ("2", "front.test"),
        ("\t", "status_zone NAME;"),
        ("v", "analytics_zone site;"),
        ("0", "Problems"),
        ("7", "Workers"),
        ("?", "sort by the next column"),
        ("?", "busy"),
        ("2/nothing\r", "no name has"),
        ("\x1b[D", "connections"),
    ] {
        terminal.press(keys);
        terminal.expect_drawn(expected);
    }
    terminal.press("q");
    assert_eq!(terminal.end().code(), Some(0));
    stop(server);
}

#[test]
fn the_terminal_is_given_back_at_signals_and_at_ctrl_c() {
    let server = start();
    for end in [Some(Signal::Term), Some(Signal::Hup), Some(Signal::Quit), None] {
        let mut terminal = Terminal::of(&server, (10, 40), None);
        terminal.expect("requests/s");
        match end {
            Some(signal) => weir_tests::signal(terminal.child.id(), signal),
            None => terminal.press("\x03"),
        }
        assert_eq!(terminal.end().code(), Some(0));
    }
    stop(server);
}

#[test]
fn it_stops_and_goes_on() {
    let server = start();
    let mut terminal = Terminal::of(&server, (24, 80), None);
    terminal.expect("requests/s");
    let pid = terminal.child.id();
    let state = || {
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        stat.rsplit(") ").next().and_then(|rest| rest.chars().next())
    };
    terminal.press("\x1a");
    expect_soon("it stops", || state() == Some('T'));
    assert!(!terminal.is_raw());
    assert!(terminal.seen().contains(GIVEN_BACK));
    terminal.forget();
    weir_tests::signal(pid, Signal::Cont);
    expect_soon("it goes on", || terminal.is_raw() && terminal.seen().contains(TAKEN));
    terminal.expect("requests/s");
    terminal.press("q");
    terminal.end();
    stop(server);
}

#[test]
fn a_server_is_found_again_after_an_upgrade_and_after_its_end() {
    let mut server = start();
    let old = server.pid();
    let mut terminal = Terminal::of(&server, (24, 120), None);
    terminal.expect_drawn(&format!("pid {}", serving(old)));
    let has_master = serving(old) != old;
    server.signal(Signal::Usr2);
    let path = server.dir().join("the.pid");
    let pid = || std::fs::read_to_string(&path).ok()?.trim().parse::<u32>().ok();
    expect_soon("the new one writes its pid", || pid().is_some_and(|pid| pid != old));
    let new = pid().unwrap();
    server.signal(Signal::Quit);
    assert_eq!(server.wait_exit(), Some(0));
    terminal.expect_drawn(&format!("pid {}", serving(new)));
    weir_tests::signal(new, Signal::Term);
    terminal.expect_drawn("does not answer");
    expect_soon("its end", || !weir_tests::is_alive(new));
    // Started again at the same place.
    let conf = server.dir().join("nginx.conf");
    let again = Command::new(binary()).arg("-p").arg(server.dir()).arg("-c").arg(conf).status();
    assert!(again.unwrap().success());
    // Its pid stands there before its serving process is begun.
    let serves = |pid| serving(pid) != pid || !has_master;
    expect_soon("another one serves", || pid().is_some_and(|pid| pid != new && serves(pid)));
    terminal.expect_drawn(&format!("pid {}", serving(pid().unwrap())));
    weir_tests::signal(pid().unwrap(), Signal::Term);
    terminal.press("q");
    terminal.end();
}

/// The process whose workers serve.
fn serving(pid: u32) -> u32 {
    weir_tests::children(pid).first().copied().unwrap_or(pid)
}

/// What clients send is shown, and does nothing to the terminal.
#[test]
fn what_strangers_send_is_made_visible() {
    let server = start();
    let mut terminal = Terminal::of(&server, (24, 120), None);
    terminal.expect("requests/s");
    let path =
        "GET /fails\u{202e}\u{9b}31m HTTP/1.1\r\nHost: front.test\r\nConnection: close\r\n\r\n";
    server.raw(path.as_bytes());
    terminal.press("0");
    terminal.expect_drawn("/fails\\u{202e}\\x9b31m");
    assert!(!terminal.seen().contains(['\u{202e}', '\u{9b}']));
    terminal.press("q");
    terminal.end();
    stop(server);
}

#[test]
fn colours_are_left_out_where_that_is_wanted() {
    let server = start();
    for (no_color, is_coloured) in [(None, true), (Some("1"), false)] {
        let mut terminal = Terminal::of(&server, (24, 80), no_color);
        terminal.expect("requests/s");
        assert_eq!(terminal.seen().contains("\x1b[38;"), is_coloured, "{:?}", terminal.seen());
        terminal.press("q");
        terminal.end();
    }
    stop(server);
}

/// Larger, and too small for anything.
#[test]
fn it_follows_the_size_of_its_terminal() {
    let server = start();
    let mut terminal = Terminal::of(&server, (3, 10), None);
    terminal.expect("weir top");
    let size = Winsize { ws_row: 24, ws_col: 100, ws_xpixel: 0, ws_ypixel: 0 };
    tcsetwinsize(&terminal.theirs, size).unwrap();
    weir_tests::signal(terminal.child.id(), Signal::Winch);
    terminal.expect_drawn("connections");
    terminal.press("q");
    terminal.end();
    stop(server);
}

#[test]
fn without_a_terminal_it_says_what_to_write() {
    let output = Command::new(binary()).args(["top", "http://127.0.0.1/"]).output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(text.contains("top --once"), "{text}");
}
