//! A report: what is counted of each request. It takes so many bytes and no more, whatever clients send
//! ([`Limits`]), and reports with the same seed merge: counts are added, sketches say what they then are.
//!
//! What counts as what is GoAccess's way, so that figures can be compared. A visitor is an address with a user
//! agent on one day, and nobody becomes one by errors of their own (4xx). What was not found is one list, files by
//! their extension another, the rest a third; each URL is one for each method and protocol.

mod kinds;
mod panels;

pub use kinds::{is_static, site};
pub use panels::{Panel, Row, Summary};

use crate::agent::{Agent, Kind, Memo, BROWSERS_COUNT, SYSTEMS_COUNT};
use crate::event::{Event, Method, Moment, Protocol};
use crate::format::Invalid;
use crate::networks;
use crate::places::{Databases, Place, Places};
use crate::privacy::{hash_of, Privacy, Shower};
use crate::sketch::{mix, GroupSet, Histogram, Room, Sample, Seed, Slowest, Top, Total};
use std::collections::BTreeMap;
use std::fmt::Write;

/// Statuses that are counted one by one.
const STATUSES: u16 = 600;
const SLOWEST: usize = 256;
/// Visitors remembered; a power of two.
const RECENT: usize = 8192;

/// The bounds of a report.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Of each of the long lists: keys, and bytes for their texts and visitors.
    pub keys: usize,
    pub bytes: usize,
    /// User agents remembered.
    pub agents: usize,
    pub days: usize,
}

impl Limits {
    /// For logs, when so many reports are filled side by side.
    pub fn offline(threads: usize) -> Limits {
        let share = |all: usize| all / threads.max(1);
        Limits {
            keys: share(28_672).max(2048),
            bytes: share(8 << 20).max(1 << 20),
            agents: 16_384,
            days: 1000,
        }
    }

    /// For a worker that serves.
    pub fn live() -> Limits {
        Limits { keys: 1792, bytes: 512 << 10, agents: 2048, days: 32 }
    }

    fn long(&self) -> Room {
        Room { keys: self.keys, bytes: self.bytes }
    }

    fn short(&self) -> Room {
        Room { keys: (self.keys / 8).max(448), bytes: (self.bytes / 8).max(256 << 10) }
    }
}

/// What a report is told before it begins.
#[derive(Clone)]
pub struct Options {
    pub limits: Limits,
    pub seed: Seed,
    pub privacy: Privacy,
    pub databases: Databases,
    /// Only what is within counts.
    pub from: Option<Moment>,
    pub to: Option<Moment>,
    /// The site's own name, where events have none: links from it are no entries.
    pub site: Vec<u8>,
    /// Further extensions of static files, as `.webp`.
    pub extensions: Vec<Vec<u8>>,
}

impl Options {
    pub fn new(limits: Limits, seed: Seed) -> Options {
        Options {
            limits,
            seed,
            privacy: Privacy::default(),
            databases: Databases::default(),
            from: None,
            to: None,
            site: Vec::new(),
            extensions: Vec::new(),
        }
    }
}

/// Counts of one of few.
#[derive(Clone, Default)]
struct Group {
    hits: u64,
    bytes: u64,
    visitors: GroupSet,
}

impl Group {
    #[inline]
    fn add(&mut self, sample: &Sample) {
        self.hits += sample.hits;
        self.bytes = self.bytes.saturating_add(sample.bytes);
        if let Some(visitor) = sample.visitor {
            self.visitors.add(visitor);
        }
    }

    fn merge(&mut self, other: &Group) {
        self.hits += other.hits;
        self.bytes += other.bytes;
        self.visitors.merge(&other.visitors);
    }
}

/// The lists whose keys are anybody's.
#[derive(Clone, Copy)]
#[repr(usize)]
enum List {
    Requests,
    Static,
    Missing,
    Hosts,
    Referrers,
    Sites,
    VirtualHosts,
    Browsers,
    Bots,
    Liars,
    Countries,
    Networks,
}

const LISTS: usize = List::Networks as usize + 1;

fn lists(limits: &Limits) -> [Top; LISTS] {
    let (long, short) = (limits.long(), limits.short());
    let is_long = |n| n <= List::Referrers as usize;
    std::array::from_fn(|n| Top::new(if is_long(n) { long } else { short }))
}

/// Groups by a number.
fn groups(count: usize) -> Box<[Group]> {
    vec![Group::default(); count].into()
}

#[derive(Clone)]
pub struct Report {
    options: Options,
    valid: u64,
    invalid: [u64; Invalid::ALL.len()],
    /// Outside of the time that was asked for.
    outside: u64,
    bytes: u64,
    first: Option<Moment>,
    last: Option<Moment>,
    visitors: Total,
    days: BTreeMap<i32, Group>,
    /// Of days that were too many.
    other_days: Group,
    hours: Box<[Group]>,
    /// By their numbers.
    statuses: Box<[Group]>,
    methods: Box<[Group]>,
    protocols: Box<[Group]>,
    browsers: Box<[Group]>,
    systems: Box<[Group]>,
    kinds: Box<[Group]>,
    lists: [Top; LISTS],
    slowest: Slowest,
    times: Histogram,
    agents: Memo,
    /// Visitors that came lately, each in the place that its hash says.
    recent: Box<[Lately]>,
    places: Places,
    shower: Shower,
    text: Vec<u8>,
    shown: String,
}

/// Beside an event: that there are so many that differ from it in nothing but their bytes and times, within the same hour.
/// The event's own bytes are then those of all, and its time the longest.
#[derive(Clone, Copy, Debug)]
pub struct Many {
    pub hits: u64,
    /// Those whose times are known, and these together.
    pub timed: u64,
    pub time_us: u64,
}

/// A visitor who came lately, what of that visit is counted already (hour, status, method and protocol), and whether it is a
/// robot that comes from elsewhere than its name says, where that is known.
#[derive(Clone, Copy, Default)]
struct Lately {
    visitor: u64,
    kind: u64,
    is_lie: Option<bool>,
}

/// What is known of an event once it was looked at.
struct Known {
    sample: Sample,
    /// Without its visitor if they came before in the same hour by the same method, and so on.
    alike: Sample,
    /// Without its visitor if they came before: for what is the same in all requests of a visitor, where they are
    /// counted already.
    first: Sample,
    agent: Agent,
    address_hash: u64,
    place: Option<Place>,
}

impl Report {
    pub fn new(options: Options) -> Report {
        let limits = options.limits;
        Report {
            valid: 0,
            invalid: [0; Invalid::ALL.len()],
            outside: 0,
            bytes: 0,
            first: None,
            last: None,
            visitors: Total::default(),
            days: BTreeMap::new(),
            other_days: Group::default(),
            hours: groups(24),
            statuses: groups(usize::from(STATUSES)),
            methods: groups(Method::ALL.len()),
            protocols: groups(Protocol::ALL.len()),
            browsers: groups(BROWSERS_COUNT),
            systems: groups(SYSTEMS_COUNT),
            kinds: groups(Kind::ALL.len()),
            lists: lists(&limits),
            slowest: Slowest::new(SLOWEST),
            times: Histogram::default(),
            agents: Memo::new(limits.agents),
            recent: vec![Lately::default(); RECENT].into(),
            places: Places::new(options.databases.clone()),
            shower: Shower::new(options.privacy.clone()),
            text: Vec::new(),
            shown: String::new(),
            options,
        }
    }

    /// A line that is no request.
    pub fn add_invalid(&mut self, why: Invalid) {
        self.invalid[why as usize] += 1;
    }

    pub fn add(&mut self, event: &Event<'_>) {
        let time_us = event.time_us.map_or(0, u64::from);
        let many = Many { hits: 1, timed: u64::from(event.time_us.is_some()), time_us };
        if self.add_many(event, &many) {
            event.time_us.into_iter().for_each(|us| self.times.add(us));
        }
    }

    /// When the last of many was, and how long they took: so many less than a millisecond.
    pub fn add_times(&mut self, times: &Histogram, at_once: u64, last: Moment) {
        self.times.merge(times);
        self.times.add_many(0, at_once);
        self.last = self.last.map(|known| known.max(last));
    }

    /// The same for several at once, without the distribution of their times; whether they are of the time that was asked for.
    pub fn add_many(&mut self, event: &Event<'_>, many: &Many) -> bool {
        let is_early = self.options.from.is_some_and(|from| event.time < from);
        if is_early || self.options.to.is_some_and(|to| event.time > to) {
            self.outside += many.hits;
            return false;
        }
        self.valid += many.hits;
        self.bytes = self.bytes.saturating_add(event.bytes);
        self.first = Some(self.first.map_or(event.time, |first| first.min(event.time)));
        self.last = Some(self.last.map_or(event.time, |last| last.max(event.time)));
        let known = self.look(event, many);
        self.add_groups(event, &known);
        self.add_client(event, &known);
        self.add_agent(event, &known);
        let site = kinds::site(event.referrer);
        self.add_url(event, &known, site);
        self.add_referrer(event, &known.sample, site);
        if !event.host.is_empty() {
            let hash = self.options.seed.text(event.host);
            self.lists[List::VirtualHosts as usize].add(hash, 0, event.host, &known.sample);
        }
        true
    }

    fn look(&mut self, event: &Event<'_>, many: &Many) -> Known {
        let seed = &self.options.seed;
        let address_hash = hash_of(seed, event.address);
        let agent_hash = seed.text(event.agent);
        let is_visitor = event.status / 100 != 4;
        let visitor = mix(mix(address_hash, agent_hash), event.time.day as u64);
        let sample = Sample {
            visitor: is_visitor.then_some(visitor),
            hits: many.hits,
            bytes: event.bytes,
            timed: many.timed,
            time_us: many.time_us,
            longest_us: event.time_us.unwrap_or(0),
            entries: 0,
        };
        let (mut first, mut alike) = (sample, sample);
        if is_visitor {
            let kind = u64::from(event.time.second / 3600) << 32
                | u64::from(event.status) << 16
                | (event.method as u64) << 8
                | event.protocol as u64;
            let recent = &mut self.recent[visitor as usize % RECENT];
            if recent.visitor == visitor {
                first.visitor = None;
                if recent.kind == kind {
                    alike.visitor = None;
                }
                recent.kind = kind;
            } else {
                *recent = Lately { visitor, kind, is_lie: None };
            }
        }
        Known {
            sample,
            alike,
            first,
            agent: self.agents.read(agent_hash, event.agent),
            address_hash,
            place: self.places.find(address_hash, event.address),
        }
    }

    /// What there are few of.
    fn add_groups(&mut self, event: &Event<'_>, known: &Known) {
        let (sample, first) = (&known.alike, &known.first);
        if let Some(visitor) = first.visitor {
            self.visitors.add(visitor);
        }
        let is_room = self.days.len() < self.options.limits.days;
        let day = match self.days.get_mut(&event.time.day) {
            Some(day) => day,
            None if is_room => self.days.entry(event.time.day).or_default(),
            None => &mut self.other_days,
        };
        day.add(first);
        self.hours[(event.time.second / 3600) as usize % 24].add(sample);
        self.methods[event.method as usize].add(sample);
        self.protocols[event.protocol as usize].add(sample);
        self.browsers[usize::from(known.agent.browser)].add(first);
        self.systems[usize::from(known.agent.system)].add(first);
        if (100..STATUSES).contains(&event.status) {
            self.statuses[usize::from(event.status)].add(sample);
        }
    }

    fn add_client(&mut self, event: &Event<'_>, known: &Known) {
        let seed = &self.options.seed;
        let (shown, hash) =
            self.shower.show(seed, event.address, known.address_hash, event.time.day);
        if !self.lists[List::Hosts as usize].hit(hash, &known.first) {
            self.shown.clear();
            let _ = write!(self.shown, "{shown}");
            self.lists[List::Hosts as usize].insert(hash, 0, self.shown.as_bytes(), &known.first);
        }
        let Some(place) = &known.place else { return };
        let country: &[u8] = match &place.country {
            [0, 0] => b"-",
            letters => letters,
        };
        let hash = u64::from(u16::from_be_bytes(place.country));
        self.lists[List::Countries as usize].add(mix(hash, 1), 0, country, &known.first);
        let hash = mix(u64::from(place.network.unwrap_or(0)), 2);
        if !self.lists[List::Networks as usize].hit(hash, &known.first) {
            let mut name = b"-".to_vec();
            if let Some(number) = place.network {
                name = format!("AS{number} ").into_bytes();
                name.extend(self.places.databases().organization(event.address));
            }
            self.lists[List::Networks as usize].insert(hash, 0, &name, &known.first);
        }
    }

    fn add_agent(&mut self, event: &Event<'_>, known: &Known) {
        let (agent, sample) = (&known.agent, &known.first);
        let hash = mix(u64::from(agent.browser) << 16 | u64::from(agent.version), 3);
        let tag = u16::from(agent.browser) << 8;
        if !self.lists[List::Browsers as usize].hit(hash, sample) {
            let name = crate::agent::browser_name(agent.browser);
            let name = match agent.version {
                0 => name.to_owned(),
                version => format!("{name} {version}"),
            };
            self.lists[List::Browsers as usize].insert(hash, tag, name.as_bytes(), sample);
        }
        if let Some(bot) = agent.bot {
            self.kinds[bot.kind() as usize].add(sample);
            let name = bot.name(event.agent);
            let hash = self.options.seed.text(name);
            self.lists[List::Bots as usize].add(hash, bot.kind() as u16, name, sample);
        }
        let network = known.place.as_ref().and_then(|place| place.network);
        let lie = match agent.bot {
            Some(bot) => {
                let look = || {
                    let operator = bot.operator();
                    operator.is_some_and(|o| !networks::may_be(o, event.address, network))
                };
                // The same address with the same name lies as it did.
                let is_lie = match known.sample.visitor {
                    None => look(),
                    Some(visitor) => {
                        *self.recent[visitor as usize % RECENT].is_lie.get_or_insert_with(look)
                    }
                };
                is_lie.then(|| bot.name(event.agent))
            }
            // A person's browser asks for no such things.
            None => kinds::is_probe(event.uri).then_some(&b"a browser, and looks for holes"[..]),
        };
        if let Some(said) = lie {
            self.add_liar(event, known, said);
        }
    }

    #[cold]
    fn add_liar(&mut self, event: &Event<'_>, known: &Known, said: &[u8]) {
        let seed = &self.options.seed;
        let (shown, hash) =
            self.shower.show(seed, event.address, known.address_hash, event.time.day);
        let name = [shown.to_string().as_bytes(), b" says it is ", said].concat();
        let hash = mix(hash, seed.text(said));
        self.lists[List::Liars as usize].add(hash, 0, &name, &known.sample);
    }

    fn add_url(&mut self, event: &Event<'_>, known: &Known, site: &[u8]) {
        let uri = kinds::decoded(event.uri, &mut self.text);
        let is_static = kinds::is_static(uri) || kinds::ends_with(uri, &self.options.extensions);
        let list = match (event.status, is_static) {
            (404, _) => List::Missing,
            (_, true) => List::Static,
            (_, false) => List::Requests,
        };
        let own = if event.host.is_empty() { &self.options.site } else { event.host };
        // Where people come to from elsewhere.
        let is_entry = event.method == Method::Get
            && event.status < 400
            && !is_static
            && known.agent.bot.is_none()
            && !kinds::is_own(site, own);
        let entries = if is_entry { known.sample.hits } else { 0 };
        let sample = Sample { entries, ..known.sample };
        let tag = (event.method as u16) << 8 | event.protocol as u16;
        let hash = mix(self.options.seed.text(uri), u64::from(tag));
        self.lists[list as usize].add(hash, tag, uri, &sample);
        if let Some(us) = event.time_us {
            self.slowest.add(hash, tag, uri, us);
        }
    }

    fn add_referrer(&mut self, event: &Event<'_>, sample: &Sample, site: &[u8]) {
        if event.referrer.is_empty() {
            return;
        }
        let hash = self.options.seed.text(event.referrer);
        self.lists[List::Referrers as usize].add(hash, 0, event.referrer, sample);
        if !site.is_empty() {
            let hash = self.options.seed.text(site);
            self.lists[List::Sites as usize].add(hash, 0, site, sample);
        }
    }

    /// Forgets what it only remembers to be quicker.
    #[cfg(test)]
    pub(crate) fn forget(&mut self) {
        self.recent.fill(Lately::default());
        self.agents = Memo::new(self.options.limits.agents);
        self.places = Places::new(self.options.databases.clone());
        self.shower = Shower::new(self.options.privacy.clone());
    }

    /// Takes in another with the same seed. It then has room for what both had.
    pub fn merge(&mut self, other: Report) {
        debug_assert!(self.options.seed.is_same(&other.options.seed));
        self.valid += other.valid;
        for (count, more) in self.invalid.iter_mut().zip(other.invalid) {
            *count += more;
        }
        self.outside += other.outside;
        self.bytes = self.bytes.saturating_add(other.bytes);
        self.first = [self.first, other.first].into_iter().flatten().min();
        self.last = self.last.max(other.last);
        self.visitors.merge(&other.visitors);
        self.merge_days(other.days);
        self.other_days.merge(&other.other_days);
        for (ours, theirs) in [
            (&mut self.statuses, &other.statuses),
            (&mut self.hours, &other.hours),
            (&mut self.methods, &other.methods),
            (&mut self.protocols, &other.protocols),
            (&mut self.browsers, &other.browsers),
            (&mut self.systems, &other.systems),
            (&mut self.kinds, &other.kinds),
        ] {
            ours.iter_mut().zip(theirs).for_each(|(ours, theirs)| ours.merge(theirs));
        }
        for (ours, theirs) in self.lists.iter_mut().zip(other.lists) {
            ours.merge(theirs);
        }
        self.slowest.merge(&other.slowest);
        self.times.merge(&other.times);
    }

    fn merge_days(&mut self, days: BTreeMap<i32, Group>) {
        for (day, group) in days {
            let is_room = self.days.len() < self.options.limits.days;
            match self.days.get_mut(&day) {
                Some(ours) => ours.merge(&group),
                None if is_room => drop(self.days.insert(day, group)),
                None => self.other_days.merge(&group),
            }
        }
    }

    /// About what it takes.
    pub fn heap_bytes(&self) -> usize {
        let all = [
            &self.hours,
            &self.statuses,
            &self.methods,
            &self.protocols,
            &self.browsers,
            &self.systems,
            &self.kinds,
        ];
        let groups = all.into_iter().flatten().chain(self.days.values());
        groups.map(|g| size_of::<Group>() + g.visitors.heap_bytes()).sum::<usize>()
            + self.lists.iter().map(Top::heap_bytes).sum::<usize>()
            + self.visitors.heap_bytes()
            + self.agents.heap_bytes()
            + size_of_val(&*self.recent)
    }
}

#[cfg(test)]
mod tests;
