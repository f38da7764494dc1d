//! How an answer is relayed that is kept too: to whom, and when the client no longer counts.

use crate::cache::fill::Fill;
use crate::fault::Fault;
use weir_http::Request;

pub(crate) struct Keep {
    /// Takes the body, if it is kept.
    pub(crate) fill: Option<Box<Fill>>,
    pub(crate) buffering: bool,
    /// The client's going does not end it.
    pub(crate) ignore_abort: bool,
    /// Nothing is sent: nobody waits, or no longer.
    pub(crate) silent: bool,
    pub(crate) client_gone: bool,
}

impl Keep {
    #[inline]
    pub(crate) fn new(buffering: bool) -> Keep {
        Keep { fill: None, buffering, ignore_abort: false, silent: false, client_gone: false }
    }

    #[inline]
    pub(crate) fn write(&mut self, r: &Request, bytes: &[u8]) {
        if let Some(fill) = &mut self.fill {
            fill.write(r, bytes);
        }
    }

    pub(crate) fn is_quiet(&self, r: &Request) -> bool {
        self.silent || r.flags.header_only
    }

    /// A client that has gone ends the relay, unless the answer is kept all the same: of a part, what has come is.
    pub(crate) fn unless_kept(&mut self, sent: Result<(), Fault>) -> Result<(), Fault> {
        match sent {
            Err(Fault::ClientGone) if self.fill.as_ref().is_some_and(|f| !f.is_part()) => {
                self.silent = true;
                self.client_gone = true;
                Ok(())
            }
            sent => sent,
        }
    }

    /// The answer was cut off.
    pub(crate) fn cut(&mut self, r: &Request) {
        if let Some(fill) = self.fill.take() {
            fill.cut(r);
        }
    }

    #[inline(always)]
    pub(crate) fn finish(&mut self, r: &Request) {
        if let Some(fill) = self.fill.take() {
            fill.finish(r);
        }
    }
}
