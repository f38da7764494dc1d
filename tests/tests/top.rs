//! `weir top --once` and `--json`: what servers do, by the control socket and by their APIs.

use serde_json::Value;
use std::process::{Command, Output};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::Arc;
use std::thread::JoinHandle;
use weir_tests::tls::Authority;
use weir_tests::{binary, expect_soon, free_port, Next, Origin, Peer, Server, Setup};

const CONF: &str =
    "worker_processes 2; pid the.pid; error_log e.log; events {} http { access_log off; \
     limit_req_zone $binary_remote_addr zone=lr:1m rate=900000r/s; \
     upstream u { server 127.0.0.1:%%PORT_1%%; } \
     server { listen 127.0.0.1:%%PORT_0%%; server_name front.test; \
        location /api/ { api; } \
        location /closed/ { auth_basic x; auth_basic_user_file users; api; } \
        location / { status_zone loc; limit_req zone=lr burst=1000 nodelay; proxy_pass http://u; } \
        location /fails { return 503; } location /nothing { return 404; } } \
     server { listen 127.0.0.1:%%PORT_1%%; return 200 ok; } }";

fn start() -> Server {
    let server = Setup::new(CONF).file("users", "me:{PLAIN}secret\n").start();
    expect_soon("a pid file", || server.read("the.pid").ends_with('\n'));
    server
}

/// A client that asks again and again.
struct Load {
    end: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Load {
    fn on(server: &Server) -> Load {
        let end = Arc::<AtomicBool>::default();
        let (told, port) = (Arc::clone(&end), server.port(0));
        let run = move || {
            while !told.load(Ordering::Relaxed) {
                for path in ["/a", "/fails"] {
                    let request = format!(
                        "GET {path} HTTP/1.1\r\nHost: front.test\r\nConnection: close\r\n\r\n"
                    );
                    Peer::Tcp(port).raw(request.as_bytes());
                }
            }
        };
        Load { end, thread: Some(std::thread::spawn(run)) }
    }
}

impl Drop for Load {
    fn drop(&mut self) {
        self.end.store(true, Ordering::Relaxed);
        let _ = self.thread.take().map(JoinHandle::join);
    }
}

fn top(arguments: &[&str]) -> Output {
    Command::new(binary()).arg("top").args(arguments).output().expect("the binary runs")
}

fn of(server: &Server) -> [String; 4] {
    let conf = server.dir().join("nginx.conf");
    ["-p".into(), server.dir().display().to_string(), "-c".into(), conf.display().to_string()]
}

/// By the control socket.
fn top_of(server: &Server, arguments: &[&str]) -> Output {
    let place = of(server);
    let mut all: Vec<&str> = place.iter().map(String::as_str).collect();
    all.extend(arguments);
    top(&all)
}

#[track_caller]
fn json(output: &Output) -> Value {
    let text = String::from_utf8_lossy(&output.stdout);
    serde_json::from_str(&text).unwrap_or_else(|e| panic!("{e}: {output:?}"))
}

fn row<'a>(told: &'a Value, table: &str, name: &str) -> &'a Value {
    let rows = told[table].as_array().into_iter().flatten();
    rows.into_iter().find(|row| row["name"] == name).unwrap_or_else(|| panic!("no {name}: {told}"))
}

fn api(server: &Server, path: &str) -> String {
    format!("http://127.0.0.1:{}{path}", server.port(0))
}

fn number(value: &Value) -> f64 {
    value.as_f64().unwrap_or_else(|| panic!("{value} is no number"))
}

#[test]
fn a_picture_by_the_control_socket() {
    let server = start();
    let load = Load::on(&server);
    expect_soon("requests", || server.get("/api/9/http/requests").text() != "{}");
    let output = top_of(&server, &["--json", "--interval", "500ms"]);
    assert!(output.status.success(), "{output:?}");
    let told = json(&output);
    assert!((0.3..10.0).contains(&number(&told["interval_seconds"])), "{told}");
    assert!(number(&told["overview"]["requests_per_second"]) > 1.0, "{told}");
    let front = row(&told, "server_zones", "front.test");
    for key in ["requests_per_second", "2xx_per_second", "5xx_per_second", "sent_bytes_per_second"]
    {
        assert!(number(&front[key]) > 0.0, "{key}: {front}");
    }
    assert!(number(&front["p50_ms"]) <= number(&front["p99_ms"]), "{front}");
    assert!(number(&row(&told, "location_zones", "loc")["requests_per_second"]) > 0.0);
    let peer = row(&told, "upstreams", &format!("u 127.0.0.1:{}", server.port(1)));
    assert_eq!((&peer["state"], number(&peer["requests_per_second"]) > 0.0), (&"up".into(), true));
    assert!(number(&row(&told, "limit_reqs", "lr")["passed_per_second"]) > 0.0);
    assert_eq!(told["workers"].as_array().map(Vec::len), Some(2));
    // Nothing in the configuration asks for it.
    let problems = told["problems"].as_array().unwrap();
    let is_it = |p: &Value| p["status"] == "503" && p["text"] == "GET front.test /fails";
    assert!(problems.iter().any(is_it), "{told}");

    let text = top_of(&server, &["--once", "--interval", "300ms"]);
    drop(load);
    let text = String::from_utf8_lossy(&text.stdout).into_owned();
    for part in
        ["requests/s", "Servers ", "front.test", "Upstreams", "Workers", "GET front.test /fails"]
    {
        assert!(text.contains(part), "{part}: {text}");
    }
    assert!(!text.contains('\x1b'), "{text:?}");
    let pid = server.read("the.pid");
    let by_pid = top(&["--pid", pid.trim(), "--json", "--interval", "100ms"]);
    assert_eq!(json(&by_pid)["overview"]["pid"], pid_of_workers(&server));
}

/// Of the process that serves.
fn pid_of_workers(server: &Server) -> String {
    server.children().first().copied().unwrap_or(server.own_pid()).to_string()
}

#[test]
fn servers_are_added_up_by_their_apis_and_one_that_is_not_there_is_named() {
    let (one, two) = (start(), start());
    let loads = [Load::on(&one), Load::on(&two)];
    let nobody = format!("http://127.0.0.1:{}/api/", free_port());
    let urls = [api(&one, "/api/"), api(&two, "/api/9/"), nobody.clone()];
    let mut arguments = vec!["--json", "--interval", "500ms"];
    arguments.extend(urls.iter().map(String::as_str));
    let output = top(&arguments);
    drop(loads);
    assert!(output.status.success(), "{output:?}");
    let told = json(&output);
    let of = |n: usize, key: &str| told["sources"][n][key].clone();
    for key in ["requests_per_second", "5xx_per_second", "active", "sent_bytes_per_second"] {
        let sum = number(&of(0, key)) + number(&of(1, key));
        assert!(number(&of(0, key)) > 0.0 && number(&of(1, key)) > 0.0, "{key}: {told}");
        assert!((number(&told["overview"][key]) - sum).abs() < 0.01, "{key}: {told}");
        assert_eq!(of(2, key), Value::Null, "{key}");
    }
    assert_eq!((of(0, "error"), of(1, "error")), (Value::Null, Value::Null));
    assert!(of(2, "error").as_str().is_some_and(|e| e.contains("refused")), "{told}");
    let worst = number(&of(0, "p99_ms")).max(number(&of(1, "p99_ms")));
    assert!(number(&told["overview"]["p99_ms"]) <= worst, "{told}");
    // The same name, once; workers are each server's own.
    let all = told["server_zones"].as_array().into_iter().flatten();
    assert_eq!(all.filter(|row| row["name"] == "front.test").count(), 1);
    assert_eq!(told["workers"].as_array().map(Vec::len), Some(4));

    let lost = top(&["--once", "--interval", "100ms", &nobody]);
    assert_eq!(lost.status.code(), Some(1));
    let text = String::from_utf8_lossy(&lost.stdout).into_owned();
    assert!(text.contains("does not answer") && !text.contains("requests/s"), "{text}");
}

#[test]
fn names_and_passwords_are_asked_for_and_given() {
    let server = start();
    let url = api(&server, "/closed/");
    let error = |arguments: &[&str]| {
        let told = json(&top(&[&["--json", "--interval", "100ms"], arguments].concat()));
        told["sources"][0]["error"].as_str().unwrap_or_default().to_owned()
    };
    assert!(error(&[&url]).contains("--user NAME:PASSWORD"), "{}", error(&[&url]));
    assert!(!error(&[&url, "--user", "me:wrong"]).is_empty());
    assert_eq!(error(&[&url, "--user", "me:secret"]), "");
    let with_user = url.replace("http://", "http://me:secret@");
    let output = top(&["--json", "--interval", "100ms", &with_user]);
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success() && !text.contains("secret"), "{text}");
    let none = error(&[&api(&server, "/nothing/")]);
    assert!(none.contains("location /api/ { api; }"), "{none}");
}

#[test]
fn what_the_api_tells_at_once() {
    let server = start();
    server.get("/a");
    let whole: Value = serde_json::from_str(&server.get("/api/9/figures").text()).unwrap();
    let times = &whole["http"]["server_zones"]["front.test"]["latency"];
    let buckets: Vec<u64> =
        times["buckets"].as_array().into_iter().flatten().filter_map(Value::as_u64).collect();
    let counted: u64 = buckets.chunks(2).map(|pair| pair[1]).sum();
    assert!(counted > 0 && times["count"].as_u64() == Some(counted), "{times}");
    assert!(whole["now_us"].as_u64() > Some(0) && whole["problems"].is_array(), "{whole}");
    assert_eq!(server.get("/api/8/figures").status, 404);
}

#[test]
fn an_api_that_does_not_tell_all_at_once_is_asked_place_by_place() {
    let requests = Arc::<AtomicU32>::default();
    let origin = Origin::start(move |request, conn| {
        let text = match request.line().split(" ").nth(1).unwrap_or_default() {
            "/api/" => "[1,2,8]".to_owned(),
            "/api/8/nginx" => "{\"version\":\"1.29\",\"pid\":7}".to_owned(),
            "/api/8/connections" => {
                "{\"active\":3,\"idle\":1,\"accepted\":9,\"dropped\":0}".to_owned()
            }
            "/api/8/http/requests" => {
                let n = requests.fetch_add(1000, Ordering::Relaxed);
                format!("{{\"total\":{n},\"current\":1}}")
            }
            "/api/8/http/server_zones" => "{\"a\\u001b[2Jb\":{\"requests\":5,\"latency\":\
                {\"count\":5,\"p50\":1.5,\"p95\":2,\"p99\":3}}}"
                .to_owned(),
            _ => {
                conn.reply("404 Not Found", "", "{}");
                return Next::Keep;
            }
        };
        conn.reply("200 OK", "", &text);
        Next::Keep
    });
    let url = format!("http://{}/api/", origin.address());
    let told = json(&top(&["--json", "--interval", "200ms", &url]));
    assert!(number(&told["overview"]["requests_per_second"]) > 100.0, "{told}");
    assert_eq!(
        (&told["overview"]["version"], &told["overview"]["active"]),
        (&"1.29".into(), &3.into())
    );
    // As it is told: since the start, which a text says by a mark.
    assert_eq!(told["overview"]["p99_ms"], 3.0);
    assert_eq!(told["overview"]["2xx_per_second"], Value::Null);
    let text = top(&["--once", "--interval", "200ms", &url]);
    let text = String::from_utf8_lossy(&text.stdout).into_owned();
    assert!(text.contains("~3.0ms") && text.contains("since the start"), "{text}");
    assert!(text.contains("a\\x1b[2Jb") && !text.contains('\x1b'), "{text:?}");
}

#[test]
fn https_is_verified_by_the_authorities_that_are_trusted() {
    let (authority, other) = (Authority::new("ours"), Authority::new("theirs"));
    let pair = authority.issue("localhost");
    let server = Setup::new(
        "events {} http { server { listen 127.0.0.1:%%PORT_0%% ssl; ssl_certificate c.pem; \
         ssl_certificate_key k.pem; location /api/ { api; } } }",
    )
    .file("c.pem", &pair.cert)
    .file("k.pem", &pair.key)
    .file("ours.pem", &authority.cert)
    .file("theirs.pem", &other.cert)
    .start();
    let ask = |file: &str, host: &str| {
        let url = format!("https://{host}:{}/api/", server.port(0));
        let output = Command::new(binary())
            .args(["top", "--json", "--interval", "100ms", &url])
            .env("SSL_CERT_FILE", server.dir().join(file))
            .output();
        json(&output.unwrap())["sources"][0]["error"].as_str().unwrap_or_default().to_owned()
    };
    assert_eq!(ask("ours.pem", "localhost"), "");
    assert!(ask("theirs.pem", "localhost").contains("certificate verify error"));
    assert!(ask("ours.pem", "127.0.0.1").contains("does not match"));
}

/// What it is called with and cannot do is refused with what to write.
#[test]
fn options_that_do_not_go_together() {
    for (arguments, expected) in [
        (&["--interval", "1ms", "--once"][..], "write 100ms to 1h"),
        (&["--interval"], "requires a value"),
        (&["--user", "a:b", "--once"], "goes with URLs"),
        (&["--once", "-p", "1", "http://a/"], "do not go with"),
        (&["--once", "ftp://a/"], "write it as in http://localhost/api/"),
        (&["--once", "--user", "nobody", "http://a/"], "NAME:PASSWORD"),
        (&["--what"], "invalid option"),
        (&["http://127.0.0.1/"], "--once"),
    ] {
        let output = top(arguments);
        let text = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(
            output.status.code() == Some(1) && text.contains(expected),
            "{arguments:?}: {output:?}"
        );
    }
    for arguments in [["top", "--help"], ["help", "top"]] {
        let help = Command::new(binary()).args(arguments).output().unwrap();
        let text = String::from_utf8_lossy(&help.stdout).into_owned();
        assert!(text.starts_with("Usage: ") && text.contains(" top ["), "{help:?}");
    }
}

/// Who looks for all that run believes root's servers and his own.
#[test]
fn another_users_server_is_not_found() {
    use std::os::unix::process::CommandExt as _;
    let home = std::env::temp_dir().join(format!("weir-other-{}", std::process::id()));
    std::fs::create_dir_all(&home).unwrap();
    let conf = "pid the.pid; error_log e.log; events {} http { access_log off;
        server { listen 127.0.0.1:PORT; server_name forged.test; } }";
    std::fs::write(home.join("c.conf"), conf.replace("PORT", &free_port().to_string())).unwrap();
    let mut command = Command::new(binary());
    command.args(["-c", "c.conf", "-g", "daemon off;", "-p", "."]).current_dir(&home).uid(65534);
    let chowned = Command::new("chown").arg("65534").arg(&home).status();
    let started = command.spawn();
    let (Ok(_), Ok(mut other)) = (chowned, started) else {
        return weir_tests::skip("only root may start another user's server");
    };
    expect_soon("the other one's socket", || home.join("the.pid.control").exists());
    let found = String::from_utf8(top(&["--once"]).stdout).unwrap();
    weir_tests::signal(other.id(), weir_tests::Signal::Term);
    other.wait().unwrap();
    assert!(!found.contains("weir-other"), "{found}");
    std::fs::remove_dir_all(home).unwrap();
}
