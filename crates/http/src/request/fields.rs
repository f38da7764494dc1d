//! Fields of the request that modules set and take away, and what follows from them.

use super::Request;
use weir_wire::http1::framing;
use weir_wire::http1::names::HeaderId;

impl Request {
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
