//! Fields of the request that modules set and take away, and what follows from them.

use super::Request;
use weir_wire::http1::framing;
use weir_wire::http1::names::HeaderId;
use weir_wire::http1::request::{HeaderField, Version};
use weir_wire::Range32;

/// Beside the first line, what says who comes and from where.
const SAY_WHO: u64 = HeaderId::Host.bit() | HeaderId::Referer.bit() | HeaderId::UserAgent.bit();

#[inline]
fn says_who(field: &HeaderField) -> bool {
    field.id.bit() & SAY_WHO != 0
}

/// [`Request::head_text`]
#[derive(Clone, Copy, Debug)]
pub struct HeadText<'a> {
    /// As it came.
    pub text: &'a [u8],
    /// Where in it ends what is asked for.
    pub target_end: usize,
    /// Which of the fields have come, wherever.
    pub fields: u64,
}

impl Request {
    /// The text that came, from the first line to the end of one of the fields that say who comes and from where. If two requests
    /// have this, [`HeadText::fields`] and the end in common, and one's text holds all of those fields, then the other's does,
    /// and they say the same. `None` where that does not follow: fields were changed, or have not come as lines.
    #[inline]
    pub fn head_text(&self) -> Option<HeadText<'_>> {
        if self.flags.fields_changed || self.head.version >= Version::HTTP_20 {
            return None;
        }
        let line = self.head.request_line;
        let guess = self.conn().field_guess[self.guess_place()].get();
        let found = self.head.headers.get(usize::from(guess)).filter(|field| says_who(field));
        let end = found.or_else(|| self.last_field()).map_or(line.end, |field| field.value.end);
        let text = Range32 { start: line.start, end }.of(&self.buf);
        // Of a line that is refused nothing follows.
        let target_end = self.head.target.end.checked_sub(line.start)? as usize;
        let fields = self.head.seen & SAY_WHO;
        (target_end > 0 && !text.is_empty()).then_some(HeadText { text, target_end, fields })
    }

    /// The same with all of those fields. The connection's next requests, which mostly have them in the same places, then have, too.
    pub fn whole_head_text(&self) -> Option<HeadText<'_>> {
        let place = self.head.headers.iter().rposition(says_who).unwrap_or(0);
        self.conn().field_guess[self.guess_place()].set(u8::try_from(place).unwrap_or(u8::MAX));
        // Behind 255 others it is not found by a guess.
        self.head_text().filter(|_| place < usize::from(u8::MAX))
    }

    #[inline]
    fn guess_place(&self) -> usize {
        usize::from(self.head.has(HeaderId::Referer))
    }

    #[inline(never)]
    fn last_field(&self) -> Option<&HeaderField> {
        self.head.headers.iter().rev().find(|field| says_who(field))
    }

    /// Gives the first field of that name (letter case apart) the value, and takes the others away. Where there is
    /// none it is added, unless `only_if_there`. The value is one line. A `Host` is what the request is for from
    /// then on; a `Connection` that ends the connection ends it. `false`: that `Host` is none, and nothing is done.
    pub fn set_field_in(&mut self, name: &[u8], value: &[u8], only_if_there: bool) -> bool {
        let id = HeaderId::of(name);
        let is_it = |r: &Request, at: usize| {
            let field = &r.head.headers[at];
            field.name.of(&r.buf).eq_ignore_ascii_case(name)
        };
        let first = (0..self.head.headers.len()).find(|at| is_it(self, *at));
        if first.is_none() && only_if_there {
            return true;
        }
        if id == HeaderId::Host && framing::validate_host(value).is_err() {
            return false;
        }
        match first {
            None => self.add_header_in(name, value),
            Some(first) => {
                self.head.headers[first].value = self.keep(value);
                let mut at = 0;
                let (buf, headers) = (&self.buf, &mut self.head.headers);
                headers.retain(|field| {
                    at += 1;
                    at <= first + 1 || !field.name.of(buf).eq_ignore_ascii_case(name)
                });
            }
        }
        self.follow_field(id);
        true
    }

    /// Adds a field behind the others. The value is one line.
    pub fn append_field_in(&mut self, name: &[u8], value: &[u8]) {
        self.add_header_in(name, value);
        self.follow_field(HeaderId::of(name));
    }

    /// Takes away the fields whose names are meant. What follows from them is as if they had not come, but for the
    /// connection and the length of the body.
    pub fn remove_fields_in(&mut self, is_meant: impl Fn(&[u8]) -> bool) {
        self.flags.fields_changed = true;
        let had_host = self.head.has(HeaderId::Host);
        let (buf, headers) = (&self.buf, &mut self.head.headers);
        headers.retain(|field| !is_meant(field.name.of(buf)));
        self.head.seen = headers.iter().fold(0, |seen, field| seen | field.id.bit());
        if had_host && !self.head.has(HeaderId::Host) {
            self.follow_field(HeaderId::Host);
        }
    }

    fn follow_field(&mut self, id: HeaderId) {
        match id {
            HeaderId::Host => {
                let value = self.head.get(id).map(|field| field.value);
                let host = value.and_then(|span| framing::host_in(span, &self.buf));
                self.host.clear();
                if let Some(host) = host {
                    self.host.extend_from_slice(host.name.of(&self.buf));
                    self.host.make_ascii_lowercase();
                }
            }
            HeaderId::Connection => {
                let value = self.header(id).unwrap_or_default();
                if weir_base::bytes::find_ignore_case(value, b"close").is_some() {
                    self.flags.keepalive = false;
                }
            }
            _ => {}
        }
    }
}
