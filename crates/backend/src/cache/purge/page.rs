//! What a purge answers with, as ngx_cache_purge's directives want it.

use crate::cache::conf::CacheMain;
use std::rc::Rc;
use weir_base::escape::{escape_html, escape_json};
use weir_http::{special, Buf, Flow, Request};
use weir_module::first::flag;
use weir_module::{
    merge_values, set, slot, ArgsExt, Arity, Cf, ConfResult, ConfType, Context, Directive, Level,
    Row, Val,
};

/// `cache_purge_response_type`
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Html,
    Json,
    Xml,
    Text,
}

#[derive(Default)]
pub(crate) struct PurgeLoc {
    kind: Val<Kind>,
}

impl ConfType for PurgeLoc {
    const LEVEL: Level = Level::Location;
    slot!();

    fn merge(&mut self, parent: &PurgeLoc) -> ConfResult {
        merge_values!(self, parent; kind = Kind::Html);
        Ok(())
    }
}

pub(crate) const ROWS: &[Row] = &[
    Row::new(
        "cache_purge_response_type",
        Context::HSL,
        Arity::ONE,
        "html",
        "How a purge by method or in a location of its own is answered: html, json, xml or text.",
        set!(Cf::get::<PurgeLoc>, kind, kind),
    )
    .note("the key is escaped for where it stands"),
    Row::new(
        "cache_purge_legacy_status",
        Context::HTTP,
        Arity::FLAG,
        "on",
        "Such a purge that finds nothing is answered with 412; off: with 404.",
        set!(Cf::get::<CacheMain>, purge_legacy_status, flag),
    ),
    Row::new(
        "cache_purge_vary_aware",
        Context::HTTP,
        Arity::FLAG,
        "on",
        "Such a purge of one key removes its variants too.",
        set!(Cf::get::<CacheMain>, purge_vary_aware, flag),
    )
    .note("on by default, for files are read only where the entry varies; the module's default is off"),
];

fn kind(d: &Directive) -> ConfResult<Kind> {
    d.choice(
        0,
        &[("html", Kind::Html), ("json", Kind::Json), ("xml", Kind::Xml), ("text", Kind::Text)],
    )
}

/// Says that a key was purged.
pub(super) fn answer(r: &mut Request, key: &[u8]) -> Flow {
    let loc = Rc::clone(r.loc());
    let (kind, text) = text(*loc.conf::<PurgeLoc>().kind, key);
    r.out.status = 200;
    r.out.set_content_type(kind);
    r.out.content_length = Some(text.len() as u64);
    special::finish(r, Buf::mem(text).and_last())
}

fn text(kind: Kind, key: &[u8]) -> (&'static [u8], Vec<u8>) {
    let around = |before: &str, escape: fn(&mut Vec<u8>, &[u8]), after: &str| {
        let mut text = before.as_bytes().to_vec();
        escape(&mut text, key);
        text.extend_from_slice(after.as_bytes());
        text
    };
    match kind {
        Kind::Html => (
            b"text/html",
            around(
                "<html>\r\n<head><title>Purged</title></head>\r\n<body>\r\n<p>Key: ",
                escape_html,
                "</p>\r\n<p>Status: purged</p>\r\n</body>\r\n</html>\r\n",
            ),
        ),
        Kind::Json => (
            b"application/json",
            around("{\"Key\": \"", escape_json, "\", \"Status\": \"purged\"}"),
        ),
        Kind::Xml => (
            b"text/xml",
            around(
                "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<status><Key>",
                escape_html,
                "</Key><Status>purged</Status></status>\n",
            ),
        ),
        Kind::Text => {
            (b"text/plain", around("Key: ", Vec::extend_from_slice, "\nStatus: purged\n"))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_escaped_for_where_they_stand() {
        for (kind, shown) in [
            (Kind::Html, "Key: /a&lt;&quot;</p>"),
            (Kind::Json, "{\"Key\": \"/a<\\\"\", \"Status\": \"purged\"}"),
            (Kind::Xml, "<Key>/a&lt;&quot;</Key>"),
            (Kind::Text, "Key: /a<\"\nStatus: purged\n"),
        ] {
            let text = text(kind, b"/a<\"").1;
            assert!(String::from_utf8_lossy(&text).contains(shown), "{kind:?}");
        }
    }
}
