//! What becomes of an answer's head and body, the same in every family of backends.

use weir_tests::cgi::Asked;
use weir_tests::family::{Family, FAMILIES};
use weir_tests::{expect_soon, Origin, Server};

fn start(family: Family, origin: &Origin, http: &str, location: &str) -> Server {
    let conf = format!(
        "events {{}} http {{ {http} server {{ listen 127.0.0.1:%%PORT_0%%; error_page 418 /tea;
            location / {{ %%F%%_pass %%TO%%; %%PARAMS%% {location} }}
            location = /tea {{ return 200 tea; }} }} }}"
    );
    family.setup(&conf, origin).start()
}

/// Says the request's method, body and two of its fields.
fn echo(family: Family) -> Origin {
    family.origin(|asked, answer| {
        let of = |asked: &Asked, name| asked.param(name).unwrap_or("none").to_string();
        let body = String::from_utf8_lossy(&asked.body).into_owned();
        let text = format!("{} {} {body}", of(asked, "REQUEST_METHOD"), of(asked, "HTTP_X_A"));
        answer.reply("200 OK", "X-Hidden: 1\r\nX-Accel-Charset: koi8-r\r\nDate: never\r\n", &text);
    })
}

#[test]
fn fields_are_hidden_and_passed() {
    for family in FAMILIES {
        let origin = echo(family);
        let server =
            start(family, &origin, "", "%%F%%_hide_header X-Hidden; %%F%%_pass_header Date;");
        let r = server.get("/");
        assert_eq!((r.header("X-Hidden"), r.header("Date")), (None, Some("never")), "{family:?}");
        assert_eq!(r.header("X-Accel-Charset"), None, "{family:?}");
    }
}

#[test]
fn the_request_may_be_passed_without_its_fields_or_its_body() {
    for family in FAMILIES {
        let origin = echo(family);
        let server = start(
            family,
            &origin,
            "",
            "location /bare { %%F%%_pass %%TO%%;
                %%F%%_pass_request_headers off; %%F%%_pass_request_body off; %%LENGTH%% }"
                .replace("%%LENGTH%%", no_length(family))
                .as_str(),
        );
        let ask = |path: &str| {
            let text = format!(
                "POST {path} HTTP/1.1\r\nHost: a\r\nX-A: b\r\nConnection: close\r\nContent-Length: 4\r\n\r\nbody"
            );
            server.exchange("POST", text.as_bytes()).text()
        };
        assert_eq!(ask("/"), "POST b body", "{family:?}");
        assert_eq!(ask("/bare"), "POST none ", "{family:?}");
    }
}

/// The length of a body that is not passed on is not to be said either. (nginx says it to a SCGI
/// server all the same, which then waits for the body.)
fn no_length(family: Family) -> &'static str {
    match family {
        Family::Proxy => "proxy_set_header Content-Length \"\";",
        Family::Uwsgi => "uwsgi_param REQUEST_METHOD $request_method;",
        Family::Fastcgi | Family::Scgi => "%%PARAMS%%",
    }
}

#[test]
fn errors_of_the_server_may_be_intercepted() {
    for family in FAMILIES {
        let origin = family.origin(|_, answer| answer.reply("418 Teapot", "", "short and stout"));
        let off = start(family, &origin, "", "");
        assert_eq!(off.get("/").text(), "short and stout", "{family:?}");
        let on = start(family, &origin, "", "%%F%%_intercept_errors on;");
        let r = on.get("/");
        assert_eq!((r.status, r.text().as_str()), (418, "tea"), "{family:?}");
    }
}

#[test]
fn ranges_are_cut_out_of_any_answer_where_forced() {
    for family in FAMILIES {
        let origin = family.origin(|_, answer| answer.reply("200 OK", "", "0123456789"));
        let server = start(family, &origin, "", "%%F%%_force_ranges on;");
        let r = server.get_with("/", "Range: bytes=2-4\r\n");
        assert_eq!((r.status, r.text().as_str()), (206, "234"), "{family:?}");
    }
}

#[test]
fn control_fields_are_honoured_or_ignored() {
    for family in FAMILIES {
        let origin = family
            .origin(|_, answer| answer.reply("200 OK", "X-Accel-Redirect: /tea\r\n", "plain"));
        let heeded = start(family, &origin, "", "");
        assert_eq!(heeded.get("/").text(), "tea", "{family:?}");
        let ignored = start(family, &origin, "", "%%F%%_ignore_headers X-Accel-Redirect;");
        assert_eq!(ignored.get("/").text(), "plain", "{family:?}");
    }
}

#[test]
fn a_head_must_fit_into_its_buffer() {
    for family in FAMILIES {
        let origin = family.origin(|_, answer| {
            answer.reply("200 OK", &format!("X-Long: {}\r\n", "z".repeat(3000)), "ok");
        });
        let small = start(family, &origin, "", "%%F%%_buffer_size 1k;");
        assert_eq!(small.get("/").status, 502, "{family:?}");
        small.expect_error("upstream sent too big header");
        let large = start(family, &origin, "", "%%F%%_buffer_size 8k;");
        assert_eq!(large.get("/").text(), "ok", "{family:?}");
    }
}

const SIZE_BYTES: usize = 300_000;

#[test]
fn bodies_go_through_buffers_of_any_size_and_through_files() {
    let body: String = (0..SIZE_BYTES / 10).map(|n| format!("{n:09}\n")).collect();
    for family in FAMILIES {
        let sent = body.clone();
        let origin = family.origin(move |_, answer| answer.reply("200 OK", "", &sent));
        for how in [
            "%%F%%_buffering off;",
            "%%F%%_buffers 2 1k; %%F%%_buffer_size 1k; %%F%%_busy_buffers_size 1k;",
            "%%F%%_max_temp_file_size 0;",
            "%%F%%_max_temp_file_size 64k; %%F%%_temp_file_write_size 16k;",
            "%%F%%_temp_path %%DIR%%/spool 1; %%F%%_limit_rate 100m;",
        ] {
            let server = start(family, &origin, "", how);
            assert!(server.get("/").text() == body, "{family:?} {how}");
        }
    }
}

#[test]
fn a_limit_slows_the_reading_from_the_server() {
    for family in FAMILIES {
        let origin = family.origin(|_, answer| answer.reply("200 OK", "", &"z".repeat(60_000)));
        let server = start(
            family,
            &origin,
            "",
            "%%F%%_limit_rate 40k; %%F%%_buffer_size 4k; %%F%%_buffers 4 4k;",
        );
        let begun = std::time::Instant::now();
        assert_eq!(server.get("/").text().len(), 60_000, "{family:?}");
        assert!(begun.elapsed().as_millis() > 700, "{family:?}: {:?}", begun.elapsed());
    }
}

#[test]
fn answers_are_stored_as_files() {
    for family in FAMILIES {
        let origin = family.origin(|_, answer| {
            answer.reply("200 OK", "Last-Modified: Sun, 06 Nov 1994 08:49:37 GMT\r\n", "kept");
        });
        let server = start(
            family,
            &origin,
            "",
            "%%F%%_store %%DIR%%/store$uri; %%F%%_store_access user:rw group:r all:r; %%F%%_temp_path %%DIR%%/spool;",
        );
        assert_eq!(server.get("/a/b").text(), "kept", "{family:?}");
        expect_soon("the stored file", || server.read("store/a/b") == "kept");
        let meta = std::fs::metadata(server.dir().join("store/a/b")).unwrap();
        let mode = std::os::unix::fs::PermissionsExt::mode(&meta.permissions());
        assert_eq!(mode & 0o777, 0o644, "{family:?}");
        let modified = meta.modified().unwrap().duration_since(std::time::UNIX_EPOCH).unwrap();
        assert_eq!(modified.as_secs(), 784_111_777, "{family:?}");
    }
}
