//! The producer: flights of events over partitions, one request at a time to each leader.

use super::broker::Broker;
use super::conf::Settings;
use crate::receiver::{Batch, Client, Entry, Ground, Kept, Outcome};
use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};
use weir_core::logger::LogLevel;
use weir_shipping::field;
use weir_shipping::kafka::fault::{self, Remedy};
use weir_shipping::kafka::message::{
    self, Metadata, Produced, ProducerId, INIT_PRODUCER_ID, METADATA, PRODUCE,
};
use weir_shipping::kafka::records::{self, Record, Sequence};
use weir_shipping::kafka::state::{self, Flight, Spread, State};
use weir_shipping::kafka::PARTITIONS_MAX;

/// Who leads what is asked again after so long, even if nothing has failed.
const METADATA_AGE_MAX: Duration = Duration::from_secs(300);
/// Of a request's batches of records together.
const REQUEST_MAX_BYTES: usize = 16 << 20;
/// As long as brokers may have us wait.
const THROTTLE_MAX: Duration = Duration::from_secs(30);
/// New producer ids for one batch at once; more of them help nobody.
const RENEWALS_MAX: u32 = 2;
/// A key is cut there.
const KEY_MAX_BYTES: usize = 4096;

pub struct Producer {
    s: Arc<Settings>,
    ground: Ground,
    brokers: HashMap<i32, Broker>,
    /// Which of the configured addresses is asked next.
    turn: usize,
    metadata: Option<(Metadata, Instant)>,
    state: Option<State>,
    /// Of the flight's events those that were given up, with the broker's words.
    refused: Vec<(usize, String)>,
    not_before: Option<Instant>,
}

/// Why a batch is not through.
struct Trouble {
    why: String,
    after: Option<Duration>,
}

impl From<String> for Trouble {
    fn from(why: String) -> Trouble {
        Trouble { why, after: None }
    }
}

/// A batch as it is sent: its events' ids and keys, and where they go.
struct Load<'a> {
    entries: &'a [Entry<'a>],
    ids: Vec<String>,
    keys: Vec<Option<Vec<u8>>>,
    spread: Spread,
}

/// What one request has for a partition.
struct Part {
    partition: i32,
    /// Of the load's events, the first and how many of them in the partition's order.
    events: Vec<usize>,
}

impl Client for Producer {
    fn send(&mut self, batch: &mut Batch<'_>) -> Outcome {
        match self.deliver(batch) {
            Ok(()) if self.refused.is_empty() => Outcome::All,
            Ok(()) => {
                let refused = std::mem::take(&mut self.refused);
                let mut done = vec![true; batch.entries.len()];
                refused.iter().for_each(|(event, _)| done[*event] = false);
                Outcome::Some { done, refused, again_after: None }
            }
            Err(Trouble { why, after }) => Outcome::Later { why, after },
        }
    }

    fn repeats(&self) -> bool {
        true
    }
}

impl Producer {
    pub fn new(s: Arc<Settings>, ground: Ground) -> Producer {
        Producer {
            s,
            ground,
            brokers: HashMap::new(),
            turn: 0,
            metadata: None,
            state: None,
            refused: Vec::new(),
            not_before: None,
        }
    }

    fn deliver(&mut self, batch: &mut Batch<'_>) -> Result<(), Trouble> {
        self.wait_as_asked()?;
        let mut state = match self.state.take() {
            Some(state) => state,
            None => State::read(batch.kept.bytes(), &self.s.topic)
                .unwrap_or_else(|| State::new(&self.s.topic)),
        };
        let done = self.deliver_from(&mut state, batch);
        self.state = Some(state);
        done
    }

    fn deliver_from(&mut self, state: &mut State, batch: &mut Batch<'_>) -> Result<(), Trouble> {
        self.look_around()?;
        let Batch { entries, kept, .. } = batch;
        let load = self.load(state, entries, *kept)?;
        let mut renewals = 0;
        while state.is_open() {
            if self.ground.stop.is_set() {
                return Err(Trouble::from("the process ends".to_owned()));
            }
            let round = self.round(state, &load);
            // Also after an error: partitions may have got on before it.
            keep(*kept, state)?;
            if round? {
                renewals += 1;
                if renewals > RENEWALS_MAX {
                    return Err("brokers refuse new producer ids one after the other"
                        .to_owned()
                        .into());
                }
                self.renew(state)?;
                keep(*kept, state)?;
            }
        }
        Ok(())
    }

    /// Brokers have asked to be left alone for a while.
    fn wait_as_asked(&mut self) -> Result<(), Trouble> {
        let Some(until) = self.not_before.take() else { return Ok(()) };
        let left = until.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Ok(());
        }
        self.not_before = Some(until);
        Err(Trouble { why: "brokers ask to wait (quota)".into(), after: Some(left) })
    }

    /// Which partitions there are, and who leads them.
    fn look_around(&mut self) -> Result<(), Trouble> {
        if self.metadata.as_ref().is_some_and(|(_, at)| at.elapsed() < METADATA_AGE_MAX) {
            return Ok(());
        }
        let s = Arc::clone(&self.s);
        let (broker, name) = self.any()?;
        let asked = broker.ask(METADATA, &s, |w, _| message::metadata(&s.topic, w));
        let found = asked.and_then(|(_, body)| {
            let found = Metadata::read(&body, &s.topic).ok_or_else(|| broker.odd(METADATA))?;
            broker.check(METADATA, found.error, &format!("topic \"{}\"", s.topic))?;
            match found.partitions.is_empty() {
                true => Err(format!("{}: topic \"{}\" has no partitions", broker.name(), s.topic)),
                false => Ok(found),
            }
        });
        match found {
            Ok(found) => {
                self.metadata = Some((found, Instant::now()));
                Ok(())
            }
            Err(why) => {
                self.brokers.remove(&name);
                self.turn += 1;
                Err(why.into())
            }
        }
    }

    /// A broker that can be asked what any of them knows, with its place among the connections. Those of the configured
    /// addresses stand under negative numbers, as it is not known there who they are.
    fn any(&mut self) -> Result<(&mut Broker, i32), String> {
        let turn = self.turn % self.s.brokers.len();
        let place = -1 - turn as i32;
        let address = self.s.brokers[turn].clone();
        match self.connected(place, &address.host, address.port) {
            Ok(()) => {}
            Err(why) => {
                self.turn += 1;
                return Err(why);
            }
        }
        let broker = self.brokers.get_mut(&place).ok_or("no connection")?;
        Ok((broker, place))
    }

    fn connected(&mut self, place: i32, host: &str, port: u16) -> Result<(), String> {
        if self.brokers.get(&place).is_some_and(|b| !b.is_stale()) {
            return Ok(());
        }
        let broker = Broker::open(host, port, &self.s, &self.ground.stop)?;
        self.brokers.insert(place, broker);
        Ok(())
    }

    /// What is to be sent: the flight that is under way, or a new one.
    fn load<'a>(
        &mut self,
        state: &mut State,
        entries: &'a [Entry<'a>],
        kept: &mut dyn Kept,
    ) -> Result<Load<'a>, Trouble> {
        let ids: Vec<String> = entries.iter().map(|e| e.id.to_string()).collect();
        let keys: Vec<_> = entries.iter().map(|e| self.key(e)).collect();
        let there = self.metadata.as_ref().map_or(1, |(m, _)| m.partitions.len());
        let there = there.min(PARTITIONS_MAX) as i32;
        let spread_by = |partitions, sticky| {
            state::spread(keys.iter().map(Option::as_deref), partitions, sticky)
        };
        let sum = |spread: &Spread| state::sum(ids.iter().map(String::as_bytes), spread);
        if let Some(flight) = state.flight.filter(|f| f.partitions <= there) {
            let spread = spread_by(flight.partitions, flight.sticky);
            if state.is_of(entries.len(), sum(&spread)) {
                return Ok(Load { entries, ids, keys, spread });
            }
        }
        if state.is_open() {
            (self.ground.say)(
                LogLevel::Warn,
                "what was on its way to Kafka is not what there is to send, or the topic was made anew: it is sent under \
                 a new producer id, and some of it may be there twice",
            );
            state.producer = None;
        }
        if state.producer.is_none() {
            self.renew(state)?;
        }
        self.refused.clear();
        let sticky = self.next_partition(state.flight.map_or(-1, |f| f.sticky), there);
        let spread = spread_by(there, sticky);
        let flight = Flight {
            events: entries.len() as u32,
            sum: sum(&spread),
            partitions: there,
            sticky,
            chunk_bytes: self.s.chunk_bytes,
        };
        state.begin(flight, &spread);
        keep(kept, state)?;
        Ok(Load { entries, ids, keys, spread })
    }

    fn key(&self, entry: &Entry<'_>) -> Option<Vec<u8>> {
        let name = self.s.key.as_deref()?;
        let mut key = field::text(field::find(&field::parse(entry.json)?, name)?)?.into_bytes();
        key.truncate(KEY_MAX_BYTES);
        Some(key)
    }

    /// The next partition that has a leader.
    fn next_partition(&self, last: i32, partitions: i32) -> i32 {
        let leads = |p: &i32| self.metadata.as_ref().is_some_and(|(m, _)| m.leader(*p).is_some());
        let next = (1..=partitions).map(|n| last.wrapping_add(n).rem_euclid(partitions));
        next.clone().find(leads).or_else(|| next.clone().next()).unwrap_or(0)
    }

    /// A new producer id.
    fn renew(&mut self, state: &mut State) -> Result<(), Trouble> {
        let s = Arc::clone(&self.s);
        let (broker, place) = self.any()?;
        let asked = broker.ask(INIT_PRODUCER_ID, &s, |w, _| message::init_producer_id(w));
        let found = asked.and_then(|(_, body)| {
            let found = ProducerId::read(&body).ok_or_else(|| broker.odd(INIT_PRODUCER_ID))?;
            broker.check(INIT_PRODUCER_ID, found.error, "")?;
            Ok(found)
        });
        match found {
            Ok(found) => {
                state.renew(found.id, found.epoch);
                Ok(())
            }
            Err(why) => {
                self.brokers.remove(&place);
                self.turn += 1;
                Err(why.into())
            }
        }
    }

    /// One request to the leader of the first partition that has something left. Whether a new producer id is needed.
    fn round(&mut self, state: &mut State, load: &Load<'_>) -> Result<bool, Trouble> {
        let Some((metadata, _)) = &self.metadata else { return self.look_around().map(|()| false) };
        let left = |partition: i32, events: &[usize]| {
            let done = state.lane(partition).map_or(0, |l| l.done as usize);
            done < events.len()
        };
        let waiting: Vec<_> = load.spread.iter().filter(|(p, e)| left(*p, e)).collect();
        let Some((first, _)) = waiting.first() else {
            return Err("the flight has no end".to_owned().into());
        };
        let Some(leader) = metadata.leader(*first).cloned() else {
            self.metadata = None;
            return Err(format!("partition {first} of \"{}\" has no leader", self.s.topic).into());
        };
        let of_leader = |p: i32| metadata.leader(p).is_some_and(|b| b.id == leader.id);
        let mut parts = Vec::new();
        let mut bytes = 0;
        for (partition, events) in waiting.into_iter().filter(|(p, _)| of_leader(*p)) {
            let size = |event: &usize| load.record(*event).most_bytes();
            let count = state.chunk(*partition, events.iter().map(size));
            let done = state.lane(*partition).map_or(0, |l| l.done as usize);
            let events = events[done..done + count].to_vec();
            bytes += events.iter().map(size).sum::<usize>();
            if !parts.is_empty() && bytes > REQUEST_MAX_BYTES {
                break;
            }
            parts.push(Part { partition: *partition, events });
        }
        let port = u16::try_from(leader.port).unwrap_or(0);
        if let Err(why) = self.connected(leader.id, &leader.host, port) {
            self.metadata = None;
            return Err(why.into());
        }
        self.produce(leader.id, state, load, &parts)
    }

    fn produce(
        &mut self,
        leader: i32,
        state: &mut State,
        load: &Load<'_>,
        parts: &[Part],
    ) -> Result<bool, Trouble> {
        let s = Arc::clone(&self.s);
        let broker = self.brokers.get_mut(&leader).ok_or_else(|| "no connection".to_owned())?;
        let (producer, epoch) = state.producer.unwrap_or((-1, -1));
        let batches = parts.iter().map(|part| {
            let first = state.lane(part.partition).map_or(0, |l| l.next);
            let records: Vec<_> = part.events.iter().map(|e| load.record(*e)).collect();
            let sequence = Sequence { producer, epoch, first };
            Ok((part.partition, records::batch(&records, sequence, s.compression)?))
        });
        let batches = batches.collect::<Result<Vec<_>, String>>()?;
        let version = broker.version(PRODUCE)?;
        if version < s.compression.least_version() {
            return Err(format!("{}: too old for zstd", broker.name()).into());
        }
        let wait_ms = i32::try_from(s.timeout.as_millis()).unwrap_or(i32::MAX);
        let asked =
            broker.ask(PRODUCE, &s, |w, _| message::produce(&s.topic, wait_ms, &batches, w));
        let answer = asked.and_then(|(version, body)| {
            message::produced(&body, version, &s.topic).ok_or_else(|| broker.odd(PRODUCE))
        });
        let (answers, throttled_ms) = match answer {
            Ok(answer) => answer,
            Err(why) => {
                self.brokers.remove(&leader);
                self.metadata = None;
                return Err(why.into());
            }
        };
        let throttled = Duration::from_millis(throttled_ms as u64).min(THROTTLE_MAX);
        self.not_before = (!throttled.is_zero()).then(|| Instant::now() + throttled);
        self.heed(state, parts, &answers)
    }

    /// Takes what became of each partition's records to heart. Whether a new producer id is needed.
    fn heed(
        &mut self,
        state: &mut State,
        parts: &[Part],
        answers: &[Produced],
    ) -> Result<bool, Trouble> {
        let (mut renew, mut trouble) = (false, None);
        for part in parts {
            let Some(answer) = answers.iter().find(|a| a.partition == part.partition) else {
                trouble = Some("a broker has answered for other partitions".to_owned());
                continue;
            };
            let (_, remedy) = fault::meaning(answer.error);
            let why = || {
                let words = fault::words(answer.error, &answer.why);
                format!("partition {} of \"{}\": {words}", part.partition, self.s.topic)
            };
            match remedy {
                Remedy::Done => state.acknowledge(part.partition, part.events.len()),
                Remedy::Smaller | Remedy::Refused => {
                    if state.refuse(part.partition, part.events.len()) {
                        self.refused.extend(part.events.first().map(|e| (*e, why())));
                    }
                }
                Remedy::NewProducer => {
                    let line = format!(
                        "{}; going on under a new producer id, some records may be there twice",
                        why()
                    );
                    (self.ground.say)(LogLevel::Warn, &line);
                    renew = true;
                }
                Remedy::FindLeader => {
                    self.metadata = None;
                    trouble = Some(why());
                }
                Remedy::Later | Remedy::Configuration => trouble = Some(why()),
            }
        }
        match trouble {
            // What was learned is kept with the next step.
            Some(why) if !renew => Err(why.into()),
            _ => Ok(renew),
        }
    }
}

impl Load<'_> {
    fn record(&self, event: usize) -> Record<'_> {
        let entry = &self.entries[event];
        Record {
            time_ms: entry.time_ms as i64,
            key: self.keys[event].as_deref(),
            value: entry.json,
            id: self.ids[event].as_bytes(),
        }
    }
}

fn keep(kept: &mut dyn Kept, state: &State) -> Result<(), Trouble> {
    kept.keep(&state.write()).map_err(|e| {
        let why = crate::line::words(&e);
        Trouble::from(format!("the producer's state cannot be kept: {why}"))
    })
}
