//! Upstreams that are put, replaced and deleted while the process serves (Tengine's `dyups`). They stand in a table of
//! the process, ahead of the configuration's, and live on over reloads; a session finds one by a name from a
//! variable, which costs a load of a number while there are none.

use crate::asks::Asks;
use crate::balance::Method;
use crate::conf::{lossy, NamedHost, UpstreamMain};
use crate::group::{Group, Plan};
use crate::names;
use crate::peers::{Peer, PeerAddr, Peers};
use crate::rows::read_server;
use crate::state_file::statements;
use std::collections::BTreeMap;
use std::fmt::Write;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};
use weir_module::Directive;

/// More of them there are not.
const UPSTREAMS_MAX: usize = 10_000;
const SERVERS_MAX: usize = 1000;
const NAME_MAX_BYTES: usize = 255;

/// What an upstream takes beside its servers, and a server beside its name and address.
const UPSTREAM_BYTES: u64 = 1024;
const SERVER_BYTES: u64 = 512;

/// By their names; nothing for one that was deleted.
type Table = BTreeMap<Vec<u8>, Option<Put>>;

struct Put {
    group: Arc<Group>,
    /// What it counts for.
    bytes: u64,
}

/// Why an upstream was not put; in words.
#[derive(Debug)]
pub enum Refused {
    /// It cannot be used.
    Unfit(String),
    /// There is no room for it.
    Full(String),
}

impl From<String> for Refused {
    fn from(why: String) -> Refused {
        Refused::Unfit(why)
    }
}

static TABLE: RwLock<Table> = RwLock::new(BTreeMap::new());
/// How many names are in it.
static COUNT: AtomicUsize = AtomicUsize::new(0);

fn read() -> RwLockReadGuard<'static, Table> {
    TABLE.read().unwrap_or_else(PoisonError::into_inner)
}

fn write() -> RwLockWriteGuard<'static, Table> {
    TABLE.write().unwrap_or_else(PoisonError::into_inner)
}

/// The upstream of that name, or `Some(None)` for one that was deleted; `None`: the configuration is to be asked.
#[inline]
pub fn find(name: &[u8]) -> Option<Option<Arc<Group>>> {
    match COUNT.load(Ordering::Relaxed) {
        0 => None,
        _ => read().get(name).map(|put| put.as_ref().map(|put| Arc::clone(&put.group))),
    }
}

/// Puts an upstream, or replaces it: `text` has its servers, as in a block. `room_bytes`: what all that are put
/// may take together.
///
/// # Errors
///
/// It cannot be used, or there is no room for it.
pub fn put<S: Asks>(name: &[u8], text: &[u8], room_bytes: u64) -> Result<(), Refused> {
    let is_name = |b: &u8| b.is_ascii_alphanumeric() || matches!(b, b'.' | b'-' | b'_');
    if name.is_empty() || name.len() > NAME_MAX_BYTES || !name.iter().all(is_name) {
        return Err("no name of an upstream".to_string().into());
    }
    let directives = statements(text).map_err(|e| e.message)?;
    let (mut lists, mut method) = ([Vec::new(), Vec::new()], Method::RoundRobin);
    for d in &directives {
        match d.name.as_bytes() {
            b"server" => {
                let (peer, backup) = peer::<S>(d)?;
                lists[usize::from(backup)].push(peer);
            }
            b"ip_hash" => method = Method::IpHash,
            b"least_conn" => method = Method::LeastConn,
            _ => {
                let shown = d.name.to_str();
                return Err(format!("\"{shown}\" is none of server, ip_hash and least_conn").into());
            }
        }
    }
    let [primary, backup] = lists;
    if primary.is_empty() || primary.len() + backup.len() > SERVERS_MAX {
        return Err(format!("one to {SERVERS_MAX} servers are to be in an upstream").into());
    }
    let servers = primary.iter().chain(&backup).map(|p| SERVER_BYTES + p.name.len() as u64);
    let bytes = UPSTREAM_BYTES + name.len() as u64 + servers.sum::<u64>();
    // Before what it is made of is: whoever is refused costs little.
    check_room(&read(), name, bytes, room_bytes)?;
    let plan = Plan {
        block: S::BLOCK,
        name: name.to_vec(),
        shown_name: name.to_vec(),
        zone: Some(Vec::new()),
        method,
        keepalive: None,
        sticky: None,
        binds: false,
        queue: None,
    };
    let group = Arc::new(Group::new(&plan, Peers::new(primary, backup)));
    let mut table = write();
    check_room(&table, name, bytes, room_bytes)?;
    table.insert(name.to_vec(), Some(Put { group, bytes }));
    COUNT.store(table.len(), Ordering::Relaxed);
    Ok(())
}

fn check_room(table: &Table, name: &[u8], bytes: u64, room_bytes: u64) -> Result<(), Refused> {
    if table.len() >= UPSTREAMS_MAX && !table.contains_key(name) {
        return Err(Refused::Full(format!("there are {UPSTREAMS_MAX} upstreams already")));
    }
    let others = table.iter().filter(|(other, _)| other[..] != *name);
    let taken: u64 = others.filter_map(|(_, put)| Some(put.as_ref()?.bytes)).sum();
    match taken.saturating_add(bytes) <= room_bytes {
        true => Ok(()),
        false => Err(Refused::Full(format!(
            "\"dyups_shm_zone_size\" is {room_bytes} bytes, {taken} of them are taken, {bytes} are needed"
        ))),
    }
}

fn peer<S: Asks>(d: &Directive) -> Result<(Peer, bool), String> {
    if d.is_block() || d.args.is_empty() {
        return Err("invalid number of arguments in \"server\" directive".to_string());
    }
    let s = read_server::<S>(d).map_err(|e| e.message)?;
    let addr = match &s.host {
        NamedHost::Ip(ip) => PeerAddr::Ip(SocketAddr::new(*ip, s.port)),
        NamedHost::Unix(path) => PeerAddr::Unix(path.clone()),
        NamedHost::Name(name) => return Err(format!("\"{name}\" is no address")),
    };
    Ok((names::peer(&s, addr), s.backup))
}

/// Takes an upstream away, one of the configuration too; whether there was one.
pub fn remove(name: &[u8], main: &UpstreamMain) -> bool {
    let in_conf = main.blocks().any(|(block, _)| block == name);
    let mut table = write();
    let was_there = match table.get(name) {
        Some(group) => group.is_some(),
        None => in_conf,
    };
    match in_conf {
        true => drop(table.insert(name.to_vec(), None)),
        false => drop(table.remove(name)),
    }
    COUNT.store(table.len(), Ordering::Relaxed);
    was_there
}

/// All upstreams that sessions find by their names, in the order of these.
fn all(main: &UpstreamMain) -> BTreeMap<Vec<u8>, Arc<Group>> {
    let in_conf = main.blocks().map(|(name, group)| (name.to_vec(), Arc::clone(group)));
    let mut all: BTreeMap<_, _> = in_conf.collect();
    for (name, group) in read().iter() {
        match group {
            Some(put) => drop(all.insert(name.clone(), Arc::clone(&put.group))),
            None => drop(all.remove(name)),
        }
    }
    all
}

/// Those that were put, by their names.
pub(crate) fn put_ones() -> Vec<(Vec<u8>, Arc<Group>)> {
    let table = read();
    let there = table.iter().filter_map(|(name, put)| Some((name, put.as_ref()?)));
    there.map(|(name, put)| (name.clone(), Arc::clone(&put.group))).collect()
}

/// The names of all upstreams, a line each.
pub fn list(main: &UpstreamMain) -> String {
    all(main).into_keys().fold(String::new(), |out, name| out + &lossy(&name) + "\n")
}

/// The servers of an upstream, a line each; `None` if there is none of that name.
pub fn servers(name: &[u8], main: &UpstreamMain) -> Option<String> {
    all(main).get(name).map(|group| lines(group))
}

/// All upstreams with their servers.
pub fn detail(main: &UpstreamMain) -> String {
    let one =
        |(name, group): (Vec<u8>, Arc<Group>)| format!("{}\n{}\n", lossy(&name), lines(&group));
    all(main).into_iter().map(one).collect()
}

fn lines(group: &Group) -> String {
    group.with_shape(|shape| {
        let mut out = String::new();
        for backup in [false, true] {
            for p in &shape.peers.list(backup).peers {
                // Writing into a String cannot fail.
                let _ = writeln!(
                    out,
                    "server {} weight={} max_conns={} max_fails={} fail_timeout={} backup={} down={}",
                    lossy(&p.name),
                    p.weight,
                    p.max_conns,
                    p.max_fails,
                    p.fail_timeout_secs,
                    u8::from(backup),
                    u8::from(p.down)
                );
            }
        }
        out
    })
}
