//! Certificates whose names have variables: found when a client's hello is there. What no file is read for
//! is there at once; others are served while files are read.

use super::conf::{SslMain, SslSrv};
use super::sessions::Secured;
use std::rc::Rc;
use std::sync::Arc;
use weir_core::generation::WorkerGen;
use weir_core::logger::LogLevel;
use weir_core::session::Part;
use weir_core::tls::files::{value, Sought};
use weir_core::tls::Found;
use weir_core::Connection;
use weir_tls::rustls::sign::CertifiedKey;
use weir_tls::server::Certificates;

/// Pairs of one handshake, or why there are none.
type Pairs = Result<Vec<Arc<CertifiedKey>>, String>;

/// The certificates of a handshake.
pub fn find<S: Secured>(conn: &Rc<Connection>, gen: &Rc<WorkerGen>, server: usize) -> Found {
    let Some(sought) = S::with_session(conn, gen, server, names) else { return Found::Now(None) };
    let here: Option<Pairs> = sought.iter().map(|s| s.at_once()).collect();
    if let Some(pairs) = here {
        return Found::Now(offered(conn, pairs));
    }
    let conn = Rc::clone(conn);
    Found::Later(Box::pin(async move {
        let pairs = read(sought).await;
        offered(&conn, pairs)
    }))
}

/// What the variables make of the names; nothing, if they cannot be told. The log says which.
fn names<S: Secured>(s: &mut S) -> Option<Vec<Arc<Sought>>> {
    let base = Arc::clone(s.base());
    let conf = base.conf::<SslSrv>();
    let prefix = s.part().main().get::<SslMain>().prefix.clone();
    let pairs = conf.certificates.iter().zip(conf.keys.iter());
    let sought = pairs.map(|(certificate, key)| {
        Arc::new(Sought {
            names: (value(s, certificate), value(s, key)),
            passwords: Arc::clone(&conf.passwords),
            rule: *conf.cache,
            prefix: prefix.clone(),
            loaded: Arc::clone(&conf.loaded),
        })
    });
    let sought = sought.collect();
    (!s.match_failed()).then_some(sought)
}

async fn read(sought: Vec<Arc<Sought>>) -> Pairs {
    let mut pairs = Vec::new();
    for pair in sought {
        pairs.push(pair.read().await?);
    }
    Ok(pairs)
}

fn offered(conn: &Connection, pairs: Pairs) -> Option<Arc<Certificates>> {
    match pairs {
        Ok(pairs) => Some(Arc::new(Certificates(pairs.into_iter().map(Into::into).collect()))),
        Err(e) => {
            conn.log(LogLevel::Error, format!("{e} while SSL handshaking").as_bytes());
            None
        }
    }
}
