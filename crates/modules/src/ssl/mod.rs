//! TLS for clients: nginx's `ngx_http_ssl_module`, `ngx_stream_ssl_module` and `ngx_mail_ssl_module`, on
//! rustls.
//!
//! Certificates and keys are read when the configuration is built, by the process that has the
//! rights (the master), and go to the serving process with the text; only files whose names have
//! variables are read in the handshake, beside the worker's event loop: one that is slow to come holds up nobody
//! else (in nginx it stops the worker).
//!
//! Difference from nginx: what rustls leaves out on purpose (versions below TLS 1.2, static RSA,
//! DHE and CBC suites, compression of records, renegotiation) is told with a warning and left out;
//! and a hello whose server name is no host name is refused in the handshake, not by a 400 after it.

mod build;
mod certs;
mod conf;
mod ocsp;
mod rows;
mod sessions;
mod stapling;
mod vars;

use conf::{SslMain, SslSrv};
use rows::Rows;
use vars::Of;
use weir_core::figures::{Figures, Report, Served};
use weir_core::zones::Chunks;
use weir_http::module::HttpModule;
use weir_http::Request;
use weir_mail::MailModule;
use weir_module::{joined_rows, SlotVtable, Slots};
use weir_stream::{Session, StreamModule};

const SLOTS: &[SlotVtable] = &[SlotVtable::of::<SslMain>(), SlotVtable::of::<SslSrv>()];

const REPORTS: &[Report] = &[Report { path: "/slabs", put: report }];

fn report(_: &Served, main: &Slots, figures: &mut Figures) {
    for (name, (size, zone)) in &main.get::<SslMain>().zones {
        let mut chunks = Chunks::default();
        zone.sizes().for_each(|(bytes, n)| chunks.add(bytes, n));
        chunks.put(*size, figures.entry(name.as_bytes()));
    }
}

pub const MODULE: HttpModule = HttpModule {
    rows: joined_rows!(Rows::<Request>::ROWS, Rows::<Request>::MORE),
    slots: SLOTS,
    variables: Of::<Request>::VARIABLES,
    build: Some(|b| build::build::<Request>(b.cf, b.main, b.servers)),
    start: Some(|gen, http| stapling::start(gen, http.servers.iter().map(|s| &s.base))),
    reports: REPORTS,
    ..HttpModule::EMPTY
};

/// What `stream` has not.
pub const OF_HTTP: HttpModule =
    HttpModule { rows: rows::OF_HTTP, variables: Of::<Request>::OF_REQUESTS, ..HttpModule::EMPTY };

pub const STREAM: StreamModule = StreamModule {
    rows: joined_rows!(Rows::<Session>::ROWS, Rows::<Session>::MORE),
    slots: SLOTS,
    variables: Of::<Session>::VARIABLES,
    build: Some(|b| build::build::<Session>(b.cf, b.main, b.servers)),
    start: Some(|gen, stream| stapling::start(gen, stream.bases())),
    reports: REPORTS,
    ..StreamModule::EMPTY
};

/// What `http` has not.
pub const OF_STREAM: StreamModule = StreamModule { rows: rows::OF_STREAM, ..StreamModule::EMPTY };

pub const MAIL: MailModule = MailModule {
    rows: Rows::<weir_mail::Session>::ROWS,
    slots: SLOTS,
    variables: Of::<weir_mail::Session>::VARIABLES,
    build: Some(|b| build::build::<weir_mail::Session>(b.cf, b.main, b.servers)),
    ..MailModule::EMPTY
};
