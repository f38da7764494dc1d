//! What servers did in a while, each by two looks at all its figures, and added up. Pure: documents in, figures out.
//!
//! Rates are of a server's own while, and only then added up. Times add up by their buckets; where a server has told none,
//! nothing can be said of all of them together. A server that is not there is left out: it is no zero.

use serde_json::Value;
use std::collections::BTreeMap;
use weir_core::counts::Times;
use weir_core::figures::{Figure, Figures};

/// Of the zones of one server so many are looked at, and of all together shown.
pub const ZONES_MAX: usize = 500;

/// One look at a server.
pub struct Look {
    /// Microseconds of a clock that never goes back.
    at_us: u64,
    tree: Value,
}

impl Look {
    /// Reads the document of `figures`.
    ///
    /// # Errors
    ///
    /// It is none, in words.
    pub fn read(text: &[u8]) -> Result<Look, String> {
        if weir_base::json::is_too_much(text) {
            return Err("what it answers is more than the figures of a server".to_string());
        }
        let tree: Value =
            serde_json::from_slice(text).map_err(|e| format!("what it answers is no JSON: {e}"))?;
        let at_us = tree.get("now_us").and_then(Value::as_u64);
        let at_us = at_us.ok_or("what it answers is not the \"figures\" of an API of Weir")?;
        Ok(Look { at_us, tree })
    }
}

fn at<'a>(tree: &'a Value, path: &[&str]) -> Option<&'a Value> {
    path.iter().try_fold(tree, |at, name| at.get(name))
}

fn number(tree: &Value, path: &[&str]) -> u64 {
    at(tree, path).and_then(Value::as_u64).unwrap_or(0)
}

/// Counts that only grow, each with its name and where a zone has it.
const COUNTS: [(&str, &[&str]); 8] = [
    ("requests", &["requests"]),
    ("1xx", &["responses", "1xx"]),
    ("2xx", &["responses", "2xx"]),
    ("3xx", &["responses", "3xx"]),
    ("4xx", &["responses", "4xx"]),
    ("5xx", &["responses", "5xx"]),
    ("received", &["received"]),
    ("sent", &["sent"]),
];
const SHARES: [(&str, f64); 3] = [("p50", 0.5), ("p95", 0.95), ("p99", 0.99)];

/// What a server, a zone, or several of them did: a second each, and how long it took.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Part {
    rates: [f64; COUNTS.len()],
    /// Since the start.
    total: u64,
    /// Microseconds; none where somebody who had requests told no buckets.
    times: Option<Times>,
}

impl Part {
    fn none() -> Part {
        Part { times: Some(Times::default()), ..Part::default() }
    }

    fn of_zone(now: &Value, before: Option<&Value>, secs: f64) -> Part {
        let rate = |path: &[&str]| {
            let (all, old) = (number(now, path), before.map_or(0, |b| number(b, path)));
            // One that began anew has counted from zero.
            let new = all.checked_sub(old).unwrap_or(all);
            if before.is_some() && secs > 0.0 {
                new as f64 / secs
            } else {
                0.0
            }
        };
        let rates = COUNTS.map(|(_, path)| rate(path));
        let times = match now.get("latency").and_then(times) {
            Some(all) => Some(match before.and_then(|b| times(b.get("latency")?)) {
                Some(old) => all.since(&old),
                None if before.is_some() => all,
                // A first look tells nothing of a while.
                None => Times::default(),
            }),
            None if rates[0] == 0.0 => Some(Times::default()),
            None => None,
        };
        Part { rates, total: number(now, &["requests"]), times }
    }

    fn add(&mut self, other: &Part) {
        self.rates.iter_mut().zip(other.rates).for_each(|(mine, theirs)| *mine += theirs);
        self.total = self.total.saturating_add(other.total);
        match (&mut self.times, &other.times) {
            (Some(mine), Some(theirs)) => mine.merge(theirs),
            (times, _) => *times = None,
        }
    }

    fn put(&self, figures: &mut Figures) {
        for ((name, _), rate) in COUNTS.iter().zip(self.rates) {
            figures.put(*name, Figure::Real(rate));
        }
        figures.put("total", self.total);
        for (name, share) in SHARES {
            let us = self.times.as_ref().map(|times| times.percentile_us(share));
            figures.put(name, Figure::Real(us.map_or(f64::NAN, |us| us as f64 / 1000.0)));
        }
    }
}

fn times(told: &Value) -> Option<Times> {
    let list = told.get("buckets")?.as_array()?;
    let numbers = || list.iter().map(|n| n.as_u64().unwrap_or(0));
    let buckets = numbers().step_by(2).zip(numbers().skip(1).step_by(2));
    Some(Times::of_buckets(buckets, number(told, &["sum_us"]), number(told, &["max_us"])))
}

/// A server between two looks; of one look alone, what there is of now.
#[derive(Clone, Debug, PartialEq)]
pub struct Machine {
    whole: Part,
    connections: u64,
    accepted: f64,
    version: String,
    /// Which process it is; empty where it does not say.
    pub instance: String,
    zones: BTreeMap<String, Part>,
}

impl Machine {
    pub fn of(now: &Look, before: Option<&Look>) -> Machine {
        let tree = &now.tree;
        let secs = before.map_or(0.0, |b| now.at_us.saturating_sub(b.at_us) as f64 / 1e6);
        let old = before.map(|b| &b.tree);
        let mut machine = Machine {
            whole: Part::none(),
            connections: number(tree, &["connections", "active"])
                + number(tree, &["connections", "idle"]),
            accepted: 0.0,
            version: at(tree, &["nginx", "version"]).and_then(Value::as_str).unwrap_or("").into(),
            instance: tree.get("instance").and_then(Value::as_str).unwrap_or("").into(),
            zones: BTreeMap::new(),
        };
        let accepted = |tree: &Value| number(tree, &["connections", "accepted"]);
        if let Some(old) = old.filter(|_| secs > 0.0) {
            let new = accepted(tree).checked_sub(accepted(old));
            machine.accepted = new.unwrap_or_else(|| accepted(tree)) as f64 / secs;
        }
        let zones = at(tree, &["http", "server_zones"]).and_then(Value::as_object);
        for (name, zone) in zones.into_iter().flatten() {
            // One that was not there before began in the while.
            let empty = Value::Null;
            let was = old.map(|o| at(o, &["http", "server_zones", name]).unwrap_or(&empty));
            let part = Part::of_zone(zone, was, secs);
            machine.whole.add(&part);
            if machine.zones.len() < ZONES_MAX {
                machine.zones.insert(name.clone(), part);
            }
        }
        machine
    }

    pub fn put(&self, figures: &mut Figures) {
        self.whole.put(figures);
        figures.put("connections", self.connections);
        figures.put("accepted", Figure::Real(self.accepted));
        figures.put("version", self.version.as_str());
    }
}

/// All that are there, added up, and their zones by names.
pub fn sum(machines: &[Machine]) -> (Figures, Figures) {
    let (mut whole, mut zones) = (Part::none(), BTreeMap::<&str, (Part, u64)>::new());
    for machine in machines {
        whole.add(&machine.whole);
        for (name, part) in &machine.zones {
            if zones.len() < ZONES_MAX || zones.contains_key(name.as_str()) {
                let (sum, n) = zones.entry(name).or_insert_with(|| (Part::none(), 0));
                sum.add(part);
                *n += 1;
            }
        }
    }
    let mut all = Figures::default();
    whole.put(&mut all);
    all.put("connections", machines.iter().map(|m| m.connections).sum::<u64>());
    all.put("accepted", Figure::Real(machines.iter().map(|m| m.accepted).sum()));
    let mut by_name = Figures::default();
    for (name, (part, n)) in zones {
        let zone = by_name.entry(name.as_bytes());
        part.put(zone);
        zone.put("machines", n);
    }
    (all, by_name)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    /// `buckets` are of 1 ms and 100 ms.
    fn look(at_us: u64, requests: u64, buckets: Option<[u64; 2]>) -> Look {
        let mut zone =
            json!({"requests": requests, "responses": {"2xx": requests}, "sent": 10 * requests});
        if let Some([short, long]) = buckets {
            zone["latency"] =
                json!({"sum_us": 0, "max_us": 104_000, "buckets": [1024, short, 104_000, long]});
        }
        let tree = json!({"now_us": at_us, "connections": {"active": 2, "idle": 1, "accepted": requests},
            "http": {"server_zones": {"shop": zone}}});
        Look::read(tree.to_string().as_bytes()).unwrap()
    }

    fn read(figures: &Figures) -> Value {
        let mut out = Vec::new();
        figures.write_json(&mut out);
        serde_json::from_slice(&out).unwrap()
    }

    #[test]
    fn rates_are_of_each_ones_while_and_times_add_up_by_buckets() {
        let one = Machine::of(
            &look(3_000_000, 300, Some([299, 1])),
            Some(&look(1_000_000, 100, Some([99, 1]))),
        );
        let two = Machine::of(&look(9_000_000, 20, Some([0, 20])), Some(&look(8_000_000, 0, None)));
        let (all, zones) = sum(&[one.clone(), two]);
        let all = read(&all);
        assert_eq!(
            (&all["requests"], &all["2xx"], &all["sent"]),
            (&json!(120), &json!(120), &json!(1200))
        );
        assert_eq!((&all["connections"], &all["total"]), (&json!(6), &json!(320)));
        // 200 of a millisecond and 20 of a hundred: the median is the first's, the 95th of a hundred is not.
        assert!(all["p50"].as_f64().unwrap() < 1.1 && all["p95"].as_f64().unwrap() > 95.0, "{all}");
        let mut alone = Figures::default();
        one.put(&mut alone);
        let alone = read(&alone);
        assert!(alone["p99"].as_f64().unwrap() < 1.1, "{alone}");
        let zones = read(&zones);
        assert_eq!(
            (&zones["shop"]["machines"], &zones["shop"]["requests"]),
            (&json!(2), &json!(120))
        );
    }

    #[test]
    fn what_was_not_told_is_not_made_up() {
        let none = Machine::of(&look(2_000_000, 9, None), Some(&look(1_000_000, 1, None)));
        let some =
            Machine::of(&look(2_000_000, 9, Some([9, 0])), Some(&look(1_000_000, 1, Some([1, 0]))));
        let (all, _) = sum(&[none, some]);
        assert_eq!(read(&all)["p50"], Value::Null);
        // A first look has no while, one that began anew has counted from zero.
        let first = Machine::of(&look(1, 9, Some([9, 0])), None);
        assert_eq!((first.whole.rates[0], first.whole.total), (0.0, 9));
        let anew =
            Machine::of(&look(2_000_000, 5, Some([5, 0])), Some(&look(1_000_000, 9, Some([9, 0]))));
        assert_eq!(anew.whole.rates[0], 5.0);
        assert!(Look::read(b"[]").is_err() && Look::read(b"x").is_err());
    }
}
