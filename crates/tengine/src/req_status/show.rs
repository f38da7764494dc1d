//! `req_status_show`: a line for each value, as scrapers of Tengine read it.

use super::zone::{Numbers, FIELDS, REQ_TOTAL};
use super::{Field, StatusLoc, StatusMain, ZoneConf};
use std::rc::Rc;
use std::sync::Arc;
use weir_base::bytes::fmt_u64;
use weir_core::session::Part as _;
use weir_http::body;
use weir_http::buf::Buf;
use weir_http::module::Flow;
use weir_http::special;
use weir_http::Request;

pub(super) fn handler(r: &mut Request) -> Flow {
    if let Err(flow) = body::discard(r) {
        return flow;
    }
    let (loc, gen) = (Rc::clone(r.loc()), Rc::clone(r.gen()));
    let (loc, main) = (loc.conf::<StatusLoc>(), gen.main().get::<StatusMain>());
    let own = loc.shown.as_ref().map(|shown| &shown.names[..]).unwrap_or_default();
    let names = if own.is_empty() { &main.used[..] } else { own };
    if names.is_empty() {
        r.out.status = 204;
        return special::finish(r, Buf::last());
    }
    weir_core::counts::shown();
    let mut text = Vec::new();
    let fields = loc.fields.as_deref();
    names.iter().filter_map(|name| main.zones.get(name)).for_each(|zone| {
        let Some(counted) = &zone.zone else { return };
        for (key, numbers) in counted.lines().iter().filter(|(_, n)| n[REQ_TOTAL] > 0) {
            line(&mut text, key, numbers, zone, fields.map(|f| &f[..]));
        }
    });
    r.out.status = 200;
    // Tengine says nothing of its kind, upon which a browser may take what clients have sent for a page.
    r.out.set_content_type(b"text/plain");
    r.out.content_length = Some(text.len() as u64);
    special::finish(r, Buf::mem(text).and_last())
}

fn line(
    out: &mut Vec<u8>,
    key: &Arc<[u8]>,
    numbers: &Numbers,
    zone: &ZoneConf,
    fields: Option<&[Field]>,
) {
    for b in key.iter() {
        match b {
            0..0x20 | 0x7f => out.extend_from_slice(format!("\\x{b:02X}").as_bytes()),
            _ => out.push(*b),
        }
    }
    let mut put = |n: u64| {
        out.push(b',');
        fmt_u64(out, n);
    };
    match fields {
        None => numbers[..FIELDS.len() + zone.indicators.len()].iter().for_each(|n| put(*n)),
        Some(fields) => fields.iter().for_each(|field| match field {
            Field::Own(at) => put(numbers[*at]),
            Field::Indicator(name) => {
                put(zone.indicator(name).map_or(0, |at| numbers[FIELDS.len() + at]));
            }
        }),
    }
    out.push(b'\n');
}
