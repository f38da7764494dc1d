//! Charsets: nginx's `ngx_http_charset_filter_module`. Names the response's charset in
//! Content-Type, and recodes the body where a `charset_map` leads from one to the other.
//!
//! Difference from nginx: `X-Accel-Charset` of a backend counts where a charset is set, or any
//! `charset_map` stands in front of the location; elsewhere nothing is logged about it.

mod recode;

use recode::{Pair, Recode, Recoder};
use std::rc::Rc;
use std::sync::Arc;
use weir_core::Session;

use crate::mime::{without_params, MimeTypes};
use crate::util::text_of;
use weir_base::bytes::starts_with_ignore_case;
use weir_base::units::parse_hex;
use weir_core::logger::LogLevel;
use weir_http::buf::Data;
use weir_http::build::Build;
use weir_http::lent::Lent;
use weir_http::module::{Filter, FilterError, FilterResult, HttpModule, Next, Reach};
use weir_http::vars::registry;
use weir_http::{Buf, Chain, Request};
use weir_module::first::flag;
use weir_module::{
    merge_values, set, slot, ArgsExt, Arity, Cf, ConfResult, ConfType, Context, Diagnostic,
    Directive, Level, Row, SlotVtable, Slots, Val,
};
use weir_script::template::VarId;

/// Every charset that is named in the configuration, and the ways between them.
#[derive(Default)]
struct CharsetMain {
    names: Vec<Box<[u8]>>,
    maps: Vec<Map>,
}

impl ConfType for CharsetMain {
    const LEVEL: Level = Level::Main;
    slot!();
}

/// One `charset_map`.
struct Map {
    src: usize,
    dst: usize,
    forward: Arc<Recode>,
    back: Arc<Recode>,
}

impl CharsetMain {
    fn find(&self, name: &[u8]) -> Option<usize> {
        self.names.iter().position(|n| n.eq_ignore_ascii_case(name))
    }

    fn add(&mut self, name: &[u8]) -> usize {
        self.find(name).unwrap_or_else(|| {
            self.names.push(name.into());
            self.names.len() - 1
        })
    }

    fn way(&self, src: usize, dst: usize) -> Option<&Arc<Recode>> {
        self.maps.iter().find_map(|m| match (m.src, m.dst) {
            pair if pair == (src, dst) => Some(&m.forward),
            pair if pair == (dst, src) => Some(&m.back),
            _ => None,
        })
    }

    fn shown(&self, n: usize) -> String {
        String::from_utf8_lossy(&self.names[n]).into_owned()
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Charset {
    Off,
    /// By its place in the list of names.
    Fixed(usize),
    Var(VarId),
}

#[derive(Default)]
struct CharsetLoc {
    charset: Val<Charset>,
    source: Val<Charset>,
    override_charset: Val<bool>,
    types: Val<Arc<MimeTypes>>,
    /// There is a `charset_map`, so that a backend may ask for another charset.
    has_maps: Val<bool>,
}

impl ConfType for CharsetLoc {
    const LEVEL: Level = Level::Location;
    slot!();

    fn merge(&mut self, parent: &CharsetLoc) -> ConfResult {
        merge_values!(self, parent;
            charset = Charset::Off,
            source = Charset::Off,
            override_charset = false,
            types = MimeTypes::of(DEFAULT_TYPES),
            has_maps = false,
        );
        Ok(())
    }
}

const DEFAULT_TYPES: &[&str] = &[
    "text/html",
    "text/xml",
    "text/plain",
    "text/vnd.wap.wml",
    "application/javascript",
    "application/rss+xml",
];

const HSLI: Context = Context::HSL.or(Context::LIF);

const ROWS: &[Row] = &[
    Row::new(
        "charset",
        HSLI,
        Arity::ONE,
        "off",
        "The charset named in Content-Type; \"off\" or a variable.",
        |cf, d| {
            let v = match d.arg(0) {
                b"off" => Charset::Off,
                _ => charset(cf, d),
            };
            cf.get::<CharsetLoc>().charset.once(d, v)
        },
    ),
    Row::new(
        "source_charset",
        HSLI,
        Arity::ONE,
        "",
        "The charset responses are in; where it is another than \"charset\", they are recoded.",
        |cf, d| {
            let v = charset(cf, d);
            cf.get::<CharsetLoc>().source.once(d, v)
        },
    ),
    Row::new(
        "override_charset",
        HSLI,
        Arity::FLAG,
        "off",
        "Also recodes responses whose Content-Type names a charset.",
        set!(Cf::get::<CharsetLoc>, override_charset, flag),
    ),
    Row::new(
        "charset_types",
        Context::HSL,
        Arity::ONE_MORE,
        "text/html text/xml text/plain text/vnd.wap.wml application/javascript application/rss+xml",
        "MIME types that get a charset, besides text/html.",
        |cf, d| {
            MimeTypes::read(cf, d, |cf| &mut cf.get::<CharsetLoc>().types);
            Ok(())
        },
    ),
    Row::block(
        "charset_map",
        Context::HTTP,
        Arity::TWO,
        "A table from one charset to another, in hexadecimal; it is used both ways.",
        set_map,
    ),
];

pub const MODULE: HttpModule = HttpModule {
    rows: ROWS,
    slots: &[SlotVtable::of::<CharsetMain>(), SlotVtable::of::<CharsetLoc>()],
    filter: Some(Filter { header: Some(header), body: Some(body), active, reach: Reach::Part }),
    build: Some(build),
    ..HttpModule::EMPTY
};

/// A backend has named the charset: where the filter does not run, a declared one is shown as it is.
fn named_by_upstream(r: &mut Request, name: &[u8]) {
    let gen = Rc::clone(r.gen());
    if active(&r.loc().slots) || name.is_empty() {
        return;
    }
    if gen.shared.main.get::<CharsetMain>().find(name).is_some() {
        r.out.set_charset(name);
    } else if r.out.content_type().is_some_and(|t| !t.is_empty()) {
        log_unknown(r, name);
    }
}

fn log_unknown(r: &Request, name: &[u8]) {
    let shown = String::from_utf8_lossy(name);
    let text = format!(
        "unknown charset \"{shown}\" to override while reading response header from upstream"
    );
    r.log(LogLevel::Error, &text);
}

fn active(slots: &Slots) -> bool {
    let conf = slots.get::<CharsetLoc>();
    *conf.charset != Charset::Off || *conf.has_maps
}

fn charset(cf: &mut Cf, d: &Directive) -> Charset {
    match d.arg(0).strip_prefix(b"$") {
        Some(name) => Charset::Var(registry(cf).number(name)),
        None => Charset::Fixed(cf.get::<CharsetMain>().add(d.arg(0))),
    }
}

fn set_map(cf: &mut Cf, d: &Directive) -> ConfResult {
    let main = cf.get::<CharsetMain>();
    let (src, dst) = (main.add(d.arg(0)), main.add(d.arg(1)));
    let between = {
        let name = |i| String::from_utf8_lossy(d.arg(i)).into_owned();
        format!("\"{}\" and \"{}\"", name(0), name(1))
    };
    if src == dst {
        return Err(d.fail(format!("\"charset_map\" between the same charsets {between}")));
    }
    if d.arg(0).eq_ignore_ascii_case(b"utf-8") {
        let text = "\"charset_map\" with \"utf-8\" charset should be given in the second column";
        return Err(d.fail(text));
    }
    if main.way(src, dst).is_some() {
        return Err(d.fail(format!("duplicate \"charset_map\" between {between}")));
    }
    let is_utf8 = d.arg(1).eq_ignore_ascii_case(b"utf-8");
    let mut pair = Pair::new(is_utf8);
    for entry in d.children() {
        read_entry(&mut pair, entry)?;
    }
    let (forward, back) = pair.finish();
    let map = Map { src, dst, forward: Arc::new(forward), back: Arc::new(back) };
    cf.get::<CharsetMain>().maps.push(map);
    cf.get::<CharsetLoc>().has_maps.set(true);
    Ok(())
}

/// `80 E282AC;`
fn read_entry(pair: &mut Pair, entry: &Directive) -> ConfResult {
    if entry.is_block() {
        return Err(entry.fail("unexpected \"{\""));
    }
    if entry.args.len() != 1 {
        return Err(entry.fail("invalid parameters number"));
    }
    let invalid =
        |text: &[u8]| entry.fail(format!("invalid value \"{}\"", String::from_utf8_lossy(text)));
    let (key, value) = (entry.name.as_bytes(), entry.arg(0));
    let src = parse_hex(key).and_then(|n| u8::try_from(n).ok()).ok_or_else(|| invalid(key))?;
    pair.add(src, value).ok_or_else(|| invalid(value))
}

/// Fixed charsets must have a way between them; variables are judged at each response. What servers
/// name is heard of.
fn build(b: &mut Build) -> ConfResult {
    b.main.get_mut::<Lent>().name_charset = named_by_upstream;
    let main = b.main.get::<CharsetMain>();
    for loc in b.locations.iter() {
        let conf = loc.get::<CharsetLoc>();
        if let (Charset::Fixed(dst), Charset::Fixed(src)) = (*conf.charset, *conf.source) {
            if src != dst && main.way(src, dst).is_none() {
                return Err(Diagnostic::emerg(no_map(&main.shown(src), &main.shown(dst))));
            }
        }
    }
    Ok(())
}

fn no_map(src: &str, dst: &str) -> String {
    format!("no \"charset_map\" between the charsets \"{src}\" and \"{dst}\"")
}

/// A charset's name, and its place in the list if it is there.
struct Named {
    name: Vec<u8>,
    number: Option<usize>,
}

fn named(r: &mut Request, main: &CharsetMain, charset: Charset) -> Result<Named, FilterError> {
    match charset {
        Charset::Off => Ok(Named { name: Vec::new(), number: None }),
        Charset::Fixed(n) => Ok(Named { name: main.names[n].to_vec(), number: Some(n) }),
        Charset::Var(id) => {
            let name = r.var_value(id).ok_or(FilterError::Broken)?;
            Ok(Named { number: main.find(&name), name })
        }
    }
}

/// The charset that the response is to be in, if any is asked for.
fn destination(
    r: &mut Request,
    main: &CharsetMain,
    conf: &CharsetLoc,
    own: Option<&[u8]>,
) -> Result<Option<Named>, FilterError> {
    if r.out.content_type().is_none_or(<[u8]>::is_empty) {
        return Ok(None);
    }
    if let Some(name) = r.out.override_charset().filter(|n| !n.is_empty()) {
        let dst = Named { number: main.find(name), name: name.to_vec() };
        if dst.number.is_some() {
            return Ok(Some(dst));
        }
        log_unknown(r, &dst.name);
        return Ok(None);
    }
    let wanted = match own {
        _ if *conf.charset == Charset::Off => false,
        Some(_) => *conf.override_charset,
        None => conf.types.match_response(r),
    };
    match wanted {
        true => named(r, main, *conf.charset).map(Some),
        false => Ok(None),
    }
}

fn header(r: &mut Request, next: Next) -> FilterResult {
    let loc = Rc::clone(r.loc());
    let conf = loc.conf::<CharsetLoc>();
    let gen = Rc::clone(r.gen());
    let main = gen.shared.main.get::<CharsetMain>();
    let own = own_charset(r);
    let Some(dst) = destination(r, main, conf, own.as_deref())? else { return next.header(r) };
    let src = match own {
        Some(name) => Named { number: main.find(&name), name },
        None if *conf.source == Charset::Off => {
            set_charset(r, &dst.name);
            return next.header(r);
        }
        None => named(r, main, *conf.source)?,
    };
    let is_same = match (src.number, dst.number) {
        (None, None) => src.name.eq_ignore_ascii_case(&dst.name),
        (src, dst) => src == dst,
    };
    if is_same {
        set_charset(r, &dst.name);
        return next.header(r);
    }
    let encoded = r.out.get(b"Content-Encoding").is_some_and(|v| !v.is_empty());
    let numbers = src.number.zip(dst.number);
    if numbers.is_some() && encoded {
        return next.header(r);
    }
    match numbers.and_then(|(src, dst)| main.way(src, dst)) {
        Some(way) => begin(r, &dst.name, way),
        None => {
            let name = |n: &Named| String::from_utf8_lossy(&n.name).into_owned();
            r.log(LogLevel::Error, &no_map(&name(&src), &name(&dst)));
        }
    }
    next.header(r)
}

fn begin(r: &mut Request, name: &[u8], way: &Arc<Recode>) {
    set_charset(r, name);
    r.whole = None;
    r.flags.filter_needs_memory = true;
    if way.changes_length() {
        r.out.clear_content_length();
    }
    r.set_ctx(Recoder::new(Arc::clone(way)));
}

/// The charset that the response says it is in: set by its handler, or in a backend's Content-Type.
fn own_charset(r: &Request) -> Option<Vec<u8>> {
    if let Some(name) = r.out.charset() {
        return Some(name.to_vec());
    }
    let mut params = r.out.content_type()?.split(|b| *b == b';');
    params.next();
    let param = params.map(<[u8]>::trim_ascii).find(|p| starts_with_ignore_case(p, b"charset="))?;
    let name = &param[b"charset=".len()..];
    let name = name.strip_prefix(b"\"").unwrap_or(name);
    Some(name.strip_suffix(b"\"").unwrap_or(name).to_vec()).filter(|n| !n.is_empty())
}

fn set_charset(r: &mut Request, name: &[u8]) {
    let kind = r.out.content_type().map(|kind| without_params(kind).to_vec()).unwrap_or_default();
    r.out.set_content_type(&kind);
    // Some clients take a redirect's charset for the next page's.
    if !name.is_empty() && !matches!(r.out.status, 301 | 302) {
        r.out.set_charset(name);
    }
}

fn body(r: &mut Request, chain: Chain, next: Next) -> FilterResult {
    let Some(recoder) = r.ctx::<Recoder>() else { return next.body(r, chain) };
    let mut out = Chain::new();
    for mut buf in chain {
        if !buf.is_empty() {
            let text = text_of(&buf.data).map_err(|_| FilterError::Broken)?;
            buf.data = match recoder.recode(&text) {
                Some(recoded) if recoded.is_empty() => Data::None,
                Some(recoded) => Buf::mem(recoded).data,
                None => Data::Mem(text),
            };
        }
        out.push(buf);
    }
    next.body(r, out)
}
