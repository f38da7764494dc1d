//! Copies of one thing, one for each thread, so that threads do not fight over the count of its references.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};

/// Threads beyond the number share them.
const COPIES: usize = 16;

/// A thing that threads hold again and again.
#[derive(Debug)]
pub struct Copies<T> {
    first: T,
    copies: Box<[Copy<T>; COPIES]>,
}

#[derive(Debug)]
#[repr(align(64))]
struct Copy<T>(OnceLock<Arc<Own<T>>>);

/// No two copies have a line of memory in common.
#[derive(Debug)]
#[repr(align(64))]
pub struct Own<T>(T);

impl<T> std::ops::Deref for Own<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.0
    }
}

impl<T: Clone> Copies<T> {
    /// Copies are made when they are asked for.
    pub fn new(first: T) -> Copies<T> {
        Copies { first, copies: Box::new(std::array::from_fn(|_| Copy(OnceLock::new()))) }
    }

    /// This thread's.
    pub fn get(&self) -> Arc<Own<T>> {
        let copy = &self.copies[thread_number() % COPIES];
        Arc::clone(copy.0.get_or_init(|| Arc::new(Own(self.first.clone()))))
    }
}

/// Numbers threads in the order they first ask.
pub fn thread_number() -> usize {
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    thread_local! {
        static NUMBER: usize = NEXT.fetch_add(1, Ordering::Relaxed);
    }
    // Gone only while a thread ends.
    NUMBER.try_with(|n| *n).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_thread_has_its_own() {
        let all = Copies::new(String::from("text"));
        let (here, again) = (all.get(), all.get());
        assert!(Arc::ptr_eq(&here, &again) && **here == "text");
        let there = std::thread::scope(|s| s.spawn(|| all.get()).join()).unwrap();
        assert!(!Arc::ptr_eq(&here, &there) && **there == "text");
    }
}
