//! `concat` (Tengine's `ngx_http_concat_module`): several files in one answer, as `/dir/??a.js,b.js` names them.
//!
//! A name has no way out of the directory that the URI names: it is decoded, and `..` is refused. What follows a `?`
//! behind a name, such as `a.js?v=2`, is passed over.

use std::rc::Rc;
use std::sync::Arc;
use weir_core::logger::LogLevel;
use weir_core::Session;
use weir_http::location::map_uri_into;
use weir_http::module::{Flow, HttpModule, Phase, PhaseHandler};
use weir_http::symlinks::Guard;
use weir_http::{Buf, Chain, Request};
use weir_module::first::{bytes, flag, num};
use weir_module::{
    merge_values, set, slot, Arity, Cf, ConfResult, ConfType, Context, Level, Row, SlotVtable, Val,
};
use weir_modules::files::{Entry, FileCache, Found};
use weir_modules::mime::MimeTypes;
use weir_modules::static_files;
use weir_runtime::paths as system;
use weir_wire::http1::request::Method;
use weir_wire::http1::uri;

/// Always among the types.
const JAVASCRIPT: &str = "application/javascript";

#[derive(Default)]
struct ConcatLoc {
    on: Val<bool>,
    max_files: Val<u64>,
    unique: Val<bool>,
    types: Val<Arc<MimeTypes>>,
    delimiter: Val<Vec<u8>>,
    ignore_file_error: Val<bool>,
}

impl ConfType for ConcatLoc {
    const LEVEL: Level = Level::Location;
    slot!();

    fn merge(&mut self, parent: &ConcatLoc) -> ConfResult {
        merge_values!(self, parent;
            on = false,
            max_files = 10,
            unique = true,
            types = MimeTypes::of(&[JAVASCRIPT, "text/css"]),
            delimiter = Vec::new(),
            ignore_file_error = false,
        );
        Ok(())
    }
}

const ROWS: &[Row] = &[
    Row::new(
        "concat",
        Context::HSL,
        Arity::FLAG,
        "off",
        "Whether /dir/??a.js,b.js is answered with the files, one behind the other.",
        set!(Cf::get::<ConcatLoc>, on, flag),
    ),
    Row::new(
        "concat_max_files",
        Context::HSL,
        Arity::ONE,
        "10",
        "How many files a URI may name.",
        set!(Cf::get::<ConcatLoc>, max_files, num),
    ),
    Row::new(
        "concat_unique",
        Context::HSL,
        Arity::FLAG,
        "on",
        "Whether all of the files must be of one type.",
        set!(Cf::get::<ConcatLoc>, unique, flag),
    ),
    Row::new(
        "concat_types",
        Context::HSL,
        Arity::ONE_MORE,
        "application/javascript text/css",
        "MIME types of the files that may be named, besides application/javascript.",
        |cf, d| {
            MimeTypes::read_beside(cf, d, JAVASCRIPT, |cf| &mut cf.get::<ConcatLoc>().types);
            Ok(())
        },
    ),
    Row::new(
        "concat_delimiter",
        Context::HSL,
        Arity::ONE,
        "",
        "A text between the files.",
        set!(Cf::get::<ConcatLoc>, delimiter, bytes),
    ),
    Row::new(
        "concat_ignore_file_error",
        Context::HSL,
        Arity::FLAG,
        "off",
        "Whether files that are not there, or not readable, are left out.",
        set!(Cf::get::<ConcatLoc>, ignore_file_error, flag),
    ),
];

pub const MODULE: HttpModule = HttpModule {
    rows: ROWS,
    slots: &[SlotVtable::of::<ConcatLoc>()],
    phases: &[PhaseHandler {
        phase: Phase::Content,
        handler,
        active: |slots| *slots.get::<ConcatLoc>().on,
    }],
    ..HttpModule::EMPTY
};

fn handler(r: &mut Request) -> Flow {
    let names = match r.args.strip_prefix(b"?") {
        Some(names) if !names.is_empty() && r.uri.last() == Some(&b'/') => names.to_vec(),
        _ => return Flow::Declined,
    };
    if !matches!(r.method, Method::Get | Method::Head) {
        return Flow::Declined;
    }
    if let Err(flow) = weir_http::body::discard(r) {
        return flow;
    }
    let loc = Rc::clone(r.loc());
    let conf = loc.conf::<ConcatLoc>();
    match paths(r, &names, *conf.max_files).and_then(|paths| gather(r, conf, &paths)) {
        Ok(files) => send(r, conf, files),
        Err(flow) => flow,
    }
}

/// The files' names: up to a comma, or to a `?`, behind which all is passed over up to the next comma. Empty ones
/// at the end or between commas do not count.
fn names(list: &[u8]) -> impl Iterator<Item = Option<&[u8]>> {
    list.split(|b| *b == b',').filter(|name| !name.is_empty()).map(|name| {
        let end = name.iter().position(|b| *b == b'?').unwrap_or(name.len());
        Some(&name[..end]).filter(|name| !name.is_empty())
    })
}

fn bad(r: &Request, text: &str) -> Flow {
    r.log(LogLevel::Error, text);
    Flow::Status(400)
}

/// The paths of the files.
fn paths(r: &mut Request, list: &[u8], most: u64) -> Result<Vec<Vec<u8>>, Flow> {
    let mut directory = Vec::with_capacity(128);
    let uri = std::mem::take(&mut r.uri);
    map_uri_into(r, &uri, &mut directory);
    r.uri = uri;
    let mut paths = Vec::new();
    for name in names(list) {
        let Some(name) = name else { return Err(bad(r, "client sent zero concat filename")) };
        if paths.len() as u64 >= most {
            return Err(bad(r, "client sent too many concat filenames"));
        }
        let mut decoded = Vec::new();
        let is_safe = uri::unsafe_uri(name, &mut decoded).is_ok();
        let path = [&directory[..], system::below(&decoded)].concat();
        if !is_safe || path.split(|b| *b == b'/').any(|part| part == b"..") {
            return Err(bad(r, "client sent an unsafe concat filename"));
        }
        paths.push(path);
    }
    Ok(paths)
}

type File = (Vec<u8>, Option<Rc<Entry>>);

/// The files, with `None` for each that is left out. The answer is of the last one's type.
fn gather(r: &mut Request, conf: &ConcatLoc, paths: &[Vec<u8>]) -> Result<Vec<File>, Flow> {
    let mut files = Vec::with_capacity(paths.len());
    let mut first_type: Option<Vec<u8>> = None;
    for path in paths {
        set_type(r, path);
        let kind = r.out.content_type().unwrap_or_default().to_ascii_lowercase();
        let is_same = first_type.get_or_insert_with(|| kind.clone()) == &kind;
        if !conf.types.match_response(r) || *conf.unique && !is_same {
            return Err(Flow::Status(400));
        }
        files.push((path.clone(), find(r, conf, path)?));
    }
    Ok(files)
}

fn set_type(r: &mut Request, path: &[u8]) {
    let loc = Rc::clone(r.loc());
    let kind = uri::exten(path).and_then(|e| loc.core.type_of(e));
    r.out.set_content_type(kind.unwrap_or(&loc.core.default_type));
}

fn find(r: &mut Request, conf: &ConcatLoc, path: &[u8]) -> Result<Option<Rc<Entry>>, Flow> {
    let loc = Rc::clone(r.loc());
    let cache = r.conn().worker.local::<FileCache>();
    let skips = *conf.ignore_file_error;
    match cache.find(&loc.core, path, Guard::of(r, path)) {
        Ok(Found::File(entry)) => Ok(Some(entry)),
        Ok(_) => {
            let shown = String::from_utf8_lossy(path);
            r.log(LogLevel::Crit, &format!("\"{shown}\" is not a regular file"));
            if skips {
                Ok(None)
            } else {
                Err(Flow::Status(404))
            }
        }
        Err(e) => match static_files::open_error(r, path, &e) {
            Flow::Status(403 | 404) if skips => Ok(None),
            flow => Err(flow),
        },
    }
}

fn send(r: &mut Request, conf: &ConcatLoc, files: Vec<File>) -> Flow {
    let mut chain = Chain::new();
    let (mut length, mut changed) = (0, 0);
    let count = files.len();
    for (n, (path, entry)) in files.into_iter().enumerate() {
        let Some(entry) = entry.filter(|e| e.stamp.size > 0) else { continue };
        length += entry.stamp.size;
        changed = changed.max(entry.stamp.mtime);
        chain.push(match &entry.memory {
            Some(text) => Buf::mem(text.clone()),
            None => match entry.open(&path) {
                Ok(file) => Buf::file(file, 0, entry.stamp.size),
                Err(e) => return static_files::open_error(r, &path, &e),
            },
        });
        if n + 1 < count && !conf.delimiter.is_empty() {
            length += conf.delimiter.len() as u64;
            chain.push(Buf::mem(conf.delimiter.to_vec()));
        }
    }
    chain.push(Buf::last());
    r.out.status = 200;
    r.out.content_length = Some(length);
    r.out.last_modified = (changed > 0).then_some(changed);
    static_files::send_parts(r, chain)
}

#[cfg(test)]
mod tests {
    use super::names;

    #[test]
    fn files_are_named() {
        for (list, expected) in [
            ("a.js", vec![Some("a.js")]),
            ("a.js,b.js", vec![Some("a.js"), Some("b.js")]),
            (",a.js,,b.js,", vec![Some("a.js"), Some("b.js")]),
            ("a.js?v=1,b.js?x", vec![Some("a.js"), Some("b.js")]),
            ("a.js?v=1?w,b.js", vec![Some("a.js"), Some("b.js")]),
            ("?v,a.js", vec![None, Some("a.js")]),
            ("", vec![]),
        ] {
            let found: Vec<_> =
                names(list.as_bytes()).map(|n| n.map(String::from_utf8_lossy)).collect();
            let expected: Vec<_> = expected.into_iter().map(|n| n.map(Into::into)).collect();
            assert_eq!(found, expected, "{list}");
        }
    }
}
