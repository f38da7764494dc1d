//! `$response_send_start_time` and `$response_send_time`: when an answer began, and how long it has been sent.
//!
//! The moment is noted only where a configuration names one of the variables.

use std::sync::OnceLock;
use weir_core::common::{number, push_seconds};
use weir_core::variables::Variable;
use weir_http::build::Build;
use weir_http::module::{Filter, FilterResult, HttpModule, Next, Reach};
use weir_http::Request;
use weir_module::{distinct, slot, ConfResult, ConfType, Level, SlotVtable};
use weir_runtime::clock;

const START: &str = "response_send_start_time";
const TIME: &str = "response_send_time";

#[derive(Default)]
struct TimesLoc {
    is_named: OnceLock<()>,
}

impl ConfType for TimesLoc {
    const LEVEL: Level = Level::Location;
    slot!();
}

/// When the header left: milliseconds since 1970, and of the monotonic clock.
struct Begun {
    wall_ms: u64,
    mono_ms: u64,
}

pub const MODULE: HttpModule = HttpModule {
    slots: &[SlotVtable::of::<TimesLoc>()],
    variables: &[
        Variable::new(START, |r: &mut Request, _, out| {
            r.kept::<Begun>().is_some_and(|begun| number(out, begun.wall_ms))
        })
        .weak(),
        Variable::new(TIME, |r: &mut Request, _, out| {
            let Some(begun) = r.kept::<Begun>() else { return false };
            push_seconds(out, clock::mono_ms().saturating_sub(begun.mono_ms));
            true
        })
        .weak(),
    ],
    build: Some(build),
    filter: Some(Filter {
        header: Some(header),
        body: None,
        active: |slots| slots.get::<TimesLoc>().is_named.get().is_some(),
        reach: Reach::Main,
    }),
    ..HttpModule::EMPTY
};

fn build(b: &mut Build) -> ConfResult {
    if b.names_variable(START) || b.names_variable(TIME) {
        for conf in distinct::<TimesLoc>(b.locations) {
            conf.is_named.get_or_init(|| ());
        }
    }
    Ok(())
}

fn header(r: &mut Request, next: Next) -> FilterResult {
    let (secs, ms) = clock::wall();
    let wall_ms = u64::try_from(secs).unwrap_or(0) * 1000 + u64::from(ms);
    r.keep_state(Begun { wall_ms, mono_ms: clock::mono_ms() });
    next.header(r)
}
