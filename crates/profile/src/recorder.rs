//! Samples into counts of stacks.

use crate::pprof;
use crate::symbols::Images;
use std::collections::HashMap;
use std::fmt::Write;
use std::io;
use std::time::{Duration, Instant, SystemTime};
use weir_runtime::sampling::Session;

/// More different stacks are counted as one without callers: some 30 MB at the very most.
const STACKS_MAX: usize = 20_000;
/// Of a worker, its innermost call first.
pub type Stack = (usize, Box<[u64]>);

/// A profile as it is made. Samples are taken by [`Recorder::look`], often enough that none is lost.
pub struct Recorder {
    session: Session,
    images: Images,
    counts: HashMap<Stack, u64>,
    calls: Vec<u64>,
    frequency_hz: u32,
    began: (SystemTime, Instant),
}

impl Recorder {
    /// How often to look: at the highest frequency no more come in between than there is room for.
    pub const LOOK: Duration = Duration::from_millis(20);

    /// Begins a profile of all workers, or of one.
    ///
    /// # Errors
    ///
    /// As [`Session::begin`].
    pub fn begin(frequency_hz: u32, only: Option<usize>) -> io::Result<Recorder> {
        // Read before the first sample: what it costs is no worker's.
        let images = Images::load();
        let session = Session::begin(frequency_hz, only)?;
        let began = (SystemTime::now(), Instant::now());
        Ok(Recorder {
            session,
            images,
            counts: HashMap::new(),
            calls: Vec::new(),
            frequency_hz,
            began,
        })
    }

    /// Counts what has come.
    pub fn look(&mut self) {
        let Recorder { session, images, counts, calls, .. } = self;
        session.take(|sample| {
            images.calls(&sample, calls);
            if counts.len() >= STACKS_MAX {
                calls.truncate(1);
            }
            let key = (sample.worker, calls.as_slice().into());
            *counts.entry(key).or_default() += u64::from(sample.turns);
        });
    }

    /// Ends it.
    pub fn end(mut self) -> Profile {
        self.look();
        let lost = self.session.lost();
        let Recorder { session, images, counts, frequency_hz, began, .. } = self;
        drop(session);
        let mut counts: Vec<(Stack, u64)> = counts.into_iter().collect();
        counts.sort();
        let mut profile = Profile {
            names: HashMap::new(),
            counts,
            lost,
            frequency_hz,
            began: began.0,
            took: began.1.elapsed(),
            images,
        };
        profile.find_names();
        profile
    }
}

/// What a profile has found.
pub struct Profile {
    pub(crate) counts: Vec<(Stack, u64)>,
    pub(crate) names: HashMap<u64, String>,
    pub(crate) images: Images,
    /// Samples that found no room.
    pub lost: u64,
    pub(crate) frequency_hz: u32,
    pub(crate) began: SystemTime,
    pub(crate) took: Duration,
}

impl Profile {
    fn find_names(&mut self) {
        for at in self.counts.iter().flat_map(|((_, stack), _)| stack.iter()) {
            if !self.names.contains_key(at) {
                let name = self.images.name(*at);
                self.names.insert(*at, name);
            }
        }
    }

    /// How many samples there are.
    pub fn samples(&self) -> u64 {
        self.counts.iter().map(|c| c.1).sum()
    }

    /// In pprof's format: protobuf, compressed by gzip.
    pub fn pprof(&self) -> Vec<u8> {
        pprof::compressed(&pprof::encode(self))
    }

    /// A line for each stack: the calls from the outermost, between semicolons, and the number of samples.
    pub fn folded(&self) -> Vec<u8> {
        let mut out = String::new();
        for ((worker, stack), count) in &self.counts {
            let _ = write!(out, "worker {worker}");
            for at in stack.iter().rev() {
                let name = self.names.get(at).map_or("?", String::as_str);
                out.push(';');
                out.extend(name.chars().map(|c| if c == ';' || c.is_control() { ':' } else { c }));
            }
            let _ = writeln!(out, " {count}");
        }
        out.into_bytes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::sync::mpsc;

    #[inline(never)]
    fn outer_work(end: &AtomicBool) -> u64 {
        let mut sum = 0;
        while !end.load(Ordering::Relaxed) {
            sum = std::hint::black_box(inner_work(sum));
        }
        sum
    }

    #[inline(never)]
    fn inner_work(mut sum: u64) -> u64 {
        for n in 0..100_000 {
            sum = std::hint::black_box(sum.wrapping_mul(31) + n);
        }
        sum
    }

    #[test]
    fn callers_are_found_and_named() {
        static END: AtomicBool = AtomicBool::new(false);
        let (ready, is_ready) = mpsc::channel();
        let thread = std::thread::spawn(move || {
            let _enrolled = weir_runtime::sampling::enroll(3);
            let _ = ready.send(());
            outer_work(&END)
        });
        is_ready.recv().unwrap();
        let mut recorder = Recorder::begin(200, None).unwrap();
        let start = Instant::now();
        while recorder.counts.values().sum::<u64>() < 10
            && start.elapsed() < Duration::from_secs(20)
        {
            recorder.look();
            std::thread::sleep(Duration::from_millis(5));
        }
        let profile = recorder.end();
        END.store(true, Ordering::Relaxed);
        thread.join().unwrap();
        assert!(profile.samples() >= 10 && profile.lost == 0);
        let folded = String::from_utf8(profile.folded()).unwrap();
        let line =
            folded.lines().find(|l| l.contains("inner_work")).unwrap_or_else(|| panic!("{folded}"));
        assert!(line.starts_with("worker 3;") && line.contains("outer_work;"), "{line}");
        let calls = line.find("outer_work").zip(line.find("inner_work"));
        assert!(calls.is_some_and(|(outer, inner)| outer < inner), "{line}");
        assert!(profile.pprof().starts_with(&[0x1f, 0x8b]));
    }
}
