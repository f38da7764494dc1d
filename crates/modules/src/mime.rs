//! The lists of MIME types that say which responses a filter works on (`gzip_types`,
//! `sub_filter_types`, `charset_types`).

use std::collections::HashSet;
use std::sync::Arc;
use weir_http::Request;
use weir_module::{ArgsExt, Cf, Directive, Val};

/// Types in lower case; `*` means all.
#[derive(Default, Debug, PartialEq, Eq)]
pub struct MimeTypes {
    all: bool,
    list: Vec<Box<[u8]>>,
}

impl MimeTypes {
    pub fn of(list: &[&str]) -> Arc<MimeTypes> {
        let list = list.iter().map(|t| t.as_bytes().into()).collect();
        Arc::new(MimeTypes { all: false, list })
    }

    /// A directive's arguments; text/html is always among them. A second such directive at one
    /// level adds to the first.
    pub fn read(cf: &mut Cf, d: &Directive, types: impl Fn(&mut Cf) -> &mut Val<Arc<MimeTypes>>) {
        MimeTypes::read_beside(cf, d, "text/html", types);
    }

    /// The same with another type than text/html that is always among them.
    pub fn read_beside(
        cf: &mut Cf,
        d: &Directive,
        always: &str,
        types: impl Fn(&mut Cf) -> &mut Val<Arc<MimeTypes>>,
    ) {
        let (mut all, mut list) = match types(cf).as_option() {
            Some(before) => (before.all, before.list.clone()),
            None => (false, vec![always.as_bytes().into()]),
        };
        let mut known: HashSet<Box<[u8]>> = list.iter().cloned().collect();
        for i in 0..d.args.len() {
            let kind: Box<[u8]> = d.arg(i).to_ascii_lowercase().into();
            if *kind == *b"*" {
                all = true;
            } else if !known.insert(kind.clone()) {
                let shown = String::from_utf8_lossy(d.arg(i)).into_owned();
                cf.warn(d, format!("duplicate MIME type \"{shown}\""));
            } else {
                list.push(kind);
            }
        }
        types(cf).set(Arc::new(MimeTypes { all, list }));
    }

    /// Whether a response's type is one of them; its parameters do not count. `*` also matches a
    /// response without a type.
    pub fn match_response(&self, r: &Request) -> bool {
        self.all || r.out.content_type().is_some_and(|kind| self.has(kind))
    }

    fn has(&self, kind: &[u8]) -> bool {
        let kind = without_params(kind);
        self.list.iter().any(|t| t.eq_ignore_ascii_case(kind))
    }
}

/// `text/html` of `text/html; charset=utf-8`.
pub fn without_params(kind: &[u8]) -> &[u8] {
    let end = kind.iter().position(|b| *b == b';').unwrap_or(kind.len());
    kind[..end].trim_ascii_end()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn types() {
        let types = MimeTypes::of(&["text/html", "text/plain"]);
        assert!(types.has(b"text/html") && types.has(b"Text/Plain ; charset=x"));
        assert!(!types.has(b"text/xml") && !types.has(b"") && !types.has(b"text/htm"));
    }
}
