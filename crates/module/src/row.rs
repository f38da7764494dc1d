//! The directive row: the only source of a directive's name, contexts, arity, default and words.

use crate::{Cf, ConfResult, Directive};

/// Where a directive may stand; a set of bits.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Context(pub u32);

impl Context {
    pub const MAIN: Context = Context(1);
    pub const EVENTS: Context = Context(1 << 1);
    pub const HTTP: Context = Context(1 << 2);
    pub const SERVER: Context = Context(1 << 3);
    pub const LOCATION: Context = Context(1 << 4);
    pub const UPSTREAM: Context = Context(1 << 5);
    /// `if` in a server.
    pub const SIF: Context = Context(1 << 6);
    /// `if` in a location.
    pub const LIF: Context = Context(1 << 7);
    /// `limit_except`.
    pub const LMT: Context = Context(1 << 8);

    pub const STREAM: Context = Context(1 << 9);
    /// `server` in `stream`.
    pub const STREAM_SERVER: Context = Context(1 << 10);
    /// `upstream` in `stream`.
    pub const STREAM_UPSTREAM: Context = Context(1 << 11);

    pub const MAIL: Context = Context(1 << 12);
    /// `server` in `mail`.
    pub const MAIL_SERVER: Context = Context(1 << 13);

    /// `ship`, of the main context.
    pub const SHIP: Context = Context(1 << 14);
    /// `otel_exporter`, of `http`.
    pub const OTEL_EXPORTER: Context = Context(1 << 15);

    pub const MS: Context = Context(Self::MAIL.0 | Self::MAIL_SERVER.0);
    pub const SS: Context = Context(Self::STREAM.0 | Self::STREAM_SERVER.0);
    pub const HSL: Context = Context(Self::HTTP.0 | Self::SERVER.0 | Self::LOCATION.0);
    pub const HS: Context = Context(Self::HTTP.0 | Self::SERVER.0);

    pub const fn or(self, other: Context) -> Context {
        Context(self.0 | other.0)
    }

    pub const fn has(self, other: Context) -> bool {
        self.0 & other.0 != 0
    }

    /// The names of the contexts, as nginx's documentation writes them.
    pub fn names(self) -> Vec<&'static str> {
        const NAMES: [(Context, &str); 16] = [
            (Context::MAIN, "main"),
            (Context::EVENTS, "events"),
            (Context::HTTP, "http"),
            (Context::SERVER, "server"),
            (Context::LOCATION, "location"),
            (Context::UPSTREAM, "upstream"),
            (Context::SIF, "if in server"),
            (Context::LIF, "if in location"),
            (Context::LMT, "limit_except"),
            (Context::STREAM, "stream"),
            (Context::STREAM_SERVER, "server in stream"),
            (Context::STREAM_UPSTREAM, "upstream in stream"),
            (Context::MAIL, "mail"),
            (Context::MAIL_SERVER, "server in mail"),
            (Context::SHIP, "ship"),
            (Context::OTEL_EXPORTER, "otel_exporter"),
        ];
        NAMES.iter().filter(|(c, _)| self.has(*c)).map(|(_, n)| *n).collect()
    }
}

/// How many arguments a directive takes: a set of counts, or a lower bound.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Arity {
    /// Bit n: n arguments are right.
    counts: u32,
    /// At least this many are right, whatever the bits say; `u32::MAX` for none.
    least: u32,
    flag: bool,
}

impl Arity {
    pub const NONE: Arity = Arity::of(1);
    pub const NONE_ONE: Arity = Arity::of(1 | 1 << 1);
    pub const NONE_TO_TWO: Arity = Arity::of(1 | 1 << 1 | 1 << 2);
    pub const ONE: Arity = Arity::of(1 << 1);
    pub const TWO: Arity = Arity::of(1 << 2);
    pub const THREE: Arity = Arity::of(1 << 3);
    pub const ONE_TWO: Arity = Arity::of(1 << 1 | 1 << 2);
    pub const ONE_TO_THREE: Arity = Arity::of(1 << 1 | 1 << 2 | 1 << 3);
    pub const ONE_TO_FOUR: Arity = Arity::of(1 << 1 | 1 << 2 | 1 << 3 | 1 << 4);
    pub const TWO_THREE: Arity = Arity::of(1 << 2 | 1 << 3);
    pub const ONE_MORE: Arity = Arity { counts: 0, least: 1, flag: false };
    pub const TWO_MORE: Arity = Arity { counts: 0, least: 2, flag: false };
    pub const ANY: Arity = Arity { counts: 0, least: 0, flag: false };
    /// One argument, `on` or `off`.
    pub const FLAG: Arity = Arity { counts: 1 << 1, least: u32::MAX, flag: true };

    const fn of(counts: u32) -> Arity {
        Arity { counts, least: u32::MAX, flag: false }
    }

    pub fn fits(self, n: usize) -> bool {
        n as u32 >= self.least || (n < 32 && self.counts & (1 << n) != 0)
    }

    pub fn is_flag(self) -> bool {
        self.flag
    }

    /// In words, for `weir help`.
    pub fn describe(self) -> String {
        if self.flag {
            return "on | off".into();
        }
        if self.least != u32::MAX {
            return match self.least {
                0 => "any number of arguments".into(),
                n => format!("{n} or more arguments"),
            };
        }
        let counts: Vec<String> =
            (0..32).filter(|n| self.counts & (1 << n) != 0).map(|n: u32| n.to_string()).collect();
        match counts.as_slice() {
            [one] if one == "0" => "no arguments".into(),
            [one] if one == "1" => "1 argument".into(),
            list => format!("{} arguments", list.join(" or ")),
        }
    }
}

/// Whether a block follows the arguments, and of what.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum RowBody {
    /// `name args;`
    Plain,
    /// `name args { directives }`: the setter walks the children with [`Cf::walk`].
    Block,
    /// `name args { text }`: the block is kept as it is written.
    Raw,
}

/// Parses and validates one directive into a slot; never acts.
pub type Setter = fn(&mut Cf, &Directive) -> ConfResult;

/// One directive.
#[derive(Clone, Copy)]
pub struct Row {
    pub name: &'static str,
    pub contexts: Context,
    pub arity: Arity,
    pub body: RowBody,
    /// As nginx's documentation writes it; empty when there is none.
    pub default: &'static str,
    /// One line for `weir help` and the directive index.
    pub doc: &'static str,
    /// The difference from nginx, if there is one.
    pub note: &'static str,
    /// It is refused when it is given twice in a block. Of those whose value is kept the setter sees that.
    pub is_once: bool,
    pub set: Setter,
}

impl Row {
    pub const fn new(
        name: &'static str,
        contexts: Context,
        arity: Arity,
        default: &'static str,
        doc: &'static str,
        set: Setter,
    ) -> Row {
        Row {
            name,
            contexts,
            arity,
            body: RowBody::Plain,
            default,
            doc,
            note: "",
            is_once: false,
            set,
        }
    }

    pub const fn block(
        name: &'static str,
        contexts: Context,
        arity: Arity,
        doc: &'static str,
        set: Setter,
    ) -> Row {
        Row {
            name,
            contexts,
            arity,
            body: RowBody::Block,
            default: "",
            doc,
            note: "",
            is_once: false,
            set,
        }
    }

    /// For one whose setter does not see that it has been given before.
    pub const fn once(mut self) -> Row {
        self.is_once = true;
        self
    }

    pub const fn note(mut self, note: &'static str) -> Row {
        self.note = note;
        self
    }
}
