//! `add_header`, `expires`, `add_trailer` (nginx's `ngx_http_headers_filter_module`).
//!
//! Difference from nginx: a field that replaces one of the response moves to the end of the list.

mod expires;

use std::rc::Rc;
use std::sync::Arc;

use crate::mime::without_params;
use expires::Expires;
use weir_base::date;
use weir_core::eval::with_value;
use weir_http::buf::Chain;
use weir_http::module::{Filter, FilterResult, HttpModule, Next, Reach};
use weir_http::vars::template;
use weir_http::Request;
use weir_module::first::bytes;
use weir_module::{
    merge_values, set, slot, ArgsExt, Arity, Cf, ConfResult, ConfType, Context, Directive, Level,
    Row, SlotVtable, Slots, Val,
};
use weir_script::template::Template;
use weir_wire::http1::request::Method;

struct Field {
    name: Box<[u8]>,
    kind: FieldKind,
    value: Template,
    /// Whatever the status.
    always: bool,
}

/// What happens to fields of the same name that the response has already.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum FieldKind {
    Add,
    LastModified,
    Replace,
    Append,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Inherit {
    Off,
    On,
    Merge,
}

type Fields = Option<Vec<Arc<Field>>>;

#[derive(Default)]
struct HeadersLoc {
    headers: Fields,
    trailers: Fields,
    headers_inherit: Val<Inherit>,
    trailers_inherit: Val<Inherit>,
    expires: Val<Expires>,
    /// `expires_by_types`: what holds for which types; the first that has one.
    by_type: Option<Arc<Vec<ByType>>>,
    /// For `append_header`.
    separator: Val<Vec<u8>>,
}

/// When responses of some types expire.
struct ByType {
    expires: Expires,
    types: Vec<Vec<u8>>,
}

impl ConfType for HeadersLoc {
    const LEVEL: Level = Level::Location;
    slot!();

    fn merge(&mut self, parent: &HeadersLoc) -> ConfResult {
        // "expires off" switches both off, but not what an inner level says of types.
        if matches!(self.expires.as_option(), Some(Expires::Off)) {
            self.by_type = None;
        } else if self.by_type.is_none() {
            self.by_type.clone_from(&parent.by_type);
        }
        merge_values!(self, parent;
            headers_inherit = Inherit::On,
            trailers_inherit = Inherit::On,
            expires = Expires::Off,
            separator = b", ".to_vec(),
        );
        inherit(&mut self.headers, &parent.headers, *self.headers_inherit);
        inherit(&mut self.trailers, &parent.trailers, *self.trailers_inherit);
        Ok(())
    }
}

fn inherit(own: &mut Fields, outer: &Fields, how: Inherit) {
    let Some(outer) = outer else { return };
    match (own, how) {
        (_, Inherit::Off) => {}
        (Some(own), Inherit::Merge) => own.extend(outer.iter().cloned()),
        (Some(_), Inherit::On) => {}
        (own, _) => *own = Some(outer.clone()),
    }
}

const CONTEXTS: Context = Context::HSL.or(Context::LIF);

const ROWS: &[Row] = &[
    Row::new(
        "expires",
        CONTEXTS,
        Arity::ONE_TWO,
        "off",
        "Sends Expires and Cache-Control for a time.",
        set_expires,
    ),
    Row::new(
        "expires_by_types",
        Context::HSL,
        Arity::TWO_MORE,
        "",
        "A time as of expires, and the types of responses that it holds for.",
        set_by_types,
    )
    .note(
        "It is Tengine's, of up to 2.3. Types that are named go by it and others by expires; each is inherited by \
         itself, and \"expires off\" at the same level switches both off.",
    ),
    Row::new(
        "add_header",
        CONTEXTS,
        Arity::TWO_THREE,
        "",
        "Adds a field to successful responses, or to all.",
        set_header,
    )
    .note("Line ends that a variable brings along (%0d%0a in a URI) become spaces, with a line in the error log; nginx sends them."),
    Row::new(
        "append_header",
        CONTEXTS,
        Arity::TWO,
        "",
        "Puts a value behind the one that a field of successful responses has, or adds the field.",
        |cf, d| {
            let (name, value) = (d.arg(0).into(), template(cf, d, 1)?);
            let field = Field { name, kind: FieldKind::Append, value, always: false };
            cf.get::<HeadersLoc>().headers.get_or_insert_with(Vec::new).push(Arc::new(field));
            Ok(())
        },
    )
    .note("Tengine's. It is inherited together with add_header, as there."),
    Row::new(
        "append_header_separator",
        CONTEXTS,
        Arity::ONE,
        "\", \"",
        "What append_header puts between the values.",
        set!(Cf::get::<HeadersLoc>, separator, bytes),
    ),
    Row::new(
        "add_trailer",
        CONTEXTS,
        Arity::TWO_THREE,
        "",
        "Adds a field behind the body of successful responses, or of all.",
        set_trailer,
    ),
    Row::new(
        "add_header_inherit",
        CONTEXTS,
        Arity::ONE,
        "on",
        "Whether fields of the outer level are taken over: off, on (when there are none here), merge.",
        |cf, d| {
            let how = d.choice(0, INHERIT)?;
            cf.get::<HeadersLoc>().headers_inherit.once(d, how)
        },
    ),
    Row::new(
        "add_trailer_inherit",
        CONTEXTS,
        Arity::ONE,
        "on",
        "Whether trailers of the outer level are taken over: off, on (when there are none here), merge.",
        |cf, d| {
            let how = d.choice(0, INHERIT)?;
            cf.get::<HeadersLoc>().trailers_inherit.once(d, how)
        },
    ),
];

const INHERIT: &[(&str, Inherit)] =
    &[("off", Inherit::Off), ("on", Inherit::On), ("merge", Inherit::Merge)];

pub const MODULE: HttpModule = HttpModule {
    rows: ROWS,
    slots: &[SlotVtable::of::<HeadersLoc>()],
    filter: Some(Filter { header: Some(header), body: None, active: any, reach: Reach::Main }),
    ..HttpModule::EMPTY
};

/// Trailers, on their own: they come behind the range filter, which must still see how long the
/// body is, and only locations that have them pay for a body filter.
pub const TRAILERS: HttpModule = HttpModule {
    filter: Some(Filter {
        header: Some(expect_trailers),
        body: Some(trailers),
        active: has_trailers,
        reach: Reach::Whole,
    }),
    ..HttpModule::EMPTY
};

fn any(slots: &Slots) -> bool {
    let conf = slots.get::<HeadersLoc>();
    conf.headers.is_some() || conf.by_type.is_some() || !matches!(*conf.expires, Expires::Off)
}

fn has_trailers(slots: &Slots) -> bool {
    slots.get::<HeadersLoc>().trailers.is_some()
}

fn set_expires(cf: &mut Cf, d: &Directive) -> ConfResult {
    let value = Expires::read(cf, d)?;
    cf.get::<HeadersLoc>().expires.once(d, value)
}

fn set_by_types(cf: &mut Cf, d: &Directive) -> ConfResult {
    let modified = d.arg(0) == b"modified";
    let at = usize::from(modified);
    let types: Vec<Vec<u8>> = (at + 1..d.args.len()).map(|i| d.arg(i).to_vec()).collect();
    if types.is_empty() {
        return Err(d.error("has no types"));
    }
    let expires = Expires::read_at(cf, d, at, modified)?;
    let all = cf.get::<HeadersLoc>().by_type.get_or_insert_default();
    if let Some(all) = Arc::get_mut(all) {
        all.push(ByType { expires, types });
    }
    Ok(())
}

fn field(cf: &mut Cf, d: &Directive, is_header: bool) -> ConfResult<Arc<Field>> {
    let kind = match d.arg(0) {
        _ if !is_header => FieldKind::Add,
        n if n.eq_ignore_ascii_case(b"last-modified") => FieldKind::LastModified,
        n if n.eq_ignore_ascii_case(b"etag") => FieldKind::Replace,
        _ => FieldKind::Add,
    };
    let value = template(cf, d, 1)?;
    if d.args.len() == 3 && d.arg(2) != b"always" {
        let shown = String::from_utf8_lossy(d.arg(2)).into_owned();
        return Err(d.bad(2, format!("invalid parameter \"{shown}\"")));
    }
    Ok(Arc::new(Field { name: d.arg(0).into(), kind, value, always: d.args.len() == 3 }))
}

fn set_header(cf: &mut Cf, d: &Directive) -> ConfResult {
    let field = field(cf, d, true)?;
    cf.get::<HeadersLoc>().headers.get_or_insert_with(Vec::new).push(field);
    Ok(())
}

fn set_trailer(cf: &mut Cf, d: &Directive) -> ConfResult {
    let field = field(cf, d, false)?;
    cf.get::<HeadersLoc>().trailers.get_or_insert_with(Vec::new).push(field);
    Ok(())
}

/// The statuses that fields without `always` are for.
fn is_success(status: u16) -> bool {
    matches!(status, 200 | 201 | 204 | 206 | 301 | 302 | 303 | 304 | 307 | 308)
}

fn header(r: &mut Request, next: Next) -> FilterResult {
    let loc = Rc::clone(r.loc());
    let conf = loc.conf::<HeadersLoc>();
    let success = is_success(r.out.status);
    if success {
        let of_type = conf.by_type.as_ref().and_then(|all| of_type(r, all));
        of_type.unwrap_or(&conf.expires).apply(r);
    }
    for field in conf.headers.iter().flatten().filter(|f| success || f.always) {
        with_value(r, &field.value, |r, value| put(r, field, value));
    }
    next.header(r)
}

#[cold]
fn of_type<'a>(r: &Request, all: &'a [ByType]) -> Option<&'a Expires> {
    let own = without_params(r.out.content_type()?);
    let names = |by: &&ByType| by.types.iter().any(|t| t.eq_ignore_ascii_case(own));
    all.iter().find(names).map(|by| &by.expires)
}

fn put(r: &mut Request, field: &Field, value: &[u8]) {
    match field.kind {
        FieldKind::Add | FieldKind::Append if value.is_empty() => {}
        FieldKind::Add => r.out.add(&field.name, value),
        FieldKind::Append => {
            let loc = Rc::clone(r.loc());
            r.out.append(&field.name, &loc.conf::<HeadersLoc>().separator, value);
        }
        FieldKind::Replace => {
            r.out.remove(&field.name);
            if !value.is_empty() {
                r.out.add(&field.name, value);
            }
        }
        FieldKind::LastModified => {
            r.out.clear_last_modified();
            let time = date::parse_http_time(value);
            // A well-formed date stays a time, which the range filter compares.
            match time.filter(|t| date::http_time(*t) == value) {
                Some(time) => r.out.last_modified = Some(time),
                None if value.is_empty() => {}
                None => r.out.add(&field.name, value),
            }
        }
    }
}

/// Trailers need chunks, so a body of known length gives that up where chunks are possible.
fn expect_trailers(r: &mut Request, next: Next) -> FilterResult {
    let success = is_success(r.out.status);
    let mut fields = r.loc().conf::<HeadersLoc>().trailers.iter().flatten();
    let wanted = fields.any(|f| success || f.always);
    let bodiless = matches!(r.out.status, 204 | 304) || r.out.status < 200;
    if wanted && r.takes_trailers() && !bodiless && r.method != Method::Head {
        r.out.clear_content_length();
    }
    next.header(r)
}

fn trailers(r: &mut Request, chain: Chain, next: Next) -> FilterResult {
    if chain.has_last() && !r.flags.header_only {
        let loc = Rc::clone(r.loc());
        let success = is_success(r.out.status);
        let fields = loc.conf::<HeadersLoc>().trailers.iter().flatten();
        for field in fields.filter(|f| success || f.always) {
            with_value(r, &field.value, |r, value| {
                if !value.is_empty() {
                    r.out.trailers.push((field.name.to_vec(), value.to_vec()));
                }
            });
        }
    }
    next.body(r, chain)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fields(names: &[&str]) -> Fields {
        let field = |n: &&str| Field {
            name: n.as_bytes().into(),
            kind: FieldKind::Add,
            value: Template::constant(b"x"),
            always: false,
        };
        Some(names.iter().map(|n| Arc::new(field(n))).collect())
    }

    fn names(fields: &Fields) -> Vec<String> {
        fields.iter().flatten().map(|f| String::from_utf8_lossy(&f.name).into_owned()).collect()
    }

    #[test]
    fn inheritance() {
        let outer = fields(&["a", "b"]);
        for (own, how, expected) in [
            (None, Inherit::On, vec!["a", "b"]),
            (None, Inherit::Merge, vec!["a", "b"]),
            (None, Inherit::Off, vec![]),
            (fields(&["c"]), Inherit::On, vec!["c"]),
            (fields(&["c"]), Inherit::Merge, vec!["c", "a", "b"]),
            (fields(&["c"]), Inherit::Off, vec!["c"]),
        ] {
            let mut own = own;
            inherit(&mut own, &outer, how);
            assert_eq!(names(&own), expected, "{how:?}");
        }
    }
}
