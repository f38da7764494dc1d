//! What is shown of the server while it runs, and what may be changed then: one tree of figures, which modules
//! report and nobody else knows, in several forms.

mod api;
mod dashboard;
mod keyval;
mod metrics;
mod tree;
mod visitors;

pub use api::MODULE as API;
pub use dashboard::MODULE as DASHBOARD;
pub use keyval::{MODULE as KEYVAL, STREAM as KEYVAL_STREAM};
pub use metrics::MODULE as METRICS;
pub use tree::gather;
pub use visitors::MODULE as ANALYTICS;
