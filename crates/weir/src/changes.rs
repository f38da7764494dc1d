//! What a reload changes at the main level: much is taken over in place; some a process has only
//! from its start, and a new serving process takes the old one's place; and some only a new start
//! of the program can change, which is said. Nothing is passed over in silence.

use crate::globals::Global;
use std::path::PathBuf;
use weir_runtime::process;

/// What a process has from its start.
#[derive(Clone, PartialEq)]
pub struct AtStart {
    pub user: Option<(String, Option<String>)>,
    priority: Option<i32>,
    directory: Option<PathBuf>,
    env: Vec<(String, Option<String>)>,
    daemon: Option<bool>,
    master: Option<bool>,
}

impl AtStart {
    pub fn of(global: &Global) -> AtStart {
        AtStart {
            user: global.user.as_option().cloned(),
            priority: global.worker_priority.as_option().copied(),
            directory: global.working_directory.as_option().cloned(),
            env: global.env.clone(),
            daemon: global.daemon.as_option().copied(),
            master: global.master_process.as_option().copied(),
        }
    }
}

/// The directives whose values differ, by what they need.
#[derive(Default)]
pub struct Changes {
    /// A new serving process on the same sockets.
    pub process: Vec<&'static str>,
    /// A new start of the program.
    pub start: Vec<&'static str>,
}

impl Changes {
    /// With a master, which can start a serving process anew.
    pub fn under_master(old: &AtStart, new: &AtStart) -> Changes {
        let process = differing(&[
            // Without root's rights, which Windows does not know, it is nobody's to change.
            ("user", old.user == new.user || !process::is_root()),
            ("worker_priority", old.priority == new.priority),
            ("working_directory", old.directory == new.directory),
            ("env", old.env == new.env),
        ]);
        let start = differing(&[
            ("daemon", old.daemon == new.daemon),
            ("master_process", old.master == new.master),
        ]);
        Changes { process, start }
    }

    /// Where one process does everything. Its user it keeps in any case.
    pub fn alone(old: &AtStart, new: &AtStart) -> Changes {
        let Changes { mut process, mut start } = Changes::under_master(old, new);
        process.retain(|name| *name != "user");
        start.extend(process);
        Changes { process: Vec::new(), start }
    }

    /// What is to be said of those that wait for a new start.
    pub fn warnings(&self) -> impl Iterator<Item = String> + '_ {
        self.start.iter().map(|name| {
            format!(
                "the new value of \"{name}\" is not in force: a reload cannot change it, \
                 restart the program (or upgrade it by USR2 and QUIT)"
            )
        })
    }
}

fn differing(checks: &[(&'static str, bool)]) -> Vec<&'static str> {
    checks.iter().filter(|(_, same)| !same).map(|(name, _)| *name).collect()
}
