//! `weir doctor`: findings for this machine and this configuration, and for the server that runs by it.

use weir_tests::{binary, expect_soon, run_cli, CliOutput, Server, Setup};

/// A configuration that asks for more files than it lets itself have.
const TOO_FEW_FILES: &str = "worker_rlimit_nofile 100; pid the.pid; events { worker_connections 5000; } \
     error_log e.log; http { access_log a.log; server { listen 127.0.0.1:%%PORT_0%% backlog=511; } }";

fn finding<'a>(report: &'a CliOutput, check: &str) -> Option<&'a str> {
    let is_its = |l: &&str| {
        l.trim_start().split_once(' ').is_some_and(|(_, r)| r.trim_start().starts_with(check))
    };
    report.stdout.lines().find(is_its).map(str::trim_start)
}

#[test]
fn each_finding_has_a_figure_a_reason_and_a_command() {
    let report = run_cli(&["doctor"], TOO_FEW_FILES);
    assert_eq!(report.code, 2, "{report:?}");
    let found = finding(&report, "open files: 100 by worker_rlimit_nofile")
        .unwrap_or_else(|| panic!("{report:?}"));
    assert!(found.starts_with("error ") && found.contains("5000 clients"), "{found}");
    assert!(report.stdout.contains("accept() fails (\"Too many open files\")"), "{report:?}");
    assert!(report.stdout.contains("mend: worker_rlimit_nofile 8192;"), "{report:?}");
    let backlog =
        finding(&report, "listen backlog: somaxconn ").unwrap_or_else(|| panic!("{report:?}"));
    assert!(backlog.contains("asks for backlog=511"), "{backlog}");
    assert!(finding(&report, "process: no server is found").is_some_and(|l| l.starts_with("note ")));
    assert!(!report.stdout.contains('\x1b'), "colour is for terminals");
    let counts = report.stdout.lines().last().unwrap_or_default();
    assert!(counts.contains(" error, ") && counts.ends_with(" ok"), "{counts}");
}

#[test]
fn as_json_it_says_the_same() {
    let report = run_cli(&["doctor", "--json"], TOO_FEW_FILES);
    assert_eq!(report.code, 2, "{report:?}");
    assert!(report.stdout.starts_with("{\"configuration\":\""), "{report:?}");
    assert!(report.stdout.contains(",\"status\":2,\"counts\":{\"error\":"), "{report:?}");
    let line =
        report.stdout.lines().find(|l| l.contains("\"check\":\"open files\"")).unwrap_or_default();
    assert!(
        line.contains("\"area\":\"limits\"") && line.contains("\"severity\":\"error\""),
        "{line}"
    );
    assert!(line.contains("\"mend\":\"worker_rlimit_nofile 8192;\""), "{line}");
}

#[test]
fn what_is_refused_is_an_error_and_the_rest_is_looked_at_all_the_same() {
    let report =
        run_cli(&["doctor"], "events {} http { server { listen 127.0.0.1:80; nonsense on; } }");
    assert_eq!(report.code, 2, "{report:?}");
    let found = finding(&report, "test: ").unwrap_or_else(|| panic!("{report:?}"));
    assert!(found.starts_with("error "), "{found}");
    assert!(report.stdout.contains("unknown directive \"nonsense\""), "{report:?}");
    assert!(finding(&report, "listen backlog: ").is_some(), "{report:?}");
}

#[test]
fn certificates_are_looked_at_by_their_days_and_names() {
    let pair = weir_tests::tls::self_signed("a.example");
    let server = Setup::new(
        "events {} error_log e.log; http { access_log a.log; ssl_session_tickets off; \
         server { listen 127.0.0.1:%%PORT_0%% ssl; server_name other.example; \
           ssl_certificate c.crt; ssl_certificate_key c.key; ssl_stapling on; } }",
    )
    .file("c.crt", &pair.cert)
    .file("c.key", &pair.key)
    .start();
    let report = of(&["doctor"], server.dir(), &server.dir().join("nginx.conf"));
    assert!(finding(&report, "certificates: ").is_some_and(|l| l.contains(" days")), "{report:?}");
    let names = finding(&report, "names: ").unwrap_or_else(|| panic!("{report:?}"));
    assert!(names.starts_with("warning ") && names.contains("not for other.example"), "{names}");
    let resumption = finding(&report, "resumption: ").unwrap_or_else(|| panic!("{report:?}"));
    assert!(resumption.starts_with("warning "), "{resumption}");
    let stapling = finding(&report, "stapling: ").unwrap_or_else(|| panic!("{report:?}"));
    assert!(stapling.contains("no resolver"), "{stapling}");
}

fn of(arguments: &[&str], dir: &std::path::Path, conf: &std::path::Path) -> CliOutput {
    let mut command = std::process::Command::new(binary());
    command.args(arguments).arg("-p").arg(dir).arg("-c").arg(conf);
    let output = command.output().unwrap();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let (stdout, stderr) = (text(&output.stdout), text(&output.stderr));
    CliOutput { code: output.status.code().unwrap_or(-1), stdout, stderr }
}

#[test]
fn a_running_server_is_looked_at() {
    let server = Server::start(
        "worker_processes 2; pid the.pid; events {} http { \
         server { listen 127.0.0.1:%%PORT_0%%; return 200 ok; } }",
    );
    expect_soon("a pid file", || server.read("the.pid").ends_with('\n'));
    let conf = server.dir().join("nginx.conf");
    let asked = || of(&["doctor"], server.dir(), &conf);
    let process = |report: &CliOutput| finding(report, "process: ").unwrap_or_default().to_owned();
    // They begin behind the pid file.
    expect_soon("its workers", || process(&asked()).contains("2 workers"));
    let report = asked();
    assert!(process(&report).starts_with("ok "), "{report:?}");
    let queue = format!("queues: port {}: 0 of ", server.port(0));
    assert!(finding(&report, &queue).is_some_and(|l| l.starts_with("ok ")), "{report:?}");
    assert!(finding(&report, "overflows: ListenOverflows ").is_some(), "{report:?}");
    assert!(finding(&report, "balance: CPU time of the workers: ").is_some(), "{report:?}");
    assert!(report.stdout.contains(" of the running server, "), "{report:?}");
}

#[test]
fn receivers_of_events_are_looked_at() {
    let server = Server::start(
        "worker_processes 1; pid the.pid; events {}
         ship away { to opensearch http://127.0.0.1:%%PORT_1%%; queue %%DIR%%/away size=1m;
            batch linger=10ms; retry first=20ms most=50ms; }
         ship huge { to file %%DIR%%/none.json; queue %%DIR%%/huge size=900000g; }
         http { server { listen 127.0.0.1:%%PORT_0%%; ship_access away; return 200 ok; } }",
    );
    expect_soon("a pid file", || server.read("the.pid").ends_with('\n'));
    server.get("/");
    let conf = server.dir().join("nginx.conf");
    let look = || of(&["doctor"], server.dir(), &conf);
    expect_soon("a receiver that is away", || {
        let report = look();
        let found = finding(&report, "receivers: \"away\" has not taken all for ");
        found.is_some_and(|l| l.starts_with("warning ") && l.ends_with(" 1 events wait"))
    });
    let report = look();
    let well = |of: &str| {
        finding(&report, of).unwrap_or_else(|| panic!("{of}: {report:?}")).starts_with("ok ")
    };
    assert!(well("receivers: \"huge\" takes what it is sent, 0 events wait"), "{report:?}");
    assert!(well("queues: \"away\": ") && well("lost events: \"away\": none"), "{report:?}");
    let huge = finding(&report, "folders: \"huge\" in ").unwrap_or_else(|| panic!("{report:?}"));
    assert!(huge.starts_with("error ") && huge.contains(": up to 878.9 TB, "), "{huge}");
    assert!(report.stdout.contains("the disk is full before the queue is"), "{report:?}");
    assert_eq!(report.code, 2);
}

#[test]
fn help_lists_the_checks() {
    let help = run_cli(&["doctor", "--help"], "");
    assert_eq!(help.code, 0);
    for word in
        ["Exit status: 0 nothing to mend, 1 warnings, 2 errors", "--json", "conntrack", "stapling"]
    {
        assert!(help.stdout.contains(word), "{word}: {help:?}");
    }
    let wrong = run_cli(&["doctor", "--nonsense"], "");
    assert_eq!(wrong.code, 1);
    assert!(wrong.stderr.contains("invalid option: \"--nonsense\""), "{wrong:?}");
}
