//! nginx's `ngx_http_v2_module`: directives, and `$http2`.

use crate::flow::{VarArg, Variable};
use crate::module::HttpModule;
use crate::request::Request;
use weir_module::first::{flag, num};
use weir_module::{
    merge_values, set, slot, ArgsExt, Arity, Cf, ConfResult, ConfType, Context, Directive, Level,
    Row, SlotVtable, Val,
};
use weir_wire::http2::{FRAME_MAX_BYTES, WINDOW_MAX_BYTES};

/// nginx's state buffer, which the receive buffer must exceed.
const RECV_BUFFER_MIN_BYTES: u64 = 16;
const POOL_MIN_BYTES: u64 = 256;
const POOL_ALIGN_BYTES: u64 = 16;

/// `http` level.
#[derive(Default)]
pub(crate) struct H2Main {
    pub(crate) recv_buffer_size: Val<u64>,
}

impl ConfType for H2Main {
    const LEVEL: Level = Level::Main;
    slot!();
}

impl H2Main {
    pub(crate) fn recv_buffer_bytes(&self) -> usize {
        self.recv_buffer_size.as_option().map_or(256 * 1024, |n| *n as usize)
    }
}

/// `server` level.
#[derive(Default)]
pub(crate) struct H2Srv {
    pub enable: Val<bool>,
    pub(crate) max_concurrent_streams: Val<u64>,
    pub(crate) body_preread_size: Val<u64>,
}

impl ConfType for H2Srv {
    const LEVEL: Level = Level::Server;
    slot!();
    fn merge(&mut self, parent: &H2Srv) -> ConfResult {
        merge_values!(self, parent;
            enable = false,
            max_concurrent_streams = 128,
            body_preread_size = 65_536,
        );
        Ok(())
    }
}

/// `location` level.
#[derive(Default)]
pub(crate) struct H2Loc {
    pub(crate) chunk_size: Val<u64>,
}

impl ConfType for H2Loc {
    const LEVEL: Level = Level::Location;
    slot!();
    fn merge(&mut self, parent: &H2Loc) -> ConfResult {
        merge_values!(self, parent; chunk_size = 8192);
        Ok(())
    }
}

const HS: Context = Context::HS;
const HSL: Context = Context::HSL;
const GROWS: &str = "Memory grows by need; the value is checked and not needed.";

const ROWS: &[Row] = &[
    Row::new(
        "http2",
        HS,
        Arity::FLAG,
        "off",
        "Speak HTTP/2: by ALPN over TLS, by its preface otherwise.",
        set!(Cf::get::<H2Srv>, enable, flag),
    )
    .note(
        "Frames that RFC 9113 forbids in a stream's state are errors, and so are frames over 1 MB; \
         nginx lets most of them pass.",
    ),
    Row::new(
        "http2_recv_buffer_size",
        Context::HTTP,
        Arity::ONE,
        "256k",
        "Most that is read from a connection at once.",
        |cf, d| {
            let v = d.size(0)?;
            if v <= RECV_BUFFER_MIN_BYTES {
                return Err(d.error("value is too small"));
            }
            cf.get::<H2Main>().recv_buffer_size.once(d, v)
        },
    ),
    Row::new(
        "http2_pool_size",
        HS,
        Arity::ONE,
        "4k",
        "Memory first taken for a connection.",
        pool_size,
    ).once()
    .note(GROWS),
    Row::new(
        "http2_max_concurrent_streams",
        HS,
        Arity::ONE,
        "128",
        "Most streams of a connection at a time.",
        set!(Cf::get::<H2Srv>, max_concurrent_streams, num),
    ),
    Row::new(
        "http2_body_preread_size",
        HS,
        Arity::ONE,
        "64k",
        "What a client may send of a body before it is asked for.",
        |cf, d| {
            let v = d.size(0)?;
            if v > u64::from(WINDOW_MAX_BYTES) {
                return Err(
                    d.fail(format!("the maximum body preread buffer size is {WINDOW_MAX_BYTES}"))
                );
            }
            cf.get::<H2Srv>().body_preread_size.once(d, v)
        },
    ),
    Row::new(
        "http2_streams_index_size",
        HS,
        Arity::ONE,
        "32",
        "Size of the streams' table.",
        |_, d| match d.num(0)?.is_power_of_two() {
            true => Ok(()),
            false => Err(d.error("must be a power of two")),
        },
    ).once()
    .note(GROWS),
    Row::new(
        "http2_chunk_size",
        HSL,
        Arity::ONE,
        "8k",
        "Most body bytes in one frame.",
        |cf, d| {
            let v = d.size(0)?;
            if v == 0 {
                return Err(d.fail("the http2 chunk size cannot be zero"));
            }
            cf.get::<H2Loc>().chunk_size.once(d, v.min(u64::from(FRAME_MAX_BYTES)))
        },
    ),
    Row::new(
        "http2_recv_timeout",
        HS,
        Arity::ONE,
        "",
        "Obsolete: client_header_timeout.",
        obsolete,
    ),
    Row::new("http2_idle_timeout", HS, Arity::ONE, "", "Obsolete: keepalive_timeout.", obsolete),
    Row::new("http2_max_requests", HS, Arity::ONE, "", "Obsolete: keepalive_requests.", obsolete),
    Row::new(
        "http2_max_field_size",
        HS,
        Arity::ONE,
        "",
        "Obsolete: large_client_header_buffers.",
        obsolete,
    ),
    Row::new(
        "http2_max_header_size",
        HS,
        Arity::ONE,
        "",
        "Obsolete: large_client_header_buffers.",
        obsolete,
    ),
    Row::new(
        "http2_max_concurrent_pushes",
        HS,
        Arity::ONE,
        "",
        "Obsolete: nothing is pushed.",
        obsolete,
    ),
    Row::new("http2_push_preload", HSL, Arity::FLAG, "", "Obsolete: nothing is pushed.", obsolete),
    Row::new("http2_push", HSL, Arity::ONE, "", "Obsolete: nothing is pushed.", obsolete),
];

/// `http2…`
pub const MODULE: HttpModule = HttpModule {
    rows: ROWS,
    slots: &[SlotVtable::of::<H2Main>(), SlotVtable::of::<H2Srv>(), SlotVtable::of::<H2Loc>()],
    variables: &[Variable::new("http2", variable)],
    ..HttpModule::EMPTY
};

fn pool_size(_: &mut Cf, d: &Directive) -> ConfResult {
    let v = d.size(0)?;
    if v < POOL_MIN_BYTES {
        return Err(d.fail(format!("the pool size must be no less than {POOL_MIN_BYTES}")));
    }
    if !v.is_multiple_of(POOL_ALIGN_BYTES) {
        return Err(d.fail(format!("the pool size must be a multiple of {POOL_ALIGN_BYTES}")));
    }
    Ok(())
}

/// Directives that nginx warns of and ignores.
fn obsolete(cf: &mut Cf, d: &Directive) -> ConfResult {
    let name = d.name.to_str().into_owned();
    let text = match name.as_str() {
        "http2_recv_timeout" => Some("client_header_timeout"),
        "http2_idle_timeout" => Some("keepalive_timeout"),
        "http2_max_requests" => Some("keepalive_requests"),
        "http2_max_field_size" | "http2_max_header_size" => Some("large_client_header_buffers"),
        _ => None,
    };
    let text = match text {
        Some(new) => {
            format!("the \"{name}\" directive is obsolete, use the \"{new}\" directive instead")
        }
        None => format!("the \"{name}\" directive is obsolete, ignored"),
    };
    cf.warn(d, text);
    Ok(())
}

/// `h2` over TLS, `h2c` otherwise; nothing for other protocols.
fn variable(r: &mut Request, _: &VarArg, out: &mut Vec<u8>) -> bool {
    if r.to_client().speaks_h2() {
        out.extend_from_slice(match r.conn().stream.is_tls() {
            true => b"h2".as_slice(),
            false => b"h2c",
        });
    }
    true
}
