//! A transparent image of one pixel: nginx's `ngx_http_empty_gif_module`.

use bytes::Bytes;
use weir_http::conf::CoreLoc;
use weir_http::module::{Flow, HttpModule};
use weir_http::{body, special, Buf, Request};
use weir_module::{Arity, Context, Row};
use weir_wire::http1::request::Method;

pub const MODULE: HttpModule = HttpModule {
    rows: &[Row::new(
        "empty_gif",
        Context::LOCATION,
        Arity::NONE,
        "",
        "Answers with a transparent image of one pixel.",
        |cf, _| {
            cf.get::<CoreLoc>().handler = Some(handler);
            Ok(())
        },
    )],
    ..HttpModule::EMPTY
};

/// Black and white, white transparent.
const GIF: &[u8; 43] = b"GIF89a\x01\0\x01\0\x80\x01\0\0\0\0\xff\xff\xff\
    !\xf9\x04\x01\0\0\x01\0,\0\0\0\0\x01\0\x01\0\0\x02\x02L\x01\0;";

/// 28 September 1970, as nginx dates it.
const MODIFIED: i64 = 23_349_600;

fn handler(r: &mut Request) -> Flow {
    if !matches!(r.method, Method::Get | Method::Head) {
        return Flow::Status(405);
    }
    if let Err(flow) = body::discard(r) {
        return flow;
    }
    r.out.status = 200;
    r.out.set_content_type(b"image/gif");
    r.out.content_length = Some(GIF.len() as u64);
    r.out.last_modified = Some(MODIFIED);
    special::finish(r, Buf::mem(Bytes::from_static(GIF)).and_last())
}
