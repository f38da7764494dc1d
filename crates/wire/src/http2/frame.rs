//! Frame heads, and the frames this side writes (RFC 9113 sections 4.1 and 6).

use super::ErrorCode;

pub const HEAD_BYTES: usize = 9;

pub const DATA: u8 = 0;
pub const HEADERS: u8 = 1;
pub const PRIORITY: u8 = 2;
pub const RST_STREAM: u8 = 3;
pub const SETTINGS: u8 = 4;
pub const PUSH_PROMISE: u8 = 5;
pub const PING: u8 = 6;
pub const GOAWAY: u8 = 7;
pub const WINDOW_UPDATE: u8 = 8;
pub const CONTINUATION: u8 = 9;
/// RFC 9218 section 7.1.
pub const PRIORITY_UPDATE: u8 = 0x10;

pub const END_STREAM: u8 = 1;
pub const ACK: u8 = 1;
pub const END_HEADERS: u8 = 4;
pub const PADDED: u8 = 8;
pub const HAS_PRIORITY: u8 = 0x20;

pub const SETTING_HEADER_TABLE_SIZE: u16 = 1;
pub const SETTING_ENABLE_PUSH: u16 = 2;
pub const SETTING_MAX_CONCURRENT_STREAMS: u16 = 3;
pub const SETTING_INITIAL_WINDOW_SIZE: u16 = 4;
pub const SETTING_MAX_FRAME_SIZE: u16 = 5;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Head {
    pub len: usize,
    pub kind: u8,
    pub flags: u8,
    pub stream: u32,
}

impl Head {
    #[inline]
    pub fn parse(input: &[u8]) -> Option<Head> {
        let [a, b, c, kind, flags, s0, s1, s2, s3] = *input.first_chunk::<HEAD_BYTES>()?;
        Some(Head {
            len: usize::from(a) << 16 | usize::from(b) << 8 | usize::from(c),
            kind,
            flags,
            stream: u32::from_be_bytes([s0, s1, s2, s3]) & 0x7fff_ffff,
        })
    }

    pub fn has(&self, flag: u8) -> bool {
        self.flags & flag != 0
    }
}

pub fn u32_at(bytes: &[u8], at: usize) -> u32 {
    bytes.get(at..).and_then(|b| b.first_chunk()).map_or(0, |b| u32::from_be_bytes(*b))
}

/// The nine bytes before a payload.
#[inline]
pub fn head(len: usize, kind: u8, flags: u8, stream: u32) -> [u8; HEAD_BYTES] {
    let l = (len as u32).to_be_bytes();
    let s = stream.to_be_bytes();
    [l[1], l[2], l[3], kind, flags, s[0], s[1], s[2], s[3]]
}

pub fn settings(pairs: &[(u16, u32)], out: &mut Vec<u8>) {
    out.extend_from_slice(&head(pairs.len() * 6, SETTINGS, 0, 0));
    for (id, value) in pairs {
        out.extend_from_slice(&id.to_be_bytes());
        out.extend_from_slice(&value.to_be_bytes());
    }
}

pub fn settings_ack(out: &mut Vec<u8>) {
    out.extend_from_slice(&head(0, SETTINGS, ACK, 0));
}

pub fn window_update(stream: u32, bytes: u32, out: &mut Vec<u8>) {
    out.extend_from_slice(&head(4, WINDOW_UPDATE, 0, stream));
    out.extend_from_slice(&bytes.to_be_bytes());
}

pub fn rst_stream(stream: u32, code: ErrorCode, out: &mut Vec<u8>) {
    out.extend_from_slice(&head(4, RST_STREAM, 0, stream));
    out.extend_from_slice(&code.0.to_be_bytes());
}

pub fn goaway(last_stream: u32, code: ErrorCode, out: &mut Vec<u8>) {
    out.extend_from_slice(&head(8, GOAWAY, 0, 0));
    out.extend_from_slice(&last_stream.to_be_bytes());
    out.extend_from_slice(&code.0.to_be_bytes());
}

pub fn ping(flags: u8, payload: &[u8], out: &mut Vec<u8>) {
    out.extend_from_slice(&head(payload.len(), PING, flags, 0));
    out.extend_from_slice(payload);
}

/// A header block that was written from `at` on, behind room for a frame's head: fills the head
/// in and cuts what is too long for one frame into CONTINUATIONs.
pub fn finish_block(out: &mut Vec<u8>, at: usize, stream: u32, flags: u8, frame_max: usize) {
    let block = at + HEAD_BYTES;
    let len = out.len() - block;
    if len <= frame_max {
        let text = head(len, HEADERS, flags | END_HEADERS, stream);
        out[at..block].copy_from_slice(&text);
        return;
    }
    let whole = out.split_off(block);
    out.truncate(at);
    let pieces = whole.len().div_ceil(frame_max);
    for (i, piece) in whole.chunks(frame_max).enumerate() {
        let (kind, own) = if i == 0 { (HEADERS, flags) } else { (CONTINUATION, 0) };
        let end = if i + 1 == pieces { END_HEADERS } else { 0 };
        out.extend_from_slice(&head(piece.len(), kind, own | end, stream));
        out.extend_from_slice(piece);
    }
}
