//! The harness itself: placeholders, files, pipelining, an origin.

use weir_tests::{Origin, Server, Setup};

#[test]
fn a_server_answers_and_its_files_are_read() {
    let server =
        Setup::new("events {} http { server { listen 127.0.0.1:%%PORT_0%%; root %%DIR%%/html; } }")
            .file("html/a.txt", "hello")
            .start();
    let response = server.get("/a.txt");
    assert_eq!((response.status, response.text().as_str()), (200, "hello"));
    let mut client = server.connect();
    client.send_get("/a.txt");
    client.send_get("/none");
    assert_eq!(client.response().text(), "hello");
    assert_eq!(client.response().status, 404);
}

#[test]
fn an_origin_echoes() {
    let origin = Origin::echo();
    let server = Setup::new(
        "events {} http { server { listen 127.0.0.1:%%PORT_0%%;
            location / { proxy_pass http://%%ORIGIN%%; } } }",
    )
    .set("ORIGIN", origin.address())
    .start();
    assert!(server.post("/x", "body").text().ends_with("\r\n\r\nbody"));
    assert_eq!(origin.only_request().line(), "POST /x HTTP/1.1");
}

#[test]
fn two_servers_do_not_meet() {
    let conf =
        "events {} http { server { listen 127.0.0.1:%%PORT_0%%; return 200 $server_port; } }";
    let (a, b) = (Server::start(conf), Server::start(conf));
    assert_ne!(a.get("/").text(), b.get("/").text());
}

#[test]
fn an_interrupted_read_is_no_end() {
    struct Stopped(u32);
    impl std::io::Read for Stopped {
        fn read(&mut self, buf: &mut [u8]) -> std::io::Result<usize> {
            self.0 += 1;
            match self.0 {
                1 | 2 => Err(std::io::ErrorKind::Interrupted.into()),
                _ => std::io::Read::read(&mut &b"more"[..], buf),
            }
        }
    }
    assert_eq!(weir_tests::read(&mut Stopped(0), &mut [0; 16]).unwrap(), 4);
}

#[test]
fn tools_are_found_and_run_to_their_end() {
    let cat = weir_tests::tools::find("cat").expect("cat is everywhere");
    assert_eq!(cat.run_with(&["-"], b"through").stdout, "through");
    assert!(weir_tests::tools::find("no-such-tool").is_none());
    let said = cat.run(&["no-such-file"]);
    assert!(said.code == 1 && said.stderr.contains("no-such-file"), "{said:?}");
}
