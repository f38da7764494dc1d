//! Figures of the process as a whole: connections, workers, what serves since when. Those of all protocols are
//! there, for connections are counted where they are accepted.

use std::sync::atomic::{AtomicU64, Ordering};
use weir_core::counters::{Counters, RESPAWNED};
use weir_core::figures::{Figure, Figures, Report, Served};
use weir_core::{resolver, tls, SERVER_VERSION};
use weir_module::Slots;
use weir_runtime::{clock, process};

/// The last release of NGINX Plus whose API has no `/license`: clients look for it in `build`, and ask for no more then.
const PLUS_RELEASE: u64 = 32;

/// `/connections` and the other places at the root.
pub(crate) const REPORTS: &[Report] = &[
    Report { path: "/connections", put: connections },
    Report { path: "/nginx", put: server },
    Report { path: "/processes", put: processes },
    Report { path: "/ssl", put: |_, _, figures| tls::counted::put(figures) },
    Report { path: "/resolvers", put: |_, _, figures| resolver::put(figures) },
    Report { path: "/", put: workers },
];

fn connections(served: &Served, _: &Slots, figures: &mut Figures) {
    let sum = |pick: fn(&Counters) -> &AtomicU64| served.all.sum(pick);
    let (accepted, handled) = (sum(|c| &c.accepted), sum(|c| &c.handled));
    let (all, waiting) = (sum(|c| &c.active), sum(|c| &c.waiting));
    figures.put_all(&[
        ("accepted", accepted),
        ("dropped", accepted.saturating_sub(handled)),
        ("active", all.saturating_sub(waiting)),
        ("idle", waiting),
        ("handled", handled),
        ("reading", sum(|c| &c.reading)),
        ("writing", sum(|c| &c.writing)),
        ("requests", sum(|c| &c.requests)),
    ]);
}

fn server(served: &Served, _: &Slots, figures: &mut Figures) {
    let generation = served.gen;
    let (name, version) = SERVER_VERSION.split_once('/').unwrap_or(("", SERVER_VERSION));
    let (secs, ms) = clock::wall();
    figures.put("version", version);
    figures.put("build", format!("{name}-{version}-r{PLUS_RELEASE}"));
    figures.put("generation", generation.number);
    let (loaded_secs, loaded_ms) = generation.loaded;
    figures.put("load_timestamp", Figure::date(loaded_secs, loaded_ms));
    figures.put("timestamp", Figure::date(secs, ms));
    figures.put("pid", u64::from(process::pid()));
    figures.put("ppid", u64::from(process::parent_pid()));
}

fn processes(_: &Served, _: &Slots, figures: &mut Figures) {
    figures.put("respawned", RESPAWNED.load(Ordering::Relaxed));
}

fn busy_ms(since_ms: u64) -> u64 {
    match since_ms {
        0 => 0,
        since => clock::mono_ms().saturating_sub(since),
    }
}

/// Workers are threads: they have the process's number, and their own in `id`. Those that rest are there as long
/// as they have connections.
fn workers(served: &Served, _: &Slots, figures: &mut Figures) {
    let working = served.all.workers();
    let get = |n: &AtomicU64| n.load(Ordering::Relaxed);
    let each = served.all.each.iter().enumerate();
    let shown = each.filter(|(id, c)| *id < working || get(&c.active) > 0).map(|(id, c)| {
        let mut figures = Figures::default();
        figures.put("id", id as u64);
        figures.put("pid", u64::from(process::pid()));
        let (accepted, handled, waiting) = (get(&c.accepted), get(&c.handled), get(&c.waiting));
        figures.group("connections").put_all(&[
            ("accepted", accepted),
            ("dropped", accepted.saturating_sub(handled)),
            ("active", get(&c.active).saturating_sub(waiting)),
            ("idle", waiting),
        ]);
        if let Some(times) = process::thread_times(get(&c.thread)) {
            figures.put("busy_time", times.busy_us / 1000);
            figures.put("queued_time", times.queued_us / 1000);
        }
        let requests =
            [("total", get(&c.requests)), ("current", get(&c.reading) + get(&c.writing))];
        figures.group("http").group("requests").put_all(&requests);
        // For how long it has not come back to wait: long, and without an answer, it is stuck.
        figures.put("busy_ms", busy_ms(get(&c.busy_since_ms)));
        Figure::Group(figures)
    });
    figures.put("workers", Figure::List(shown.collect()));
}
