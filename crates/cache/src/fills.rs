//! Answers that are asked for and are to be kept, so that a purge reaches those that are still on
//! their way: their server may have made them before what they say became untrue.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};

type Under = HashMap<u64, (Arc<[u8]>, Arc<AtomicBool>)>;

/// Those of one store.
#[derive(Default)]
pub struct Fills(Mutex<(u64, Under)>);

/// One of them, from before its server is asked until it is kept or given up.
pub struct Filling {
    fills: Arc<Fills>,
    number: u64,
    key_text: Arc<[u8]>,
    purged: Arc<AtomicBool>,
}

impl Fills {
    fn lock(&self) -> MutexGuard<'_, (u64, Under)> {
        self.0.lock().unwrap_or_else(|e| e.into_inner())
    }

    pub fn begin(self: &Arc<Self>, key_text: &[u8]) -> Filling {
        let (key_text, purged): (Arc<[u8]>, Arc<AtomicBool>) = (key_text.into(), Arc::default());
        let mut all = self.lock();
        let number = all.0;
        all.0 += 1;
        all.1.insert(number, (Arc::clone(&key_text), Arc::clone(&purged)));
        drop(all);
        Filling { fills: Arc::clone(self), number, key_text, purged }
    }

    /// None of those whose key text is wanted will be kept; whether there were any. To be called
    /// before what is kept already is removed.
    pub fn purge(&self, wanted: impl Fn(&[u8]) -> bool) -> bool {
        let all = self.lock();
        let hit = all.1.values().filter(|(text, _)| wanted(text));
        hit.map(|(_, purged)| purged.store(true, Ordering::Release)).count() > 0
    }
}

impl Filling {
    pub fn key_text(&self) -> &[u8] {
        &self.key_text
    }

    pub fn is_purged(&self) -> bool {
        self.purged.load(Ordering::Acquire)
    }
}

impl Drop for Filling {
    fn drop(&mut self) {
        self.fills.lock().1.remove(&self.number);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn those_under_way_are_reached_and_no_others() {
        let fills = Arc::new(Fills::default());
        let (a, b) = (fills.begin(b"/a"), fills.begin(b"/b"));
        let over = fills.begin(b"/over");
        drop(over);
        assert!(fills.purge(|t| t == b"/a") && !fills.purge(|t| t == b"/over"));
        assert_eq!((a.is_purged(), b.is_purged()), (true, false));
        assert!(!fills.begin(b"/a").is_purged(), "what is asked for afterwards is kept");
    }
}
