//! A syslog server that goes away and comes back.

use std::net::UdpSocket;
use std::os::unix::net::UnixDatagram;
use std::time::Duration;
use weir_tests::{Server, Setup};

const CONF: &str = "events {} error_log %%DIR%%/error.log warn; http { log_format f '$uri';
    server { listen 127.0.0.1:%%PORT_0%%;
        location /u { access_log syslog:server=127.0.0.1:%%UDP%%,nohostname f; return 200 x; }
        location /x { access_log syslog:server=unix:%%DIR%%/s,nohostname f; return 200 x; }
        location /e { access_log off; error_log syslog:server=unix:%%DIR%%/s,nohostname; deny all; } } }";

fn start(udp: u16) -> Server {
    Setup::new(CONF).set("UDP", udp).start()
}

#[test]
fn udp_that_is_refused_is_told_of() {
    let syslog = UdpSocket::bind("127.0.0.1:0").unwrap();
    syslog.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
    let udp = syslog.local_addr().unwrap().port();
    let server = start(udp);
    let mut line = [0; 999];
    server.get("/u1");
    let n = syslog.recv(&mut line).unwrap();
    assert!(line[..n].ends_with(b" nginx: /u1"));
    drop(syslog);
    let text = format!(
        ": send() failed (111: Connection refused) while logging to syslog, server: 127.0.0.1:{udp}\n"
    );
    weir_tests::expect_soon("the refusal is told", || {
        server.get("/u2");
        server.error_log().contains(&text)
    });
    server.expect_error(
        " send() to syslog failed while logging request, client: 127.0.0.1, server: , \
         request: \"GET /u2",
    );
}

#[test]
fn a_socket_that_has_gone_is_told_of_and_found_again() {
    let server = start(9);
    let path = server.dir().join("s");
    let syslog = UnixDatagram::bind(&path).unwrap();
    server.get("/x1");
    drop(syslog);
    server.get("/x2");
    let name = format!("while logging to syslog, server: unix:{}\n", path.display());
    server.expect_error(&format!(" send() failed (111: Connection refused) {name}"));
    std::fs::remove_file(&path).unwrap();
    server.get("/x3");
    server.expect_error(&format!(" connect() failed (2: No such file or directory) {name}"));
    assert!(server.error_log().contains(" [alert] "));
    // A line of an error log that is lost is told of too, without a line about the request.
    let before = server.error_log().matches("connect() failed").count();
    server.get("/e");
    assert_eq!(server.error_log().matches("connect() failed").count(), before + 1);
    let lost = server.error_log().matches("send() to syslog failed while logging request").count();
    assert_eq!(lost, 2);

    let syslog = UnixDatagram::bind(&path).unwrap();
    syslog.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
    server.get("/x4");
    let mut line = [0; 999];
    let n = syslog.recv(&mut line).unwrap();
    assert!(line[..n].ends_with(b" nginx: /x4"));
}
