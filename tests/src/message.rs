//! Messages as tests see them: text where text is expected, bytes where bytes count.

/// What a server answered.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Response {
    pub version: String,
    pub status: u16,
    pub reason: String,
    pub headers: Vec<(String, String)>,
    /// Without its transfer coding.
    pub body: Vec<u8>,
    /// Trailers of a chunked body.
    pub trailers: Vec<(String, String)>,
}

impl Response {
    /// The first header of this name.
    pub fn header(&self, name: &str) -> Option<&str> {
        find(&self.headers, name)
    }

    /// Every header of this name.
    pub fn all(&self, name: &str) -> Vec<&str> {
        self.headers
            .iter()
            .filter(|(n, _)| n.eq_ignore_ascii_case(name))
            .map(|(_, v)| v.as_str())
            .collect()
    }

    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }

    /// Parses a head, its empty line included.
    pub fn parse_head(head: &[u8]) -> Option<Response> {
        let text = latin1(head);
        let mut lines = text.split("\r\n");
        let mut first = lines.next()?.splitn(3, ' ');
        let version = first.next()?.to_string();
        if !version.starts_with("HTTP/") {
            return None;
        }
        let status = first.next()?.parse().ok()?;
        let reason = first.next().unwrap_or_default().to_string();
        let headers = fields(lines);
        Some(Response { version, status, reason, headers, ..Response::default() })
    }

    /// Parses everything a connection said before it was closed.
    pub fn parse_all(bytes: &[u8], method: &str) -> Option<Response> {
        let head_len = head_len(bytes)?;
        let mut response = Response::parse_head(&bytes[..head_len])?;
        let body = &bytes[head_len..];
        if method == "HEAD" {
            response.body = body.to_vec();
        } else if response.is_chunked() {
            let (decoded, trailers, _) = dechunk(body)?;
            response.body = decoded;
            response.trailers = trailers;
        } else {
            response.body = body.to_vec();
        }
        Some(response)
    }

    pub fn is_chunked(&self) -> bool {
        self.header("Transfer-Encoding").is_some_and(|v| v.eq_ignore_ascii_case("chunked"))
    }

    pub fn content_length(&self) -> Option<usize> {
        self.header("Content-Length")?.parse().ok()
    }

    pub fn has_no_body(&self, method: &str) -> bool {
        method == "HEAD" || self.status < 200 || self.status == 204 || self.status == 304
    }
}

/// What an origin was asked.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Request {
    /// Request line and headers as they came.
    pub head: String,
    /// Without its transfer coding.
    pub body: Vec<u8>,
    /// Which of the origin's connections it came on, from 0.
    pub connection: usize,
}

impl Request {
    pub fn line(&self) -> &str {
        self.head.split("\r\n").next().unwrap_or_default()
    }

    pub fn method(&self) -> &str {
        self.line().split(' ').next().unwrap_or_default()
    }

    pub fn target(&self) -> &str {
        self.line().split(' ').nth(1).unwrap_or_default()
    }

    pub fn header(&self, name: &str) -> Option<&str> {
        self.head.split("\r\n").skip(1).find_map(|line| {
            let (n, v) = line.split_once(':')?;
            n.eq_ignore_ascii_case(name).then(|| v.trim())
        })
    }

    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }
}

pub(crate) fn head_len(bytes: &[u8]) -> Option<usize> {
    bytes.windows(4).position(|w| w == b"\r\n\r\n").map(|at| at + 4)
}

pub(crate) fn latin1(bytes: &[u8]) -> String {
    bytes.iter().map(|&b| char::from(b)).collect()
}

fn find<'a>(headers: &'a [(String, String)], name: &str) -> Option<&'a str> {
    headers.iter().find(|(n, _)| n.eq_ignore_ascii_case(name)).map(|(_, v)| v.as_str())
}

fn fields<'a>(lines: impl Iterator<Item = &'a str>) -> Vec<(String, String)> {
    lines
        .take_while(|line| !line.is_empty())
        .filter_map(|line| line.split_once(':'))
        .map(|(n, v)| (n.to_string(), v.trim().to_string()))
        .collect()
}

type Dechunked = (Vec<u8>, Vec<(String, String)>, usize);

/// Body, trailers and length of a chunked body, if it is all there.
pub(crate) fn dechunk(bytes: &[u8]) -> Option<Dechunked> {
    let mut body = Vec::new();
    let mut at = 0;
    loop {
        let line_len = bytes.get(at..)?.windows(2).position(|w| w == b"\r\n")?;
        let line = latin1(&bytes[at..at + line_len]);
        let size = usize::from_str_radix(line.split(';').next()?.trim(), 16).ok()?;
        at += line_len + 2;
        if size == 0 {
            break;
        }
        body.extend_from_slice(bytes.get(at..at + size)?);
        assert_eq!(bytes.get(at + size..at + size + 2)?, b"\r\n", "a chunk without its end");
        at += size + 2;
    }
    let rest = bytes.get(at..)?;
    if rest.starts_with(b"\r\n") {
        return Some((body, Vec::new(), at + 2));
    }
    let len = head_len(rest)?;
    let text = latin1(&rest[..len]);
    Some((body, fields(text.split("\r\n")), at + len))
}
