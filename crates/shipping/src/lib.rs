//! What receivers of events are told and what they answer, without a socket or a clock.

pub mod event;
