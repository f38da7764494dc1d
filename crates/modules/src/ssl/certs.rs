//! Certificates whose names have variables: found when a client's hello is there.

use super::conf::SslSrv;
use std::rc::Rc;
use std::sync::Arc;
use weir_core::generation::WorkerGen;
use weir_core::logger::LogLevel;
use weir_core::tls::files::value;
use weir_core::Connection;
use weir_core::Session;
use weir_http::generation::Http;
use weir_runtime::clock;
use weir_tls::server::Certificates;

/// The certificates of a handshake.
pub fn find(
    conn: &Rc<Connection>,
    gen: &Rc<WorkerGen>,
    server: usize,
) -> Option<Arc<Certificates>> {
    let gen = Http::of(gen);
    let server = Rc::clone(gen.server(server));
    let conf = server.conf::<SslSrv>();
    let mut r = weir_http::pool::take();
    r.begin(Rc::clone(conn), Rc::clone(&gen), Rc::clone(&server), clock::mono_ms());
    let mut pairs = Vec::new();
    for (certificate, key) in conf.certificates.iter().zip(conf.keys.iter()) {
        let names = (value(&mut *r, certificate), value(&mut *r, key));
        // Made of names that could not be told; the log says which.
        if r.match_failed() {
            break;
        }
        let prefix = gen.shared.main.get::<super::conf::SslMain>().prefix.clone();
        match conf.loaded.load(names, &conf.passwords, *conf.cache, &prefix) {
            Ok(pair) => pairs.push(pair.into()),
            Err(e) => {
                let text = format!("{e} while SSL handshaking");
                conn.log(LogLevel::Error, text.as_bytes());
                break;
            }
        }
    }
    let is_whole = pairs.len() == conf.certificates.len();
    weir_http::pool::give(r);
    is_whole.then(|| Arc::new(Certificates(pairs)))
}
