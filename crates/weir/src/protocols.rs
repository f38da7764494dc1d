//! The protocols: their blocks, what becomes of them, who serves their connections.

use crate::modules::MODULES;
use std::path::PathBuf;
use std::rc::Rc;
use std::sync::Arc;
use weir_core::generation::{Generation, ListenConf, PartConf};
use weir_core::logger::ErrorLog;
use weir_core::worker::AtWorker;
use weir_core::{Connection, Worker};
use weir_http::generation::HttpConf;
use weir_http::Serving;
use weir_module::{Cf, ConfResult};
use weir_stream::StreamConf;
use weir_upstream::UpstreamMain;

/// Merges and builds what has been read of a block; nothing if there was none.
type Finish = fn(&mut Cf, &Arc<ErrorLog>) -> ConfResult<Option<(PartConf, Vec<ListenConf>)>>;

/// One protocol's hooks into the life of a generation.
struct Protocol {
    finish: Finish,
    start: fn(&Arc<Generation>),
    serves: fn(&Rc<Worker>, usize),
    dirs: fn(&Generation) -> Vec<PathBuf>,
    binds_any_source: fn(&Generation) -> bool,
    upstreams: fn(&Generation) -> Option<&UpstreamMain>,
    rest: fn(),
    shrink: fn(),
}

const ALL: &[Protocol] = &[
    Protocol {
        finish: weir_http::build::finish,
        start: weir_http::module::start,
        serves: weir_http::module::serves,
        dirs: weir_http::module::dirs,
        binds_any_source: weir_http::module::binds_any_source,
        upstreams: |gen| Some(gen.part::<HttpConf>()?.main.get()),
        rest: weir_http::door::free,
        shrink: weir_http::door::shrink,
    },
    Protocol {
        finish: weir_stream::finish,
        start: weir_stream::start,
        serves: weir_stream::serves,
        dirs: |_| Vec::new(),
        binds_any_source: weir_stream::binds_any_source,
        upstreams: |gen| Some(gen.part::<StreamConf>()?.main.get()),
        rest: || (),
        shrink: || (),
    },
    Protocol {
        finish: weir_mail::finish,
        start: |_| (),
        serves: |_, _| (),
        dirs: |_| Vec::new(),
        binds_any_source: |_| false,
        upstreams: |_| None,
        rest: || (),
        shrink: || (),
    },
];

/// Serves a connection to its end.
pub async fn serve(conn: Rc<Connection>) {
    let mut passes = 0;
    // In boxes: what a session of one protocol needs is no part of another's connection.
    loop {
        match conn.protocol() {
            "stream" => {
                if !Box::pin(weir_stream::serve(Rc::clone(&conn), passes)).await {
                    return;
                }
                passes += 1;
            }
            "mail" => return Box::pin(weir_mail::serve(conn)).await,
            _ => break,
        }
    }
    Serving::new(conn).await;
}

/// Makes the parts of a generation.
pub fn finish(cf: &mut Cf, log: &Arc<ErrorLog>) -> ConfResult<Vec<(PartConf, Vec<ListenConf>)>> {
    let mut made = Vec::new();
    for protocol in ALL {
        made.extend((protocol.finish)(cf, log)?);
    }
    Ok(made)
}

/// A generation is about to be served by this process.
pub fn start(gen: &Arc<Generation>) {
    ALL.iter().for_each(|p| (p.start)(gen));
}

/// The directories of a generation that the workers' user writes to.
pub fn dirs(gen: &Generation) -> Vec<PathBuf> {
    ALL.iter().flat_map(|p| (p.dirs)(gen)).collect()
}

/// Whether a generation makes connections from addresses that are not this machine's.
pub fn binds_any_source(gen: &Generation) -> bool {
    ALL.iter().any(|p| (p.binds_any_source)(gen))
}

/// A worker serves by its newest generation from now on, one of so many workers: what it does besides
/// serving it does by that one.
pub fn serves(worker: &Rc<Worker>, workers: usize) {
    weir_upstream::health::stop(worker);
    weir_ship::let_go_of_ended();
    ALL.iter().for_each(|p| (p.serves)(worker, workers));
}

/// The worker has a new generation: idle connections to servers go over to it or are closed.
pub fn renew(worker: &Worker) {
    let gen = worker.generation();
    let upstreams = ALL.iter().filter_map(|p| (p.upstreams)(&gen.shared));
    weir_upstream::renew(upstreams, worker);
}

/// The worker has nothing to accept from any more: pools are let go of.
pub fn rest() {
    ALL.iter().for_each(|p| (p.rest)());
}

/// Nothing is done for a while: most of what is kept for requests to come is let go of.
pub fn shrink(worker: &Worker) {
    ALL.iter().for_each(|p| (p.shrink)());
    at_workers().filter_map(|at| at.quiet).for_each(|quiet| quiet(worker));
}

/// What modules do with workers. A module of several protocols says it once, in its row of `http`.
fn at_workers() -> impl Iterator<Item = AtWorker> {
    MODULES.iter().map(|m| m.at_worker)
}

/// A worker begins.
pub fn begin(worker: &Worker) {
    at_workers().filter_map(|at| at.begins).for_each(|begins| begins(worker));
}

/// Descriptors have run out: a module that has any closes what need not be open. Whether there was one.
pub fn spare(worker: &Worker) -> bool {
    at_workers().filter_map(|at| at.spare).any(|spare| spare(worker))
}

/// A worker is to end.
pub fn end(worker: &Worker) {
    at_workers().filter_map(|at| at.ends).for_each(|ends| ends(worker));
}

/// A worker has ended.
pub fn over(worker: &Worker) {
    at_workers().filter_map(|at| at.over).for_each(|over| over(worker));
}
