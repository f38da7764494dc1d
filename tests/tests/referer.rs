//! `valid_referers`: which pages may lead here.

use weir_tests::Setup;

#[test]
fn referers_are_valid_or_not() {
    let server = Setup::new(
        "events {} http { server { listen 127.0.0.1:%%PORT_0%%; server_name own.example;
            referer_hash_max_size 2048; referer_hash_bucket_size 64;
            location / { valid_referers none blocked server_names *.wild.example www.tail.* one.example/path ~\\.re\\.;
                return 200 \"[$invalid_referer]\"; }
            location /some { valid_referers one.example; return 200 \"[$invalid_referer]\"; } } }",
    )
    .start();
    let ask = |path: &str, referer: &str| {
        let line =
            if referer.is_empty() { String::new() } else { format!("Referer: {referer}\r\n") };
        server.get_with(path, &line).text()
    };
    for good in [
        "",
        "-",
        "http://own.example/",
        "http://OWN.example:8080/x",
        "https://a.wild.example/",
        "http://www.tail.org/x",
        "http://one.example/path/more",
        "http://x.re.y/",
    ] {
        assert_eq!(ask("/", good), "[]", "{good}");
    }
    for bad in ["http://other.example/", "http://wild.example.org/", "http://one.example/other"] {
        assert_eq!(ask("/", bad), "[1]", "{bad}");
    }
    assert_eq!(ask("/some", ""), "[1]");
    assert_eq!(ask("/some", "hidden"), "[1]");
    assert_eq!(ask("/some", "http://one.example/"), "[]");
}
