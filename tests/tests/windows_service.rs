//! `weir service`: on Windows (`cargo xtask windows test` has wine) a service from its making to its end; elsewhere what
//! is to be done instead. What needs a real Windows to be seen: rights, recovery, what the event log shows.

use std::path::Path;
use std::process::Command;
use weir_tests::{
    binary, expect_soon, free_port, listens_on, skip, tools, CliOutput, Peer, Server, Setup, Signal,
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
    let setup = Setup::new("");
    let dir = setup.dir();
    if !has_services(dir) {
        return;
    }
    // Wine ends its services with the last program that is none.
    let _stays = Server::start("events {} http { server { listen 127.0.0.1:%%PORT_0%%; } }");
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

#[test]
fn a_service_is_upgraded_as_often_as_one_likes() {
    let setup = Setup::new("");
    let dir = setup.dir();
    if !has_services(dir) {
        return;
    }
    let _stays = Server::start("events {} http { server { listen 127.0.0.1:%%PORT_0%%; } }");
    let port = free_port();
    let name = format!("weir upgrades {}", std::process::id());
    let service = |order: &str| {
        let done = weir(dir, &["service", order, "-n", &name]);
        assert_eq!(done.code, 0, "{order}: {}", done.stderr);
    };
    let home = dir.join("home");
    std::fs::create_dir_all(home.join("logs")).unwrap();
    let conf = |text: &str| {
        let text = format!(
            "error_log logs/error.log info; events {{}} http {{ server {{ listen 127.0.0.1:{port};
             location / {{ return 200 {text}; }}
             location /slow {{ limit_rate 1k; root .; }} }} }}"
        );
        std::fs::write(home.join("my.conf"), text).unwrap();
    };
    std::fs::write(home.join("slow"), [b'x'; 1 << 20]).unwrap();
    conf("one");
    let made = weir(dir, &["service", "install", "-n", &name, "-p", "home", "-c", "my.conf"]);
    assert_eq!(made.code, 0, "{}", made.stderr);
    service("start");
    let get = || Peer::Tcp(port).get("/").text();
    let log = || std::fs::read_to_string(home.join("logs/error.log")).unwrap_or_default();
    let pid = || std::fs::read_to_string(home.join("logs/nginx.pid")).unwrap_or_default();
    let is_begun = || pid().ends_with('\n');
    expect_soon("it serves", || is_begun() && get() == "one");
    let next = |text: &str| {
        let before = pid();
        conf(text);
        service("upgrade");
        expect_soon("the next program", || is_begun() && pid() != before && get() == text);
    };
    // What the one that is replaced has to serve yet: it is not the one that is told something.
    let hold = || {
        let mut slow = Peer::Tcp(port).connect();
        slow.send_get("/slow");
        assert!(slow.read_until(b"\r\n\r\n").starts_with(b"HTTP/1.1 200"));
        slow
    };
    let is_alone = || !home.join("logs/nginx.pid.oldbin").exists();
    for (round, text) in ["two", "three", "four"].iter().enumerate() {
        let slow = hold();
        next(text);
        let text = format!("reloaded{round}");
        conf(&text);
        service("reload");
        expect_soon("the new configuration", || get() == text);
        assert!(!is_alone());
        drop(slow);
        expect_soon("the end of the one before", is_alone);
    }
    let slow = hold();
    next("five");
    drop(slow);
    service("stop");
    assert!(!listens_on(port) && pid().is_empty(), "{}", log());
    service("start");
    // Who dies takes the service with it, whatever those before it have to serve: the system starts it again. (Wine does
    // not, and has it run for ever.)
    let slow = hold();
    next("six");
    drop(slow);
    expect_soon("the end of the one before", is_alone);
    let _slow = hold();
    next("seven");
    weir_tests::signal(pid().trim().parse().unwrap(), Signal::Kill);
    expect_soon("the service's end", || log().matches("taken over has died").count() == 2);
    expect_soon("the end of all of it", || !listens_on(port));
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
    for name in ["a/b", "a\\b", "", " a"] {
        let made = weir(dir, &["service", "install", "-n", name, "-p", "."]);
        assert!(made.code == 1 && made.stderr.contains("no name for a service"), "{}", made.stderr);
    }
    let none = weir(dir, &["service", "install", "-n", "weir-none", "-p", "none"]);
    assert!(none.code == 1 && none.stderr.contains("is no folder"), "{}", none.stderr);
    std::fs::create_dir(dir.join("%TEMP%")).unwrap();
    let made = weir(dir, &["service", "install", "-n", "weir-none", "-p", "%TEMP%"]);
    assert!(made.code == 1 && made.stderr.contains("two percent signs"), "{}", made.stderr);
    // Wine has services of its own.
    let other = weir(dir, &["service", "remove", "-n", "PlugPlay"]);
    assert!(other.code == 1 && other.stderr.contains("another program's"), "{}", other.stderr);
}
