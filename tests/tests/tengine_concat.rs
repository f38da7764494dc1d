//! Tengine's concat: several files in one answer.

use weir_tests::{Server, Setup};

const CONF: &str = r#"events {} http {
    types { application/javascript js; text/css css; text/html html; }
    server { listen 127.0.0.1:%%PORT_0%%; root %%DIR%%; error_log %%DIR%%/error.log;
    location /d/ { concat on; }
    location /off/ { alias %%DIR%%/d/; index a.js; }
    location /few/ { concat on; concat_max_files 2; alias %%DIR%%/d/; }
    location /mixed/ { concat on; concat_unique off; concat_types text/css text/html; alias %%DIR%%/d/; }
    location /apart/ { concat on; concat_delimiter "\n"; alias %%DIR%%/d/; }
    location /lax/ { concat on; concat_ignore_file_error on; concat_delimiter ";"; alias %%DIR%%/d/; }
    location /gzip/ { concat on; sub_filter big BIG; sub_filter_types *; sub_filter_once off; alias %%DIR%%/d/; }
} }"#;

fn start() -> Server {
    let big = "big ".repeat(50_000);
    let setup = Setup::new(CONF).file("d/a.js", "a").file("d/b.js", "bb").file("d/c.css", "c");
    let setup = setup.file("d/e.js", "").file("d/p.html", "p").file("d/big.js", &big);
    setup.file("secret.js", "s").start()
}

#[test]
fn files_stand_behind_one_another() {
    let server = start();
    for (path, expected) in [
        ("/d/??a.js,b.js", "abb"),
        ("/d/??a.js", "a"),
        ("/d/??a.js?v=1,b.js?x=2", "abb"),
        ("/d/??,a.js,,b.js,", "abb"),
        ("/d/??%61.js,b.js", "abb"),
        ("/d/??e.js,a.js", "a"),
        ("/off/??b.js", "a"),
        ("/few/??a.js,b.js", "abb"),
        ("/mixed/??a.js,c.css,p.html", "acp"),
        ("/apart/??a.js,b.js,a.js", "a\nbb\na"),
        ("/lax/??a.js,none.js,b.js", "a;bb"),
    ] {
        assert_eq!(server.get(path).text(), expected, "{path}");
    }
    let answer = server.get("/d/??a.js,b.js");
    assert_eq!(answer.header("Content-Type"), Some("application/javascript"));
    assert_eq!(answer.header("Content-Length"), Some("3"));
    assert!(answer.header("Last-Modified").is_some());
    assert_eq!(server.head("/d/??a.js,b.js").header("Content-Length"), Some("3"));
    assert_eq!(server.get("/d/??e.js").header("Content-Length"), Some("0"));
}

#[test]
fn what_is_not_to_be_had_is_refused() {
    let server = start();
    for (path, status) in [
        ("/d/??a.js,none.js", 404),
        ("/d/??a.js,c.css", 400),
        ("/d/??c.css", 200),
        ("/d/??p.html", 400),
        ("/few/??a.js,b.js,a.js", 400),
        ("/d/???v,a.js", 400),
        ("/d/??../secret.js", 400),
        ("/d/??%2e%2e/secret.js", 400),
        ("/d/??x/../../secret.js", 400),
        ("/d/??a.js%00", 400),
        ("/d/?a.js", 403),
    ] {
        assert_eq!(server.get(path).status, status, "{path}");
    }
    server.expect_error("client sent too many concat filenames");
    server.expect_error("client sent zero concat filename");
}

/// Of those not in memory, and through a filter that looks at the text.
#[test]
fn large_files_are_sent_whole() {
    let server = start();
    let answer = server.get("/d/??big.js,a.js,big.js");
    assert_eq!(answer.body.len(), 400_001);
    assert_eq!(&answer.body[199_996..200_005], b"big abig ");
    let answer = server.get("/gzip/??big.js,a.js,big.js");
    assert!(answer.body.len() == 400_001 && answer.text().starts_with("BIG BIG "));
    assert!(!answer.text().contains("big"));
}
