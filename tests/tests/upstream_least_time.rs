//! `least_time`: the quicker server is asked.

use std::time::Duration;
use weir_tests::{Next, Origin, Setup};

/// Answers its name after so long, the head at once or with the body.
fn after(name: &'static str, wait: Duration, head_first: bool) -> Origin {
    Origin::start(move |_, conn| {
        let head = "HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\n";
        if head_first {
            conn.write(head);
        }
        std::thread::sleep(wait);
        if !head_first {
            conn.write(head);
        }
        conn.write(name);
        Next::Keep
    })
}

#[test]
fn the_one_that_answered_sooner_is_asked() {
    let slow = after("slow", Duration::from_millis(150), false);
    let late = after("late", Duration::from_millis(150), true);
    let quick = after("fast", Duration::ZERO, false);
    let server = Setup::new(
        "events {} http {
            upstream head { zone h 64k; least_time header; server %%SLOW%%; server %%QUICK%%; }
            upstream late { zone l 64k; least_time header; server %%LATE%%; server %%QUICK%%; }
            upstream last { zone b 64k; least_time last_byte inflight;
                server %%LATE%%; server %%QUICK%%; }
            server { listen 127.0.0.1:%%PORT_0%%;
                location /head { proxy_pass http://head; }
                location /late { proxy_pass http://late; }
                location /last { proxy_pass http://last; } } }",
    )
    .set("SLOW", slow.address())
    .set("LATE", late.address())
    .set("QUICK", quick.address())
    .start();
    let turns = |path: &str, count| -> Vec<String> {
        (0..count).map(|_| server.get(path).text()).collect()
    };
    let known = |path: &str| turns(path, 2);
    known("/head");
    assert_eq!(turns("/head", 5), ["fast"; 5]);
    known("/last");
    assert_eq!(turns("/last", 5), ["fast"; 5]);
    // Its head comes at once: it has its turns.
    assert!(turns("/late", 4).contains(&"late".to_string()));
}
