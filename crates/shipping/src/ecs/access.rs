//! A request and its answer.

use super::{number, push_text, related, text, text_if_any, Tail};
use weir_base::bytes::push_hex;

/// Addresses of `X-Forwarded-For` that are told.
const FORWARDED_MAX: usize = 16;
const ADDRESS_MAX_BYTES: usize = 64;

/// A request that was answered. A text that is empty is not there.
#[derive(Clone, Copy, Debug, Default)]
pub struct Access<'a> {
    /// `2026-01-31T23:59:59.123Z`
    pub stamp: &'a [u8],
    pub duration_us: u64,
    pub method: &'a [u8],
    /// As it came, undecoded.
    pub uri: &'a [u8],
    /// `1.1`
    pub version: &'a [u8],
    pub host: &'a [u8],
    pub status: u16,
    pub bytes_sent: u64,
    pub body_bytes_sent: u64,
    pub bytes_received: u64,
    pub request_body_bytes: u64,
    pub referrer: &'a [u8],
    pub user_agent: &'a [u8],
    pub content_type: &'a [u8],
    /// An address, or `unix:`.
    pub client: &'a [u8],
    pub client_port: u16,
    pub user: &'a [u8],
    /// `X-Forwarded-For`
    pub forwarded: &'a [u8],
    pub server_name: &'a [u8],
    pub tls: Option<Tls<'a>>,
    pub upstreams: Upstreams<'a>,
    /// Which connection, and which of its requests.
    pub connection: (u64, u64),
    /// The trace that it belongs to, and its span where that is known.
    pub trace: Option<([u8; 16], Option<[u8; 8]>)>,
}

/// What was agreed upon.
#[derive(Clone, Copy, Debug, Default)]
pub struct Tls<'a> {
    /// `1.3`
    pub version: &'a str,
    pub cipher: &'a str,
    pub server_name: &'a [u8],
}

/// A server that was asked.
#[derive(Clone, Copy, Debug, Default)]
pub struct Upstream<'a> {
    pub address: &'a [u8],
    pub status: u16,
    pub connect_us: Option<u64>,
    pub header_us: Option<u64>,
    pub response_us: Option<u64>,
    pub bytes_sent: u64,
    pub bytes_received: u64,
}

/// The last one that was asked, and how many there were.
pub type Upstreams<'a> = Option<(Upstream<'a>, usize)>;

impl Access<'_> {
    /// Appends the document.
    pub fn push(&self, out: &mut Vec<u8>) {
        self.push_event(out);
        self.push_client(out);
        self.push_http(out);
        self.push_url(out);
        text_if_any(out, b",\"user_agent\":{\"original\":", self.user_agent);
        if !self.user_agent.is_empty() {
            out.push(b'}');
        }
        if let Some(tls) = &self.tls {
            tls.push(out);
        }
        if let Some((trace, span)) = &self.trace {
            id(out, b",\"trace\":{\"id\":\"", trace);
            if let Some(span) = span {
                id(out, b",\"span\":{\"id\":\"", span);
            }
        }
        self.push_nginx(out);
    }

    /// All of it.
    pub fn write(&self, tail: &Tail, out: &mut Vec<u8>) {
        self.push(out);
        tail.push(out);
    }

    fn push_event(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(b"{\"@timestamp\":\"");
        out.extend_from_slice(self.stamp);
        out.extend_from_slice(
            b"\",\"event\":{\"kind\":\"event\",\"category\":[\"web\"],\"type\":[\"access\"],\
              \"module\":\"nginx\",\"dataset\":\"nginx.access\",\"outcome\":",
        );
        out.extend_from_slice(if self.status < 400 { b"\"success\"" } else { b"\"failure\"" });
        // Nanoseconds.
        number(out, b",\"duration\":", self.duration_us.saturating_mul(1000));
        out.push(b'}');
    }

    fn push_client(&self, out: &mut Vec<u8>) {
        text(out, b",\"source\":{\"address\":", self.client);
        if !self.client.starts_with(b"unix:") {
            text(out, b",\"ip\":", self.client);
            number(out, b",\"port\":", self.client_port.into());
        }
        out.push(b'}');
        if !self.user.is_empty() {
            text(out, b",\"user\":{\"name\":", self.user);
            out.push(b'}');
        }
        related(out, [self.client, b""], self.user);
    }

    fn push_http(&self, out: &mut Vec<u8>) {
        number(out, b",\"http\":{\"request\":{\"bytes\":", self.bytes_received);
        text_if_any(out, b",\"method\":", self.method);
        text_if_any(out, b",\"referrer\":", self.referrer);
        if self.request_body_bytes > 0 {
            number(out, b",\"body\":{\"bytes\":", self.request_body_bytes);
            out.push(b'}');
        }
        number(out, b"},\"response\":{\"status_code\":", self.status.into());
        number(out, b",\"bytes\":", self.bytes_sent);
        number(out, b",\"body\":{\"bytes\":", self.body_bytes_sent);
        out.push(b'}');
        text_if_any(out, b",\"mime_type\":", self.content_type);
        out.push(b'}');
        text_if_any(out, b",\"version\":", self.version);
        out.push(b'}');
    }

    fn push_url(&self, out: &mut Vec<u8>) {
        let scheme: &[u8] = if self.tls.is_some() { b"https" } else { b"http" };
        text(out, b",\"url\":{\"scheme\":", scheme);
        text_if_any(out, b",\"domain\":", self.host);
        text_if_any(out, b",\"original\":", self.uri);
        if self.uri.starts_with(b"/") {
            let (path, query) =
                weir_base::bytes::split_once(self.uri, b'?').unwrap_or((self.uri, b""));
            text(out, b",\"path\":", path);
            text_if_any(out, b",\"query\":", query);
        }
        out.push(b'}');
    }

    fn push_nginx(&self, out: &mut Vec<u8>) {
        number(out, b",\"nginx\":{\"access\":{\"connection\":", self.connection.0);
        number(out, b",\"connection_requests\":", self.connection.1);
        text_if_any(out, b",\"server_name\":", self.server_name);
        // As filebeat has it: those of the header, then the client.
        out.extend_from_slice(b",\"remote_ip_list\":[");
        let named = self.forwarded.split(|b| matches!(b, b',' | b' ')).filter(|a| !a.is_empty());
        for address in named.take(FORWARDED_MAX) {
            push_text(out, &address[..address.len().min(ADDRESS_MAX_BYTES)]);
            out.push(b',');
        }
        push_text(out, self.client);
        out.push(b']');
        if let Some((upstream, tries)) = &self.upstreams {
            upstream.push(*tries, out);
        }
        out.extend_from_slice(b"}}");
    }
}

/// With the braces' ends.
fn id(out: &mut Vec<u8>, lead: &[u8], id: &[u8]) {
    out.extend_from_slice(lead);
    push_hex(out, id);
    out.extend_from_slice(b"\"}");
}

impl Tls<'_> {
    pub(super) fn push(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(b",\"tls\":{\"version_protocol\":\"tls\"");
        text_if_any(out, b",\"version\":", self.version.as_bytes());
        text_if_any(out, b",\"cipher\":", self.cipher.as_bytes());
        text_if_any(out, b",\"client\":{\"server_name\":", self.server_name);
        out.extend_from_slice(if self.server_name.is_empty() { b"}" } else { b"}}" });
    }
}

impl Upstream<'_> {
    pub(super) fn push(&self, tries: usize, out: &mut Vec<u8>) {
        text(out, b",\"upstream\":{\"address\":", self.address);
        number(out, b",\"tries\":", tries as u64);
        if self.status > 0 {
            number(out, b",\"status_code\":", self.status.into());
        }
        // Nanoseconds, as event.duration is.
        let times: [(&[u8], Option<u64>); 3] = [
            (b",\"connect_duration\":", self.connect_us),
            (b",\"header_duration\":", self.header_us),
            (b",\"response_duration\":", self.response_us),
        ];
        for (lead, us) in times {
            if let Some(us) = us {
                number(out, lead, us.saturating_mul(1000));
            }
        }
        number(out, b",\"bytes_sent\":", self.bytes_sent);
        number(out, b",\"bytes_received\":", self.bytes_received);
        out.push(b'}');
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{json, Value};

    fn tail() -> Tail {
        Tail::new("logs", "nginx.access", "default", "web1")
    }

    fn read(access: &Access) -> Value {
        let mut out = Vec::new();
        access.write(&tail(), &mut out);
        serde_json::from_slice(&out).unwrap()
    }

    #[test]
    fn every_field_has_its_place() {
        let doc = read(&Access {
            stamp: b"2026-11-23T05:30:00.123Z",
            duration_us: 1500,
            method: b"POST",
            uri: b"/a%20b?c=\"d\"",
            version: b"1.1",
            host: b"a.test",
            status: 502,
            bytes_sent: 300,
            body_bytes_sent: 150,
            bytes_received: 500,
            request_body_bytes: 77,
            referrer: b"http://r/",
            user_agent: b"curl/8",
            content_type: b"text/html",
            client: b"10.0.0.1",
            client_port: 4711,
            user: b"me",
            forwarded: b"1.2.3.4, 5.6.7.8",
            server_name: b"a.test",
            tls: Some(Tls {
                version: "1.3",
                cipher: "TLS_AES_128_GCM_SHA256",
                server_name: b"a.test",
            }),
            upstreams: Some((
                Upstream {
                    address: b"127.0.0.1:8080",
                    status: 502,
                    connect_us: Some(2),
                    header_us: Some(5),
                    response_us: Some(9),
                    bytes_sent: 10,
                    bytes_received: 20,
                },
                2,
            )),
            connection: (5, 6),
            trace: Some(([0xab; 16], Some([0xcd; 8]))),
        });
        crate::ecs::page::agrees(&doc);
        assert_eq!(doc["trace"]["id"], "ab".repeat(16));
        assert_eq!(doc["span"]["id"], "cd".repeat(8));
        assert_eq!(doc["related"], json!({"ip": ["10.0.0.1"], "user": ["me"]}));
        assert_eq!(doc["@timestamp"], "2026-11-23T05:30:00.123Z");
        assert_eq!(doc["event"]["duration"], 1_500_000);
        assert_eq!(doc["event"]["outcome"], "failure");
        assert_eq!(doc["source"], json!({"address": "10.0.0.1", "ip": "10.0.0.1", "port": 4711}));
        assert_eq!(doc["user"]["name"], "me");
        assert_eq!(
            doc["http"],
            json!({
                "request": {"bytes": 500, "method": "POST", "referrer": "http://r/", "body": {"bytes": 77}},
                "response": {"status_code": 502, "bytes": 300, "body": {"bytes": 150}, "mime_type": "text/html"},
                "version": "1.1",
            })
        );
        assert_eq!(
            doc["url"],
            json!({"scheme": "https", "domain": "a.test", "original": "/a%20b?c=\"d\"", "path": "/a%20b", "query": "c=\"d\""})
        );
        assert_eq!(doc["user_agent"], json!({"original": "curl/8"}));
        assert_eq!(doc["tls"]["client"]["server_name"], "a.test");
        let nginx = &doc["nginx"]["access"];
        assert_eq!(nginx["remote_ip_list"], json!(["1.2.3.4", "5.6.7.8", "10.0.0.1"]));
        assert_eq!(
            nginx["upstream"],
            json!({"address": "127.0.0.1:8080", "tries": 2, "status_code": 502, "connect_duration": 2000,
                   "header_duration": 5000, "response_duration": 9000, "bytes_sent": 10, "bytes_received": 20})
        );
        assert_eq!(doc["data_stream"]["dataset"], "nginx.access");
    }

    #[test]
    fn what_is_not_there_is_left_out() {
        let doc = read(&Access { client: b"unix:", status: 400, ..Access::default() });
        assert_eq!(doc["source"], json!({"address": "unix:"}));
        assert_eq!(doc["url"], json!({"scheme": "http"}));
        for name in ["tls", "user", "user_agent", "related", "trace", "span"] {
            assert_eq!(doc.get(name), None, "{name}");
        }
        assert_eq!(doc["nginx"]["access"].get("upstream"), None);
    }

    #[test]
    fn a_document_has_a_bound() {
        for byte in [b'"', 1, b'x', 0xff] {
            let long = vec![byte; 100_000];
            let access = Access {
                uri: &long,
                referrer: &long,
                user_agent: &long,
                forwarded: &long,
                ..Access::default()
            };
            let mut out = Vec::new();
            access.write(&tail(), &mut out);
            assert!(out.len() < crate::record::EVENT_MAX_BYTES, "{}", out.len());
            assert!(serde_json::from_slice::<Value>(&out).is_ok());
        }
    }
}
