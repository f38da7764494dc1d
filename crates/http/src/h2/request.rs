//! A request from a header block.

use super::conf::H2Srv;
use crate::listed;
use crate::request::Request;
use weir_core::logger::LogLevel;
use weir_core::Connection;
use weir_core::Session;
use weir_wire::http1::request::Version;
use weir_wire::http2::hpack::Fields;

/// Fills a request that has begun; an error is the status that refuses it.
pub(super) fn fill(
    r: &mut Request,
    conn: &Connection,
    fields: &mut Fields,
    ended: bool,
) -> Result<(), u16> {
    let pseudo = listed::read(r, conn, fields, Version::HTTP_20)?;
    let addr_speaks = conn.addr(&r.gen().core).http2;
    if !addr_speaks && !*r.server().conf::<H2Srv>().enable {
        let text = "client attempted to request the server name for which the negotiated \
                    protocol is disabled";
        r.log(LogLevel::Info, text);
        return Err(421);
    }
    listed::check(r, &pseudo, ended)
}
