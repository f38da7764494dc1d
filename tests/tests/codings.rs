//! brotli and zstd beside gzip: who gets which, and that it is the text. (These modules are not nginx's own.)

use std::io::{Read, Write};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::Arc;
use std::time::Duration;
use weir_tests::{run_cli, tools, wait_for, Client, Next, Origin, Response, Server, Setup};

/// What can be read of a text, which may not have ended.
fn unpacked(coding: &str, packed: &[u8], dictionary: &[u8]) -> String {
    let mut text = Vec::new();
    match coding {
        "br" => {
            let mut writer = brotli::DecompressorWriter::new(&mut text, 4096);
            let _ = writer.write_all(packed);
            let _ = writer.flush();
        }
        "zstd" => {
            let mut context = zstd_safe::DCtx::create();
            context.load_dictionary(dictionary).unwrap();
            let mut input = zstd_safe::InBuffer::around(packed);
            loop {
                let had = text.len();
                text.reserve(1 << 20);
                let mut output = zstd_safe::OutBuffer::around_pos(&mut text, had);
                context.decompress_stream(&mut output, &mut input).unwrap();
                if text.len() == had {
                    break;
                }
            }
        }
        "gzip" => {
            let _ = flate2::read::GzDecoder::new(packed).read_to_end(&mut text);
        }
        other => panic!("no coding {other}"),
    }
    String::from_utf8(text).unwrap()
}

fn coding(response: &Response) -> &str {
    response.header("Content-Encoding").unwrap_or("")
}

fn text() -> String {
    (0..2000).map(|n| format!("{n} words, ")).collect()
}

fn start() -> Server {
    Setup::new(
        "events {} http { types { text/html html; text/plain txt; image/png png; }
            log_format ratios '$brotli_ratio $zstd_ratio';
            gzip_vary on; zstd_buffers 32 4k; brotli_buffers 16 8k;
            server { listen 127.0.0.1:%%PORT_0%%; root %%DIR%%/html; access_log ratios.log ratios;
            location /br/ { brotli on; alias %%DIR%%/html/; }
            location /zstd/ { zstd on; alias %%DIR%%/html/; }
            location /all/ { brotli on; zstd on; gzip on; brotli_types text/plain; alias %%DIR%%/html/; }
            location /two/ { zstd on; gzip on; gzip_types text/plain; alias %%DIR%%/html/; }
            location /high/ { brotli on; brotli_comp_level 11; brotli_window 16m; zstd on;
                zstd_comp_level 22; alias %%DIR%%/html/; }
            location /low/ { brotli on; brotli_comp_level 0; brotli_window 1k; zstd on;
                zstd_comp_level -5; alias %%DIR%%/html/; }
            location /long/ { brotli on; brotli_min_length 50000; zstd on; zstd_min_length 5000;
                alias %%DIR%%/html/; }
            location /types/ { brotli on; brotli_types image/png; zstd on; zstd_types *;
                alias %%DIR%%/html/; }
            location /if/ { alias %%DIR%%/html/; if ($arg_b) { brotli on; } }
        } }",
    )
    .file("html/a.html", text())
    .file("html/a.txt", text())
    .file("html/a.png", text())
    .file("html/tiny.html", "tiny")
    .start()
}

#[test]
fn the_best_for_the_client_of_those_that_are_on() {
    let server = start();
    for (path, accept, expected) in [
        ("/br/a.html", "br", "br"),
        ("/br/a.html", "gzip, BR", "br"),
        ("/br/a.html", "gzip, zstd", ""),
        ("/br/a.html", "br;q=0", ""),
        ("/br/a.html", "br;q=0.000, gzip", ""),
        ("/br/a.html", "xbr, brx", ""),
        ("/br/a.html", "*", "br"),
        ("/br/a.html", "*;q=0", ""),
        ("/br/a.html", "*;q=0.5, br;q=0", ""),
        ("/br/a.html", "", ""),
        ("/br/tiny.html", "br", ""),
        ("/br/a.txt", "br", ""),
        ("/zstd/a.html", "zstd", "zstd"),
        ("/zstd/a.html", "br, zstd;q=0.1", "zstd"),
        ("/zstd/a.html", "zstd;q=0", ""),
        ("/zstd/a.txt", "zstd", ""),
        ("/all/a.html", "gzip, deflate, br, zstd", "br"),
        ("/all/a.html", "gzip;q=0.9, br;q=0.9, zstd;q=0.9", "br"),
        ("/all/a.html", "gzip, zstd", "zstd"),
        ("/all/a.html", "gzip", "gzip"),
        ("/all/a.html", "gzip;q=1.0, br;q=0.5, zstd;q=0.7", "gzip"),
        ("/all/a.html", "gzip;q=0.5, br;q=0.5, zstd;q=0.7", "zstd"),
        ("/all/a.html", "br;q=0, *;q=0.2", "zstd"),
        ("/all/a.html", "gzip;q=0.001, *;q=0", "gzip"),
        // Only brotli is for this type.
        ("/all/a.txt", "gzip, zstd, br;q=0.1", "br"),
        ("/two/a.txt", "zstd, gzip;q=0.1", "gzip"),
        ("/long/a.html", "br, zstd", "zstd"),
        ("/types/a.png", "br;q=0.5, zstd;q=0.1", "br"),
        ("/types/a.txt", "br, zstd", "zstd"),
        ("/high/a.html", "br", "br"),
        ("/high/a.html", "zstd", "zstd"),
        ("/low/a.html", "br", "br"),
        ("/low/a.html", "zstd", "zstd"),
        ("/if/a.html?b=1", "br", "br"),
        ("/if/a.html", "br", ""),
    ] {
        let accept = match accept {
            "" => String::new(),
            some => format!("Accept-Encoding: {some}\r\n"),
        };
        let response = server.get_with(path, &accept);
        assert_eq!(coding(&response), expected, "{path} {accept}");
        let has_tiny = path.contains("tiny");
        let body = match expected {
            "" => response.text(),
            coding => unpacked(coding, &response.body, b""),
        };
        assert!(has_tiny || body == text(), "{path} {accept}");
    }
}

#[test]
fn a_kept_form_has_a_length_and_a_weak_tag() {
    let server = start();
    for (path, accept) in [("/br/a.html", "br"), ("/zstd/a.html", "zstd")] {
        for _ in 0..3 {
            let response = server.get_with(path, &format!("Accept-Encoding: {accept}\r\n"));
            assert_eq!(coding(&response), accept);
            assert_eq!(response.content_length(), Some(response.body.len()));
            assert!(response.body.len() < text().len() * 2 / 3);
            assert!(response.header("ETag").is_some_and(|tag| tag.starts_with("W/\"")));
            assert_eq!(response.header("Accept-Ranges"), None);
            assert_eq!(response.header("Vary"), Some("Accept-Encoding"));
        }
        assert_eq!(server.get(path).header("Vary"), Some("Accept-Encoding"));
        let head = server.request("HEAD", path, &format!("Accept-Encoding: {accept}\r\n"));
        assert!(head.header("ETag").is_some());
    }
    let lines = server.log_lines("ratios.log", 10);
    let is_ratio = |text: &str, places: usize| {
        let parts = text.split_once('.');
        parts.is_some_and(|(whole, part)| whole.parse::<u32>().is_ok() && part.len() == places)
    };
    let (br, zstd) = (lines[0].split_once(' ').unwrap(), lines[5].split_once(' ').unwrap());
    assert!(is_ratio(br.0, 2) && br.1 == "-", "{lines:?}");
    assert!(is_ratio(zstd.1, 3) && zstd.0 == "-", "{lines:?}");
}

#[test]
fn ready_made_files_of_several_codings() {
    let server = Setup::new(
        "events {} http { types { text/html html; } gzip_vary on;
            server { listen 127.0.0.1:%%PORT_0%%; root %%DIR%%/html;
            brotli_static on; zstd_static on; gzip_static on; brotli on; gzip on; brotli_min_length 1;
            location /br/ { zstd_static off; gzip_static off; alias %%DIR%%/html/; }
            location /always/ { zstd_static always; gzip_static off; alias %%DIR%%/html/; }
        } }",
    )
    .file("html/a.html", "plain")
    .file("html/a.html.br", "as br")
    .file("html/a.html.gz", "as gzip")
    .file("html/a.html.zst", "as zstd")
    .file("html/b.html", "plain")
    .file("html/b.html.gz", "as gzip")
    .file("html/c.html", "plain")
    .start();
    for (path, accept, expected) in [
        ("/a.html", "br, gzip, zstd", "as br"),
        ("/a.html", "br;q=0.5, gzip, zstd", "as zstd"),
        ("/a.html", "br;q=0, gzip, zstd;q=0.9", "as gzip"),
        ("/a.html", "identity", "plain"),
        ("/b.html", "br, gzip;q=0.1, zstd", "as gzip"),
        ("/b.html", "br;q=0.2, zstd", "plain"),
        ("/br/a.html", "gzip, zstd", "plain"),
        ("/br/a.html", "br", "as br"),
        ("/always/a.html", "br", "as zstd"),
        ("/always/a.html", "identity", "as zstd"),
    ] {
        let response = server.get_with(path, &format!("Accept-Encoding: {accept}\r\n"));
        let shown = match (expected, coding(&response)) {
            ("plain", "br") => unpacked("br", &response.body, b""),
            _ => response.text(),
        };
        assert_eq!(shown, expected, "{path} {accept}");
        if expected != "plain" {
            assert_eq!(coding(&response), expected.trim_start_matches("as "), "{path} {accept}");
            assert_eq!(response.header("Content-Type"), Some("text/html"));
            let not_always = !path.starts_with("/always");
            assert_eq!(response.header("Vary").is_some(), not_always, "{path} {accept}");
        }
    }
    assert_eq!(server.get("/a.html").header("Vary"), Some("Accept-Encoding"));
}

const EVENTS: [&str; 3] = ["data: one\n\n", "data: two\n\n", "data: three\n\n"];

#[test]
fn events_come_one_by_one() {
    for coding in ["br", "zstd"] {
        let arrived = Arc::new(AtomicUsize::new(0));
        let seen = Arc::clone(&arrived);
        let origin = Origin::start_raw(move |conn, _| {
            conn.read_until(b"\r\n\r\n");
            conn.write(
                "HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nTransfer-Encoding: chunked\r\n\r\n",
            );
            for (n, event) in EVENTS.iter().enumerate() {
                conn.write(format!("{:x}\r\n{event}\r\n", event.len()));
                wait_for(|| seen.load(Ordering::SeqCst) > n, Duration::from_secs(60));
            }
            conn.write("0\r\n\r\n");
        });
        let server = Setup::new(
            "events {} http { brotli on; zstd on; server { listen 127.0.0.1:%%PORT_0%%;
                location / { proxy_pass http://%%O%%; proxy_http_version 1.1; } } }",
        )
        .set("O", origin.address())
        .start();
        let mut client = server.connect();
        client.send(
            format!("GET / HTTP/1.1\r\nHost: a\r\nAccept-Encoding: {coding}\r\n\r\n").as_bytes(),
        );
        let head = client.read_until(b"\r\n\r\n");
        assert!(String::from_utf8_lossy(&head).contains(&format!("Content-Encoding: {coding}")));
        let (mut got, mut expected) = (Vec::new(), String::new());
        for event in EVENTS {
            expected += event;
            while unpacked(coding, &got, b"") != expected {
                chunk(&mut client, &mut got);
            }
            arrived.fetch_add(1, Ordering::SeqCst);
        }
    }
}

/// Reads a chunk's text.
fn chunk(client: &mut Client, into: &mut Vec<u8>) {
    let line = client.read_until(b"\r\n");
    let length = std::str::from_utf8(&line).unwrap().trim();
    let length = usize::from_str_radix(length, 16).unwrap();
    assert!(length > 0, "the answer ended before all had come");
    into.extend(client.read_exactly(length).unwrap());
    client.read_until(b"\r\n");
}

/// One worker; the answer is kept, and compressing it takes a while.
#[test]
fn others_are_served_while_an_answer_is_compressed() {
    let text: String = (0..20_000).map(|n| format!("{} words, ", n * 7919 % 65_537)).collect();
    for (conf, coding) in [
        ("brotli on; brotli_comp_level 9; brotli_types text/plain;", "br"),
        ("zstd on; zstd_comp_level 19; zstd_types text/plain;", "zstd"),
    ] {
        let body = text.clone();
        let origin = Origin::start(move |_, conn| {
            conn.reply(
                "200 OK",
                "Cache-Control: max-age=99\r\nContent-Type: text/plain\r\n",
                &body,
            );
            Next::Close
        });
        let server = Setup::new(&format!(
            "worker_processes 1; events {{}} http {{ proxy_cache_path %%DIR%%/cache keys_zone=c:1m; {conf}
                server {{ listen 127.0.0.1:%%PORT_0%%;
                location / {{ proxy_pass http://%%ORIGIN%%; proxy_cache c; }}
                location /passed {{ proxy_pass http://%%ORIGIN%%; }}
                location /small {{ proxy_pass http://%%ORIGIN%%; proxy_buffer_size 1k; proxy_buffers 4 1k;
                    proxy_busy_buffers_size 2k; }}
                location /each {{ proxy_pass http://%%ORIGIN%%; proxy_buffering off; }}
                location /quick {{ return 200 quick; }} }} }}"
        ))
        .set("ORIGIN", origin.address())
        .start();
        assert_eq!(server.get("/").text(), text, "kept, and not compressed yet");
        let (mut slow, mut quick) = (server.connect(), server.connect());
        assert_eq!(quick.get("/quick").text(), "quick");
        let get =
            |path| format!("GET {path} HTTP/1.1\r\nHost: a\r\nAccept-Encoding: {coding}\r\n\r\n");
        slow.send(get("/").as_bytes());
        assert_eq!(quick.get("/quick").text(), "quick");
        assert!(slow.is_silent(Duration::from_millis(1)), "the answer came first");
        let answer = slow.response();
        assert_eq!(answer.content_length(), Some(answer.body.len()));
        assert_eq!(unpacked(coding, &answer.body, b""), text);
        // And as it comes from the server.
        for path in ["/passed", "/small", "/each", "/passed"] {
            slow.send(get(path).as_bytes());
            assert_eq!(unpacked(coding, &slow.response().body, b""), text);
        }
    }
}

#[test]
fn a_dictionary_that_both_sides_have() {
    let dictionary = text();
    let server = Setup::new(
        "events {} http { zstd_dict_file dict; zstd on; zstd_min_length 1;
            server { listen 127.0.0.1:%%PORT_0%%; root %%DIR%%/html;
            location / { types { text/html html; } } } }",
    )
    .file("dict", &dictionary)
    .file("html/a.html", &dictionary[..5000])
    .start();
    for _ in 0..2 {
        let response = server.get_with("/a.html", "Accept-Encoding: zstd\r\n");
        assert_eq!(coding(&response), "zstd");
        assert!(response.body.len() < 200, "{} bytes", response.body.len());
        assert_eq!(unpacked("zstd", &response.body, dictionary.as_bytes()), dictionary[..5000]);
    }
}

#[test]
fn what_curl_makes_of_it() {
    let Some(curl) = tools::need("curl") else { return };
    let server = start();
    let known = curl.run(&["--version"]).stdout;
    for (coding, path) in [("br", "br"), ("zstd", "zstd"), ("br", "high"), ("zstd", "low")] {
        let feature = if coding == "br" { "brotli" } else { "zstd" };
        if !known.contains(feature) {
            return tools::skip("this curl has neither");
        }
        let url = format!("http://127.0.0.1:{}/{path}/a.html", server.port(0));
        let said =
            curl.run(&["-sS", "--compressed", "-H", &format!("Accept-Encoding: {coding}"), &url]);
        assert_eq!((said.code, said.stdout == text()), (0, true), "{path} {}", said.stderr);
    }
}

#[test]
fn what_is_refused() {
    for (directive, message) in [
        ("brotli_comp_level 12", "value must be between 0 and 11"),
        ("brotli_comp_level x", "invalid number"),
        ("brotli_window 3k", "must be 1k, 2k, 4k"),
        ("brotli_window 32m", "must be 1k, 2k, 4k"),
        ("brotli_static maybe", "invalid value \"maybe\""),
        ("zstd_comp_level 0", "must between -131072 and 22"),
        ("zstd_comp_level 23", "must between -131072 and 22"),
        ("zstd_comp_level -", "invalid number"),
        ("zstd_buffers 4", "invalid number of arguments"),
        ("zstd_static", "invalid number of arguments"),
        ("zstd_dict_file none", "open() \"DIR/none\" failed (2: No such file or directory)"),
        ("brotli on; brotli off", "is duplicate"),
    ] {
        let said = run_cli(&["-t"], &format!("events {{}} http {{ {directive}; }}"));
        assert!(said.code == 1 && said.stderr.contains(message), "{directive}: {}", said.stderr);
    }
    let modules: String = ["brotli_filter", "brotli_static", "zstd_filter", "zstd_static"]
        .map(|name| format!("load_module modules/ngx_http_{name}_module.so; "))
        .concat();
    let said = run_cli(&["-t"], &format!("{modules} events {{}} http {{ brotli on; zstd on; }}"));
    assert!(said.code == 0 && said.stderr.contains("(built in)"), "{}", said.stderr);
}

/// What compresses answers that come in pieces is bounded for a worker: beyond it the next coding is taken.
#[test]
fn compressors_have_so_much_memory() {
    let (go, wait) = std::sync::mpsc::channel::<()>();
    let wait = std::sync::Mutex::new(wait);
    let origin = Origin::start(move |_, conn| {
        conn.write(
            "HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nConnection: close\r\n\r\nsome text ",
        );
        let _ = wait.lock().unwrap().recv();
        conn.write("and more");
        Next::Close
    });
    let server = Setup::new(
        "worker_processes 1; events {} http { server { listen 127.0.0.1:%%PORT_0%%; gzip on; gzip_http_version 1.1; gzip_proxied any;
            location /br { brotli on; brotli_comp_level 9; brotli_window 16m; proxy_pass http://127.0.0.1:%%UP%%; }
            location /zstd { zstd on; zstd_comp_level 19; gzip off; proxy_pass http://127.0.0.1:%%UP%%; } } }",
    )
    .set("UP", origin.port())
    .start();
    let ask = |path: &str| {
        let mut client = server.connect();
        let take = "Accept-Encoding: br, zstd, gzip\r\nConnection: close\r\n\r\n";
        client.send(format!("GET {path} HTTP/1.1\r\nHost: a\r\n{take}").as_bytes());
        let head = String::from_utf8_lossy(&client.read_until(b"\r\n\r\n")).into_owned();
        let coding = head.lines().find_map(|l| l.strip_prefix("Content-Encoding: "));
        (client, coding.unwrap_or("").to_string(), head.contains("Vary"))
    };
    let mut clients = Vec::new();
    let codings: Vec<String> = (0..6)
        .map(|_| {
            let (client, coding, _) = ask("/br");
            clients.push(client);
            coding
        })
        .collect();
    assert_eq!((codings[0].as_str(), codings[5].as_str()), ("br", "gzip"), "{codings:?}");
    assert_eq!(ask("/zstd").1, "");
    // Whose turn comes is not said: those six, the one that has gone, and the one below.
    (0..8).for_each(|_| go.send(()).unwrap());
    clients.iter_mut().for_each(|client| drop(client.read_to_end()));
    assert_eq!(ask("/br").1, "br", "it is given back");
}
