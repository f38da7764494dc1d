//! One test for every family of backends: what `proxy_…`, `fastcgi_…`, `uwsgi_…` and `scgi_…` share.
//!
//! A configuration says `%%F%%_buffer_size` for the family's directive, `%%F%%_pass %%TO%%` for its
//! way to the origin, and `%%PARAMS%%` for what a CGI server must be told.

use crate::cgi::{self, Asked};
use crate::origin::{Conn, Next, Origin};
use crate::{free_port, Setup};

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Family {
    Proxy,
    Fastcgi,
    Uwsgi,
    Scgi,
}

pub const FAMILIES: [Family; 4] = [Family::Proxy, Family::Fastcgi, Family::Uwsgi, Family::Scgi];

/// The origin's side of one request.
pub struct Answer<'a> {
    family: Family,
    conn: &'a mut Conn,
}

impl Answer<'_> {
    /// A whole answer: status line, header lines each with its end, body.
    pub fn reply(&mut self, status: &str, fields: &str, body: &str) {
        self.begin(status, fields, body.len());
        self.piece(body);
        self.end();
    }

    /// The head of an answer with a body of `length` bytes.
    pub fn begin(&mut self, status: &str, fields: &str, length: usize) {
        let first = match self.family {
            Family::Proxy => format!("HTTP/1.1 {status}\r\nConnection: close"),
            _ => format!("Status: {status}"),
        };
        self.piece(&format!("{first}\r\nContent-Length: {length}\r\n{fields}\r\n"));
    }

    pub fn piece(&mut self, text: &str) {
        match self.family {
            // A record holds less than 64 KB.
            Family::Fastcgi => {
                let pieces = text.as_bytes().chunks(32_000);
                pieces.for_each(|piece| self.conn.write(cgi::record(cgi::STDOUT, piece)));
            }
            _ => self.conn.write(text),
        }
    }

    pub fn end(&mut self) {
        if self.family == Family::Fastcgi {
            self.conn.write(cgi::ended());
        }
    }

    /// Bytes as they are, whatever the protocol.
    pub fn raw(&mut self, bytes: &[u8]) {
        self.conn.write(bytes);
    }

    /// Whether the connection ends while the origin waits.
    pub fn wait_closed(&mut self) -> bool {
        self.conn.wait_closed()
    }
}

impl Family {
    pub fn name(self) -> &'static str {
        match self {
            Family::Proxy => "proxy",
            Family::Fastcgi => "fastcgi",
            Family::Uwsgi => "uwsgi",
            Family::Scgi => "scgi",
        }
    }

    /// An origin of this family. One request a connection.
    pub fn origin(self, script: impl Fn(&Asked, &mut Answer) + Send + Sync + 'static) -> Origin {
        let serve = move |asked: &Asked, conn: &mut Conn| {
            script(asked, &mut Answer { family: self, conn });
            Next::Close
        };
        match self {
            Family::Proxy => Origin::start(move |request, conn| serve(&as_cgi(request), conn)),
            Family::Fastcgi => Origin::fastcgi(serve),
            Family::Uwsgi => Origin::uwsgi(serve),
            Family::Scgi => Origin::scgi(serve),
        }
    }

    /// A configuration of this family in front of `origin`.
    pub fn setup(self, conf: &str, origin: &Origin) -> Setup {
        self.setup_at(conf, &origin.address())
    }

    /// The same with nobody there.
    pub fn setup_at(self, conf: &str, address: &str) -> Setup {
        let scheme = if self == Family::Proxy { "http://" } else { "" };
        let params = ["REQUEST_METHOD $request_method", "REQUEST_URI $request_uri"];
        let params = params.map(|p| format!("{}_param {p};", self.name())).concat();
        // SCGI says the length by itself; FastCGI needs none.
        let length = match self {
            Family::Uwsgi => "uwsgi_param CONTENT_LENGTH $content_length;",
            _ => "",
        };
        let params = if self == Family::Proxy { String::new() } else { params + length };
        let text = conf
            .replace("%%F%%", self.name())
            .replace("%%PARAMS%%", &params)
            .replace("%%TO%%", &format!("{scheme}%%ORIGIN%%"))
            .replace("%%TO_NOBODY%%", &format!("{scheme}127.0.0.1:{}", free_port()));
        Setup::new(&text).set("ORIGIN", address)
    }
}

/// An HTTP request as a CGI server would be told of it.
fn as_cgi(request: &crate::Request) -> Asked {
    let mut asked = Asked { body: request.body.clone(), ..Asked::default() };
    let mut say = |name: &str, value: &str| asked.params.push((name.into(), value.into()));
    say("REQUEST_METHOD", request.method());
    say("REQUEST_URI", request.target());
    for line in request.head.split("\r\n").skip(1) {
        if let Some((name, value)) = line.split_once(':') {
            say(&format!("HTTP_{}", name.to_uppercase().replace('-', "_")), value.trim());
        }
    }
    asked
}
