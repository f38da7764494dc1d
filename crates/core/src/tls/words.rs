//! What the `…ssl_protocols`, `…ssl_ciphers` and `…ssl_conf_command` of servers and towards servers
//! have in common: where they stand, and what is said of words that are not taken.

use weir_conf::{Position, Span};
use weir_module::{ArgsExt, ConfResult, Diagnostic, Directive};
use weir_tls::offer::{About, Note, Protocols, Refusal};

/// Where the directives stand that may be taken in part; a value is inherited with its place.
#[derive(Clone, Copy, Default)]
pub struct Places([Option<(Position, Span)>; About::COUNT]);

impl Places {
    /// The first of several that say something together is the one.
    pub fn keep(&mut self, about: About, d: &Directive) {
        self.0[about as usize].get_or_insert((d.position(), d.name.span));
    }

    /// Takes the outer level's for each that this one has not.
    pub fn merge(&mut self, parent: &Places) {
        for (own, outer) in self.0.iter_mut().zip(parent.0) {
            *own = own.or(outer);
        }
    }

    /// A warning of the directive `PREFIX_…`, at its place.
    pub fn warning(&self, prefix: &str, note: &Note) -> Diagnostic {
        let text = format!("\"{prefix}_{}\": {}", note.about.suffix(), note.text);
        let w = Diagnostic::warn(text);
        match self.0[note.about as usize] {
            Some((at, span)) => w.at(at).point(span),
            None => w,
        }
    }
}

/// The versions that a directive names.
pub fn protocols(d: &Directive) -> ConfResult<Protocols> {
    let mut bits = 0;
    for i in 0..d.args.len() {
        bits |= Protocols::bit(d.text(i)?).ok_or_else(|| d.invalid(i))?;
    }
    Ok(Protocols(bits))
}

/// What can be taken in no part is an error.
pub fn refusal(r: Refusal) -> Diagnostic {
    let mut e = Diagnostic::emerg(r.text);
    e.hint = Some(r.hint.to_string());
    e
}
