//! The tasks that ask: one for each server of a check, in one worker.

use super::{Board, Standing};
use crate::peers::Peer;
use std::any::Any;
use std::borrow::Cow;
use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::future::{pending, Future};
use std::hash::{BuildHasher, RandomState};
use std::pin::Pin;
use std::rc::{Rc, Weak};
use std::sync::Arc;
use weir_core::logger::ErrorLog;
use weir_core::Worker;
use weir_runtime::event_loop::{spawn, Task};
use weir_runtime::{clock, timer};

/// The first questions of a worker go out so far apart, that many servers are no storm.
const STEP_MS: u64 = 2;

/// Why a server is not well: what was being done.
pub struct Ill {
    /// As in `connecting to upstream`.
    pub doing: Cow<'static, str>,
}

impl Ill {
    /// Of something that was being done.
    pub fn while_doing(doing: impl Into<Cow<'static, str>>) -> Ill {
        Ill { doing: doing.into() }
    }
}

/// A question and its answer; of a server that is well, what was looked at last.
pub type Asking<'a> = Pin<Box<dyn Future<Output = Result<&'static str, Ill>> + 'a>>;

/// Asks servers, in the words of their protocol. It is bounded in time and bytes, whatever they answer.
pub trait Asker {
    /// Asks one. What is kept (a connection) is there for the next question to the same.
    fn ask<'a>(&'a self, peer: &'a Peer, kept: &'a mut Option<Box<dyn Any>>) -> Asking<'a>;
}

/// The tasks of a worker.
#[derive(Default)]
struct Probers {
    tasks: RefCell<BTreeMap<u64, Task>>,
    next: Cell<u64>,
}

impl Probers {
    fn add(&self, work: impl Future<Output = ()> + 'static) -> u64 {
        let number = self.next.get();
        self.next.set(number + 1);
        self.tasks.borrow_mut().insert(number, spawn(work));
        number
    }

    fn end(&self, number: u64) {
        if let Some(task) = self.tasks.borrow_mut().remove(&number) {
            task.abort();
        }
    }

    fn end_all(&self) {
        self.next.set(0);
        self.tasks.take().into_values().for_each(|task| task.abort());
    }
}

impl Drop for Probers {
    fn drop(&mut self) {
        self.end_all();
    }
}

/// The worker asks no server any more: its configuration has had its time, or it ends.
pub fn stop(worker: &Worker) {
    worker.local::<Probers>().end_all();
}

/// The worker asks the servers of an upstream from now on.
pub fn begin(board: &Arc<Board>, asker: Rc<dyn Asker>, log: &Arc<ErrorLog>, worker: &Worker) {
    let probers = worker.local::<Probers>();
    let (board, log, all) = (Arc::clone(board), Arc::clone(log), Rc::downgrade(&probers));
    probers.add(keep_up(board, asker, log, all));
}

/// Sees to it that each server there is has a task.
async fn keep_up(board: Arc<Board>, asker: Rc<dyn Asker>, log: Arc<ErrorLog>, all: Weak<Probers>) {
    let mut asked: BTreeMap<Box<[u8]>, u64> = BTreeMap::new();
    loop {
        let Some(probers) = all.upgrade() else { return };
        let version = board.group.as_live().map_or(0, |live| live.version());
        let peers = board.group.with_shape(|shape| shape.all_peers());
        asked.retain(|name, number| {
            let stays = peers.iter().any(|p| p.name == *name);
            if !stays {
                probers.end(*number);
                board.lock().remove(name);
            }
            stays
        });
        for peer in peers {
            if asked.contains_key(&peer.name) {
                continue;
            }
            let name = peer.name.clone();
            let delay_ms = probers.next.get() * STEP_MS % board.rule.interval_ms.max(1);
            let (board, asker, log) = (Arc::clone(&board), Rc::clone(&asker), Arc::clone(&log));
            asked.insert(name, probers.add(watch(board, asker, log, peer, delay_ms)));
        }
        drop(probers);
        match board.group.as_live() {
            Some(live) => live.changed_since(version).await,
            None => pending().await,
        }
    }
}

/// Asks one server again and again.
async fn watch(
    board: Arc<Board>,
    asker: Rc<dyn Asker>,
    log: Arc<ErrorLog>,
    peer: Peer,
    delay_ms: u64,
) {
    let standing: Arc<Standing> = board.standing(&peer.name);
    let mut kept = None;
    let seed = RandomState::new();
    let mut turn = 0u64;
    let due_ms = standing.due_in_ms(&board.rule, clock::mono_ms());
    timer::sleep_ms(delay_ms.max(due_ms)).await;
    loop {
        let answer = asker.ask(&peer, &mut kept).await;
        board.note(&peer.name, &standing, answer.as_ref().map(|doing| *doing), &log);
        turn += 1;
        let jitter_ms = match board.rule.jitter_ms {
            0 => 0,
            most => seed.hash_one(turn) % (most + 1),
        };
        timer::sleep_ms(board.rule.interval_ms.saturating_add(jitter_ms)).await;
    }
}
