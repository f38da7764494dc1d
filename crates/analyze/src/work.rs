//! Threads that read and count. Parts of files are dealt to them in turn, so that each counts the same in every run and
//! what they make together is the same; whole streams are taken by whoever comes first. Of a stream the one that took it
//! reads, and hands blocks of lines to whoever has nothing else to do: which these are differs from run to run.

use crate::blocks::Blocks;
use crate::progress::Progress;
use crate::shown;
use crate::source::{Kind, Part, Source};
use crate::stop;
use memchr::memchr;
use std::collections::VecDeque;
use std::io::{self, Read};
use std::ops::Range;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use weir_analytics::format::{Invalid, Scanner};
use weir_analytics::report::{Options, Report};

/// A part of a file.
const PART_BYTES: u64 = 16 << 20;
/// Blocks of streams that wait, for each thread.
const BLOCKS_PER_THREAD: usize = 2;

enum Job {
    Part(usize, Range<u64>),
    Stream(usize),
    /// Lines of a stream.
    Block(usize, Vec<u8>),
}

#[derive(Default)]
struct Queue {
    /// Not yet taken by anybody.
    untaken: VecDeque<Job>,
    /// For each thread.
    dealt: Vec<VecDeque<Job>>,
    blocks: VecDeque<Job>,
    /// Streams being read, which may still give blocks.
    streams: usize,
    /// Threads that have nothing to do.
    idle: usize,
}

struct Shared<'a> {
    sources: &'a [Source],
    queue: Mutex<Queue>,
    changed: Condvar,
    failed: Mutex<Vec<String>>,
    progress: &'a Progress,
    blocks_max: usize,
}

/// What all sources say, and what went wrong.
pub fn read(
    sources: &[Source],
    threads: usize,
    options: &Options,
    progress: &Progress,
) -> (Report, Vec<String>) {
    let shared = Shared {
        sources,
        queue: Mutex::new(Queue::of(sources, threads)),
        changed: Condvar::new(),
        failed: Mutex::new(Vec::new()),
        progress,
        blocks_max: threads * BLOCKS_PER_THREAD,
    };
    let report = thread::scope(|scope| {
        let shared = &shared;
        let others: Vec<_> =
            (1..threads).map(|n| scope.spawn(move || shared.work(n, options))).collect();
        let bar = scope.spawn(|| progress.run());
        let mut report = shared.work(0, options);
        for other in others {
            match other.join() {
                Ok(theirs) => report.merge(theirs),
                Err(_) => shared.fail("a thread ended early: figures are too low".to_owned()),
            }
        }
        progress.end();
        let _ = bar.join();
        report
    });
    (report, shared.failed.into_inner().unwrap_or_else(PoisonError::into_inner))
}

impl Queue {
    fn of(sources: &[Source], threads: usize) -> Queue {
        let mut queue = Queue::default();
        queue.dealt.resize_with(threads.max(1), VecDeque::new);
        let mut parts = 0;
        for (n, source) in sources.iter().enumerate() {
            match &source.kind {
                Kind::Stream(_) => queue.untaken.push_front(Job::Stream(n)),
                Kind::Plain { len, .. } => {
                    for from in (0..*len).step_by(PART_BYTES as usize) {
                        let part = Job::Part(n, from..(from + PART_BYTES).min(*len));
                        let hand = parts % queue.dealt.len();
                        queue.dealt[hand].push_back(part);
                        parts += 1;
                    }
                }
            }
        }
        queue
    }

    /// Streams first: they take longest.
    fn next(&mut self, thread: usize) -> Option<Job> {
        let dealt = self.dealt.get_mut(thread);
        self.untaken.pop_front().or_else(|| dealt?.pop_front())
    }

    /// Whether there was anything.
    fn clear(&mut self) -> bool {
        let there = !self.untaken.is_empty() || self.dealt.iter().any(|hand| !hand.is_empty());
        self.untaken.clear();
        self.dealt.iter_mut().for_each(VecDeque::clear);
        there
    }
}

impl Shared<'_> {
    fn queue(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn fail(&self, what: String) {
        self.failed.lock().unwrap_or_else(PoisonError::into_inner).push(what);
    }

    fn take(&self, thread: usize) -> Option<Job> {
        let mut queue = self.queue();
        loop {
            let next = queue.blocks.pop_front();
            if stop::is_wanted() && next.is_none() && queue.clear() {
                self.fail("interrupted: what is behind is not counted".to_owned());
            }
            if let Some(job) = next.or_else(|| queue.next(thread)) {
                queue.streams += usize::from(matches!(job, Job::Stream(_)));
                return Some(job);
            }
            if queue.streams == 0 {
                return None;
            }
            queue.idle += 1;
            queue = self.changed.wait(queue).unwrap_or_else(PoisonError::into_inner);
            queue.idle -= 1;
        }
    }

    fn work(&self, thread: usize, options: &Options) -> Report {
        let mut report = Report::new(options.clone());
        while let Some(job) = self.take(thread) {
            match job {
                Job::Part(n, range) => self.part(n, range, &mut report),
                Job::Stream(n) => {
                    self.stream(n, &mut report);
                    self.queue().streams -= 1;
                    self.changed.notify_all();
                }
                Job::Block(n, lines) => {
                    if let Some(mut scanner) = self.scanner(n) {
                        count(&lines, &mut scanner, &mut report);
                    }
                }
            }
        }
        report
    }

    fn scanner(&self, n: usize) -> Option<Scanner> {
        self.sources[n].format.as_ref().map(|format| format.scanner())
    }

    fn part(&self, n: usize, range: Range<u64>, report: &mut Report) {
        let (Kind::Plain { file, len }, Some(mut scanner)) =
            (&self.sources[n].kind, self.scanner(n))
        else {
            return;
        };
        let mut blocks = Blocks::new(Part::new(file, range, *len, self.progress.done()));
        let result = each(&mut blocks, |lines| count(lines, &mut scanner, report));
        self.finish(n, result, blocks.too_long, report);
    }

    fn stream(&self, n: usize, report: &mut Report) {
        let (Kind::Stream(stream), Some(mut scanner)) = (&self.sources[n].kind, self.scanner(n))
        else {
            return;
        };
        let taken = stream.lock().unwrap_or_else(PoisonError::into_inner).take();
        let Some(stream) = taken else { return };
        let mut blocks = Blocks::new(stream);
        let result = each(&mut blocks, |lines| {
            self.progress.add(lines.len() as u64);
            if !self.hand_over(n, lines) {
                count(lines, &mut scanner, report);
            }
        });
        self.finish(n, result, blocks.too_long, report);
    }

    /// Whether somebody else will count them.
    fn hand_over(&self, n: usize, lines: &[u8]) -> bool {
        let mut queue = self.queue();
        let is_room = queue.blocks.len() < self.blocks_max;
        if queue.idle == 0 || !is_room {
            return false;
        }
        queue.blocks.push_back(Job::Block(n, lines.to_vec()));
        drop(queue);
        self.changed.notify_one();
        true
    }

    fn finish(&self, n: usize, result: io::Result<()>, too_long: u64, report: &mut Report) {
        (0..too_long).for_each(|_| report.add_invalid(Invalid::TooLong));
        if let Err(e) = result {
            self.fail(format!(
                "{}: {e}; what is behind is not counted",
                shown(&self.sources[n].path)
            ));
        }
    }
}

fn each<R: Read>(blocks: &mut Blocks<R>, mut then: impl FnMut(&[u8])) -> io::Result<()> {
    while let Some(lines) = blocks.next()? {
        then(lines);
        if stop::is_wanted() {
            return Err(stop::interrupted());
        }
    }
    Ok(())
}

/// Counts lines, the last of which may lack its end.
pub fn count(lines: &[u8], scanner: &mut Scanner, report: &mut Report) {
    let mut rest = lines;
    while !rest.is_empty() {
        let end = memchr(b'\n', rest).unwrap_or(rest.len());
        match scanner.scan(&rest[..end]) {
            Some(Ok(event)) => report.add(&event),
            Some(Err(why)) => report.add_invalid(why),
            None => {}
        }
        rest = rest.get(end + 1..).unwrap_or_default();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::File;

    #[test]
    fn each_thread_counts_the_same_parts_in_every_run() {
        let file = || File::open("/dev/null").unwrap();
        let plain = |len| Source::of_kind(Kind::Plain { file: file(), len });
        let sources = [plain(3 * PART_BYTES + 1), plain(PART_BYTES)];
        let mut queue = Queue::of(&sources, 2);
        let mut parts = |thread| {
            let mut found = Vec::new();
            while let Some(Job::Part(n, range)) = queue.next(thread) {
                found.push((n, range.start / PART_BYTES, range.end - range.start));
            }
            found
        };
        // Whoever is slow has what it was dealt, and nobody else.
        assert_eq!(parts(1), [(0, 1, PART_BYTES), (0, 3, 1)]);
        assert_eq!(parts(0), [(0, 0, PART_BYTES), (0, 2, PART_BYTES), (1, 0, PART_BYTES)]);
        assert!(!queue.clear() && Queue::of(&sources, 3).clear());
    }
}
