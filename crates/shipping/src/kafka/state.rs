//! The producer's state, as it is kept on disk before anything is sent.
//!
//! Brokers know of each partition the number, epoch and last sequences of its producers, and take nothing twice that comes
//! under the same. So what is on its way (a *flight*: one batch of the queue, spread over partitions) is noted before it
//! leaves, and its progress with every answer. Who starts again after a kill spreads the same events in the same way, cuts
//! them at the same places, and sends what was not acknowledged under the sequences it was sent with before.
//!
//! When that cannot be (another topic, other events, or a broker that has lost its knowledge of the producer) the rest
//! goes out under a new number, and what had arrived of the last request without an acknowledgement is there twice.

use super::records::{partition_of, sequence_after};
use weir_base::crc32c::crc32c;

const VERSION: u8 = 1;
const HEAD_BYTES: usize = 1 + 8 + 2 + 4 + 4 * 5 + 4;
const LANE_BYTES: usize = 16;
const SUM_BYTES: usize = 4;

/// One partition, as far as this producer has got in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lane {
    pub partition: i32,
    /// The sequence of the next record.
    pub next: i32,
    /// Of the flight's events for this partition so many are done: acknowledged or refused.
    pub done: u32,
    /// No more records at once, because more were refused.
    pub most: u32,
}

/// A batch of the queue that is on its way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Flight {
    pub events: u32,
    /// Over the events' ids and partitions.
    pub sum: u32,
    /// How many partitions the topic had when it began.
    pub partitions: i32,
    /// The partition of events without a key.
    pub sticky: i32,
    /// A request's batch for a partition is no longer, unless one record is.
    pub chunk_bytes: u32,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct State {
    /// Number and epoch; without them nothing was sent yet.
    pub producer: Option<(i64, i16)>,
    /// The topic that it is about.
    topic: u32,
    pub flight: Option<Flight>,
    pub lanes: Vec<Lane>,
}

/// Which events go where: the numbers of a flight's events for each partition, in order.
pub type Spread = Vec<(i32, Vec<usize>)>;

/// Spreads events over partitions by their keys; those without one go to `sticky`.
pub fn spread<'a>(
    keys: impl Iterator<Item = Option<&'a [u8]>>,
    partitions: i32,
    sticky: i32,
) -> Spread {
    let mut spread: Spread = Vec::new();
    for (event, key) in keys.enumerate() {
        let partition = key.map_or(sticky, |key| partition_of(key, partitions));
        match spread.binary_search_by_key(&partition, |(p, _)| *p) {
            Ok(at) => spread[at].1.push(event),
            Err(at) => spread.insert(at, (partition, vec![event])),
        }
    }
    spread
}

/// What says that events and their partitions are the same as before.
pub fn sum<'a>(ids: impl Iterator<Item = &'a [u8]>, spread: &Spread) -> u32 {
    let mut text = Vec::new();
    ids.for_each(|id| text.extend_from_slice(id));
    for (partition, events) in spread {
        text.extend_from_slice(&partition.to_be_bytes());
        text.extend_from_slice(&(events.len() as u32).to_be_bytes());
    }
    crc32c(&text)
}

impl State {
    /// Nothing sent yet, of this topic.
    pub fn new(topic: &str) -> State {
        State { topic: crc32c(topic.as_bytes()), ..State::default() }
    }

    /// What was kept, if it is whole and about this topic.
    pub fn read(kept: &[u8], topic: &str) -> Option<State> {
        let (body, kept_sum) = kept.split_at_checked(kept.len().checked_sub(SUM_BYTES)?)?;
        let whole = kept_sum == crc32c(body).to_le_bytes();
        let (head, mut lanes) = body.split_at_checked(HEAD_BYTES)?;
        let at = |from: usize| head.get(from..from + 4)?.try_into().ok().map(i32::from_le_bytes);
        let state = State {
            producer: {
                let id = i64::from_le_bytes(head[1..9].try_into().ok()?);
                let epoch = i16::from_le_bytes(head[9..11].try_into().ok()?);
                (id >= 0).then_some((id, epoch))
            },
            topic: at(11)? as u32,
            flight: Some(Flight {
                events: at(15)? as u32,
                sum: at(19)? as u32,
                partitions: at(23)?,
                sticky: at(27)?,
                chunk_bytes: at(31)? as u32,
            })
            .filter(|f| f.events > 0),
            lanes: {
                let count = at(35)? as usize;
                let mut found = Vec::new();
                while let Some((lane, rest)) = lanes.split_first_chunk::<LANE_BYTES>() {
                    let word = |n: usize| {
                        let bytes = [lane[n], lane[n + 1], lane[n + 2], lane[n + 3]];
                        i32::from_le_bytes(bytes)
                    };
                    let (partition, next) = (word(0), word(4));
                    let (done, most) = (word(8) as u32, word(12) as u32);
                    found.push(Lane { partition, next, done, most });
                    lanes = rest;
                }
                (found.len() == count && lanes.is_empty()).then_some(found)?
            },
        };
        let same = head[0] == VERSION && state.topic == crc32c(topic.as_bytes());
        (whole && same).then_some(state)
    }

    pub fn write(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(HEAD_BYTES + self.lanes.len() * LANE_BYTES + SUM_BYTES);
        out.push(VERSION);
        let (id, epoch) = self.producer.unwrap_or((-1, -1));
        out.extend_from_slice(&id.to_le_bytes());
        out.extend_from_slice(&epoch.to_le_bytes());
        let mut word = |word: u32| out.extend_from_slice(&word.to_le_bytes());
        word(self.topic);
        let none = Flight { events: 0, sum: 0, partitions: 0, sticky: 0, chunk_bytes: 0 };
        let flight = self.flight.unwrap_or(none);
        word(flight.events);
        word(flight.sum);
        word(flight.partitions as u32);
        word(flight.sticky as u32);
        word(flight.chunk_bytes);
        word(self.lanes.len() as u32);
        for lane in &self.lanes {
            for value in [lane.partition as u32, lane.next as u32, lane.done, lane.most] {
                word(value);
            }
        }
        let sum = crc32c(&out);
        out.extend_from_slice(&sum.to_le_bytes());
        out
    }

    /// A new number, of which brokers know nothing. What was not acknowledged goes on under it.
    pub fn renew(&mut self, producer: i64, epoch: i16) {
        self.producer = Some((producer, epoch));
        for lane in &mut self.lanes {
            lane.next = 0;
        }
    }

    /// Something is on its way of which it is not known whether it has arrived.
    pub fn is_open(&self) -> bool {
        let done: u64 = self.lanes.iter().map(|lane| u64::from(lane.done)).sum();
        self.flight.is_some_and(|flight| done < u64::from(flight.events))
    }

    /// Whether these events are what was on its way.
    pub fn is_of(&self, events: usize, sum: u32) -> bool {
        self.flight.is_some_and(|f| f.events as usize == events && f.sum == sum)
    }

    /// Begins another flight.
    pub fn begin(&mut self, flight: Flight, spread: &Spread) {
        self.flight = Some(flight);
        for lane in &mut self.lanes {
            lane.done = 0;
            lane.most = u32::MAX;
        }
        for (partition, _) in spread {
            if self.lane(*partition).is_none() {
                let partition = *partition;
                self.lanes.push(Lane { partition, next: 0, done: 0, most: u32::MAX });
            }
        }
    }

    pub fn lane(&self, partition: i32) -> Option<&Lane> {
        self.lanes.iter().find(|lane| lane.partition == partition)
    }

    fn lane_mut(&mut self, partition: i32) -> Option<&mut Lane> {
        self.lanes.iter_mut().find(|lane| lane.partition == partition)
    }

    /// How many of a partition's events go out next; `sizes` are those of all that it has in this flight.
    pub fn chunk(&self, partition: i32, sizes: impl Iterator<Item = usize>) -> usize {
        let Some((lane, flight)) = self.lane(partition).zip(self.flight) else { return 0 };
        let mut room = flight.chunk_bytes as usize;
        let fits = |bytes: usize| {
            let fits = room.checked_sub(bytes);
            room = fits.unwrap_or(0);
            fits.is_some()
        };
        let mut left = sizes.skip(lane.done as usize).peekable();
        if left.peek().is_none() {
            return 0;
        }
        left.map(fits).take_while(|fits| *fits).count().clamp(1, lane.most.max(1) as usize)
    }

    /// The first of a partition's events that are left are there.
    pub fn acknowledge(&mut self, partition: i32, events: usize) {
        if let Some(lane) = self.lane_mut(partition) {
            lane.done += events as u32;
            lane.next = sequence_after(lane.next, events);
        }
    }

    /// They were refused together. If it was one alone, that is given up: then it answers `true`.
    pub fn refuse(&mut self, partition: i32, events: usize) -> bool {
        let Some(lane) = self.lane_mut(partition) else { return false };
        if events > 1 {
            lane.most = events as u32 / 2;
            return false;
        }
        lane.done += 1;
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn flight(events: u32, sum: u32) -> Flight {
        Flight { events, sum, partitions: 3, sticky: 1, chunk_bytes: 100 }
    }

    #[test]
    fn what_is_kept_is_read_again() {
        let mut state = State::new("t");
        assert_eq!(State::read(&state.write(), "t"), Some(state.clone()));
        state.renew(77, 3);
        let events: Spread = vec![(0, vec![0, 2]), (2, vec![1])];
        state.begin(flight(3, 9), &events);
        state.acknowledge(2, 1);
        let bytes = state.write();
        assert_eq!(State::read(&bytes, "t"), Some(state.clone()));
        assert_eq!(State::read(&bytes, "u"), None, "another topic");
        for len in 0..bytes.len() {
            assert_eq!(State::read(&bytes[..len], "t"), None, "cut at {len}");
        }
        for at in 0..bytes.len() {
            let mut wrong = bytes.clone();
            wrong[at] ^= 4;
            assert_eq!(State::read(&wrong, "t"), None, "a wrong byte at {at}");
        }
    }

    #[test]
    fn a_flight_is_cut_at_the_same_places_again() {
        let mut state = State::new("t");
        state.renew(1, 0);
        let events: Spread = vec![(1, vec![0, 1, 2, 3])];
        state.begin(flight(4, 5), &events);
        let sizes = [60, 40, 120, 10];
        assert_eq!(state.chunk(1, sizes.into_iter()), 2);
        state.acknowledge(1, 2);
        let mut again = State::read(&state.write(), "t").unwrap();
        assert!(again.is_of(4, 5) && again.is_open());
        assert_eq!(again.lane(1).map(|l| (l.next, l.done)), Some((2, 2)));
        assert_eq!(again.chunk(1, sizes.into_iter()), 1, "one that is too long goes alone");
        again.acknowledge(1, 1);
        assert_eq!(again.chunk(1, sizes.into_iter()), 1);
        again.acknowledge(1, 1);
        assert_eq!(again.chunk(1, sizes.into_iter()), 0);
        assert!(!again.is_open());
        again.begin(flight(1, 6), &vec![(1, vec![0])]);
        assert_eq!(again.lane(1).map(|l| (l.next, l.done)), Some((4, 0)));
    }

    #[test]
    fn the_one_that_is_refused_is_found() {
        let mut state = State::new("t");
        let events: Spread = vec![(0, vec![0, 1, 2, 3, 4])];
        state.begin(flight(5, 1), &events);
        let (mut refused, mut next) = (Vec::new(), 0);
        while state.is_open() {
            let count = state.chunk(0, [1; 5].into_iter());
            let from = state.lane(0).unwrap().done as usize;
            match (from..from + count).contains(&3) {
                true if state.refuse(0, count) => refused.push(from),
                true => {}
                false => {
                    state.acknowledge(0, count);
                    next += count as i32;
                }
            }
        }
        assert_eq!(refused, [3]);
        assert_eq!(state.lane(0).unwrap().next, next, "a refused record takes no number");
        assert_eq!(next, 4);
    }

    #[test]
    fn events_go_by_their_keys() {
        let keys = [Some(&b"21"[..]), None, Some(b"abc"), Some(b"21")];
        let spread = spread(keys.into_iter(), 5, 2);
        let of = |event: usize| spread.iter().find(|(_, e)| e.contains(&event)).unwrap().0;
        assert_eq!(of(0), of(3));
        assert_eq!(of(1), 2);
        assert_eq!(of(2), 479_470_107 % 5);
        assert!(spread.windows(2).all(|two| two[0].0 < two[1].0));
        let ids = [&b"a"[..], b"b"];
        assert_ne!(sum(ids.into_iter(), &spread), sum(ids.into_iter().rev(), &spread));
    }
}
