//! What is told of the program itself: `/nginx` and `/processes`.

use std::sync::atomic::Ordering;
use weir_base::date::format_iso8601;
use weir_core::counters::RESPAWNED;
use weir_core::figures::{Figures, Report};
use weir_core::{Worker, SERVER_VERSION};
use weir_http::HttpModule;
use weir_module::{slot, ConfType, Level, SlotVtable, Slots};
use weir_runtime::{clock, process};

/// Without directives.
pub const MODULE: HttpModule = HttpModule {
    slots: &[SlotVtable::of::<Loaded>()],
    build: Some(|b| {
        b.main.get_mut::<Loaded>().0 = clock::wall();
        Ok(())
    }),
    reports: &[
        Report { path: "/nginx", put: report_program },
        Report { path: "/processes", put: report_processes },
    ],
    ..HttpModule::EMPTY
};

/// When the configuration was loaded: seconds and milliseconds.
#[derive(Default)]
struct Loaded((i64, u32));

impl ConfType for Loaded {
    const LEVEL: Level = Level::Main;
    slot!();
}

/// ISO 8601 with milliseconds: `2022-06-28T11:15:44.467Z`.
pub(crate) fn timestamp((secs, ms): (i64, u32)) -> String {
    let whole = format_iso8601(secs, 0);
    format!("{}.{ms:03}Z", String::from_utf8_lossy(&whole[..19]))
}

fn report_program(worker: &Worker, main: &Slots, figures: &mut Figures) {
    figures.put("version", SERVER_VERSION.rsplit('/').next().unwrap_or_default());
    figures.put("build", SERVER_VERSION.replace('/', "-"));
    figures.put("generation", worker.generation().shared.number);
    figures.put("load_timestamp", timestamp(main.get::<Loaded>().0));
    figures.put("timestamp", timestamp(clock::wall()));
    figures.put("pid", u64::from(process::pid()));
    figures.put("ppid", u64::from(process::parent_pid()));
}

fn report_processes(_: &Worker, _: &Slots, figures: &mut Figures) {
    figures.put("respawned", RESPAWNED.load(Ordering::Relaxed));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_have_milliseconds() {
        assert_eq!(timestamp((1_656_414_944, 7)), "2022-06-28T11:15:44.007Z");
    }
}
