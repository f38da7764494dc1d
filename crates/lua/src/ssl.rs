//! Code in handshakes with clients: `ssl_client_hello_by_lua`, `ssl_certificate_by_lua` and those of sessions.
//!
//! Difference from OpenResty: sessions are handed in and out before and behind the handshake, so that code may wait
//! for those it fetches with any TLS library's release; their text is not OpenSSL's.

use crate::code;
use crate::conf::{LuaLoc, LuaMain};
use crate::rows::row;
use crate::run::{context, Outcome, Run, Step};
use crate::site::{came_by, Block, Site, Who};
use crate::vm::Vm;
use std::rc::Rc;
use std::sync::Arc;
use weir_core::block::Place;
use weir_core::generation::{Virtual, WorkerGen};
use weir_core::logger::LogLevel;
use weir_core::tls::code::{moment, Code, Shake};
use weir_core::{Connection, LocalFuture};
use weir_http::conf::CoreSrv;
use weir_http::generation::Http;
use weir_http::module::{Build, HttpModule};
use weir_http::Request;
use weir_module::{
    merge_values, slot, ArgsExt, Arity, Cf, ConfResult, ConfType, Context, Diagnostic, Directive,
    Level, Row, RowBody, SlotVtable, Slots, Val,
};

/// Code of a server's handshakes, by its number.
#[derive(Default)]
pub(crate) struct LuaSrv {
    pub(crate) hello: Val<Option<u32>>,
    pub(crate) certificate: Val<Option<u32>>,
    fetch: Val<Option<u32>>,
    store: Val<Option<u32>>,
}

impl ConfType for LuaSrv {
    const LEVEL: Level = Level::Server;
    slot!();

    fn merge(&mut self, parent: &LuaSrv) -> ConfResult {
        merge_values!(self, parent; hello = None, certificate = None, fetch = None, store = None);
        Ok(())
    }
}

impl LuaSrv {
    fn code(&self, at: u8) -> Option<u32> {
        let code = match at {
            moment::HELLO => &self.hello,
            moment::CERTIFICATE => &self.certificate,
            moment::FETCH => &self.fetch,
            _ => &self.store,
        };
        code.as_option().copied().flatten()
    }

    fn moments(&self) -> u8 {
        WORDS.iter().map(|w| w.at).filter(|at| self.code(*at).is_some()).fold(0, |all, at| all | at)
    }
}

/// A moment in OpenResty's words.
struct Words {
    at: u8,
    context: u32,
    /// In the debugging lines, before the code and behind it.
    before: &'static str,
    name: &'static str,
    exit: &'static str,
}

const WORDS: [Words; 4] = [
    Words {
        at: moment::HELLO,
        context: context::SSL_HELLO,
        before: "ssl client hello",
        name: "ssl_client_hello_by_lua",
        exit: "client hello cb",
    },
    Words {
        at: moment::CERTIFICATE,
        context: context::SSL_CERT,
        before: "ssl cert",
        name: "ssl_certificate_by_lua",
        exit: "cert cb",
    },
    Words {
        at: moment::FETCH,
        context: context::SSL_FETCH,
        before: "ssl session fetch",
        name: "ssl_session_fetch_by_lua*",
        exit: "sess get cb",
    },
    Words {
        at: moment::STORE,
        context: context::SSL_STORE,
        before: "ssl session store",
        name: "ssl_session_store_by_lua*",
        exit: "sess new cb",
    },
];

/// What a run in a handshake has instead of a request.
pub(crate) struct Moment {
    pub conn: Rc<Connection>,
    pub shake: Rc<Shake>,
    gen: Rc<WorkerGen>,
    server: usize,
}

impl Moment {
    fn block(&self) -> Block {
        match self.conn.protocol() {
            "stream" => Block::Stream,
            _ => Block::Http,
        }
    }

    fn site(&self) -> Site {
        match self.block() {
            Block::Stream => Site::Server(Arc::clone(self.virtual_server())),
            Block::Http => {
                let http = Http::of(&self.gen);
                Site::Location(Rc::clone(http.location(http.server(self.server).location)))
            }
        }
    }

    fn virtual_server(&self) -> &Arc<Virtual> {
        self.conn.server(&self.gen.shared, self.server)
    }

    /// The server's code at that moment, and the name it has.
    fn code(&self, at: u8) -> Result<u32, Vec<u8>> {
        match self.block() {
            Block::Stream => {
                let server = self.virtual_server();
                let name = || server.conf::<Place>().reached.primary_name.to_vec();
                server.conf::<LuaSrv>().code(at).ok_or_else(name)
            }
            Block::Http => {
                let http = Http::of(&self.gen);
                let server = http.server(self.server);
                let name = || server.core.reached.primary_name.to_vec();
                server.conf::<LuaSrv>().code(at).ok_or_else(name)
            }
        }
    }

    fn debug(&self, text: impl FnOnce() -> String) {
        let site = self.site();
        if site.error_log().enabled(LogLevel::Debug) {
            site.error_log().log(LogLevel::Debug, Some(self.conn.serial), text().as_bytes());
        }
    }
}

/// Says, unless it is told that the code has come to its end, that it has not.
struct Waiting<'a> {
    at: &'a Moment,
    words: &'static Words,
    is_done: bool,
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        if !self.is_done {
            let Words { name, exit, .. } = self.words;
            self.at.debug(|| format!("{name}: {exit} aborted"));
        }
    }
}

/// Runs the code of one moment.
fn says(
    conn: &Rc<Connection>,
    gen: &Rc<WorkerGen>,
    server: usize,
    at: u8,
    shake: &Rc<Shake>,
) -> LocalFuture<'static, bool> {
    let (conn, gen, shake) = (Rc::clone(conn), Rc::clone(gen), Rc::clone(shake));
    let at_moment = Moment { conn, shake, gen, server };
    Box::pin(async move {
        match WORDS.iter().find(|w| w.at == at) {
            Some(words) => run(at_moment, words).await,
            None => true,
        }
    })
}

async fn run(at: Moment, words: &'static Words) -> bool {
    let Words { name, exit, before, .. } = words;
    if words.at & (moment::FETCH | moment::STORE) != 0 && at.shake.is_tls13.get() {
        at.debug(|| format!("{name}: skipped since TLS version >= 1.3 (304)"));
        return true;
    }
    at.debug(|| "reusable connection: 0".to_owned());
    at.debug(|| format!("{before}: connection reusable: 0"));
    let code = match at.code(words.at) {
        Ok(code) => code,
        Err(name_of_server) => {
            let shown = String::from_utf8_lossy(&name_of_server);
            let text = format!("no {name}* defined in server {shown}");
            at.conn.log(LogLevel::Alert, text.as_bytes());
            return false;
        }
    };
    let vm = Vm::of(&at.conn.worker, &at.gen.shared, at.block());
    let at = Rc::new(at);
    let mut run = Run::new(&vm, words.context);
    run.site = Some(at.site());
    run.origin = came_by(&at.conn, at.conn.client_text());
    run.moment = Some(Rc::clone(&at));
    let has_waited = run.begin(Who::Nobody, code) == Step::Waits;
    if has_waited {
        let mut waiting = Waiting { at: &at, words, is_done: false };
        run.drive(Who::Nobody).await;
        waiting.is_done = true;
    }
    // Nothing comes of what code says when sessions are stored.
    let stores = words.at == moment::STORE;
    let returned = match run.outcome {
        Outcome::Failed if stores => -1,
        Outcome::Failed => 500,
        Outcome::Exit(status) if !stores => status,
        _ => 0,
    };
    let is_good = (0..400).contains(&returned);
    let number = i32::from(is_good && !stores);
    at.debug(|| match has_waited {
        true => format!("{name}: {exit} exit code: {number}"),
        false => {
            format!("{name}: handler return value: {returned}, {exit} exit code: {number}")
        }
    });
    is_good
}

pub(crate) fn put<S: weir_core::Session>(
    cf: &mut Cf,
    d: &Directive,
    place: fn(&mut LuaSrv) -> &mut Val<Option<u32>>,
) -> ConfResult {
    let code = code::of::<S>(cf, d)?;
    let number = cf.get::<LuaMain>().add(code);
    place(cf.get::<LuaSrv>()).once(d, Some(number))
}

/// The forms of a directive, in a block and in a file.
macro_rules! handshake_by_lua {
    ($session:ty, $name:literal, $contexts:expr, $doc:literal, $place:ident) => {
        [
            row(concat!($name, "_by_lua_block"), $contexts, RowBody::Raw, $doc, |cf, d| {
                crate::ssl::put::<$session>(cf, d, |srv| &mut srv.$place)
            }),
            row(
                concat!($name, "_by_lua_file"),
                $contexts,
                RowBody::Plain,
                concat!($doc, " The code is in a file."),
                |cf, d| crate::ssl::put::<$session>(cf, d, |srv| &mut srv.$place),
            ),
        ]
    };
}

pub(crate) use handshake_by_lua;

const HELLO: [Row; 2] = handshake_by_lua!(
    Request,
    "ssl_client_hello",
    Context::HS,
    "Runs when a client's hello is there, at the address's default server.",
    hello
);
const CERTIFICATE: [Row; 2] = handshake_by_lua!(
    Request,
    "ssl_certificate",
    Context::HS,
    "Runs when a handshake needs a certificate, and may choose it.",
    certificate
);
const FETCH: [Row; 2] = handshake_by_lua!(
    Request,
    "ssl_session_fetch",
    Context::HTTP,
    "Runs when a client wants to go on with a session of TLS 1.2 that it names.",
    fetch
);
const STORE: [Row; 2] = handshake_by_lua!(
    Request,
    "ssl_session_store",
    Context::HTTP,
    "Runs when there is a session of TLS 1.2 that may be gone on with later.",
    store
);

/// Beside the directives of sockets' TLS that all have who speak to servers.
pub(crate) const KEY_LOG: Row = Row::new(
    "lua_ssl_key_log",
    Context::HSL.or(Context::LIF),
    Arity::ONE,
    "",
    "Writes the keys of sockets' sessions to a file, for analysing traffic.",
    |cf, d| {
        let path = Some(cf.full_path(d.arg(0)));
        cf.get::<LuaLoc>().ssl.key_log.once(d, path)
    },
);

static TABLE: [Row; 9] = [
    KEY_LOG,
    HELLO[0],
    HELLO[1],
    CERTIFICATE[0],
    CERTIFICATE[1],
    FETCH[0],
    FETCH[1],
    STORE[0],
    STORE[1],
];

fn build(b: &mut Build<'_>) -> ConfResult {
    for slots in b.servers.iter_mut() {
        let moments = slots.get::<LuaSrv>().moments();
        let core = slots.get_mut::<CoreSrv>();
        if moments & (moment::HELLO | moment::CERTIFICATE) != 0 && core.base.tls.is_none() {
            let hint = "add ssl_certificate FILE; ssl_certificate_key FILE; with a certificate \
                        that stands in until code has chosen one";
            let e = Diagnostic::emerg("no ssl configured for the server".to_owned());
            return Err(e.hint(hint.to_owned()).within(core.reached.at));
        }
        core.base.code = (moments != 0).then_some(Code { moments, says });
    }
    Ok(())
}

/// A server of `stream` gets its code, once its TLS is made. One without TLS may have inherited some, which does not run.
pub(crate) fn build_server(slots: &mut Slots) {
    let moments = slots.get::<LuaSrv>().moments();
    let base = &mut slots.get_mut::<Place>().base;
    base.code = (moments != 0 && base.tls.is_some()).then_some(Code { moments, says });
}

/// OpenResty's code in handshakes.
pub const MODULE: HttpModule = HttpModule {
    rows: &TABLE,
    slots: &[SlotVtable::of::<LuaSrv>()],
    build: Some(build),
    ..HttpModule::EMPTY
};
