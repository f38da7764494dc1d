//! What a SCGI server answers to HEAD, and what is kept of it.

use weir_tests::{Next, Origin, Setup};

#[test]
fn an_answer_to_head_is_kept_only_with_its_body() {
    let origin = Origin::scgi(|asked, conn| {
        let head = asked.param("REQUEST_METHOD") == Some("HEAD");
        let short = asked.param("REQUEST_URI") == Some("/short");
        let body = if head && short { "" } else { "all of it" };
        conn.write(format!("Content-Length: 9\r\n\r\n{body}"));
        Next::Close
    });
    let server = Setup::new(
        "events {} http { scgi_cache_path %%DIR%%/c keys_zone=z:1m; server { listen 127.0.0.1:%%PORT_0%%;
            location / { scgi_pass %%ORIGIN%%; scgi_cache z; scgi_cache_key $uri; scgi_cache_valid 1h;
                         scgi_param REQUEST_METHOD $request_method; scgi_param REQUEST_URI $uri;
                         add_header X-C $upstream_cache_status; } } }",
    )
    .set("ORIGIN", origin.address())
    .start();
    for (path, then) in [("/short", "MISS"), ("/whole", "HIT")] {
        let head = server.request("HEAD", path, "");
        assert_eq!((head.status, head.text().as_str()), (200, ""), "{path}");
        let get = server.get(path);
        assert_eq!((get.text().as_str(), get.header("X-C")), ("all of it", Some(then)), "{path}");
    }
}
