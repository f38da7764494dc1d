//! Going on inside the server under another URI.

use crate::body;
use crate::flow::Flow;
use crate::request::Request;
use std::rc::Rc;
use weir_core::logger::LogLevel;
use weir_core::Session;

/// Starts again with another URI inside the server.
pub fn internal_redirect(r: &mut Request, uri: &[u8], args: &[u8]) -> Flow {
    r.redirects_left = r.redirects_left.saturating_sub(1);
    if r.redirects_left == 0 {
        let shown = String::from_utf8_lossy(uri).into_owned();
        let text = format!(
            "rewrite or internal redirection cycle while internally redirecting to \"{shown}\""
        );
        r.log(LogLevel::Error, &text);
        return Flow::Status(500);
    }
    body::leave_behind(r);
    r.uri.clear();
    r.uri.extend_from_slice(uri);
    r.args.clear();
    r.args.extend_from_slice(args);
    r.clear_ctx();
    let server = r.server().location;
    r.set_location(server);
    r.flags.internal = true;
    r.flags.valid_unparsed_uri = false;
    r.flags.valid_location = true;
    Flow::Redirect
}

/// Goes on in a named location of the server.
pub fn named_location(r: &mut Request, name: &[u8]) -> Flow {
    r.redirects_left = r.redirects_left.saturating_sub(1);
    if r.redirects_left == 0 || r.uri.is_empty() {
        let text = "rewrite or internal redirection cycle while redirecting to a named location";
        r.log(LogLevel::Error, text);
        return Flow::Status(500);
    }
    let server = Rc::clone(r.server());
    let Some((_, id)) = server.named.iter().find(|(n, _)| n == name) else {
        let text = format!("could not find named location \"{}\"", String::from_utf8_lossy(name));
        r.log(LogLevel::Error, &text);
        return Flow::Status(500);
    };
    let id = *id;
    body::leave_behind(r);
    r.flags.internal = true;
    r.clear_ctx();
    r.set_location(id);
    Flow::Named
}
