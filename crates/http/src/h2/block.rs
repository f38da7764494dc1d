//! Header blocks as they stand in frames, and what of them is the same for a whole worker.

use std::cell::{Cell, RefCell};
use weir_core::{SERVER_NAME, SERVER_VERSION};
use weir_runtime::clock;
use weir_wire::http2::frame::{self, HEAD_BYTES};
use weir_wire::http2::hpack::{self, Known};

/// Fields that are the same for a whole worker, as they stand in a block.
pub(super) struct Ready {
    pub(super) version: Vec<u8>,
    pub(super) name: Vec<u8>,
    date: RefCell<Vec<u8>>,
    date_secs: Cell<i64>,
    pub(super) scratch: RefCell<Vec<u8>>,
}

impl Default for Ready {
    fn default() -> Ready {
        let server = |name: &str| {
            let mut out = Vec::new();
            hpack::literal_known(Known::SERVER, name.as_bytes(), &mut out);
            out
        };
        Ready {
            version: server(SERVER_VERSION),
            name: server(SERVER_NAME),
            date: RefCell::default(),
            date_secs: Cell::new(i64::MIN),
            scratch: RefCell::default(),
        }
    }
}

impl Ready {
    pub(super) fn write_date(&self, out: &mut Vec<u8>) {
        let now = clock::wall_secs();
        let mut date = self.date.borrow_mut();
        if self.date_secs.replace(now) != now {
            date.clear();
            hpack::literal_known(Known::DATE, &crate::date::now(), &mut date);
        }
        out.extend_from_slice(&date);
    }
}

/// A block that is already encoded, as HEADERS.
pub(super) fn write_block(block: &[u8], stream: u32, flags: u8, max: usize, out: &mut Vec<u8>) {
    let at = out.len();
    out.extend_from_slice(&[0; HEAD_BYTES]);
    out.extend_from_slice(block);
    frame::finish_block(out, at, stream, flags, max);
}
