//! Certificates whose names have variables: found when a client's hello is there.

use super::conf::{SslMain, SslSrv};
use super::sessions::Secured;
use std::rc::Rc;
use std::sync::Arc;
use weir_core::generation::WorkerGen;
use weir_core::logger::LogLevel;
use weir_core::session::Part;
use weir_core::tls::files::value;
use weir_core::Connection;
use weir_tls::server::Certificates;

/// The certificates of a handshake.
pub fn find<S: Secured>(
    conn: &Rc<Connection>,
    gen: &Rc<WorkerGen>,
    server: usize,
) -> Option<Arc<Certificates>> {
    S::with_session(conn, gen, server, |s| {
        let base = Arc::clone(s.base());
        let conf = base.conf::<SslSrv>();
        let prefix = s.part().main().get::<SslMain>().prefix.clone();
        let mut pairs = Vec::new();
        for (certificate, key) in conf.certificates.iter().zip(conf.keys.iter()) {
            let names = (value(s, certificate), value(s, key));
            // Made of names that could not be told; the log says which.
            if s.match_failed() {
                return None;
            }
            match conf.loaded.load(names, &conf.passwords, *conf.cache, &prefix) {
                Ok(pair) => pairs.push(pair.into()),
                Err(e) => {
                    let text = format!("{e} while SSL handshaking");
                    conn.log(LogLevel::Error, text.as_bytes());
                    return None;
                }
            }
        }
        Some(Arc::new(Certificates(pairs)))
    })
}
