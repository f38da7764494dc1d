//! A connection that a session hands on to another socket of the process (`pass`): what of the session lasts as
//! long as the connection.
//!
//! In nginx the address that `set_real_ip_from` finds is the connection's, and what modules have in its pool
//! (a place that `limit_conn` counts) is given back when that ends.

use crate::{ClientAddr, Connection};
use std::any::Any;
use std::cell::OnceCell;

/// From one session, and from those behind it.
pub(crate) struct HandedOn {
    /// Whose the connection is now.
    pub client: ClientAddr,
    /// The same as text.
    pub text: Box<[u8]>,
    /// What is given back when it is dropped.
    _kept: Vec<Box<dyn Any>>,
    later: OnceCell<Box<HandedOn>>,
}

impl HandedOn {
    /// The latest session's.
    pub(crate) fn last(&self) -> &HandedOn {
        let mut last = self;
        while let Some(later) = last.later.get() {
            last = later;
        }
        last
    }
}

impl Connection {
    /// A session leaves it to another one: it is that client's from now on, and what the session's modules
    /// have kept goes when the connection does.
    pub fn hand_on(&self, client: ClientAddr, kept: Vec<Box<dyn Any>>) {
        if let Some(secure) = self.secure.get() {
            secure.leave();
        }
        if client == self.client() && kept.is_empty() {
            return;
        }
        let text = client.text();
        let handed_on = Box::new(HandedOn { client, text, _kept: kept, later: OnceCell::new() });
        let place = self.handed_on.get().map_or(&self.handed_on, |h| &h.last().later);
        // The last one has none behind it.
        let _ = place.set(handed_on);
    }
}
