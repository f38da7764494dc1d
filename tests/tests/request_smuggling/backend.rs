//! A backend that reads HTTP/1 by the letter of RFC 9112 and keeps what it read.

use std::sync::{Arc, Mutex};
use weir_tests::cgi::{self, Asked};
use weir_tests::{Conn, Next, Origin};

#[derive(Default)]
struct Log {
    /// Target and body of each whole request.
    requests: Vec<(String, String)>,
    violations: Vec<String>,
}

pub struct Backend {
    origin: Origin,
    log: Arc<Mutex<Log>>,
}

/// How the body of a request is framed.
#[derive(Debug, PartialEq, Eq)]
pub enum Framing {
    Length(usize),
    Chunked,
}

/// Fields that a proxy keeps to itself.
const HOP_BY_HOP: [&str; 5] = ["keep-alive", "te", "expect", "upgrade", "proxy-authenticate"];

/// Reads a head to its end: the target, and how the body is framed.
pub fn read_head(head: &[u8]) -> Result<(String, Framing), String> {
    let text: String = head.iter().map(|b| char::from(*b)).collect();
    let text = text.strip_suffix("\r\n\r\n").ok_or("a head without end")?;
    let lines: Vec<&str> = text.split("\r\n").collect();
    if lines.iter().any(|l| l.contains(['\r', '\n', '\0'])) {
        return Err("a bare CR, LF or NUL".to_string());
    }
    let line: Vec<&str> = lines[0].split(' ').collect();
    let [method, target, "HTTP/1.1" | "HTTP/1.0"] = line[..] else {
        return Err("a request line that is none".to_string());
    };
    let is_method = !method.is_empty()
        && method.chars().all(|c| c.is_ascii_uppercase() || matches!(c, '-' | '_'));
    if !is_method || target.is_empty() || target.chars().any(|c| c <= ' ' || c == '\x7f') {
        return Err("a method or target that is none".to_string());
    }
    framing(&lines[1..]).map(|framing| (target.to_string(), framing))
}

fn framing(lines: &[&str]) -> Result<Framing, String> {
    let (mut lengths, mut codings, mut hosts) = (Vec::new(), Vec::new(), 0);
    for line in lines {
        let (name, value) = line.split_once(':').ok_or("a line that is no field")?;
        // Other characters are no error in a name, but nginx passes none of them.
        let is_name =
            !name.is_empty() && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '-');
        if !is_name {
            return Err(format!("the name {name:?}"));
        }
        let name = name.to_ascii_lowercase();
        match name.as_str() {
            "host" => hosts += usize::from(!value.trim().is_empty()),
            "content-length" => lengths.push(value.trim_matches(' ')),
            "transfer-encoding" => codings.push(value.trim_matches(' ')),
            "connection" if !matches!(value.trim(), "close" | "keep-alive") => {
                return Err(format!("Connection: {value}"));
            }
            other if HOP_BY_HOP.contains(&other) => return Err(format!("the field {name}")),
            _ => {}
        }
    }
    match (hosts, &lengths[..], &codings[..]) {
        (1, [], []) => Ok(Framing::Length(0)),
        (1, [n], []) if n.bytes().all(|b| b.is_ascii_digit()) => {
            n.parse().map(Framing::Length).map_err(|_| format!("the length {n:?}"))
        }
        (1, [], ["chunked"]) => Ok(Framing::Chunked),
        _ => Err(format!("{hosts} hosts, lengths {lengths:?}, codings {codings:?}")),
    }
}

/// `Ok(None)`: the connection ended before the body did.
fn read_chunks(conn: &mut Conn) -> Result<Option<Vec<u8>>, String> {
    let mut body = Vec::new();
    loop {
        let Some(line) = conn.read_until(b"\r\n") else { return Ok(None) };
        let digits = String::from_utf8_lossy(&line[..line.len() - 2]).into_owned();
        let is_size = !digits.is_empty() && digits.bytes().all(|b| b.is_ascii_hexdigit());
        let size = usize::from_str_radix(&digits, 16).ok().filter(|_| is_size);
        let size = size.ok_or_else(|| format!("the chunk size {digits:?}"))?;
        let Some(data) = conn.read_exactly(size + 2) else { return Ok(None) };
        if !data.ends_with(b"\r\n") {
            return Err(format!("a chunk that does not end: {data:?}"));
        }
        body.extend_from_slice(&data[..size]);
        if size == 0 {
            return Ok(Some(body));
        }
    }
}

/// Reads one request; `Ok(None)` when the connection ends before it does.
fn read_request(conn: &mut Conn) -> Result<Option<(String, String)>, String> {
    let Some(head) = conn.read_until(b"\r\n\r\n") else { return Ok(None) };
    let shown = || String::from_utf8_lossy(&head).into_owned();
    let (target, framing) = read_head(&head).map_err(|e| format!("{e} in {:?}", shown()))?;
    if target.contains("smuggled") {
        return Err(format!("what was in a body: {:?}", shown()));
    }
    let body = match framing {
        Framing::Length(n) => conn.read_exactly(n),
        Framing::Chunked => read_chunks(conn).map_err(|e| format!("{e} behind {:?}", shown()))?,
    };
    Ok(body.map(|b| (target, String::from_utf8_lossy(&b).into_owned())))
}

/// Target and body of a CGI request, whose parameters must be unambiguous.
fn read_params(asked: &Asked) -> Result<(String, String), String> {
    let all = |why: String| format!("{why} in {:?}", asked.params);
    for (i, (name, value)) in asked.params.iter().enumerate() {
        let is_name = |c: char| c.is_ascii_uppercase() || c.is_ascii_digit() || c == '_';
        if name.is_empty() || !name.chars().all(is_name) {
            return Err(all(format!("the name {name:?}")));
        }
        if value.contains(['\r', '\n', '\0']) {
            return Err(all(format!("a bare CR, LF or NUL in {name}")));
        }
        if asked.params[..i].iter().any(|(other, _)| other == name) {
            return Err(all(format!("{name} twice")));
        }
    }
    let length = asked.param("CONTENT_LENGTH").unwrap_or_default();
    let is_number = length.bytes().all(|b| b.is_ascii_digit());
    let said = if length.is_empty() { Ok(0) } else { length.parse::<usize>() };
    if !is_number || said != Ok(asked.body.len()) {
        return Err(all(format!("a body of {} bytes", asked.body.len())));
    }
    let target = asked.param("REQUEST_URI").ok_or_else(|| all("no target".to_string()))?;
    if target.contains("smuggled") {
        return Err(all("what was in a body".to_string()));
    }
    Ok((target.to_string(), String::from_utf8_lossy(&asked.body).into_owned()))
}

impl Backend {
    pub fn start() -> Backend {
        let log: Arc<Mutex<Log>> = Arc::default();
        let kept = Arc::clone(&log);
        let origin = Origin::start_raw(move |conn, _| loop {
            match read_request(conn) {
                Ok(Some(request)) => kept.lock().unwrap().requests.push(request),
                Ok(None) => return,
                Err(violation) => return kept.lock().unwrap().violations.push(violation),
            }
            conn.reply("200 OK", "", "");
        });
        Backend { origin, log }
    }

    /// One that speaks a protocol of CGI programs.
    pub fn cgi(protocol: &str) -> Backend {
        let log: Arc<Mutex<Log>> = Arc::default();
        let kept = Arc::clone(&log);
        let is_fastcgi = protocol == "fastcgi";
        let script = move |asked: &Asked, conn: &mut Conn| {
            let mut log = kept.lock().unwrap();
            match read_params(asked) {
                Ok(request) => log.requests.push(request),
                Err(violation) => log.violations.push(violation),
            }
            drop(log);
            let text = "Status: 200 OK\r\nContent-Length: 0\r\n\r\n";
            match is_fastcgi {
                true => conn.write(cgi::answer(text)),
                false => conn.write(text),
            }
            // Records say for themselves where a body ends.
            if !is_fastcgi && conn.read_exactly(1).is_some() {
                let text = format!("more than the body of {:?}", asked.param("REQUEST_URI"));
                kept.lock().unwrap().violations.push(text);
            }
            Next::Close
        };
        let origin = match protocol {
            "fastcgi" => Origin::fastcgi(script),
            "scgi" => Origin::scgi(script),
            _ => Origin::uwsgi(script),
        };
        Backend { origin, log }
    }

    pub fn address(&self) -> String {
        self.origin.address()
    }

    /// The bodies of the requests with that tag in their target, and what was wrong until now.
    pub fn take(&self, tag: &str) -> (Vec<String>, Vec<String>) {
        let mut log = self.log.lock().unwrap();
        let of_tag = log.requests.iter().filter(|(target, _)| target.contains(tag));
        let bodies = of_tag.map(|(_, body)| body.clone()).collect();
        (bodies, std::mem::take(&mut log.violations))
    }
}
