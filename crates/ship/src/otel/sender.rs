//! The thread that sends an exporter's spans.

use super::counts::COUNTS;
use super::door::Door;
use super::running::{Exporter, Running};
use super::size::Size;
use super::trays::Tray;
use crate::secrets::Secrets;
use std::sync::atomic::Ordering;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};
use weir_core::logger::LogLevel;
use weir_shipping::backoff::Backoff;
use weir_shipping::otlp::answer::Verdict;
use weir_shipping::otlp::traces;

/// How often trays are looked into while there is something in them, and otherwise.
const LOOK: Duration = Duration::from_millis(5);
const REST: Duration = Duration::from_millis(50);
/// It counts as busy for so long, also when it begins.
const BUSY: Duration = Duration::from_secs(1);
/// Collectors that ask whether somebody is there wait for longer.
const LOOK_AT_DOOR: Duration = Duration::from_millis(500);
/// Dropped spans are told of so often.
const TELL_DROPPED: Duration = Duration::from_secs(1);
const RETRY_FIRST_MS: u64 = 100;
const RETRY_MOST_MS: u64 = 5000;
/// The same failure is told again after so long.
const TOLD: Duration = Duration::from_secs(60);
/// What is left of a configuration that is gone is sent for so long.
const LEFT: Duration = Duration::from_secs(60);

pub struct Sender {
    exporter: Arc<Exporter>,
    running: Arc<Running>,
    door: Door,
    secrets: Secrets,
    waiting: Tray,
    /// Since when the oldest waits.
    since: Option<Instant>,
    /// When something was found last.
    busy: Option<Instant>,
    left: Option<Instant>,
    /// When the idle connection was looked at.
    looked: Instant,
    backoff: Backoff,
    size: Size,
    told: Option<(String, Instant)>,
    dropped: u64,
    dropped_told: Option<Instant>,
}

impl Sender {
    pub fn new(exporter: Arc<Exporter>, running: Arc<Running>) -> Sender {
        let door = exporter.target.door(&running.stop);
        let secrets = Secrets::of_fields(&exporter.said.fields);
        Sender {
            exporter,
            running,
            door,
            secrets,
            waiting: Tray::default(),
            since: None,
            busy: Some(Instant::now()),
            left: None,
            looked: Instant::now(),
            backoff: Backoff::new(RETRY_FIRST_MS, RETRY_MOST_MS),
            size: Size::new(),
            told: None,
            dropped: COUNTS.dropped(),
            dropped_told: None,
        }
    }

    pub fn run(&mut self) {
        loop {
            let is_last = self.is_last();
            let is_all = self.look();
            self.tell_dropped();
            let is_over = self.running.stop.is_set() || self.is_given_up();
            match () {
                () if is_over || is_last && is_all && self.waiting.ends.is_empty() => {
                    if self.running.close() {
                        break;
                    }
                }
                () if self.is_due(is_last) => self.send(),
                () => {
                    self.look_at_door();
                    thread::sleep(self.pause());
                }
            }
        }
        // Nobody adds any more: what is left is lost, and said to be.
        if let Some(trays) = self.exporter.trays_in_use() {
            trays.empty(&mut self.waiting);
        }
        COUNTS.drop(self.waiting.ends.len());
        self.dropped_told = None;
        self.tell_dropped();
    }

    /// Whether nobody will add anything: to be asked before the trays are looked into.
    fn is_last(&self) -> bool {
        self.running.is_left() || self.running.is_finishing.load(Ordering::Acquire)
    }

    /// Of a configuration that is gone, what the collector does not take is not kept for ever.
    fn is_given_up(&mut self) -> bool {
        if !self.running.is_left() {
            self.left = None;
            return false;
        }
        self.left.get_or_insert_with(Instant::now).elapsed() > LEFT
    }

    /// Empties the trays, unless a batch waits already: what is not taken out of them counts there.
    fn look(&mut self) -> bool {
        let Some(trays) = self.exporter.trays_in_use() else { return true };
        if self.waiting.ends.len() >= self.exporter.said.batch_size {
            return false;
        }
        let had = self.waiting.ends.len();
        let is_all = trays.empty(&mut self.waiting);
        if self.waiting.ends.len() > had {
            self.busy = Some(Instant::now());
            self.since = self.since.or(self.busy);
        }
        is_all
    }

    fn is_due(&self, is_last: bool) -> bool {
        let Some(since) = self.since else { return false };
        let is_full = self.waiting.ends.len() >= self.exporter.said.batch_size
            || self.waiting.bytes.len() >= self.size.most_bytes();
        is_full || is_last || since.elapsed() >= self.exporter.said.interval
    }

    fn look_at_door(&mut self) {
        if self.looked.elapsed() > LOOK_AT_DOOR {
            self.door.look();
            self.looked = Instant::now();
        }
    }

    fn pause(&self) -> Duration {
        let interval = self.exporter.said.interval;
        match self.busy.is_some_and(|at| at.elapsed() < BUSY) {
            true => LOOK.min(interval),
            false => REST.min(interval.max(LOOK)),
        }
    }

    fn send(&mut self) {
        let most_bytes = self.size.most_bytes();
        let (count, spans) = self.waiting.first(self.exporter.said.batch_size, most_bytes);
        let bytes = spans.len();
        let message = traces::request(spans, &self.exporter.said.resource);
        let (verdict, after) = match self.door.export(&message) {
            Ok(answered) => answered,
            Err(why) => (Verdict::Later(why), None),
        };
        let mut takes_nothing = false;
        let refused = match verdict {
            Verdict::Taken(None) => 0,
            Verdict::Taken(Some(why)) => {
                let why = self.secrets.clean(&why);
                self.say(LogLevel::Warn, &format!("OTel export: {why}"));
                0
            }
            Verdict::TooLarge(_) if count > 1 => return self.size.refused(bytes, Instant::now()),
            Verdict::TooLarge(why) => {
                takes_nothing = true;
                self.refuse(1, &why)
            }
            Verdict::Refused(_, why) if count == 1 => self.refuse(1, &why),
            Verdict::Refused(n, why) => {
                self.refuse(usize::try_from(n).unwrap_or(usize::MAX).min(count), &why)
            }
            Verdict::Later(why) => return self.wait(&why, after),
        };
        COUNTS.send(count, refused);
        self.waiting.done(count);
        self.since = (!self.waiting.ends.is_empty()).then(Instant::now);
        if takes_nothing {
            // It need not be so for the others, now or later: they are not asked of it one by one without a pause.
            return self.pause_before_next(after);
        }
        self.size.taken(bytes, Instant::now());
        self.backoff.reset();
    }

    fn refuse(&mut self, count: usize, why: &str) -> usize {
        let why = self.secrets.clean(why);
        COUNTS.failed(&why);
        self.say(LogLevel::Error, &format!("OTel export failure: {why}"));
        count
    }

    /// Waits before the next try, in steps, so that an end is noticed.
    fn wait(&mut self, why: &str, after: Option<Duration>) {
        if self.running.stop.is_set() {
            return;
        }
        COUNTS.retry();
        let why = self.secrets.clean(why);
        COUNTS.failed(&why);
        self.say(LogLevel::Error, &format!("OTel export failure: {why}"));
        self.pause_before_next(after);
    }

    fn pause_before_next(&mut self, after: Option<Duration>) {
        let asked_ms = after.map(|d| u64::try_from(d.as_millis()).unwrap_or(u64::MAX));
        let ms = self.backoff.next_ms(asked_ms, crate::queue::random());
        let until = Instant::now() + Duration::from_millis(ms);
        while Instant::now() < until && !self.running.stop.is_set() && !self.is_given_up() {
            self.tell_dropped();
            thread::sleep(REST.min(until.saturating_duration_since(Instant::now())));
            if self.running.is_finishing.load(Ordering::Acquire) {
                break;
            }
        }
    }

    fn tell_dropped(&mut self) {
        let dropped = COUNTS.dropped();
        if dropped == self.dropped
            || self.dropped_told.is_some_and(|at| at.elapsed() < TELL_DROPPED)
        {
            return;
        }
        (self.dropped, self.dropped_told) = (dropped, Some(Instant::now()));
        self.running.log().log(
            LogLevel::Notice,
            None,
            format!("OTel dropped records: {dropped}").as_bytes(),
        );
    }

    /// Unless it is what was said last, and not long ago.
    fn say(&mut self, level: LogLevel, text: &str) {
        if self.told.as_ref().is_some_and(|(last, at)| last == text && at.elapsed() < TOLD) {
            return;
        }
        self.told = Some((text.to_owned(), Instant::now()));
        self.running.log().log(level, None, text.as_bytes());
    }
}
