//! The servers that are looked at: what each has answered last, and how long ago.

use crate::document::{Look, Value};
use crate::picture::Picture;
use crate::table::Pair;
use std::sync::mpsc;
use std::time::{Duration, Instant};

/// A way to ask a server.
pub trait Ask: Send {
    /// What it is called in pictures.
    fn name(&self) -> String;

    /// All its figures, as JSON.
    ///
    /// # Errors
    ///
    /// There is no answer, for people.
    fn figures(&mut self) -> Result<Vec<u8>, String>;

    /// What its zones of analytics have, as JSON.
    ///
    /// # Errors
    ///
    /// There is no answer, for people.
    fn visitors(&mut self) -> Result<Vec<u8>, String>;
}

/// An answer, and when it was there.
pub struct Told {
    pub at: Instant,
    pub figures: Result<Vec<u8>, String>,
    pub visitors: Option<Result<Vec<u8>, String>>,
}

impl Told {
    pub fn by(asker: &mut dyn Ask, with_visitors: bool) -> Told {
        let figures = asker.figures();
        let at = Instant::now();
        let visitors = (with_visitors && figures.is_ok()).then(|| asker.visitors());
        Told { at, figures, visitors }
    }
}

#[derive(Default)]
pub(crate) struct Source {
    pub name: String,
    now: Option<Look>,
    before: Option<Look>,
    /// Why it does not answer.
    pub error: Option<String>,
    pub visitors: Option<Value>,
    told: Option<Instant>,
}

/// All of them.
pub struct Sources {
    began: Instant,
    pub(crate) list: Vec<Source>,
}

impl Sources {
    pub fn new(names: impl Iterator<Item = String>) -> Sources {
        let list = names.map(|name| Source { name, ..Source::default() }).collect();
        Sources { began: Instant::now(), list }
    }

    /// The n-th has answered, or has not.
    pub fn take(&mut self, n: usize, told: Told) {
        let at_us = told.at.saturating_duration_since(self.began).as_micros() as u64;
        let Some(source) = self.list.get_mut(n) else { return };
        source.told = Some(told.at);
        match told.figures.and_then(|text| Look::read(&text, at_us)) {
            Ok(look) => {
                // Over a while in which it was not there the mean is told.
                source.before = source.now.replace(look);
                source.error = None;
            }
            Err(e) => source.error = Some(e),
        }
        if let Some(visitors) = told.visitors {
            let read = |text: Vec<u8>| serde_json::from_slice(&text).map_err(|e| e.to_string());
            source.visitors = visitors.and_then(read).ok();
        }
    }

    /// The n-th has not answered for so long.
    pub(crate) fn late(&self, n: usize, now: Instant) -> Duration {
        let told = self.list.get(n).and_then(|s| s.told).unwrap_or(self.began);
        now.saturating_duration_since(told)
    }

    /// Whether none of them answers.
    pub fn are_lost(&self) -> bool {
        self.list.iter().all(|s| s.error.is_some())
    }

    /// What they have told; `is_split`: a row for each server that has it.
    pub fn picture(&self, is_split: bool) -> Picture {
        Picture::of(&self.list, is_split)
    }
}

impl Source {
    /// What it has told, if it is there.
    pub fn pair(&self) -> Option<Pair<'_>> {
        let now = self.now.as_ref().filter(|_| self.error.is_none())?;
        Some(Pair { now, before: self.before.as_ref() })
    }
}

/// Beyond the interval both looks together may take so long.
const PATIENCE: Duration = Duration::from_secs(3);

/// Looks at each of them, waits, and looks again. One that is silent keeps nobody waiting, and nobody else's looks
/// further apart.
pub fn look(askers: Vec<Box<dyn Ask>>, interval: Duration, with_visitors: bool) -> Sources {
    let mut sources = Sources::new(askers.iter().map(|asker| asker.name()));
    let end = Instant::now() + interval + PATIENCE;
    let mut looks = vec![0; askers.len()];
    let (to, told) = mpsc::channel();
    for (n, mut asker) in askers.into_iter().enumerate() {
        let to = to.clone();
        let run = move || {
            for is_second in [false, true] {
                let began = Instant::now();
                let told = Told::by(&mut *asker, with_visitors && is_second);
                if to.send((n, told)).is_err() {
                    return;
                }
                if !is_second {
                    std::thread::sleep(interval.saturating_sub(began.elapsed()));
                }
            }
        };
        // One that cannot be started is one that does not answer.
        let _ = std::thread::Builder::new().name("asks".into()).spawn(run);
    }
    drop(to);
    while let Ok((n, told)) = told.recv_timeout(end.saturating_duration_since(Instant::now())) {
        looks[n] += 1;
        sources.take(n, told);
    }
    for (n, _) in looks.iter().enumerate().filter(|(_, looks)| **looks < 2) {
        let error = format!("has not answered within {} s", PATIENCE.as_secs());
        sources.take(n, Told { at: Instant::now(), figures: Err(error), visitors: None });
    }
    sources
}
