//! What a protocol wraps around an answer is taken off here, where it is read: behind a decoder an
//! answer is a head in text and the body's own bytes.

/// Bytes besides the answer, and behind how many bytes of the answer they stood.
pub(crate) type Aside = Vec<(usize, Vec<u8>)>;

/// How a protocol wraps one answer, and how far that has come.
pub(crate) trait Wrapping {
    /// Takes what was read, `buf[from..]`, and leaves the answer's bytes there. An error, in words for
    /// the log: what follows them is wrong.
    fn decode(&mut self, buf: &mut Vec<u8>, from: usize) -> Result<(), String>;

    /// The body has come whole.
    fn has_ended(&self) -> bool;

    /// Another request may follow.
    fn may_go_on(&self) -> bool;

    /// The connection outlives the answer.
    fn keeps(&self) -> bool {
        true
    }

    /// The server likely has a process for this connection, that nobody else can use while it is idle.
    fn holds_process(&self) -> bool {
        false
    }

    /// Why there will be no whole head any more.
    fn ended_early(&self) -> Option<&'static str> {
        None
    }

    /// What the server has said besides the answer.
    fn take_aside(&mut self) -> Aside {
        Aside::new()
    }

    /// What is to be noted of the answer, once, and whether it is grave.
    fn take_note(&mut self) -> Option<(bool, String)> {
        None
    }
}

/// Takes one answer out of what it comes in.
pub(crate) struct Decoder {
    /// What the protocol knows of it.
    pub wrapping: Box<dyn Wrapping>,
    /// What was wrong behind bytes that were good.
    broken: Option<String>,
}

impl Decoder {
    /// For the answer to the request that is sent next.
    pub(crate) fn new(wrapping: Box<dyn Wrapping>) -> Decoder {
        Decoder { wrapping, broken: None }
    }

    /// As [`Wrapping::decode`]; what is wrong behind good bytes is told next time.
    pub(crate) fn decode(&mut self, buf: &mut Vec<u8>, from: usize) -> Result<(), String> {
        match self.wrapping.decode(buf, from) {
            Err(text) if buf.len() > from => self.broken = Some(text),
            done => return done,
        }
        Ok(())
    }

    pub(crate) fn take_broken(&mut self) -> Option<String> {
        self.broken.take()
    }

    pub(crate) fn may_go_on(&self) -> bool {
        self.broken.is_none() && self.wrapping.may_go_on()
    }
}
