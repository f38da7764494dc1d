//! The `mail` block: IMAP, POP3 and SMTP sessions, which are brought to the server that `auth_http` names.
//! See ARCHITECTURE.md for the way of a session; what is said in it is `weir_wire::mail`'s.

#![warn(missing_docs, unreachable_pub)]

mod auth;
mod build;
mod conf;
mod core_rows;
mod facts;
mod generation;
mod host_name;
mod module;
mod preauth;
mod protocol_rows;
mod proxy;
mod serve;
mod session;
mod tls;

pub use auth::MODULE as AUTH_HTTP;
pub use build::{finish, set_mail};
pub use conf::MailSrv;
pub use core_rows::{COMMON, MODULE as CORE};
pub use facts::Came;
pub use generation::{Mail, MailConf};
pub use module::{Active, Handler, MailModule};
pub use protocol_rows::MODULE as PROTOCOLS;
pub use proxy::MODULE as PROXY;
pub use serve::serve;
pub use session::Session;
