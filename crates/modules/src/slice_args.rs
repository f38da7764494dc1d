//! `slice` without a size, `slice_arg_begin` and its kin (Tengine's `ngx_http_slice_module`): parts of files that the
//! URI's arguments name, with texts around them.
//!
//! Difference from Tengine: `Content-Length` counts what is sent; there it leaves out the text before a part that
//! is not the first, and the one behind a part that is not the last.

use crate::static_files;
use bytes::Bytes;
use std::rc::Rc;
use weir_base::units;
use weir_http::conf::CoreLoc;
use weir_http::core_vars::query_arg;
use weir_http::module::{Flow, HttpModule};
use weir_http::{special, Buf, Chain, Request};
use weir_module::first::{bytes, flag};
use weir_module::{
    merge_values, set, slot, ArgsExt, Arity, Cf, ConfResult, ConfType, Context, Directive, Level,
    Row, SlotVtable, Val,
};

#[derive(Default)]
struct PartLoc {
    begin: Val<Vec<u8>>,
    end: Val<Vec<u8>>,
    header: Val<Vec<u8>>,
    footer: Val<Vec<u8>>,
    header_first: Val<bool>,
    footer_last: Val<bool>,
}

impl ConfType for PartLoc {
    const LEVEL: Level = Level::Location;
    slot!();

    fn merge(&mut self, parent: &PartLoc) -> ConfResult {
        merge_values!(self, parent;
            begin = b"begin".to_vec(),
            end = b"end".to_vec(),
            header = Vec::new(),
            footer = Vec::new(),
            header_first = true,
            footer_last = true,
        );
        Ok(())
    }
}

const ROWS: &[Row] = &[
    Row::new(
        "slice_arg_begin",
        Context::HSL,
        Arity::ONE,
        "begin",
        "The argument of the URI that says from which byte on a file is sent.",
        set!(Cf::get::<PartLoc>, begin, bytes),
    ),
    Row::new(
        "slice_arg_end",
        Context::HSL,
        Arity::ONE,
        "end",
        "The argument of the URI that says up to which byte a file is sent.",
        set!(Cf::get::<PartLoc>, end, bytes),
    ),
    Row::new(
        "slice_header",
        Context::HSL,
        Arity::ONE,
        "",
        "A text in front of a part of a file.",
        set!(Cf::get::<PartLoc>, header, bytes),
    ),
    Row::new(
        "slice_footer",
        Context::HSL,
        Arity::ONE,
        "",
        "A text behind a part of a file.",
        set!(Cf::get::<PartLoc>, footer, bytes),
    ),
    Row::new(
        "slice_header_first",
        Context::HSL,
        Arity::FLAG,
        "on",
        "Whether slice_header is in front of a part that begins with the file, too.",
        set!(Cf::get::<PartLoc>, header_first, flag),
    ),
    Row::new(
        "slice_footer_last",
        Context::HSL,
        Arity::FLAG,
        "on",
        "Whether slice_footer is behind a part that ends with the file, too.",
        set!(Cf::get::<PartLoc>, footer_last, flag),
    ),
];

pub const MODULE: HttpModule =
    HttpModule { rows: ROWS, slots: &[SlotVtable::of::<PartLoc>()], ..HttpModule::EMPTY };

/// `slice` without a size.
pub(crate) fn take_over(cf: &mut Cf, d: &Directive) -> ConfResult {
    if cf.context != Context::LOCATION {
        let mut e = d.fail("invalid number of arguments in \"slice\" directive");
        e.hint =
            Some("write a size, or put it into a location, where it sends parts of files".into());
        return Err(e);
    }
    cf.get::<CoreLoc>().handler = Some(handler);
    Ok(())
}

fn handler(r: &mut Request) -> Flow {
    if let Err(flow) = static_files::accept(r) {
        return flow;
    }
    let (path, entry) = match static_files::find(r) {
        Ok(found) => found,
        Err(flow) => return flow,
    };
    let loc = Rc::clone(r.loc());
    let conf = loc.conf::<PartLoc>();
    let size = entry.stamp.size;
    let said = |r: &Request, name: &[u8]| query_arg(&r.args, name).and_then(units::parse_int);
    let begin = said(r, &conf.begin).filter(|n| *n < size).unwrap_or(0);
    let end = said(r, &conf.end).filter(|n| *n < size && *n >= begin).unwrap_or(size);
    let (is_first, is_last) = (begin == 0, end == size);
    let mut chain = Chain::new();
    if end > begin {
        if *conf.header_first || !is_first {
            push(&mut chain, &conf.header);
        }
        match entry.open(&path) {
            Ok(file) => chain.push(Buf::file(file, begin, end - begin)),
            Err(e) => return static_files::open_error(r, &path, &e),
        }
        if *conf.footer_last || !is_last {
            push(&mut chain, &conf.footer);
        }
    }
    r.out.status = 200;
    r.out.content_length = Some(chain.len());
    r.out.last_modified = Some(entry.stamp.mtime);
    special::set_content_type(r);
    r.flags.allow_ranges = end > begin;
    chain.push(Buf::last());
    static_files::send_parts(r, chain)
}

fn push(chain: &mut Chain, text: &[u8]) {
    if !text.is_empty() {
        chain.push(Buf::mem(Bytes::copy_from_slice(text)));
    }
}
