//! Servers to be asked, for every protocol: who they are and which of them is next, the connections
//! to them, plain and with TLS, and what is remembered of it all. It knows nothing of what is said.

#![warn(missing_docs, unreachable_pub)]

mod asks;
mod balance;
pub mod balancer;
mod build;
mod conf;
mod counted;
pub mod dynamic;
mod figures;
mod group;
mod handed;
pub mod health;
mod idle;
mod interleaved;
mod least_time;
mod link;
mod live;
mod named;
mod names;
mod outgoing;
mod peers;
mod queue;
mod rows;
mod sessions;
mod ssl_rows;
mod state_file;
mod tls;
pub mod toward;
mod vars;

pub use asks::Asks;
pub use balance::Key;
pub use build::build;
pub use conf::{DeclaredSticky, UpstreamMain, UpstreamRef};
pub use figures::{report, zones_report};
pub use group::{ad_hoc, close_idle, close_spare, renew, Group, Lease, Sticky, WorkerGroup};
pub use handed::HandedSession;
pub use least_time::Until;
pub use link::{connect_failure, error_text, Link, LinkError, SecureError, SocketOptions};
pub use live::{editing, start};
pub use names::Outer;
pub use outgoing::Outgoing;
pub use peers::{sid, Choice, Peer, PeerAddr, PeerId};
pub use queue::Why as NotWaited;
pub use rows::Rows;
pub use ssl_rows::{Secures, SslRows};
pub use tls::{AnyServer, Chosen, ClientTls, Settings, Show, Shown, Wanted};
pub use vars::Variables;
