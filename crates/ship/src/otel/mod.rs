//! Spans of requests to an OpenTelemetry collector, by the directives of nginx's OpenTelemetry module (`otel_…`).
//!
//! ```text
//! a worker: span in protocol buffers → a tray → a thread: batch → collector, over gRPC or HTTP
//! ```
//!
//! At the end of a sampled request its worker writes the span's bytes into one of its two trays ([`trays`]): a lock that is
//! only ever tried, no waiting, no call of the system. The thread empties trays and sends batches ([`sender`]). What waits
//! is bounded in number (`batch_size` times `batch_count` for each worker) and in bytes; a span that finds no room is
//! dropped and counted. An exporter that a reload leaves as it was goes over to the new configuration, trays and thread and
//! all; of another one the thread sends what is left and ends ([`running`]).
//!
//! Who begins a trace, and who goes on with one, is [`context`]'s.
//!
//! Differences from nginx's module: `protocol http/protobuf`; W3C's rules for `traceparent` (newer versions are read, capital
//! letters and two fields are refused); a batch that was not taken is tried again while the process lasts, where nginx
//! drops it; text that is no UTF-8 is replaced, for a collector would refuse the batch; workers are threads of one process,
//! so that there is one connection, not one for each.

mod conf;
mod context;
mod counts;
mod door;
mod running;
mod sender;
mod size;
mod span;
mod trays;

pub use conf::MODULE;
pub use context::{trace_of, Ids};
pub use running::{has_ended, stop};
