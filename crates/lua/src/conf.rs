//! What the directives come to.

use crate::api::socket::READ_MAX_BYTES;
use crate::code::Code;
use crate::watch::RunTime;
use std::collections::HashMap;
use std::sync::atomic::AtomicUsize;
use std::sync::{Arc, OnceLock};
use weir_core::logger::ErrorLog;
use weir_dict::Dict;
use weir_module::{merge_values, slot, ConfResult, ConfType, Level, Val};
use weir_resolve::Resolver;
use weir_upstream::Outgoing;

/// How many coroutines a state keeps where nobody says otherwise.
const THREAD_CACHE: usize = 1024;

/// A `lua_shared_dict`.
pub(crate) struct DictConf {
    pub name: Vec<u8>,
    /// Of which block it is.
    pub kind: &'static str,
    pub size: u64,
    /// Put there once the configuration is built.
    pub dict: OnceLock<Arc<Dict>>,
}

/// `http` level, or that of `stream`.
#[derive(Default)]
pub(crate) struct LuaMain {
    /// All code of the configuration; elsewhere it is known by its number.
    pub codes: Vec<Code>,
    pub init: Option<u32>,
    pub init_worker: Option<u32>,
    pub exit_worker: Option<u32>,
    pub package_path: Option<Vec<u8>>,
    pub package_cpath: Option<Vec<u8>>,
    pub prefix: Vec<u8>,
    pub max_pending_timers: Val<u64>,
    pub max_running_timers: Val<u64>,
    pub regex_cache: Val<u64>,
    pub regex_match_limit: Val<u64>,
    pub memory: Val<u64>,
    /// Coroutines that a state keeps to be used again.
    pub thread_cache: Val<u64>,
    /// Bytes of lines of the error log that a worker keeps.
    pub capture: Val<u64>,
    /// States apart from a worker's own.
    pub apart: Val<u64>,
    pub dicts: Vec<DictConf>,
    /// How many connections are kept to servers that code names, by the upstreams' numbers.
    pub balancers: HashMap<usize, Arc<AtomicUsize>>,
    /// What is in force where code runs for no request and no session.
    pub outer: Option<Arc<Outer>>,
    /// Whether code is not kept anywhere: there may be several states at a time.
    pub has_own_states: bool,
    /// Whether any directive of this module was met: workers begin no state otherwise.
    pub is_used: bool,
}

/// The settings of the block itself.
pub(crate) struct Outer {
    pub conf: LuaLoc,
    pub error_log: Arc<ErrorLog>,
    /// And how long it may take, in milliseconds.
    pub resolver: Option<(Arc<Resolver>, u64)>,
}

impl LuaMain {
    /// Adds code; its number.
    pub(crate) fn add(&mut self, code: Code) -> u32 {
        self.is_used = true;
        self.codes.push(code);
        self.codes.len() as u32 - 1
    }

    pub(crate) fn thread_cache_max(&self) -> usize {
        self.thread_cache.as_option().map_or(THREAD_CACHE, |n| *n as usize)
    }

    pub(crate) fn memory_max(&self) -> usize {
        self.memory.as_option().copied().filter(|m| *m > 0).map_or(usize::MAX, |m| m as usize)
    }
}

impl ConfType for LuaMain {
    const LEVEL: Level = Level::Main;
    slot!();
}

/// Of a location, or of a server of `stream`.
#[derive(Default)]
pub(crate) struct LuaLoc {
    pub server_rewrite: Val<Option<u32>>,
    pub rewrite: Val<Option<u32>>,
    pub access: Val<Option<u32>>,
    pub precontent: Val<Option<u32>>,
    /// Not inherited but by blocks without a name.
    pub content: Option<u32>,
    pub header_filter: Val<Option<u32>>,
    pub body_filter: Val<Option<u32>>,
    pub log: Val<Option<u32>>,
    /// In `stream`.
    pub preread: Val<Option<u32>>,
    pub need_request_body: Val<bool>,
    pub use_default_type: Val<bool>,
    pub http10_buffering: Val<bool>,
    pub check_client_abort: Val<bool>,
    pub transform_underscores: Val<bool>,
    pub code_cache: Val<bool>,
    /// `rewrite_by_lua_no_postpone` and its kin: before the modules of the phase.
    pub rewrite_first: Val<bool>,
    pub access_first: Val<bool>,
    pub precontent_first: Val<bool>,
    pub preread_first: Val<bool>,
    pub connect_timeout: Val<u64>,
    pub send_timeout: Val<u64>,
    pub read_timeout: Val<u64>,
    pub keepalive_timeout: Val<u64>,
    pub pool_size: Val<u64>,
    pub buffer_size: Val<u64>,
    /// What one call of a socket may read, in bytes.
    pub max_read: Val<u64>,
    pub log_errors: Val<bool>,
    /// After so many requests memory is given back; 0: never.
    pub malloc_trim: Val<u64>,
    /// Calls that block the worker are told of.
    pub log_blocking_calls: Val<bool>,
    /// How long code may run without waiting.
    pub max_run_time: Val<RunTime>,
    /// TLS of sockets.
    pub ssl: Outgoing,
}

impl ConfType for LuaLoc {
    const LEVEL: Level = Level::Location;
    slot!();

    fn merge(&mut self, parent: &LuaLoc) -> ConfResult {
        merge_values!(self, parent;
            server_rewrite = None, rewrite = None, access = None, precontent = None,
            header_filter = None, body_filter = None, log = None, preread = None,
            need_request_body = false, use_default_type = true, http10_buffering = true,
            check_client_abort = false, transform_underscores = true, code_cache = true,
            rewrite_first = false, access_first = false, precontent_first = false,
            preread_first = false,
            connect_timeout = 60_000, send_timeout = 60_000, read_timeout = 60_000,
            keepalive_timeout = 60_000, pool_size = 30, buffer_size = 4096, max_read = READ_MAX_BYTES, log_errors = true,
            log_blocking_calls = true, malloc_trim = 0, max_run_time = RunTime::default(),
        );
        self.ssl.merge(&parent.ssl);
        // Code says whether it verifies; there must be something to do it by.
        self.ssl.verify.set(!self.ssl.trusted_certificate.is_empty());
        self.ssl.server_name.set(true);
        Ok(())
    }
}

impl LuaLoc {
    /// Merges the level's own slot with the outer one; a block without a name has the content handler as well.
    pub(crate) fn merge_block(
        own: Option<Arc<weir_module::AnyConf>>,
        outer: Option<&weir_module::AnyConf>,
        unnamed: bool,
    ) -> ConfResult<Arc<weir_module::AnyConf>> {
        weir_module::merged(own, outer, |slot: &mut LuaLoc, outer| {
            if unnamed && slot.content.is_none() {
                slot.content = outer.content;
            }
            slot.merge(outer)
        })
    }
}
