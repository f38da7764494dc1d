//! What the process that opens the logs does for them besides: it starts the programs that read them, and
//! rolls over those that are to be.

use weir_core::logger::{self, ErrorLog};
use weir_core::programs;
use weir_core::rollback::{Roller, Rules};
use weir_module::Slots;

#[derive(Default)]
pub struct Logs {
    roller: Roller,
}

impl Logs {
    /// For the configuration in force, which has these slots of the main context.
    pub fn of(global: &Slots) -> Logs {
        let mut logs = Logs::default();
        logs.renew(global);
        logs
    }

    /// Another configuration is in force.
    pub fn renew(&mut self, global: &Slots) {
        let none = Rules::default();
        let rules = global.find::<Rules>().unwrap_or(&none);
        logger::keep_programs(rules.pipe_bytes.as_option().map(|n| *n as usize));
        self.roller.renew(rules);
    }

    /// What is due; whether a log is another file now.
    pub fn tend(&mut self, log: &ErrorLog) -> bool {
        programs::tend(log);
        self.roller.tend(log)
    }

    /// In how many ms something is due.
    pub fn due_in_ms(&self) -> Option<u64> {
        [programs::due_in_ms(), self.roller.due_in_ms()].into_iter().flatten().min()
    }
}
