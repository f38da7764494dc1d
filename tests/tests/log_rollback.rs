//! Logs that the server rolls over itself (Tengine's `pipe:rollback`).

use std::collections::BTreeSet;
use weir_tests::{expect_soon, signal, Server, Setup, Signal};

const CONF: &str = r#"MAIN worker_processes 2; error_log %%DIR%%/error.log notice; events {} http { log_format l $request_uri;
    keepalive_requests 100000; access_log "pipe:rollback logs/access OPTIONS" l BUFFER;
    server { listen 127.0.0.1:%%PORT_0%%; location / { return 200 ok; }
        location /which { access_log off; return 200 first; } } }"#;

fn start(main: &str, options: &str, buffer: &str) -> Server {
    let conf = CONF.replace("MAIN", main).replace("OPTIONS", options).replace("BUFFER", buffer);
    Setup::new(&conf).start()
}

fn exists(server: &Server, number: usize) -> bool {
    server.dir().join(format!("logs/access.{number}")).exists()
}

/// What all its files have, the oldest first.
fn all(server: &Server) -> Vec<String> {
    let old = (1..=128).rev().map(|n| server.read(&format!("logs/access.{n}")));
    let text: String = old.chain([server.read("logs/access")]).collect();
    text.lines().map(str::to_string).collect()
}

#[test]
fn a_log_is_rolled_over_by_its_size_and_no_line_is_lost() {
    for (main, buffer) in
        [("", ""), ("master_process off;", ""), ("user nobody nogroup;", "buffer=1k flush=1s")]
    {
        let mut server = start(main, "maxsize=2k baknum=100 adjust=1", buffer);
        let mut client = server.connect();
        let mut asked = 0;
        expect_soon("three old files", || {
            for _ in 0..50 {
                assert_eq!(client.get(&format!("/{asked}")).text(), "ok");
                asked += 1;
            }
            exists(&server, 3)
        });
        drop(client);
        server.signal(Signal::Quit);
        assert_eq!(server.wait_exit(), Some(0));
        let lines: BTreeSet<_> = all(&server).into_iter().collect();
        assert_eq!((lines.len(), all(&server).len()), (asked, asked), "{main}");
        let first = server.read("logs/access.3").len();
        assert!(first >= 2048, "{first}");
    }
}

/// A worker may write a line into a file that has just got its new name: which lines a file has is not looked at,
/// but for the first one, which is gone with its file.
#[test]
fn old_files_are_as_many_as_told() {
    let server = start("", "maxsize=1 baknum=2", "");
    let mut asked = 0;
    expect_soon("the oldest file is gone", || {
        asked += 1;
        server.get(&format!("/{asked}"));
        assert!(!exists(&server, 3));
        let oldest = server.read("logs/access.2");
        !oldest.is_empty() && !oldest.starts_with("/1\n")
    });
    assert!(asked > 2 && exists(&server, 1));
    assert!(!all(&server).contains(&"/1".to_string()));
}

#[test]
fn a_log_is_rolled_over_by_time() {
    let mut server = start("", "interval=1s baknum=100 adjust=1", "");
    server.get("/1");
    expect_soon("an old file", || exists(&server, 1));
    // The first of them may still go to the file before.
    expect_soon("another", || {
        server.get("/2");
        exists(&server, 2)
    });
    let lines = all(&server);
    assert!(lines[0] == "/1" && lines[1..].iter().all(|line| line == "/2"), "{lines:?}");
    for number in [1, 2] {
        let text = server.read(&format!("logs/access.{number}"));
        assert!(!text.is_empty(), "nothing is rolled over that is empty");
    }
    // A reload knows how it stands, and one that names a plain file ends it.
    let plain =
        CONF.replace("MAIN", "").replace("pipe:rollback logs/access OPTIONS", "logs/access");
    let plain = plain.replace("BUFFER", "").replace("200 first", "200 second");
    // No line may come of the asking: the old configuration would roll it over rightly.
    let peer = server.on(0);
    server.reload(&plain, || peer.get("/which").text() == "second");
    server.get("/3");
    expect_soon("a line of the plain log", || server.read("logs/access").ends_with("/3\n"));
    let files = || (1..).take_while(|number| exists(&server, *number)).count();
    let (start, before) = (std::time::Instant::now(), files());
    while start.elapsed() < std::time::Duration::from_millis(2100) {
        server.get("/3");
    }
    assert_eq!(files(), before, "nothing rolls it over");
}

/// What an earlier run has left of an earlier interval is rolled over, and of this one is gone on with.
#[test]
fn what_is_there_is_gone_on_with() {
    let conf =
        CONF.replace("MAIN", "").replace("OPTIONS", "interval=1d adjust=1").replace("BUFFER", "");
    let server = Setup::new(&conf).file("logs/access", "/now\n").start();
    server.get("/1");
    server.log_lines("logs/access", 2);
    assert!(!exists(&server, 1));
    let setup = Setup::new(&conf).file("logs/access", "/then\n");
    let file = std::fs::File::options().append(true).open(setup.dir().join("logs/access")).unwrap();
    let then = std::time::SystemTime::now() - std::time::Duration::from_secs(3 * 86400);
    file.set_modified(then).unwrap();
    let server = setup.start();
    expect_soon("it is rolled over", || exists(&server, 1));
    assert_eq!(server.read("logs/access.1"), "/then\n");
}

/// While two programs run, of which one takes the other's place, the file is rolled over once.
#[test]
fn an_upgrade_rolls_over_once() {
    let server = start("daemon on; pid %%DIR%%/the.pid;", "maxsize=100 baknum=100", "");
    let old = server.pid();
    signal(old, Signal::Usr2);
    let pid = || server.read("the.pid").trim().parse::<u32>().ok();
    expect_soon("the new program", || pid().is_some_and(|p| p != old));
    let mut asked = 0;
    expect_soon("ten old files", || {
        for _ in 0..10 {
            server.get(&format!("/{asked:09}"));
            asked += 1;
        }
        exists(&server, 10)
    });
    signal(old, Signal::Quit);
    expect_soon("the old one has gone", || !weir_tests::is_alive(old));
    let lines: BTreeSet<_> = all(&server).into_iter().collect();
    assert_eq!((lines.len(), all(&server).len()), (asked, asked));
    assert!((1..=10).all(|n| !server.read(&format!("logs/access.{n}")).is_empty()));
    signal(pid().unwrap(), Signal::Term);
    expect_soon("the new one has gone", || pid().is_none());
}

#[test]
fn one_file_has_one_rule() {
    let two = r#"error_log "pipe:rollback logs/a maxsize=1m"; events {} http {
        access_log "pipe:rollback logs/a maxsize=2m"; }"#;
    let told = weir_tests::run_cli(&["-t"], two);
    assert!(told.stderr.contains("conflicting parameters"), "{}", told.stderr);
    let server = Setup::new(
        r#"error_log "pipe:rollback logs/e maxsize=1k baknum=1" info; events {} http {
        access_log "pipe:rollback logs/e baknum=1 maxsize=1k";
        server { listen 127.0.0.1:%%PORT_0%%; root %%DIR%%; } }"#,
    )
    .start();
    expect_soon("it is rolled over", || {
        server.get("/nosuch");
        server.read("logs/e.1").contains("nosuch")
    });
}
