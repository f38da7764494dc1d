//! `proxy_request_buffering off`: an upload goes through as it comes, at the client's pace.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::sync::mpsc;
use std::time::{Duration, Instant};
use weir_tests::{Server, PATIENCE};

const BODY_BYTES: usize = 8 << 20;
/// Of the client and of the origin.
const BYTES_PER_SEC: usize = 16 << 20;
const PIECE_BYTES: usize = 64 << 10;

/// Keeps to the rate: the time at which so many bytes may have passed.
fn pace(start: Instant, bytes: usize) {
    let due = start + Duration::from_secs_f64(bytes as f64 / BYTES_PER_SEC as f64);
    std::thread::sleep(due.saturating_duration_since(Instant::now()));
}

/// What the origin has seen.
struct Seen {
    first_byte: Instant,
    body_bytes: usize,
    head: String,
    files: Vec<PathBuf>,
}

fn files_below(dir: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(dir).into_iter().flatten().flatten() {
        match entry.path().is_dir() {
            true => found.extend(files_below(&entry.path())),
            false => found.push(entry.path()),
        }
    }
    found
}

/// Reads one upload no faster than the rate, and looks for temporary files halfway.
fn receive(mut stream: TcpStream, temp: &Path) -> Seen {
    stream.set_read_timeout(Some(PATIENCE * 2)).unwrap();
    let (mut head, mut byte) = (Vec::new(), [0]);
    while !head.ends_with(b"\r\n\r\n") {
        stream.read_exact(&mut byte).unwrap();
        head.push(byte[0]);
    }
    let mut buf = vec![0; PIECE_BYTES];
    let mut got = weir_tests::read(&mut stream, &mut buf).unwrap();
    let (first_byte, mut files) = (Instant::now(), Vec::new());
    let chunked = !String::from_utf8_lossy(&head).contains("Content-Length: 8388608");
    let mut tail = buf[..got].to_vec();
    while got < BODY_BYTES || (chunked && !tail.ends_with(b"\r\n0\r\n\r\n")) {
        if got >= BODY_BYTES / 2 && files.is_empty() {
            files = files_below(temp);
        }
        pace(first_byte, got);
        let n = weir_tests::read(&mut stream, &mut buf).unwrap();
        assert!(n > 0, "the upload ends at {got}");
        got += n;
        tail.extend_from_slice(&buf[..n]);
        tail.drain(..tail.len().saturating_sub(16));
    }
    stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok").unwrap();
    let head = String::from_utf8_lossy(&head).into_owned();
    Seen { first_byte, body_bytes: got, head, files }
}

/// One upload: how much longer than sending it took, and how long until the origin's first byte.
fn upload(server: &Server, origin: &TcpListener, chunked: bool) -> (f64, Duration) {
    let temp = server.dir().join("temp");
    let (tell, told) = mpsc::channel();
    let start = Instant::now();
    let (sent, done) = std::thread::scope(|scope| {
        scope.spawn(move || {
            let (stream, _) = origin.accept().unwrap();
            tell.send(receive(stream, &temp)).unwrap();
        });
        let mut client = TcpStream::connect(("127.0.0.1", server.port(0))).unwrap();
        client.set_read_timeout(Some(PATIENCE * 2)).unwrap();
        let length = match chunked {
            true => "Transfer-Encoding: chunked".to_owned(),
            false => format!("Content-Length: {BODY_BYTES}"),
        };
        let head = format!("POST / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n{length}\r\n\r\n");
        client.write_all(head.as_bytes()).unwrap();
        let piece = vec![b'x'; PIECE_BYTES];
        for at in (0..BODY_BYTES).step_by(PIECE_BYTES) {
            pace(start, at);
            match chunked {
                true => {
                    let size = format!("{PIECE_BYTES:x}\r\n");
                    client.write_all(&[size.as_bytes(), &piece, b"\r\n"].concat()).unwrap();
                }
                false => client.write_all(&piece).unwrap(),
            }
        }
        if chunked {
            client.write_all(b"0\r\n\r\n").unwrap();
        }
        let sent = start.elapsed();
        let mut answer = Vec::new();
        client.read_to_end(&mut answer).unwrap();
        assert!(answer.starts_with(b"HTTP/1.1 200"), "{}", String::from_utf8_lossy(&answer));
        (sent, start.elapsed())
    });
    let seen = told.recv().unwrap();
    assert!(seen.body_bytes >= BODY_BYTES, "{}", seen.body_bytes);
    let coding = if chunked { "Transfer-Encoding: chunked" } else { "Content-Length: 8388608" };
    assert!(seen.head.contains(coding), "{}", seen.head);
    assert_eq!(seen.files, [] as [PathBuf; 0]);
    (done.as_secs_f64() / sent.as_secs_f64(), seen.first_byte - start)
}

fn streams(chunked: bool) {
    let origin = TcpListener::bind("127.0.0.1:0").unwrap();
    let server = weir_tests::Setup::new(
        "events {} http { client_max_body_size 0; client_body_temp_path %%DIR%%/temp/body;
            proxy_temp_path %%DIR%%/temp/proxy;
            server { listen 127.0.0.1:%%PORT_0%%; location / { proxy_http_version 1.1;
                proxy_request_buffering off; proxy_pass http://127.0.0.1:%%ORIGIN%%; } } }",
    )
    .set("ORIGIN", origin.local_addr().unwrap().port())
    .file("temp/.keep", "");
    std::fs::remove_file(server.dir().join("temp/.keep")).unwrap();
    let server = server.start();
    // The machine may be busy with other tests for a moment, but hardly three times.
    let mut seen = Vec::new();
    let good = (0..3).any(|_| {
        let (ratio, first) = upload(&server, &origin, chunked);
        seen.push((ratio, first));
        ratio < 1.1 && first < Duration::from_millis(300)
    });
    assert!(good, "time over time of sending, first byte: {seen:?}");
}

#[test]
fn proxy_upload_of_known_length_streams() {
    streams(false);
}

#[test]
fn proxy_upload_in_chunks_streams() {
    streams(true);
}
