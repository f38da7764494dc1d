//! A module whose filters wait, each time, until the test lets them go on.

use std::collections::HashMap;
use std::rc::Rc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use tokio::sync::Semaphore;
use weir_http::module::{Filter, FilterError, FilterResult, HttpModule, Next, Reach};
use weir_http::{Buf, Chain, Data, Request};
use weir_module::first::{bytes, flag, num};
use weir_module::{
    merge_values, set, slot, Arity, Cf, ConfResult, ConfType, Context, Level, Row, SlotVtable, Val,
};

/// What a test opens, and what it sees of those who wait.
pub struct Gate {
    header: Semaphore,
    body: Semaphore,
    /// Waits that have begun, that have ended, and that were given up.
    pub begun: AtomicUsize,
    pub ended: AtomicUsize,
    pub dropped: AtomicUsize,
    /// Bytes that the body filter was given.
    pub seen_bytes: AtomicUsize,
}

static ALL: Mutex<Option<HashMap<Vec<u8>, Arc<Gate>>>> = Mutex::new(None);

impl Gate {
    /// The gate of a name, which is closed at first.
    pub fn of(name: &[u8]) -> Arc<Gate> {
        let mut all = ALL.lock().unwrap();
        let made = || {
            Arc::new(Gate {
                header: Semaphore::new(0),
                body: Semaphore::new(0),
                begun: AtomicUsize::new(0),
                ended: AtomicUsize::new(0),
                dropped: AtomicUsize::new(0),
                seen_bytes: AtomicUsize::new(0),
            })
        };
        Arc::clone(all.get_or_insert_default().entry(name.to_vec()).or_insert_with(made))
    }

    pub fn let_headers(&self, n: usize) {
        self.header.add_permits(n);
    }

    pub fn let_bodies(&self, n: usize) {
        self.body.add_permits(n);
    }

    /// Waits until a count has come to that.
    #[track_caller]
    pub fn expect(&self, count: fn(&Gate) -> &AtomicUsize, wanted: usize) {
        let start = Instant::now();
        while count(self).load(Ordering::Relaxed) != wanted {
            let is = count(self).load(Ordering::Relaxed);
            assert!(start.elapsed() < Duration::from_secs(20), "{is} instead of {wanted}");
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    async fn pass<T>(self: Arc<Gate>, gate: fn(&Gate) -> &Semaphore, carried: T) -> T {
        self.begun.fetch_add(1, Ordering::Relaxed);
        let mut passing = Passing(Arc::clone(&self), false);
        gate(&self).acquire().await.unwrap().forget();
        passing.1 = true;
        carried
    }
}

struct Passing(Arc<Gate>, bool);

impl Drop for Passing {
    fn drop(&mut self) {
        let count = if self.1 { &self.0.ended } else { &self.0.dropped };
        count.fetch_add(1, Ordering::Relaxed);
    }
}

#[derive(Default)]
struct Loc {
    name: Val<Vec<u8>>,
    in_header: Val<bool>,
    in_body: Val<bool>,
    of_parts: Val<bool>,
    refuse: Val<u64>,
}

impl ConfType for Loc {
    const LEVEL: Level = Level::Location;
    slot!();
    fn merge(&mut self, parent: &Loc) -> ConfResult {
        merge_values!(self, parent; name = Vec::new(), in_header = false, in_body = false, of_parts = false, refuse = 0);
        Ok(())
    }
}

const ROWS: &[Row] = &[
    Row::new("gate", Context::HSL, Arity::ONE, "", "Its name.", set!(Cf::get::<Loc>, name, bytes)),
    Row::new(
        "gate_header",
        Context::HSL,
        Arity::FLAG,
        "",
        "Headers wait.",
        set!(Cf::get::<Loc>, in_header, flag),
    ),
    Row::new(
        "gate_body",
        Context::HSL,
        Arity::FLAG,
        "",
        "Bodies wait.",
        set!(Cf::get::<Loc>, in_body, flag),
    ),
    Row::new(
        "gate_parts",
        Context::HSL,
        Arity::FLAG,
        "",
        "Those of parts, not the whole.",
        set!(Cf::get::<Loc>, of_parts, flag),
    ),
    Row::new(
        "gate_refuse",
        Context::HSL,
        Arity::ONE,
        "",
        "A status instead.",
        set!(Cf::get::<Loc>, refuse, num),
    ),
];

/// For parts.
pub const PARTS: HttpModule = HttpModule {
    rows: ROWS,
    slots: &[SlotVtable::of::<Loc>()],
    filter: Some(Filter {
        header: Some(header),
        body: Some(body),
        active: |slots| !slots.get::<Loc>().name.is_empty() && *slots.get::<Loc>().of_parts,
        reach: Reach::Part,
    }),
    ..HttpModule::EMPTY
};

/// For what is put together.
pub const WHOLE: HttpModule = HttpModule {
    filter: Some(Filter {
        header: Some(header),
        body: Some(body),
        active: |slots| !slots.get::<Loc>().name.is_empty() && !*slots.get::<Loc>().of_parts,
        reach: Reach::Whole,
    }),
    body_on_demand: true,
    ..HttpModule::EMPTY
};

/// A response whose body is to wait.
struct Waits;

fn header(r: &mut Request, next: Next) -> FilterResult {
    let loc = Rc::clone(r.loc());
    let conf = loc.conf::<Loc>();
    r.set_ctx(Waits);
    r.flags.filter_needs_memory = true;
    r.out.clear_content_length();
    if !*conf.in_header || r.out.status != 200 {
        return next.header(r);
    }
    let gate = Gate::of(&conf.name);
    r.wait_in_header(next, gate.pass(|g| &g.header, *conf.refuse), |r, refuse, next| {
        if refuse > 0 {
            return Err(FilterError::Status(refuse as u16));
        }
        r.out.add(b"X-Waited", b"yes");
        next.header(r)
    })
}

fn body(r: &mut Request, chain: Chain, next: Next) -> FilterResult {
    let loc = Rc::clone(r.loc());
    let conf = loc.conf::<Loc>();
    let gate = Gate::of(&conf.name);
    gate.seen_bytes.fetch_add(chain.len() as usize, Ordering::Relaxed);
    let Some(chain) = r.keep_while_waiting(chain, next) else { return Ok(()) };
    if !*conf.in_body
        || chain.iter().all(Buf::is_empty)
        || !r.has_ctx::<Waits>()
        || r.out.status != 200
    {
        return next.body(r, chain);
    }
    r.wait_in_body(next, gate.pass(|g| &g.body, chain), |r, chain, next| {
        next.body(r, upper(chain))
    });
    Ok(())
}

/// So that it is seen that the filter has had it, once.
fn upper(chain: Chain) -> Chain {
    let mut out = Chain::new();
    for buf in chain {
        let data = match &buf.data {
            Data::Mem(text) => {
                // Twice would be seen as well.
                let swapped = text.iter().map(|b| match b.is_ascii_lowercase() {
                    true => b.to_ascii_uppercase(),
                    false => b.to_ascii_lowercase(),
                });
                Data::Mem(swapped.collect::<Vec<u8>>().into())
            }
            _ => buf.data.clone(),
        };
        out.push(Buf { data, ..buf });
    }
    out
}
