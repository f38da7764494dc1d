//! An event: what it is called by, of what kind it is, how grave.

use std::fmt::{self, Display, Formatter};

/// The name of an event, the same however often it is sent: random bits of its segment, the segment's number in the
/// queue, and the event's place there.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct EventId {
    pub random: u64,
    pub segment: u64,
    pub at: u32,
}

/// Letters, digits and `-`: at most 44.
impl Display for EventId {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}-{:x}-{:x}", self.random, self.segment, self.at)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Access,
    Error,
    Metric,
    /// A session of `stream` or `mail`.
    Session,
}

impl Kind {
    pub const ALL: [Kind; 4] = [Kind::Access, Kind::Error, Kind::Metric, Kind::Session];

    /// The name that ECS's `event.kind`-like fields, topics and labels know it by.
    pub fn name(self) -> &'static str {
        match self {
            Kind::Access => "access",
            Kind::Error => "error",
            Kind::Metric => "metric",
            Kind::Session => "session",
        }
    }

    pub fn of(number: u8) -> Option<Kind> {
        Kind::ALL.into_iter().find(|k| *k as u8 == number)
    }
}

/// Syslog's numbers, of which nginx's levels are seven.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Severity {
    Emergency,
    Alert,
    Critical,
    Error,
    Warning,
    Notice,
    Info,
    Debug,
}

impl Severity {
    const ALL: [Severity; 8] = [
        Severity::Emergency,
        Severity::Alert,
        Severity::Critical,
        Severity::Error,
        Severity::Warning,
        Severity::Notice,
        Severity::Info,
        Severity::Debug,
    ];

    pub fn of(number: u8) -> Option<Severity> {
        Severity::ALL.get(usize::from(number)).copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_lead_back() {
        for kind in Kind::ALL {
            assert_eq!(Kind::of(kind as u8), Some(kind));
        }
        for severity in Severity::ALL {
            assert_eq!(Severity::of(severity as u8), Some(severity));
        }
        assert_eq!((Kind::of(4), Severity::of(8)), (None, None));
    }

    #[test]
    fn an_id_is_a_name_for_all_receivers() {
        let id = EventId { random: 0xab, segment: 17, at: 4096 };
        assert_eq!(id.to_string(), "00000000000000ab-11-1000");
    }
}
