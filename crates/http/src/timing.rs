//! What a request remembers of its last exchange with a backend, for variables and logs.

use weir_wire::http1::response::ResponseHead;

/// The last exchange with a backend: the answer's head stays readable until the next, or the request's end.
#[derive(Debug, Default)]
pub struct Exchange {
    /// The request as sent, up to its body.
    pub request: Vec<u8>,
    /// What was read first: the head, at `head_at`, and what came with it.
    pub reply: Vec<u8>,
    pub head_at: usize,
    pub head: ResponseHead,
    /// The head is complete.
    pub answered: bool,
    pub trailers: Vec<(Vec<u8>, Vec<u8>)>,
    /// `http://` and the like, for the error log; `None`: no server was to be asked.
    pub scheme: Option<&'static str>,
    /// Where in `request` the URI is.
    pub uri: (usize, usize),
}

/// Buffers kept for the next request, when no larger than this.
const KEEP_MAX_BYTES: usize = 64 * 1024;
/// The same for what was read.
const KEEP_REPLY_MAX_BYTES: usize = 1024;

impl Exchange {
    /// Forgets what was said and keeps the memory.
    #[inline]
    pub fn clear(&mut self) {
        if !self.is_clear() {
            self.forget();
        }
    }

    fn forget(&mut self) {
        match self.request.capacity() > KEEP_MAX_BYTES {
            true => self.request = Vec::new(),
            false => self.request.clear(),
        }
        // One that was read into is kept by the worker for whoever reads next: it is large, and not needed
        // before something is read. A head that was copied there is small.
        match self.reply.capacity() > KEEP_REPLY_MAX_BYTES {
            true => self.reply = Vec::new(),
            false => self.reply.clear(),
        }
        self.head.clear();
        self.trailers.clear();
        self.answered = false;
        self.scheme = None;
        self.head_at = 0;
        self.uri = (0, 0);
    }

    /// Nothing was asked since the last time; what is said has a scheme or a head.
    #[inline]
    fn is_clear(&self) -> bool {
        let is_silent = self.request.is_empty() && self.reply.is_empty() && self.scheme.is_none();
        is_silent && self.head.status == 0 && !self.answered
    }

    /// The bytes that the head's spans point into.
    pub fn head_bytes(&self) -> &[u8] {
        self.reply.get(self.head_at..).unwrap_or_default()
    }

    /// The fields of the answer, letter case kept.
    pub fn fields(&self) -> impl Iterator<Item = (&[u8], &[u8])> {
        let bytes = self.head_bytes();
        self.head.headers.iter().map(move |h| (h.name.of(bytes), h.value.of(bytes)))
    }

    pub fn uri(&self) -> &[u8] {
        self.request.get(self.uri.0..self.uri.1).unwrap_or_default()
    }
}
