//! The serving process: the workers, and what signals make of them.
//!
//! A worker that a reload makes surplus rests: it has no listening sockets, goes on serving the
//! connections it has and takes every new generation; it is the first to be taken back.

use crate::agent;
use crate::globals::Global;
use crate::heirs::{self, Successor};
use crate::panics;
use crate::peers;
use crate::retired::Retired;
use crate::sockets::{Sockets, DRAIN_MS};
use crate::watch::{self, Watch};
use crate::workers::{self, Command, Setup, WorkerHandle};
use std::sync::Arc;
use weir_core::counters::{AllCounters, WORKERS_MAX};
use weir_core::figures::Figures;
use weir_core::generation::Generation;
use weir_core::logger::{self, LogLevel};
use weir_core::syslog;
use weir_runtime::listen::Listener;
use weir_runtime::memory;

pub struct Serving {
    pub generation: Arc<Generation>,
    pub sockets: Sockets,
    all: Arc<AllCounters>,
    /// By number: those that work, then those that rest.
    workers: Vec<WorkerHandle>,
    watch: Watch,
    retired: Retired,
    /// It ends at once, and waits for nobody.
    is_stopped: bool,
}

impl Serving {
    /// Starts the workers of a generation.
    pub fn start(generation: Arc<Generation>, sockets: Sockets) -> Result<Serving, String> {
        let mut s = Serving {
            generation,
            sockets,
            all: Arc::new(AllCounters::new(WORKERS_MAX + 1)),
            workers: Vec::new(),
            watch: Watch::default(),
            retired: Retired::default(),
            is_stopped: false,
        };
        crate::figures::begin(&s.all);
        crate::figures::know();
        syslog::report_to(&s.generation.error_log);
        panics::log_to(&s.generation.error_log);
        crate::load::is_in_force(s.generation.number);
        crate::protocols::start(&s.generation);
        weir_status::pairs_left::begun();
        s.ship();
        crate::asked::follow(s.perftools(), &s.generation.error_log);
        s.fill()?;
        crate::inquiry::listen(&s.generation.error_log);
        heirs::receive(s.workers.iter().map(|w| w.commands.clone()).collect(), &s.all);
        // What reading the configuration took.
        memory::give_back();
        Ok(s)
    }

    fn log(&self, level: LogLevel, text: &str) {
        self.generation.error_log.log(level, None, text.as_bytes());
    }

    /// Where a profile of the whole time is to go.
    fn perftools(&self) -> Option<&std::path::Path> {
        let path = self.generation.global.get::<Global>().google_perftools_profiles.as_option();
        path.map(std::path::PathBuf::as_path)
    }

    /// What is shipped and told from now on, by the newest generation.
    fn ship(&self) {
        crate::asked::serve(&self.generation, &self.all);
        // Counting begins, if no process before has begun.
        weir_core::counts::began_ms();
        let (generation, all) = (Arc::downgrade(&self.generation), Arc::clone(&self.all));
        weir_ship::gather_by(Arc::new(move || match generation.upgrade() {
            Some(generation) => weir_status::gather(&generation, &all, ""),
            None => Figures::default(),
        }));
        weir_ship::encode_by(weir_status::otlp);
        let workers = self.generation.global.get::<crate::globals::Global>().workers();
        weir_ship::start(&self.generation, workers);
        weir_status::machines::ask_by(peers::dial);
    }

    fn count(&self) -> usize {
        self.generation.global.get::<Global>().workers()
    }

    /// Starts the workers that are missing.
    fn fill(&mut self) -> Result<(), String> {
        // Workers that begin ask for it.
        self.all.set_workers(self.count());
        while self.workers.len() < self.count() {
            let id = self.workers.len();
            let handle = self.worker(id).map_err(|e| format!("starting a worker failed: {e}"))?;
            self.log(
                LogLevel::Notice,
                &format!("start worker process {} thread {id}", std::process::id()),
            );
            self.workers.push(handle);
        }
        Ok(())
    }

    fn worker(&self, id: usize) -> std::io::Result<WorkerHandle> {
        workers::start(Setup::new(id, &self.all, &self.generation, self.listeners(id)))
    }

    /// The sockets worker `id` accepts from: its own, and those of workers that are stuck.
    fn listeners(&self, id: usize) -> Vec<Arc<Listener>> {
        let working = self.count();
        if id >= working {
            return Vec::new();
        }
        let mut out = self.sockets.of_worker(id, working);
        for stuck in self.watch.stuck().filter(|s| *s != id && *s < working) {
            for l in self.sockets.of_worker(stuck, working) {
                if !out.iter().any(|have| Arc::ptr_eq(have, &l)) {
                    out.push(l);
                }
            }
        }
        out
    }

    /// Tells every worker which sockets are now its.
    fn share_out(&self) {
        for (id, w) in self.workers.iter().enumerate() {
            // A worker that has ended needs no telling.
            let _ = w.commands.send(Command::Listen(self.listeners(id)));
        }
    }

    /// Puts a new generation in place: every worker takes it, missing ones are started, surplus
    /// ones rest.
    pub fn replace(&mut self, generation: Arc<Generation>, sockets: Sockets) -> Result<(), String> {
        self.sockets.remove_unix_files(Some(&sockets));
        // Closed here before the workers are told: the last of them takes what waits.
        self.sockets = sockets;
        let worked = self.count();
        syslog::report_to(&generation.error_log);
        panics::log_to(&generation.error_log);
        crate::load::is_in_force(generation.number);
        crate::protocols::start(&generation);
        self.retired.add(std::mem::replace(&mut self.generation, generation));
        self.ship();
        crate::asked::follow(self.perftools(), &self.generation.error_log);
        let connections_max = self.generation.global.get::<Global>().connections();
        for (id, w) in self.workers.iter().enumerate() {
            let _ = w.commands.send(Command::Serve {
                generation: Arc::clone(&self.generation),
                listeners: self.listeners(id),
                connections_max,
                cpus: self.generation.global.get::<Global>().cpus_of(id),
            });
            if (self.count()..worked).contains(&id) {
                let _ = w.commands.send(Command::Rest);
            }
        }
        agent::retire(&self.generation);
        self.fill()
    }

    /// What is to be done from time to time; call it whenever the main thread has waited.
    pub fn tend(&mut self) {
        self.let_go();
        crate::figures::tend();
        let mut changed = self.sockets.close_left(DRAIN_MS);
        if self.watches() {
            let found = self.watch.look(&self.workers, &self.all);
            found.lines.iter().for_each(|text| self.log(LogLevel::Notice, text));
            changed |= found.is_news;
        }
        if changed {
            self.share_out();
        }
    }

    /// Whether it matters that a worker is stuck: others could take what waits in its sockets.
    fn watches(&self) -> bool {
        self.count() > 1 && (self.sockets.any_per_worker() || self.watch.stuck().next().is_some())
    }

    /// After how long `tend` is to be called at the latest.
    pub fn tend_in_ms(&self) -> u64 {
        let close = self.sockets.next_close_in(DRAIN_MS).unwrap_or(u64::MAX);
        let look = if self.watches() { watch::LOOK_MS } else { u64::MAX };
        close.min(look).min(self.retired.look_in_ms())
    }

    /// Drops the old generations that nothing uses any more, and gives their memory back.
    fn let_go(&mut self) {
        let unused = self.retired.take_unused();
        if unused.is_empty() {
            return;
        }
        for generation in unused {
            let text = format!("configuration {} is no longer in use", generation.number);
            self.log(LogLevel::Info, &text);
        }
        logger::close_unused();
        memory::give_back();
        for w in &self.workers {
            let _ = w.commands.send(Command::GiveBack);
        }
        agent::tell(|| Command::GiveBack);
    }

    fn shutdown_timeout(&self) -> Option<u64> {
        self.generation.global.get::<Global>().worker_shutdown_timeout.as_option().copied()
    }

    /// Has the workers write out what they buffer for the logs.
    pub fn flush_logs(&self) {
        for w in &self.workers {
            let _ = w.commands.send(Command::FlushLogs);
        }
        agent::tell(|| Command::FlushLogs);
    }

    /// USR1: logs are opened again under their names.
    pub fn reopen_logs(&self) {
        self.flush_logs();
        crate::control::log_failures(&self.generation, logger::reopen_all());
    }

    /// Begins the graceful end of all workers.
    pub fn quit(&mut self, successor: Option<Arc<Successor>>) {
        self.sockets = Sockets::default();
        crate::inquiry::end();
        heirs::receive_last();
        match &successor {
            Some(successor) => {
                crate::figures::give(successor, false);
                self.offer(successor);
            }
            None => {
                crate::figures::leave();
            }
        }
        let timeout_ms = self.shutdown_timeout();
        for w in &self.workers {
            let _ = w.commands.send(Command::Quit { timeout_ms, successor: successor.clone() });
        }
        agent::end(&self.generation, false);
    }

    /// What is to be done from time to time while the workers end, and with `at_end` once they have.
    pub fn hand_on(&self, successor: Option<&Successor>, at_end: bool) {
        if let Some(successor) = successor {
            crate::figures::give(successor, at_end);
            if at_end {
                crate::dicts::settle();
            }
        }
    }

    /// Gives what is in dictionaries to the process that takes this one's place, once that is ready.
    pub fn offer(&self, successor: &Arc<Successor>) {
        crate::dicts::offer(successor, &self.generation);
    }

    /// Ends all workers at once.
    pub fn stop(&mut self) {
        self.is_stopped = true;
        weir_ship::stop();
        crate::inquiry::end();
        for w in &self.workers {
            let _ = w.commands.send(Command::Stop);
        }
        agent::end(&self.generation, true);
    }

    /// Whether there is nothing more to be done, not even for who takes this process' place.
    pub fn may_end(&self, successor: Option<&Successor>) -> bool {
        let is_answered = || successor.is_none_or(Successor::has_answered);
        self.ended() && (self.is_stopped || is_answered())
    }

    /// Whether every worker has ended, and what they left to be shipped is sent or waited for long enough.
    fn ended(&self) -> bool {
        let have_ended = self.workers.iter().all(|w| w.thread.is_finished());
        have_ended && agent::have_ended() && weir_ship::has_ended()
    }

    /// A worker that has ended by itself (a panic outside a connection) is started again.
    pub fn heal(&mut self) {
        agent::heal(&self.generation, &self.all);
        for id in 0..self.workers.len() {
            if !self.workers[id].thread.is_finished() {
                continue;
            }
            self.workers[id].tell_ended(&self.generation, &format!("worker {id}"));
            match self.worker(id) {
                Ok(w) => self.workers[id] = w,
                Err(e) => self.log(LogLevel::Alert, &format!("starting a worker failed: {e}")),
            }
            self.watch.forget(id);
            self.share_out();
        }
    }
}
