//! Kafka: an idempotent producer that remembers over the death of its process what it has sent.
//!
//! Exactly once while brokers know the producer: what was on its way when the process was killed is sent again under the
//! same producer id, epoch and sequences, which brokers take once. They forget a producer (`producer.id.expiration.ms`, a
//! day) that has not written to a partition for so long, and may lose its last records with a leader that was not in sync
//! (`unclean.leader.election.enable`): then the batch of records that was on its way goes out under a new id, and is there
//! twice if it had arrived. Records carry their event's id in the header `event.id`.

mod broker;
mod client;
mod conf;
#[cfg(test)]
mod tests;

pub use conf::{KIND, ROWS};

use crate::receiver::{Client, Ground, Target};
use std::sync::Arc;

/// What a block has said.
pub struct Kafka(Arc<conf::Settings>);

impl Target for Kafka {
    fn client(&self, ground: Ground) -> Box<dyn Client> {
        Box::new(client::Producer::new(Arc::clone(&self.0), ground))
    }
}
