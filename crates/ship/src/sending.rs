//! A receiver's thread: batches out of the queue, tries, waits; what is done leaves the queue.

use crate::conf::Batching;
use crate::counts::Counts;
use crate::errors;
use crate::queue::{Range, Reading, State, Taken};
use crate::receiver::{Batch, Client, Entry, EventId, Outcome};
use crate::running::Ship;
use std::collections::HashSet;
use std::io;
use std::sync::atomic::Ordering;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};
use weir_core::logger::LogLevel;
use weir_core::os_text;
use weir_shipping::backoff::Backoff;

/// How often a queue that has nothing is looked at; sooner where batches linger less.
const LOOK_MS: u64 = 250;
/// How often segments of dead processes are looked for.
const ADOPT: Duration = Duration::from_secs(2);
/// A receiver that no configuration has any more is sent what is left for so long.
const LEFT: Duration = Duration::from_secs(60);
/// Of different reasons of refusals so many are told, each once; then only their number.
const REASONS_MAX: usize = 32;

/// Starts the thread; it ends with the process, or when nobody wants the receiver any more.
pub fn start(ship: &Arc<Ship>) {
    let own = Arc::clone(ship);
    let run = move || {
        errors::quietly(|| Sender::new(Arc::clone(&own)).run());
        own.end();
    };
    if let Err(e) = thread::Builder::new().name("ship".into()).spawn(run) {
        ship.log(LogLevel::Alert, &format!("no thread: {}", os_text(&e)));
        ship.end();
    }
}

struct Sender {
    ship: Arc<Ship>,
    batch: Batching,
    version: u64,
    client: Box<dyn Client>,
    reading: Reading,
    state: Option<State>,
    backoff: Backoff,
    adopted: Option<Instant>,
    /// Since when something waits that is no whole batch.
    lingers: Option<Instant>,
    left: Option<Instant>,
    reasons: HashSet<String>,
    /// Events of a batch that is repeated whose refusal was counted.
    counted: HashSet<EventId>,
}

impl Sender {
    fn new(ship: Arc<Ship>) -> Sender {
        let (version, plan) = (ship.version(), ship.plan());
        let client = plan.target.client(ship.ground());
        let backoff = Backoff::new(plan.retry.first_ms, plan.retry.most_ms);
        Sender {
            ship,
            batch: plan.batch.clone(),
            version,
            client,
            reading: Reading::default(),
            state: None,
            backoff,
            adopted: None,
            lingers: None,
            left: None,
            reasons: HashSet::new(),
            counted: HashSet::new(),
        }
    }

    fn run(&mut self) {
        while !self.ship.stop.is_set() {
            self.renew();
            self.look();
            match self.is_due() {
                true => self.send(),
                false if self.is_over() => break,
                false => self.pause(),
            }
        }
        self.look();
        if self.ship.is_left() {
            self.ship.queue.seal();
            self.reading.close(&self.ship.queue);
            self.state
                .take()
                .filter(|s| s.in_flight().is_empty())
                .into_iter()
                .for_each(State::remove);
        }
    }

    /// Takes what a reload has changed.
    fn renew(&mut self) {
        let version = self.ship.version();
        if version == self.version {
            return;
        }
        // The plan is not kept: who keeps it may still write.
        let plan = self.ship.plan();
        (self.version, self.batch) = (version, plan.batch.clone());
        self.client = plan.target.client(self.ship.ground());
        self.backoff = Backoff::new(plan.retry.first_ms, plan.retry.most_ms);
        self.reasons.clear();
    }

    /// Looks what there is.
    fn look(&mut self) {
        let queue = &self.ship.queue;
        self.reading.follow(queue);
        let is_finishing = self.ship.is_finishing.load(Ordering::Acquire);
        if !is_finishing && self.adopted.is_none_or(|at| at.elapsed() > ADOPT) {
            self.adopted = Some(Instant::now());
            self.adopt();
        }
        let lost = self.reading.clean(&self.ship.queue);
        for (path, events) in lost.cut {
            let text = format!(
                "\"{}\" was cut short by another program, {events} or more events are lost",
                path.display()
            );
            self.ship.log(LogLevel::Alert, &text);
        }
        if lost.bytes > 0 {
            Counts::add(&self.ship.counts.lost_bytes, lost.bytes);
            let text = format!("{} bytes of the queue are no events", lost.bytes);
            self.ship.log(LogLevel::Error, &text);
        }
        let waiting = self.reading.waiting();
        self.ship.counts.queued_bytes.store(waiting.bytes, Ordering::Relaxed);
        self.ship.counts.queued_events.store(waiting.events, Ordering::Relaxed);
        self.ship.counts.oldest_ms.store(waiting.oldest_ms, Ordering::Relaxed);
    }

    fn adopt(&mut self) {
        let adopted = self.reading.adopt(&self.ship.queue);
        if let Err(e) = adopted.and_then(|_| self.open_state()) {
            let text = format!("\"{}\": {}", self.ship.queue.dir.display(), os_text(&e));
            self.ship.counts.failed(&text);
            self.ship.say(LogLevel::Error, &text);
        }
    }

    fn open_state(&mut self) -> io::Result<()> {
        match &self.state {
            // Without a file those send that need not keep anything.
            None => match State::open(&self.ship.queue.dir) {
                Ok(state) => self.state = Some(state),
                Err(e) => {
                    self.state = Some(State::none());
                    return Err(e);
                }
            },
            Some(own) if !own.is_kept() => self.state = Some(State::open(&self.ship.queue.dir)?),
            // What another has left has its turn when nothing of our own is on its way.
            Some(own) if own.in_flight().is_empty() => {
                if let Some(left) = State::left(&self.ship.queue.dir)? {
                    match left.in_flight().is_empty() {
                        true => left.remove(),
                        false => {
                            let own = self.state.replace(left);
                            own.into_iter().for_each(State::remove);
                        }
                    }
                }
            }
            Some(_) => {}
        }
        Ok(())
    }

    /// Whether a batch is to be sent now.
    fn is_due(&mut self) -> bool {
        if self.state.is_none() {
            return false;
        }
        let batch = &self.batch;
        let taken = self.reading.take(batch.events, batch.bytes);
        if taken.entries.is_empty() {
            self.lingers = None;
            return false;
        }
        let since = *self.lingers.get_or_insert_with(Instant::now);
        let is_late = since.elapsed() >= Duration::from_millis(batch.linger_ms);
        taken.is_full || is_late || self.ship.is_finishing.load(Ordering::Acquire)
    }

    /// Whether there is nothing more to do for ever.
    fn is_over(&mut self) -> bool {
        if self.ship.is_finishing.load(Ordering::Acquire) {
            return true;
        }
        if !self.ship.is_left() {
            self.left = None;
            return false;
        }
        let since = *self.left.get_or_insert_with(Instant::now);
        self.lingers.is_none() && since.elapsed() > ADOPT
    }

    fn pause(&self) {
        thread::sleep(Duration::from_millis(LOOK_MS.min(self.batch.linger_ms.max(10))));
    }

    fn send(&mut self) {
        let Some(mut state) = self.state.take() else { return };
        let outcome = self.send_from(&mut state);
        self.state = Some(state);
        match outcome {
            Ok(Sent { is_all: true, .. }) => {
                self.ship.counts.took_all();
                self.backoff.reset();
                self.lingers = None;
            }
            Ok(Sent { why, after, has_moved, .. }) => {
                // One event that is refused for now holds up no others for longer and longer.
                if has_moved {
                    self.backoff.reset();
                }
                self.wait(&why, after);
            }
            Err(e) => {
                let text = format!("\"{}\": {}", self.ship.queue.dir.display(), os_text(&e));
                self.wait(&text, None);
            }
        }
    }

    fn send_from(&mut self, state: &mut State) -> io::Result<Sent> {
        let repeats = self.client.repeats();
        let is_repeated = repeats && !state.in_flight().is_empty();
        let Taken { entries, ranges, .. } = match is_repeated {
            true => self.reading.take_again(state.in_flight()),
            false => self.reading.take(self.batch.events, self.batch.bytes),
        };
        if entries.is_empty() {
            // What was on its way is gone, and nobody can send it.
            return state.note(&[]).map(|()| Sent::all());
        }
        if repeats && !is_repeated {
            state.note(&ranges)?;
        }
        let ids: Vec<EventId> = entries.iter().map(|e| e.id).collect();
        let bytes: Vec<u64> = entries.iter().map(|e: &Entry| e.json.len() as u64).collect();
        let outcome = self.client.send(&mut Batch { entries, kept: state, is_repeated });
        Counts::add(&self.ship.counts.batches, 1);
        let parts = Parts { ids, bytes, ranges };
        self.note(outcome, &parts, repeats, state)
    }

    /// Notes what became of a batch.
    fn note(
        &mut self,
        outcome: Outcome,
        parts: &Parts,
        repeats: bool,
        state: &mut State,
    ) -> io::Result<Sent> {
        let (done, refused, after) = match outcome {
            Outcome::All => (vec![true; parts.ids.len()], Vec::new(), None),
            Outcome::Later { why, after } => {
                return Ok(Sent { is_all: false, has_moved: false, why, after });
            }
            Outcome::Some { mut done, refused, again_after } => {
                done.resize(parts.ids.len(), false);
                (done, refused, again_after)
            }
        };
        let mut settled = done.clone();
        for (at, why) in &refused {
            if let (Some(place), Some(id)) = (settled.get_mut(*at), parts.ids.get(*at)) {
                *place = true;
                self.refuse(*id, why);
            }
        }
        let left = settled.iter().filter(|s| !**s).count();
        if left > 0 && repeats {
            let why = format!("{left} of {} events were not taken", settled.len());
            return Ok(Sent { is_all: false, has_moved: false, why, after });
        }
        let count = done.iter().zip(&parts.bytes).filter(|(done, _)| **done);
        let (n, bytes) = count.fold((0, 0), |(n, sum), (_, bytes)| (n + 1, sum + bytes));
        Counts::add(&self.ship.counts.sent, n);
        Counts::add(&self.ship.counts.sent_bytes, bytes);
        self.counted.clear();
        match left {
            0 if repeats => {
                self.reading.done_all(&parts.ranges);
                // Segments go only when nothing refers to them any more.
                state.note(&[])?;
            }
            _ => {
                let settled = parts.ids.iter().zip(&settled).filter(|(_, settled)| **settled);
                self.reading.done(&settled.map(|(id, _)| *id).collect::<Vec<_>>());
            }
        }
        let why = format!("{left} of {} events are to be sent again", settled.len());
        Ok(Sent { is_all: left == 0, has_moved: left < settled.len(), why, after })
    }

    fn refuse(&mut self, id: EventId, why: &str) {
        if !self.counted.insert(id) {
            return;
        }
        Counts::add(&self.ship.counts.refused, 1);
        let why = self.ship.clean(why);
        self.ship.counts.failed(&why);
        if self.reasons.len() < REASONS_MAX && self.reasons.insert(why.clone()) {
            self.ship.log(LogLevel::Error, &format!("an event was refused and is lost: {why}"));
        }
    }

    /// Waits before the next try, in steps, so that an end or a reload is noticed.
    fn wait(&mut self, why: &str, after: Option<Duration>) {
        if self.ship.stop.is_set() {
            return;
        }
        Counts::add(&self.ship.counts.retries, 1);
        let why = self.ship.clean(why);
        self.ship.counts.took_not_all(&why);
        self.ship.say(LogLevel::Warn, &why);
        let asked_ms = after.map(|d| d.as_millis().min(u128::from(u64::MAX)) as u64);
        let ms = self.backoff.next_ms(asked_ms, crate::queue::random());
        let until = Instant::now() + Duration::from_millis(ms);
        let version = self.version;
        while Instant::now() < until {
            let is_left = self.left.is_some_and(|since| since.elapsed() > LEFT);
            if self.ship.stop.is_set() || self.ship.version() != version || is_left {
                break;
            }
            self.look();
            let rest = until.saturating_duration_since(Instant::now());
            thread::sleep(rest.min(Duration::from_millis(LOOK_MS)));
        }
        self.give_up();
    }

    /// Of a receiver that nobody has any more, what cannot be sent stays in its folder.
    fn give_up(&mut self) {
        if !self.ship.is_left() {
            return;
        }
        let since = *self.left.get_or_insert_with(Instant::now);
        if since.elapsed() > LEFT {
            let dir = self.ship.queue.dir.display();
            self.ship.log(LogLevel::Warn, &format!("what is left stays in \"{dir}\""));
            self.ship.stop.set();
        }
    }
}

/// What a batch was made of.
struct Parts {
    ids: Vec<EventId>,
    bytes: Vec<u64>,
    ranges: Vec<Range>,
}

struct Sent {
    is_all: bool,
    /// Some of it was taken, or refused for good.
    has_moved: bool,
    why: String,
    after: Option<Duration>,
}

impl Sent {
    fn all() -> Sent {
        Sent { is_all: true, has_moved: true, why: String::new(), after: None }
    }
}
