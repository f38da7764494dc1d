//! A session of `stream` or `mail` that is over.

use super::access::{Tls, Upstream};
use super::{number, related, text, text_if_any, Tail};

/// How it went, as ECS has it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Went {
    Well,
    Badly,
    /// Nothing was asked for.
    #[default]
    Unknown,
}

/// A session that is over. A text that is empty is not there.
#[derive(Clone, Copy, Debug, Default)]
pub struct Session<'a> {
    /// `2026-01-31T23:59:59.123Z`
    pub stamp: &'a [u8],
    pub duration_us: u64,
    /// `stream` or `mail`
    pub block: &'a str,
    /// `tcp` or `udp`
    pub transport: &'a str,
    /// What is spoken, where that is known: `imap`, `pop3`, `smtp`.
    pub protocol: &'a str,
    /// A number in `stream`, a word in `mail`.
    pub status: &'a [u8],
    pub went: Went,
    /// An address, or `unix:`.
    pub client: &'a [u8],
    pub client_port: u16,
    /// What the client connected to; empty where that is no IP address.
    pub local: &'a [u8],
    pub local_port: u16,
    pub bytes_received: u64,
    pub bytes_sent: u64,
    pub user: &'a [u8],
    pub server_name: &'a [u8],
    pub tls: Option<Tls<'a>>,
    /// The last server that was asked, and how many there were.
    pub upstreams: Option<(Upstream<'a>, usize)>,
    /// Which connection.
    pub connection: u64,
}

impl Session<'_> {
    /// Appends the document.
    pub fn push(&self, out: &mut Vec<u8>) {
        self.push_event(out);
        self.push_sides(out);
        self.push_network(out);
        if let Some(tls) = &self.tls {
            tls.push(out);
        }
        text(out, b",\"nginx\":{\"session\":{\"block\":", self.block.as_bytes());
        number(out, b",\"connection\":", self.connection);
        text_if_any(out, b",\"status\":", self.status);
        text_if_any(out, b",\"server_name\":", self.server_name);
        if let Some((upstream, tries)) = &self.upstreams {
            upstream.push(*tries, out);
        }
        out.extend_from_slice(b"}}");
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
            b"\",\"event\":{\"kind\":\"event\",\"category\":[\"network\"],\
              \"type\":[\"connection\",\"end\"],\"module\":\"nginx\",\"dataset\":\"nginx.session\",\"outcome\":",
        );
        out.extend_from_slice(match self.went {
            Went::Well => b"\"success\"",
            Went::Badly => b"\"failure\"",
            Went::Unknown => b"\"unknown\"",
        });
        // Nanoseconds.
        number(out, b",\"duration\":", self.duration_us.saturating_mul(1000));
        out.push(b'}');
    }

    fn push_sides(&self, out: &mut Vec<u8>) {
        text(out, b",\"source\":{\"address\":", self.client);
        if !self.client.starts_with(b"unix:") {
            text(out, b",\"ip\":", self.client);
            number(out, b",\"port\":", self.client_port.into());
        }
        number(out, b",\"bytes\":", self.bytes_received);
        number(out, b"},\"destination\":{\"bytes\":", self.bytes_sent);
        if !self.local.is_empty() {
            text(out, b",\"address\":", self.local);
            text(out, b",\"ip\":", self.local);
            number(out, b",\"port\":", self.local_port.into());
        }
        out.push(b'}');
        if !self.user.is_empty() {
            text(out, b",\"user\":{\"name\":", self.user);
            out.push(b'}');
        }
        related(out, [self.client, self.local], self.user);
    }

    fn push_network(&self, out: &mut Vec<u8>) {
        text(out, b",\"network\":{\"transport\":", self.transport.as_bytes());
        text_if_any(out, b",\"protocol\":", self.protocol.as_bytes());
        number(out, b",\"bytes\":", self.bytes_received.saturating_add(self.bytes_sent));
        out.push(b'}');
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{json, Value};

    fn read(session: &Session) -> Value {
        let mut out = Vec::new();
        session.write(&Tail::new("logs", "nginx.session", "default", "web1"), &mut out);
        serde_json::from_slice(&out).unwrap()
    }

    #[test]
    fn every_field_has_its_place() {
        let upstream = Upstream {
            address: b"127.0.0.1:143",
            connect_us: Some(3),
            header_us: Some(4),
            response_us: Some(5),
            bytes_sent: 10,
            bytes_received: 20,
            ..Upstream::default()
        };
        let doc = read(&Session {
            stamp: b"2026-11-23T05:30:00.123Z",
            duration_us: 1500,
            block: "mail",
            transport: "tcp",
            protocol: "imap",
            status: b"proxied",
            went: Went::Well,
            client: b"::1",
            client_port: 4711,
            local: b"::2",
            local_port: 143,
            bytes_received: 30,
            bytes_sent: 12,
            user: b"m\"e",
            server_name: b"mail.test",
            tls: Some(Tls { version: "1.3", cipher: "A", server_name: b"m.test" }),
            upstreams: Some((upstream, 1)),
            connection: 5,
        });
        crate::ecs::page::agrees(&doc);
        assert_eq!(doc["event"]["outcome"], "success");
        assert_eq!(doc["event"]["duration"], 1_500_000);
        let source = json!({"address": "::1", "ip": "::1", "port": 4711, "bytes": 30});
        assert_eq!(doc["source"], source);
        assert_eq!(doc["related"]["ip"], json!(["::1", "::2"]));
        let destination = json!({"address": "::2", "ip": "::2", "port": 143, "bytes": 12});
        assert_eq!(doc["destination"], destination);
        let network = json!({"transport": "tcp", "protocol": "imap", "bytes": 42});
        assert_eq!(doc["network"], network);
        assert_eq!(doc["user"]["name"], "m\"e");
        assert_eq!(doc["tls"]["version"], "1.3");
        assert_eq!(
            doc["nginx"]["session"],
            json!({"block": "mail", "connection": 5, "status": "proxied", "server_name": "mail.test",
                "upstream": {"address": "127.0.0.1:143", "tries": 1, "connect_duration": 3000, "header_duration": 4000, "response_duration": 5000,
                    "bytes_sent": 10, "bytes_received": 20}})
        );
        assert_eq!(doc["data_stream"]["dataset"], "nginx.session");
    }

    #[test]
    fn what_is_not_there_is_left_out() {
        let doc = read(&Session { client: b"unix:", transport: "tcp", ..Session::default() });
        assert_eq!(doc["source"], json!({"address": "unix:", "bytes": 0}));
        assert_eq!(doc["destination"], json!({"bytes": 0}));
        assert_eq!(doc["event"]["outcome"], "unknown");
        assert_eq!(doc["user"], Value::Null);
    }
}
