//! `sysguard` (Tengine's `ngx_http_sysguard_module`): requests are turned away, or sent elsewhere, while the machine has
//! too much to do.
//!
//! The machine's figures are looked at by a thread, so that a request only compares numbers.

mod figures;
mod rows;

use figures::{Pace, Times};
use std::fmt::Write as _;
use std::rc::Rc;
use std::sync::atomic::Ordering;
use std::sync::{Arc, OnceLock};
use weir_core::generation::Generation;
use weir_core::logger::LogLevel;
use weir_core::Session;
use weir_http::build::Build;
use weir_http::generation::HttpConf;
use weir_http::marks::Mark;
use weir_http::module::{Flow, HttpModule, Phase, PhaseHandler};
use weir_http::redirect::{internal_redirect, named_location};
use weir_http::Request;
use weir_module::{
    distinct, merge_values, slot, ConfResult, ConfType, Level, SlotVtable, Slots, Val,
};

/// What is too much of one thing, and where requests go then; empty: they get 503.
#[derive(Clone, Default)]
struct Limit {
    value: u64,
    action: Vec<u8>,
}

type MayLimit = Val<Option<Limit>>;

#[derive(Default)]
struct GuardLoc {
    on: Val<bool>,
    all: Val<bool>,
    /// Thousandths.
    load: MayLimit,
    /// Hundredths of a percent, and over how many seconds.
    cpu: MayLimit,
    cpu_secs: Val<u64>,
    /// Percent.
    swap: MayLimit,
    /// Bytes; too little is too much.
    free: MayLimit,
    /// Milliseconds, and over how many seconds.
    time: MayLimit,
    period_secs: Val<u64>,
    interval_secs: Val<u64>,
    log_level: Val<LogLevel>,
    /// Of requests here, made when the configuration is built.
    times: OnceLock<Arc<Times>>,
}

impl ConfType for GuardLoc {
    const LEVEL: Level = Level::Location;
    slot!();

    fn merge(&mut self, parent: &GuardLoc) -> ConfResult {
        merge_values!(self, parent;
            on = false,
            all = false,
            load = None,
            cpu = None,
            cpu_secs = 3,
            swap = None,
            free = None,
            time = None,
            period_secs = 1,
            interval_secs = 1,
            log_level = LogLevel::Error,
        );
        Ok(())
    }
}

pub const MODULE: HttpModule = HttpModule {
    rows: rows::ROWS,
    slots: &[SlotVtable::of::<GuardLoc>()],
    phases: &[
        PhaseHandler { phase: Phase::Preaccess, handler, active },
        PhaseHandler { phase: Phase::Log, handler: count, active: counts },
    ],
    build: Some(build),
    start: Some(start),
    ..HttpModule::EMPTY
};

fn active(slots: &Slots) -> bool {
    *slots.get::<GuardLoc>().on
}

fn counts(slots: &Slots) -> bool {
    active(slots) && slots.get::<GuardLoc>().time.is_some()
}

fn build(b: &mut Build) -> ConfResult {
    for conf in distinct::<GuardLoc>(b.locations) {
        let times = || Arc::new(Times::new(*conf.period_secs, *conf.interval_secs));
        if *conf.on && conf.time.is_some() {
            conf.times.get_or_init(times);
        }
    }
    Ok(())
}

/// The thread looks as often as the most eager location wants.
fn start(gen: &Arc<Generation>, http: &HttpConf) {
    let confs = http.locations.iter().map(|l| l.conf::<GuardLoc>()).filter(|conf| *conf.on);
    let pace = confs.map(|c| Pace { interval_secs: *c.interval_secs, cpu_secs: *c.cpu_secs });
    let pace = pace.reduce(|a, b| Pace {
        interval_secs: a.interval_secs.min(b.interval_secs),
        cpu_secs: a.cpu_secs.min(b.cpu_secs),
    });
    if let Some(Pace { interval_secs, cpu_secs }) = pace {
        let pace = Pace { interval_secs: interval_secs.max(1), cpu_secs: cpu_secs.max(1) };
        figures::watch(Arc::downgrade(gen), pace);
    }
}

/// A request is judged once, with its parts and wherever it is sent to.
static JUDGED: Mark = Mark::for_parts();

fn handler(r: &mut Request) -> Flow {
    if r.has_mark(&JUDGED) {
        return Flow::Declined;
    }
    r.mark(&JUDGED);
    let loc = Rc::clone(r.loc());
    let conf = loc.conf::<GuardLoc>();
    let Some((limit, told)) = judge(conf) else { return Flow::Declined };
    told.iter().for_each(|text| r.log(*conf.log_level, text));
    match limit.action.first() {
        None => Flow::Status(503),
        Some(b'@') => named_location(r, &limit.action),
        Some(_) => {
            let args = r.args.clone();
            internal_redirect(r, &limit.action, &args)
        }
    }
}

/// The limit that decides, and what to say; `None`: all is well.
fn judge(conf: &GuardLoc) -> Option<(&Limit, Vec<String>)> {
    let (mut decides, mut told) = (None, Vec::new());
    for what in [What::Load, What::Cpu, What::Swap, What::Free, What::Time] {
        let Some(limit) = what.limit(conf).as_ref() else { continue };
        let now = what.now(conf);
        let is_over = if what == What::Free { now < limit.value } else { now > limit.value };
        match (is_over, *conf.all) {
            (true, all) => {
                decides = Some(limit);
                told.push(what.words(now, limit.value));
                if !all {
                    break;
                }
            }
            (false, true) => return None,
            (false, false) => {}
        }
    }
    decides.map(|limit| (limit, told))
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum What {
    Load,
    Cpu,
    Swap,
    Free,
    Time,
}

impl What {
    fn limit(self, conf: &GuardLoc) -> &Option<Limit> {
        match self {
            What::Load => &conf.load,
            What::Cpu => &conf.cpu,
            What::Swap => &conf.swap,
            What::Free => &conf.free,
            What::Time => &conf.time,
        }
    }

    fn now(self, conf: &GuardLoc) -> u64 {
        match self {
            What::Load => figures::LOAD.load(Ordering::Relaxed),
            What::Cpu => figures::CPU_USAGE.load(Ordering::Relaxed),
            What::Swap => figures::SWAP_PERCENT.load(Ordering::Relaxed),
            What::Free => figures::FREE_BYTES.load(Ordering::Relaxed),
            What::Time => conf.times.get().map_or(0, |times| times.average_ms()),
        }
    }

    /// In Tengine's words, for who looks for them in logs.
    fn words(self, now: u64, limit: u64) -> String {
        let (name, divisor, unit) = match self {
            What::Load => ("load", 1000, ""),
            What::Cpu => ("cpuusage", 100, ""),
            What::Swap => ("swap", 1, ""),
            What::Free => ("free", 1024 * 1024, "M"),
            What::Time => ("rt", 1000, ""),
        };
        let mut text = format!("sysguard {name} limited");
        for (what, value) in [(", current:", now), (" conf:", limit)] {
            // Writing into a String cannot fail.
            let _ = match divisor {
                1000 => write!(text, "{what}{}.{:03}", value / 1000, value % 1000),
                _ => write!(text, "{what}{}{unit}", value / divisor),
            };
        }
        text
    }
}

fn count(r: &mut Request) -> Flow {
    if let Some(times) = r.loc().conf::<GuardLoc>().times.get() {
        times.add(r.elapsed_ms());
    }
    Flow::Declined
}

#[cfg(test)]
mod tests {
    use super::What;

    #[test]
    fn words() {
        for (what, now, limit, text) in [
            (What::Load, 1234, 500, "sysguard load limited, current:1.234 conf:0.500"),
            (What::Free, 3 << 20, 9 << 20, "sysguard free limited, current:3M conf:9M"),
            (What::Swap, 30, 20, "sysguard swap limited, current:30 conf:20"),
            (What::Cpu, 5050, 5000, "sysguard cpuusage limited, current:50 conf:50"),
        ] {
            assert_eq!(what.words(now, limit), text);
        }
    }
}
