//! `dashboard_peer`: several Weirs beside each other, and added up.

use serde_json::{json, Value};
use weir_tests::tls::Authority;
use weir_tests::{expect_soon, run_cli, Browser, Origin, Server, Setup};

/// Another Weir: who asks its API has a password, and a place that answers late.
fn other(authority: &Authority) -> Server {
    let pair = authority.issue("localhost");
    Setup::new(
        "worker_processes 1; error_log error.log info; events {} http {
            server { listen 127.0.0.1:%%PORT_0%%; server_name shop;
                location / { return 200 ok; }
                location /late { echo_sleep 0.2; echo late; } }
            server { listen 127.0.0.1:%%PORT_1%% ssl; status_zone off; ssl_certificate c.crt; ssl_certificate_key c.key;
                location /api/ { api; auth_basic peers; auth_basic_user_file users; } } }",
    )
    .file("c.crt", &pair.cert)
    .file("c.key", &pair.key)
    .file("users", "me:{PLAIN}secret\n")
    .start()
}

fn own(authority: &Authority, peers: &str) -> Server {
    Setup::new(
        &"worker_processes 1; error_log error.log info; events {} http {
            server { listen 127.0.0.1:%%PORT_0%%; server_name shop;
                location / { return 200 ok; }
                location /live/ { dashboard; PEERS } } }"
            .replace("PEERS", peers),
    )
    .file("ca.crt", &authority.cert)
    .file("password", "secret\nnot this\n")
    .start()
}

fn told(server: &Server) -> Value {
    serde_json::from_str(&server.get("/live/machines").text()).unwrap()
}

fn machine(told: &Value, name: &str) -> Value {
    let all = told["machines"].as_array().unwrap();
    all.iter().find(|m| m["name"] == name).unwrap_or_else(|| panic!("{name}: {told}")).clone()
}

/// Waits until a machine is silent, and why it is.
#[track_caller]
fn silent(server: &Server, name: &str) -> String {
    expect_soon("a silent machine", || machine(&told(server), name)["state"] == "silent");
    machine(&told(server), name)["error"].as_str().unwrap().to_owned()
}

fn peer(server: &Server, more: &str) -> String {
    format!("dashboard_peer https://localhost:{}/api/ {more};", server.port(1))
}

const GOOD: &str = "name=two user=me password_file=password trusted=ca.crt";

#[test]
fn machines_are_shown_added_up_and_one_that_is_silent_as_such() {
    let authority = Authority::new("ca");
    let two = other(&authority);
    let one = own(
        &authority,
        &format!("{} dashboard_peer http://127.0.0.1:1 name=gone;", peer(&two, GOOD)),
    );
    let Some(mut page) = Browser::start() else { return };
    page.open(&format!("http://127.0.0.1:{}/live/", one.port(0)));
    page.click("a[href='#machines']");
    page.until("document.querySelector('h2 small')?.innerText === '2 of 3 machines'");
    for _ in 0..3 {
        one.get("/");
    }
    for _ in 0..5 {
        two.get("/");
    }
    let shown =
        |what: &str| format!("[...document.querySelectorAll('tbody tr')].some(r => {what})");
    page.until(&shown("r.innerText.includes('gone') && r.innerText.includes('silent for')"));
    // What is silent is no zero.
    page.until(&shown("r.innerText.includes('gone') && [...r.children].slice(2, -1).every(c => c.innerText.trim() === '–')"));
    page.until("document.querySelector('[role=alert]')?.innerText.includes('cannot connect to 127.0.0.1:1')");
    let own = |told: &Value| told["machines"][0]["total"].as_u64();
    expect_soon("all requests", || {
        let told = told(&one);
        let two = machine(&told, "two")["total"].as_u64();
        two == Some(5)
            && own(&told).is_some_and(|n| n >= 3 && told["zones"]["shop"]["total"] == n + 5)
    });
    let told = told(&one);
    assert_eq!((&told["sum"]["answer"], &told["sum"]["machines"]), (&json!(2), &json!(3)));
    assert_eq!(told["zones"]["shop"]["machines"], 2);
    assert!(machine(&told, "gone").get("total").is_none(), "{told}");
    // Neither is the sum a machine's.
    assert!(told["sum"]["total"].as_u64() > machine(&told, "two")["total"].as_u64(), "{told}");
    assert_eq!(page.complaints(), Vec::<String>::new());
    let base = format!("http://127.0.0.1:{}/", one.port(0));
    assert!(page.asked().iter().all(|url| url.starts_with(&base) || url.starts_with("data:")));
}

#[test]
fn a_machine_by_two_names_counts_once() {
    let authority = Authority::new("ca");
    let two = other(&authority);
    let again = GOOD.replace("name=two", "name=again");
    let one = own(&authority, &format!("{} {}", peer(&two, GOOD), peer(&two, &again)));
    expect_soon("who is who", || {
        let told = told(&one);
        told["machines"].as_array().unwrap().last().unwrap()["name"] == "again (the same as two)"
    });
    let sum = &told(&one)["sum"];
    assert_eq!((&sum["answer"], &sum["machines"]), (&json!(2), &json!(2)));
}

/// Percentiles are of all requests of the while, not of the machines' percentiles.
#[test]
fn times_are_added_up_by_their_buckets() {
    let authority = Authority::new("ca");
    let two = other(&authority);
    let one = own(&authority, &peer(&two, GOOD));
    expect_soon("both", || told(&one)["sum"]["answer"] == 2);
    expect_soon("a while with many short and few long ones", || {
        for _ in 0..40 {
            one.get("/");
        }
        two.get("/late");
        let told = told(&one);
        let late = machine(&told, "two")["p50"].as_f64().unwrap_or(0.0);
        let sum = |name: &str| told["sum"][name].as_f64().unwrap_or(-1.0);
        late > 190.0 && (0.0..100.0).contains(&sum("p50")) && sum("p99") > 190.0
    });
}

/// A tree of small objects takes a hundred times its text.
#[test]
fn what_answers_too_much_is_not_read() {
    let much = format!("{{\"now_us\":1,\"x\":[{}0]}}", "{\"\":0},".repeat(2_000_000));
    let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n", much.len());
    let origin = Origin::replying(head + &much);
    let authority = Authority::new("ca");
    let one =
        own(&authority, &format!("dashboard_peer http://{}/api/ name=evil;", origin.address()));
    let before = one.memory_peak();
    assert!(silent(&one, "evil").contains("more than the figures of a server"));
    let more = one.memory_growth(before);
    assert!(more < 200_000_000, "{more}");
}

#[test]
fn who_is_not_verified_or_lets_nobody_in_is_silent() {
    let (authority, stranger) = (Authority::new("ca"), Authority::new("other"));
    let two = other(&authority);
    let by_number = format!("dashboard_peer https://127.0.0.1:{}/api/ name=number user=me password_file=password trusted=ca.crt;", two.port(1));
    let nothing = Origin::replying("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}");
    let peers = format!(
        "{} {by_number} {} dashboard_peer http://{} name=nothing;",
        peer(&two, "name=nobody trusted=ca.crt"),
        peer(&two, "name=wrong user=me password_file=wrong trusted=ca.crt"),
        nothing.address(),
    );
    let one = Setup::new(
        &"worker_processes 1; error_log error.log info; events {} http { server { listen 127.0.0.1:%%PORT_0%%;
            location /live/ { dashboard; PEERS }
            location /other/ { dashboard; dashboard_peer https://localhost:%%TWO%%/api/ name=strange user=me password_file=password trusted=other.crt; } } }"
            .replace("PEERS", &peers),
    )
    .set("TWO", two.port(1))
    .file("ca.crt", &authority.cert)
    .file("other.crt", &stranger.cert)
    .file("password", "secret\n")
    .file("wrong", "wrong\n")
    .start();
    // Nobody is asked before somebody looks.
    one.get("/live/about");
    assert_eq!(nothing.connections(), 0);
    assert!(silent(&one, "nobody").contains("(401)"));
    assert!(silent(&one, "wrong").contains("(401)"));
    assert!(silent(&one, "number").contains("does not match \"127.0.0.1\""));
    assert!(silent(&one, "nothing").contains("not the \"figures\" of an API of Weir"));
    expect_soon("a stranger", || {
        let told: Value = serde_json::from_str(&one.get("/other/machines").text()).unwrap();
        machine(&told, "strange")["error"]
            .as_str()
            .is_some_and(|e| e.contains("certificate verify error"))
    });
    assert_eq!(told(&one)["sum"]["answer"], 1);
}

#[test]
fn what_cannot_be_said() {
    for (said, why) in [
        ("dashboard; dashboard_peer web2;", "\"web2\" is no address of an API"),
        ("dashboard; dashboard_peer ftp://web2/;", "is no address of an API"),
        (
            "dashboard; dashboard_peer http://me:secret@web2/api/;",
            "name and password are user= and password_file=",
        ),
        ("dashboard; dashboard_peer http://web2/api/?x;", "is no address of an API"),
        (
            "dashboard; dashboard_peer https://web2/api/;",
            "no \"trusted=\" to verify the other server by",
        ),
        (
            "dashboard; dashboard_peer http://web2/ trusted=c;",
            "\"trusted=\" where the address has no TLS",
        ),
        ("dashboard; dashboard_peer https://web2/ trusted=none;", "none\") failed"),
        ("dashboard; dashboard_peer http://web2/ user=a;", "\"user=\" without \"password_file=\""),
        (
            "dashboard; dashboard_peer http://web2/ password_file=a;",
            "\"password_file=\" without \"user=\"",
        ),
        ("dashboard; dashboard_peer http://web2/ user=a password_file=none;", "none\" failed"),
        ("dashboard; dashboard_peer http://web2/ timeout=2m;", "an answer may take 1ms to 60s"),
        ("dashboard; dashboard_peer http://web2/ verify=off;", "invalid parameter \"verify=off\""),
        ("dashboard; dashboard_peer http://a/; dashboard_peer http://a/b;", "duplicate peer \"a\""),
        ("dashboard_peer http://web2/;", "no \"dashboard\" in this location"),
    ] {
        let conf = format!(
            "events {{}} http {{ server {{ listen 127.0.0.1:1; location / {{ {said} }} }} }}"
        );
        let out = run_cli(&["-t"], &conf);
        assert!(out.stderr.contains(why), "{said}: {}", out.stderr);
        assert_eq!(out.code, 1, "{said}");
    }
    let many: String = (0..33).map(|n| format!("dashboard_peer http://a{n}/; ")).collect();
    let conf = format!("events {{}} http {{ server {{ listen 127.0.0.1:1; location / {{ dashboard; {many} }} }} }}");
    let out = run_cli(&["-t"], &conf);
    assert!(out.stderr.contains("more than 32 peers of a dashboard"), "{}", out.stderr);
}

#[test]
fn a_dashboard_without_peers_has_no_machines() {
    let server = Server::start(
        "events {} http { server { listen 127.0.0.1:%%PORT_0%%; location /live/ { dashboard; } location /api/ { api; } } }",
    );
    assert_eq!(server.get("/live/machines").status, 404);
    assert!(!server.get("/live/about").text().contains("\"machines\""));
    // What others ask for.
    let figures: Value = serde_json::from_str(&server.get("/api/9/figures").text()).unwrap();
    assert!(figures["now_us"].is_u64() && figures["http"]["server_zones"].is_object(), "{figures}");
}
