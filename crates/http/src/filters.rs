//! Running the filter chains of a location.

use crate::buf::Chain;
use crate::client::answer;
use crate::flow::{FilterResult, Next};
use crate::request::Request;
use crate::subrequest;

impl Next {
    /// Calls the next header filter, or sends the header after the last.
    pub fn header(self, r: &mut Request) -> FilterResult {
        let filters = match r.is_part() {
            false => &r.loc().plan.header_filters,
            true => &r.loc().plan.of_part(subrequest::is_captured(r)).header_filters,
        };
        match filters.get(self.0).copied() {
            Some(filter) => filter(r, Next(self.0 + 1)),
            None => answer::send_header(r),
        }
    }

    /// Calls the next body filter, or queues the body after the last.
    pub fn body(self, r: &mut Request, chain: Chain) -> FilterResult {
        if r.parts.is_some() {
            return self.body_of_parts(r, chain);
        }
        match r.loc().plan.body_filters.get(self.0).copied() {
            Some(filter) => filter(r, chain, Next(self.0 + 1)),
            None => answer::send_body(r, chain),
        }
    }

    /// A subrequest's body ends where the main request's goes on; the main request's own is put in
    /// order with it there.
    fn body_of_parts(self, r: &mut Request, chain: Chain) -> FilterResult {
        if r.is_part() {
            let filters = &r.loc().plan.of_part(subrequest::is_captured(r)).body_filters;
            return match filters.get(self.0).copied() {
                Some(filter) => filter(r, chain, Next(self.0 + 1)),
                None => subrequest::catch(r, chain),
            };
        }
        match self.0 == r.loc().plan.postpone_at {
            true => subrequest::catch(r, chain),
            false => self.body_now(r, chain),
        }
    }

    /// As `body`, behind the point where the output is put in order.
    pub(crate) fn body_now(self, r: &mut Request, chain: Chain) -> FilterResult {
        match r.loc().plan.body_filters.get(self.0).copied() {
            Some(filter) => filter(r, chain, Next(self.0 + 1)),
            None => answer::send_body(r, chain),
        }
    }
}

impl Request {
    /// Runs the header filters and puts the header into the output queue.
    pub fn send_header(&mut self) -> FilterResult {
        if self.flags.header_sent {
            return Ok(());
        }
        if self.err_status != 0 {
            self.out.status = self.err_status;
            self.out.clear_status_line();
        }
        Next(0).header(self)
    }

    /// Whether no body filter has anything to do with this response.
    pub fn body_is_plain(&self) -> bool {
        !self.has_any_ctx() && self.loc().plan.body_on_demand && self.parts.is_none()
    }

    /// Runs the body filters and puts the result into the output queue.
    pub fn output(&mut self, chain: Chain) -> FilterResult {
        Next(0).body(self, chain)
    }
}
