//! Subrequests: requests that a request makes of its own server, whose answers become parts of its
//! own (SSI, `add_before_body`), are looked at (`auth_request`) or thrown away (`mirror`).
//!
//! A part is a [`Request`] of its own that runs the same phases from server-rewrite on, without the
//! access phase. It has the client's header fields and the values of the variables as they were
//! when it was made. Its answer goes through the filters that are there for parts
//! ([`Reach::Part`](crate::module::Reach)) and ends in its *desk*: a queue of buffers and, among
//! them, the desks of its own parts. The main request takes from these desks what is next in order
//! and hands it to the filters that see the whole (`pump`). Several parts run at once, each as a
//! task of its own; they end with the main request.
//!
//! Invariants: only the task of the request at the top takes from the desks, so that order needs no
//! lock; a part that is far ahead of its turn waits for room (`Request::drain`), and so does a
//! request whose filter keeps input back until a part has ended ([`keep_back`]); desks know their
//! parts, parts do not keep their parents' desks alive in a circle (`Drop for Parts`). As in nginx,
//! the client gets nothing before `postpone_output` bytes are there: a page whose first part fails
//! at once is not half sent. What the parts of a page take together, in number and in memory, is
//! counted for the page as a whole ([`page`]), however they are nested.
//!
//! Differences from nginx: variables set in a part stay there; an answer that breaks off closes the
//! client's connection also when the part had not begun to send.

pub(crate) mod desk;
mod order;
mod page;
mod start;

pub use desk::{Ended, Instead};
pub(crate) use order::{
    catch, ends_now, finish, go_on, header, make_room, poll_flush, queued, wait_for_filter,
};
pub use start::{begin, run, send, send_copy, start, Begun, Sent};

use crate::flow::FilterResult;
use crate::pool;
use crate::request::Request;
use desk::{Desk, Parts, Sink};
use page::{Page, Way};
use std::rc::{Rc, Weak};
use weir_core::logger::LogLevel;
use weir_core::Session;

/// What becomes of a part's answer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Output {
    /// It appears in its parent's body, at the place where the part was started.
    Place,
    /// It is kept, up to `subrequest_output_buffer_size`, for whoever asked.
    Keep,
    /// Nobody reads it.
    Drop,
}

/// What a part is to answer instead of an error, or of nothing at all.
pub fn instead_of_nothing(part: &mut Request, instead: Instead) {
    if let Some(parts) = part.parts.as_deref_mut() {
        parts.instead = Some(instead);
    }
}

/// Who has asked looks at a status itself: of an error there is no page, neither `error_page`'s nor a built-in one.
pub fn without_pages(part: &mut Request) {
    if let Some(parts) = part.parts.as_deref_mut() {
        parts.is_bare = true;
    }
}

/// Whether that is so.
pub(crate) fn is_bare(r: &Request) -> bool {
    r.parts.as_ref().is_some_and(|parts| parts.is_bare)
}

/// Code looks at what the part has answered as its location made it: of filters only those see it that reach
/// [`Every`](crate::module::Reach) answer.
pub fn capture(part: &mut Request) {
    if let Some(parts) = part.parts.as_deref_mut() {
        parts.is_captured = true;
    }
}

/// Whether that is so.
pub(crate) fn is_captured(r: &Request) -> bool {
    r.parts.as_ref().is_some_and(|parts| parts.is_captured)
}

/// How many bytes are kept of a part's answer, whatever `subrequest_output_buffer_size` says.
pub fn keep_up_to(part: &mut Request, max_bytes: u64) {
    if let Some(parts) = part.parts.as_deref_mut() {
        parts.keep_max_bytes = Some(max_bytes);
    }
}

/// How much input a filter keeps until a part has ended; it counts as output that waits.
pub fn keep_back(r: &Request, bytes: u64) {
    if let Some(parts) = &r.parts {
        parts.desk.kept_back.set(bytes);
    }
}

/// What waits for its turn besides what the client is sent: bytes of parts, and input kept back.
pub(crate) fn held(r: &Request) -> u64 {
    r.parts.as_ref().map_or(0, |p| {
        let kept_back = p.desk.kept_back.get();
        kept_back + if p.is_part { 0 } else { p.desk.held() }
    })
}

/// What this request has put out itself and what waits behind its parts, besides what is queued.
pub(crate) fn own_waiting(r: &Request) -> u64 {
    r.parts.as_ref().map_or(0, |p| if p.is_part { 0 } else { p.desk.bytes.get() })
}

/// Whether a part's output is to be taken before it makes more: its page has much that waits.
pub(crate) fn must_be_empty(r: &Request) -> bool {
    r.parts.as_ref().is_some_and(|p| p.is_part && p.desk.page.is_ahead())
}

/// Lets whoever knows better answer for a part that has nothing to say; `None` when nobody does.
pub(crate) fn answer_instead(r: &mut Request) -> Option<FilterResult> {
    let parts = r.parts.as_deref_mut()?;
    match r.sent == 0 && parts.last_id == 0 {
        true => parts.instead.take().map(|instead| instead(r)),
        false => None,
    }
}

/// Whether a part goes on with the content, as its parent does.
pub(crate) fn is_again(r: &Request) -> bool {
    r.parts.as_ref().is_some_and(|p| p.again)
}

/// Makes a part that asks for the same content once more, in the same location: for a further
/// range of it.
pub fn again(r: &mut Request) -> Option<Box<Request>> {
    let (uri, args) = (r.uri.clone(), r.args.clone());
    let mut part = make(r, &uri, &args, Output::Place, Page::has_room)?;
    part.set_location(r.loc().id);
    part.method = r.method;
    part.flags.valid_unparsed_uri = r.flags.valid_unparsed_uri;
    part.flags.valid_location = r.flags.valid_location;
    part.values.captures.copy_from(&r.values.captures);
    if let Some(parts) = part.parts.as_deref_mut() {
        parts.again = true;
    }
    Some(part)
}

/// Whoever has looked at an ended part gives it back.
pub fn give_back(part: Box<Request>) {
    pool::give(part);
}

fn parent(r: &mut Request) -> &mut Parts {
    let Request { parts, uri, .. } = r;
    parts.get_or_insert_with(|| Box::new(Parts::of_main(uri)))
}

/// Whether so many parts of the page run already that a document should wait for its own.
pub fn is_crowded(r: &Request) -> bool {
    r.parts.as_ref().is_some_and(|p| p.desk.page.is_crowded())
}

/// Makes a subrequest: GET with the parent's header fields, and its body if that has been read.
/// `None` when it would be one too many; that is logged.
pub fn new(r: &mut Request, uri: &[u8], args: &[u8], output: Output) -> Option<Box<Request>> {
    make(r, uri, args, output, Page::admit)
}

/// The same for code that asks for one after the other, as long as it likes: how deep they are within each other counts,
/// and how many there are at a time.
pub fn of_code(r: &mut Request, uri: &[u8], args: &[u8]) -> Option<Box<Request>> {
    make(r, uri, args, Output::Keep, Page::has_room)
}

fn make(
    r: &mut Request,
    uri: &[u8],
    args: &[u8],
    output: Output,
    admit: fn(&Page, &Way) -> Result<(), page::Full>,
) -> Option<Box<Request>> {
    let (page, way) = match (&r.parts, output) {
        // Nothing of it stays: no page begins with it.
        (None, Output::Drop) => (Rc::default(), Rc::new(Way::of_main(&r.uri))),
        _ => {
            let parent = parent(r);
            (Rc::clone(&parent.desk.page), Rc::clone(&parent.way))
        }
    };
    let way = Way::to(&way, uri);
    if let Err(why) = admit(&page, &way) {
        if page.is_news(why) {
            let shown = String::from_utf8_lossy(uri);
            r.log(LogLevel::Error, &format!("{} while processing \"{shown}\"", why.text()));
        }
        return None;
    }
    let mut part = pool::take();
    r.copy_to_part(&mut part, r.to_client().clone());
    part.uri.extend_from_slice(uri);
    part.args.extend_from_slice(args);
    let (sink, top, above) = match output {
        Output::Place => {
            let parent = parent(r);
            (Sink::Desk, Some(Rc::clone(&parent.top)), Rc::downgrade(&parent.desk))
        }
        Output::Keep => (Sink::Memory(Vec::new()), None, Weak::new()),
        Output::Drop => (Sink::Nowhere, None, Weak::new()),
    };
    part.parts = Some(Box::new(Parts::new(sink, Desk::of(&page, above), top, way)));
    Some(part)
}
