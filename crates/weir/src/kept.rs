//! What the master keeps of the configuration in force: its text, from which a serving process
//! that has to be started again makes its generation, and what the master's own work needs. A
//! generation of its own would double the memory of a large configuration.

use crate::changes::AtStart;
use crate::globals::Global;
use crate::load::{self, Loaded, Paths};
use std::any::Any;
use std::path::PathBuf;
use std::sync::Arc;
use weir_conf::{BundleLoader, Sources};
use weir_core::generation::Generation;
use weir_core::logger::{self, ErrorLog, LogFile};
use weir_core::zones;
use weir_module::Layout;
use weir_module::Mode;
use weir_runtime::process::{self, Identity};

pub struct Kept {
    sources: Sources,
    pub error_log: Arc<ErrorLog>,
    /// What the next configuration is compared with.
    pub main: AtStart,
    /// The temporary directories, to be given to the serving process' user.
    pub temp_dirs: Vec<PathBuf>,
    /// Those of queues, whose files another user may have left.
    pub queues: Vec<PathBuf>,
    /// Opened with root's rights, and opened again with them (USR1).
    logs: Vec<Arc<LogFile>>,
    /// The next configuration is held against them: a zone may not change what it counts by.
    zones: Vec<Arc<dyn Any + Send + Sync>>,
    /// The configuration's.
    number: u64,
}

impl Kept {
    /// What is kept, and the generation, which is not.
    pub fn of(loaded: Loaded) -> (Kept, Arc<Generation>) {
        let Loaded { generation, sources, .. } = loaded;
        let kept = Kept {
            sources,
            error_log: Arc::clone(&generation.error_log),
            main: AtStart::of(generation.global.get::<Global>()),
            temp_dirs: crate::protocols::dirs(&generation),
            queues: weir_ship::dirs(&generation),
            logs: logger::named_files(),
            zones: zones::in_use(),
            number: generation.number,
        };
        load::is_in_force(kept.number);
        (kept, generation)
    }

    /// The generation, made anew from the text.
    pub fn generation(&self, paths: &Paths) -> Result<Arc<Generation>, String> {
        // It is the same configuration, whoever has died by it.
        load::is_in_force(self.number - 1);
        load::load_from(paths, Mode::Serve, &BundleLoader::new(&self.sources))
            .map(Loaded::into_generation)
            .map_err(|e| e.line)
    }

    /// In the serving process: its logs and zones are its generations' alone.
    pub fn let_go(&mut self) {
        self.logs.clear();
        self.zones.clear();
    }

    /// The configuration's number.
    pub fn number(&self) -> u64 {
        self.number
    }

    /// The text, for handing it over.
    pub fn bundle(&self) -> Vec<u8> {
        self.sources.to_bundle()
    }

    /// The user the serving process becomes: see [`identity`].
    pub fn identity(&self) -> Result<Option<Identity>, String> {
        identity(self.main.user.as_ref())
    }
}

/// The user the serving process becomes: the configured one, or nobody, when started as root.
pub fn identity(user: Option<&(String, Option<String>)>) -> Result<Option<Identity>, String> {
    if !process::is_root() {
        return Ok(None);
    }
    match user {
        Some((user, group)) => process::lookup(user, group.as_deref()).map(Some),
        None => default_identity().map(Some),
    }
}

/// The build's user, or nobody where there is none of that name.
fn default_identity() -> Result<Identity, String> {
    let here = Layout::here();
    let group = Some(here.group).filter(|g| !g.is_empty());
    let own = process::lookup(here.user, group);
    own.or_else(|_| process::lookup("nobody", Some("nogroup")))
        .or_else(|_| process::lookup("nobody", None))
}
