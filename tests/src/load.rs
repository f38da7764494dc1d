//! Clients that ask again and again, until they are dropped.

use crate::client::Peer;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::Arc;
use std::thread::JoinHandle;

/// Several that ask for the same.
pub struct Load {
    end: Arc<AtomicBool>,
    answers: Arc<AtomicU32>,
    threads: Vec<JoinHandle<()>>,
}

impl Load {
    /// So many clients, each of which sends a connection's only request; an answer counts if it begins so and has more.
    pub fn on(peer: &Peer, request: &[u8], clients: usize, begin: &'static [u8]) -> Load {
        let (end, answers) = (Arc::<AtomicBool>::default(), Arc::<AtomicU32>::default());
        let client = || {
            let (end, answers) = (Arc::clone(&end), Arc::clone(&answers));
            let (peer, request) = (peer.clone(), request.to_vec());
            std::thread::spawn(move || {
                while !end.load(Ordering::Relaxed) {
                    let answer = peer.raw(&request);
                    if answer.len() > begin.len() && answer.starts_with(begin) {
                        answers.fetch_add(1, Ordering::Relaxed);
                    }
                }
            })
        };
        let threads = (0..clients).map(|_| client()).collect();
        Load { end, answers, threads }
    }

    /// How many have counted so far.
    pub fn answers(&self) -> u32 {
        self.answers.load(Ordering::Relaxed)
    }
}

impl Drop for Load {
    fn drop(&mut self) {
        self.end.store(true, Ordering::Relaxed);
        self.threads.drain(..).for_each(|t| drop(t.join()));
    }
}
