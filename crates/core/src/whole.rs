//! Sessions that are a connection's from its beginning to its end, as `stream`'s and `mail`'s are: what they
//! keep, and how a [`Session`] is made of it.

use crate::generation::{Generation, Shared, Virtual, WorkerGen};
use crate::logger::{ErrorLog, LogLevel};
use crate::registry::VarRegistry;
use crate::session::{Part, Session};
use crate::values::Values;
use crate::variables::VarDef;
use crate::{socket_errors, ClientAddr, ConnError, Connection};
use std::any::Any;
use std::rc::Rc;
use std::sync::Arc;
use weir_module::{Cf, ConfType, Context, Slots};
use weir_runtime::listen::ListenAddr;

/// What such a session keeps.
pub struct Own {
    /// The client's.
    pub conn: Rc<Connection>,
    /// What its variables have been found to be.
    pub values: Values,
    /// The client's address and its text, where it is not the connection's (realip).
    client: Option<Box<(ClientAddr, Vec<u8>)>>,
    ctx: Vec<Box<dyn Any>>,
    /// It is over and being logged.
    over: bool,
}

impl Own {
    /// Of a session that begins.
    pub fn new(conn: Rc<Connection>) -> Own {
        Own { conn, values: Values::default(), client: None, ctx: Vec::new(), over: false }
    }

    /// State that a module keeps with the session.
    pub fn ctx<T: Any>(&mut self) -> Option<&mut T> {
        self.ctx.iter_mut().find_map(|c| c.downcast_mut())
    }

    /// The same, for reading.
    pub fn ctx_ref<T: Any>(&self) -> Option<&T> {
        self.ctx.iter().find_map(|c| c.downcast_ref())
    }

    /// Forgets that state.
    pub fn drop_ctx<T: Any>(&mut self) {
        self.ctx.retain(|c| !c.is::<T>());
    }

    /// Replaces what there was of that type.
    pub fn set_ctx<T: Any>(&mut self, value: T) {
        match self.ctx::<T>() {
            Some(old) => *old = value,
            None => self.ctx.push(Box::new(value)),
        }
    }

    /// Gives back room for more than there is.
    pub fn shrink(&mut self) {
        self.values.shrink();
        self.ctx.shrink_to_fit();
    }

    /// The connection goes to another session, with what this one has found and keeps.
    pub fn hand_on(&mut self) {
        let client = self.client.take().map_or(self.conn.client(), |c| c.0);
        self.conn.hand_on(client, std::mem::take(&mut self.ctx));
    }

    /// The session is over: what follows is logging.
    pub fn end(&mut self) {
        self.over = true;
        self.values.unknown.end();
    }
}

/// A session of that kind; all that [`Session`] asks is made of this.
pub trait Whole: Sized + 'static {
    /// A worker's view of the block.
    type View: Part<Self>;
    /// The protocol's block.
    const OUTER: Context;
    /// The block and its `server`.
    const BOTH: Context;

    /// Those of the block that is read.
    fn variables(cf: &mut Cf) -> &mut VarRegistry<Self>;
    /// What it keeps, the view by which it began, and what core has of its server.
    fn parts(&self) -> (&Own, &Rc<Self::View>, &Arc<Virtual>);
    /// What it keeps, to change.
    fn own_mut(&mut self) -> &mut Own;
    /// Behind the text of a line of the error log: `, client: …`.
    fn write_context(&self, line: &mut Vec<u8>);
}

impl<T: Whole> Session for T {
    type Part = T::View;
    const BLOCK: Context = T::OUTER;
    const LEVELS: Context = T::BOTH;

    fn registry(cf: &mut Cf) -> &mut VarRegistry<T> {
        T::variables(cf)
    }

    fn part(&self) -> &Rc<T::View> {
        self.parts().1
    }

    fn values(&self) -> &Values {
        &self.parts().0.values
    }

    fn values_mut(&mut self) -> &mut Values {
        &mut self.own_mut().values
    }

    fn conn(&self) -> &Rc<Connection> {
        &self.parts().0.conn
    }

    fn base(&self) -> &Arc<Virtual> {
        self.parts().2
    }

    fn client(&self) -> ClientAddr {
        let own = self.parts().0;
        own.client.as_ref().map_or_else(|| own.conn.client(), |c| c.0)
    }

    fn client_text(&self) -> &[u8] {
        let own = self.parts().0;
        match &own.client {
            Some(c) => &c.1,
            None => own.conn.client_text(),
        }
    }

    fn set_client(&mut self, client: ClientAddr) {
        let mut text = Vec::new();
        client.write(&mut text);
        self.own_mut().client = Some(Box::new((client, text)));
    }

    fn error_log(&self) -> &ErrorLog {
        &self.parts().2.error_log
    }

    fn write_log_context(&self, line: &mut Vec<u8>) {
        self.write_context(line);
    }

    fn with_conf<C: ConfType, R>(&mut self, f: impl FnOnce(&mut T, &C) -> R) -> R {
        let server = Arc::clone(self.parts().2);
        f(self, server.conf())
    }

    fn kept<C: Any>(&mut self) -> Option<&mut C> {
        self.own_mut().ctx()
    }

    fn keep_state<C: Any>(&mut self, value: C) {
        self.own_mut().set_ctx(value);
    }

    fn is_answered(&self) -> bool {
        self.parts().0.over
    }
}

/// What is said of a session that begins.
pub fn log_connected<S: Session>(s: &S, to: &ListenAddr) {
    if !s.log_enabled(LogLevel::Info) {
        return;
    }
    let conn = s.conn();
    let port = conn.client().port().map(|p| format!(":{p}")).unwrap_or_default();
    let client = String::from_utf8_lossy(conn.client_text()).into_owned();
    let client = match conn.client_addr() {
        Some(addr) if addr.is_ipv6() => format!("[{client}]"),
        _ => client,
    };
    let udp = if conn.is_udp() { "udp " } else { "" };
    let text = format!("{udp}client {client}{port} connected to {to}");
    s.error_log().log(LogLevel::Info, Some(conn.serial), text.as_bytes());
}

/// What is said of a client that has gone or lets run out its time.
pub fn log_end<S: Session>(s: &S, e: &ConnError) {
    match e {
        ConnError::Timeout => s.log(LogLevel::Info, "client timed out (110: Connection timed out)"),
        ConnError::Io(e) => {
            let text = format!("recv() failed ({})", crate::os_text(e));
            s.log(socket_errors::level(e, LogLevel::Info), &text);
        }
    }
}

/// What has become of a block of such sessions.
pub trait Block<S>: Any + Send + Sync {
    /// The slots of its main level.
    fn main(&self) -> &Slots;
    /// Its variables, by their numbers.
    fn vars(&self) -> &[VarDef<S>];
    /// The same, by their names.
    fn registry(&self) -> &VarRegistry<S>;
}

/// A worker's view of it, counted without atomics.
pub struct View<C> {
    /// What all protocols have.
    pub core: Arc<Generation>,
    /// What the workers share.
    pub shared: Arc<C>,
}

impl<C: Any + Send + Sync> View<C> {
    /// The view that a connection's generation has.
    pub fn of(gen: &WorkerGen) -> Rc<View<C>> {
        gen.view().expect("a connection's generation has the block that its address is of")
    }

    /// What core makes of the block for a worker.
    pub fn make(core: &Arc<Generation>, shared: &Shared) -> Rc<dyn Any> {
        let shared =
            Arc::clone(shared).downcast().expect("it is what was given with this function");
        Rc::new(View::<C> { core: Arc::clone(core), shared })
    }
}

impl<S, C: Block<S>> Part<S> for View<C> {
    fn core(&self) -> &Arc<Generation> {
        &self.core
    }

    fn main(&self) -> &Slots {
        self.shared.main()
    }

    fn vars(&self) -> &[VarDef<S>] {
        self.shared.vars()
    }

    fn registry(&self) -> &VarRegistry<S> {
        self.shared.registry()
    }
}
