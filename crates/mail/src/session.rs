//! One session: a client's connection, and what is known of it beside what it says.

use crate::conf::MailMain;
use crate::facts::{Came, Facts};
use crate::generation::{Mail, ServerConf};
use std::rc::Rc;
use std::sync::Arc;
use weir_core::generation::Virtual;
use weir_core::registry::VarRegistry;
use weir_core::relay::{Passed, Relayed};
use weir_core::timing::UpstreamState;
use weir_core::whole::{Own, Whole};
use weir_core::{Connection, Session as _};
use weir_module::{Cf, Context};

/// A connection of a mail client, from accept to its end.
pub struct Session {
    own: Own,
    gen: Rc<Mail>,
    server: Arc<ServerConf>,
    /// What is being done, for the error log: `in auth state`.
    pub(crate) doing: &'static str,
    /// TLS was, or is, begun within the session.
    pub(crate) starttls: bool,
    /// The name that the client has given, for the error log.
    pub(crate) login: Vec<u8>,
    /// The client's host, as SMTP servers are told of it.
    pub(crate) host: Vec<u8>,
    /// The server that it is brought to.
    pub(crate) upstream: Option<Box<str>>,
    pub(crate) facts: Facts,
}

impl Session {
    /// With a server of the block, by its number.
    pub fn new(conn: Rc<Connection>, gen: Rc<Mail>, server: usize) -> Session {
        let server = Arc::clone(&gen.shared.servers[server]);
        Session {
            own: Own::new(conn),
            gen,
            server,
            doing: "sending client greeting line",
            starttls: false,
            login: Vec::new(),
            host: Vec::new(),
            upstream: None,
            facts: Facts::new(),
        }
    }

    /// What is spoken: `imap`, `pop3` or `smtp`.
    pub fn protocol(&self) -> &'static str {
        self.server.settings.protocol.name()
    }

    /// The name that greets clients.
    pub fn server_name(&self) -> &[u8] {
        &self.server.settings.server_name
    }

    /// The name that the client has given; empty where it has given none.
    pub fn login(&self) -> &[u8] {
        &self.login
    }

    /// What has become of it.
    pub fn came(&self) -> Came {
        self.facts.came.get()
    }

    /// When it began, in monotonic microseconds.
    pub fn begun_us(&self) -> u64 {
        self.facts.begun_us
    }

    /// Bytes from the client and to it.
    pub fn bytes(&self) -> (u64, u64) {
        (self.facts.received.get(), self.facts.sent.get())
    }

    /// The server that it was brought to, or was to be.
    pub fn upstream(&self) -> Option<&UpstreamState> {
        self.facts.upstream.as_deref()
    }

    /// It is over: what follows is logging.
    pub(crate) fn end(&mut self) {
        self.own.end();
    }

    pub(crate) fn gen(&self) -> &Rc<Mail> {
        &self.gen
    }

    pub(crate) fn server(&self) -> &Arc<ServerConf> {
        &self.server
    }

    /// Gives back room for more than there is: nothing will be asked of it for long.
    pub(crate) fn shrink(&mut self) {
        self.own.shrink();
        self.login.shrink_to_fit();
        self.host = Vec::new();
    }

    /// The value of a variable that a module brings; empty without one.
    pub(crate) fn value(&mut self, name: &str) -> Vec<u8> {
        let mut out = Vec::new();
        match self.var_named(name.as_bytes(), &mut out) {
            true => out,
            false => Vec::new(),
        }
    }
}

impl Relayed for Session {
    fn doing(&mut self) -> &mut &'static str {
        &mut self.doing
    }

    fn passed(&mut self, passed: &Passed) {
        self.facts.passed(passed);
    }
}

impl Whole for Session {
    type View = Mail;
    const OUTER: Context = Context::MAIL;
    const BOTH: Context = Context::MS;

    fn variables(cf: &mut Cf) -> &mut VarRegistry<Session> {
        &mut cf.get::<MailMain>().vars
    }

    fn parts(&self) -> (&Own, &Rc<Mail>, &Arc<Virtual>) {
        (&self.own, &self.gen, &self.server.base)
    }

    fn own_mut(&mut self) -> &mut Own {
        &mut self.own
    }

    fn write_context(&self, line: &mut Vec<u8>) {
        let mut push = |parts: &[&[u8]]| parts.iter().for_each(|p| line.extend_from_slice(p));
        if !self.doing.is_empty() {
            push(&[b" while ", self.doing.as_bytes()]);
        }
        push(&[b", client: ", self.client_text()]);
        let starttls: &[u8] = if self.starttls { b" using starttls" } else { b"" };
        let addr = self.own.conn.addr(&self.gen.core).addr.to_string();
        push(&[starttls, b", server: ", addr.as_bytes()]);
        if !self.login.is_empty() {
            push(&[b", login: \"", &self.login, b"\""]);
        }
        if let Some(upstream) = &self.upstream {
            push(&[b", upstream: ", upstream.as_bytes()]);
        }
    }
}
