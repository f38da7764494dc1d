//! `request_time_cache` of Tengine's core: how exact the times of requests are in logs.

use weir_http::module::{Flow, HttpModule, Phase, PhaseHandler};
use weir_module::first::flag;
use weir_module::{
    merge_values, set, slot, Arity, Cf, ConfResult, ConfType, Context, Level, Row, SlotVtable, Val,
};
use weir_runtime::clock;

#[derive(Default)]
struct TimeLoc {
    cached: Val<bool>,
}

impl ConfType for TimeLoc {
    const LEVEL: Level = Level::Location;
    slot!();

    fn merge(&mut self, parent: &TimeLoc) -> ConfResult {
        merge_values!(self, parent; cached = true);
        Ok(())
    }
}

/// It stands in front of the module that writes logs.
pub const MODULE: HttpModule = HttpModule {
    rows: &[Row::new(
        "request_time_cache",
        Context::HSL,
        Arity::FLAG,
        "on",
        "Whether $request_time and its kin go by the time when the worker has last waited; off: the clock is read for each log.",
        set!(Cf::get::<TimeLoc>, cached, flag),
    )],
    slots: &[SlotVtable::of::<TimeLoc>()],
    phases: &[PhaseHandler {
        phase: Phase::Log,
        handler: |_| {
            clock::renew();
            Flow::Declined
        },
        active: |slots| !*slots.get::<TimeLoc>().cached,
    }],
    ..HttpModule::EMPTY
};
