//! Precompressed files: nginx's `ngx_http_gzip_static_module`.

use crate::files::{FileCache, Found};
use crate::gzip_ok::gzip_ok;
use crate::static_files::{describe, open_error, send_body};
use std::rc::Rc;
use weir_http::location::map_uri_into;
use weir_http::module::{Flow, HttpModule, PhaseHandler};
use weir_http::special;
use weir_http::symlinks::Guard;
use weir_http::{Phase, Request};
use weir_module::{
    merge_values, slot, ArgsExt, Arity, ConfResult, ConfType, Context, Level, Row, SlotVtable, Val,
};
use weir_wire::http1::request::Method;

#[derive(Clone, Copy, PartialEq, Eq)]
enum Mode {
    Off,
    On,
    Always,
}

#[derive(Default)]
pub struct Conf {
    mode: Val<Mode>,
}

impl ConfType for Conf {
    const LEVEL: Level = Level::Location;
    slot!();
    fn merge(&mut self, parent: &Conf) -> ConfResult {
        merge_values!(self, parent; mode = Mode::Off);
        Ok(())
    }
}

pub const MODULE: HttpModule = HttpModule {
    rows: &[Row::new(
        "gzip_static",
        Context::HSL,
        Arity::ONE,
        "off",
        "Send FILE.gz instead of FILE where it exists.",
        |cf, d| {
            let v =
                d.choice(0, &[("off", Mode::Off), ("on", Mode::On), ("always", Mode::Always)])?;
            cf.get::<Conf>().mode.once(d, v)
        },
    )],
    slots: &[SlotVtable::of::<Conf>()],
    phases: &[PhaseHandler {
        phase: Phase::Content,
        handler: handle,
        active: |slots| *slots.get::<Conf>().mode != Mode::Off,
    }],
    ..HttpModule::EMPTY
};

fn handle(r: &mut Request) -> Flow {
    if !matches!(r.method, Method::Get | Method::Head) || r.uri.last() == Some(&b'/') {
        return Flow::Declined;
    }
    let loc = Rc::clone(r.loc());
    let always = *loc.conf::<Conf>().mode == Mode::Always;
    let ok = always || gzip_ok(r);
    if !*loc.core.gzip_vary && !ok {
        return Flow::Declined;
    }
    let mut path = Vec::with_capacity(128);
    let uri = std::mem::take(&mut r.uri);
    map_uri_into(r, &uri, &mut path);
    r.uri = uri;
    path.extend_from_slice(b".gz");
    let cache = r.conn().worker.local::<FileCache>();
    let entry = match cache.find(&loc.core, &path, Guard::of(r, &path)) {
        Ok(Found::File(e)) => e,
        Ok(_) => return Flow::Declined,
        Err(e) => {
            let flow = match e.kind() {
                std::io::ErrorKind::NotFound => return Flow::Declined,
                _ => open_error(r, &path, &e),
            };
            return match flow {
                Flow::Status(404) => Flow::Declined,
                other => other,
            };
        }
    };
    if !always {
        r.flags.gzip_vary = true;
        if !ok {
            return Flow::Declined;
        }
    }
    if let Err(flow) = weir_http::body::discard(r) {
        return flow;
    }
    describe(r, &entry);
    special::set_content_type(r);
    r.out.add(b"Content-Encoding", b"gzip");
    send_body(r, &path, &entry)
}
