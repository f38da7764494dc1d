//! `degrade` (nginx's `ngx_http_degradation_module`): some requests are refused while the process has much memory.

use std::sync::atomic::{AtomicU64, Ordering};
use weir_core::logger::LogLevel;
use weir_core::Session;
use weir_http::module::{Flow, HttpModule, Phase, PhaseHandler};
use weir_http::Request;
use weir_module::{
    merge_values, slot, ArgsExt, Arity, Cf, ConfResult, ConfType, Context, Directive, Level, Row,
    SlotVtable, Val,
};
use weir_runtime::{clock, memory};

#[derive(Default)]
struct DegradationMain {
    /// Bytes; 0 for no bound.
    most: Val<u64>,
}

impl ConfType for DegradationMain {
    const LEVEL: Level = Level::Main;
    slot!();
}

#[derive(Default)]
struct DegradationLoc {
    /// 0: requests are answered all the same.
    status: Val<u16>,
}

impl ConfType for DegradationLoc {
    const LEVEL: Level = Level::Location;
    slot!();

    fn merge(&mut self, parent: &DegradationLoc) -> ConfResult {
        merge_values!(self, parent; status = 0);
        Ok(())
    }
}

pub const MODULE: HttpModule = HttpModule {
    rows: &[
        Row::new(
            "degradation",
            Context::HTTP,
            Arity::ONE,
            "",
            "How much memory (sbrk=SIZE) is too much for what degrade is for.",
            set_most,
        )
        .note(
            "the memory that the process has resident, looked at once a second; nginx's is that of one worker's heap",
        ),
        Row::new(
            "degrade",
            Context::HSL,
            Arity::ONE,
            "",
            "The status that requests get while there is too much: 204 or 444 (no answer).",
            |cf, d| {
                let status = d.choice(0, &[("204", 204), ("444", 444)])?;
                cf.get::<DegradationLoc>().status.once(d, status)
            },
        ),
    ],
    slots: &[SlotVtable::of::<DegradationMain>(), SlotVtable::of::<DegradationLoc>()],
    build: Some(|_| {
        look();
        Ok(())
    }),
    phases: &[PhaseHandler {
        phase: Phase::Preaccess,
        handler,
        active: |slots| *slots.get::<DegradationLoc>().status != 0,
    }],
    ..HttpModule::EMPTY
};

fn set_most(cf: &mut Cf, d: &Directive) -> ConfResult {
    let size = d.keyed(0, "sbrk").ok_or_else(|| d.invalid(0))?;
    let size = weir_base::units::parse_size(size).ok_or_else(|| d.invalid(0))?;
    cf.get::<DegradationMain>().most.once(d, size)
}

/// What was seen last, and in which second.
static RESIDENT_BYTES: AtomicU64 = AtomicU64::new(0);
static SEEN_SECS: AtomicU64 = AtomicU64::new(0);

/// What the system does not say now is as it was.
fn look() {
    if let Some(bytes) = memory::resident_bytes() {
        RESIDENT_BYTES.store(bytes, Ordering::Relaxed);
    }
}

fn handler(r: &mut Request) -> Flow {
    let most = r.gen().shared.main.get::<DegradationMain>().most.as_option().copied().unwrap_or(0);
    if most == 0 {
        return Flow::Declined;
    }
    let now = clock::mono_ms() / 1000 + 1;
    let is_new = SEEN_SECS.swap(now, Ordering::Relaxed) != now;
    if is_new {
        look();
    }
    let bytes = RESIDENT_BYTES.load(Ordering::Relaxed);
    if bytes < most {
        return Flow::Declined;
    }
    if is_new {
        r.log(LogLevel::Notice, &format!("degradation: {}M of memory", bytes / (1024 * 1024)));
    }
    Flow::Status(*r.loc().conf::<DegradationLoc>().status)
}
