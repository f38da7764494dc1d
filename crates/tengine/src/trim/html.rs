//! HTML without its comments and most of its blanks, piece by piece.
//!
//! What is in `pre` and `textarea`, in scripts and styles that are not to be trimmed, in quotes, and in comments of
//! SSI, ESI and old browsers stays as it is.

use super::script::Script;
use super::sink::{is_space, Sink};
use super::style::Style;

/// A tag's name, an attribute's and a value are not looked at beyond this.
const WORD_MAX_BYTES: usize = 32;
const PRE: &[&[u8]] = &[b"</pre", b"<pre"];
const TEXTAREA: &[&[u8]] = &[b"</textarea"];
const SCRIPT: &[&[u8]] = &[b"</script"];
const STYLE: &[&[u8]] = &[b"</style"];
const IE_END: &[u8] = b"<![endif]-->";

/// What is inside an element that is not HTML.
enum Inner {
    Copied,
    Script(Box<Script>),
    Style(Box<Style>),
}

impl Inner {
    fn put(&mut self, c: u8, out: &mut Sink) {
        match self {
            Inner::Copied => out.put(c),
            Inner::Script(script) => script.put(c, out),
            Inner::Style(style) => style.put(c, out),
        }
    }

    fn finish(&mut self, out: &mut Sink) {
        match self {
            Inner::Copied => {}
            Inner::Script(script) => script.finish(out),
            Inner::Style(style) => style.finish(out),
        }
    }
}

enum State {
    Text,
    /// Behind a `<`, which is not written yet.
    Open,
    /// `<!`, which may become a comment.
    Bang,
    /// `<!--`, and perhaps `[if`.
    CommentStart,
    /// Taken away: how many dashes are right before this.
    Comment(u8),
    /// Copied.
    KeptComment(u8),
    /// Copied up to `<![endif]-->`, of which so much is there.
    IeComment(usize),
    TagName,
    Tag,
    Quote(u8),
    /// Up to one of these tags.
    Inner(Inner, &'static [&'static [u8]]),
}

pub struct Html {
    state: State,
    out: Sink,
    /// Bytes that are not decided on.
    held: Vec<u8>,
    /// A blank is due in front of what comes.
    blank: bool,
    tag: Tag,
    pre_depth: u32,
    js: bool,
    css: bool,
}

/// The tag that is being read, in lower case.
#[derive(Default)]
struct Tag {
    name: Vec<u8>,
    attribute: Vec<u8>,
    value: Vec<u8>,
    has_attributes: bool,
    wants_value: bool,
    /// The value of `type`.
    kind: Option<Vec<u8>>,
}

impl Tag {
    fn end_attribute(&mut self) {
        if self.attribute == b"type" {
            self.kind = Some(self.value.trim_ascii().to_vec());
        }
        self.has_attributes |= !self.attribute.is_empty();
        self.attribute.clear();
        self.value.clear();
        self.wants_value = false;
    }

    /// Of that type, by its word or because nothing is said.
    fn is_of(&self, kind: &[u8]) -> bool {
        match &self.kind {
            Some(said) => said == kind,
            None => !self.has_attributes,
        }
    }
}

fn push(word: &mut Vec<u8>, c: u8) {
    if word.len() < WORD_MAX_BYTES {
        word.push(c.to_ascii_lowercase());
    }
}

impl Html {
    /// `js` and `css`: whether scripts and styles are trimmed, too.
    pub fn new(js: bool, css: bool) -> Html {
        Html {
            state: State::Text,
            out: Sink { text: Vec::new(), last: b' ' },
            held: Vec::new(),
            blank: false,
            tag: Tag::default(),
            pre_depth: 0,
            js,
            css,
        }
    }

    /// What is left of a piece; some of it may come with the next.
    pub fn trim(&mut self, text: &[u8]) -> Vec<u8> {
        self.out.text.reserve(text.len());
        text.iter().for_each(|c| self.put(*c));
        std::mem::take(&mut self.out.text)
    }

    /// What is left when nothing more comes.
    pub fn finish(&mut self) -> Vec<u8> {
        if let State::Inner(inner, _) = &mut self.state {
            self.held.drain(..).for_each(|c| inner.put(c, &mut self.out));
            inner.finish(&mut self.out);
        }
        if matches!(self.state, State::Open) {
            self.held.push(b'<');
        }
        if !self.held.is_empty() {
            self.flush();
        }
        std::mem::take(&mut self.out.text)
    }

    fn put(&mut self, c: u8) {
        match self.state {
            State::Text => self.text(c),
            State::Open => self.open(c),
            State::Bang => self.bang(c),
            State::CommentStart => self.comment_start(c),
            State::Comment(dashes) => {
                self.state = ended(dashes, c).map_or(State::Text, State::Comment)
            }
            State::KeptComment(dashes) => {
                self.out.put(c);
                self.state = ended(dashes, c).map_or(State::Text, State::KeptComment);
            }
            State::IeComment(seen) => self.ie_comment(c, seen),
            State::TagName => self.tag_name(c),
            State::Tag => self.in_tag(c),
            State::Quote(quote) => {
                self.out.put(c);
                match c == quote {
                    true => self.state = State::Tag,
                    false => push(&mut self.tag.value, c),
                }
            }
            State::Inner(..) => self.inner(c),
        }
    }

    fn text(&mut self, c: u8) {
        match c {
            b'\r' => {}
            b'\n' => {
                self.blank = false;
                if self.out.last != b'\n' {
                    self.out.put(b'\n');
                }
            }
            b' ' | b'\t' => self.blank = self.out.last != b'\n',
            b'<' => self.state = State::Open,
            _ => {
                self.flush();
                self.out.put(c);
            }
        }
    }

    /// The blank that is due, and what was held.
    fn flush(&mut self) {
        if std::mem::take(&mut self.blank) {
            self.out.put(b' ');
        }
        let held = std::mem::take(&mut self.held);
        self.out.put_all(&held);
    }

    fn open(&mut self, c: u8) {
        if c == b'!' {
            self.held.extend_from_slice(b"<!");
            self.state = State::Bang;
            return;
        }
        self.flush();
        self.out.put(b'<');
        match c {
            b'<' => {}
            _ if c.is_ascii_alphabetic() || c == b'/' => {
                self.begin_tag(&[c]);
                self.out.put(c);
            }
            _ => {
                self.state = State::Text;
                self.text(c);
            }
        }
    }

    fn begin_tag(&mut self, name: &[u8]) {
        self.tag = Tag { name: name.to_ascii_lowercase(), ..Tag::default() };
        self.state = State::TagName;
    }

    fn bang(&mut self, c: u8) {
        if c == b'-' {
            self.held.push(c);
            if self.held == b"<!--" {
                self.state = State::CommentStart;
            }
            return;
        }
        self.flush();
        self.begin_tag(b"!");
        self.tag_name(c);
    }

    fn comment_start(&mut self, c: u8) {
        self.held.push(c);
        match &self.held[..] {
            b"<!--#" | b"<!--e" => {
                self.flush();
                self.state = State::KeptComment(0);
            }
            b"<!--[if" => {
                self.flush();
                self.state = State::IeComment(0);
            }
            b"<!--[" | b"<!--[i" => {}
            _ => {
                self.state = State::Comment(2);
                for c in std::mem::take(&mut self.held).into_iter().skip(b"<!--".len()) {
                    self.put(c);
                }
            }
        }
    }

    fn ie_comment(&mut self, c: u8, seen: usize) {
        self.out.put(c);
        let seen = match c {
            _ if IE_END.get(seen) == Some(&c) => seen + 1,
            b'<' => 1,
            _ => 0,
        };
        self.state = if seen == IE_END.len() { State::Text } else { State::IeComment(seen) };
    }

    fn tag_name(&mut self, c: u8) {
        if is_space(c) || c == b'>' {
            self.state = State::Tag;
            return self.in_tag(c);
        }
        self.out.put(c);
        push(&mut self.tag.name, c);
    }

    fn in_tag(&mut self, c: u8) {
        if is_space(c) {
            self.blank = true;
            return;
        }
        let blank = std::mem::take(&mut self.blank);
        if c == b'>' {
            self.tag.end_attribute();
            self.out.put(c);
            return self.end_tag();
        }
        let is_value = self.tag.wants_value && self.out.last == b'=';
        if c == b'=' && !is_value {
            self.tag.wants_value = true;
            return self.out.put(c);
        }
        if blank && !is_value {
            self.tag.end_attribute();
            self.out.put(b' ');
        }
        self.out.put(c);
        match self.tag.wants_value {
            _ if matches!(c, b'"' | b'\'') && (blank || is_value) => self.state = State::Quote(c),
            true => push(&mut self.tag.value, c),
            false => push(&mut self.tag.attribute, c),
        }
    }

    fn end_tag(&mut self) {
        self.state = match &self.tag.name[..] {
            b"textarea" => State::Inner(Inner::Copied, TEXTAREA),
            b"script" if self.js && self.tag.is_of(b"text/javascript") => {
                State::Inner(Inner::Script(Box::new(Script::new())), SCRIPT)
            }
            b"script" => State::Inner(Inner::Copied, SCRIPT),
            b"style" if self.css && self.tag.is_of(b"text/css") => {
                State::Inner(Inner::Style(Box::new(Style::new())), STYLE)
            }
            b"style" => State::Inner(Inner::Copied, STYLE),
            b"pre" => {
                self.pre_depth = self.pre_depth.saturating_add(1);
                State::Inner(Inner::Copied, PRE)
            }
            b"/pre" => {
                self.pre_depth = self.pre_depth.saturating_sub(1);
                match self.pre_depth {
                    0 => State::Text,
                    _ => State::Inner(Inner::Copied, PRE),
                }
            }
            _ => State::Text,
        };
    }

    /// In an element that ends with one of the tags.
    fn inner(&mut self, c: u8) {
        let State::Inner(inner, tags) = &mut self.state else { return };
        let is_whole = tags.iter().any(|tag| tag.eq_ignore_ascii_case(&self.held));
        if is_whole && (is_space(c) || matches!(c, b'>' | b'/')) {
            inner.finish(&mut self.out);
            let tag = std::mem::take(&mut self.held);
            self.out.put_all(&tag);
            self.begin_tag(&tag[1..]);
            return self.tag_name(c);
        }
        self.held.push(c);
        let held = &self.held;
        let may_be =
            |tag: &&[u8]| tag.get(..held.len()).is_some_and(|t| t.eq_ignore_ascii_case(held));
        if tags.iter().any(may_be) {
            return;
        }
        // Tags begin with a "<" and have no other, so that only the last byte may begin one anew.
        self.held.pop();
        self.held.drain(..).for_each(|c| inner.put(c, &mut self.out));
        match c {
            b'<' => self.held.push(c),
            _ => inner.put(c, &mut self.out),
        }
    }
}

/// How many dashes are before the next byte of a comment; none: it has ended.
fn ended(dashes: u8, c: u8) -> Option<u8> {
    match c {
        b'-' => Some(dashes.saturating_add(1)),
        b'>' if dashes >= 2 => None,
        _ => Some(0),
    }
}
