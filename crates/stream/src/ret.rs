//! `return` (nginx's `ngx_stream_return_module`): a text is sent, and the connection closed.

use crate::conf::StreamSrv;
use crate::module::StreamModule;
use crate::serve::{ERROR, OK};
use crate::Session;
use std::sync::Arc;
use weir_core::datagrams::Datagrams;
use weir_core::logger::LogLevel;
use weir_core::registry::template;
use weir_core::{socket_errors, LocalFuture, Session as _};
use weir_module::{
    slot, ArgsExt, Arity, Cf, ConfResult, ConfType, Context, Directive, Level, Row, SlotVtable,
};
use weir_script::template::Template;

/// How long the client may take nothing.
const SEND_TIMEOUT_MS: u64 = 5_000;

#[derive(Default)]
struct ReturnSrv {
    text: Option<Arc<Template>>,
}

impl ConfType for ReturnSrv {
    const LEVEL: Level = Level::Server;
    slot!();
}

/// `return`: a text, and the end.
pub const MODULE: StreamModule = StreamModule {
    rows: &[Row::new(
        "return",
        Context::STREAM_SERVER,
        Arity::ONE,
        "",
        "Sends a text and closes the connection.",
        set_return,
    )],
    slots: &[SlotVtable::of::<ReturnSrv>()],
    ..StreamModule::EMPTY
};

fn set_return(cf: &mut Cf, d: &Directive) -> ConfResult {
    let text = Arc::new(template::<Session>(cf, d, 0)?);
    if cf.get::<ReturnSrv>().text.replace(text).is_some() {
        return Err(d.error("is duplicate"));
    }
    cf.get::<StreamSrv>().content = Some(content);
    Ok(())
}

fn content(s: &mut Session) -> LocalFuture<'_, u16> {
    Box::pin(answer(s))
}

async fn answer(s: &mut Session) -> u16 {
    s.doing = "returning text";
    let Some(text) = s.server().conf::<ReturnSrv>().text.clone() else { return ERROR };
    let text = s.eval(&text);
    if s.match_failed() {
        return ERROR;
    }
    let conn = std::rc::Rc::clone(s.conn());
    if let Some(datagrams) = conn.datagrams.get() {
        answer_datagram(s, datagrams, &text);
        return OK;
    }
    s.sent += conn.out.borrow_mut().write(|out| out.extend_from_slice(&text));
    match conn.drain(0, SEND_TIMEOUT_MS).await {
        Ok(()) => OK,
        Err(_) => {
            s.sent -= conn.unsent();
            OK
        }
    }
}

/// One datagram; none for an empty text.
fn answer_datagram(s: &mut Session, to: &Datagrams, text: &[u8]) {
    if text.is_empty() {
        return;
    }
    match to.send(text) {
        Ok(n) => s.sent += n as u64,
        Err(e) => {
            let text = format!("sendmsg() failed ({})", weir_core::os_text(&e));
            s.log(socket_errors::level(&e, LogLevel::Info), &text);
        }
    }
}
