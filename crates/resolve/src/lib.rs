//! Names to addresses: a DNS client with nginx's manners.
//!
//! [`message`] and [`engine`] know no sockets and no clock; [`client`] brings both.
//!
//! Differences from nginx: one cache for all workers instead of one for each; every query leaves
//! from a socket of its own, so that port and id are both to be guessed; an answer's addresses
//! must belong to the name asked for or to one of its aliases; a server that refuses is left for
//! the next at once; names longer than RFC 1035's 255 octets do not exist.

pub mod client;
pub mod conf;
pub mod engine;
pub mod message;

pub use client::{system, Resolver, Stats};
pub use conf::ResolverConf;
pub use engine::{Failed, Found, Question, Target};
