//! Where keys come from: files, and subrequests.

use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tokio::sync::watch;
use weir_core::eval::with_value;
use weir_core::logger::LogLevel;
use weir_core::{os_text, Session};
use weir_http::subrequest::{self, Output};
use weir_http::Request;
use weir_runtime::files::{self, Stamp};
use weir_runtime::paths;
use weir_script::template::Template;

use crate::keys::KeySet;
use crate::rows::JwtLoc;

/// What a set may take as text.
const SET_MAX_BYTES: u64 = 1024 * 1024;
/// How long keys whose time is over serve others while one request asks for new ones.
const LATE_MAX: Duration = Duration::from_secs(10);
/// Sets that one location keeps: names may be made of what a client sends.
const KEPT_MAX: usize = 64;

pub enum Source {
    File {
        /// In front of a name that is relative.
        prefix: Vec<u8>,
        name: Template,
    },
    Request {
        uri: Template,
    },
}

/// The status that a request ends with whose keys there are not.
pub struct Failed(pub u16);

/// Sets that a location has read, for all its workers.
#[derive(Default)]
pub struct Cache {
    kept: Mutex<Vec<Kept>>,
    /// What is being asked for, by names: who else wants it is told what has come of it.
    asked: Mutex<Vec<(Vec<u8>, Outcome)>>,
}

/// A set, or the status that all end with who have waited for it.
type Asked = Option<Result<Arc<KeySet>, u16>>;
type Outcome = watch::Receiver<Asked>;

/// Who asks for a set.
pub enum Turn<'a> {
    Mine(MyTurn<'a>),
    /// Another does. Without an outcome it has gone, and the next one has its turn.
    Others(Outcome),
}

pub struct MyTurn<'a> {
    cache: &'a Cache,
    name: &'a [u8],
    told: watch::Sender<Asked>,
}

impl MyTurn<'_> {
    pub fn tell(self, asked: &Result<Arc<KeySet>, Failed>) {
        let asked = asked.as_ref().map(Arc::clone).map_err(|Failed(status)| *status);
        self.told.send_replace(Some(asked));
    }
}

impl Drop for MyTurn<'_> {
    fn drop(&mut self) {
        self.cache.asked().retain(|(name, _)| name != self.name);
    }
}

struct Kept {
    name: Vec<u8>,
    /// Of a file, what it looked like.
    stamp: Option<Stamp>,
    read_at: Instant,
    /// A request asks for its successor.
    is_asked_for: bool,
    keys: Arc<KeySet>,
}

impl Cache {
    fn kept(&self) -> MutexGuard<'_, Vec<Kept>> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn asked(&self) -> MutexGuard<'_, Vec<(Vec<u8>, Outcome)>> {
        self.asked.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether the set of that name is to be asked for, or waited for.
    pub fn join<'a>(&'a self, name: &'a [u8]) -> Turn<'a> {
        let mut asked = self.asked();
        if let Some((_, outcome)) = asked.iter().find(|(known, _)| known == name) {
            return Turn::Others(outcome.clone());
        }
        let (told, outcome) = watch::channel(None);
        asked.push((name.to_vec(), outcome));
        Turn::Mine(MyTurn { cache: self, name, told })
    }

    /// What is there under a name and needs no successor.
    pub fn fresh(&self, name: &[u8], age_ms: u64) -> Option<Arc<KeySet>> {
        let list = self.kept();
        let kept = list.iter().find(|kept| kept.name == name)?;
        let is_fresh = kept.read_at.elapsed() < Duration::from_millis(age_ms);
        is_fresh.then(|| Arc::clone(&kept.keys))
    }

    /// What is there under a name and is no older than that, or still looks like that.
    fn get(
        &self,
        name: &[u8],
        age: Duration,
        stamp: impl FnOnce() -> Option<Stamp>,
    ) -> Option<Arc<KeySet>> {
        let mut list = self.kept();
        let kept = list.iter_mut().find(|kept| kept.name == name)?;
        if kept.read_at.elapsed() < age {
            return Some(Arc::clone(&kept.keys));
        }
        let same = match kept.stamp {
            Some(of) => Some(of) == stamp(),
            None if kept.read_at.elapsed() >= age + LATE_MAX => false,
            None if std::mem::replace(&mut kept.is_asked_for, true) => {
                return Some(Arc::clone(&kept.keys));
            }
            None => false,
        };
        if same {
            kept.read_at = Instant::now();
        }
        same.then(|| Arc::clone(&kept.keys))
    }

    /// Who asked for its successor has gone: the next one does.
    fn release(&self, name: &[u8]) {
        let mut list = self.kept();
        list.iter_mut().filter(|kept| kept.name == name).for_each(|kept| kept.is_asked_for = false);
    }

    /// Its successor does not come: from now on everybody asks.
    fn forget(&self, name: &[u8]) {
        let mut list = self.kept();
        list.retain(|kept| kept.name != name);
    }

    fn put(&self, name: &[u8], stamp: Option<Stamp>, keys: &Arc<KeySet>) {
        let mut list = self.kept();
        list.retain(|kept| kept.name != name);
        if list.len() >= KEPT_MAX {
            list.remove(0);
        }
        list.push(Kept {
            name: name.to_vec(),
            stamp,
            read_at: Instant::now(),
            is_asked_for: false,
            keys: Arc::clone(keys),
        });
    }
}

/// The sets, as far as nobody has to be asked.
pub fn at_hand(r: &mut Request, conf: &JwtLoc) -> Result<Vec<Option<Arc<KeySet>>>, Failed> {
    if conf.sources.is_empty() {
        r.log(
            LogLevel::Error,
            "auth_jwt has no keys; add auth_jwt_key_file or auth_jwt_key_request",
        );
        return Err(Failed(500));
    }
    conf.sources.iter().map(|source| look(r, conf, source)).collect()
}

/// One set; `None`: it is to be asked for.
fn look(r: &mut Request, conf: &JwtLoc, source: &Source) -> Result<Option<Arc<KeySet>>, Failed> {
    let age = Duration::from_millis(*conf.cache_msec);
    match source {
        Source::Request { uri } => {
            let name = of_request(r, uri);
            Ok(conf.cache.get(&name, age, || None))
        }
        Source::File { prefix, name } => {
            let name = with_value(r, name, |_, name| match paths::is_whole(name) {
                true => name.to_vec(),
                false => [prefix, name].concat(),
            });
            let path = paths::path(&name);
            let stamp = || std::fs::metadata(&path).ok().map(|m| Stamp::of(&m));
            if let Some(keys) = conf.cache.get(&name, age, stamp) {
                return Ok(Some(keys));
            }
            // Before the text: what is written meanwhile is read at the next look.
            let stamp = stamp();
            let keys = parse(r, &name, &read(r, &path)?)?;
            conf.cache.put(&name, stamp, &keys);
            Ok(Some(keys))
        }
    }
}

fn read(r: &Request, path: &Path) -> Result<Vec<u8>, Failed> {
    // A pipe would have the worker wait for whoever writes to it.
    let is_odd = std::fs::metadata(path).is_ok_and(|m| !m.is_file());
    let text = match is_odd {
        true => Err(std::io::Error::other("it is no regular file")),
        false => files::read_at_most(path, SET_MAX_BYTES),
    };
    text.map_err(|e| {
        let text = format!("open() \"{}\" failed ({})", path.display(), os_text(&e));
        r.log(LogLevel::Error, &text);
        Failed(500)
    })
}

fn parse(r: &Request, name: &[u8], text: &[u8]) -> Result<Arc<KeySet>, Failed> {
    KeySet::parse(text).map(Arc::new).map_err(|why| {
        let name = String::from_utf8_lossy(name);
        r.log(LogLevel::Error, &format!("no set of keys in \"{name}\": {why}"));
        Failed(500)
    })
}

/// By which a set that is asked for is known.
pub fn name(r: &mut Request, source: &Source) -> Result<Vec<u8>, Failed> {
    match source {
        Source::Request { uri } => Ok(of_request(r, uri)),
        Source::File { .. } => Err(Failed(500)),
    }
}

/// One set of keys for a URI of a host at a port: the keys of one host are not another's. No file has such a name.
fn of_request(r: &mut Request, uri: &Template) -> Vec<u8> {
    let mut name = r.eval(uri);
    name.push(0);
    name.extend_from_slice(r.host());
    let port = r.conn().local_addr().map_or(0, |a| a.port());
    name.extend_from_slice(&port.to_be_bytes());
    name
}

/// The subrequest that asks for a set.
pub fn part(r: &mut Request, source: &Source) -> Result<Box<Request>, Failed> {
    let Source::Request { uri } = source else { return Err(Failed(500)) };
    let whole = r.eval(uri);
    let mut halves = whole.splitn(2, |b| *b == b'?');
    let uri = halves.next().unwrap_or_default();
    let args = halves.next().unwrap_or_default();
    let mut part = subrequest::new(r, uri, args, Output::Keep).ok_or(Failed(500))?;
    // The body is for the request itself.
    part.body.nothing();
    Ok(part)
}

/// What the subrequest was answered with.
pub fn taken(
    r: &mut Request,
    conf: &JwtLoc,
    source: &Source,
    mut part: Box<Request>,
) -> Result<Arc<KeySet>, Failed> {
    let Source::Request { uri } = source else { return Err(Failed(500)) };
    let name = r.eval(uri);
    if part.out.status != 200 {
        let (name, status) = (String::from_utf8_lossy(&name), part.out.status);
        r.log(
            LogLevel::Error,
            &format!("the request for keys \"{name}\" was answered with {status}"),
        );
        return Err(Failed(500));
    }
    let keys = parse(r, &name, &part.kept_body())?;
    if *conf.cache_msec > 0 {
        let name = of_request(r, uri);
        conf.cache.put(&name, None, &keys);
    }
    Ok(keys)
}

/// Nothing has come of it: a set that is kept is not used any longer, unless only the client has gone.
pub fn give_up(r: &mut Request, conf: &JwtLoc, source: &Source, failed: &Failed) {
    let Source::Request { uri } = source else { return };
    let name = of_request(r, uri);
    match failed {
        Failed(499) => conf.cache.release(&name),
        Failed(_) => conf.cache.forget(&name),
    }
}
