//! `weir doctor`: is this machine set up for this configuration, and is the server that runs by it well?
//!
//! A check reads figures of the system through [`System`], the only way out of this crate, and of the
//! configuration ([`Conf`], made of its directives as they stand, so that one which may not be loaded here is
//! looked at too), and judges them: [`checks::CHECKS`] is the list. Nothing is ever changed: what would mend a
//! finding is told as a command. What cannot be read is told as that and is never taken for well.
//!
//! Windows: most of the figures are Linux's own; those checks say "not on this system".

mod args;
pub mod checks;
mod conf;
mod finding;
mod proc;
mod report;
mod system;
mod tls;

#[cfg(test)]
mod fake;

pub use checks::{examine, Busy, Case, Judgement, Receiver, Told};
pub use conf::{Conf, Places};
pub use finding::{Finding, Severity};
pub use proc::Running;
pub use report::{exit_status, json, text};
pub use system::{Machine, System};
