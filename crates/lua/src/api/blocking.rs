//! Calls that block a worker: where they stand is told once, for all workers.

use super::control;
use crate::crossing::{Answer, Args};
use crate::machine::{code, OpRow, State};
use crate::run::context;
use crate::site::Block;
use std::collections::HashSet;
use std::sync::{Mutex, PoisonError};
use weir_core::logger::LogLevel;

/// Where nobody waits for the worker yet, or any more, and where it is another thread that is held.
const ELSEWHERE: u32 = context::INIT | context::INIT_WORKER | context::EXIT_WORKER | context::APART;
/// So many places of a configuration are told.
const PLACES_MAX: usize = 100;

pub(super) const OPS: &[OpRow] = &[OpRow::any("blocks", context::ANY, blocks)];

/// Those that were told, of the newest configuration that has any.
struct Told {
    generation: u64,
    places: HashSet<Box<[u8]>>,
}

static TOLD: Mutex<Option<Told>> = Mutex::new(None);

/// Whether the line is to be written; `None` if it never is again.
fn is_new(generation: u64, text: &[u8]) -> Option<bool> {
    let mut told = TOLD.lock().unwrap_or_else(PoisonError::into_inner);
    let told = told.get_or_insert_with(|| Told { generation, places: HashSet::new() });
    if told.generation < generation {
        *told = Told { generation, places: HashSet::new() };
    }
    // An older one is on its way out.
    if told.generation > generation || told.places.len() >= PLACES_MAX {
        return None;
    }
    Some(told.places.insert(text.into()))
}

/// A call, in words, that its place begins; whether it needs not be asked for again.
fn blocks(state: &mut State<'_>, args: &Args<'_>, _: &mut Answer) -> i32 {
    // Without a location or server nobody is served: a script of `weir lua` may block.
    let is_wanted = state.setting(|conf| *conf.log_blocking_calls).unwrap_or(false);
    if state.run.context & ELSEWHERE != 0
        || !is_wanted
        || !control::is_enabled(state, LogLevel::Warn)
    {
        return code::FALSE;
    }
    if is_new(state.vm.gen.number, args.a) == Some(true) {
        let stream = if state.vm.block == Block::Stream { "stream " } else { "" };
        let text = [stream.as_bytes(), b"[lua] ", args.a].concat();
        control::write(state, LogLevel::Warn, &text);
    }
    code::TRUE
}
