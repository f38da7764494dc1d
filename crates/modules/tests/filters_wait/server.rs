//! A worker of this process that serves connections by a configuration, with the modules that a test wants.

use crate::gate;
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::mpsc::{unbounded_channel, UnboundedReceiver, UnboundedSender};
use weir_conf::{Loader, Options, Sources};
use weir_core::counters::AllCounters;
use weir_core::generation::{Generation, WorkerGen};
use weir_core::logger::{ErrorLog, LogLevel};
use weir_core::{ClientAddr, Connection, Worker};
use weir_http::{build, HttpModule, Serving};
use weir_module::{Arity, Cf, Context, Mode, Row, RowTable};
use weir_modules::{
    addition, gunzip, gzip, gzip_ok, index, range, rewrite, ssi, static_files, sub_filter,
};
use weir_runtime::event_loop;
use weir_runtime::net::Stream;

const MODULES: &[&HttpModule] = &[
    &weir_http::core_rows::MODULE,
    &weir_http::status_zone::MODULE,
    &weir_http::h2::MODULE,
    &gzip_ok::MODULE,
    &rewrite::MODULE,
    &index::MODULE,
    &static_files::MODULE,
    &gunzip::MODULE,
    &gate::PARTS,
    &addition::MODULE,
    &sub_filter::MODULE,
    &ssi::MODULE,
    &addition::AFTER,
    &gate::WHOLE,
    &gzip::MODULE,
    &range::MODULE,
];

const HTTP: &[Row] =
    &[Row::block("http", Context::MAIN, Arity::NONE, "", |cf, d| build::set_http(cf, d, MODULES))];

struct Text(Arc<[u8]>);

impl Loader for Text {
    fn read(&self, _: &[u8]) -> std::io::Result<Arc<[u8]>> {
        Ok(Arc::clone(&self.0))
    }

    fn glob(&self, _: &[u8]) -> std::io::Result<Vec<Vec<u8>>> {
        Ok(Vec::new())
    }
}

fn generation(text: &str, dir: &Path) -> Arc<Generation> {
    let lists: Vec<&'static [Row]> =
        std::iter::once(HTTP).chain(MODULES.iter().map(|m| m.rows)).collect();
    let mut cf = Cf::new(Rc::new(RowTable::new(&lists, &[])), dir, dir, Mode::Serve);
    let mut sources = Sources::new();
    let options = Options::for_main(b"test.conf");
    let loader = Text(text.as_bytes().into());
    let directives = weir_conf::parse(&mut sources, &loader, b"test.conf", &options);
    let directives = directives.unwrap_or_else(|e| panic!("{}", e.render(&sources, "test")));
    let log = Arc::new(ErrorLog::stderr(LogLevel::Error));
    let walked = cf.walk(Context::MAIN, &directives);
    let errors: String = cf.errors.iter().map(|e| e.render(&sources, "test")).collect();
    assert!(walked.is_ok() && errors.is_empty(), "{errors}");
    let made = build::finish(&mut cf, &log);
    let made = made.unwrap_or_else(|e| panic!("{}", e.render(&sources, "test")));
    let global = std::mem::take(&mut cf.levels.global);
    Arc::new(Generation::new(1, global, log, made.into_iter().collect()))
}

async fn serve(generation: Arc<Generation>, mut comes: UnboundedReceiver<UnixStream>) {
    let gen = Rc::new(WorkerGen::new(generation));
    let all = Arc::new(AllCounters::new(1));
    let worker = Rc::new(Worker::new(0, Rc::clone(&gen), all));
    let watched = Rc::clone(&worker);
    event_loop::spawn(async move { watched.deadlines.run().await });
    let mut serial = 0;
    while let Some(socket) = comes.recv().await {
        serial += 1;
        let stream = Stream::from_fd(socket, false);
        let from = (Rc::clone(&gen), 0);
        let conn = Connection::new(Rc::clone(&worker), stream, ClientAddr::Unix, from, serial);
        event_loop::spawn(Serving::new(Rc::new(conn)));
    }
}

/// A server; it ends with the test.
pub struct Server {
    dir: PathBuf,
    comes: UnboundedSender<UnixStream>,
}

impl Server {
    /// `server { … }` of that; `name` is the test's.
    pub fn start(name: &str, server: &str) -> Server {
        let dir = std::env::temp_dir().join(format!("weir-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&dir).unwrap();
        let text = format!(
            "http {{ server {{ listen unix:/x; root {}; gate {name}; {server} }} }}",
            dir.display()
        );
        let generation = generation(&text, &dir);
        let (comes, inbox) = unbounded_channel();
        std::thread::spawn(move || {
            event_loop::run(&(), 4, serve(generation, inbox)).unwrap();
        });
        Server { dir, comes }
    }

    pub fn dir(&self) -> &Path {
        &self.dir
    }

    pub fn write(&self, name: &str, text: &[u8]) {
        std::fs::write(self.dir.join(name), text).unwrap();
    }

    pub fn connect(&self) -> Client {
        let (near, far) = UnixStream::pair().unwrap();
        far.set_nonblocking(true).unwrap();
        near.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        self.comes.send(far).unwrap();
        Client { stream: near, read: Vec::new() }
    }

    /// One answer on a connection of its own.
    pub fn get(&self, path: &str) -> Answer {
        let mut client = self.connect();
        client.ask("GET", path);
        client.answer("GET")
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.dir);
    }
}

pub struct Client {
    pub stream: UnixStream,
    read: Vec<u8>,
}

#[derive(Debug)]
pub struct Answer {
    pub head: String,
    pub body: Vec<u8>,
}

impl Answer {
    pub fn status(&self) -> &str {
        &self.head[9..12]
    }

    pub fn text(&self) -> &str {
        std::str::from_utf8(&self.body).unwrap()
    }
}

impl Client {
    pub fn ask(&mut self, method: &str, path: &str) {
        self.ask_with(method, path, "");
    }

    pub fn ask_with(&mut self, method: &str, path: &str, fields: &str) {
        let text = format!("{method} {path} HTTP/1.1\r\nHost: a\r\n{fields}\r\n");
        self.stream.write_all(text.as_bytes()).unwrap();
    }

    /// Reads more; false at the end.
    pub fn fill(&mut self) -> bool {
        let mut buf = [0; 16 * 1024];
        let n = self.stream.read(&mut buf).expect("it comes in time");
        self.read.extend_from_slice(&buf[..n]);
        n > 0
    }

    fn take(&mut self, n: usize) -> Vec<u8> {
        while self.read.len() < n {
            assert!(self.fill(), "it ends early");
        }
        self.read.drain(..n).collect()
    }

    fn take_until(&mut self, end: &[u8]) -> Vec<u8> {
        loop {
            if let Some(at) = self.read.windows(end.len()).position(|w| w == end) {
                return self.take(at + end.len());
            }
            assert!(self.fill(), "it ends early");
        }
    }

    /// The next answer, whose body has a length or comes in chunks.
    pub fn answer(&mut self, method: &str) -> Answer {
        let head = String::from_utf8(self.take_until(b"\r\n\r\n")).unwrap();
        let mut body = Vec::new();
        if method == "HEAD" {
        } else if let Some((_, rest)) = head.split_once("Content-Length: ") {
            body = self.take(rest.split("\r\n").next().unwrap().parse().unwrap());
        } else {
            assert!(head.contains("Transfer-Encoding: chunked"), "{head}");
            loop {
                let line = String::from_utf8(self.take_until(b"\r\n")).unwrap();
                let len = usize::from_str_radix(line.trim(), 16).unwrap();
                body.extend(self.take(len));
                self.take(2);
                if len == 0 {
                    break;
                }
            }
        }
        Answer { head, body }
    }

    /// Whether nothing has come yet.
    pub fn is_silent(&mut self) -> bool {
        self.stream.set_nonblocking(true).unwrap();
        let mut byte = [0];
        let got = self.stream.read(&mut byte);
        self.stream.set_nonblocking(false).unwrap();
        self.read.is_empty() && got.is_err()
    }
}
