//! What an access log says, without the log: requests as events, the formats they are written in, and reports of
//! bounded size that say how exact they are.
//!
//! Pure: who reads files, or is asked for pages, gives lines or events and gets texts.

pub mod agent;
pub mod event;
pub mod format;
pub mod gather;
mod networks;
pub mod places;
pub mod privacy;
pub mod render;
pub mod report;
pub mod sketch;

pub use weir_base::shown;
