//! One session: a client's connection, and what is done with its bytes.

use crate::conf::StreamMain;
use crate::generation::{ServerConf, Stream};
use crate::status_zone;
use std::any::Any;
use std::rc::Rc;
use std::sync::Arc;
use weir_core::block::Place;
use weir_core::generation::Virtual;
use weir_core::registry::VarRegistry;
use weir_core::relay::{Passed, Relayed, CLIENT, SERVER};
use weir_core::timing::UpstreamState;
use weir_core::whole::{Own, Whole};
use weir_core::{Connection, Session as _};
use weir_module::{Cf, Context};
use weir_runtime::clock;
use weir_runtime::listen::ListenAddr;

/// A TCP connection, or what one client has sent to one address by UDP, from accept to log.
pub struct Session {
    own: Own,
    gen: Rc<Stream>,
    server: Arc<ServerConf>,
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
    /// When it was begun to be served, in microseconds; 0 before.
    pub(crate) begun_us: u64,
    /// Something is done with its bytes.
    pub(crate) is_served: bool,
}

impl Session {
    /// One that has done nothing yet; `passes` counts how often it came by `pass`.
    pub fn new(conn: Rc<Connection>, gen: Rc<Stream>, server: usize, passes: u32) -> Session {
        let server = Arc::clone(&gen.shared.servers[server]);
        Session {
            own: Own::new(conn),
            gen,
            server,
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
            begun_us: 0,
            is_served: false,
        }
    }

    /// The client's.
    pub fn conn(&self) -> &Rc<Connection> {
        &self.own.conn
    }

    /// Its server's first name; empty where it has none.
    pub fn server_name(&self) -> &[u8] {
        &self.server.conf::<Place>().reached.primary_name
    }

    /// When it was begun to be served, in monotonic microseconds.
    pub fn begun_us(&self) -> u64 {
        self.begun_us
    }

    /// What was read of the client, which is the caller's from now on. What was only looked at is still to be
    /// read, and forgotten.
    pub fn take_first(&mut self) -> Vec<u8> {
        let buf = std::mem::take(&mut self.buf);
        match std::mem::replace(&mut self.peeks, false) {
            true => Vec::new(),
            false => buf,
        }
    }

    pub(crate) fn gen(&self) -> &Rc<Stream> {
        &self.gen
    }

    pub(crate) fn server(&self) -> &Arc<ServerConf> {
        &self.server
    }

    /// Another server of the address, by its number.
    pub(crate) fn set_server(&mut self, id: usize) {
        let server = Arc::clone(&self.gen.shared.servers[id]);
        status_zone::moves(self, &server);
        self.server = server;
    }

    /// Gives back room for more than there is: nothing will be asked of it for long.
    pub(crate) fn shrink(&mut self) {
        self.buf.shrink_to_fit();
        self.upstream.shrink_to_fit();
        self.own.shrink();
    }

    /// Its connection goes to another session.
    pub(crate) fn hand_on(&mut self) {
        self.own.hand_on();
    }

    /// It is over: what follows is logging.
    pub(crate) fn end(&mut self, status: u16) {
        self.status = status;
        self.own.end();
    }

    /// State that a module keeps with the session.
    pub fn ctx<T: Any>(&mut self) -> Option<&mut T> {
        self.own.ctx()
    }

    /// The same, for reading.
    pub fn ctx_ref<T: Any>(&self) -> Option<&T> {
        self.own.ctx_ref()
    }

    pub(crate) fn drop_ctx<T: Any>(&mut self) {
        self.own.drop_ctx::<T>();
    }

    /// Replaces what there was of that type.
    pub fn set_ctx<T: Any>(&mut self, value: T) {
        self.own.set_ctx(value);
    }
}

impl Relayed for Session {
    fn doing(&mut self) -> &mut &'static str {
        &mut self.doing
    }

    /// Notes when the first byte was heard, if that is not known yet.
    fn heard(&mut self, begun_us: u64) {
        let Some(state) = self.upstream.last_mut() else { return };
        if state.header_us.is_none() {
            let took_us = clock::mono_us().saturating_sub(begun_us);
            state.header_us = Some(state.connect_us.unwrap_or_default() + took_us);
        }
    }

    fn passed(&mut self, passed: &Passed) {
        self.received = passed.received[CLIENT];
        self.sent = passed.sent[SERVER];
        if let Some(state) = self.upstream.last_mut() {
            state.bytes_received = passed.received[SERVER];
            state.bytes_sent = passed.sent[CLIENT];
            state.response_us = Some(state.connect_us.unwrap_or_default() + passed.took_us);
        }
    }
}

impl Whole for Session {
    type View = Stream;
    const OUTER: Context = Context::STREAM;
    const BOTH: Context = Context::SS;

    fn variables(cf: &mut Cf) -> &mut VarRegistry<Session> {
        &mut cf.get::<StreamMain>().vars
    }

    fn parts(&self) -> (&Own, &Rc<Stream>, &Arc<Virtual>) {
        (&self.own, &self.gen, &self.server.base)
    }

    fn own_mut(&mut self) -> &mut Own {
        &mut self.own
    }

    fn write_context(&self, line: &mut Vec<u8>) {
        if !self.doing.is_empty() {
            line.extend_from_slice(b" while ");
            line.extend_from_slice(self.doing.as_bytes());
        }
        let conn = &self.own.conn;
        line.extend_from_slice(if conn.is_udp() { b", udp client: " } else { b", client: " });
        line.extend_from_slice(self.client_text());
        line.extend_from_slice(b", server: ");
        let addr = &conn.socket(&self.gen.core).addr;
        line.extend_from_slice(addr.to_string().as_bytes());
        if let Some(more) = self.log_more {
            more(self, line);
        }
    }
}
