//! `weir service`: on Windows (`cargo xtask windows test` has wine) a service from its making to its end; elsewhere what
//! is to be done instead. What needs a real Windows to be seen: rights, recovery, what the event log shows.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};
use weir_tests::{
    binary, expect_soon, free_port, listens_on, skip, tools, CliOutput, Client, Peer, Server, Setup,
};

fn weir(dir: &Path, words: &[&str]) -> CliOutput {
    tools::finish(Command::new(binary()).current_dir(dir).args(words), b"")
}

/// Whether there are services; without them it is said what there is.
fn has_services(dir: &Path) -> bool {
    let asked = weir(dir, &["service", "start", "-n", "weir-none"]);
    assert_eq!(asked.code, 1);
    if asked.stderr.contains("\"weir-none\" does not exist") {
        return true;
    }
    match asked.stderr.contains("systemctl enable --now weir") {
        true => skip("this system has no services"),
        false => skip("nginx is no service"),
    }
    false
}

#[test]
fn a_service_lives_and_ends() {
    // Wine ends its services with the last program that is none.
    let _stays = Server::start("events {} http { server { listen 127.0.0.1:%%PORT_0%%; } }");
    let setup = Setup::new("");
    let dir = setup.dir();
    if !has_services(dir) {
        return;
    }
    let port = free_port();
    let name = format!("weir test {}", std::process::id());
    let service = |order: &str| weir(dir, &["service", order, "-n", &name]);
    // Spaces, a backslash at the end, quotes.
    let home = dir.join("we ir & co");
    std::fs::create_dir_all(home.join("logs")).unwrap();
    let conf = |text: &str| {
        let text = format!(
            "events {{}} http {{ access_log off; server {{ listen 127.0.0.1:{port}; {text} }} }}"
        );
        std::fs::write(home.join("my.conf"), text).unwrap();
    };
    let globals = "env \"A=b c\\\\\"; error_log \"logs/my error.log\";";
    let install = ["service", "install", "-n", &name, "-p", "we ir & co\\", "-c", "my.conf", "-g"];
    let install = || weir(dir, &[&install[..], &[globals]].concat());
    let made = install();
    assert_eq!(made.code, 0, "{}", made.stderr);
    assert!(made.stdout.contains("my.conf\" yet"), "{}", made.stdout);
    assert!(install().stderr.contains("exists already"));
    let refused = || std::fs::read_to_string(home.join("logs/error.log")).unwrap_or_default();

    conf("nonsense;");
    let started = service("start");
    assert!(
        started.code == 1 && started.stderr.contains("ended with code 1"),
        "{}",
        started.stderr
    );
    assert!(refused().contains("[emerg]") && refused().contains("nonsense"), "{}", refused());

    conf("return 200 one;");
    let started = service("start");
    assert_eq!(started.code, 0, "{}", started.stderr);
    let get = || Peer::Tcp(port).get("/").text();
    assert_eq!(get(), "one");
    assert!(service("start").stderr.contains("is running already"));
    conf("return 200 two;");
    assert_eq!(service("reload").code, 0);
    expect_soon("the new configuration", || get() == "two");
    conf("return 200 three");
    assert_eq!(service("reload").code, 0);
    let log = || std::fs::read_to_string(home.join("logs/my error.log")).unwrap_or_default();
    expect_soon("a refusal", || log().contains("[emerg]"));
    assert_eq!(get(), "two");
    let stopped = service("stop");
    assert_eq!(stopped.code, 0, "{}", stopped.stderr);
    assert!(!listens_on(port) && !home.join("logs/nginx.pid").exists());
    assert!(service("stop").stderr.contains("is not running"));

    conf("return 200 four;");
    assert_eq!(service("start").code, 0);
    let removed = service("remove");
    assert_eq!(removed.code, 0, "{}", removed.stderr);
    assert!(!listens_on(port));
    assert!(service("start").stderr.contains("does not exist"));
}

/// A service that answers with a word, beside a program that is none: wine ends its services with the last of those.
struct Service {
    setup: Setup,
    name: String,
    port: u16,
    _stays: Server,
}

impl Service {
    fn start(text: &str) -> Option<Service> {
        let stays = Server::start("events {} http { server { listen 127.0.0.1:%%PORT_0%%; } }");
        let setup = Setup::new("");
        if !has_services(setup.dir()) {
            return None;
        }
        let port = free_port();
        let service = Service { setup, name: format!("weir test {port}"), port, _stays: stays };
        std::fs::create_dir_all(service.path("logs")).unwrap();
        std::fs::write(service.path("slow"), [b'x'; 1 << 20]).unwrap();
        service.configure(text);
        let words = ["service", "install", "-n", &service.name, "-p", "home", "-c", "my.conf"];
        let made = weir(service.setup.dir(), &words);
        assert_eq!(made.code, 0, "{}", made.stderr);
        service.order("start");
        expect_soon("it serves", || service.has_begun() && service.get() == text);
        Some(service)
    }

    fn path(&self, name: &str) -> PathBuf {
        self.setup.dir().join("home").join(name)
    }

    fn read(&self, name: &str) -> String {
        std::fs::read_to_string(self.path(name)).unwrap_or_default()
    }

    fn configure(&self, text: &str) {
        let port = self.port;
        let text = format!(
            "error_log logs/error.log info; events {{}} http {{ server {{ listen 127.0.0.1:{port};
             location / {{ return 200 {text}; }}
             location /slow {{ limit_rate 1k; root .; }} }} }}"
        );
        std::fs::write(self.path("my.conf"), text).unwrap();
    }

    fn ask(&self, order: &str) -> CliOutput {
        weir(self.setup.dir(), &["service", order, "-n", &self.name])
    }

    fn order(&self, order: &str) {
        let done = self.ask(order);
        assert_eq!(done.code, 0, "{order}: {}", done.stderr);
    }

    fn get(&self) -> String {
        Peer::Tcp(self.port).get("/").text()
    }

    fn log(&self) -> String {
        self.read("logs/error.log")
    }

    fn pid(&self) -> String {
        self.read("logs/nginx.pid")
    }

    fn has_begun(&self) -> bool {
        self.pid().ends_with('\n')
    }

    /// Whether the one that was replaced serves no more.
    fn is_alone(&self) -> bool {
        !self.path("logs/nginx.pid.oldbin").exists()
    }

    fn upgrade(&self, text: &str) {
        let before = self.pid();
        self.configure(text);
        self.order("upgrade");
        let is_next = || self.has_begun() && self.pid() != before && self.get() == text;
        expect_soon("the next program", is_next);
    }

    /// What the one that is replaced has to serve yet: it is not the one that is told something.
    fn hold(&self) -> Client {
        let mut slow = Peer::Tcp(self.port).connect();
        slow.send_get("/slow");
        assert!(slow.read_until(b"\r\n\r\n").starts_with(b"HTTP/1.1 200"));
        slow
    }
}

#[test]
fn a_service_is_upgraded_as_often_as_one_likes() {
    let Some(service) = Service::start("one") else { return };
    let first = service.pid().trim().to_string();
    for (round, text) in ["two", "three", "four"].iter().enumerate() {
        let slow = service.hold();
        service.upgrade(text);
        let text = format!("reloaded{round}");
        service.configure(&text);
        service.order("reload");
        expect_soon("the new configuration", || service.get() == text);
        assert!(!service.is_alone());
        drop(slow);
        expect_soon("the end of the one before", || service.is_alone());
    }
    // The first, which has stayed, writes what it is told into a log that may be moved too.
    std::fs::rename(service.path("logs/error.log"), service.path("logs/moved")).unwrap();
    service.order("reopen");
    expect_soon("a new log", || service.path("logs/error.log").exists());
    service.order("reload");
    let told = format!("{first}#{first}: signal 1 ");
    expect_soon("its line", || service.log().contains(&told));
    let slow = service.hold();
    service.upgrade("five");
    drop(slow);
    service.order("remove");
    assert!(!listens_on(service.port) && service.pid().is_empty(), "{}", service.log());
}

#[test]
fn a_service_ends_with_who_has_taken_over() {
    let Some(service) = Service::start("one") else { return };
    let slow = service.hold();
    service.upgrade("two");
    // One that is told to end itself, beside one that has something to serve still.
    let stopped = weir(service.setup.dir(), &["-p", "home", "-c", "my.conf", "-s", "stop"]);
    assert_eq!(stopped.code, 0, "{}", stopped.stderr);
    let says = |text: &str| service.ask("reload").stderr.contains(text);
    expect_soon("an end", || says("is just starting or ending"));
    drop(slow);
    expect_soon("the end", || says("is not running"));

    // Who comes while the service ends is told so too.
    service.order("start");
    service.upgrade("three");
    expect_soon("the end of the one before", || service.is_alone());
    service.order("upgrade");
    let begun = Instant::now();
    service.order("stop");
    assert!(begun.elapsed() < Duration::from_secs(25), "{}", service.log());
    assert!(!listens_on(service.port));
    // Who dies takes the service with it, so that the system starts it again: wine does not, has it run for ever, and
    // starts it anew with everything else, so that it is left out here.
    service.order("remove");
}

#[test]
fn a_service_that_still_ends_hears_of_the_death_of_who_serves() {
    let Some(service) = Service::start("one") else { return };
    let first = service.pid().trim().to_string();
    let slow = service.hold();
    service.upgrade("two");
    // Without that file the second takes the first for one that serves no more, and is upgraded too.
    std::fs::remove_file(service.path("logs/nginx.pid.oldbin")).unwrap();
    service.upgrade("three");
    // It is told by the first, which knows of it from then on.
    service.configure("four");
    service.order("reload");
    expect_soon("the new configuration", || service.get() == "four");
    weir_tests::signal(service.pid().trim().parse().unwrap(), weir_tests::Signal::Kill);
    let told = format!("{first}#{first}: the program that had taken over has died");
    expect_soon("the first has heard", || service.log().contains(&told));
    drop(slow);
    // On Windows it is started again; wine has it run for ever.
    expect_soon("it can be removed", || service.ask("remove").code == 0);
}

#[test]
fn words_of_the_command_line() {
    let setup = Setup::new("");
    let dir = setup.dir();
    let help = weir(dir, &["service", "--help"]);
    if help.stderr.contains("invalid option") {
        return skip("nginx is no service");
    }
    assert!(help.code == 0 && help.stdout.contains("service install"), "{}", help.stderr);
    for (words, said) in [
        (&["service"][..], "write \"service\" with install"),
        (&["service", "restart"], "write \"service\" with install"),
        (&["service", "stop", "-n"], "requires a name"),
        (&["service", "stop", "-c", "x"], "told of its configuration when it is installed"),
    ] {
        let asked = weir(dir, words);
        assert!(asked.code == 1 && asked.stderr.contains(said), "{words:?}: {}", asked.stderr);
    }
    if !has_services(dir) {
        return;
    }
    let run = weir(dir, &["service", "run", "-p", "."]);
    assert!(run.code == 1 && run.stderr.contains("write \"service start\""), "{}", run.stderr);
    let empty = weir(dir, &["service", "install", "-n", "weir-none", "-p", "."]);
    assert!(empty.code == 1 && empty.stderr.contains("has conf"), "{}", empty.stderr);
    std::fs::create_dir(dir.join("conf")).unwrap();
    for name in ["a/b", "a\\b", "", " a"] {
        let made = weir(dir, &["service", "install", "-n", name, "-p", "."]);
        assert!(made.code == 1 && made.stderr.contains("no name for a service"), "{}", made.stderr);
    }
    let none = weir(dir, &["service", "install", "-n", "weir-none", "-p", "none"]);
    assert!(none.code == 1 && none.stderr.contains("is no folder"), "{}", none.stderr);
    std::fs::create_dir_all(dir.join("%TEMP%/conf")).unwrap();
    let made = weir(dir, &["service", "install", "-n", "weir-none", "-p", "%TEMP%"]);
    assert!(made.code == 1 && made.stderr.contains("two percent signs"), "{}", made.stderr);
    // Wine has services of its own.
    let other = weir(dir, &["service", "remove", "-n", "PlugPlay"]);
    assert!(other.code == 1 && other.stderr.contains("another program's"), "{}", other.stderr);
}
