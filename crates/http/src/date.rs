//! The text of `Date`, made once a second.

use std::cell::Cell;
use weir_base::date;
use weir_runtime::clock;

thread_local! {
    static DATE: Cell<(i64, [u8; 29])> = const { Cell::new((i64::MIN, [0; 29])) };
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
