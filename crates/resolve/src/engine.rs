//! All of asking for names, without sockets and clock: questions, responses and the time go in;
//! queries to send, answers and lines for the log come out of [`Engine::take`].
//!
//! A name is asked for once however many wait for it. A query that stays without an answer goes to
//! the next server after [`RESEND_MS`], as long as somebody waits; how long that is, is the
//! caller's affair ([`Engine::cancel`]).

use crate::message::{self, Kind, Reply, Srv, ALIASES_MAX, NXDOMAIN};
use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap, VecDeque};
use std::net::IpAddr;

/// A query without an answer is sent again after this.
pub const RESEND_MS: u64 = 5000;
/// How long a failure is told to hold, where the directive has no `valid=`.
const FAILURE_SECS: u64 = 10;
/// More names than this are not remembered.
const NAMES_MAX: usize = 8192;

/// Ids of queries and turns of addresses.
pub type Random = Box<dyn FnMut() -> u64 + Send>;

#[derive(Clone, Copy, Debug)]
pub enum Question<'a> {
    /// The addresses of a name.
    Name(&'a str),
    /// Where a service of a name is given.
    Service { service: &'a str, name: &'a str },
    /// The name of an address.
    Address(IpAddr),
}

impl Question<'_> {
    /// A service's name without a dot is short for TCP's.
    fn key(&self) -> Key {
        let lower = |name: &str| name.strip_suffix('.').unwrap_or(name).to_ascii_lowercase();
        match self {
            Question::Name(name) => Key { name: lower(name), sought: Sought::Addresses },
            Question::Service { service, name } if service.contains('.') => {
                Key { name: lower(&format!("{service}.{name}")), sought: Sought::Services }
            }
            Question::Service { service, name } => {
                Key { name: lower(&format!("_{service}._tcp.{name}")), sought: Sought::Services }
            }
            Question::Address(ip) => Key { name: message::name_of(*ip), sought: Sought::Host(*ip) },
        }
    }
}

/// An address that was found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Target {
    pub ip: IpAddr,
    /// Of a service; 0 for a name.
    pub port: u16,
    pub priority: u16,
    pub weight: u16,
    /// The host that gives the service, or that has the address; empty for a name.
    pub name: String,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Found {
    pub targets: Vec<Target>,
    pub until_ms: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Failed {
    /// DNS's code, or 110 for too late.
    pub code: u16,
    pub until_ms: u64,
}

pub type Outcome = Result<Found, Failed>;

/// What is remembered and asked for.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Key {
    pub name: String,
    pub sought: Sought,
}

/// What is asked about a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Sought {
    Addresses,
    Services,
    /// The host that has this address.
    Host(IpAddr),
}

/// A query on its way.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Query {
    pub key: Key,
    pub kind: Kind,
    pub id: u16,
    pub server: usize,
    pub tcp: bool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Output {
    Send(Query, Vec<u8>),
    Done(u64, Outcome),
    Log(String),
}

#[derive(Clone, Debug)]
pub struct Settings {
    pub servers: usize,
    pub ipv4: bool,
    pub ipv6: bool,
    pub valid_secs: Option<u64>,
}

#[derive(Clone, Copy)]
struct Waiter {
    token: u64,
    aliases: u32,
}

/// Who a token belongs to.
enum Owner {
    Caller,
    /// One host of a service that another token asks for.
    Service(u64, usize),
}

enum Node {
    Asking(Box<Asking>),
    Known { until_ms: u64, value: Value },
}

enum Value {
    Addresses(Vec<IpAddr>),
    Alias(String),
    Services(Vec<Srv>),
    Host(String),
}

struct Asking {
    parts: Vec<Part>,
    waiting: Vec<Waiter>,
    server: usize,
    resend_ms: u64,
    /// Servers that may still be asked at once because the one before refused.
    quick: usize,
    ttl_secs: u32,
    code: u8,
    alias: Option<String>,
    addresses: Vec<IpAddr>,
    services: Vec<Srv>,
    hosts: Vec<String>,
}

struct Part {
    kind: Kind,
    id: u16,
    bytes: Vec<u8>,
    tcp: bool,
    done: bool,
}

/// A service whose hosts are being asked for.
struct Service {
    what: String,
    hosts: Vec<Srv>,
    results: Vec<Option<Result<Vec<IpAddr>, Failed>>>,
    until_ms: u64,
}

pub struct Engine {
    settings: Settings,
    nodes: HashMap<Key, Node>,
    owners: HashMap<u64, Owner>,
    services: HashMap<u64, Service>,
    timers: BinaryHeap<Reverse<(u64, Key)>>,
    turn: usize,
    next_token: u64,
    out: VecDeque<Output>,
    random: Random,
}

impl Engine {
    pub fn new(settings: Settings, random: Random) -> Engine {
        Engine {
            settings,
            nodes: HashMap::new(),
            owners: HashMap::new(),
            services: HashMap::new(),
            timers: BinaryHeap::new(),
            turn: 0,
            next_token: 1,
            out: VecDeque::new(),
            random,
        }
    }

    /// What is to be done, until there is nothing more.
    pub fn take(&mut self) -> Option<Output> {
        self.out.pop_front()
    }

    /// When [`Engine::tick`] is to be called.
    pub fn deadline(&self) -> Option<u64> {
        self.timers.peek().map(|Reverse((at, _))| *at)
    }

    /// Names and questions that are not settled yet.
    pub fn is_idle(&self) -> bool {
        self.owners.is_empty()
    }

    /// Asks; the answer comes out under the token that is returned, perhaps at once.
    pub fn ask(&mut self, now: u64, question: Question) -> u64 {
        let token = self.token(Owner::Caller);
        if let Question::Service { service, name } = question {
            self.services.insert(token, Service::new(format!("{service} of {name}")));
        }
        self.enter(now, question.key(), Waiter { token, aliases: 0 });
        token
    }

    fn token(&mut self, owner: Owner) -> u64 {
        let token = self.next_token;
        self.next_token += 1;
        self.owners.insert(token, owner);
        token
    }

    /// Nobody waits for this answer any more.
    pub fn cancel(&mut self, token: u64) {
        self.owners.remove(&token);
        if self.services.remove(&token).is_some() {
            self.owners.retain(|_, o| !matches!(o, Owner::Service(of, _) if *of == token));
        }
    }

    fn enter(&mut self, now: u64, mut key: Key, mut waiter: Waiter) {
        loop {
            match self.nodes.get_mut(&key) {
                // With nobody left to wait, its queries are no longer listened to.
                Some(Node::Asking(asking)) if asking.is_wanted(&self.owners) => {
                    return asking.waiting.push(waiter)
                }
                Some(Node::Known { until_ms, value }) if *until_ms > now => match value {
                    Value::Addresses(list) => {
                        let mut list = list.clone();
                        let until = *until_ms;
                        let turn = (self.random)() as usize % list.len().max(1);
                        list.rotate_left(turn);
                        return self.settle(now, waiter, Ok((list, until)));
                    }
                    Value::Services(hosts) => {
                        let (hosts, until) = (hosts.clone(), *until_ms);
                        return self.expand(now, waiter, hosts, until);
                    }
                    Value::Host(name) => {
                        let (name, until) = (name.clone(), *until_ms);
                        return self.settle_host(waiter, &key, name, until);
                    }
                    Value::Alias(name) => key.name.clone_from(name),
                },
                _ => return self.start(now, key, waiter),
            }
            waiter.aliases += 1;
            if waiter.aliases > ALIASES_MAX {
                return self.fail(now, waiter, NXDOMAIN);
            }
        }
    }

    fn start(&mut self, now: u64, key: Key, waiter: Waiter) {
        let kinds: &[Kind] = match (key.sought, self.settings.ipv4, self.settings.ipv6) {
            (Sought::Services, ..) => &[Kind::Srv],
            (Sought::Host(_), ..) => &[Kind::Ptr],
            (_, true, true) => &[Kind::A, Kind::Aaaa],
            (_, true, false) => &[Kind::A],
            _ => &[Kind::Aaaa],
        };
        let mut parts = Vec::with_capacity(kinds.len());
        for kind in kinds {
            let id = (self.random)() as u16;
            let Some(bytes) = message::query(id, &key.name, *kind) else {
                return self.fail(now, waiter, NXDOMAIN);
            };
            parts.push(Part { kind: *kind, id, bytes, tcp: false, done: false });
        }
        self.make_room(now);
        let server = self.turn;
        self.turn = (self.turn + 1) % self.settings.servers;
        let asking = Asking {
            parts,
            waiting: vec![waiter],
            server,
            resend_ms: 0,
            quick: self.settings.servers - 1,
            ttl_secs: u32::MAX,
            code: 0,
            alias: None,
            addresses: Vec::new(),
            services: Vec::new(),
            hosts: Vec::new(),
        };
        self.nodes.insert(key.clone(), Node::Asking(Box::new(asking)));
        self.send(now, &key);
    }

    /// Forgets what has run out, and some of what has not when that is not enough.
    fn make_room(&mut self, now: u64) {
        if self.nodes.len() < NAMES_MAX {
            return;
        }
        let live = |n: &Node| match n {
            Node::Asking(_) => true,
            Node::Known { until_ms, .. } => *until_ms > now,
        };
        self.nodes.retain(|_, n| live(n));
        let mut surplus = self.nodes.len().saturating_sub(NAMES_MAX / 2);
        if self.nodes.len() >= NAMES_MAX {
            self.nodes.retain(|_, n| {
                let goes = surplus > 0 && matches!(n, Node::Known { .. });
                surplus -= usize::from(goes);
                !goes
            });
        }
    }

    /// Sends the queries of a name that have no answer yet.
    fn send(&mut self, now: u64, key: &Key) {
        let Some(Node::Asking(asking)) = self.nodes.get_mut(key) else { return };
        asking.resend_ms = now + RESEND_MS;
        self.timers.push(Reverse((asking.resend_ms, key.clone())));
        for part in asking.parts.iter().filter(|p| !p.done) {
            let (kind, id, tcp) = (part.kind, part.id, part.tcp);
            let query = Query { key: key.clone(), kind, id, server: asking.server, tcp };
            self.out.push_back(Output::Send(query, part.bytes.clone()));
        }
    }

    /// Whether a query still waits for its response.
    pub fn waits(&self, query: &Query) -> bool {
        let Some(Node::Asking(asking)) = self.nodes.get(&query.key) else { return false };
        asking.parts.iter().any(|p| p.id == query.id && p.kind == query.kind && !p.done)
    }

    /// As [`Engine::waits`], and somebody wants to know.
    pub fn wants(&self, query: &Query) -> bool {
        let Some(Node::Asking(asking)) = self.nodes.get(&query.key) else { return false };
        self.waits(query) && asking.is_wanted(&self.owners)
    }

    /// A response to that query came in.
    pub fn response(&mut self, now: u64, query: &Query, bytes: &[u8]) {
        if !self.waits(query) {
            return;
        }
        match message::read(bytes, query.id, &query.key.name, query.kind, query.tcp) {
            Ok(reply) if reply.truncated => self.again_by_tcp(now, query),
            Ok(reply) => self.reply(now, query, reply),
            Err(line) => self.out.push_back(Output::Log(line)),
        }
    }

    /// The server cannot be reached: the next is asked at once, if there is another.
    pub fn unreachable(&mut self, now: u64, query: &Query) {
        let servers = self.settings.servers;
        let Some(Node::Asking(asking)) = self.nodes.get_mut(&query.key) else { return };
        if asking.server == query.server && asking.quick > 0 {
            asking.quick -= 1;
            asking.server = (asking.server + 1) % servers;
            self.send(now, &query.key);
        }
    }

    fn part(&mut self, query: &Query) -> Option<(&mut Asking, usize)> {
        let Some(Node::Asking(asking)) = self.nodes.get_mut(&query.key) else { return None };
        let at = asking.parts.iter().position(|p| p.kind == query.kind && p.id == query.id)?;
        Some((asking, at))
    }

    fn again_by_tcp(&mut self, now: u64, query: &Query) {
        let Some((asking, at)) = self.part(query) else { return };
        let part = &mut asking.parts[at];
        if part.tcp {
            return;
        }
        part.tcp = true;
        let bytes = part.bytes.clone();
        asking.resend_ms = now + RESEND_MS;
        self.timers.push(Reverse((now + RESEND_MS, query.key.clone())));
        self.out.push_back(Output::Send(Query { tcp: true, ..query.clone() }, bytes));
    }

    fn reply(&mut self, now: u64, query: &Query, reply: Reply) {
        let Some((asking, at)) = self.part(query) else { return };
        asking.parts[at].done = true;
        let useless =
            reply.addresses.is_empty() && reply.services.is_empty() && reply.hosts.is_empty();
        let line = match query.kind {
            Kind::Srv => "no SRV type in DNS response",
            _ => "no A or CNAME types in DNS response",
        };
        let odd = useless && reply.code == 0 && reply.any && reply.alias.is_none();
        if reply.code != 0 {
            asking.code = reply.code;
        }
        asking.ttl_secs = asking.ttl_secs.min(reply.ttl_secs);
        asking.addresses.extend(reply.addresses);
        // IPv4 first, whichever came first.
        asking.addresses.sort_by_key(IpAddr::is_ipv6);
        asking.services.extend(reply.services);
        asking.hosts.extend(reply.hosts);
        // The last of the questions decides, in whichever order the answers come.
        if at + 1 == asking.parts.len() {
            asking.alias = reply.alias;
        }
        let complete = asking.parts.iter().all(|p| p.done);
        if odd {
            self.out.push_back(Output::Log(line.to_owned()));
        }
        if complete {
            self.complete(now, &query.key);
        }
    }

    /// Every part of a name has been answered.
    fn complete(&mut self, now: u64, key: &Key) {
        let Some(Node::Asking(asking)) = self.nodes.remove(key) else { return };
        let mut asking = *asking;
        if asking.code != 0 {
            return asking.waiting.iter().for_each(|w| self.fail(now, *w, asking.code));
        }
        let until_ms = holds_until(now, self.settings.valid_secs.unwrap_or(asking.ttl_secs.into()));
        let value = if !asking.addresses.is_empty() {
            Value::Addresses(asking.addresses.clone())
        } else if !asking.services.is_empty() {
            asking.services.sort_by_key(|s| s.priority);
            Value::Services(asking.services.clone())
        } else if let Some(host) = asking.hosts.first() {
            Value::Host(host.clone())
        } else if let Some(alias) = asking.alias.clone() {
            Value::Alias(alias)
        } else {
            return asking.waiting.iter().for_each(|w| self.fail(now, *w, NXDOMAIN));
        };
        self.nodes.insert(key.clone(), Node::Known { until_ms, value });
        for mut waiter in asking.waiting {
            if !asking.addresses.is_empty() {
                self.settle(now, waiter, Ok((asking.addresses.clone(), until_ms)));
            } else if !asking.services.is_empty() {
                self.expand(now, waiter, asking.services.clone(), until_ms);
            } else if let Some(host) = asking.hosts.first() {
                self.settle_host(waiter, key, host.clone(), until_ms);
            } else if let Some(name) = asking.alias.clone() {
                waiter.aliases += 1;
                match waiter.aliases > ALIASES_MAX {
                    true => self.fail(now, waiter, NXDOMAIN),
                    false => self.enter(now, Key { name, sought: key.sought }, waiter),
                }
            }
        }
    }

    fn fail(&mut self, now: u64, waiter: Waiter, code: u8) {
        let until_ms = holds_until(now, self.settings.valid_secs.unwrap_or(FAILURE_SECS));
        self.settle(now, waiter, Err(Failed { code: u16::from(code), until_ms }));
    }

    /// The name of an address is known.
    fn settle_host(&mut self, waiter: Waiter, key: &Key, name: String, until_ms: u64) {
        let Sought::Host(ip) = key.sought else { return };
        if self.owners.remove(&waiter.token).is_some() {
            let target = Target { ip, port: 0, priority: 0, weight: 1, name };
            let found = Found { targets: vec![target], until_ms };
            self.out.push_back(Output::Done(waiter.token, Ok(found)));
        }
    }

    /// A token has its answer.
    fn settle(&mut self, now: u64, waiter: Waiter, result: Result<(Vec<IpAddr>, u64), Failed>) {
        let Some(owner) = self.owners.remove(&waiter.token) else { return };
        let (of, at) = match owner {
            Owner::Caller => {
                self.services.remove(&waiter.token);
                let plain =
                    |ip| Target { ip, port: 0, priority: 0, weight: 1, name: String::new() };
                let outcome = result.map(|(list, until_ms)| Found {
                    targets: list.into_iter().map(plain).collect(),
                    until_ms,
                });
                return self.out.push_back(Output::Done(waiter.token, outcome));
            }
            Owner::Service(of, at) => (of, at),
        };
        let Some(service) = self.services.get_mut(&of) else { return };
        if let Ok((_, until_ms)) = &result {
            service.until_ms = service.until_ms.min(*until_ms);
        }
        service.results[at] = Some(result.map(|(list, _)| list));
        if service.results.iter().all(Option::is_some) {
            self.report(now, of);
        }
    }

    /// The hosts of a service are known: each is asked for.
    fn expand(&mut self, now: u64, waiter: Waiter, hosts: Vec<Srv>, until_ms: u64) {
        let Some(service) = self.services.get_mut(&waiter.token) else { return };
        service.results = vec![None; hosts.len()];
        service.until_ms = until_ms;
        service.hosts.clone_from(&hosts);
        for (at, host) in hosts.iter().enumerate() {
            let token = self.token(Owner::Service(waiter.token, at));
            let key = Question::Name(&host.name).key();
            self.enter(now, key, Waiter { token, aliases: 0 });
        }
    }

    /// Every host of a service has been asked for.
    fn report(&mut self, now: u64, token: u64) {
        let Some(service) = self.services.remove(&token) else { return };
        self.owners.remove(&token);
        let mut targets = Vec::new();
        let mut failures = Vec::new();
        for (host, result) in service.hosts.iter().zip(service.results) {
            match result {
                Some(Ok(list)) => targets.extend(list.into_iter().map(|ip| Target {
                    ip,
                    port: host.port,
                    priority: host.priority,
                    weight: host.weight,
                    name: host.name.clone(),
                })),
                Some(Err(failed)) => {
                    failures.push(failed.code);
                    let text = message::error_text(failed.code);
                    self.out.push_back(Output::Log(format!(
                        "{} could not be resolved ({}: {text}) while resolving service {}",
                        host.name, failed.code, service.what
                    )));
                }
                None => {}
            }
        }
        let missing = u16::from(NXDOMAIN);
        let outcome = match targets.is_empty() {
            false => Ok(Found { targets, until_ms: service.until_ms }),
            true => Err(Failed {
                code: match failures.contains(&missing) {
                    true => missing,
                    false => failures.first().copied().unwrap_or(missing),
                },
                until_ms: holds_until(now, self.settings.valid_secs.unwrap_or(FAILURE_SECS)),
            }),
        };
        self.out.push_back(Output::Done(token, outcome));
    }

    /// Time has passed: what has had no answer is sent again, to the next server.
    pub fn tick(&mut self, now: u64) {
        while self.deadline().is_some_and(|at| at <= now) {
            let Some(Reverse((at, key))) = self.timers.pop() else { return };
            let Some(Node::Asking(asking)) = self.nodes.get_mut(&key) else { continue };
            if asking.resend_ms != at {
                continue;
            }
            asking.waiting.retain(|w| self.owners.contains_key(&w.token));
            if asking.waiting.is_empty() {
                self.nodes.remove(&key);
                continue;
            }
            asking.server = (asking.server + 1) % self.settings.servers;
            asking.quick = self.settings.servers - 1;
            self.send(now, &key);
        }
    }
}

/// Until when something holds for so many seconds. As in nginx that is reckoned in whole seconds, to
/// the end of the last: an answer that is not to be kept (a TTL of 0) still does for all who ask
/// within the second, instead of each of them asking the server.
fn holds_until(now: u64, secs: u64) -> u64 {
    (now / 1000 + secs + 1) * 1000
}

impl Asking {
    fn is_wanted(&self, owners: &HashMap<u64, Owner>) -> bool {
        self.waiting.iter().any(|w| owners.contains_key(&w.token))
    }
}

impl Service {
    fn new(what: String) -> Service {
        Service { what, hosts: Vec::new(), results: Vec::new(), until_ms: 0 }
    }
}

#[cfg(test)]
mod tests;
