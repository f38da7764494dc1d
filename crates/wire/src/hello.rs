//! A TLS client's first message as a whole, for those who look at all of it (RFC 8446, section 4.1.2; RFC 5246,
//! section 7.4.1.2). [`crate::client_hello`] reads one that comes in pieces, and less of it.

/// The parts of a hello, as they stand in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Hello<'a> {
    /// The client's random bytes.
    pub random: &'a [u8],
    /// The session that it wants to go on with, of versions before 1.3; empty without one.
    pub session_id: &'a [u8],
    suites: &'a [u8],
    extensions: &'a [u8],
}

/// The extension that lists versions (RFC 8446, section 4.2.1).
pub const SUPPORTED_VERSIONS: u16 = 43;
/// The one that has a session's ticket (RFC 5077, section 3.2).
pub const SESSION_TICKET: u16 = 35;
/// The one that names sessions of TLS 1.3 (RFC 8446, section 4.2.11).
pub const PRE_SHARED_KEY: u16 = 41;

const HANDSHAKE: u8 = 22;
const CLIENT_HELLO: u8 = 1;

/// The message that records begin with, if it is whole and a hello.
pub fn message(mut records: &[u8]) -> Option<Vec<u8>> {
    let mut text = Vec::new();
    loop {
        if let Some(length) = text.get(1..4) {
            let length = length.iter().fold(0, |n, b| n << 8 | usize::from(*b));
            if text[0] != CLIENT_HELLO {
                return None;
            }
            if text.len() >= 4 + length {
                text.truncate(4 + length);
                return Some(text);
            }
        }
        let (head, rest) = records.split_at_checked(5)?;
        let length = usize::from(u16::from_be_bytes([head[3], head[4]]));
        if head[0] != HANDSHAKE {
            return None;
        }
        let (body, rest) = rest.split_at_checked(length)?;
        text.extend_from_slice(body);
        records = rest;
    }
}

fn take<'a>(text: &mut &'a [u8], n: usize) -> Option<&'a [u8]> {
    let (taken, rest) = text.split_at_checked(n)?;
    *text = rest;
    Some(taken)
}

fn short(text: &mut &[u8]) -> Option<u16> {
    take(text, 2).map(|b| u16::from_be_bytes([b[0], b[1]]))
}

impl<'a> Hello<'a> {
    /// The parts of a message.
    pub fn parse(message: &'a [u8]) -> Option<Hello<'a>> {
        let mut text = message.get(4..)?;
        short(&mut text)?;
        let random = take(&mut text, 32)?;
        let length = usize::from(take(&mut text, 1)?[0]);
        let session_id = take(&mut text, length)?;
        let length = usize::from(short(&mut text)?);
        let suites = take(&mut text, length)?;
        let length = usize::from(take(&mut text, 1)?[0]);
        take(&mut text, length)?;
        let extensions = match short(&mut text) {
            Some(length) => take(&mut text, length.into())?,
            None => &[],
        };
        Some(Hello { random, session_id, suites, extensions })
    }

    /// The suites that it offers, by their numbers.
    pub fn suites(&self) -> impl Iterator<Item = u16> + 'a {
        self.suites.chunks_exact(2).map(|b| u16::from_be_bytes([b[0], b[1]]))
    }

    /// The extensions: their numbers and what is in them.
    pub fn extensions(&self) -> impl Iterator<Item = (u16, &'a [u8])> + 'a {
        let mut text = self.extensions;
        std::iter::from_fn(move || {
            let kind = short(&mut text)?;
            let length = short(&mut text)?;
            Some((kind, take(&mut text, length.into())?))
        })
    }

    /// The extension of that number.
    pub fn extension(&self, number: u16) -> Option<&'a [u8]> {
        self.extensions().find(|e| e.0 == number).map(|e| e.1)
    }

    /// Whether it offers TLS 1.3.
    pub fn has_tls13(&self) -> bool {
        let versions = self.extension(SUPPORTED_VERSIONS).and_then(|v| v.get(1..));
        versions.is_some_and(|v| v.chunks_exact(2).any(|v| v == [3, 4]))
    }

    /// Whether it wants to go on with a session: one of TLS 1.3, a ticket, or one that the server has kept. (A
    /// client of TLS 1.3 sends a number that stands for none.)
    pub fn wants_session(&self) -> bool {
        self.extension(PRE_SHARED_KEY).is_some()
            || self.has_ticket()
            || !self.session_id.is_empty() && !self.has_tls13()
    }

    /// Whether it brings a ticket of a version before 1.3.
    pub fn has_ticket(&self) -> bool {
        self.extension(SESSION_TICKET).is_some_and(|t| !t.is_empty())
    }
}

/// A number that stands for nothing, so that servers do not trip over unknown ones (RFC 8701).
pub const fn is_grease(number: u16) -> bool {
    number & 0x0f0f == 0x0a0a && number >> 8 == number & 0xff
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hello(extensions: &[u8]) -> Vec<u8> {
        let mut text = vec![3, 3];
        text.extend_from_slice(&[7; 32]);
        text.extend_from_slice(&[2, 8, 9]);
        text.extend_from_slice(&[0, 4, 0x0a, 0x0a, 0x13, 1]);
        text.extend_from_slice(&[1, 0]);
        text.extend_from_slice(&(extensions.len() as u16).to_be_bytes());
        text.extend_from_slice(extensions);
        let mut message = vec![1, 0];
        message.extend_from_slice(&(text.len() as u16).to_be_bytes());
        message.extend_from_slice(&text);
        message
    }

    #[test]
    fn parts_over_records() {
        let whole = hello(&[0, 43, 0, 3, 2, 3, 4, 0, 35, 0, 0]);
        let mut records = Vec::new();
        for part in [&whole[..3], &whole[3..20], &whole[20..]] {
            records.extend_from_slice(&[22, 3, 1, 0, part.len() as u8]);
            records.extend_from_slice(part);
        }
        let read = message(&records).unwrap();
        assert_eq!(read, whole);
        for end in 0..records.len() {
            assert_eq!(message(&records[..end]), None);
        }
        let hello = Hello::parse(&read).unwrap();
        assert_eq!((hello.random, hello.session_id), (&[7; 32][..], &[8, 9][..]));
        assert_eq!(hello.suites().collect::<Vec<_>>(), [0x0a0a, 0x1301]);
        assert!(hello.has_tls13() && !hello.wants_session() && !hello.has_ticket());
        assert_eq!(hello.extension(1), None);
        for end in 0..whole.len() - 11 {
            // No part of it is believed further than it goes.
            let _ = Hello::parse(&whole[..end]);
        }
    }

    #[test]
    fn numbers_for_nothing() {
        let all = (0..=u16::MAX).filter(|n| is_grease(*n)).count();
        assert!(all == 16 && is_grease(0xfafa) && !is_grease(0x0a1a));
    }
}
