//! What a protocol wraps around an answer is taken off here, where it is read: behind a decoder an
//! answer is a head in text and the body's own bytes.

use std::fmt::Display;
use weir_wire::{fastcgi, memcached};

/// Bytes besides the answer, and behind how many bytes of the answer they stood.
pub type Aside = Vec<(usize, Vec<u8>)>;

pub struct Decoder {
    kind: Kind,
    /// What was wrong behind bytes that were good.
    broken: Option<String>,
}

enum Kind {
    /// With whether the connection is to be kept.
    Fastcgi(fastcgi::Decoder, bool),
    /// With whether what is to be noted has been.
    Memcached(memcached::Decoder, bool),
}

impl Decoder {
    pub fn fastcgi(keep_conn: bool) -> Decoder {
        Decoder { kind: Kind::Fastcgi(fastcgi::Decoder::default(), keep_conn), broken: None }
    }

    /// For the value of this key; `gzip_flag` is the bit of a compressed one's flags.
    pub fn memcached(key: &[u8], gzip_flag: u64, line_max_bytes: usize) -> Decoder {
        let decoder = memcached::Decoder::new(key, gzip_flag, line_max_bytes);
        Decoder { kind: Kind::Memcached(decoder, false), broken: None }
    }

    /// Takes what was read, `buf[from..]`, and leaves the answer's bytes there. What is wrong behind
    /// good bytes is told next time.
    pub(crate) fn decode(&mut self, buf: &mut Vec<u8>, from: usize) -> Result<(), String> {
        let done = match &mut self.kind {
            Kind::Fastcgi(records, _) => told(records.decode(buf, from)),
            Kind::Memcached(value, _) => told(value.decode(buf, from)),
        };
        match done {
            Err(text) if buf.len() > from => self.broken = Some(text),
            done => return done,
        }
        Ok(())
    }

    pub(crate) fn take_broken(&mut self) -> Option<String> {
        self.broken.take()
    }

    pub fn take_aside(&mut self) -> Aside {
        match &mut self.kind {
            Kind::Fastcgi(records, _) => std::mem::take(&mut records.errors),
            Kind::Memcached(..) => Aside::new(),
        }
    }

    /// What is to be noted of the answer, once, and whether it is grave.
    pub fn take_note(&mut self) -> Option<(bool, String)> {
        match &mut self.kind {
            Kind::Memcached(value, noted) if (value.missing || value.bad_end) && !*noted => {
                *noted = true;
                if value.bad_end {
                    return Some((true, "memcached sent invalid trailer".to_string()));
                }
                let key = String::from_utf8_lossy(&value.key);
                Some((false, format!("key: \"{key}\" was not found by memcached")))
            }
            _ => None,
        }
    }

    /// The connection outlives the answer.
    pub fn keeps(&self) -> bool {
        match &self.kind {
            Kind::Fastcgi(_, keep) => *keep,
            Kind::Memcached(..) => true,
        }
    }

    /// The body has come whole.
    pub fn has_ended(&self) -> bool {
        match &self.kind {
            Kind::Fastcgi(records, _) => records.ended,
            Kind::Memcached(value, _) => value.has_ended(),
        }
    }

    /// Why there will be no whole head any more.
    pub fn ended_early(&self) -> Option<&'static str> {
        match &self.kind {
            Kind::Fastcgi(records, _) if records.closed => {
                Some("upstream prematurely closed FastCGI stdout")
            }
            Kind::Fastcgi(records, _) if records.ending => {
                Some("upstream sent unexpected FastCGI record: 3")
            }
            Kind::Fastcgi(..) | Kind::Memcached(..) => None,
        }
    }

    /// Another request may follow.
    pub fn may_go_on(&self) -> bool {
        match &self.kind {
            Kind::Fastcgi(records, keep) => {
                *keep && records.ended && !records.excess && self.broken.is_none()
            }
            Kind::Memcached(value, _) => value.has_ended() && !value.bad_end && !value.excess,
        }
    }
}

fn told<T>(result: Result<T, impl Display>) -> Result<T, String> {
    result.map_err(|e| e.to_string())
}
