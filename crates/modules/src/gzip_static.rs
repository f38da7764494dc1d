//! Files that are compressed already: nginx's `ngx_http_gzip_static_module`, and the static modules of `ngx_brotli`
//! and `zstd-nginx-module`.
//!
//! Difference from these two: Vary is there for a file that has a compressed form, not for every one; the weights of
//! Accept-Encoding count.

use crate::coding::accept::{weight, Rank};
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
    merge_values, slot, ArgsExt, Arity, Cf, ConfResult, ConfType, Context, Directive, Level, Row,
    SlotVtable, Val,
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
    gzip: Val<Mode>,
    brotli: Val<Mode>,
    zstd: Val<Mode>,
}

impl ConfType for Conf {
    const LEVEL: Level = Level::Location;
    slot!();
    fn merge(&mut self, parent: &Conf) -> ConfResult {
        merge_values!(self, parent; gzip = Mode::Off, brotli = Mode::Off, zstd = Mode::Off);
        Ok(())
    }
}

impl Conf {
    fn mode(&self, coding: Rank) -> Mode {
        match coding {
            Rank::Brotli => *self.brotli,
            Rank::Zstd => *self.zstd,
            Rank::Gzip => *self.gzip,
        }
    }

    fn has_others(&self) -> bool {
        *self.brotli != Mode::Off || *self.zstd != Mode::Off
    }
}

fn set(cf: &mut Cf, d: &Directive, field: fn(&mut Conf) -> &mut Val<Mode>) -> ConfResult {
    let mode = d.choice(0, &[("off", Mode::Off), ("on", Mode::On), ("always", Mode::Always)])?;
    field(cf.get::<Conf>()).once(d, mode)
}

const SEVERAL: &str =
    "Weights of Accept-Encoding count; of several files the client's best is sent: of equals .br, \
                       then .zst, then .gz. Vary is sent for a file that has such a form.";

pub const MODULE: HttpModule = HttpModule {
    rows: &[
        Row::new(
            "gzip_static",
            Context::HSL,
            Arity::ONE,
            "off",
            "Send FILE.gz instead of FILE where it exists.",
            |cf, d| set(cf, d, |conf| &mut conf.gzip),
        ),
        Row::new(
            "brotli_static",
            Context::HSL,
            Arity::ONE,
            "off",
            "Send FILE.br instead of FILE where it exists.",
            |cf, d| set(cf, d, |conf| &mut conf.brotli),
        )
        .note(SEVERAL),
        Row::new(
            "zstd_static",
            Context::HSL,
            Arity::ONE,
            "off",
            "Send FILE.zst instead of FILE where it exists.",
            |cf, d| set(cf, d, |conf| &mut conf.zstd),
        )
        .note(SEVERAL),
    ],
    slots: &[SlotVtable::of::<Conf>()],
    phases: &[
        PhaseHandler {
            phase: Phase::Content,
            handler: of_gzip,
            active: |slots| {
                let conf = slots.get::<Conf>();
                *conf.gzip != Mode::Off && !conf.has_others()
            },
        },
        PhaseHandler {
            phase: Phase::Content,
            handler: of_several,
            active: |slots| slots.get::<Conf>().has_others(),
        },
    ],
    ..HttpModule::EMPTY
};

fn is_for(r: &Request) -> bool {
    matches!(r.method, Method::Get | Method::Head) && r.uri.last() != Some(&b'/')
}

fn of_gzip(r: &mut Request) -> Flow {
    if !is_for(r) {
        return Flow::Declined;
    }
    let always = *r.loc().conf::<Conf>().gzip == Mode::Always;
    let ok = always || gzip_ok(r);
    send(r, Rank::Gzip, always, ok)
}

/// Above every weight.
const ALWAYS: u16 = 1001;

fn of_several(r: &mut Request) -> Flow {
    if !is_for(r) {
        return Flow::Declined;
    }
    let loc = Rc::clone(r.loc());
    let conf = loc.conf::<Conf>();
    let mut forms = Rank::ALL.map(|coding| match conf.mode(coding) {
        Mode::Off => (None, coding),
        Mode::On => (Some(weight(r, coding)), coding),
        Mode::Always => (Some(ALWAYS), coding),
    });
    // Stable: of equals the first comes first.
    forms.sort_by_key(|(weight, _)| std::cmp::Reverse(*weight));
    for (weight, coding) in forms {
        let Some(weight) = weight else { continue };
        match send(r, coding, weight == ALWAYS, weight > 0) {
            Flow::Declined => {}
            other => return other,
        }
    }
    Flow::Declined
}

fn extension(coding: Rank) -> &'static [u8] {
    match coding {
        Rank::Brotli => b".br",
        Rank::Zstd => b".zst",
        Rank::Gzip => b".gz",
    }
}

/// Sends the form of a file, if there is one and the client takes it.
fn send(r: &mut Request, coding: Rank, always: bool, ok: bool) -> Flow {
    let loc = Rc::clone(r.loc());
    if !*loc.core.gzip_vary && !ok {
        return Flow::Declined;
    }
    let mut path = Vec::with_capacity(128);
    let uri = std::mem::take(&mut r.uri);
    map_uri_into(r, &uri, &mut path);
    r.uri = uri;
    path.extend_from_slice(extension(coding));
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
    r.out.add(b"Content-Encoding", coding.word());
    send_body(r, &path, &entry)
}
