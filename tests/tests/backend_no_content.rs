//! A server's 204 keeps the type that the server has given it.

use weir_tests::family::FAMILIES;
use weir_tests::h2::H2;

#[test]
fn a_204_keeps_the_servers_content_type() {
    for family in FAMILIES {
        let origin = family.origin(|_, answer| {
            answer.reply("204 No Content", "Content-Type: text/x; charset=a\r\nX-A: b\r\n", "");
        });
        let server = family
            .setup(
                "events {} http { log_format f '$sent_http_content_type';
                    access_log %%DIR%%/a.log f; default_type text/own;
                    server { listen 127.0.0.1:%%PORT_0%%; http2 on; %%PARAMS%%
                        location / { %%F%%_pass %%TO%%; }
                        location /own { return 204; } } }",
                &origin,
            )
            .start();
        let mut client = server.connect();
        for (path, wanted) in [("/", Some("text/x; charset=a")), ("/own", None)] {
            let response = client.get(path);
            assert_eq!((response.status, response.header("Content-Type")), (204, wanted), "{path}");
            let answer = H2::connect(&server).fetch(path);
            assert_eq!((answer.status, answer.header("content-type")), (204, None), "{path}");
        }
        let wanted = ["text/x; charset=a", "-", "-", "-"];
        assert_eq!(server.log_lines("a.log", 4), wanted, "{family:?}");
    }
}
