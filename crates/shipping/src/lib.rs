//! What receivers of events are told and what they answer, without a socket or a clock.

pub mod backoff;
pub mod ecs;
pub mod elastic;
pub mod event;
pub mod field;
pub mod kafka;
pub mod loki;
pub mod otlp;
pub mod record;
pub mod shorter;
pub mod syslog;
