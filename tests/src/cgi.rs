//! Servers of the protocols that carry CGI requests, by hand: FastCGI, SCGI and uwsgi.

use crate::origin::{Conn, Next, Origin};

/// A request as such a server sees it.
#[derive(Clone, Debug, Default)]
pub struct Asked {
    /// In the order they came.
    pub params: Vec<(String, String)>,
    pub body: Vec<u8>,
    /// FastCGI: the connection is to be left open.
    pub keep: bool,
    /// uwsgi: the packet's modifiers.
    pub modifiers: (u8, u8),
}

impl Asked {
    pub fn param(&self, name: &str) -> Option<&str> {
        self.params.iter().find(|(n, _)| n == name).map(|(_, v)| v.as_str())
    }

    /// The parameters as `NAME=value` lines, and the body.
    pub fn text(&self) -> String {
        let lines: Vec<String> = self.params.iter().map(|(n, v)| format!("{n}={v}")).collect();
        format!("{}\n{}", lines.join("\n"), String::from_utf8_lossy(&self.body))
    }
}

const STDIN: u8 = 5;
pub(crate) const STDOUT: u8 = 6;
const STDERR: u8 = 7;

/// One record of FastCGI.
pub fn record(kind: u8, content: &[u8]) -> Vec<u8> {
    let [high, low] = u16::try_from(content.len()).unwrap().to_be_bytes();
    let mut out = vec![1, kind, 0, 1, high, low, 0, 0];
    out.extend_from_slice(content);
    out
}

pub fn stdout(text: &str) -> Vec<u8> {
    record(STDOUT, text.as_bytes())
}

pub fn stderr(text: &str) -> Vec<u8> {
    record(STDERR, text.as_bytes())
}

/// The records that end an answer.
pub fn ended() -> Vec<u8> {
    [record(STDOUT, b""), record(3, &[0; 8])].concat()
}

/// A whole answer.
pub fn answer(text: &str) -> Vec<u8> {
    [stdout(text), ended()].concat()
}

fn length(bytes: &mut &[u8]) -> usize {
    let first = bytes[0];
    if first < 128 {
        *bytes = &bytes[1..];
        return usize::from(first);
    }
    let n = u32::from_be_bytes(bytes[..4].try_into().unwrap()) & 0x7fff_ffff;
    *bytes = &bytes[4..];
    n as usize
}

fn latin1(bytes: &[u8]) -> String {
    bytes.iter().map(|b| char::from(*b)).collect()
}

fn fastcgi_params(mut bytes: &[u8]) -> Vec<(String, String)> {
    let mut list = Vec::new();
    while !bytes.is_empty() {
        let (name, value) = (length(&mut bytes), length(&mut bytes));
        list.push((latin1(&bytes[..name]), latin1(&bytes[name..name + value])));
        bytes = &bytes[name + value..];
    }
    list
}

/// Reads one request of FastCGI, to the end of its body.
pub fn read_fastcgi(conn: &mut Conn) -> Option<Asked> {
    let mut asked = Asked::default();
    let mut params = Vec::new();
    loop {
        let header = conn.read_exactly(8)?;
        let len = usize::from(u16::from_be_bytes([header[4], header[5]]));
        let content = conn.read_exactly(len + usize::from(header[6]))?;
        let content = &content[..len];
        match header[1] {
            1 => asked.keep = content[2] & 1 != 0,
            4 => params.extend_from_slice(content),
            STDIN if len == 0 => {
                asked.params = fastcgi_params(&params);
                return Some(asked);
            }
            STDIN => asked.body.extend_from_slice(content),
            other => panic!("a record of type {other}"),
        }
    }
}

/// Reads one request of SCGI.
pub fn read_scgi(conn: &mut Conn) -> Option<Asked> {
    let len = conn.read_until(b":")?;
    let len: usize = latin1(&len[..len.len() - 1]).parse().unwrap();
    let packet = conn.read_exactly(len + 1)?;
    assert_eq!(packet[len], b',');
    let mut words = packet[..len].split(|b| *b == 0).map(latin1);
    let mut asked = Asked::default();
    while let (Some(name), Some(value)) = (words.next(), words.next()) {
        asked.params.push((name, value));
    }
    let body = asked.param("CONTENT_LENGTH").unwrap().parse().unwrap();
    asked.body = conn.read_exactly(body)?;
    Some(asked)
}

/// Reads one request of uwsgi.
pub fn read_uwsgi(conn: &mut Conn) -> Option<Asked> {
    let header = conn.read_exactly(4)?;
    let len = usize::from(u16::from_le_bytes([header[1], header[2]]));
    let packet = conn.read_exactly(len)?;
    let mut asked = Asked { modifiers: (header[0], header[3]), ..Asked::default() };
    let mut rest = &packet[..];
    let mut word = || {
        let len = usize::from(u16::from_le_bytes(rest.get(..2)?.try_into().unwrap()));
        let text = latin1(&rest[2..2 + len]);
        rest = &rest[2 + len..];
        Some(text)
    };
    while let (Some(name), Some(value)) = (word(), word()) {
        asked.params.push((name, value));
    }
    let body =
        asked.param("CONTENT_LENGTH").filter(|v| !v.is_empty()).map_or(0, |v| v.parse().unwrap());
    asked.body = conn.read_exactly(body)?;
    Some(asked)
}

impl Origin {
    /// Answers every request of FastCGI by calling `script`.
    pub fn fastcgi(script: impl Fn(&Asked, &mut Conn) -> Next + Send + Sync + 'static) -> Origin {
        Origin::of_requests(read_fastcgi, script)
    }

    pub fn scgi(script: impl Fn(&Asked, &mut Conn) -> Next + Send + Sync + 'static) -> Origin {
        Origin::of_requests(read_scgi, script)
    }

    pub fn uwsgi(script: impl Fn(&Asked, &mut Conn) -> Next + Send + Sync + 'static) -> Origin {
        Origin::of_requests(read_uwsgi, script)
    }

    fn of_requests(
        read: fn(&mut Conn) -> Option<Asked>,
        script: impl Fn(&Asked, &mut Conn) -> Next + Send + Sync + 'static,
    ) -> Origin {
        Origin::start_raw(move |conn, _| {
            while let Some(asked) = read(conn) {
                if script(&asked, conn) == Next::Close {
                    return;
                }
            }
        })
    }
}
