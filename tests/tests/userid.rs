//! `userid`: cookies that name a browser.

use weir_tests::{Server, Setup};

fn start(how: &str) -> Server {
    let conf = format!(
        "events {{}} http {{ server {{ listen 127.0.0.1:%%PORT_0%%; {how}
            location / {{ add_header X-Got \"$uid_got\"; add_header X-Set \"$uid_set\"; add_header X-Reset \"$uid_reset\";
                return 200; }} }} }}"
    );
    Setup::new(&conf).start()
}

#[test]
fn a_browser_gets_a_cookie_once() {
    let server = start(
        "userid on; userid_name who; userid_domain a.example; userid_path /p; userid_expires 1d;
         userid_flags secure httponly samesite=strict; userid_p3p 'CP=\"X\"'; userid_service 9;",
    );
    let r = server.get("/");
    let cookie = r.header("Set-Cookie").unwrap_or_default().to_string();
    let (pair, attributes) = cookie.split_once("; ").expect("attributes");
    for part in ["expires=", "domain=a.example", "path=/p", "secure", "httponly", "samesite=strict"]
    {
        assert!(attributes.contains(part), "{part} in {attributes}");
    }
    assert_eq!(r.header("P3P"), Some("CP=\"X\""));
    let value = pair.strip_prefix("who=").expect("its name");
    assert_eq!(value.len(), 24, "{value}");
    // The first of four numbers is the service's.
    assert!(r.header("X-Set").unwrap_or_default().starts_with("who=09000000"), "{r:?}");
    let again = server.get_with("/", &format!("Cookie: {pair}\r\n"));
    assert_eq!((again.header("Set-Cookie"), again.header("X-Set")), (None, None));
    assert_eq!(again.header("X-Got"), r.header("X-Set"));
}

#[test]
fn a_mark_is_added_to_what_the_browser_has() {
    let plain = start("userid on;");
    let cookie = plain.get("/").header("Set-Cookie").unwrap_or_default().to_string();
    let pair = cookie.split("; ").next().unwrap_or_default().to_string();
    assert!(pair.starts_with("uid="), "{cookie}");
    let marked = start("userid on; userid_mark A;");
    let r = marked.get_with("/", &format!("Cookie: {pair}\r\n"));
    let new = r.header("Set-Cookie").expect("a marked cookie").split("; ").next().unwrap();
    let (body, end) = new.split_at(new.len() - 2);
    assert!(pair.starts_with(body) && end == "A=", "{pair} {new}");
}

#[test]
fn old_cookies_and_logging_alone() {
    let old = start("userid v1;");
    let cookie = old.get("/").header("Set-Cookie").unwrap_or_default().to_string();
    let pair = cookie.split("; ").next().unwrap_or_default().to_string();
    assert_eq!(pair.len(), "uid=".len() + 24, "{cookie}");
    let log = start("userid log;");
    let r = log.get_with("/", &format!("Cookie: {pair}\r\n"));
    let got = r.header("X-Got").unwrap_or_default();
    assert!(r.header("Set-Cookie").is_none() && got.starts_with("uid="), "{got}");
    let off = start("userid off;");
    assert_eq!(off.get("/").header("Set-Cookie"), None);
}
