//! TLS for clients: nginx's `ngx_http_ssl_module`, on rustls.
//!
//! Certificates and keys are read when the configuration is built, by the process that has the
//! rights (the master), and go to the serving process with the text; only names with variables are
//! read in the handshake, by the worker, as in nginx.
//!
//! Difference from nginx: what rustls leaves out on purpose (versions below TLS 1.2, static RSA,
//! DHE and CBC suites, compression of records, renegotiation) is told with a warning and left out;
//! and a hello whose server name is no host name is refused in the handshake, not by a 400 after it.

mod build;
mod certs;
mod conf;
mod ocsp;
mod rows;
mod stapling;
mod vars;

use conf::{SslMain, SslSrv};
use weir_http::module::HttpModule;
use weir_module::SlotVtable;

pub const MODULE: HttpModule = HttpModule {
    name: "ngx_http_ssl_module",
    rows: rows::ROWS,
    slots: &[SlotVtable::of::<SslMain>(), SlotVtable::of::<SslSrv>()],
    variables: vars::VARIABLES,
    build: Some(build::build),
    start: Some(stapling::start),
    ..HttpModule::EMPTY
};
