//! The lines of a zone: sums of requests by a key, in memory that is bounded as Tengine's is.

use std::collections::{BTreeMap, HashMap};
use std::fmt::Write as _;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use weir_core::counts::{Keeps, Known};
use weir_core::zones::{chunk_bytes, usable_bytes};

/// What is counted for each key, as Tengine names and orders it.
pub(super) const FIELDS: [&str; 29] = [
    "bytes_in",
    "bytes_out",
    "conn_total",
    "req_total",
    "http_2xx",
    "http_3xx",
    "http_4xx",
    "http_5xx",
    "http_other_status",
    "rt",
    "ups_req",
    "ups_rt",
    "ups_tries",
    "http_200",
    "http_206",
    "http_302",
    "http_304",
    "http_403",
    "http_404",
    "http_416",
    "http_499",
    "http_500",
    "http_502",
    "http_503",
    "http_504",
    "http_508",
    "http_other_detail_status",
    "http_ups_4xx",
    "http_ups_5xx",
];
/// Tengine's: with those of indicators.
pub(super) const NUMBERS_MAX: usize = 50;
/// What Tengine's entry takes without its key.
const ENTRY_BYTES: usize = 488;

/// One of [`FIELDS`], then the indicators.
pub(super) type Numbers = [u64; NUMBERS_MAX];

pub(super) const BYTES_IN: usize = 0;
pub(super) const BYTES_OUT: usize = 1;
pub(super) const CONN_TOTAL: usize = 2;
pub(super) const REQ_TOTAL: usize = 3;
const HTTP_2XX: usize = 4;
const OTHER_STATUS: usize = 8;
pub(super) const RT: usize = 9;
pub(super) const UPS_REQ: usize = 10;
pub(super) const UPS_RT: usize = 11;
pub(super) const UPS_TRIES: usize = 12;
const HTTP_200: usize = 13;
const OTHER_DETAIL: usize = 26;
pub(super) const UPS_4XX: usize = 27;
pub(super) const UPS_5XX: usize = 28;

/// Those that have a field of their own, from [`HTTP_200`] on.
const STATUSES: [u16; 13] = [200, 206, 302, 304, 403, 404, 416, 499, 500, 502, 503, 504, 508];

/// Where a status is counted: its class, and itself.
pub(super) fn places(status: u16) -> [usize; 2] {
    let class = match status {
        200..=599 => HTTP_2XX + usize::from(status / 100) - 2,
        _ => OTHER_STATUS,
    };
    let own = STATUSES.iter().position(|s| *s == status);
    [class, own.map_or(OTHER_DETAIL, |at| HTTP_200 + at)]
}

/// How long a key may be, and how seldom one must be asked for to make room for another.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Limits {
    pub key_max_bytes: usize,
    /// Thousandths of requests in a second.
    pub recycle_rate: u64,
}

struct Line {
    numbers: Numbers,
    /// Thousandths of requests beyond the rate.
    excess: u64,
    last_ms: u64,
    /// When it came; the newest is shown first.
    born: u64,
    /// Its place among those that were visited.
    visit: u64,
}

#[derive(Default)]
struct Table {
    lines: HashMap<Arc<[u8]>, Line>,
    /// By the order of their last visits.
    visits: BTreeMap<u64, Arc<[u8]>>,
    turn: u64,
    used: u64,
}

pub(super) struct Zone {
    /// The text of its key.
    pub value: Vec<u8>,
    size: u64,
    limits: Mutex<Limits>,
    table: Mutex<Table>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Zone {
    pub(super) fn new(value: &[u8], size: u64, limits: Limits) -> Zone {
        let (limits, table) = (Mutex::new(limits), Mutex::default());
        Zone { value: value.to_vec(), size: usable_bytes(size), limits, table }
    }

    /// A reload may say other ones.
    pub(super) fn set_limits(&self, limits: Limits) {
        *lock(&self.limits) = limits;
    }

    pub(super) fn used_bytes(&self) -> u64 {
        lock(&self.table).used
    }

    /// Adds to a key's line; `false`: there is no room for a further one.
    pub(super) fn add(&self, key: &[u8], numbers: &[(usize, u64)], now_ms: u64) -> bool {
        let limits = *lock(&self.limits);
        let key = &key[..key.len().min(limits.key_max_bytes)];
        let mut table = lock(&self.table);
        let Some(line) = table.line(key, &limits, self.size, now_ms) else { return false };
        for (place, n) in numbers {
            line.numbers[*place] = line.numbers[*place].wrapping_add(*n);
        }
        true
    }

    /// All lines, the newest first.
    pub(super) fn lines(&self) -> Vec<(Arc<[u8]>, Numbers)> {
        let table = lock(&self.table);
        let mut all: Vec<_> =
            table.lines.iter().map(|(key, l)| (l.born, Arc::clone(key), l.numbers)).collect();
        all.sort_unstable_by_key(|(born, ..)| std::cmp::Reverse(*born));
        all.into_iter().map(|(_, key, numbers)| (key, numbers)).collect()
    }
}

impl Table {
    fn line(&mut self, key: &[u8], limits: &Limits, size: u64, now_ms: u64) -> Option<&mut Line> {
        self.turn += 1;
        let known = match self.lines.get_key_value(key) {
            Some((own, line)) => {
                self.visits.remove(&line.visit);
                Arc::clone(own)
            }
            None => {
                self.make_room(limits, size, now_ms)?;
                let own: Arc<[u8]> = key.into();
                self.used += cost(limits);
                let fresh = Line {
                    numbers: [0; NUMBERS_MAX],
                    excess: 0,
                    last_ms: now_ms,
                    born: self.turn,
                    visit: 0,
                };
                self.lines.insert(Arc::clone(&own), fresh);
                own
            }
        };
        self.visits.insert(self.turn, Arc::clone(&known));
        let line = self.lines.get_mut(&known)?;
        line.excess = line.left(limits, now_ms) + 1000;
        (line.last_ms, line.visit) = (now_ms, self.turn);
        Some(line)
    }

    /// The one that has waited longest goes, if it is asked for seldom enough.
    fn make_room(&mut self, limits: &Limits, size: u64, now_ms: u64) -> Option<()> {
        if self.used + cost(limits) <= size {
            return Some(());
        }
        let (visit, key) = self.visits.first_key_value()?;
        let (visit, key) = (*visit, Arc::clone(key));
        if self.lines.get(&key)?.left(limits, now_ms) > 0 {
            return None;
        }
        self.visits.remove(&visit);
        self.lines.remove(&key);
        self.used = self.used.saturating_sub(cost(limits));
        (self.used + cost(limits) <= size).then_some(())
    }
}

impl Line {
    fn left(&self, limits: &Limits, now_ms: u64) -> u64 {
        let gone = now_ms.saturating_sub(self.last_ms).saturating_mul(limits.recycle_rate) / 1000;
        self.excess.saturating_sub(gone)
    }
}

fn cost(limits: &Limits) -> u64 {
    chunk_bytes(ENTRY_BYTES + limits.key_max_bytes)
}

/// By the keys, in hexadecimal digits.
impl Keeps for Zone {
    fn read(&self, out: &mut String) {
        for (key, numbers) in self.lines().into_iter().rev() {
            let name: String = key.iter().fold(String::from("k"), |mut name, b| {
                // Writing into a String cannot fail.
                let _ = write!(name, "{b:02x}");
                name
            });
            for (place, n) in numbers.iter().enumerate().filter(|(_, n)| **n > 0) {
                let _ = writeln!(out, "{name} {place} {n}");
            }
        }
    }

    fn add(&self, known: &Known) {
        for (name, numbers) in known.fields() {
            let Some(key) = name.strip_prefix('k').and_then(unhex) else { continue };
            let numbers: Vec<(usize, u64)> = numbers
                .map(|(place, n)| (place as usize, n))
                .filter(|(place, _)| *place < NUMBERS_MAX)
                .collect();
            // What finds no room is not kept.
            self.add(&key, &numbers, weir_runtime::clock::mono_ms());
        }
    }
}

fn unhex(text: &str) -> Option<Vec<u8>> {
    let digit = |b: u8| (b as char).to_digit(16);
    let pair = |pair: &[u8]| match pair {
        [a, b] => Some((digit(*a)? * 16 + digit(*b)?) as u8),
        _ => None,
    };
    text.as_bytes().chunks(2).map(pair).collect()
}

/// The number at the end of an indicator's value: `0.120` counts 120, as Tengine has it.
pub(super) fn indicated(value: &[u8]) -> Option<u64> {
    let from = value.iter().rposition(|b| !b.is_ascii_digit() && *b != b'.').map_or(0, |at| at + 1);
    let text = std::str::from_utf8(&value[from..]).ok()?;
    match text.split_once('.') {
        Some((whole, part)) if !part.contains('.') => format!("{whole}{part}").parse().ok(),
        Some(_) => None,
        None => text.parse().ok(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMITS: Limits = Limits { key_max_bytes: 152, recycle_rate: 167 };

    #[test]
    fn every_status_has_its_places() {
        for (status, class, own) in [
            (200, "http_2xx", "http_200"),
            (204, "http_2xx", "http_other_detail_status"),
            (304, "http_3xx", "http_304"),
            (404, "http_4xx", "http_404"),
            (508, "http_5xx", "http_508"),
            (9, "http_other_status", "http_other_detail_status"),
            (101, "http_other_status", "http_other_detail_status"),
        ] {
            assert_eq!(places(status).map(|at| FIELDS[at]), [class, own], "{status}");
        }
    }

    #[test]
    fn a_zone_has_so_many_lines_and_those_that_are_seldom_asked_for_make_room() {
        let zone = Zone::new(b"$host", 8 * 4096, LIMITS);
        let max = usable_bytes(8 * 4096) / 1024;
        for n in 0..max {
            assert!(zone.add(format!("k{n}").as_bytes(), &[(REQ_TOTAL, 1)], 1000));
        }
        assert!(!zone.add(b"more", &[(REQ_TOTAL, 1)], 1000));
        // All but the first are asked for again; 10 a minute is the rate.
        (1..max).for_each(|n| assert!(zone.add(format!("k{n}").as_bytes(), &[], 4000)));
        assert!(!zone.add(b"more", &[], 6000));
        assert!(zone.add(b"more", &[(REQ_TOTAL, 7)], 7000));
        let lines = zone.lines();
        assert_eq!(lines.len() as u64, max);
        assert_eq!((&lines[0].0[..], lines[0].1[REQ_TOTAL]), (&b"more"[..], 7));
        assert!(!lines.iter().any(|(key, _)| **key == *b"k0"));
        // A long key is cut.
        let long = [b'x'; 200];
        assert!(zone.add(&long, &[], 1_000_000) && zone.add(&long[..160], &[], 1_000_000));
        assert_eq!(zone.lines()[0].0.len(), 152);
        assert_eq!(zone.lines().len() as u64, max);
    }

    #[test]
    fn indicators_are_the_numbers_at_the_end() {
        for (text, expected) in [
            ("1", Some(1)),
            ("0.120", Some(120)),
            ("0.005, 0.010", Some(10)),
            ("a7", Some(7)),
            ("", None),
            ("-", None),
            ("1.2.3", None),
        ] {
            assert_eq!(indicated(text.as_bytes()), expected, "{text}");
        }
    }
}
