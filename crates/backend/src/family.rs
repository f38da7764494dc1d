//! What a protocol that requests are passed on by says of itself: a [`Family`] is a table of constants
//! and functions, and all that the engine knows of it. One is a file of its own with its rows and
//! variables, and a line in the program's list of modules.
//!
//! Towards the engine an answer is always a head in text and the body's own bytes: what a protocol
//! wraps around them is taken off by the link's decoder, where they are read.

use crate::ask::Ask;
use crate::framing::Frame;
use crate::link::decoder::Wrapping;
use crate::link::Link;
use crate::target::Schemes;
use weir_http::Request;
use weir_wire::http1::response::{ResponseField, Start};

/// A protocol that requests are passed on by.
pub(crate) struct Family {
    /// What its directives begin with, without the underscore.
    pub(crate) name: &'static str,
    /// The same for its TLS.
    pub(crate) ssl: &'static str,
    pub(crate) schemes: Schemes,
    /// Fields of answers that stay here.
    pub(crate) hidden: &'static [&'static [u8]],
    /// It has directives for buffers and temporary files.
    pub(crate) buffers: bool,
    /// Writes the request into the exchange. Answers whether an answer to it has no body, or the
    /// status to answer with.
    pub(crate) write: fn(&mut Request, &Ask) -> Result<bool, u16>,
    /// How the head of an answer begins.
    pub(crate) start: Start,
    /// Writes what an answer is kept under where the configuration does not say; without it the
    /// configuration has to.
    pub(crate) key: Option<fn(&mut Request, &mut Vec<u8>)>,
    pub(crate) ways: Ways,
}

/// What is asked of a family besides: most have little of it.
pub(crate) struct Ways {
    /// Where answers are wrapped, which is taken off as they are read.
    pub(crate) wrapping: Option<MakeWrapping>,
    /// What servers say besides their answers.
    pub(crate) aside: Option<Aside>,
    /// Writes a piece of a request's body with what is put around it; the last one ends the body.
    pub(crate) frame: Option<Frame>,
    /// That puts nothing around the pieces, and only adds something behind the last.
    pub(crate) frames_end_only: bool,
    /// Servers may say something before they answer (RFC 9110, section 15.2).
    pub(crate) interim: bool,
    /// A connection is for one answer, and its end may be the answer's.
    pub(crate) one_answer: bool,
    /// Over HTTP/2, whether `Host` goes as a field, without an authority.
    pub(crate) host_field: fn(&Request) -> bool,
    /// Hears that a whole head has come; all that was read is the exchange's.
    pub(crate) head_came: Option<fn(&mut Request, &Link)>,
    /// A server's want of `Date` and `Server` is passed on.
    pub(crate) passes_want: bool,
    /// Copies `Location`, `Refresh` or `Set-Cookie` in the client's terms.
    pub(crate) rewrite: Option<fn(&mut Request, &ResponseField)>,
    /// HEAD is asked for by GET where answers are kept.
    pub(crate) converts_head: bool,
}

/// Makes what knows how the answer to a request, in text, is wrapped.
pub(crate) type MakeWrapping = fn(&Request, &[u8]) -> Box<dyn Wrapping>;

/// What becomes of what a server says besides its answer.
#[derive(Clone, Copy)]
pub(crate) struct Aside {
    /// Logs it, with what was being done.
    pub(crate) log: fn(&Request, &[u8], &str),
    /// Whether it makes the answer invalid.
    pub(crate) is_fatal: fn(&Request, &[u8]) -> bool,
}

impl Ways {
    /// None of it.
    pub(crate) const PLAIN: Ways = Ways {
        wrapping: None,
        aside: None,
        frame: None,
        frames_end_only: false,
        interim: false,
        one_answer: false,
        host_field: |_| false,
        head_came: None,
        passes_want: false,
        rewrite: None,
        converts_head: false,
    };
}

/// What servers that run CGI programs say to this server alone.
pub(crate) const HIDDEN_CGI: &[&[u8]] = &[
    b"Status",
    b"X-Accel-Expires",
    b"X-Accel-Redirect",
    b"X-Accel-Limit-Rate",
    b"X-Accel-Buffering",
    b"X-Accel-Charset",
];
