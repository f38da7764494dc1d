//! A TLS client's first message, read without taking it: what `ssl_preread` tells of a connection
//! that is passed on as it is.
//!
//! The message may be spread over several records (RFC 8446, section 5.1), and it is judged record by
//! record, as nginx does. Nothing of it is believed further than the next length: a message that
//! cannot be followed is no TLS. Its name is not judged here.

/// The client's offer, as far as it decides where a connection goes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ClientHello {
    /// Empty if it asks for none.
    pub server_name: Vec<u8>,
    /// The protocols by ALPN, most wanted first.
    pub alpn: Vec<Vec<u8>>,
    /// The highest that is offered, as on the wire: 3, 3 for TLS 1.2.
    pub version: [u8; 2],
}

impl ClientHello {
    /// What `$ssl_preread_protocol` shows; empty for a version nobody knows.
    pub fn protocol(&self) -> &'static str {
        match self.version {
            [0, 2] => "SSLv2",
            [3, 0] => "SSLv3",
            [3, 1] => "TLSv1",
            [3, 2] => "TLSv1.1",
            [3, 3] => "TLSv1.2",
            [3, 4] => "TLSv1.3",
            _ => "",
        }
    }

    /// What `$ssl_preread_alpn_protocols` shows: the protocols with commas between them.
    pub fn alpn_protocols(&self) -> Vec<u8> {
        self.alpn.join(&b","[..])
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Progress {
    NeedMore,
    Hello(ClientHello),
    /// It is something else, or a hello that cannot be followed: the connection is passed on without
    /// anything known of it.
    NotTls,
}

/// What the next `size` bytes of the message are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Part {
    #[default]
    Header,
    Version,
    Random,
    SessionIdLen,
    SessionId,
    SuitesLen,
    Suites,
    CompressionLen,
    Compression,
    ExtensionsLen,
    /// What an extension holds that is not looked at.
    Skipped,
    ExtensionHeader,
    NameListLen,
    NameHead,
    Name,
    AlpnListLen,
    AlpnLen,
    Alpn,
    VersionsLen,
}

const RECORD_HEADER_BYTES: usize = 5;
const HANDSHAKE_RECORD: u8 = 0x16;
const CLIENT_HELLO: u8 = 1;
const HEADER_BYTES: usize = 4;
const RANDOM_BYTES: usize = 32;

const SERVER_NAME: u16 = 0;
const APPLICATION_PROTOCOLS: u16 = 16;
const SUPPORTED_VERSIONS: u16 = 43;

/// Reads the hello at the start of a connection.
#[derive(Clone, Debug, Default)]
pub struct Reader {
    /// Of the connection, what has been looked at: whole records.
    read: usize,
    /// The message without the records' headers.
    message: Vec<u8>,
    /// Of the message, what has been looked at.
    at: usize,
    size: usize,
    /// Where the message ends, once its header says so.
    end: Option<usize>,
    part: Part,
    /// What is left of a list inside an extension.
    list: usize,
    has_name: bool,
    has_alpn: bool,
    hello: ClientHello,
}

/// The message cannot be followed.
struct Lost;

impl Reader {
    pub fn new() -> Reader {
        Reader { size: HEADER_BYTES, ..Reader::default() }
    }

    /// Reads on; `buf` is all that has come of the connection.
    pub fn read(&mut self, buf: &[u8]) -> Progress {
        while let Some(record) = buf.get(self.read..).filter(|r| r.len() >= RECORD_HEADER_BYTES) {
            if let &[first, _, CLIENT_HELLO, major @ (0 | 3), minor, ..] = record {
                if first & 0x80 != 0 {
                    // A hello of version 2, which has neither names nor protocols.
                    self.hello.version = [major, minor];
                    return Progress::Hello(std::mem::take(&mut self.hello));
                }
            }
            let &[HANDSHAKE_RECORD, 3, _, high, low, ..] = record else { return Progress::NotTls };
            let end = RECORD_HEADER_BYTES + usize::from(u16::from_be_bytes([high, low]));
            let Some(payload) = record.get(RECORD_HEADER_BYTES..end) else {
                return Progress::NeedMore;
            };
            self.read += end;
            self.message.extend_from_slice(payload);
            match self.follow() {
                Ok(false) => {}
                Ok(true) => return Progress::Hello(std::mem::take(&mut self.hello)),
                Err(Lost) => return Progress::NotTls,
            }
        }
        Progress::NeedMore
    }

    /// Looks at what there is of the message; whether it has come to its end.
    fn follow(&mut self) -> Result<bool, Lost> {
        while let Some(field) = self.message.get(self.at..self.at + self.size) {
            let field = Field::of(field);
            self.at += self.size;
            let left = self.end.map(|end| end - self.at);
            if left == Some(0) && matches!(self.part, Part::Compression | Part::Skipped) {
                return Ok(true);
            }
            (self.part, self.size) = match self.part {
                Part::NameListLen | Part::NameHead | Part::Name => self.name_part(field)?,
                Part::AlpnListLen | Part::AlpnLen | Part::Alpn => self.alpn_part(field)?,
                Part::ExtensionHeader | Part::VersionsLen => self.extension_part(field),
                _ => self.fixed_part(field)?,
            };
            if self.end.is_some_and(|end| end - self.at < self.size) {
                return Err(Lost);
            }
        }
        Ok(false)
    }

    /// RFC 8446, section 4.1.2.
    fn fixed_part(&mut self, field: Field) -> Result<(Part, usize), Lost> {
        Ok(match self.part {
            Part::Header => {
                let [kind, len @ ..] = field.0;
                if kind != CLIENT_HELLO {
                    return Err(Lost);
                }
                let len = len.iter().fold(0, |len, &byte| len << 8 | usize::from(byte));
                self.end = Some(HEADER_BYTES + len);
                (Part::Version, 2)
            }
            Part::Version => {
                self.hello.version = field.low_two();
                (Part::Random, RANDOM_BYTES)
            }
            Part::Random => (Part::SessionIdLen, 1),
            Part::SessionIdLen => (Part::SessionId, field.low_one()),
            Part::SessionId => (Part::SuitesLen, 2),
            Part::SuitesLen => (Part::Suites, field.low_u16()),
            Part::Suites => (Part::CompressionLen, 1),
            Part::CompressionLen => (Part::Compression, field.low_one()),
            Part::Compression => (Part::ExtensionsLen, 2),
            // Their length is not needed: the message's end is theirs.
            _ => match self.end == Some(self.at) {
                true => (Part::Skipped, 0),
                false => (Part::ExtensionHeader, 4),
            },
        })
    }

    fn extension_part(&mut self, field: Field) -> (Part, usize) {
        if self.part == Part::VersionsLen {
            // Who knows the extension at all offers TLS 1.3 (RFC 8446, section 4.2.1).
            self.hello.version = [3, 4];
            return (Part::Skipped, field.low_one());
        }
        match field.high_u16() {
            SERVER_NAME if !self.has_name => (Part::NameListLen, 2),
            APPLICATION_PROTOCOLS if !self.has_alpn => (Part::AlpnListLen, 2),
            SUPPORTED_VERSIONS => (Part::VersionsLen, 1),
            _ => (Part::Skipped, field.low_u16()),
        }
    }

    /// RFC 6066, section 3: one name of the list, which has to be a host's.
    fn name_part(&mut self, field: Field) -> Result<(Part, usize), Lost> {
        Ok(match self.part {
            Part::NameListLen => {
                self.list = field.low_u16();
                (Part::NameHead, 3)
            }
            Part::NameHead => {
                const HOST_NAME: u8 = 0;
                const HEAD_BYTES: usize = 3;
                let (kind, len) = (field.0[1], field.low_u16());
                if kind != HOST_NAME {
                    return Err(Lost);
                }
                self.list = self.list.checked_sub(HEAD_BYTES + len).ok_or(Lost)?;
                self.has_name = true;
                (Part::Name, len)
            }
            _ => {
                self.hello.server_name = self.last_bytes();
                (Part::Skipped, self.list)
            }
        })
    }

    /// RFC 7301, section 3.1.
    fn alpn_part(&mut self, field: Field) -> Result<(Part, usize), Lost> {
        Ok(match self.part {
            Part::AlpnListLen => {
                self.list = field.low_u16();
                self.has_alpn = true;
                (Part::AlpnLen, 1)
            }
            Part::AlpnLen => {
                let len = field.low_one();
                if len == 0 {
                    return Err(Lost);
                }
                self.list = self.list.checked_sub(1 + len).ok_or(Lost)?;
                (Part::Alpn, len)
            }
            _ => {
                self.hello.alpn.push(self.last_bytes());
                match self.list {
                    0 => (Part::Skipped, 0),
                    _ => (Part::AlpnLen, 1),
                }
            }
        })
    }

    /// The field that was just looked at.
    fn last_bytes(&self) -> Vec<u8> {
        self.message.get(self.at - self.size..self.at).unwrap_or_default().to_vec()
    }
}

/// The last bytes of a field, at most four, with zeros before them.
#[derive(Clone, Copy)]
struct Field([u8; 4]);

impl Field {
    fn of(bytes: &[u8]) -> Field {
        let mut last = [0; 4];
        last.iter_mut().rev().zip(bytes.iter().rev()).for_each(|(to, from)| *to = *from);
        Field(last)
    }

    fn low_one(self) -> usize {
        usize::from(self.0[3])
    }

    fn low_two(self) -> [u8; 2] {
        [self.0[2], self.0[3]]
    }

    fn low_u16(self) -> usize {
        usize::from(u16::from_be_bytes(self.low_two()))
    }

    fn high_u16(self) -> u16 {
        u16::from_be_bytes([self.0[0], self.0[1]])
    }
}

#[cfg(test)]
mod tests;
