//! A thread that is interrupted stands still while the function is called for it, by who interrupts.

use super::{Called, Place, CALLED, PLACE};
use crate::windows::held::Other;
use std::cell::LazyCell;
use std::io;
use std::ops::Deref;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, PoisonError};

/// Shared with who interrupts, for whom it must be there when the thread is not any more.
pub(super) struct Own(LazyCell<Arc<Place>>);

impl Deref for Own {
    type Target = Place;

    fn deref(&self) -> &Place {
        &self.0
    }
}

pub(super) const fn own() -> Own {
    Own(LazyCell::new(|| Arc::new(Place::new())))
}

/// Has this be called for threads that are interrupted.
///
/// # Safety
///
/// The function may be called between any two instructions of a thread that stands still meanwhile, also of those that it
/// looks at itself: it takes no lock, allocates nothing and looks at no thread-local.
///
/// # Errors
///
/// None here.
pub unsafe fn install(called: Called) -> io::Result<()> {
    CALLED.store(called as usize, Ordering::Release);
    Ok(())
}

/// A thread that may be interrupted.
#[derive(Debug)]
pub struct Thread {
    /// None if the system has no handle for it.
    other: Option<Other>,
    place: Arc<Place>,
}

impl Thread {
    /// The one that calls.
    pub fn own() -> Thread {
        Thread { other: Other::own().ok(), place: PLACE.with(|own| Arc::clone(&own.0)) }
    }

    /// Interrupts it. One that has ended is not.
    pub fn interrupt(&self) {
        /// Two who interrupt the same thread would write to the same places. Taken before the thread stands still, and by
        /// no thread that can be interrupted.
        static ONE: Mutex<()> = Mutex::new(());
        let _one = ONE.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(other) = &self.other {
            other.hold(|_| self.place.call());
        }
    }
}
