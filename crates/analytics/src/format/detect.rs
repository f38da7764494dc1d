//! Which format a log has, by its first lines.

use super::table::Table;
use super::{Escape, Format, Kind};
use std::sync::Arc;

/// What `--format` takes beside texts.
pub const NAMED: &[&str] =
    &["combined", "common", "vcombined", "vcommon", "ingress", "json", "elb", "alb"];

/// By name, in the order in which they are tried: what says more is before what says less.
const TEXTS: &[(&str, &str)] = &[
    (
        "ingress",
        "$remote_addr - $remote_user [$time_local] \"$request\" $status $body_bytes_sent \"$http_referer\" \
         \"$http_user_agent\" $request_length $request_time [",
    ),
    (
        "vcombined",
        "$host:$server_port $remote_addr - $remote_user [$time_local] \"$request\" $status $body_bytes_sent \
         \"$http_referer\" \"$http_user_agent\"",
    ),
    (
        "vcombined",
        "$host $remote_addr - $remote_user [$time_local] \"$request\" $status $body_bytes_sent \
         \"$http_referer\" \"$http_user_agent\"",
    ),
    (
        "combined",
        "$remote_addr - $remote_user [$time_local] \"$request\" $status $body_bytes_sent \
         \"$http_referer\" \"$http_user_agent\"",
    ),
    (
        // Apache's, whose second word is the client's user by identd.
        "combined",
        "$remote_addr $ident $remote_user [$time_local] \"$request\" $status $body_bytes_sent \
         \"$http_referer\" \"$http_user_agent\"",
    ),
    (
        "vcommon",
        "$host:$server_port $remote_addr $ident $remote_user [$time_local] \"$request\" $status $body_bytes_sent",
    ),
    ("vcommon", "$host $remote_addr $ident $remote_user [$time_local] \"$request\" $status $body_bytes_sent"),
    ("common", "$remote_addr $ident $remote_user [$time_local] \"$request\" $status $body_bytes_sent"),
    (
        "alb",
        "$kind $time_iso8601 $elb $remote_addr $target $t1 $request_time $t3 $elb_status $status $received \
         $bytes_sent \"$request\" \"$http_user_agent\"",
    ),
    (
        "elb",
        "$time_iso8601 $elb $remote_addr $target $t1 $request_time $t3 $elb_status $status $received $bytes_sent \
         \"$request\" \"$http_user_agent\"",
    ),
];
/// So many lines are looked at.
const LINES_MAX: usize = 400;
/// Of so many lines at least one must be a request.
const ONE_OF: usize = 10;

fn compiled(name: &str, text: &str) -> Option<Format> {
    Format::nginx(text.as_bytes(), Escape::Default)
        .ok()
        .map(|f| Format { name: name.to_owned(), ..f })
}

pub fn named(name: &[u8]) -> Option<Format> {
    if name.eq_ignore_ascii_case(b"json") {
        return Some(Format::json());
    }
    // The last of those that have the name: the one that takes the others' lines too, or Apache's.
    let mut found = TEXTS.iter().filter(|(n, _)| n.as_bytes().eq_ignore_ascii_case(name));
    found.next().and_then(|(name, text)| compiled(name, text))
}

/// `None`: no format that is known has lines like these.
pub fn detect(sample: &[u8]) -> Option<Format> {
    if let Some(table) = Table::find(sample) {
        return Some(Format { name: "w3c".to_owned(), kind: Kind::Table(Arc::new(table)) });
    }
    let lines: Vec<&[u8]> = sample
        .split(|b| *b == b'\n')
        .filter(|line| !matches!(line.first(), None | Some(b'#' | b'\r')))
        .take(LINES_MAX)
        .collect();
    let known = TEXTS.iter().filter_map(|(name, text)| compiled(name, text));
    let mut best: Option<(usize, Format)> = None;
    for format in known.chain([Format::json()]) {
        let mut scanner = format.scanner();
        let good = lines.iter().filter(|line| matches!(scanner.scan(line), Some(Ok(_)))).count();
        if good > best.as_ref().map_or(0, |(most, _)| *most) {
            best = Some((good, format));
        }
    }
    best.filter(|(good, _)| good * ONE_OF >= lines.len()).map(|(_, format)| format)
}
