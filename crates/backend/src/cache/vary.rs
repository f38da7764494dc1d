//! Variants: the fields of a request that an answer varies by (RFC 9111 section 4.1).
//!
//! As in nginx, lists in the three `Accept-` fields below are compared without their spaces and
//! empty items; other fields as they are.

use weir_cache::Key;
use weir_http::Request;

const LISTS: [&[u8]; 3] = [b"accept-charset", b"accept-encoding", b"accept-language"];

/// The key of the variant that this request would get. `normal`: fields are compared by what they mean.
pub(crate) fn variant(r: &Request, main: &Key, vary: &[u8], normal: bool) -> Key {
    let mut text = Vec::with_capacity(128);
    for name in words(vary) {
        let name = name.to_ascii_lowercase();
        text.extend_from_slice(&name);
        match normal {
            true => put_normal(r, &name, &mut text),
            false => put(r, &name, &mut text),
        }
        text.extend_from_slice(b"\r\n");
    }
    Key::of_parts(main, &text)
}

/// As nginx has it.
fn put(r: &Request, name: &[u8], text: &mut Vec<u8>) {
    text.push(b':');
    let list = LISTS.contains(&name);
    let mut first = true;
    let mut put = |item: &[u8], text: &mut Vec<u8>| {
        if !std::mem::take(&mut first) {
            text.push(b',');
        }
        text.extend_from_slice(item);
    };
    for (_, value) in r.headers().filter(|(n, _)| n.eq_ignore_ascii_case(name)) {
        match list {
            true => words(value).for_each(|w| put(w, text)),
            false => put(value, text),
        }
    }
}

/// Fields are the same if their bytes are, all lines as one list. In those that are known to be lists of
/// words whose case means nothing (RFC 9110, sections 12.5.2 to 12.5.4), only what they mean counts. None is not
/// the same as an empty one.
fn put_normal(r: &Request, name: &[u8], text: &mut Vec<u8>) {
    let lines = r.headers().filter(|(n, _)| n.eq_ignore_ascii_case(name));
    let lines: Vec<&[u8]> = lines.map(|(_, value)| value.trim_ascii()).collect();
    if !lines.is_empty() {
        text.push(b':');
    }
    let value = lines.join(&b", "[..]);
    // No word of those has quotes: what that is nobody knows.
    if !LISTS.contains(&name) || value.contains(&b'"') {
        return text.extend_from_slice(&value);
    }
    let mut items: Vec<Vec<u8>> = value
        .split(|b| *b == b',')
        .map(<[u8]>::trim_ascii)
        .filter(|item| !item.is_empty())
        .map(|item| {
            let parts: Vec<&[u8]> = item.split(|b| *b == b';').map(<[u8]>::trim_ascii).collect();
            parts.join(&b';').to_ascii_lowercase()
        })
        .collect();
    if name != b"accept-language" {
        items.sort();
    }
    text.extend_from_slice(&items.join(&b","[..]));
}

fn words(text: &[u8]) -> impl Iterator<Item = &[u8]> {
    text.split(|b| matches!(b, b' ' | b',')).filter(|w| !w.is_empty())
}
