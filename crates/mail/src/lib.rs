//! The `mail` block: IMAP, POP3 and SMTP sessions, which are brought to the server that `auth_http` names.
//! See ARCHITECTURE.md for the way of a session; what is said in it is `weir_wire::mail`'s.

pub mod auth;
pub mod build;
pub mod conf;
pub mod core_rows;
pub mod generation;
mod host_name;
pub mod module;
mod preauth;
pub mod protocol_rows;
pub mod proxy;
pub mod serve;
mod session;
mod tls;

pub use module::MailModule;
pub use session::Session;
