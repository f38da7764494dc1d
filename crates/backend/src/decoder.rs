//! What the engine does with a link's decoder: which one a protocol needs, and what a server has to
//! say besides its answer.

use crate::exchange::Fault;
use crate::families::fastcgi::{self, FastcgiLoc};
use crate::families::memcached::{self, MemcachedLoc};
use crate::family::Wire;
use weir_core::logger::LogLevel;
use weir_core::Session;
use weir_http::Request;
use weir_upstream::decoder::Decoder;

/// The decoder for the answer to this request; none where answers come as they are.
pub fn of(r: &Request, wire: Wire, request: &[u8]) -> Option<Box<Decoder>> {
    match wire {
        Wire::Http | Wire::Grpc | Wire::Cgi => None,
        Wire::Fastcgi => {
            let keep = *r.loc().conf::<FastcgiLoc>().keep_conn;
            Some(Box::new(Decoder::fastcgi(keep)))
        }
        Wire::Memcached => {
            let conf = r.loc().conf::<MemcachedLoc>();
            let max = usize::try_from(*conf.backend.buffer_size).unwrap_or(usize::MAX);
            let key = memcached::asked_key(request);
            Some(Box::new(Decoder::memcached(key, *conf.gzip_flag, max)))
        }
    }
}

/// What a server said besides its answer, and behind how many bytes of the answer.
pub type Aside = Vec<(usize, Vec<u8>)>;

/// Logs it.
pub fn log_aside(r: &Request, decoder: &mut Decoder, doing: &str) -> Aside {
    if let Some((grave, text)) = decoder.take_note() {
        let level = if grave { LogLevel::Error } else { LogLevel::Info };
        r.log(level, &format!("{text} while {doing}"));
    }
    let aside = decoder.take_aside();
    for (_, text) in &aside {
        let mut line = b"FastCGI sent in stderr: \"".to_vec();
        line.extend_from_slice(fastcgi::trimmed(text));
        line.extend_from_slice(b"\" while ");
        line.extend_from_slice(doing.as_bytes());
        r.log_bytes(LogLevel::Error, &line);
    }
    aside
}

/// Whether what was said before the end of the head makes the answer invalid.
pub fn judge_aside(r: &Request, aside: &Aside, head_len: usize) -> Result<(), Fault> {
    let caught = aside.iter().any(|(at, text)| *at < head_len && fastcgi::catches(r, text));
    match caught {
        true => Err(Fault::Invalid),
        false => Ok(()),
    }
}
