//! What checks have found out of servers is known to the process that takes another's place, before it serves.

use crate::figures_kept::left;
use crate::upgrade_busy::next_pid;
use weir_tests::{children, expect_soon, signal, skip, Origin, Server, Setup, Signal};

/// One that asks at once and then not for an hour: what is shown later was known before.
const CONF: &str = "daemon on; pid %%DIR%%/the.pid; error_log %%DIR%%/error.log info; %%MAIN%%
    events {} http { access_log off;
    upstream u { server %%ORIGIN%%; server 127.0.0.1:%%PORT_1%%;
        check interval=3600000 rise=1 fall=1 default_down=true type=tcp; }
    server { listen 127.0.0.1:%%PORT_0%%; location / { proxy_pass http://u; }
        location /csv { check_status csv; } location /pid { return 200 $pid; } } }";

fn start(main: &str) -> (Server, Origin) {
    let origin = Origin::replying("HTTP/1.0 200 OK\r\n\r\nserved");
    let server = Setup::new(CONF).set("MAIN", main).set("ORIGIN", origin.address()).start();
    expect_soon("both are known", || {
        let text = server.get("/csv").text();
        text.contains(",up,1,0,") && text.contains(",down,0,1,")
    });
    (server, origin)
}

#[test]
fn a_new_program_asks_who_is_known_to_be_well() {
    if weir_tests::binary().ends_with("nginx") {
        return skip("nginx has no checks");
    }
    for main in ["", "master_process off;"] {
        let (mut server, origin) = start(main);
        let old = server.pid();
        if main.is_empty() && !server.children().is_empty() {
            expect_soon("the master has it", || left(old).contains(" x75 x"));
        }
        let known = server.get("/csv").text();
        signal(old, Signal::Usr2);
        let new = next_pid(&server, old);
        let mut seen = 0;
        expect_soon("the new one answers", || {
            assert_eq!(server.get("/").text(), "served");
            let pid = server.get("/pid").text().parse().unwrap_or(0);
            seen += usize::from(pid == new || children(new).contains(&pid));
            seen > 5
        });
        server.signal(Signal::Quit);
        assert_eq!(server.wait_exit(), Some(0));
        assert_eq!(server.get("/csv").text(), known, "{main}");
        drop(origin);
        signal(new, Signal::Term);
        expect_soon("the new one is gone", || !server.dir().join("the.pid").exists());
    }
}

#[test]
fn so_does_one_that_is_started_for_one_that_died() {
    let (server, _origin) = start("master_process on;");
    let [child] = server.children()[..] else { return skip("no master") };
    expect_soon("the master has it", || left(server.pid()).contains(" x75 x"));
    let known = server.get("/csv").text();
    signal(child, Signal::Kill);
    expect_soon("another one serves", || {
        server.children().first().is_some_and(|pid| *pid != child)
            && std::net::TcpStream::connect(("127.0.0.1", server.port(0))).is_ok()
    });
    assert_eq!(server.get("/csv").text(), known);
}
