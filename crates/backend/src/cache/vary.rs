//! Variants: the fields of a request that an answer varies by (RFC 9111 section 4.1).
//!
//! As in nginx, lists in the three `Accept-` fields below are compared without their spaces and
//! empty items; other fields as they are.

use weir_cache::Key;
use weir_http::Request;

const LISTS: [&[u8]; 3] = [b"accept-charset", b"accept-encoding", b"accept-language"];

/// The key of the variant that this request would get.
pub(crate) fn variant(r: &Request, main: &Key, vary: &[u8]) -> Key {
    let mut text = Vec::with_capacity(128);
    for name in words(vary) {
        let name = name.to_ascii_lowercase();
        text.extend_from_slice(&name);
        text.push(b':');
        let list = LISTS.contains(&name.as_slice());
        let mut first = true;
        let mut put = |item: &[u8], text: &mut Vec<u8>| {
            if !std::mem::take(&mut first) {
                text.push(b',');
            }
            text.extend_from_slice(item);
        };
        for (_, value) in r.headers().filter(|(n, _)| n.eq_ignore_ascii_case(&name)) {
            match list {
                true => words(value).for_each(|w| put(w, &mut text)),
                false => put(value, &mut text),
            }
        }
        text.extend_from_slice(b"\r\n");
    }
    Key::of_parts(main, &text)
}

fn words(text: &[u8]) -> impl Iterator<Item = &[u8]> {
    text.split(|b| matches!(b, b' ' | b',')).filter(|w| !w.is_empty())
}
