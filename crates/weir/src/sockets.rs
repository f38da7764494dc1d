//! The listening sockets of the process: kept over reloads while their address is named.
//!
//! Nothing that waits in a socket's queue is lost when the socket goes:
//! - With `reuseport` the kernel chooses the socket of each new connection. When there are fewer
//!   workers, or the option is taken away, it is told first to stop choosing those that go; for
//!   `DRAIN_MS`, so that handshakes in flight finish, the workers accept from them, then they close.
//! - A socket whose address is no longer named is emptied by each worker as it lets go of it.
//!
//! The order of a group's sockets is the kernel's, which the choice goes by; the master and the
//! serving process therefore keep the same one, the master's. nginx closes such sockets with
//! whatever they hold.

use std::collections::HashMap;
use std::io;
use std::sync::Arc;
use std::time::Duration;
use weir_core::generation::Generation;
use weir_core::os_text;
use weir_runtime::clock;
use weir_runtime::listen::{self, ListenAddr, ListenOptions, Listener};

/// One listening address: one socket, or one per worker with `reuseport`.
struct Bound {
    addr: ListenAddr,
    options: ListenOptions,
    /// In the kernel's order. Those from `active` on are leaving.
    sockets: Vec<Arc<Listener>>,
    active: usize,
    /// The kernel chooses by what we told it, no longer by its own hash.
    steered: bool,
    /// Monotonic ms when the last sockets began to leave.
    leaving_since_ms: u64,
}

/// All of them.
#[derive(Default)]
pub struct Sockets(Vec<Bound>);

/// For so long sockets that leave are accepted from: a handshake whose packets are lost twice still
/// comes to its end.
pub const DRAIN_MS: u64 = 3000;
/// The master keeps its handles a little longer, so that what it opens next comes behind what is
/// still open in the serving process only if that is late.
pub const MASTER_DRAIN_MS: u64 = DRAIN_MS + 1000;

/// Binding is tried this often before it fails, for a port that is about to become free.
const TRIES: u32 = 5;
const TRY_AGAIN: Duration = Duration::from_millis(500);

impl Bound {
    /// One socket for each worker.
    fn per_worker(&self) -> bool {
        per_worker(&self.addr, &self.options)
    }

    /// The sockets of one address under a new configuration: those there are (`offered` ones first,
    /// as their order is the master's), and fresh ones.
    fn renew(
        have: Option<&Bound>,
        addr: &ListenAddr,
        options: &ListenOptions,
        count: usize,
        offered: Vec<Listener>,
        binding: &mut Binding<'_>,
    ) -> Result<Bound, String> {
        let old = have.map(|b| b.sockets.as_slice()).unwrap_or_default();
        let inherited = listen::take_inherited(addr);
        let mut steered = have.is_some_and(|b| b.steered) || !inherited.is_empty();
        let changed = have.is_none_or(|b| b.options != *options);
        let mut sockets = in_order(old, offered.into_iter().chain(inherited));
        for s in sockets.iter().filter(|_| changed) {
            // An option the kernel refuses on a live socket keeps its old value.
            let _ = s.configure(options);
            let _ = s.set_backlog(options.backlog);
        }
        let known = sockets.len();
        if let Some(first) = sockets.first().filter(|_| count > known) {
            // Until all of them are open, none of the new ones is to be chosen. A socket that is
            // alone is in no group yet, and cannot be told so.
            let _ = first.set_reuseport(true);
            let _ = first.steer(have.map_or(known, |b| b.active) as u32);
            steered = true;
        }
        while sockets.len() < count {
            let fresh = binding.open(addr, options).inspect_err(|_| {
                let was = have.is_some_and(Bound::per_worker);
                let _ = sockets.first().filter(|_| known > 0).map(|f| f.set_reuseport(was));
            })?;
            sockets.push(Arc::new(fresh));
        }
        steered |= known > count;
        let leaving_since_ms = match have {
            Some(b) if b.sockets.len() - b.active >= sockets.len() - count => b.leaving_since_ms,
            _ => clock::mono_ms(),
        };
        let (addr, options) = (addr.clone(), options.clone());
        Ok(Bound { addr, options, sockets, active: count, steered, leaving_since_ms })
    }

    fn steer(&self) {
        if let Some(first) = self.sockets.first().filter(|_| self.steered) {
            // A system without this loses what the leaving sockets are given while they close.
            let _ = first.steer(self.active as u32);
        }
    }
}

fn per_worker(addr: &ListenAddr, options: &ListenOptions) -> bool {
    listen::HAS_REUSEPORT && options.reuseport && addr.ip().is_some()
}

/// The sockets that `first` names, as handles that are in `old` where they are of the same socket;
/// then the others of `old`.
fn in_order(old: &[Arc<Listener>], first: impl Iterator<Item = Listener>) -> Vec<Arc<Listener>> {
    let mut out: Vec<Arc<Listener>> = Vec::new();
    for l in first {
        let own = old.iter().find(|o| o.same_socket(&l)).cloned();
        out.push(own.unwrap_or_else(|| Arc::new(l)));
    }
    let rest = old.iter().filter(|o| !out.iter().any(|n| Arc::ptr_eq(n, o))).cloned();
    let rest: Vec<_> = rest.collect();
    out.extend(rest);
    out
}

impl Sockets {
    /// The sockets a generation needs: those already open, those offered by the master in its
    /// order, and fresh ones.
    ///
    /// # Errors
    ///
    /// Addresses cannot be listened on, each in words of its own.
    pub fn adopt(
        &self,
        gen: &Generation,
        workers: usize,
        offered: Vec<Listener>,
    ) -> Result<Sockets, Vec<String>> {
        let have: HashMap<&ListenAddr, &Bound> = self.0.iter().map(|b| (&b.addr, b)).collect();
        let mut by_addr: HashMap<ListenAddr, Vec<Listener>> = HashMap::new();
        for l in offered {
            by_addr.entry(l.addr.clone()).or_default().push(l);
        }
        let (mut out, mut failed) = (Vec::new(), Vec::new());
        let mut binding = Binding { had: &self.0, has: Vec::new(), tries_left: TRIES };
        for l in gen.listens.iter() {
            let have = have.get(&l.addr).copied();
            let count = if per_worker(&l.addr, &l.options) { workers } else { 1 };
            let mine = by_addr.remove(&l.addr).unwrap_or_default();
            match Bound::renew(have, &l.addr, &l.options, count, mine, &mut binding) {
                Ok(bound) => {
                    binding.has.push(&l.addr);
                    out.push(bound);
                }
                Err(e) => failed.push(e),
            }
        }
        if !failed.is_empty() {
            return Err(failed);
        }
        out.iter().for_each(Bound::steer);
        Ok(Sockets(out))
    }

    /// The sockets worker `n` of `working` accepts from: its own, those all workers share, and its
    /// part of those that leave.
    pub fn of_worker(&self, n: usize, working: usize) -> Vec<Arc<Listener>> {
        let mut out = Vec::new();
        for b in &self.0 {
            let own = if b.per_worker() { n } else { 0 };
            out.extend(b.sockets[..b.active].get(own).cloned());
            let leaving = b.sockets[b.active..].iter().enumerate();
            out.extend(leaving.filter(|(i, _)| i % working == n).map(|(_, l)| Arc::clone(l)));
        }
        out
    }

    /// Whether workers have sockets of their own.
    pub fn any_per_worker(&self) -> bool {
        self.0.iter().any(Bound::per_worker)
    }

    /// In how many ms the next sockets that leave are to be closed.
    pub fn next_close_in(&self, drain_ms: u64) -> Option<u64> {
        let leaving = self.0.iter().filter(|b| b.sockets.len() > b.active);
        let at = leaving.map(|b| b.leaving_since_ms + drain_ms).min()?;
        Some(at.saturating_sub(clock::mono_ms()))
    }

    /// Lets go of the sockets that have been leaving for long enough; whether there were any.
    pub fn close_left(&mut self, drain_ms: u64) -> bool {
        let now = clock::mono_ms();
        let mut any = false;
        for b in &mut self.0 {
            if b.sockets.len() == b.active || now < b.leaving_since_ms + drain_ms {
                continue;
            }
            any = true;
            b.sockets.truncate(b.active);
            if !b.per_worker() {
                // Alone again: no other program of this user may join the address.
                let _ = b.sockets.iter().try_for_each(|s| s.set_reuseport(false));
            }
        }
        any
    }

    /// Those that are in use, in order: what a serving process is given.
    pub fn active(&self) -> impl Iterator<Item = &Arc<Listener>> {
        self.0.iter().flat_map(|b| &b.sockets[..b.active])
    }

    /// Also those that leave.
    pub fn all(&self) -> impl Iterator<Item = &Arc<Listener>> {
        self.0.iter().flat_map(|b| b.sockets.iter())
    }

    /// Removes the files of Unix sockets that `keep` does not have.
    pub fn remove_unix_files(&self, keep: Option<&Sockets>) {
        for b in &self.0 {
            let ListenAddr::Unix(path) = &b.addr else { continue };
            if keep.is_some_and(|k| k.0.iter().any(|o| o.addr == b.addr)) {
                continue;
            }
            // A file that is already gone needs no removing.
            let _ = weir_runtime::trusted::remove(path);
        }
    }
}

/// What binding the addresses of one generation goes by.
struct Binding<'a> {
    had: &'a [Bound],
    /// Of this generation already.
    has: Vec<&'a ListenAddr>,
    /// For all of them together.
    tries_left: u32,
}

impl Binding<'_> {
    fn open(&mut self, addr: &ListenAddr, options: &ListenOptions) -> Result<Listener, String> {
        loop {
            let e = match Listener::bind(addr, options) {
                Ok(l) => return Ok(l),
                Err(e) => e,
            };
            let text = format!("bind() to {addr} failed ({})", os_text(&e));
            if e.kind() != io::ErrorKind::AddrInUse {
                return Err(text);
            }
            if let Some(why) = self.own_in_the_way(addr) {
                return Err(text + &why);
            }
            if self.tries_left <= 1 {
                let holder = weir_runtime::sockets::holder(addr);
                let who = holder.map(|who| format!("; the port is held by {who}"));
                return Err(text + &who.unwrap_or_default());
            }
            self.tries_left -= 1;
            std::thread::sleep(TRY_AGAIN);
        }
    }

    /// Whether a socket of this server's own has the port, by all addresses or by one of them.
    fn own_in_the_way(&self, addr: &ListenAddr) -> Option<String> {
        let is_part = |own: &ListenAddr| {
            (own.is_wildcard() != addr.is_wildcard()) && own.wildcard() == addr.wildcard()
        };
        if let Some(own) = self.has.iter().find(|own| is_part(own)) {
            return Some(format!("; the configuration itself has {own} too"));
        }
        let own = self.had.iter().map(|b| &b.addr).find(|own| is_part(own))?;
        Some(format!(
            "; this server still listens on {own}: take that away by a reload of its own first, or \
             restart"
        ))
    }
}
