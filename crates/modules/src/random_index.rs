//! A random file answers for a directory: nginx's `ngx_http_random_index_module`.

use std::collections::hash_map::RandomState;
use std::hash::BuildHasher;

use crate::directory::{self, Reading};
use weir_core::LocalFuture;
use weir_http::module::{Flow, HttpModule, PhaseHandler};
use weir_http::redirect::internal_redirect;
use weir_http::{Phase, Request};
use weir_module::first::flag;
use weir_module::{
    merge_values, set, slot, Arity, Cf, ConfResult, ConfType, Context, Level, Row, SlotVtable, Val,
};
use weir_runtime::threads::in_thread;
use weir_wire::http1::request::Method;

#[derive(Default)]
struct RandomIndexLoc {
    on: Val<bool>,
}

impl ConfType for RandomIndexLoc {
    const LEVEL: Level = Level::Location;
    slot!();

    fn merge(&mut self, parent: &RandomIndexLoc) -> ConfResult {
        merge_values!(self, parent; on = false);
        Ok(())
    }
}

pub const MODULE: HttpModule = HttpModule {
    rows: &[Row::new(
        "random_index",
        Context::LOCATION,
        Arity::FLAG,
        "off",
        "Answers for a directory with a random file of it.",
        set!(Cf::get::<RandomIndexLoc>, on, flag),
    )],
    slots: &[SlotVtable::of::<RandomIndexLoc>()],
    phases: &[PhaseHandler {
        phase: Phase::Content,
        handler,
        active: |slots| *slots.get::<RandomIndexLoc>().on,
    }],
    ..HttpModule::EMPTY
};

fn handler(r: &mut Request) -> Flow {
    let fits = matches!(r.method, Method::Get | Method::Head | Method::Post);
    if r.uri.last() != Some(&b'/') || !fits {
        return Flow::Declined;
    }
    choose(r).unwrap_or_else(|flow| flow)
}

fn choose(r: &mut Request) -> Result<Flow, Flow> {
    let mut reading = directory::open(r)?;
    if reading.read_some() {
        return chosen(r, reading);
    }
    r.set_ctx(reading);
    Ok(Flow::Wait(read_first))
}

/// A directory that is too large for the worker to read it at once.
fn read_first(r: &mut Request) -> LocalFuture<'_, Flow> {
    Box::pin(async move {
        let Some(mut reading) = r.take_ctx::<Reading>() else { return Flow::Status(500) };
        let read = in_thread(move || {
            reading.read_all();
            reading
        });
        match read.await {
            Ok(reading) => chosen(r, *reading).unwrap_or_else(|flow| flow),
            Err(_) => Flow::Status(500),
        }
    })
}

fn chosen(r: &mut Request, reading: Reading) -> Result<Flow, Flow> {
    let mut entries = reading.finish(r)?;
    entries.retain(|e| e.kind.is_file());
    // Each new state hashes in its own way.
    let random = RandomState::new().hash_one(0) as usize;
    let Some(n) = random.checked_rem(entries.len()) else { return Ok(Flow::Declined) };
    let uri = [r.uri.as_slice(), &entries[n].name].concat();
    let args = r.args.clone();
    Ok(internal_redirect(r, &uri, &args))
}
