//! What is counted, over the end of a process: one that ends gives its figures to the one that takes its place, and one
//! that dies has left them with its master.
//!
//! The form is lines of text: `[NAME KIND` (the name in hexadecimal digits) with `FIELD PLACE NUMBER` below it. What
//! stands twice is added up, so that a process may give what has come since in a second text. Fields are told apart by
//! their names: a program with others takes those that it knows. What tells how it is now is not in it.

use super::{Count, Few, Histogram, Statuses};
use std::any::Any;
use std::collections::{BTreeMap, HashMap};
use std::fmt::Write;
use std::sync::{Arc, Mutex, OnceLock, PoisonError, Weak};

/// No text of figures is longer; what is more is not kept.
pub const KEPT_MAX_BYTES: usize = 16 << 20;
/// How many things that no configuration names (yet) may have figures from before.
const WAITING_MAX: usize = 20_000;

/// What is counted for a thing by each worker.
pub trait Part: Any + Default + Send + Sync {
    /// Shows all that is to be kept to who reads or writes it.
    fn each(&self, fields: &mut Fields<'_>);
}

/// Who reads the fields of a part, or adds to them.
pub enum Fields<'a> {
    /// Into a text.
    Read(&'a mut String),
    /// Out of what a text had.
    Add(&'a Known),
}

/// Numbers by fields and places in them.
#[derive(Clone, Debug, Default)]
pub struct Known(HashMap<String, BTreeMap<u32, u64>>);

impl Known {
    /// Whether a field of that name has any.
    pub fn has(&self, name: &str) -> bool {
        self.0.contains_key(name)
    }
}

impl Fields<'_> {
    /// What only grows.
    pub fn count(&mut self, name: &str, count: &Count) {
        self.number(name, count.get(), &mut |n| count.add(n));
    }

    /// The same of any number.
    pub fn number(&mut self, name: &str, now: u64, add: &mut dyn FnMut(u64)) {
        self.each_of(name, &mut std::iter::once((0, now)), &mut |_, n| add(n));
    }

    /// Several under one name.
    pub fn counts(&mut self, name: &str, counts: &[Count]) {
        let now = (0..).zip(counts).map(|(place, count)| (place, count.get()));
        self.each_of(name, &mut now.into_iter(), &mut |place, n| {
            if let Some(count) = counts.get(place as usize) {
                count.add(n);
            }
        });
    }

    /// By numbers of which there are few.
    pub fn few(&mut self, name: &str, few: &Few) {
        let all = few.all().into_iter().map(|(number, n)| (u32::from(number), n));
        self.each_of(name, &mut all.into_iter(), &mut |number, n| {
            if let Ok(number @ 1..) = u16::try_from(number) {
                few.add(number, n);
            }
        });
    }

    /// By their codes.
    pub fn statuses(&mut self, name: &str, statuses: &Statuses) {
        let all = statuses.all();
        self.each_of(name, &mut all.into_iter(), &mut |code, n| statuses.add_many(code, n));
    }

    /// By buckets; the longest and the sum stand by themselves.
    pub fn times(&mut self, name: &str, times: &Histogram) {
        let all = times.filled();
        self.each_of(name, &mut all.into_iter(), &mut |bucket, n| times.add_many(bucket, n));
        let sum = &mut std::iter::once((0, times.sum_us()));
        self.each_of(&format!("{name}.sum"), sum, &mut |_, n| times.add_sum(n));
        let longest = &mut std::iter::once((0, times.max_us()));
        self.each_of(&format!("{name}{LONGEST}"), longest, &mut |_, n| times.raise_max(n));
    }

    fn each_of(
        &mut self,
        name: &str,
        now: &mut dyn Iterator<Item = (u32, u64)>,
        add: &mut dyn FnMut(u32, u64),
    ) {
        match self {
            Fields::Read(out) => {
                for (place, n) in now.filter(|(_, n)| *n > 0) {
                    // A string takes what is written into it.
                    let _ = writeln!(out, "{name} {place} {n}");
                }
            }
            Fields::Add(known) => {
                known.0.get(name).into_iter().flatten().for_each(|(place, n)| add(*place, *n));
            }
        }
    }
}

/// Fields that are not added up: the largest counts.
const LONGEST: &str = ".max";

/// Something that is counted, whatever its parts are.
pub trait Keeps: Send + Sync {
    /// Reads all parts.
    fn read(&self, out: &mut String);
    /// Adds to the part that no worker counts in.
    fn add(&self, known: &Known);
}

type Thing = (String, Vec<u8>);

/// What is counted under a name, while anybody has it: as who counts sees it, and as what is kept does.
struct Live {
    whole: Weak<dyn Any + Send + Sync>,
    thing: Weak<dyn Keeps>,
}

/// Those that a configuration has, and figures of those that none has, as one may name them later.
#[derive(Default)]
struct Table {
    things: BTreeMap<Thing, Live>,
    waiting: HashMap<Thing, Known>,
    sweep_at: usize,
}

static TABLE: Mutex<Option<Table>> = Mutex::new(None);

/// Nothing else is locked in there.
fn with_table<T>(f: impl FnOnce(&mut Table) -> T) -> T {
    let mut guard = TABLE.lock().unwrap_or_else(PoisonError::into_inner);
    f(guard.get_or_insert_with(Table::default))
}

/// What is counted under that name of that kind, made if nothing is. It goes on where the process before stood.
pub(super) fn named<T: Keeps + Any>(
    kind: &'static str,
    name: &[u8],
    make: impl FnOnce() -> T,
) -> Arc<T> {
    let (thing, waited) = with_table(|table| {
        let key = (kind.to_string(), name.to_vec());
        let found = table.things.get(&key).and_then(|live| live.whole.upgrade());
        if let Some(known) = found.and_then(|whole| whole.downcast::<T>().ok()) {
            return (known, None);
        }
        table.sweep();
        let thing = Arc::new(make());
        let (whole, keeps): (Arc<dyn Any + Send + Sync>, Arc<dyn Keeps>) =
            (Arc::<T>::clone(&thing), Arc::<T>::clone(&thing));
        let live = Live { whole: Arc::downgrade(&whole), thing: Arc::downgrade(&keeps) };
        let waited = table.waiting.remove(&key);
        table.things.insert(key, live);
        (thing, waited)
    });
    if let Some(known) = waited {
        thing.add(&known);
    }
    thing
}

/// Has what is there but once kept.
pub fn keep<T: Keeps + Any>(kind: &'static str, thing: &Arc<T>) {
    let whole: Arc<dyn Any + Send + Sync> = Arc::<T>::clone(thing);
    let keeps: Arc<dyn Keeps> = Arc::<T>::clone(thing);
    let live = Live { whole: Arc::downgrade(&whole), thing: Arc::downgrade(&keeps) };
    let key = (kind.to_string(), Vec::new());
    let waited = with_table(|table| {
        table.things.insert(key.clone(), live);
        table.waiting.remove(&key)
    });
    waited.iter().for_each(|known| thing.add(known));
}

static SHOWN: OnceLock<fn()> = OnceLock::new();

/// Calls that whenever figures are shown to somebody.
pub fn when_shown(do_this: fn()) {
    let _ = SHOWN.set(do_this);
}

/// Figures are about to be shown: a process that is killed behind that has left no less.
pub fn shown() {
    if let Some(do_this) = SHOWN.get() {
        do_this();
    }
}

/// All that is counted, as a text.
pub fn read_all() -> String {
    let things: Vec<(Thing, Arc<dyn Keeps>)> = with_table(|table| {
        let things = table.things.iter();
        things.filter_map(|(key, live)| Some((key.clone(), live.thing.upgrade()?))).collect()
    });
    let mut out = String::new();
    for ((kind, name), thing) in things {
        let begun = out.len();
        head(&mut out, &kind, &name);
        let empty = out.len();
        thing.read(&mut out);
        if out.len() == empty || out.len() > KEPT_MAX_BYTES {
            out.truncate(begun);
        }
    }
    for ((kind, name), known) in with_table(|table| table.waiting.clone()) {
        let begun = out.len();
        head(&mut out, &kind, &name);
        write_known(&mut out, &known);
        if out.len() > KEPT_MAX_BYTES {
            out.truncate(begun);
        }
    }
    out
}

fn head(out: &mut String, kind: &str, name: &[u8]) {
    out.push('[');
    name.iter().for_each(|b| {
        let _ = write!(out, "{b:02x}");
    });
    let _ = writeln!(out, " {kind}");
}

fn write_known(out: &mut String, known: &Known) {
    for (field, places) in &known.0 {
        for (place, n) in places {
            let _ = writeln!(out, "{field} {place} {n}");
        }
    }
}

/// What a text has; what is none of its lines is passed over.
fn parse(text: &str) -> HashMap<Thing, Known> {
    let mut all = HashMap::<Thing, Known>::new();
    let mut at: Option<Thing> = None;
    for line in text.lines() {
        if let Some(head) = line.strip_prefix('[') {
            at = head
                .split_once(' ')
                .and_then(|(name, kind)| Some((kind.to_string(), unhex(name)?)));
            continue;
        }
        let mut words = line.split(' ');
        let (Some(thing), Some(field), Some(place), Some(n)) =
            (&at, words.next(), words.next(), words.next())
        else {
            continue;
        };
        let (Ok(place), Ok(n)) = (place.parse::<u32>(), n.parse::<u64>()) else { continue };
        let known = match all.get_mut(thing) {
            Some(known) => known,
            None => all.entry(thing.clone()).or_default(),
        };
        add_to(known, field, place, n);
    }
    all
}

fn add_to(known: &mut Known, field: &str, place: u32, n: u64) {
    let places = match known.0.get_mut(field) {
        Some(places) => places,
        None => known.0.entry(field.to_string()).or_default(),
    };
    let sum = places.entry(place).or_default();
    *sum = match field.ends_with(LONGEST) {
        true => n.max(*sum),
        false => sum.saturating_add(n),
    };
}

fn unhex(text: &str) -> Option<Vec<u8>> {
    let digit = |b: u8| (b as char).to_digit(16);
    let pairs = text.as_bytes().chunks(2).map(|pair| match pair {
        [a, b] => Some((digit(*a)? * 16 + digit(*b)?) as u8),
        _ => None,
    });
    pairs.collect()
}

/// Adds what another process has counted. What nothing is counted for waits until a configuration names it.
pub fn add_all(text: &str) {
    for (key, known) in parse(text) {
        let found = with_table(|table| {
            let thing = table.things.get(&key).and_then(|live| live.thing.upgrade());
            if thing.is_none() {
                table.wait(key, &known);
            }
            thing
        });
        if let Some(thing) = found {
            thing.add(&known);
        }
    }
}

impl Table {
    fn sweep(&mut self) {
        if self.things.len() >= self.sweep_at {
            self.things.retain(|_, live| live.thing.strong_count() > 0);
            self.sweep_at = 2 * self.things.len() + 64;
        }
    }

    fn wait(&mut self, key: Thing, known: &Known) {
        if self.waiting.len() >= WAITING_MAX && !self.waiting.contains_key(&key) {
            return;
        }
        let waiting = self.waiting.entry(key).or_default();
        for (field, places) in &known.0 {
            places.iter().for_each(|(place, n)| add_to(waiting, field, *place, *n));
        }
    }
}

/// What a text has beyond an earlier one of the same process, as a text.
pub fn since(now: &str, before: &str) -> String {
    let before = parse(before);
    let mut out = String::new();
    for (thing, mut known) in parse(now) {
        let had = before.get(&thing);
        for (field, places) in &mut known.0 {
            let Some(had) = had.and_then(|had| had.0.get(field)) else { continue };
            if !field.ends_with(LONGEST) {
                places.iter_mut().for_each(|(place, n)| {
                    *n = n.saturating_sub(had.get(place).copied().unwrap_or(0));
                });
            }
            places.retain(|_, n| *n > 0);
        }
        let begun = out.len();
        head(&mut out, &thing.0, &thing.1);
        let empty = out.len();
        write_known(&mut out, &known);
        if out.len() == empty {
            out.truncate(begun);
        }
    }
    out
}

/// A text in pieces that are texts of their own and no longer than that, if its lines are not.
pub fn pieces(text: &str, max_bytes: usize) -> Vec<String> {
    let mut pieces = Vec::new();
    let (mut piece, mut head) = (String::new(), "");
    for line in text.split_inclusive('\n') {
        if line.starts_with('[') {
            head = line;
        }
        if piece.len() + line.len() + head.len() > max_bytes && !piece.is_empty() {
            pieces.push(std::mem::take(&mut piece));
            if !line.starts_with('[') {
                piece.push_str(head);
            }
        }
        piece.push_str(line);
    }
    if !piece.is_empty() {
        pieces.push(piece);
    }
    pieces
}

#[cfg(test)]
mod tests {
    use super::super::Counted;
    use super::*;

    #[derive(Default)]
    struct Of {
        begun: Count,
        statuses: Statuses,
        took: Histogram,
    }

    impl Part for Of {
        fn each(&self, fields: &mut Fields<'_>) {
            fields.count("begun", &self.begun);
            fields.statuses("statuses", &self.statuses);
            fields.times("took", &self.took);
        }
    }

    fn of_kind(text: &str, kind: &str) -> String {
        let wanted = format!(" {kind}\n");
        let mut inside = false;
        let lines = text.split_inclusive('\n').filter(|line| {
            inside = if line.starts_with('[') { line.ends_with(&wanted) } else { inside };
            inside
        });
        lines.collect()
    }

    #[test]
    fn what_one_process_has_counted_another_adds() {
        let old: Arc<Counted<Of>> = Counted::named("kept old", b"a b\n");
        let part = old.part(3);
        part.begun.add(3);
        part.statuses.add(200);
        part.statuses.add(404);
        part.took.add(1000);
        part.took.add(70);
        let first = of_kind(&read_all(), "kept old");
        assert!(first.starts_with("[6120620a kept old\nbegun 0 3\n"), "{first}");
        part.statuses.add(200);
        part.took.add(2000);
        let more = since(&of_kind(&read_all(), "kept old"), &first);
        // What the other has is known to it by now, or will be.
        let renamed = |text: &str| text.replace("kept old", "kept new");
        let new: Arc<Counted<Of>> = Counted::named("kept new", b"a b\n");
        new.part(0).statuses.add(200);
        pieces(&renamed(&first), 40).iter().for_each(|piece| {
            assert!(piece.len() <= 40 && piece.starts_with('['), "{piece}");
            add_all(piece);
        });
        add_all(&renamed(&more));
        assert_eq!(new.sum(|p| p.begun.get()), 3);
        assert_eq!(new.sum(|p| p.statuses.total()), 4);
        let times = new.times(|p| &p.took);
        assert_eq!((times.count(), times.sum_us(), times.max_us()), (3, 3070, 2000));
        add_all(
            "[61 kept later\nbegun 0 7\nnone 0 1\nbegun x 1\n\u{e9}\n[6 kept later\nbegun 0 9\n",
        );
        let later: Arc<Counted<Of>> = Counted::named("kept later", b"a");
        assert_eq!(later.sum(|p| p.begun.get()), 7);
        let again: Arc<Counted<Of>> = Counted::named("kept later", b"a");
        assert_eq!(again.sum(|p| p.begun.get()), 7);
    }
}
