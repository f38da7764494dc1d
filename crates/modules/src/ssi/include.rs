//! `include`: parts of the page that are answers to subrequests.

use weir_http::module::{FilterError, FilterResult, Next};
use weir_http::subrequest::{self, Output};
use weir_http::{Buf, Chain, Request};
use weir_wire::http1::uri;

use super::commands::{Fault, Params};
use super::{go_on, send, share_page, strings, Reader, State, Stopped, RUNNING_MAX};

pub fn run(
    r: &mut Request,
    state: &mut State,
    params: &Params<'_>,
    next: Next,
) -> Result<(), Fault> {
    // What stands in front of the part goes out before it.
    send(r, state, next).map_err(Fault::Broken)?;
    let wait = waits(r, params)?;
    let target = target(r, state, params.get(0).or(params.get(1)).unwrap_or_default())?;
    let mut path = Vec::new();
    let Ok(args) = uri::unsafe_uri(&target, &mut path) else {
        return Err(Fault::said(r, &[b"unsafe URI \"", &*target, b"\" was detected"].concat()));
    };
    let stub = match params.get(4) {
        None => None,
        Some(name) => match state.page.borrow().block(name) {
            Some(block) => Some(block),
            None => {
                let text = [b"\"stub\"=\"", name, b"\" for \"include\" not found"].concat();
                return Err(Fault::said(r, &text));
            }
        },
    };
    let set = params.get(3).map(<[u8]>::to_ascii_lowercase);
    let output = if set.is_some() { Output::Keep } else { Output::Place };
    let Some(mut part) = subrequest::new(r, &path, args.unwrap_or_default(), output) else {
        return Err(Fault::Command);
    };
    share_page(r, &mut part);
    if let Some(block) = stub {
        let kind = r.out.content_type().map(<[u8]>::to_vec);
        let instead = move |part: &mut Request| put_block(part, kind, block);
        subrequest::instead_of_nothing(&mut part, Box::new(instead));
    }
    let wait = wait || set.is_some();
    if let Some(name) = &set {
        if state.page.borrow().variable(name).is_none() {
            state.page.borrow_mut().set(name, Vec::new());
        }
    }
    let ended = move |r: &mut Request, part: Box<Request>| ended(r, part, set, wait, next);
    subrequest::start(r, part, Some(Box::new(ended)));
    if wait {
        state.stopped = Stopped::Wait;
    } else if r.running_parts() >= if subrequest::is_crowded(r) { 1 } else { RUNNING_MAX } {
        state.stopped = Stopped::Room;
    }
    Ok(())
}

/// Checks the parameters; whether the part is waited for.
fn waits(r: &Request, params: &Params<'_>) -> Result<bool, Fault> {
    let (address, file) = (params.get(0), params.get(1));
    match (address, file) {
        (Some(address), Some(file)) => {
            let parts = [b"inclusion may be either virtual=\"", address, b"\" or file=\"", file];
            return Err(Fault::said(r, &[&parts.concat()[..], b"\""].concat()));
        }
        (None, None) => {
            return Err(Fault::said(r, b"no parameter in \"include\" SSI command"));
        }
        _ => {}
    }
    if params.get(3).is_some() && params.get(4).is_some() {
        let text = b"\"set\" and \"stub\" cannot be used together in \"include\" SSI command";
        return Err(Fault::said(r, text));
    }
    let Some(wait) = params.get(2) else { return Ok(file.is_some()) };
    if let Some(file) = file {
        let text = [b"\"wait\" cannot be used with file=\"", file, b"\""].concat();
        return Err(Fault::said(r, &text));
    }
    if wait.eq_ignore_ascii_case(b"no") {
        return Ok(false);
    }
    match wait.eq_ignore_ascii_case(b"yes") {
        true => Ok(true),
        false => {
            let text = [b"invalid value \"", wait, b"\" in the \"wait\" parameter"].concat();
            Err(Fault::said(r, &text))
        }
    }
}

/// Where the part is: a relative address begins in the document's own directory.
fn target(r: &mut Request, state: &State, text: &[u8]) -> Result<Vec<u8>, Fault> {
    let target = strings::evaluate(r, &state.page, text)?.into_owned();
    if matches!(target.first(), None | Some(b'/')) {
        return Ok(target);
    }
    let directory = r.uri.iter().rposition(|b| *b == b'/').map_or(0, |at| at + 1);
    Ok([&r.uri[..directory], &target].concat())
}

/// The block that stands in for a part without content.
fn put_block(part: &mut Request, kind: Option<Vec<u8>>, block: bytes::Bytes) -> FilterResult {
    if !part.flags.header_sent {
        match kind {
            Some(kind) => part.out.set_content_type(&kind),
            None => part.out.clear_content_type(),
        }
        part.out.status = 200;
        part.out.clear_content_length();
        part.send_header()?;
    }
    part.output(Chain::one(Buf::mem(block).and_last()))
}

/// A part has ended: its text may be a variable's, and the document may have waited for it.
fn ended(
    r: &mut Request,
    mut part: Box<Request>,
    set: Option<Vec<u8>>,
    waited: bool,
    next: Next,
) -> FilterResult {
    let Some(mut reader) = r.take_ctx::<Reader>() else { return Ok(()) };
    let state = &mut reader.state;
    if let Some(name) = set {
        if part.is_broken_part() {
            return Err(FilterError::Broken);
        }
        if part.out.status < 300 {
            state.page.borrow_mut().set(&name, part.kept_body());
        } else if part.failed_by_match() {
            state.page.borrow_mut().set_unsure(&name);
        }
    }
    drop(part);
    if state.stopped == Stopped::Room || waited {
        state.stopped = Stopped::No;
    }
    go_on(r, reader, next)
}
