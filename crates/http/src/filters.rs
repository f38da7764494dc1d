//! Running the filter chains of a location.

use crate::buf::Chain;
use crate::module::{FilterResult, Next};
use crate::output;
use crate::request::Request;

impl Next {
    /// Calls the next header filter, or sends the header after the last.
    pub fn header(self, r: &mut Request) -> FilterResult {
        match r.loc().header_filters.get(self.0).copied() {
            Some(filter) => filter(r, Next(self.0 + 1)),
            None => output::send_header(r),
        }
    }

    /// Calls the next body filter, or queues the body after the last.
    pub fn body(self, r: &mut Request, chain: Chain) -> FilterResult {
        match r.loc().body_filters.get(self.0).copied() {
            Some(filter) => filter(r, chain, Next(self.0 + 1)),
            None => output::send_body(r, chain),
        }
    }
}
