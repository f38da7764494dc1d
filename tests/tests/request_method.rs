//! $request_method in subrequests.

use weir_tests::{Origin, Setup};

/// It is the client's there too, whatever the subrequest's own is.
#[test]
fn subrequests_tell_of_the_clients_method() {
    let origin = Origin::echo();
    let server = Setup::new(
        "events {} http { server { listen 127.0.0.1:%%PORT_0%%; root %%DIR%%;
            location /asks { auth_request /auth; add_header X-Answered yes always; }
            location /auth { proxy_pass http://127.0.0.1:%%ORIGIN%%; proxy_pass_request_body off;
                proxy_set_header Content-Length ''; proxy_set_header X-Method $request_method; }
            location /lost { error_page 404 /page; return 404; }
            location /page { add_header X-Method $request_method always; return 200 page; }
        } }",
    )
    .set("ORIGIN", origin.port())
    .start();
    for method in ["GET", "POST", "DELETE", "FROB"] {
        server.request(method, "/asks", "");
        let asked = origin.requests().pop().unwrap();
        assert_eq!((asked.method(), asked.header("X-Method")), ("GET", Some(method)));
    }
    // What an error page is made by is another matter.
    assert_eq!(server.request("POST", "/lost", "").header("X-Method"), Some("GET"));
}
