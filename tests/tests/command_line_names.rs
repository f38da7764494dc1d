//! A program that is called `nginx` looks where nginx looks, and one called `weir` where it was built
//! to look; what `-t` leaves behind; what `ps` shows.

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use weir_tests::tools::{self, finish, skip};
use weir_tests::{expect_soon, CliOutput, Setup, Signal};

fn is_weir() -> bool {
    let weir = tools::finish(Command::new(weir_tests::binary()).arg("-v"), b"");
    weir.stderr.contains("(weir/")
}

/// The binary under another name.
fn named(setup: &Setup, name: &str) -> PathBuf {
    let link = setup.dir().join(name);
    std::os::unix::fs::symlink(weir_tests::binary(), &link).unwrap();
    link
}

/// The path that follows `--NAME=` in `-V`.
fn configured<'a>(shown: &'a str, name: &str) -> &'a str {
    let start = format!("--{name}=");
    let word = shown.split_whitespace().find_map(|w| w.strip_prefix(start.as_str()));
    word.unwrap_or_else(|| panic!("no {start} in {shown}"))
}

fn run(program: &Path, arguments: &[&str]) -> CliOutput {
    finish(Command::new(program).args(arguments), b"")
}

#[test]
fn called_nginx_it_looks_where_nginx_looks() {
    if !is_weir() {
        return skip("nginx has its own paths");
    }
    let setup = Setup::new("");
    let nginx = named(&setup, "nginx");
    let shown = run(&nginx, &["-V"]).stderr;
    for (name, path) in [
        ("conf-path", "/etc/nginx/nginx.conf"),
        ("pid-path", "/run/nginx.pid"),
        ("error-log-path", "/var/log/nginx/error.log"),
        ("http-log-path", "/var/log/nginx/access.log"),
        ("http-client-body-temp-path", "/var/lib/nginx/body"),
        ("http-scgi-temp-path", "/var/lib/nginx/scgi"),
    ] {
        assert_eq!(configured(&shown, name), path);
    }
    if Path::new("/etc/nginx/nginx.conf").exists() {
        return skip("there is a configuration of nginx here");
    }
    for arguments in [&["-t"][..], &["-T"], &["-s", "reload"], &["-g", "daemon off;"], &[]] {
        let said = run(&nginx, arguments);
        let error =
            "[emerg] open() \"/etc/nginx/nginx.conf\" failed (2: No such file or directory)";
        assert_eq!(said.code, 1, "{arguments:?}: {}", said.stderr);
        assert!(said.stderr.contains(error), "{arguments:?}: {}", said.stderr);
    }
}

#[test]
fn only_a_bare_weir_serves_its_own_page() {
    if !is_weir() {
        return skip("nginx has no page of its own");
    }
    let setup = Setup::new("");
    let weir = named(&setup, "weir");
    let shown = run(&weir, &["-V"]).stderr;
    let conf = configured(&shown, "conf-path").to_string();
    assert!(run(&weir, &["-h"]).stderr.contains(configured(&shown, "prefix")));
    if Path::new(&conf).exists() {
        return skip("there is a configuration here");
    }
    for arguments in [&["-t"][..], &["-T"], &["-s", "stop"], &["-g", "daemon off;"]] {
        let said = run(&weir, arguments);
        assert_eq!(said.code, 1, "{arguments:?}: {}", said.stderr);
        let error = format!("[emerg] open() \"{conf}\" failed");
        assert!(said.stderr.contains(&error), "{arguments:?}: {}", said.stderr);
    }
}

#[test]
fn a_test_makes_nothing() {
    if !is_weir() {
        return skip("nginx makes directories and log files when it tests");
    }
    let setup = Setup::new("").file("conf/nginx.conf", "");
    let conf = setup.dir().join("conf/nginx.conf");
    let text = "error_log e.log; pid p.pid; events {} http { access_log a.log;
        client_body_temp_path body; server { listen 127.0.0.1:1; } }";
    std::fs::write(&conf, text).unwrap();
    let prefix = setup.dir().join("prefix");
    std::fs::create_dir(&prefix).unwrap();
    std::fs::set_permissions(&prefix, std::fs::Permissions::from_mode(0o555)).unwrap();
    let weir = named(&setup, "weir");
    let (p, c) = (prefix.display().to_string(), conf.display().to_string());
    let said = run(&weir, &["-t", "-p", &p, "-c", &c]);
    assert_eq!(said.code, 0, "{}", said.stderr);
    assert_eq!(std::fs::read_dir(&prefix).unwrap().count(), 0);
    // What could not be made by anybody is still an error.
    std::fs::write(&conf, text.replace("a.log", "none/a.log")).unwrap();
    let said = run(&weir, &["-t", "-p", &p, "-c", &c]);
    assert_eq!(said.code, 1, "{}", said.stderr);
    assert!(said.stderr.contains("none/a.log\" failed (2: No such file"), "{}", said.stderr);
}

/// The titles of a process and of its children.
fn titles(pid: u32) -> Vec<String> {
    let children = format!("/proc/{pid}/task/{pid}/children");
    let children = std::fs::read_to_string(children).unwrap_or_default();
    let all =
        std::iter::once(pid).chain(children.split_whitespace().filter_map(|n| n.parse().ok()));
    let title = |pid: u32| {
        let bytes = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        String::from_utf8_lossy(&bytes).trim_end_matches('\0').to_string()
    };
    all.map(title).collect()
}

#[test]
fn processes_are_named() {
    let setup = Setup::new("");
    let master = {
        let conf = setup.dir().join("the.conf");
        let text = format!(
            "user root; error_log {0}/error.log; daemon off; pid {0}/the.pid;
            events {{}} http {{ access_log off; server {{ listen unix:{0}/the.sock; }} }}",
            setup.dir().display()
        );
        std::fs::write(&conf, text).unwrap();
        let mut command = Command::new(named(&setup, "nginx"));
        command.arg("-p").arg(setup.dir()).arg("-c").arg(&conf);
        command.arg("-e").arg(setup.dir().join("error.log"));
        command.stdin(Stdio::null()).stderr(Stdio::null());
        tools::Running(command.spawn().unwrap())
    };
    expect_soon("a master's title", || {
        titles(master.pid())[0].starts_with("nginx: master process ")
    });
    assert!(titles(master.pid())[0].ends_with("error.log"), "{:?}", titles(master.pid()));
    if is_root() {
        expect_soon("a worker's title", || {
            titles(master.pid()).iter().any(|t| t == "nginx: worker process")
        });
    }
}

fn is_root() -> bool {
    std::fs::metadata("/proc/self").is_ok_and(|m| std::os::unix::fs::MetadataExt::uid(&m) == 0)
}

#[test]
fn a_worker_that_ends_says_so() {
    if !is_root() {
        return skip("workers have a process of their own when started as root");
    }
    let server = Setup::new(
        "error_log %%DIR%%/error.log; events {} http { access_log off; server {
            listen 127.0.0.1:%%PORT_0%%; limit_rate 1; root %%DIR%%; } }",
    )
    .file("large", "x".repeat(100_000))
    .start();
    let mut client = server.connect();
    client.send(b"GET /large HTTP/1.1\r\nHost: a\r\n\r\n");
    client.read_until(b"HTTP/1.1 200");
    server.signal(Signal::Quit);
    expect_soon("the title of a worker that ends", || {
        titles(server.pid()).iter().any(|t| t.ends_with(": worker process is shutting down"))
    });
}
