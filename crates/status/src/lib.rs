//! What is shown of the server while it runs, and what may be changed then: one tree of figures, which modules
//! report and nobody else knows, in several forms.

mod angie;
mod api;
mod dashboard;
mod keyval;
pub mod machines;
mod metrics;
mod strict;
mod tree;
mod visitors;
mod vts;
mod whole;

pub use api::MODULE as API;
pub use dashboard::MODULE as DASHBOARD;
pub use keyval::{left as pairs_left, MODULE as KEYVAL, STREAM as KEYVAL_STREAM};
pub use metrics::{encode as otlp, MODULE as METRICS};
pub use tree::gather;
pub use visitors::MODULE as ANALYTICS;
pub use vts::MODULE as VTS;
pub use whole::{document, visitors as visitors_document};

/// Readers of bytes from outside, for who tries them with any.
pub mod readers {
    pub use crate::api::{body_is_read, path_leads};
    pub use crate::keyval::file_goes_round;
}
