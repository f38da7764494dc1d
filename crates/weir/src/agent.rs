//! The privileged agent: one more worker, that listens nowhere, for code of Lua's that has asked for one
//! (`enable_privileged_agent`). Whichever worker is the first to serve by a configuration begins it, as it is in the
//! workers that this is asked for. With the next configuration it ends, and another begins if that asks for one.
//!
//! Difference from OpenResty: it is a thread of the process that serves, and has no other rights than that. Its timers are told
//! that it ends, and what goes on nevertheless has a second ([`ENDS_WITHIN_MS`]): there it ends at once, whatever it does.
//! Code that never waits goes on in both (a loop, `os.execute`), until the process ends by TERM.

use crate::globals::Global;
use crate::workers::{self, Command, Setup, WorkerHandle};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use weir_core::counters::{AllCounters, WORKERS_MAX};
use weir_core::generation::Generation;
use weir_core::logger::LogLevel;

/// Those of this process.
#[derive(Default)]
struct Agents {
    /// By the number of its configuration.
    newest: Option<(u64, WorkerHandle)>,
    /// They finish what they have.
    leaving: Vec<WorkerHandle>,
    /// The newest configuration that has been looked at.
    looked_at: u64,
    /// No more are begun.
    is_ending: bool,
}

/// No code of an agent's that is to end goes on for longer: jobs that only one is to do would be done twice.
const ENDS_WITHIN_MS: u64 = 1000;

static AGENTS: Mutex<Agents> =
    Mutex::new(Agents { newest: None, leaving: Vec::new(), looked_at: 0, is_ending: false });

fn agents() -> MutexGuard<'static, Agents> {
    AGENTS.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Agents {
    fn begin(&mut self, gen: &Arc<Generation>, all: &Arc<AllCounters>, connections: usize) {
        let connections_max = connections;
        let setup =
            Setup { cpus: None, connections_max, ..Setup::new(WORKERS_MAX, all, gen, Vec::new()) };
        match workers::start(setup) {
            Ok(handle) => {
                let text = format!("start privileged agent process {}", std::process::id());
                gen.error_log.log(LogLevel::Notice, None, text.as_bytes());
                self.newest = Some((gen.number, handle));
            }
            Err(e) => {
                let text = format!("starting the privileged agent failed: {e}");
                gen.error_log.log(LogLevel::Alert, None, text.as_bytes());
            }
        }
    }

    /// The one of an older configuration ends.
    fn retire(&mut self, number: u64, timeout_ms: Option<u64>) {
        if let Some((_, old)) = self.newest.take_if(|(of, _)| *of < number) {
            let _ = old.commands.send(Command::Quit { timeout_ms, successor: None });
            self.leaving.push(old);
        }
    }

    fn all(&self) -> impl Iterator<Item = &WorkerHandle> {
        self.newest.iter().map(|(_, handle)| handle).chain(&self.leaving)
    }
}

/// How many connections the agent of a configuration may have, if there is to be one.
fn wanted(gen: &Generation) -> Option<usize> {
    let is_alone = gen.global.get::<Global>().master_process.as_option() == Some(&false);
    gen.agent.get().copied().filter(|_| !is_alone)
}

/// A worker serves by a configuration: begins the agent that this wants, if no other worker has.
pub fn serve(gen: &Arc<Generation>, all: &Arc<AllCounters>) {
    let Some(connections) = wanted(gen) else { return };
    let mut agents = agents();
    if agents.is_ending || agents.looked_at >= gen.number {
        return;
    }
    agents.looked_at = gen.number;
    if connections == 0 {
        let text = "0 worker_connection is not enough, privileged agent process cannot be spawned";
        return gen.error_log.log(LogLevel::Alert, None, text.as_bytes());
    }
    agents.retire(gen.number, shutdown_timeout(gen));
    agents.begin(gen, all, connections);
}

fn shutdown_timeout(gen: &Generation) -> Option<u64> {
    let timeout_ms = gen.global.get::<Global>().worker_shutdown_timeout.as_option().copied();
    Some(timeout_ms.map_or(ENDS_WITHIN_MS, |ms| ms.min(ENDS_WITHIN_MS)))
}

/// There is a newer configuration.
pub fn retire(gen: &Generation) {
    agents().retire(gen.number, shutdown_timeout(gen));
}

/// One that has ended by itself is begun again; those that were to end are forgotten.
pub fn heal(gen: &Arc<Generation>, all: &Arc<AllCounters>) {
    let mut agents = agents();
    agents.leaving.retain(|handle| !handle.thread.is_finished());
    let ended = agents.newest.take_if(|(_, handle)| handle.thread.is_finished());
    let Some((number, handle)) = ended.filter(|_| !agents.is_ending) else { return };
    handle.tell_ended(gen, "privileged agent");
    if let Some(connections) = wanted(gen).filter(|_| number == gen.number) {
        agents.begin(gen, all, connections);
    }
}

/// Tells all of them.
pub fn tell(command: impl Fn() -> Command) {
    for handle in agents().all() {
        // One that has ended needs no telling.
        let _ = handle.commands.send(command());
    }
}

/// No more are begun, and those that are there end: at once, or with what they have.
pub fn end(gen: &Generation, at_once: bool) {
    agents().is_ending = true;
    let timeout_ms = shutdown_timeout(gen);
    tell(|| match at_once {
        true => Command::Stop,
        false => Command::Quit { timeout_ms, successor: None },
    });
}

/// Whether none is left.
pub fn have_ended() -> bool {
    agents().all().all(|handle| handle.thread.is_finished())
}
