//! HTTP/2 connections (RFC 9113): this protocol's pair of `h1` and `output`.
//!
//! One task per connection reads frames, starts a request per stream, frames what the streams
//! have to say and writes it. A request runs in that task until it first has to wait, which most
//! never do; then it becomes a task of its own. Streams put their body into a queue of their own;
//! [`link::Link`] takes from the queues in the order of priority, as far as windows allow, into
//! the connection's one output queue, which is flushed once per batch of frames read.
//!
//! Differences from nginx: trailers of a request are accepted (and dropped); a reload keeps the
//! connection, and its next stream takes the newest generation; RFC 9218 priorities are honoured;
//! connection-specific response fields are dropped; limits on floods are stricter, and count for
//! the server as a whole ([`guard`]).

mod block;
pub(crate) mod body;
pub mod conf;
mod guard;
mod link;
pub(crate) mod output;
mod request;
mod serve;
mod stream;
mod task;

pub use conf::MODULE;
pub use serve::serve;
pub use stream::Stream;
