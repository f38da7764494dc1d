//! The serving process: the workers, and what signals make of them.

use crate::globals::Global;
use crate::sockets::Sockets;
use crate::workers::{self, Command, Setup, WorkerHandle};
use std::sync::Arc;
use weir_http::generation::Generation;
use weir_http::logger::{self, LogLevel};
use weir_http::worker::{AllCounters, Counters};

/// Workers may be added by a reload up to this many.
const WORKERS_MAX: usize = 1024;

pub struct Serving {
    pub generation: Arc<Generation>,
    pub sockets: Sockets,
    all: Arc<AllCounters>,
    workers: Vec<WorkerHandle>,
    retired: Vec<WorkerHandle>,
}

/// Starts what modules do besides answering requests.
fn start_modules(generation: &Arc<Generation>) {
    weir_modules::MODULES.iter().filter_map(|m| m.start).for_each(|start| start(generation));
}

impl Serving {
    /// Starts the workers of a generation.
    pub fn start(generation: Arc<Generation>, sockets: Sockets) -> Result<Serving, String> {
        let counters = (0..WORKERS_MAX).map(|_| Arc::new(Counters::default())).collect();
        let mut s = Serving {
            generation,
            sockets,
            all: Arc::new(AllCounters(counters)),
            workers: Vec::new(),
            retired: Vec::new(),
        };
        start_modules(&s.generation);
        s.fill()?;
        weir_modules::serve(&s.generation);
        Ok(s)
    }

    fn log(&self, level: LogLevel, text: &str) {
        self.generation.error_log.log(level, None, text.as_bytes());
    }

    fn count(&self) -> usize {
        self.generation.global.get::<Global>().workers()
    }

    /// Starts the workers that are missing.
    fn fill(&mut self) -> Result<(), String> {
        while self.workers.len() < self.count() {
            let id = self.workers.len();
            let setup = Setup::new(id, &self.all, &self.generation, self.sockets.of_worker(id));
            let handle =
                workers::start(setup).map_err(|e| format!("starting a worker failed: {e}"))?;
            self.log(
                LogLevel::Notice,
                &format!("start worker process {} thread {id}", std::process::id()),
            );
            self.workers.push(handle);
        }
        Ok(())
    }

    /// Puts a new generation in place: every worker takes it, new ones are started, surplus ones
    /// finish what they have.
    pub fn replace(&mut self, generation: Arc<Generation>, sockets: Sockets) -> Result<(), String> {
        let old = std::mem::replace(&mut self.sockets, sockets);
        start_modules(&generation);
        self.generation = generation;
        let count = self.count();
        let connections_max = self.generation.global.get::<Global>().connections();
        let timeout_ms = self.shutdown_timeout();
        for w in self.workers.split_off(count.min(self.workers.len())) {
            // A worker that has ended needs no telling.
            let _ = w.commands.send(Command::Quit { timeout_ms });
            self.retired.push(w);
        }
        for (id, w) in self.workers.iter().enumerate() {
            let _ = w.commands.send(Command::Serve {
                generation: Arc::clone(&self.generation),
                listeners: self.sockets.of_worker(id),
                connections_max,
            });
        }
        old.remove_unix_files(Some(&self.sockets));
        weir_modules::serve(&self.generation);
        self.fill()
    }

    fn shutdown_timeout(&self) -> Option<u64> {
        self.generation.global.get::<Global>().worker_shutdown_timeout.as_option().copied()
    }

    /// USR1: logs are opened again under their names.
    pub fn reopen_logs(&self) {
        for w in &self.workers {
            let _ = w.commands.send(Command::FlushLogs);
        }
        for (path, e) in logger::reopen_all() {
            let text = format!(
                "open() \"{}\" failed ({})",
                path.display(),
                weir_http::core_rows::os_text(&e)
            );
            self.log(LogLevel::Emerg, &text);
        }
    }

    /// Begins the graceful end of all workers.
    pub fn quit(&mut self) {
        self.sockets.remove_unix_files(None);
        self.sockets = Sockets::default();
        let timeout_ms = self.shutdown_timeout();
        for w in &self.workers {
            let _ = w.commands.send(Command::Quit { timeout_ms });
        }
    }

    /// Ends all workers at once.
    pub fn stop(&mut self) {
        for w in self.workers.iter().chain(&self.retired) {
            let _ = w.commands.send(Command::Stop);
        }
    }

    /// Whether every worker has ended.
    pub fn ended(&mut self) -> bool {
        self.retired.retain(|w| !w.thread.is_finished());
        self.retired.is_empty() && self.workers.iter().all(|w| w.thread.is_finished())
    }

    /// A worker that has ended by itself (a panic outside a connection) is started again.
    pub fn heal(&mut self) {
        for id in 0..self.workers.len() {
            if !self.workers[id].thread.is_finished() {
                continue;
            }
            self.log(LogLevel::Alert, &format!("worker {id} has ended, starting it again"));
            let setup = Setup::new(id, &self.all, &self.generation, self.sockets.of_worker(id));
            match workers::start(setup) {
                Ok(w) => self.workers[id] = w,
                Err(e) => self.log(LogLevel::Alert, &format!("starting a worker failed: {e}")),
            }
        }
    }
}
