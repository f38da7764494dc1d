//! The reading side of a queue: segments in order, batches of what they have, what of it is done.
//!
//! Each segment keeps how far it is done in a word of its own, behind which nothing is sent again after a restart.
//! Beyond it single events may be done, which this process knows; another would send them again under the same names.

use super::{read_label, Made, Queue};
use std::collections::BTreeSet;
use std::io;
use std::path::PathBuf;
use std::sync::atomic::Ordering;
use weir_runtime::mapped::{self, Reader, LABEL_BYTES};
use weir_shipping::event::EventId;
use weir_shipping::record::{framed_bytes, Records};

use crate::receiver::Entry;

/// A file that is none is removed only when nobody can be making it.
const HALF_MADE_SECS: u64 = 60;

struct Segment {
    number: u64,
    random: u64,
    reader: Reader,
    path: PathBuf,
    /// Places of events beyond the kept word that are done.
    done: BTreeSet<usize>,
    /// Up to where events have been counted, and how many of them are not behind the kept word.
    counted: usize,
    events: u64,
}

/// A part of a segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Range {
    pub number: u64,
    pub random: u64,
    pub from: u64,
    pub to: u64,
}

/// What a batch was made of, and whether there is more.
pub struct Taken<'a> {
    pub entries: Vec<Entry<'a>>,
    pub ranges: Vec<Range>,
    /// The bounds of the batch ended it.
    pub is_full: bool,
}

/// What was found in segments and is no event.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Lost {
    /// That could not be read as events.
    pub bytes: u64,
    /// Files that another program has cut short, with the events that they are known to have had.
    pub cut: Vec<(PathBuf, u64)>,
}

/// All segments that this process reads.
#[derive(Default)]
pub struct Reading {
    segments: Vec<Segment>,
    /// Of other processes' segments.
    foreign_bytes: u64,
}

/// How much there is to be sent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Waiting {
    pub bytes: u64,
    pub events: u64,
    /// When the first of it was written; 0: nothing waits.
    pub oldest_ms: u64,
}

impl Reading {
    /// Takes over segments that were made since.
    pub fn follow(&mut self, queue: &Queue) {
        for Made { number, random, reader, path } in queue.take_made() {
            self.insert(Segment::new(number, random, reader, path));
        }
    }

    fn insert(&mut self, segment: Segment) {
        let at = self.segments.partition_point(|s| s.number < segment.number);
        self.segments.insert(at, segment);
    }

    /// Takes over segments that dead processes have left; how many.
    ///
    /// # Errors
    ///
    /// The folder cannot be read, or a segment in it.
    pub fn adopt(&mut self, queue: &Queue) -> io::Result<usize> {
        let (mut adopted, mut next, mut failed) = (0, 1, None);
        self.foreign_bytes = 0;
        for entry in std::fs::read_dir(&queue.dir)? {
            let path = entry?.path();
            if path.extension().is_none_or(|e| e != "seg") {
                continue;
            }
            let name = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
            let Ok(number) = u64::from_str_radix(&name, 16) else { continue };
            next = next.max(number.saturating_add(1));
            if self.segments.iter().any(|s| s.path == path) {
                continue;
            }
            match mapped::open(&path) {
                Ok(reader) => match read_label(&reader.label()) {
                    Some((number, random)) => {
                        self.insert(Segment::new(number, random, reader, path));
                        adopted += 1;
                    }
                    None => {
                        if reader.label() == [0; LABEL_BYTES] {
                            remove_half_made(&path);
                        }
                    }
                },
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => {
                    let bytes = std::fs::metadata(&path).map_or(0, |m| m.len());
                    self.foreign_bytes += bytes;
                }
                Err(e) if e.kind() == io::ErrorKind::InvalidData => remove_half_made(&path),
                // It is whole, for all that is known (another's rights, too few descriptors): it stays.
                Err(e) => {
                    self.foreign_bytes += std::fs::metadata(&path).map_or(0, |m| m.len());
                    failed = Some(e);
                }
            }
        }
        queue.number_from(next);
        // What has just been made is another's only in passing; it is counted with the next look.
        self.count(queue);
        match failed {
            Some(e) if adopted == 0 => Err(e),
            _ => Ok(adopted),
        }
    }

    fn count(&self, queue: &Queue) {
        let own: u64 = self.segments.iter().map(|s| s.reader.file_bytes()).sum();
        let made: u64 = super::lock(&queue.made).iter().map(|m| m.reader.file_bytes()).sum();
        queue.held_bytes.store(own + made + self.foreign_bytes, Ordering::Relaxed);
    }

    pub fn waiting(&mut self) -> Waiting {
        let mut waiting = Waiting::default();
        for segment in &mut self.segments {
            waiting.events += segment.count();
            let (from, data) = (segment.reader.kept() as usize, segment.reader.committed());
            waiting.bytes += data.len().saturating_sub(from) as u64;
            if let Some(Ok((_, record))) = Records::new(data, from).next() {
                if waiting.oldest_ms == 0 || record.time_ms < waiting.oldest_ms {
                    waiting.oldest_ms = record.time_ms;
                }
            }
        }
        waiting
    }

    /// Of each segment in order what is not done, up to so many events and bytes.
    pub fn take(&self, events: usize, bytes: usize) -> Taken<'_> {
        let mut taken = Taken { entries: Vec::new(), ranges: Vec::new(), is_full: false };
        let mut room = bytes;
        for segment in &self.segments {
            let from = segment.reader.kept() as usize;
            let mut records = Records::new(segment.reader.committed(), from);
            let mut to = from;
            while let Some(Ok((at, record))) = records.next() {
                let is_too_much = record.json.len() > room && !taken.entries.is_empty();
                if taken.entries.len() == events || is_too_much {
                    taken.is_full = true;
                    break;
                }
                to = records.at();
                if !segment.done.contains(&at) {
                    room = room.saturating_sub(record.json.len());
                    taken.entries.push(segment.entry(at, &record));
                }
            }
            if to > from {
                taken.ranges.push(segment.range(from, to));
            }
            if taken.is_full {
                break;
            }
        }
        taken
    }

    /// All events of these parts of segments; nothing of one that is gone.
    pub fn take_again(&self, ranges: &[Range]) -> Taken<'_> {
        let mut taken = Taken { entries: Vec::new(), ranges: ranges.to_vec(), is_full: true };
        for range in ranges {
            let Some(segment) = self.find(range) else { continue };
            let mut records = Records::new(segment.reader.committed(), range.from as usize);
            while records.at() < range.to as usize {
                let Some(Ok((at, record))) = records.next() else { break };
                taken.entries.push(segment.entry(at, &record));
            }
        }
        taken
    }

    fn find(&self, range: &Range) -> Option<&Segment> {
        self.segments.iter().find(|s| (s.number, s.random) == (range.number, range.random))
    }

    /// Notes what is done: these are not given again.
    pub fn done(&mut self, ids: &[EventId]) {
        for id in ids {
            let is_it = |s: &&mut Segment| (s.number, s.random) == (id.segment, id.random);
            if let Some(segment) = self.segments.iter_mut().find(is_it) {
                segment.done.insert(id.at as usize);
            }
        }
        self.segments.iter_mut().for_each(Segment::advance);
    }

    /// The same of whole parts.
    pub fn done_all(&mut self, ranges: &[Range]) {
        for range in ranges {
            let is_it = |s: &&mut Segment| (s.number, s.random) == (range.number, range.random);
            let Some(segment) = self.segments.iter_mut().find(is_it) else { continue };
            if segment.reader.kept() >= range.from && segment.reader.kept() < range.to {
                segment.pass_over(range.to as usize);
                segment.reader.keep(range.to);
                segment.done = segment.done.split_off(&(range.to as usize));
            }
            segment.advance();
        }
    }

    /// Removes segments that are sealed and done, and those that are no files of ours any more.
    pub fn clean(&mut self, queue: &Queue) -> Lost {
        let (mut lost, before) = (Lost::default(), self.segments.len());
        let mut mapped = Vec::new();
        self.segments.retain(|segment| {
            // Sealed first: nothing is committed behind that.
            let is_sealed = segment.reader.is_sealed();
            let (from, data) = (segment.reader.kept() as usize, segment.reader.committed());
            let rest = data.len().saturating_sub(from);
            let is_broken = matches!(Records::new(data, from).next(), Some(Err(_)));
            if !is_sealed || rest > 0 && !is_broken {
                return true;
            }
            match segment.reader.is_cut() {
                true => {
                    let events = segment.events.saturating_sub(segment.done.len() as u64);
                    queue.cut.fetch_add(events, Ordering::Relaxed);
                    lost.cut.push((segment.path.clone(), events));
                }
                false => lost.bytes += rest as u64,
            }
            if std::fs::remove_file(&segment.path).is_err() {
                mapped.push(segment.path.clone());
            }
            false
        });
        for path in mapped {
            // On Windows it can be removed now that it is not mapped. One that cannot is found again and sent once more
            // under the same names.
            let _ = std::fs::remove_file(path);
        }
        self.count(queue);
        if self.segments.len() < before {
            // There may be room where there was none.
            crate::keeper::wake();
        }
        lost
    }

    /// Removes all that has nothing to be sent: nobody writes any more.
    pub fn close(&mut self, queue: &Queue) {
        self.follow(queue);
        for segment in self.segments.drain(..) {
            if segment.reader.kept() as usize >= segment.reader.committed().len() {
                let path = segment.path.clone();
                // Windows removes nothing that is mapped.
                drop(segment);
                let _ = std::fs::remove_file(path);
            }
        }
    }
}

impl Segment {
    fn new(number: u64, random: u64, reader: Reader, path: PathBuf) -> Segment {
        let counted = reader.kept() as usize;
        Segment { number, random, reader, path, done: BTreeSet::new(), counted, events: 0 }
    }

    /// How many events are not done. Each is looked at once for that, when it is new.
    fn count(&mut self) -> u64 {
        let mut records = Records::new(self.reader.committed(), self.counted);
        while let Some(Ok(_)) = records.next() {
            self.events += 1;
        }
        self.counted = records.at();
        self.events.saturating_sub(self.done.len() as u64)
    }

    /// The kept word is about to be moved on to there.
    fn pass_over(&mut self, to: usize) {
        let from = self.reader.kept() as usize;
        let mut records = Records::new(self.reader.committed(), from);
        while records.at() < to.min(self.counted) {
            let Some(Ok(_)) = records.next() else { break };
            self.events = self.events.saturating_sub(1);
        }
        self.counted = self.counted.max(to);
    }

    fn entry<'a>(&'a self, at: usize, record: &weir_shipping::record::Record<'a>) -> Entry<'a> {
        Entry {
            id: EventId { random: self.random, segment: self.number, at: at as u32 },
            time_ms: record.time_ms,
            kind: record.kind,
            severity: record.severity,
            json: record.json,
        }
    }

    fn range(&self, from: usize, to: usize) -> Range {
        Range { number: self.number, random: self.random, from: from as u64, to: to as u64 }
    }

    /// Moves the word on over what is done.
    fn advance(&mut self) {
        let mut at = self.reader.kept() as usize;
        let data = self.reader.committed();
        while self.done.remove(&at) {
            let Some(Ok((_, record))) = Records::new(data, at).next() else { break };
            at += framed_bytes(record.json.len());
        }
        self.pass_over(at);
        self.reader.keep(at as u64);
    }
}

fn remove_half_made(path: &std::path::Path) {
    let is_old = |m: std::fs::Metadata| {
        let now = weir_runtime::clock::wall_secs();
        now - weir_runtime::files::modified_secs(&m) > HALF_MADE_SECS as i64
    };
    if std::fs::metadata(path).is_ok_and(is_old) {
        let _ = std::fs::remove_file(path);
    }
}
