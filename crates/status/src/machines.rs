//! `dashboard_peer`: other Weirs that a dashboard shows beside its own, and adds up.
//!
//! The page may ask nobody but its own server, so the server asks the others' APIs: a thread for each, begun when
//! somebody looks and ended when nobody has for a while. How one is asked is lent by who has a client ([`ask_by`]).

mod conf;
mod sum;

pub(crate) use conf::{check, there_is_a_page, PeersLoc, ROWS};

use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak};
use std::thread;
use std::time::{Duration, Instant};
use sum::{Look, Machine};
use weir_core::counters::AllCounters;
use weir_core::figures::{Figure, Figures};
use weir_core::generation::Generation;
use weir_tls::rustls::pki_types::CertificateDer;

/// How often each is asked.
const EVERY: Duration = Duration::from_secs(2);
/// Who looks asks again within that.
const LOOKED: Duration = Duration::from_secs(10);
/// What is shown is made anew after that.
const FRESH: Duration = Duration::from_secs(1);
/// One that has not told anything new for so long is silent.
const SILENT: Duration = Duration::from_secs(10);

/// What is said of another server.
pub struct PeerConf {
    /// Where its `api` is.
    pub url: String,
    /// Lines of the head of each question.
    pub fields: String,
    /// It is verified by these; none without TLS.
    pub roots: Option<Vec<CertificateDer<'static>>>,
    /// A question may take so long.
    pub timeout: Duration,
}

/// Asks a server for all its figures, again and again.
pub type Ask = Box<dyn FnMut() -> Result<Vec<u8>, String> + Send>;
/// Makes that; an error says what is wrong with the address.
pub type Dial = fn(&PeerConf) -> Result<Ask, String>;

static DIAL: OnceLock<Dial> = OnceLock::new();

/// From now on others are asked by this. Once for the process.
pub fn ask_by(dial: Dial) {
    let _ = DIAL.set(dial);
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// What is known of one of them.
#[derive(Default)]
struct Told {
    now: Option<Look>,
    machine: Option<Machine>,
    /// When it answered last, and since when it has not.
    answered: Option<Instant>,
    since: Option<Instant>,
    error: Option<String>,
}

impl Told {
    fn take(&mut self, answer: Result<Look, String>) {
        let now = Instant::now();
        match answer {
            Ok(look) => {
                self.machine = Some(Machine::of(&look, self.now.as_ref()));
                self.now = Some(look);
                (self.answered, self.since, self.error) = (Some(now), None, None);
            }
            Err(e) => {
                self.since.get_or_insert(now);
                self.error = Some(e);
            }
        }
    }

    /// What it does, if it is there.
    fn machine(&self) -> Option<&Machine> {
        let is_fresh = self.answered.is_some_and(|at| at.elapsed() < SILENT);
        self.machine.as_ref().filter(|_| is_fresh && self.error.is_none())
    }

    fn put(&self, name: &str) -> Figures {
        let mut figures = Figures::default();
        figures.put("name", name);
        match (self.machine(), self.answered.or(self.since)) {
            (Some(machine), _) => {
                figures.put("state", "answers");
                machine.put(&mut figures);
            }
            (None, None) => figures.put("state", "asked"),
            (None, Some(at)) => {
                figures.put("state", "silent");
                figures.put("silent_ms", at.elapsed().as_millis() as u64);
                figures
                    .put("error", self.error.as_deref().unwrap_or("it takes too long to answer"));
            }
        }
        figures
    }
}

/// One that is looked at.
struct Peer {
    name: String,
    told: Arc<Mutex<Told>>,
}

#[derive(Default)]
struct Looked {
    /// When somebody looked last.
    at: Option<Instant>,
    runs: bool,
    /// How often asking has begun: threads of an earlier time end.
    times: u64,
}

/// All of a dashboard, its own server first.
pub(crate) struct Machines {
    peers: Vec<(Peer, Option<Arc<PeerConf>>)>,
    looked: Arc<Mutex<Looked>>,
    /// What was shown last, and when it was made.
    made: Mutex<Option<(Instant, Vec<u8>)>>,
}

impl Machines {
    fn new(peers: Vec<(String, Arc<PeerConf>)>) -> Machines {
        let peer = |name: String| Peer { name, told: Arc::default() };
        let own = (peer(weir_runtime::process::hostname()), None);
        let others = peers.into_iter().map(|(name, conf)| (peer(name), Some(conf)));
        let peers = std::iter::once(own).chain(others).collect();
        Machines { peers, looked: Arc::default(), made: Mutex::default() }
    }

    /// Somebody looks: what is known, as JSON. However many look, it is made once a second.
    pub(crate) fn json(&self, gen: &Arc<Generation>, all: &Arc<AllCounters>) -> Vec<u8> {
        let mut looked = lock(&self.looked);
        looked.at = Some(Instant::now());
        if !looked.runs {
            looked.times += 1;
            looked.runs = self.begin(gen, all, looked.times);
            *lock(&self.made) = None;
        }
        drop(looked);
        let mut made = lock(&self.made);
        match &*made {
            Some((at, text)) if at.elapsed() < FRESH => text.clone(),
            _ => {
                let text = self.text();
                *made = Some((Instant::now(), text.clone()));
                text
            }
        }
    }

    fn text(&self) -> Vec<u8> {
        let (mut rows, mut machines) = (Vec::new(), Vec::new());
        // Processes that are there, and what they are called.
        let mut there: Vec<(String, &str)> = Vec::new();
        let mut again = 0;
        for (peer, _) in &self.peers {
            let told = lock(&peer.told);
            let machine = told.machine();
            let instance = machine.map_or("", |m| &m.instance);
            let same = there.iter().find(|(other, _)| other == instance && !other.is_empty());
            if let Some((_, first)) = same {
                // It is asked by two addresses, and counts once.
                again += 1;
                rows.push(told.put(&format!("{} (the same as {first})", peer.name)));
                continue;
            }
            there.push((instance.to_owned(), &peer.name));
            machines.extend(machine.cloned());
            rows.push(told.put(&peer.name));
        }
        let (mut sum, zones) = sum::sum(&machines);
        sum.put("answer", machines.len() as u64);
        sum.put("machines", (rows.len() - again) as u64);
        let rows = rows.into_iter().map(Figure::Group).collect();
        let mut figures = Figures::default();
        figures.put("machines", Figure::List(rows));
        figures.put("sum", sum);
        figures.put("zones", zones);
        let mut out = Vec::new();
        figures.write_json(&mut out);
        out
    }

    /// Starts asking; whether that could be done.
    fn begin(&self, gen: &Arc<Generation>, all: &Arc<AllCounters>, times: u64) -> bool {
        self.peers.iter().all(|(peer, conf)| {
            // Who comes back after a while is not shown what was.
            *lock(&peer.told) = Told::default();
            let asked = match conf {
                None => own(Arc::downgrade(gen), Arc::clone(all)),
                Some(conf) => match DIAL.get().map(|dial| dial(conf)) {
                    Some(Ok(ask)) => ask,
                    Some(Err(e)) => Box::new(move || Err(e.clone())) as Ask,
                    None => Box::new(|| Err("nobody is asked here".into())) as Ask,
                },
            };
            let (told, looked) = (Arc::clone(&peer.told), Arc::downgrade(&self.looked));
            let run = move || ask_on(asked, &told, &looked, times);
            thread::Builder::new().name("peers".into()).spawn(run).is_ok()
        })
    }
}

/// This server is one of them.
fn own(gen: Weak<Generation>, all: Arc<AllCounters>) -> Ask {
    Box::new(move || match gen.upgrade() {
        Some(gen) => Ok(crate::document(&gen, &all, true)),
        None => Err("another configuration serves".into()),
    })
}

/// Asks until nobody looks any more, or the configuration has gone whose page it is for.
fn ask_on(mut ask: Ask, told: &Mutex<Told>, looked: &Weak<Mutex<Looked>>, times: u64) {
    // `None`: this is no longer what asks.
    let current = |looked: &Weak<Mutex<Looked>>| {
        looked.upgrade().filter(|looked| lock(looked).times == times)
    };
    loop {
        let began = Instant::now();
        let answer = ask().and_then(|text| Look::read(&text));
        if current(looked).is_none() {
            return;
        }
        lock(told).take(answer);
        while began.elapsed() < EVERY {
            thread::sleep(Duration::from_millis(100));
            if looked.strong_count() == 0 {
                return;
            }
        }
        let Some(looked) = current(looked) else { return };
        let mut looked = lock(&looked);
        if looked.at.is_none_or(|at| at.elapsed() > LOOKED) {
            // The others end, too: who looks next begins all of them anew.
            looked.runs = false;
            looked.at = None;
            return;
        }
    }
}
