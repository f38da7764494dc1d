//! The text of `Date`, made once a second, and that of other times, made once.

use std::cell::{Cell, RefCell};
use weir_base::date;
use weir_runtime::clock;

/// Times whose text is kept, each in the one place that its seconds give it. A power of two.
const PLACES: usize = 64;

thread_local! {
    static DATE: Cell<(i64, [u8; 29])> = const { Cell::new((i64::MIN, [0; 29])) };
    static KNOWN: RefCell<[(i64, [u8; 29]); PLACES]> =
        const { RefCell::new([(i64::MIN, [0; 29]); PLACES]) };
}

/// Of a time that answers tell again and again: a file's, or a kept answer's.
pub(crate) fn of(secs: i64) -> [u8; 29] {
    KNOWN.with_borrow_mut(|known| {
        let (known_secs, text) = &mut known[secs as usize % PLACES];
        if *known_secs != secs {
            (*known_secs, *text) = (secs, date::http_time(secs));
        }
        *text
    })
}

/// The value of the field `Date`.
pub(crate) fn now() -> [u8; 29] {
    let now = clock::wall_secs();
    let (secs, text) = DATE.get();
    if secs == now {
        return text;
    }
    let text = date::http_time(now);
    DATE.set((now, text));
    text
}
