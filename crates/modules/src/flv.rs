//! `flv` (nginx's `ngx_http_flv_module`): a Flash video from the byte on that `start` asks for, with a header of its
//! own.

use crate::static_files;
use bytes::Bytes;
use weir_base::units;
use weir_http::conf::CoreLoc;
use weir_http::core_vars::query_arg;
use weir_http::module::{Flow, HttpModule};
use weir_http::{special, Request};
use weir_module::{Arity, Cf, ConfResult, Context, Directive, Row};

pub const MODULE: HttpModule = HttpModule {
    rows: &[Row::new(
        "flv",
        Context::LOCATION,
        Arity::NONE,
        "",
        "Files are videos (FLV) that can be asked for from a byte on (?start=).",
        set_flv,
    )],
    ..HttpModule::EMPTY
};

fn set_flv(cf: &mut Cf, _: &Directive) -> ConfResult {
    cf.get::<CoreLoc>().handler = Some(handler);
    Ok(())
}

/// Version 1, with audio and video, and an empty tag before the first.
const HEADER: &[u8] = b"FLV\x01\x05\0\0\0\x09\0\0\0\0";

fn handler(r: &mut Request) -> Flow {
    if let Err(flow) = static_files::accept(r) {
        return flow;
    }
    let (path, entry) = match static_files::find(r) {
        Ok(found) => found,
        Err(flow) => return flow,
    };
    special::set_content_type(r);
    static_files::describe(r, &entry);
    let size = entry.stamp.size;
    let start =
        query_arg(&r.args, b"start").and_then(units::parse_int).filter(|n| *n < size).unwrap_or(0);
    if start == 0 {
        return static_files::send_body(r, &path, &entry);
    }
    r.out.content_length = Some(HEADER.len() as u64 + size - start);
    match entry.open(&path) {
        Ok(file) => static_files::send_part(r, Some(Bytes::from_static(HEADER)), file, start..size),
        Err(e) => static_files::open_error(r, &path, &e),
    }
}
