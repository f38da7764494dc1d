//! The response header under construction. Names and values are copied into one arena that is
//! reused from request to request, so adding a field allocates nothing. They stand there as the lines
//! that HTTP/1 sends, which can so be copied many at a time.

use crate::packing::Pack;
use weir_base::date::parse_http_time;
use weir_base::line;

#[derive(Clone, Copy, Default, Debug, PartialEq, Eq)]
pub(crate) struct Span {
    start: u32,
    len: u32,
}

impl Span {
    fn visit<P: Pack + ?Sized>(pack: &mut P, span: &mut Span) {
        pack.small(&mut span.start);
        pack.small(&mut span.len);
    }
}

#[derive(Default)]
struct Field {
    name: Span,
    value: Span,
}

/// Between a field's name and its value.
const COLON: &[u8; 2] = b": ";
/// Behind it.
const LINE_END: &[u8; 2] = b"\r\n";

impl Field {
    /// Where it stands as a line, with its end; not one that was given another value.
    fn line(&self) -> Option<(u32, u32)> {
        let value = self.name.start + self.name.len + COLON.len() as u32;
        let end = self.value.start + self.value.len + LINE_END.len() as u32;
        (self.value.start == value).then_some((self.name.start, end))
    }
}

/// The header of a response: the fields nginx keeps apart, and the list of the others.
#[derive(Default)]
pub struct HeadersOut {
    pub status: u16,
    /// The text after the status code when an upstream sent one of its own.
    status_line: Option<Span>,
    pub content_length: Option<u64>,
    /// Last modification in Unix seconds, sent as Last-Modified. Who asks for it asks
    /// [`HeadersOut::changed`].
    pub last_modified: Option<i64>,
    /// A Last-Modified of somebody else's is in the list, and is sent instead.
    pub has_last_modified: bool,
    content_type: Option<Span>,
    charset: Option<Span>,
    /// Type and charset as the upstream has written them, while they are what it said.
    said_type: Option<Span>,
    override_charset: Option<Span>,
    fields: Vec<Option<Field>>,
    /// Which of them is sent among those that nginx keeps apart.
    location: Option<usize>,
    arena: Vec<u8>,
    /// How many lines have been put into `arena`.
    lines: u32,
    /// Byte ranges of the body may be asked for.
    pub allow_ranges: bool,
    /// `charset`, `Date` and `Server` were set by the upstream and are in the list.
    pub has_date: bool,
    pub has_server: bool,
    /// Trailer fields, sent after a chunked body.
    pub trailers: Vec<(Vec<u8>, Vec<u8>)>,
}

impl HeadersOut {
    pub fn clear(&mut self) {
        let HeadersOut {
            status,
            status_line,
            content_length,
            last_modified,
            has_last_modified,
            content_type,
            charset,
            said_type,
            override_charset,
            fields,
            location,
            arena,
            lines,
            allow_ranges,
            has_date,
            has_server,
            trailers,
        } = self;
        *status = 0;
        *status_line = None;
        *content_length = None;
        *last_modified = None;
        *has_last_modified = false;
        *content_type = None;
        *charset = None;
        *said_type = None;
        *override_charset = None;
        fields.clear();
        *location = None;
        arena.clear();
        *lines = 0;
        *allow_ranges = false;
        *has_date = false;
        *has_server = false;
        trailers.clear();
    }

    /// All but the trailer fields.
    pub(crate) fn visit(&mut self, pack: &mut impl Pack) {
        let HeadersOut {
            status,
            status_line,
            content_length,
            last_modified,
            has_last_modified,
            content_type,
            charset,
            said_type,
            override_charset,
            fields,
            location,
            arena,
            lines,
            allow_ranges,
            has_date,
            has_server,
            trailers: _,
        } = self;
        pack.small(status);
        pack.small(lines);
        [status_line, content_type, charset, said_type, override_charset]
            .into_iter()
            .for_each(|text| pack.option(text, Span::visit));
        pack.option(content_length, Pack::num);
        pack.option(last_modified, |pack, secs| {
            let mut bits = *secs as u64;
            pack.num(&mut bits);
            *secs = bits as i64;
        });
        pack.list(fields, |pack, field| {
            pack.option(field, |pack, field| {
                Span::visit(pack, &mut field.name);
                Span::visit(pack, &mut field.value);
            });
        });
        pack.option(location, Pack::size);
        pack.bytes(arena);
        pack.flags([has_last_modified, allow_ranges, has_date, has_server]);
    }

    /// How much memory a cleared header keeps.
    pub(crate) fn kept_bytes(&self) -> usize {
        self.arena.capacity()
            + self.fields.capacity() * size_of::<Option<Field>>()
            + self.trailers.capacity() * size_of::<(Vec<u8>, Vec<u8>)>()
    }

    fn keep(&mut self, bytes: &[u8]) -> Span {
        let start = self.arena.len() as u32;
        self.arena.extend_from_slice(bytes);
        Span { start, len: bytes.len() as u32 }
    }

    /// Whether a name or value holds what would end its line, also of a field that was taken away again.
    pub(crate) fn is_broken(&self) -> bool {
        let breaks = self.arena.iter().filter(|b| matches!(b, b'\r' | b'\n' | 0)).count();
        breaks != self.lines as usize * LINE_END.len()
    }

    /// Makes a space of each such byte of what is sent.
    pub(crate) fn blank_breaks(&mut self) {
        let kept_apart = [self.status_line, self.content_type, self.charset, self.said_type];
        let fields = self.fields.iter().flatten().flat_map(|f| [f.name, f.value]);
        for span in kept_apart.into_iter().flatten().chain(fields) {
            line::blank_breaks(&mut self.arena[span.start as usize..][..span.len as usize]);
        }
    }

    fn of(&self, s: Span) -> &[u8] {
        &self.arena[s.start as usize..(s.start + s.len) as usize]
    }

    /// Adds a field at the end, whether or not one of that name exists.
    pub fn add(&mut self, name: &[u8], value: &[u8]) {
        let name = self.keep(name);
        self.arena.extend_from_slice(COLON);
        let value = self.keep(value);
        self.arena.extend_from_slice(LINE_END);
        self.lines += 1;
        self.fields.push(Some(Field { name, value }));
    }

    /// As [`HeadersOut::add`]; answers a number for [`HeadersOut::set_value`].
    pub fn add_numbered(&mut self, name: &[u8], value: &[u8]) -> usize {
        self.add(name, value);
        self.fields.len() - 1
    }

    /// Gives a field another value, if it is still there.
    pub fn set_value(&mut self, number: usize, value: &[u8]) {
        let value = self.keep(value);
        if let Some(Some(field)) = self.fields.get_mut(number) {
            field.value = value;
        }
    }

    /// Replaces every field of that name by one.
    pub fn set(&mut self, name: &[u8], value: &[u8]) {
        self.remove(name);
        self.add(name, value);
    }

    /// Puts a value behind the one that the last field of that name has; adds a field where there is none.
    pub fn append(&mut self, name: &[u8], separator: &[u8], value: &[u8]) {
        let is_it = |f: &Field| self.of(f.name).eq_ignore_ascii_case(name);
        let last = self.fields.iter().rposition(|f| f.as_ref().is_some_and(is_it));
        let before = last.and_then(|at| self.fields[at].as_ref()).map(|f| self.of(f.value));
        match (last, before) {
            (Some(at), Some(before)) => {
                let joined = [before, separator, value].concat();
                self.set_value(at, &joined);
            }
            _ => self.add(name, value),
        }
    }

    /// Gives the first field of that name the value, where it stands, and takes the others away; adds one where
    /// there is none.
    pub fn put(&mut self, name: &[u8], value: &[u8]) {
        let Some(first) = self.number_of(name) else { return self.add(name, value) };
        self.set_value(first, value);
        for at in first + 1..self.fields.len() {
            let is_it = |f: &Field| self.of(f.name).eq_ignore_ascii_case(name);
            if self.fields[at].as_ref().is_some_and(is_it) {
                self.fields[at] = None;
            }
        }
    }

    /// Takes away the fields whose names are meant.
    pub fn remove_where(&mut self, is_meant: impl Fn(&[u8]) -> bool) {
        for at in 0..self.fields.len() {
            if self.fields[at].as_ref().is_some_and(|f| is_meant(self.of(f.name))) {
                self.fields[at] = None;
            }
        }
    }

    /// Gives the first field of that name another value, where it stands.
    pub(crate) fn replace(&mut self, name: &[u8], value: &[u8]) {
        if let Some(number) = self.number_of(name) {
            self.set_value(number, value);
        }
    }

    /// Sends the first `Location` ahead of the list.
    pub(crate) fn lead_with_location(&mut self) {
        self.location = self.number_of(b"Location");
    }

    /// The `Location` that is sent ahead of the list.
    #[inline]
    pub(crate) fn leading_location(&self) -> Option<&[u8]> {
        let field = self.fields.get(self.location?)?.as_ref()?;
        Some(self.of(field.value))
    }

    /// The fields but the one that is sent ahead of them.
    #[cold]
    pub(crate) fn others(&self) -> impl Iterator<Item = (&[u8], &[u8])> {
        let fields = self.fields.iter().enumerate().filter(|(i, _)| Some(*i) != self.location);
        fields.filter_map(|(_, f)| f.as_ref()).map(|f| (self.of(f.name), self.of(f.value)))
    }

    fn number_of(&self, name: &[u8]) -> Option<usize> {
        let is_it = |f: &Field| self.of(f.name).eq_ignore_ascii_case(name);
        self.fields.iter().position(|f| f.as_ref().is_some_and(is_it))
    }

    pub fn remove(&mut self, name: &[u8]) {
        for i in 0..self.fields.len() {
            let hit =
                matches!(&self.fields[i], Some(f) if self.of(f.name).eq_ignore_ascii_case(name));
            if hit {
                self.fields[i] = None;
            }
        }
    }

    /// The first field of that name.
    pub fn get(&self, name: &[u8]) -> Option<&[u8]> {
        self.iter().find(|(n, _)| n.eq_ignore_ascii_case(name)).map(|(_, v)| v)
    }

    /// The fields in order, letter case kept.
    pub fn iter(&self) -> impl Iterator<Item = (&[u8], &[u8])> {
        self.fields.iter().flatten().map(|f| (self.of(f.name), self.of(f.value)))
    }

    /// Writes the fields in order as lines, those that stand behind one another at once.
    #[inline]
    pub(crate) fn write_lines(&self, text: &mut Vec<u8>) {
        let mut run = (0, 0);
        for field in self.fields.iter().flatten() {
            match field.line() {
                Some((start, end)) if start == run.1 => run.1 = end,
                Some(line) => {
                    self.write_run(run, text);
                    run = line;
                }
                None => {
                    self.write_run(run, text);
                    run = (0, 0);
                    let parts = [self.of(field.name), COLON, self.of(field.value), LINE_END];
                    parts.into_iter().for_each(|part| text.extend_from_slice(part));
                }
            }
        }
        self.write_run(run, text);
    }

    #[inline]
    fn write_run(&self, (start, end): (u32, u32), text: &mut Vec<u8>) {
        if end > 0 {
            text.extend_from_slice(&self.arena[start as usize..end as usize]);
        }
    }

    pub fn set_content_type(&mut self, value: &[u8]) {
        self.content_type = Some(self.keep(value));
        self.charset = None;
        self.said_type = None;
    }

    /// As a module has it, with the charset in it where there is one.
    pub fn set_content_type_with(&mut self, value: &[u8]) {
        match charset_in(value) {
            Some((kind, charset)) => self.set_said_content_type(value, kind, Some(charset)),
            None => self.set_content_type(value),
        }
    }

    /// As an upstream has written it; `kind` is its part before the charset.
    pub fn set_said_content_type(&mut self, value: &[u8], kind: &[u8], charset: Option<&[u8]>) {
        self.set_content_type(kind);
        if let Some(charset) = charset {
            self.set_charset(charset);
            self.said_type = Some(self.keep(value));
        }
    }

    /// What the field `Content-Type` is put together from.
    #[inline]
    pub fn content_type_parts(&self) -> Option<[&[u8]; 3]> {
        if let Some(said) = self.said_type {
            return Some([self.of(said), b"", b""]);
        }
        let kind = self.content_type()?;
        Some(match self.charset() {
            Some(charset) => [kind, b"; charset=", charset],
            None => [kind, b"", b""],
        })
    }

    pub fn clear_content_type(&mut self) {
        self.content_type = None;
        self.charset = None;
        self.said_type = None;
    }

    pub fn content_type(&self) -> Option<&[u8]> {
        self.content_type.map(|s| self.of(s))
    }

    /// The charset that a filter added; sent as `; charset=` behind the content type.
    pub fn set_charset(&mut self, value: &[u8]) {
        self.charset = Some(self.keep(value));
        self.said_type = None;
    }

    pub fn charset(&self) -> Option<&[u8]> {
        self.charset.map(|s| self.of(s))
    }

    /// The charset that a backend wants the response to be recoded to (`X-Accel-Charset`).
    pub fn set_override_charset(&mut self, value: &[u8]) {
        self.override_charset = Some(self.keep(value));
    }

    pub fn override_charset(&self) -> Option<&[u8]> {
        self.override_charset.map(|s| self.of(s))
    }

    /// `200 Fine`: the status line an upstream sent, after the version.
    pub fn set_status_line(&mut self, value: &[u8]) {
        self.status_line = Some(self.keep(value));
    }

    pub fn clear_status_line(&mut self) {
        self.status_line = None;
    }

    pub fn status_line(&self) -> Option<&[u8]> {
        self.status_line.map(|s| self.of(s))
    }

    /// The content length is no longer known or no longer true.
    pub fn clear_content_length(&mut self) {
        self.content_length = None;
        self.remove(b"Content-Length");
    }

    /// The last modification in Unix seconds. What an upstream has written is read by who asks for it: few do.
    pub fn changed(&self) -> Option<i64> {
        match self.has_last_modified {
            true => self.get(b"Last-Modified").and_then(parse_http_time),
            false => self.last_modified,
        }
    }

    pub fn clear_last_modified(&mut self) {
        self.last_modified = None;
        self.has_last_modified = false;
        self.remove(b"Last-Modified");
    }

    pub fn clear_etag(&mut self) {
        self.remove(b"ETag");
    }

    /// A strong entity tag becomes a weak one (a filter changes the body).
    pub fn weaken_etag(&mut self) {
        let Some(etag) = self.get(b"ETag") else { return };
        if etag.starts_with(b"W/") {
            return;
        }
        if etag.len() < 2 || etag[0] != b'"' || etag[etag.len() - 1] != b'"' {
            self.clear_etag();
            return;
        }
        let weak = [b"W/", etag].concat();
        self.set(b"ETag", &weak);
    }
}

/// The part before the charset, and the charset.
fn charset_in(value: &[u8]) -> Option<(&[u8], &[u8])> {
    let at = value.iter().enumerate().filter(|(_, b)| **b == b';').map(|(at, _)| at);
    for at in at {
        let parameter = value[at + 1..].trim_ascii_start();
        if weir_base::bytes::starts_with_ignore_case(parameter, b"charset=") {
            let charset = &parameter[b"charset=".len()..];
            let charset = charset.strip_prefix(b"\"").unwrap_or(charset);
            return Some((&value[..at], charset.strip_suffix(b"\"").unwrap_or(charset)));
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(out: &HeadersOut) -> String {
        let (mut text, mut one_by_one) = (Vec::new(), Vec::new());
        out.write_lines(&mut text);
        for (name, value) in out.iter() {
            one_by_one.extend_from_slice(&[name, b": ", value, b"\r\n"].concat());
        }
        assert_eq!(text, one_by_one);
        String::from_utf8(text).unwrap()
    }

    #[test]
    fn fields_are_written_as_lines_whatever_was_done_with_them() {
        let mut out = HeadersOut::default();
        assert_eq!(lines(&out), "");
        out.add(b"A", b"1");
        out.set_content_type(b"text/html");
        out.add(b"B", b"");
        out.add(b"C", b"3");
        let number = out.add_numbered(b"D", b"4");
        out.add(b"E", b"5");
        assert_eq!(lines(&out), "A: 1\r\nB: \r\nC: 3\r\nD: 4\r\nE: 5\r\n");
        out.remove(b"c");
        out.set_value(number, b"other");
        assert_eq!(lines(&out), "A: 1\r\nB: \r\nD: other\r\nE: 5\r\n");
        out.set(b"A", b"last");
        assert_eq!(lines(&out), "B: \r\nD: other\r\nE: 5\r\nA: last\r\n");
        assert!(!out.is_broken());
        out.clear();
        assert_eq!(lines(&out), "");
    }

    #[test]
    fn what_would_end_a_line_is_found_and_blanked() {
        for text in [&b"\r\nX: y"[..], b"a\r\n", b"a\nb", b"\0", b"\r"] {
            let blank =
                |text: &[u8]| String::from_utf8_lossy(text).replace(['\r', '\n', '\0'], " ");
            let mut out = HeadersOut::default();
            out.add(b"A", b"1");
            out.add(b"B", text);
            out.add(b"C", b"3");
            assert!(out.is_broken());
            out.blank_breaks();
            assert_eq!(lines(&out), format!("A: 1\r\nB: {}\r\nC: 3\r\n", blank(text)));
            assert!(!out.is_broken());
            let mut out = HeadersOut::default();
            out.set_content_type(text);
            assert!(out.is_broken());
            out.blank_breaks();
            assert_eq!(out.content_type().unwrap(), blank(text).as_bytes());
        }
    }
}
