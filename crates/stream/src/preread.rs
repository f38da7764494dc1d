//! `ssl_preread` (nginx's `ngx_stream_ssl_preread_module`): what a TLS client's hello tells, without
//! taking part in the handshake.

use crate::module::{Look, Prereader, Seen, StreamModule};
use crate::ssl::choose_server;
use crate::Session;
use weir_core::common::some;
use weir_core::variables::{VarArg, Variable};
use weir_module::first::flag;
use weir_module::{
    merge_values, set, slot, Arity, Cf, ConfResult, ConfType, Context, Level, Row, SlotVtable,
    Slots, Val,
};
use weir_wire::client_hello::{ClientHello, Progress, Reader};

#[derive(Default)]
struct PrereadSrv {
    enabled: Val<bool>,
}

impl ConfType for PrereadSrv {
    const LEVEL: Level = Level::Server;
    slot!();

    fn merge(&mut self, parent: &PrereadSrv) -> ConfResult {
        merge_values!(self, parent; enabled = false);
        Ok(())
    }
}

/// `ssl_preread`: what a TLS hello says, without taking it off the socket.
pub const MODULE: StreamModule = StreamModule {
    rows: &[Row::new(
        "ssl_preread",
        Context::SS,
        Arity::FLAG,
        "off",
        "Reads what a TLS client's hello tells, without taking part in the handshake.",
        set!(Cf::get::<PrereadSrv>, enabled, flag),
    )],
    slots: &[SlotVtable::of::<PrereadSrv>()],
    variables: &[
        Variable::new("ssl_preread_protocol", |s, arg, out| told(s, arg, out, protocol)),
        Variable::new("ssl_preread_server_name", |s, arg, out| told(s, arg, out, server_name)),
        Variable::new("ssl_preread_alpn_protocols", |s, arg, out| told(s, arg, out, alpn)),
    ],
    prereader: Some(Prereader { look: Look::AtBytes(look), active }),
    ..StreamModule::EMPTY
};

/// What has been read of the hello.
#[derive(Default)]
struct Hello {
    reader: Reader,
    told: Option<ClientHello>,
}

fn active(slots: &Slots) -> bool {
    *slots.get::<PrereadSrv>().enabled
}

fn look(s: &mut Session) -> Seen {
    // Nobody can look into what has been encrypted for this server.
    if s.conn().stream.is_tls() {
        return Seen::Enough;
    }
    let buf = std::mem::take(&mut s.buf);
    if s.ctx::<Hello>().is_none() {
        s.set_ctx(Hello { reader: Reader::new(), told: None });
    }
    let progress = s.ctx::<Hello>().map(|hello| hello.reader.read(&buf));
    s.buf = buf;
    match progress {
        Some(Progress::NeedMore) => return Seen::More,
        Some(Progress::Hello(hello)) => take(s, hello),
        Some(Progress::NotTls) | None => s.drop_ctx::<Hello>(),
    }
    Seen::Enough
}

/// The hello is there: its name may be another server's.
fn take(s: &mut Session, hello: ClientHello) {
    let name = hello.server_name.clone();
    if let Some(ctx) = s.ctx::<Hello>() {
        ctx.told = Some(hello);
    }
    choose_server(s, &name);
}

fn told(
    s: &mut Session,
    _: &VarArg,
    out: &mut Vec<u8>,
    what: fn(&ClientHello, &mut Vec<u8>),
) -> bool {
    let Some(hello) = s.ctx_ref::<Hello>() else { return false };
    match &hello.told {
        Some(hello) => what(hello, out),
        // There was none, which is a value too.
        None => return some(out, b""),
    }
    true
}

fn protocol(hello: &ClientHello, out: &mut Vec<u8>) {
    out.extend_from_slice(hello.protocol().as_bytes());
}

fn server_name(hello: &ClientHello, out: &mut Vec<u8>) {
    out.extend_from_slice(&hello.server_name);
}

fn alpn(hello: &ClientHello, out: &mut Vec<u8>) {
    out.extend_from_slice(&hello.alpn_protocols());
}
