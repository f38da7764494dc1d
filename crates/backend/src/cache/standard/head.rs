//! The head of a kept answer as text: what of it is kept, and what a 304 makes of it (RFC 9111, sections
//! 3.1, 3.2 and 4.3.4).

use weir_base::date::http_time;

/// Room for what a 304 may make longer, as spaces behind the last field, which are none of its value.
const SPARE_BYTES: usize = 160;

/// About a connection, or about the body that is there already.
const NOT_UPDATED: [&[u8]; 14] = [
    b"status",
    b"connection",
    b"keep-alive",
    b"proxy-authenticate",
    b"proxy-authorization",
    b"te",
    b"trailer",
    b"transfer-encoding",
    b"upgrade",
    b"content-length",
    b"content-encoding",
    b"content-range",
    b"content-type",
    b"set-cookie",
];

/// The lines of a head, without their ends; the first may be a status line.
fn lines(head: &[u8]) -> impl Iterator<Item = &[u8]> {
    let lines = head.split(|b| *b == b'\n').map(<[u8]>::trim_ascii_end);
    lines.filter(|line| !line.is_empty())
}

fn name(line: &[u8]) -> Option<&[u8]> {
    memchr::memchr(b':', line).map(|at| line[..at].trim_ascii_end()).filter(|n| !n.contains(&b' '))
}

/// The value of the first field of that name.
pub(super) fn value_of<'a>(head: &'a [u8], wanted: &[u8]) -> Option<&'a [u8]> {
    let line = lines(head).find(|l| name(l).is_some_and(|n| n.eq_ignore_ascii_case(wanted)))?;
    memchr::memchr(b':', line).map(|at| line[at + 1..].trim_ascii())
}

fn is_in(names: &[Vec<u8>], name: &[u8]) -> bool {
    names.iter().any(|n| n.eq_ignore_ascii_case(name))
}

fn write<'a>(lines: impl Iterator<Item = &'a [u8]>) -> Vec<u8> {
    let mut text = Vec::with_capacity(512);
    for line in lines {
        text.extend_from_slice(line);
        text.extend_from_slice(b"\r\n");
    }
    text.extend_from_slice(b"\r\n");
    text
}

/// The head that is kept: without those fields, with a date, and with room for others.
pub(crate) fn kept(head: &[u8], without: &[Vec<u8>], now: i64) -> Vec<u8> {
    let has_date = lines(head).any(|l| name(l).is_some_and(|n| n.eq_ignore_ascii_case(b"Date")));
    let date = [b"Date: ", &http_time(now)[..]].concat();
    let stays = lines(head).filter(|line| name(line).is_none_or(|n| !is_in(without, n)));
    let text = write(stays.chain((!has_date).then_some(&date[..])));
    let len = text.len() + SPARE_BYTES;
    padded(text, len).unwrap_or_default()
}

/// The head of a part as that of the whole.
pub(crate) fn of_whole(head: &[u8], body_len: u64) -> Vec<u8> {
    let is_length = |name: &[u8]| {
        [&b"Content-Range"[..], b"Content-Length", b"Transfer-Encoding"]
            .iter()
            .any(|n| name.eq_ignore_ascii_case(n))
    };
    let status = |line: &[u8]| match name(line) {
        Some(n) if n.eq_ignore_ascii_case(b"Status") => Some(b"Status: 200 OK".to_vec()),
        Some(_) => None,
        None => {
            let version = line.split(|b| *b == b' ').next().unwrap_or_default();
            Some([version, b" 200 OK"].concat())
        }
    };
    let mut all: Vec<Vec<u8>> = lines(head)
        .filter(|line| !name(line).is_some_and(is_length))
        .map(|line| status(line).unwrap_or_else(|| line.to_vec()))
        .collect();
    all.push(format!("Content-Length: {body_len}").into_bytes());
    write(all.iter().map(Vec::as_slice))
}

/// The head as a 304 has it now. Where that says no date, it is of now.
pub(crate) fn updated(old: &[u8], by: &[u8], now: i64) -> Vec<u8> {
    let updates = |line: &&[u8]| {
        name(line).is_some_and(|n| !NOT_UPDATED.iter().any(|other| n.eq_ignore_ascii_case(other)))
    };
    let date = [b"Date: ", &http_time(now)[..]].concat();
    let mut new: Vec<&[u8]> = lines(by).filter(updates).collect();
    if value_of(by, b"Date").is_none() {
        new.push(&date);
    }
    let stays = |line: &&[u8]| {
        let replaces = |other: &&[u8]| match (name(other), name(line)) {
            (Some(a), Some(b)) => a.eq_ignore_ascii_case(b),
            _ => false,
        };
        !new.iter().any(replaces)
    };
    // An age that is not said again is over.
    let is_age = |line: &&[u8]| name(line).is_some_and(|n| n.eq_ignore_ascii_case(b"Age"));
    write(lines(old).filter(stays).filter(|line| !is_age(line)).chain(new.iter().copied()))
}

/// The head without those fields.
pub(crate) fn without(head: Vec<u8>, names: &[Vec<u8>]) -> Vec<u8> {
    match names.is_empty() {
        true => head,
        false => write(lines(&head).filter(|line| name(line).is_none_or(|n| !is_in(names, n)))),
    }
}

/// The same in so many bytes; `None`: it has more.
pub(crate) fn padded(mut text: Vec<u8>, len: usize) -> Option<Vec<u8>> {
    let more = len.checked_sub(text.len())?;
    let at = text.len().checked_sub(4)?;
    text.splice(at..at, std::iter::repeat_n(b' ', more));
    Some(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_kept_and_what_a_304_changes() {
        let head = b"HTTP/1.1 200 OK\r\nX-A: 1\r\nset-cookie: a\r\nETag: x\r\nAge: 5\r\n\r\n";
        let kept = kept(head, &[b"Set-Cookie".to_vec()], 0);
        let text = String::from_utf8(kept.clone()).unwrap();
        assert!(text.starts_with(
            "HTTP/1.1 200 OK\r\nX-A: 1\r\nETag: x\r\nAge: 5\r\nDate: Thu, 01 Jan 1970"
        ));
        assert!(text.ends_with("GMT\r\n\r\n") || text.ends_with("   \r\n\r\n"), "{text}");
        assert_eq!(value_of(&kept, b"date"), Some(&b"Thu, 01 Jan 1970 00:00:00 GMT"[..]));
        let by = b"HTTP/1.1 304 Not Modified\r\nx-a: 2\r\nX-A: 3\r\nContent-Length: 9\r\nSet-Cookie: b\r\nX-B: 4\r\n\r\n";
        let updated = updated(&kept, by, 5);
        let text = String::from_utf8(updated.clone()).unwrap();
        let begin = "HTTP/1.1 200 OK\r\nETag: x\r\nx-a: 2\r\nX-A: 3\r\nX-B: 4\r\n";
        assert_eq!(text, format!("{begin}Date: Thu, 01 Jan 1970 00:00:05 GMT\r\n\r\n"));
        let padded = padded(updated.clone(), kept.len()).unwrap();
        assert!(padded.len() == kept.len() && padded.ends_with(b"    \r\n\r\n"));
        assert_eq!(value_of(&padded, b"X-B"), Some(&b"4"[..]));
        assert_eq!(super::padded(updated, 5), None);
        for (part, whole) in [
            ("HTTP/1.1 206 Partial Content", "HTTP/1.1 200 OK"),
            ("HTTP/2 206", "HTTP/2 200 OK"),
            ("Status: 206 Partial", "Status: 200 OK"),
        ] {
            let head = format!("{part}\r\nA: b\r\nContent-Range: x\r\ncontent-length: 5\r\n\r\n");
            let of = String::from_utf8(of_whole(head.as_bytes(), 70)).unwrap();
            assert_eq!(of, format!("{whole}\r\nA: b\r\nContent-Length: 70\r\n\r\n"));
        }
        // What a CGI program answers with has no status line.
        assert!(
            super::kept(b"Status: 200\nA: b\n\n", &[], 0).starts_with(b"Status: 200\r\nA: b\r\n")
        );
    }
}
