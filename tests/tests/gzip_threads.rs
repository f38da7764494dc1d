//! What takes long to compress is compressed beside the worker: others are served meanwhile, and the answer is what
//! it would be. (nginx's worker is at it for as long: on it the first test fails.)

use std::io::Read;
use std::thread;
use weir_tests::{Client, Next, Origin, Response, Server, Setup};

/// Of two letters, in which every place has as many matches as a compressor cares to look at.
fn slow_text(bytes: usize) -> String {
    let mut state = 1u32;
    let mut next = || {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        if state >> 31 == 0 {
            'a'
        } else {
            'b'
        }
    };
    (0..bytes).map(|_| next()).collect()
}

const BYTES: usize = 250_000;

/// One worker, and a server behind it that answers with a long text.
fn start(text: &str, conf: &str) -> (Server, Origin) {
    let body = text.to_string();
    let origin = Origin::start(move |_, conn| {
        conn.reply("200 OK", "Cache-Control: max-age=3600\r\nContent-Type: text/plain\r\n", &body);
        Next::Close
    });
    let server = Setup::new(&format!(
        "worker_processes 1; events {{}} http {{
            proxy_cache_path %%DIR%%/cache keys_zone=c:1m;
            gzip on; gzip_types text/plain; gzip_comp_level 9; gzip_vary on;
            server {{ listen 127.0.0.1:%%PORT_0%%; location / {{ proxy_pass http://%%ORIGIN%%; {conf} }}
                location /quick {{ gzip off; return 200 quick; }} }} }}"
    ))
    .set("ORIGIN", origin.address())
    .start();
    (server, origin)
}

fn ask(client: &mut Client, path: &str) {
    let text = format!("GET {path} HTTP/1.1\r\nHost: a\r\nAccept-Encoding: gzip\r\n\r\n");
    client.send(text.as_bytes());
}

fn unzipped(answer: &Response) -> String {
    assert_eq!(answer.header("Content-Encoding"), Some("gzip"));
    let mut text = String::new();
    flate2::read::GzDecoder::new(&answer.body[..]).read_to_string(&mut text).unwrap();
    text
}

#[test]
fn others_are_served_while_a_kept_answer_is_compressed() {
    let text = slow_text(BYTES);
    let (server, origin) = start(&text, "proxy_cache c;");
    assert_eq!(server.get("/").text(), text, "kept, and not compressed yet");
    let mut slow = server.connect();
    let mut quick = server.connect();
    assert_eq!(quick.get("/quick").text(), "quick");
    ask(&mut slow, "/");
    assert_eq!(quick.get("/quick").text(), "quick");
    assert_eq!(quick.get("/quick").text(), "quick");
    assert!(slow.is_silent(std::time::Duration::from_millis(1)), "the answer came first");
    let answer = slow.response();
    assert_eq!(answer.header("Content-Length"), Some(answer.body.len().to_string()).as_deref());
    assert_eq!(unzipped(&answer), text);
    assert_eq!(origin.requests().len(), 1);
}

#[test]
fn many_clients_of_one_answer_and_its_other_forms() {
    let text = slow_text(BYTES);
    let (server, _origin) = start(&text, "proxy_cache c;");
    assert_eq!(server.get("/").text(), text);
    thread::scope(|scope| {
        let one = || {
            let mut client = server.connect();
            ask(&mut client, "/");
            let answer = client.response();
            assert_eq!(unzipped(&answer), text);
            answer.header("Content-Length").map(str::to_string)
        };
        let all: Vec<_> = (0..8).map(|_| scope.spawn(one)).collect();
        let lengths: Vec<_> = all.into_iter().map(|client| client.join().unwrap()).collect();
        assert!(lengths[0].is_some() && lengths.iter().all(|l| *l == lengths[0]), "{lengths:?}");
    });
    let head = server.request("HEAD", "/", "Accept-Encoding: gzip\r\n");
    assert_eq!(head.header("Content-Encoding"), Some("gzip"));
    // A client that goes meanwhile.
    let mut client = server.connect();
    ask(&mut client, "/");
    drop(client);
    assert_eq!(server.get("/").text(), text);
}

#[test]
fn long_pieces_of_an_answer_on_its_way() {
    let text: String = (0..150_000).map(|n| format!("{n} words, ")).collect();
    for conf in [
        "",
        "proxy_buffering off;",
        "proxy_buffer_size 512k; proxy_buffers 4 512k;",
        "limit_rate 4m;",
    ] {
        let (server, _origin) = start(&text, conf);
        let mut client = server.connect();
        for path in ["/", "/again"] {
            ask(&mut client, path);
            assert_eq!(unzipped(&client.response()), text, "{conf}");
        }
    }
}
