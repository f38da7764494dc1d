//! Header blocks to the peer: indices of the fixed table and literals that are not indexed, so
//! that no state has to be kept and one worker's ready-made fields serve every connection.

use super::static_table::STATIC;
use crate::http2::huffman;

/// A name of the fixed table, by its index.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Known(u8);

impl Known {
    pub const AUTHORITY: Known = Known(1);
    pub const METHOD: Known = Known(2);
    pub const PATH: Known = Known(4);
    pub const CONTENT_LENGTH: Known = Known(28);
    pub const CONTENT_TYPE: Known = Known(31);
    pub const DATE: Known = Known(33);
    pub const LAST_MODIFIED: Known = Known(44);
    pub const LOCATION: Known = Known(46);
    pub const SERVER: Known = Known(54);
    pub const VARY: Known = Known(59);

    pub fn name(self) -> &'static [u8] {
        STATIC[usize::from(self.0) - 1].0
    }

    /// The one of that name, in any letters.
    fn of(name: &[u8]) -> Option<Known> {
        let same_length = BY_LENGTH.get(name.len())?.iter().take_while(|at| **at > 0);
        same_length.map(|at| Known(*at)).find(|known| known.name().eq_ignore_ascii_case(name))
    }
}

/// The longest name of the fixed table, and how many are of one length at most.
const NAME_MAX: usize = 27;
const SAME_LENGTH_MAX: usize = 8;

/// The fixed table's names by their lengths, zeroes behind them; those that begin with a colon are not among them.
static BY_LENGTH: [[u8; SAME_LENGTH_MAX]; NAME_MAX + 1] = by_length();

const fn by_length() -> [[u8; SAME_LENGTH_MAX]; NAME_MAX + 1] {
    let mut table = [[0; SAME_LENGTH_MAX]; NAME_MAX + 1];
    let mut at = 0;
    while at < STATIC.len() {
        let name = STATIC[at].0;
        if name[0] != b':' {
            let mut place = 0;
            while table[name.len()][place] > 0 {
                place += 1;
            }
            table[name.len()][place] = at as u8 + 1;
        }
        at += 1;
    }
    table
}

fn integer(first: u8, prefix_bits: u32, value: usize, out: &mut Vec<u8>) {
    let mask = (1usize << prefix_bits) - 1;
    if value < mask {
        return out.push(first | value as u8);
    }
    out.push(first | mask as u8);
    let mut rest = value - mask;
    while rest >= 0x80 {
        out.push(rest as u8 | 0x80);
        rest >>= 7;
    }
    out.push(rest as u8);
}

/// A string, coded when that is shorter.
fn string(text: &[u8], out: &mut Vec<u8>) {
    let coded = huffman::coded_len(text);
    if coded < text.len() {
        integer(0x80, 7, coded, out);
        huffman::encode_as(text, coded, out);
    } else {
        integer(0, 7, text.len(), out);
        out.extend_from_slice(text);
    }
}

fn plain(text: &[u8], out: &mut Vec<u8>) {
    integer(0, 7, text.len(), out);
    out.extend_from_slice(text);
}

/// Begins a block that tells the peer that its table stays empty; due once its size has been set.
pub const EMPTY_TABLE: u8 = 0x20;

/// `:method`, `:scheme`, `:path` and `:authority`.
pub fn request_line(
    method: &[u8],
    tls: bool,
    path: &[u8],
    authority: Option<&[u8]>,
    out: &mut Vec<u8>,
) {
    match method {
        b"GET" => out.push(0x82),
        b"POST" => out.push(0x83),
        _ => literal_known(Known::METHOD, method, out),
    }
    out.push(if tls { 0x87 } else { 0x86 });
    match path {
        b"/" => out.push(0x84),
        _ => literal_known(Known::PATH, path, out),
    }
    if let Some(authority) = authority {
        literal_known(Known::AUTHORITY, authority, out);
    }
}

/// `:status`
pub fn status(code: u16, out: &mut Vec<u8>) {
    match code {
        200 => out.push(0x88),
        204 => out.push(0x89),
        206 => out.push(0x8a),
        304 => out.push(0x8b),
        400 => out.push(0x8c),
        404 => out.push(0x8d),
        500 => out.push(0x8e),
        _ => {
            let digit = |n: u16| b'0' + (n % 10) as u8;
            out.extend_from_slice(&[8, 3, digit(code / 100), digit(code / 10), digit(code)]);
        }
    }
}

/// A field whose name is in the fixed table.
pub fn literal_known(name: Known, value: &[u8], out: &mut Vec<u8>) {
    integer(0, 4, usize::from(name.0), out);
    string(value, out);
}

/// As [`literal_known`], for short values that are made anew each time: not worth coding.
pub fn text_known(name: Known, value: &[u8], out: &mut Vec<u8>) {
    integer(0, 4, usize::from(name.0), out);
    plain(value, out);
}

/// A field with a name in small letters.
pub fn literal(name: &[u8], value: &[u8], out: &mut Vec<u8>) {
    out.push(0);
    string(name, out);
    string(value, out);
}

/// As [`literal`], with a name in any letters, of which the fixed table may have it.
pub fn literal_lower(name: &[u8], value: &[u8], out: &mut Vec<u8>) {
    const SHORT: usize = 64;
    if let Some(known) = Known::of(name) {
        return literal_known(known, value, out);
    }
    let mut small = [0; SHORT];
    match small.get_mut(..name.len()) {
        Some(small) => {
            small.copy_from_slice(name);
            small.make_ascii_lowercase();
            literal(small, value, out);
        }
        None => literal(&name.to_ascii_lowercase(), value, out),
    }
}
