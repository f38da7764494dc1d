//! Servers of this machine, by their control sockets.

use super::Wanted;
use crate::inquiry::{self, SUFFIX};
use crate::load::Paths;
use crate::profile::socket;
use std::path::PathBuf;
use std::time::Duration;
use weir_runtime::inquiry as control;
use weir_top::Ask;

/// Its socket is opened anew for each question: a server that was upgraded or started again has one at the same place.
pub struct Local {
    path: PathBuf,
    name: String,
}

impl Local {
    /// The server that is meant; all that run, if none is and the default one does not.
    pub fn find(paths: &Paths, wanted: &Wanted) -> Result<Vec<Local>, String> {
        let told = socket(paths, wanted.pid);
        let is_meant = wanted.is_told_where || wanted.pid.is_some();
        if is_meant || told.as_deref().is_ok_and(control::may_be_at) {
            return Ok(vec![Local::at(told?)]);
        }
        let running = running();
        match running.is_empty() {
            true => {
                Err("no server runs here that this user may ask: write -c FILE, -p PID or a URL"
                    .into())
            }
            false => Ok(running),
        }
    }

    fn at(path: PathBuf) -> Local {
        let text = path.to_string_lossy();
        let name = text.strip_suffix(SUFFIX).unwrap_or(&text).to_owned();
        Local { path, name }
    }
}

/// Those of all control sockets that answer.
fn running() -> Vec<Local> {
    let mut found = control::of_all(SUFFIX);
    found.retain(|path| inquiry::ask_found(path, "version").is_ok());
    found.into_iter().map(Local::at).collect()
}

impl Ask for Local {
    fn name(&self) -> String {
        self.name.clone()
    }

    fn figures(&mut self) -> Result<Vec<u8>, String> {
        inquiry::ask(&self.path, "figures", Duration::ZERO)
    }

    fn visitors(&mut self) -> Result<Vec<u8>, String> {
        inquiry::ask(&self.path, "visitors", Duration::ZERO)
    }
}
