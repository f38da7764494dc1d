//! `resolver`: names in variables.

use std::net::Ipv4Addr;
use std::time::Instant;
use weir_tests::{run_cli, wait_for, Dns, Next, Origin, Record, Server, Setup, PATIENCE};

const HOME: Ipv4Addr = Ipv4Addr::LOCALHOST;

fn origin() -> Origin {
    Origin::start(|_, conn| {
        conn.reply("200 OK", "", "here");
        Next::Keep
    })
}

/// A server that passes to whatever the path names, on the origin's port.
fn server(dns: &Dns, origin: &Origin, parameters: &str) -> Server {
    Setup::new(
        "events {} http { server { listen 127.0.0.1:%%PORT_0%%; error_log %%DIR%%/error.log info;
            resolver %%DNS%% %%MORE%%; resolver_timeout 1s; add_header X-Addr $upstream_addr always;
            location ~ ^/(.*) { proxy_pass http://$1:%%ORIGIN%%/; proxy_connect_timeout 200ms; } } }",
    )
    .set("DNS", dns.address())
    .set("MORE", parameters)
    .set("ORIGIN", origin.port())
    .start()
}

#[test]
fn resolver_caches_for_the_time_to_live() {
    let (dns, origin) = (Dns::start(), origin());
    dns.set_ip("a.test", 60, HOME);
    dns.set_ip("brief.test", 1, HOME);
    let server = server(&dns, &origin, "ipv6=off");
    for name in ["/a.test", "/A.test", "/a.test"] {
        assert_eq!(server.get(name).text(), "here");
    }
    assert_eq!(dns.queries(), ["a.test A"]);
    // Asked again once its second is over.
    let again = || {
        server.get("/brief.test");
        dns.count("brief.test A") == 2
    };
    assert!(wait_for(again, PATIENCE));
    server.get("/brief.test");
    assert_eq!(dns.count("brief.test A"), 2);
}

#[test]
fn resolver_valid_overrides_the_time_to_live() {
    let (dns, origin) = (Dns::start(), origin());
    dns.set_ip("a.test", 0, HOME);
    dns.set_ip("b.test", 3600, HOME);
    let server = server(&dns, &origin, "valid=1s ipv6=off");
    (0..3).for_each(|_| assert_eq!(server.get("/a.test").status, 200));
    assert_eq!(dns.count("a.test A"), 1);
    let again = || {
        server.get("/b.test");
        dns.count("b.test A") == 2
    };
    assert!(wait_for(again, PATIENCE));
}

#[test]
fn resolver_families_are_asked_as_configured() {
    let (dns, origin) = (Dns::start(), origin());
    let six = Record::Aaaa(60, "::1".parse().unwrap());
    dns.set("both.test", &[Record::A(60, [127, 0, 0, 1]), six.clone()]);
    let server = server(&dns, &origin, "ipv4=on ipv6=on");
    assert_eq!(server.get("/both.test").text(), "here");
    let mut queries = dns.queries();
    queries.sort();
    assert_eq!(queries, ["both.test A", "both.test AAAA"]);
    let only = self::server(&dns, &origin, "ipv4=off");
    let response = only.get("/both.test");
    assert_eq!(response.header("X-Addr"), Some(&*format!("[::1]:{}", origin.port())));
    assert_eq!(dns.count("both.test A"), 1);
}

#[test]
fn resolver_failures_are_502_and_say_why() {
    let (dns, origin) = (Dns::start(), origin());
    dns.set("failing.test", &[Record::Code(2)]);
    dns.set("empty.test", &[]);
    dns.set("silent.test", &[Record::Silence]);
    dns.set("id.test", &[Record::A(9, [127, 0, 0, 1]), Record::WrongId]);
    dns.set("name.test", &[Record::A(9, [127, 0, 0, 1]), Record::WrongName]);
    let server = server(&dns, &origin, "ipv6=off");
    for (name, why) in [
        ("none.test", "none.test could not be resolved (3: Host not found)"),
        ("failing.test", "failing.test could not be resolved (2: Server failure)"),
        ("empty.test", "empty.test could not be resolved (3: Host not found)"),
        ("silent.test", "silent.test could not be resolved (110: Operation timed out)"),
        ("id.test", "in DNS response for id.test, expect"),
        ("name.test", "unexpected DNS response for"),
        ("a..b", "a..b could not be resolved (3: Host not found)"),
    ] {
        assert_eq!(server.get(&format!("/{name}")).status, 502, "{name}");
        server.expect_error(why);
    }
    assert_eq!(origin.connections(), 0);
}

#[test]
fn resolver_follows_aliases_and_no_circles() {
    let (dns, origin) = (Dns::start(), origin());
    dns.set("a.test", &[Record::Cname(60, "b.test")]);
    dns.set("b.test", &[Record::Cname(60, "c.test")]);
    dns.set_ip("c.test", 60, HOME);
    dns.set("x.test", &[Record::Cname(60, "y.test")]);
    dns.set("y.test", &[Record::Cname(60, "x.test")]);
    let server = server(&dns, &origin, "ipv6=off");
    assert_eq!(server.get("/a.test").text(), "here");
    assert_eq!(server.get("/a.test").text(), "here");
    assert_eq!(dns.queries(), ["a.test A", "b.test A", "c.test A"]);
    assert_eq!(server.get("/x.test").status, 502);
}

#[test]
fn resolver_takes_long_answers_by_tcp() {
    let (dns, origin) = (Dns::start(), origin());
    dns.set("a.test", &[Record::A(60, [127, 0, 0, 1]), Record::Truncated]);
    let server = server(&dns, &origin, "ipv6=off");
    assert_eq!(server.get("/a.test").text(), "here");
    assert_eq!(dns.queries(), ["a.test A", "a.test A tcp"]);
}

#[test]
fn resolver_asks_once_for_all_who_wait() {
    let (dns, origin) = (Dns::start(), origin());
    dns.set("a.test", &[Record::Silence]);
    let server = server(&dns, &origin, "ipv6=off");
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| assert_eq!(server.get("/a.test").status, 502));
        }
    });
    assert_eq!(dns.queries(), ["a.test A"]);
}

#[test]
fn resolver_servers_take_turns() {
    let (one, two, origin) = (Dns::start(), Dns::start(), origin());
    for name in ["a.test", "b.test"] {
        one.set_ip(name, 60, HOME);
        two.set_ip(name, 60, HOME);
    }
    let server = server(&one, &origin, &format!("{} ipv6=off", two.address()));
    assert_eq!(server.get("/a.test").text() + &server.get("/b.test").text(), "herehere");
    assert_eq!((one.queries(), two.queries()), (vec!["a.test A".into()], vec!["b.test A".into()]));
}

/// Five seconds of silence lead to the next server.
#[test]
fn resolver_resends_to_the_next_server() {
    let (one, two, origin) = (Dns::start(), Dns::start(), origin());
    one.set("a.test", &[Record::Silence]);
    two.set_ip("a.test", 60, HOME);
    let server = Setup::new(
        "events {} http { resolver %%ONE%% %%TWO%% ipv6=off; resolver_timeout 9s;
            server { listen 127.0.0.1:%%PORT_0%%;
                location ~ ^/(.*) { proxy_pass http://$1:%%ORIGIN%%/; } } }",
    )
    .set("ONE", one.address())
    .set("TWO", two.address())
    .set("ORIGIN", origin.port())
    .start();
    let mut client = server.connect();
    client.send(b"GET /a.test HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
    assert!(wait_for(|| two.count("a.test A") == 1, PATIENCE * 2));
    assert_eq!(client.response().text(), "here");
}

#[test]
fn resolver_is_needed_for_names_in_variables() {
    let server = Server::start(
        "events {} http { server { listen 127.0.0.1:%%PORT_0%%; error_log %%DIR%%/error.log;
            location ~ ^/(.*) { proxy_pass http://$1/; } } }",
    );
    assert_eq!(server.get("/a.test").status, 502);
    server.expect_error("no resolver defined to resolve a.test");
}

#[test]
fn resolver_parameters_are_checked() {
    for (parameters, why) in [
        ("127.0.0.1 valid=x", "invalid parameter: valid=x"),
        ("127.0.0.1 ipv4=maybe", "invalid parameter: ipv4=maybe"),
        ("127.0.0.1 ipv4=off ipv6=off", "\"ipv4\" and \"ipv6\" cannot both be \"off\""),
        ("127.0.0.1:99999", "invalid port in resolver \"127.0.0.1:99999\""),
        ("valid=1s", "no name servers defined"),
    ] {
        let conf = format!("events {{}} http {{ resolver {parameters}; }}");
        let out = run_cli(&["-t"], &conf);
        assert!(out.code == 1 && out.stderr.contains(why), "{parameters}: {}", out.stderr);
    }
}

#[test]
fn resolver_shares_an_answer_without_time_to_live_within_its_second() {
    let (dns, origin) = (Dns::start(), origin());
    dns.set_ip("a.test", 0, HOME);
    let server = server(&dns, &origin, "ipv6=off");
    let begin = Instant::now();
    (0..40).for_each(|_| assert_eq!(server.get("/a.test").status, 200));
    // One for each second that has begun, however slow the machine is.
    let most = begin.elapsed().as_secs() as usize + 2;
    let asked = dns.count("a.test A");
    assert!((1..=most).contains(&asked), "{asked} queries of at most {most}");
    let again = || {
        server.get("/a.test");
        dns.count("a.test A") > asked
    };
    assert!(wait_for(again, PATIENCE), "and no longer than that");
}

/// What the system says of a closed port counts at once: silence would be waited for, five seconds.
#[test]
fn resolver_that_refuses_is_passed_over() {
    let (dns, origin) = (Dns::start(), origin());
    let server = Setup::new(
        "events {} http { server { listen 127.0.0.1:%%PORT_0%%; error_log %%DIR%%/error.log info;
            resolver 127.0.0.1:%%PORT_1%% %%DNS%%; resolver_timeout 20s;
            location ~ ^/(.*) { proxy_pass http://$1:%%ORIGIN%%/; } } }",
    )
    .set("DNS", dns.address())
    .set("ORIGIN", origin.port())
    .start();
    for name in ["a.test", "b.test"] {
        dns.set_ip(name, 60, HOME);
    }
    let start = Instant::now();
    assert_eq!(server.get("/a.test").text(), "here");
    assert_eq!(server.get("/b.test").text(), "here");
    assert!(start.elapsed().as_millis() < 4000, "{:?}", start.elapsed());
    server
        .expect_error("() failed (111: Connection refused) while resolving, resolver: 127.0.0.1:");
}
