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

/// The items of all lines as one list, without the blanks around them; in the fields that are about
/// preferences in lower case, and where their order says nothing, sorted. None is not the same as an empty one.
fn put_normal(r: &Request, name: &[u8], text: &mut Vec<u8>) {
    let mut items: Vec<Vec<u8>> = Vec::new();
    let prefers = name.starts_with(b"accept");
    for (_, value) in r.headers().filter(|(n, _)| n.eq_ignore_ascii_case(name)) {
        if items.is_empty() {
            text.push(b':');
        }
        let all = value.split(|b| *b == b',').map(<[u8]>::trim_ascii).filter(|w| !w.is_empty());
        items.extend(all.map(|item| match prefers {
            true => item.iter().filter(|b| **b != b' ').map(u8::to_ascii_lowercase).collect(),
            false => item.to_vec(),
        }));
    }
    if matches!(name, b"accept-encoding" | b"accept-charset") {
        items.sort();
    }
    text.extend_from_slice(&items.join(&b","[..]));
}

fn words(text: &[u8]) -> impl Iterator<Item = &[u8]> {
    text.split(|b| matches!(b, b' ' | b',')).filter(|w| !w.is_empty())
}
