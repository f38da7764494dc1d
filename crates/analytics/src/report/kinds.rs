//! What a URL and a referrer are.

use memchr::memchr;

const LONGEST: usize = 5;

/// GoAccess's extensions of static files.
fn is_file(extension: &[u8]) -> bool {
    let mut small = [0; LONGEST];
    let Some(small) = small.get_mut(..extension.len()) else { return false };
    small.iter_mut().zip(extension).for_each(|(to, b)| *to = b.to_ascii_lowercase());
    matches!(
        &*small,
        b"css"
            | b"js"
            | b"jpg"
            | b"png"
            | b"gif"
            | b"ico"
            | b"jpeg"
            | b"pdf"
            | b"csv"
            | b"mpeg"
            | b"mpg"
            | b"swf"
            | b"woff"
            | b"woff2"
            | b"xls"
            | b"xlsx"
            | b"doc"
            | b"docx"
            | b"ppt"
            | b"pptx"
            | b"txt"
            | b"zip"
            | b"ogg"
            | b"mp3"
            | b"mp4"
            | b"exe"
            | b"iso"
            | b"gz"
            | b"rar"
            | b"svg"
            | b"bmp"
            | b"tar"
            | b"tgz"
            | b"tiff"
            | b"tif"
            | b"ttf"
            | b"flv"
            | b"dmg"
            | b"xz"
            | b"zst"
    )
}

/// By the end of a URI; one with a query is none.
pub fn is_static(uri: &[u8]) -> bool {
    let from = uri.len().saturating_sub(LONGEST + 1);
    let Some(dot) = uri[from..].iter().rposition(|b| *b == b'.') else { return false };
    let extension = &uri[from + dot + 1..];
    // A name has something before its dot.
    if extension.is_empty() || from + dot == 0 {
        return false;
    }
    is_file(extension)
}

pub fn ends_with(uri: &[u8], extensions: &[Vec<u8>]) -> bool {
    extensions
        .iter()
        .any(|e| uri.len() > e.len() && uri[uri.len() - e.len()..].eq_ignore_ascii_case(e))
}

/// With what was escaped by percent signs as it is; broken escapes stay.
pub fn decoded<'a>(uri: &'a [u8], room: &'a mut Vec<u8>) -> &'a [u8] {
    let Some(first) = memchr(b'%', uri) else { return uri };
    room.clear();
    room.extend_from_slice(&uri[..first]);
    let mut rest = &uri[first..];
    while let Some((b, behind)) = rest.split_first() {
        let digit = |n: usize| behind.get(n).and_then(|b| char::from(*b).to_digit(16));
        match (b, digit(0), digit(1)) {
            (b'%', Some(high), Some(low)) => {
                room.push((high * 16 + low) as u8);
                rest = &behind[2..];
            }
            _ => {
                room.push(*b);
                rest = behind;
            }
        }
    }
    room.trim_ascii()
}

/// The host of a referrer.
pub fn site(referrer: &[u8]) -> &[u8] {
    const MAX_BYTES: usize = 255;
    let Some(host) = behind_slashes(referrer) else { return b"" };
    let end = memchr(b'/', host).unwrap_or(host.len());
    &host[..end.min(MAX_BYTES)]
}

/// What is behind the first two: searched for by the first alone, which nearly always is of these two.
fn behind_slashes(text: &[u8]) -> Option<&[u8]> {
    let mut rest = text;
    loop {
        rest = &rest[memchr(b'/', rest)? + 1..];
        if let [b'/', behind @ ..] = rest {
            return Some(behind);
        }
    }
}

/// Whether a referrer's site is the one that was asked, whatever their ports.
pub fn is_own(site: &[u8], own: &[u8]) -> bool {
    if site == own {
        return !site.is_empty();
    }
    let host = |text: &[u8]| memchr(b':', text).unwrap_or(text.len());
    !site.is_empty() && site[..host(site)].eq_ignore_ascii_case(&own[..host(own)])
}

/// What nobody asks for who does not look for holes.
const PROBES: &[&[u8]] = &[
    b"/.env",
    b"/.git/",
    b"/.aws/",
    b"/.ssh/",
    b"/phpmyadmin",
    b"/pma/",
    b"/cgi-bin/",
    b"/boaform",
    b"/hnap1",
    b"/actuator/",
    b"/solr/",
    b"/vendor/phpunit",
    b"/wp-config",
    b"/owa/auth",
    b"/telescope/",
    b"/_ignition/",
    b"/etc/passwd",
    b"/eval-stdin",
    b"/shell?",
    b"/setup.cgi",
    b"/.ds_store",
    b"/.vscode/",
    b"/server-status",
];
const LOOKED_AT_MAX_BYTES: usize = 64;

/// The first bytes of each, by which nearly all others are told from them at once.
const PROBES_BEGIN: [u32; PROBES.len()] = {
    let (mut all, mut n) = ([0; PROBES.len()], 0);
    while n < PROBES.len() {
        let [a, b, c, d, ..] = *PROBES[n] else { panic!("a probe has four bytes at least") };
        all[n] = u32::from_le_bytes([a, b, c, d]);
        n += 1;
    }
    all
};

pub fn is_probe(uri: &[u8]) -> bool {
    // Nearly all have one of these near their beginning.
    let start = &uri[..uri.len().min(LOOKED_AT_MAX_BYTES)];
    let Some(first) = start.first_chunk::<4>() else { return false };
    PROBES_BEGIN.contains(&u32::from_le_bytes(first.map(|b| b.to_ascii_lowercase())))
        && PROBES
            .iter()
            .any(|p| start.get(..p.len()).is_some_and(|start| start.eq_ignore_ascii_case(p)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_by_their_names() {
        for (uri, wanted) in [
            ("/a.css", true),
            ("/a.WOFF2", true),
            ("/a.css?b", false),
            ("/acss", false),
            ("/.css", true),
            (".css", false),
            ("/a.", false),
            ("/a.html", false),
            ("", false),
            ("/a.long-extension", false),
        ] {
            assert_eq!(is_static(uri.as_bytes()), wanted, "{uri}");
        }
        assert!(ends_with(b"/a.webp", &[b".webp".to_vec()]));
        assert!(!ends_with(b".webp", &[b".webp".to_vec()]));
    }

    #[test]
    fn escapes() {
        let mut room = Vec::new();
        for (uri, wanted) in
            [("/a%20b", "/a b"), ("/%zz%4", "/%zz%4"), ("%2f%", "/%"), ("/%0a", "/"), ("/x", "/x")]
        {
            assert_eq!(decoded(uri.as_bytes(), &mut room), wanted.as_bytes(), "{uri}");
        }
    }

    #[test]
    fn sites() {
        assert_eq!(site(b"https://a.example:8080/b"), b"a.example:8080");
        assert_eq!(
            (site(b"https://a.example"), site(b"-"), site(b"//")),
            (&b"a.example"[..], &b""[..], &b""[..])
        );
        assert!(is_own(b"A.example:80", b"a.example") && !is_own(b"", b"") && !is_own(b"b", b"a"));
        assert!(
            is_probe(b"/.git/config")
                && is_probe(b"/phpMyAdmin/")
                && !is_probe(b"/blog/")
                && !is_probe(b"")
        );
    }
}
