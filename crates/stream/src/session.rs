//! One session: a client's connection, and what is done with its bytes.

use crate::conf::StreamMain;
use crate::generation::{ServerConf, Stream};
use std::any::Any;
use std::rc::Rc;
use std::sync::Arc;
use weir_core::generation::{Generation, Virtual};
use weir_core::logger::ErrorLog;
use weir_core::registry::VarRegistry;
use weir_core::session::Part;
use weir_core::timing::UpstreamState;
use weir_core::values::Values;
use weir_core::variables::VarDef;
use weir_core::{ClientAddr, Connection};
use weir_module::{Cf, ConfType, Context, Slots};
use weir_runtime::clock;
use weir_runtime::listen::ListenAddr;

/// A TCP connection, or what one client has sent to one address by UDP, from accept to log.
pub struct Session {
    conn: Rc<Connection>,
    gen: Rc<Stream>,
    server: Arc<ServerConf>,
    values: Values,
    /// The client's address and its text, where it is not the connection's (realip).
    client: Option<Box<(ClientAddr, Vec<u8>)>>,
    ctx: Vec<Box<dyn Any>>,
    /// What was read and is not yet passed on.
    pub buf: Vec<u8>,
    /// The first bytes were looked at and not taken.
    pub(crate) peeks: bool,
    /// 0 until it ends.
    pub status: u16,
    /// What is being done, for the error log: `connecting to upstream`.
    pub(crate) doing: &'static str,
    /// What a module adds to the error log's lines.
    pub(crate) log_more: Option<fn(&Session, &mut Vec<u8>)>,
    /// `$bytes_received`, from the client.
    pub received: u64,
    /// `$bytes_sent`.
    pub sent: u64,
    /// The socket that it is handed to, and the address asked for there.
    pub(crate) pass_to: Option<Box<(usize, ListenAddr)>>,
    /// How often it has been handed on.
    pub(crate) passes: u32,
    /// The servers that were asked.
    pub upstream: Vec<UpstreamState>,
    /// It is over and being logged.
    over: bool,
}

impl Session {
    /// One that has done nothing yet; `passes` counts how often it came by `pass`.
    pub fn new(conn: Rc<Connection>, gen: Rc<Stream>, server: usize, passes: u32) -> Session {
        let server = Arc::clone(&gen.shared.servers[server]);
        Session {
            conn,
            gen,
            server,
            values: Values::default(),
            client: None,
            ctx: Vec::new(),
            buf: Vec::new(),
            peeks: false,
            status: 0,
            doing: "initializing session",
            log_more: None,
            received: 0,
            sent: 0,
            pass_to: None,
            passes,
            upstream: Vec::new(),
            over: false,
        }
    }

    /// The client's.
    pub fn conn(&self) -> &Rc<Connection> {
        &self.conn
    }

    pub(crate) fn gen(&self) -> &Rc<Stream> {
        &self.gen
    }

    pub(crate) fn server(&self) -> &Arc<ServerConf> {
        &self.server
    }

    /// Another server of the address, by its number.
    pub(crate) fn set_server(&mut self, id: usize) {
        self.server = Arc::clone(&self.gen.shared.servers[id]);
    }

    /// Gives back room for more than there is: nothing will be asked of it for long.
    pub(crate) fn shrink(&mut self) {
        self.buf.shrink_to_fit();
        self.upstream.shrink_to_fit();
        self.values.shrink();
    }

    /// The server has sent its first byte, if that is not known yet.
    pub(crate) fn first_byte(&mut self, begun_ms: u64) {
        let Some(state) = self.upstream.last_mut() else { return };
        if state.header_ms.is_none() {
            let took_ms = clock::mono_ms().saturating_sub(begun_ms);
            state.header_ms = Some(state.connect_ms.unwrap_or_default() + took_ms);
        }
    }

    /// It is over: what follows is logging.
    pub(crate) fn end(&mut self, status: u16) {
        self.status = status;
        self.over = true;
        self.values.unknown.end();
    }

    /// State that a module keeps with the session.
    pub fn ctx<T: Any>(&mut self) -> Option<&mut T> {
        self.ctx.iter_mut().find_map(|c| c.downcast_mut())
    }

    /// The same, for reading.
    pub(crate) fn ctx_ref<T: Any>(&self) -> Option<&T> {
        self.ctx.iter().find_map(|c| c.downcast_ref())
    }

    pub(crate) fn drop_ctx<T: Any>(&mut self) {
        self.ctx.retain(|c| !c.is::<T>());
    }

    /// Replaces what there was of that type.
    pub fn set_ctx<T: Any>(&mut self, value: T) {
        match self.ctx::<T>() {
            Some(old) => *old = value,
            None => self.ctx.push(Box::new(value)),
        }
    }
}

impl Part<Session> for Stream {
    fn core(&self) -> &Arc<Generation> {
        &self.core
    }

    fn main(&self) -> &Slots {
        &self.shared.main
    }

    fn vars(&self) -> &[VarDef<Session>] {
        &self.shared.vars
    }

    fn registry(&self) -> &VarRegistry<Session> {
        &self.shared.main.get::<StreamMain>().vars
    }
}

impl weir_core::Session for Session {
    type Part = Stream;
    const BLOCK: Context = Context::STREAM;
    const LEVELS: Context = Context::SS;

    fn registry(cf: &mut Cf) -> &mut VarRegistry<Session> {
        &mut cf.get::<StreamMain>().vars
    }

    fn part(&self) -> &Rc<Stream> {
        &self.gen
    }

    fn values(&self) -> &Values {
        &self.values
    }

    fn values_mut(&mut self) -> &mut Values {
        &mut self.values
    }

    fn conn(&self) -> &Rc<Connection> {
        &self.conn
    }

    fn base(&self) -> &Arc<Virtual> {
        &self.server.base
    }

    fn client(&self) -> ClientAddr {
        self.client.as_ref().map_or(self.conn.client, |c| c.0)
    }

    fn client_text(&self) -> &[u8] {
        match &self.client {
            Some(c) => &c.1,
            None => self.conn.client_text(),
        }
    }

    fn set_client(&mut self, client: ClientAddr) {
        let mut text = Vec::new();
        client.write(&mut text);
        self.client = Some(Box::new((client, text)));
    }

    fn error_log(&self) -> &ErrorLog {
        &self.server.base.error_log
    }

    fn write_log_context(&self, line: &mut Vec<u8>) {
        if !self.doing.is_empty() {
            line.extend_from_slice(b" while ");
            line.extend_from_slice(self.doing.as_bytes());
        }
        line.extend_from_slice(if self.conn.is_udp() { b", udp client: " } else { b", client: " });
        line.extend_from_slice(self.client_text());
        line.extend_from_slice(b", server: ");
        let listen = &self.gen.core.listens[self.conn.listen.get()];
        line.extend_from_slice(listen.addr.to_string().as_bytes());
        if let Some(more) = self.log_more {
            more(self, line);
        }
    }

    fn with_conf<T: ConfType, R>(&mut self, f: impl FnOnce(&mut Session, &T) -> R) -> R {
        let server = Arc::clone(&self.server);
        f(self, server.conf())
    }

    fn kept<T: Any>(&mut self) -> Option<&mut T> {
        self.ctx()
    }

    fn keep_state<T: Any>(&mut self, value: T) {
        self.set_ctx(value);
    }

    fn is_answered(&self) -> bool {
        self.over
    }
}
