//! HTTP/1.1 for receivers: one request at a time over a connection that is kept, to several addresses in turn.
//!
//! Not a client for the world: no redirects, no cookies, no proxies. An answer has a bound in bytes and in time.

use crate::common::{self, child};
use crate::conf::{draft, Draft};
use crate::line::tls::{self, Tls};
use crate::line::{dial, words, Line};
use crate::receiver::Stop;
use flate2::write::GzEncoder;
use flate2::Compression;
use std::io::{Read, Write};
use std::sync::Arc;
use std::time::{Duration, Instant};
use weir_base::base64;
use weir_base::date::parse_http_time;
use weir_module::{set, ArgsExt, Arity, Cf, ConfResult, Context, Row, Val};
use weir_wire::http1::chunked::{Decoder, Event};
use weir_wire::http1::response::{ResponseHead, ResponseParser, ResponseProgress};

const HEAD_MAX_BYTES: usize = 64 * 1024;
/// An answer to a batch says something of each event. What is made of it in memory takes a hundred times as much at worst.
const BODY_MAX_BYTES: usize = 4 * 1024 * 1024;
/// All figures of a server.
const FIGURES_MAX_BYTES: usize = 32 * 1024 * 1024;
/// That a connection was closed before is known by then.
const CLOSED_SHOWS_WITHIN: Duration = Duration::from_secs(1);
const PIECE_BYTES: usize = 16 * 1024;
const HEADERS_MAX: usize = 32;
/// Making a connection takes no longer, whatever the timeout.
const DIAL_MAX: Duration = Duration::from_secs(10);

/// What was said.
#[derive(Default)]
pub struct HttpSaid {
    api_key: Val<Vec<u8>>,
    headers: Vec<(String, String)>,
}

/// The rows of receivers that are reached by HTTP, for `takes`; with [`tls::NAMES`].
pub const NAMES: [&str; 14] = [
    "user",
    "password_file",
    "timeout",
    "compress",
    "api_key",
    "header",
    tls::NAMES[0],
    tls::NAMES[1],
    tls::NAMES[2],
    tls::NAMES[3],
    tls::NAMES[4],
    tls::NAMES[5],
    tls::NAMES[6],
    tls::NAMES[7],
];

fn said(cf: &mut Cf) -> &mut HttpSaid {
    draft(cf).settings()
}

pub const ROWS: &[Row] = &[
    Row::new(
        "api_key",
        Context::SHIP,
        Arity::ONE,
        "",
        "The file whose first line is the API key for a receiver.",
        set!(said, api_key, weir_module::first::bytes),
    ),
    Row::new(
        "header",
        Context::SHIP,
        Arity::TWO,
        "",
        "A field that requests to a receiver have.",
        |cf, d| {
            let (name, value) = (d.text(0)?.to_owned(), d.text(1)?.to_owned());
            if !is_field_name(&name) {
                return Err(d.invalid(0));
            }
            if value.bytes().any(|b| b < b' ' && b != b'\t' || b == 0x7f) {
                return Err(d.invalid(1));
            }
            const OWN: [&str; 5] =
                ["host", "content-length", "transfer-encoding", "connection", "content-type"];
            if OWN.contains(&name.to_ascii_lowercase().as_str()) {
                return Err(d.bad(0, format!("\"{name}\" is made by the server itself")));
            }
            let headers = &mut said(cf).headers;
            if headers.len() == HEADERS_MAX {
                return Err(d.fail(format!("more than {HEADERS_MAX} fields")));
            }
            headers.push((name, value));
            Ok(())
        },
    ),
];

/// A token, as names of fields are.
pub fn is_field_name(name: &str) -> bool {
    let is_token = |b: u8| b.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&b);
    !name.is_empty() && name.bytes().all(is_token)
}

/// Where requests go.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Endpoint {
    is_tls: bool,
    host: String,
    port: u16,
    /// Without a `/` at its end.
    path: String,
}

/// What the block says, read and checked.
pub struct HttpConf {
    endpoints: Vec<Endpoint>,
    tls: Option<Tls>,
    /// The fields that all requests have, as text.
    fields: String,
    timeout: Duration,
    is_packed: bool,
    /// Of answers' bodies, in bytes.
    answer_max: usize,
}

/// For a kind's `check`.
///
/// # Errors
///
/// An address is none, or directives do not go together.
pub fn check(draft: &Draft) -> ConfResult {
    let endpoints = endpoints(draft)?;
    tls::check(draft, endpoints.iter().any(|e| e.is_tls))?;
    common::compress(draft, false)?;
    check_user(draft)
}

/// Who we are is said in one way.
///
/// # Errors
///
/// In two, or half of one.
pub fn check_user(draft: &Draft) -> ConfResult {
    let has_user = common::check_user(draft)?;
    if has_user && draft.said::<HttpSaid>().is_some_and(|s| s.api_key.is_set()) {
        return Err(child(draft, "api_key").fail("there is a \"user\" already"));
    }
    Ok(())
}

fn endpoints(draft: &Draft) -> ConfResult<Vec<Endpoint>> {
    let to = draft.to();
    let read = |i: usize| {
        let text = to.text(i)?;
        endpoint(text).ok_or_else(|| {
            let mut e = to.bad(i, format!("\"{text}\" is no address of a receiver"));
            e.hint = Some(
                "write http://HOST:PORT or https://HOST:PORT, and a path if there is one".into(),
            );
            e
        })
    };
    (1..to.args.len()).map(read).collect()
}

fn endpoint(text: &str) -> Option<Endpoint> {
    let (scheme, rest) = text.split_once("://")?;
    let is_tls = match scheme {
        "http" => false,
        "https" => true,
        _ => return None,
    };
    let (authority, path) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
    let end = authority.rfind(']').map_or(0, |at| at + 1);
    let (host, port) = match authority[end..].rfind(':') {
        Some(at) => (&authority[..end + at], authority[end + at + 1..].parse().ok()?),
        None => (authority, if is_tls { 443 } else { 80 }),
    };
    let is_host = |b: u8| b.is_ascii_alphanumeric() || b"-._:[]".contains(&b);
    let is_path = |b: u8| b > b' ' && b < 0x7f && b != b'?' && b != b'#';
    if host.is_empty() || port == 0 || !host.bytes().all(is_host) || !path.bytes().all(is_path) {
        return None;
    }
    let path = path.trim_end_matches('/').to_owned();
    Some(Endpoint { is_tls, host: host.to_owned(), port, path })
}

#[cfg(test)]
impl HttpConf {
    /// Of a receiver in the test.
    pub fn fake(port: u16) -> HttpConf {
        let host = "127.0.0.1".to_owned();
        HttpConf {
            endpoints: vec![Endpoint { is_tls: false, host, port, path: String::new() }],
            tls: None,
            fields: "X-Test: yes\r\n".into(),
            timeout: Duration::from_secs(5),
            is_packed: true,
            answer_max: BODY_MAX_BYTES,
        }
    }
}

impl HttpConf {
    /// The same for another address, if it is one.
    pub fn at(&self, url: &str) -> Option<HttpConf> {
        let endpoint = endpoint(url)?;
        // Without TLS in the block there is nothing to verify by.
        if endpoint.is_tls && self.tls.is_none() {
            return None;
        }
        Some(HttpConf {
            endpoints: vec![endpoint],
            tls: self.tls.clone(),
            fields: self.fields.clone(),
            ..*self
        })
    }

    /// Of a URL that stands in no `ship` block; `fields` are lines of the head, `tls` is for `https`; nothing is packed.
    /// `None` if it is no URL of a server.
    pub fn of_url(
        url: &str,
        fields: &str,
        timeout: Duration,
        tls: Option<Tls>,
    ) -> Option<HttpConf> {
        let endpoint = endpoint(url)?;
        if endpoint.is_tls && tls.is_none() {
            return None;
        }
        let (endpoints, fields) = (vec![endpoint], user_agent() + fields);
        let (is_packed, answer_max) = (false, BODY_MAX_BYTES);
        Some(HttpConf { endpoints, tls, fields, timeout, is_packed, answer_max })
    }

    /// The same without these ends of the addresses' paths, for who puts them there itself.
    pub fn without(mut self, ends: &[&str]) -> HttpConf {
        for endpoint in &mut self.endpoints {
            if let Some(base) = ends.iter().find_map(|end| endpoint.path.strip_suffix(end)) {
                endpoint.path = base.to_owned();
            }
        }
        self
    }

    /// The same for who asks a server for all its figures.
    pub fn for_figures(self) -> HttpConf {
        HttpConf { answer_max: FIGURES_MAX_BYTES, ..self }
    }

    /// Reads what stands in files.
    ///
    /// # Errors
    ///
    /// A file cannot be read, or says nothing of use. `key` is what stands before an API key: `ApiKey `.
    pub fn build(cf: &mut Cf, draft: &Draft, key: &str) -> ConfResult<HttpConf> {
        let endpoints = endpoints(draft)?;
        let is_tls = endpoints.iter().any(|e| e.is_tls);
        let tls = match is_tls {
            true => Some(Tls::build(cf, draft, &[b"http/1.1"])?),
            false => None,
        };
        let mut text = user_agent();
        for (name, value) in fields(cf, draft, key)? {
            text += &format!("{name}: {value}\r\n");
        }
        let is_packed = common::compress(draft, false)? == common::Compress::Gzip;
        let (timeout, answer_max) = (common::timeout(draft), BODY_MAX_BYTES);
        Ok(HttpConf { endpoints, tls, fields: text, timeout, is_packed, answer_max })
    }
}

fn user_agent() -> String {
    format!("User-Agent: weir/{}\r\n", env!("CARGO_PKG_VERSION"))
}

/// The fields that a block has requests have: who we are, and what is written there.
///
/// # Errors
///
/// A file cannot be read, or says nothing of use.
pub fn fields(cf: &mut Cf, draft: &Draft, key: &str) -> ConfResult<Vec<(String, String)>> {
    let mut fields = Vec::new();
    if let Some((user, password)) = common::credentials(cf, draft)? {
        let mut text = Vec::new();
        base64::encode(&mut text, format!("{user}:{password}").as_bytes());
        fields.push(("Authorization".into(), format!("Basic {}", String::from_utf8_lossy(&text))));
    }
    let said = draft.said::<HttpSaid>();
    if let Some(file) = said.and_then(|s| s.api_key.as_option()) {
        fields.push(("Authorization".into(), format!("{key}{}", read_key(cf, draft, file)?)));
    }
    fields.extend(said.into_iter().flat_map(|s| &s.headers).cloned());
    Ok(fields)
}

fn read_key(cf: &mut Cf, draft: &Draft, file: &[u8]) -> ConfResult<String> {
    let d = child(draft, "api_key");
    let path = cf.full_conf_path(file);
    let text = cf.read_file(&path).map_err(|e| {
        let why = weir_core::os_text(&e);
        d.bad(0, format!("open() \"{}\" failed ({why})", path.display()))
    })?;
    let line = text.split(|b| matches!(b, b'\n' | b'\r')).next().unwrap_or_default();
    match std::str::from_utf8(line) {
        Ok(key) if !key.is_empty() && key.bytes().all(|b| b.is_ascii_graphic()) => {
            Ok(key.to_owned())
        }
        _ => Err(d.bad(0, "the file's first line is no key")),
    }
}

/// An answer.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Answer {
    pub status: u16,
    pub retry_after: Option<Duration>,
    pub body: Vec<u8>,
}

impl Answer {
    pub fn is_good(&self) -> bool {
        (200..300).contains(&self.status)
    }
}

/// Requests, one after the other.
pub struct Http {
    conf: Arc<HttpConf>,
    stop: Arc<Stop>,
    line: Option<Line>,
    /// Which of the addresses it leads to.
    turn: usize,
}

impl Http {
    pub fn new(conf: Arc<HttpConf>, stop: Arc<Stop>) -> Http {
        Http { conf, stop, line: None, turn: 0 }
    }

    /// The address that is asked next, for messages.
    pub fn whom(&self) -> String {
        let e = self.endpoint();
        format!("{}:{}", e.host, e.port)
    }

    fn endpoint(&self) -> &Endpoint {
        &self.conf.endpoints[self.turn % self.conf.endpoints.len()]
    }

    /// The next request goes to another address, if there is one.
    pub fn turn(&mut self) {
        self.line = None;
        self.turn = self.turn.wrapping_add(1);
    }

    /// Sends a body, packed if that is wanted.
    ///
    /// # Errors
    ///
    /// There was no answer, in words: nothing is known of what became of it.
    pub fn post(&mut self, path: &str, content_type: &str, body: &[u8]) -> Result<Answer, String> {
        self.post_with(path, content_type, "", body)
    }

    /// The same with further lines of the head.
    ///
    /// # Errors
    ///
    /// As [`Http::post`].
    pub fn post_with(
        &mut self,
        path: &str,
        content_type: &str,
        fields: &str,
        body: &[u8],
    ) -> Result<Answer, String> {
        if !self.conf.is_packed {
            return self.send("POST", path, content_type, fields, body);
        }
        let mut packer = GzEncoder::new(Vec::with_capacity(body.len() / 4), Compression::fast());
        // Writing into memory does not fail.
        let packed =
            packer.write_all(body).and_then(|()| packer.finish()).map_err(|e| e.to_string())?;
        let fields = format!("{fields}Content-Encoding: gzip\r\n");
        self.send("POST", path, content_type, &fields, &packed)
    }

    /// Any request, as it is.
    ///
    /// # Errors
    ///
    /// As [`Http::post`].
    pub fn send(
        &mut self,
        method: &str,
        path: &str,
        content_type: &str,
        fields: &str,
        body: &[u8],
    ) -> Result<Answer, String> {
        let head = self.head(method, path, content_type, fields, body.len());
        let kept = self.line.take().filter(|line| !line.is_stale());
        let begun = Instant::now();
        let last = kept.map(|line| self.exchange(line, &head, body));
        // A connection that was kept may have been closed meanwhile, which shows at once: what was sent by it is sent
        // once more, which receivers bear. Who is silent is not asked again by another one.
        let answer = match last {
            Some(Err(why)) if begun.elapsed() > CLOSED_SHOWS_WITHIN => Err(why),
            Some(Ok(answer)) => Ok(answer),
            _ => self.dial().and_then(|line| self.exchange(line, &head, body)),
        };
        answer.map_err(|e| {
            let text = format!("{}: {e}", self.whom());
            self.turn();
            text
        })
    }

    fn head(
        &self,
        method: &str,
        path: &str,
        content_type: &str,
        fields: &str,
        len: usize,
    ) -> String {
        let Endpoint { host, port, path: base, .. } = self.endpoint();
        let kind = match content_type {
            "" => String::new(),
            kind => format!("Content-Type: {kind}\r\n"),
        };
        format!(
            "{method} {base}{path} HTTP/1.1\r\nHost: {host}:{port}\r\n{kind}Content-Length: {len}\r\n{}{fields}\r\n",
            self.conf.fields
        )
    }

    fn dial(&self) -> Result<Line, String> {
        let e = self.endpoint();
        let tls = self.conf.tls.as_ref().filter(|_| e.is_tls);
        dial(&e.host, e.port, tls, self.conf.timeout.min(DIAL_MAX), &self.stop)
    }

    fn exchange(&mut self, mut line: Line, head: &str, body: &[u8]) -> Result<Answer, String> {
        line.begin(self.conf.timeout);
        let mut text = Vec::with_capacity(head.len() + body.len());
        text.extend_from_slice(head.as_bytes());
        text.extend_from_slice(body);
        line.write_all(&text).and_then(|()| line.flush()).map_err(|e| words(&e))?;
        let (answer, goes_on) = read_answer(&mut line, self.conf.answer_max)?;
        if goes_on {
            self.line = Some(line);
        }
        Ok(answer)
    }
}

/// Seconds, or a date (RFC 9110, section 10.2.3).
fn retry_after(value: &[u8]) -> Option<Duration> {
    let secs = std::str::from_utf8(value).ok()?.parse();
    let left = |until: i64| until.saturating_sub(weir_runtime::clock::wall_secs()).max(0);
    let secs = secs.ok().or_else(|| Some(left(parse_http_time(value)?) as u64))?;
    Some(Duration::from_secs(secs))
}

/// An answer, and whether the connection may be used again.
fn read_answer(line: &mut impl Read, most: usize) -> Result<(Answer, bool), String> {
    let mut head = ResponseHead::default();
    let mut buf = Vec::new();
    loop {
        let mut parser = ResponseParser::new();
        loop {
            match parser.parse(&buf, HEAD_MAX_BYTES, &mut head) {
                Ok(ResponseProgress::Complete) => break,
                Ok(ResponseProgress::NeedMore) => read_more(line, &mut buf, most)?,
                _ => return Err("what was answered is no HTTP".into()),
            }
        }
        if !(100..200).contains(&head.status) {
            break;
        }
        buf.drain(..head.head_len);
    }
    let retry_after = head.headers.iter().find_map(|h| {
        let is_it = h.name.of(&buf).eq_ignore_ascii_case(b"retry-after");
        retry_after(Some(h.value.of(&buf)).filter(|_| is_it)?)
    });
    let mut rest = buf.split_off(head.head_len);
    let (body, is_framed) = if head.chunked {
        (read_chunked(line, rest, most)?, true)
    } else if let Some(len) = head.content_length {
        let len = usize::try_from(len).ok().filter(|n| *n <= most);
        let len = len.ok_or_else(|| too_long(most))?;
        while rest.len() < len {
            read_more(line, &mut rest, most)?;
        }
        rest.truncate(len);
        (rest, true)
    } else if matches!(head.status, 204 | 304) {
        (Vec::new(), true)
    } else {
        while read_some(line, &mut rest, most)? {}
        (rest, false)
    };
    let answer = Answer { status: head.status, retry_after, body };
    Ok((answer, is_framed && !head.connection_close))
}

const TOO_LONG: &str = "the answer has more than ";

fn too_long(most: usize) -> String {
    format!("{TOO_LONG}{most} bytes")
}

/// Whether an error says that the answer had more bytes than are read.
pub fn is_too_long(why: &str) -> bool {
    why.contains(TOO_LONG)
}

fn read_chunked(line: &mut impl Read, mut rest: Vec<u8>, most: usize) -> Result<Vec<u8>, String> {
    let (mut decoder, mut body) = (Decoder::new(), Vec::new());
    loop {
        let (used, event) = decoder.decode(&rest).map_err(|_| "the answer's chunks are none")?;
        let needs_more = event == Event::NeedMore;
        match event {
            Event::Data(range) => body.extend_from_slice(&rest[range]),
            Event::End => return Ok(body),
            Event::NeedMore => {}
        }
        rest.drain(..used);
        if body.len() > most {
            return Err(too_long(most));
        }
        if needs_more {
            read_more(line, &mut rest, most)?;
        }
    }
}

fn read_more(line: &mut impl Read, buf: &mut Vec<u8>, most: usize) -> Result<(), String> {
    match read_some(line, buf, most)? {
        true => Ok(()),
        false => Err("the connection was closed".into()),
    }
}

fn read_some(line: &mut impl Read, buf: &mut Vec<u8>, most: usize) -> Result<bool, String> {
    if buf.len() > most {
        return Err(too_long(most));
    }
    let at = buf.len();
    buf.resize(at + PIECE_BYTES, 0);
    let got = line.read(&mut buf[at..]);
    buf.truncate(at + got.as_ref().copied().unwrap_or(0));
    got.map(|n| n > 0).map_err(|e| words(&e))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &[u8]) -> Result<(Answer, bool), String> {
        // A byte at a time is the hardest.
        struct Slow<'a>(&'a [u8]);
        impl Read for Slow<'_> {
            fn read(&mut self, buf: &mut [u8]) -> std::io::Result<usize> {
                let n = self.0.len().min(1);
                buf[..n].copy_from_slice(&self.0[..n]);
                self.0 = &self.0[n..];
                Ok(n)
            }
        }
        read_answer(&mut Slow(text), BODY_MAX_BYTES)
    }

    #[test]
    fn an_answer_has_the_bound_of_who_asks() {
        let text = [&b"HTTP/1.0 200 OK\r\n\r\n"[..], &vec![b'x'; BODY_MAX_BYTES + 2 * PIECE_BYTES]];
        let text = text.concat();
        let why = read_answer(&mut &text[..], BODY_MAX_BYTES).unwrap_err();
        assert_eq!(why, "the answer has more than 4194304 bytes");
        assert!(read_answer(&mut &text[..], FIGURES_MAX_BYTES).is_ok());
    }

    #[test]
    fn answers_by_length_by_chunks_and_by_their_end() {
        for (text, status, body, goes_on) in [
            (&b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}"[..], 200, &b"{}"[..], true),
            (
                b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n\r\n",
                200,
                b"{}",
                true,
            ),
            (b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 204 No Content\r\n\r\n", 204, b"", true),
            (
                b"HTTP/1.1 503 No\r\nConnection: close\r\nContent-Length: 1\r\n\r\nx",
                503,
                b"x",
                false,
            ),
            (b"HTTP/1.0 200 OK\r\n\r\nrest", 200, b"rest", false),
        ] {
            let (answer, again) = read(text).unwrap();
            assert_eq!((answer.status, &answer.body[..], again), (status, body, goes_on));
        }
        let (answer, _) =
            read(b"HTTP/1.1 429 X\r\nRetry-After: 7\r\nContent-Length: 0\r\n\r\n").unwrap();
        assert_eq!(answer.retry_after, Some(Duration::from_secs(7)));
        assert_eq!(retry_after(b"Sun, 06 Nov 1994 08:49:37 GMT"), Some(Duration::ZERO));
        assert!(retry_after(b"Fri, 31 Dec 2100 23:59:59 GMT") > Some(Duration::from_secs(86_400)));
        assert_eq!(retry_after(b"soon"), None);
    }

    #[test]
    fn what_is_cut_off_or_too_long_is_no_answer() {
        for text in [
            &b""[..],
            b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\n{}",
            b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
            b"HTTP/1.1 200 OK\r\nContent-Length: 99999999999\r\n\r\n",
            b"SSH-2.0-x\r\n",
        ] {
            assert!(read(text).is_err());
        }
    }

    #[test]
    fn addresses() {
        let of = |is_tls, host: &str, port, path: &str| {
            Some(Endpoint { is_tls, host: host.into(), port, path: path.into() })
        };
        assert_eq!(endpoint("http://a:9200"), of(false, "a", 9200, ""));
        assert_eq!(endpoint("https://a.b/x/"), of(true, "a.b", 443, "/x"));
        assert_eq!(endpoint("http://[::1]:1/"), of(false, "[::1]", 1, ""));
        for bad in
            ["a:1", "ftp://a", "http://", "http://a:0", "http://a:x", "http://a b", "http://a/?q"]
        {
            assert_eq!(endpoint(bad), None, "{bad}");
        }
    }
}
