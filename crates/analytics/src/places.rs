//! Countries and networks of addresses, from databases that an administrator has (`.mmdb`). Addresses that came
//! are remembered for a while.

use std::net::IpAddr;
use std::sync::Arc;
use weir_script::mmdb::{Mmdb, Value};

/// A power of two.
const REMEMBERED: usize = 4096;

/// What is known of an address.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Place {
    /// Two letters; zeros: not known.
    pub country: [u8; 2],
    /// Of its autonomous system.
    pub network: Option<u32>,
}

/// The databases, each asked for all that it may have.
#[derive(Clone, Default)]
pub struct Databases(Arc<[Mmdb]>);

impl Databases {
    pub fn new(databases: Vec<Mmdb>) -> Databases {
        Databases(databases.into())
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    fn find(&self, address: IpAddr) -> Place {
        let mut place = Place::default();
        for entry in self.0.iter().filter_map(|db| db.find(address)) {
            for path in [
                &["country", "iso_code"][..],
                &["registered_country", "iso_code"],
                &["country_code"],
            ] {
                if place.country != [0; 2] {
                    break;
                }
                if let Some(Value::Text(&[a, b])) = entry.get(path) {
                    place.country = [a, b];
                }
            }
            if let (None, Some(Value::Unsigned(n))) =
                (place.network, entry.get(&["autonomous_system_number"]))
            {
                place.network = u32::try_from(n).ok();
            }
        }
        place
    }

    /// Who runs the network of an address.
    pub fn organization(&self, address: IpAddr) -> Vec<u8> {
        let found = self.0.iter().filter_map(|db| db.find(address));
        let names =
            found.filter_map(|entry| match entry.get(&["autonomous_system_organization"]) {
                Some(Value::Text(name)) => Some(name.to_vec()),
                _ => None,
            });
        names.into_iter().next().unwrap_or_default()
    }
}

/// Look-ups of a report.
#[derive(Clone)]
pub struct Places {
    databases: Databases,
    seen: Box<[Option<(u64, Place)>]>,
}

impl Places {
    pub fn new(databases: Databases) -> Places {
        let room = if databases.is_empty() { 0 } else { REMEMBERED };
        Places { databases, seen: vec![None; room].into() }
    }

    pub fn databases(&self) -> &Databases {
        &self.databases
    }

    /// `None` without databases.
    pub fn find(&mut self, hash: u64, address: IpAddr) -> Option<Place> {
        let mask = self.seen.len().checked_sub(1)?;
        let seen = &mut self.seen[hash as usize & mask];
        if let Some((whose, place)) = seen {
            if *whose == hash {
                return Some(place.clone());
            }
        }
        let place = self.databases.find(address);
        *seen = Some((hash, place.clone()));
        Some(place)
    }
}
