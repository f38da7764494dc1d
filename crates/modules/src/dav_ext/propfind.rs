//! PROPFIND (RFC 4918, section 9.1): what a thread finds of a file, or of a collection and what is in it.

use super::locks::{Lock, Zone};
use super::xml::{escape, Property, Wanted};
use std::fs::{self, Metadata};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::Arc;
use weir_base::bytes::fmt_u64;
use weir_base::date;
use weir_base::escape::{escape_uri, EscapeKind};
use weir_runtime::{files, paths};

/// The longest answer: a tree that has more to tell is to be asked for in parts.
const ANSWER_MAX_BYTES: usize = 16 * 1024 * 1024;
/// All answers together that are made, or wait for their clients.
const ALL_MAX_BYTES: usize = 64 * 1024 * 1024;

static ALL_BYTES: AtomicUsize = AtomicUsize::new(0);

/// An answer, whose bytes are counted while there is any of it.
#[derive(Default)]
pub(super) struct Answer {
    text: Vec<u8>,
    counted_bytes: usize,
}

impl Answer {
    /// Counts what has been written since; `false`: there is no room for it.
    fn count(&mut self) -> bool {
        let more = self.text.len() - self.counted_bytes;
        self.counted_bytes += more;
        ALL_BYTES.fetch_add(more, Ordering::Relaxed) + more <= ALL_MAX_BYTES
    }
}

impl Drop for Answer {
    fn drop(&mut self) {
        ALL_BYTES.fetch_sub(self.counted_bytes, Ordering::Relaxed);
    }
}

impl AsRef<[u8]> for Answer {
    fn as_ref(&self) -> &[u8] {
        &self.text
    }
}

/// How far down a client looks.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Depth {
    Zero,
    One,
    Infinity,
}

/// What is asked, of where.
pub(super) struct Question {
    pub(super) path: PathBuf,
    /// Decoded.
    pub(super) uri: Vec<u8>,
    pub(super) depth: Depth,
    pub(super) wanted: Wanted,
    pub(super) zone: Option<Arc<Zone>>,
    pub(super) supports_locks: bool,
    /// Nobody waits for the answer any more.
    pub(super) is_off: Arc<AtomicBool>,
}

/// Why there is no answer.
pub(super) enum NoAnswer {
    Failed(io::Error),
    TooLong,
    /// Others take the memory that there is for it.
    Busy,
    ClientGone,
}

/// The body of a 207.
pub(super) fn answer(question: &Question) -> Result<Answer, NoAnswer> {
    let found = fs::metadata(&question.path).map_err(NoAnswer::Failed)?;
    let mut answer = Answer::default();
    answer.text.extend_from_slice(START);
    let out = &mut answer.text;
    let mut todo = Vec::new();
    let mut uri = question.uri.clone();
    if found.is_dir() && uri.last() != Some(&b'/') {
        uri.push(b'/');
    }
    response(out, question, &uri, &question.path, &found);
    if found.is_dir() && question.depth != Depth::Zero {
        todo.push((question.path.clone(), uri));
    }
    while let Some((dir, uri)) = todo.pop() {
        // One that cannot be read shows nothing of what is in it.
        for item in fs::read_dir(&dir).into_iter().flatten().flatten() {
            let name = item.file_name();
            let name = paths::bytes(&name);
            if name.starts_with(b".") {
                continue;
            }
            let path = item.path();
            // A link is what it leads to, which may be nowhere; but it is not gone through.
            let Ok(found) = fs::metadata(&path) else { continue };
            let mut uri = [&uri[..], name].concat();
            if found.is_dir() {
                uri.push(b'/');
            }
            response(&mut answer.text, question, &uri, &path, &found);
            may_go_on(&mut answer, question)?;
            let is_link = item.file_type().is_ok_and(|kind| kind.is_symlink());
            if found.is_dir() && !is_link && question.depth == Depth::Infinity {
                todo.push((path, uri));
            }
        }
    }
    answer.text.extend_from_slice(b"</D:multistatus>\n");
    may_go_on(&mut answer, question)?;
    Ok(answer)
}

fn may_go_on(answer: &mut Answer, question: &Question) -> Result<(), NoAnswer> {
    match answer.count() {
        _ if question.is_off.load(Ordering::Relaxed) => Err(NoAnswer::ClientGone),
        _ if answer.text.len() > ANSWER_MAX_BYTES => Err(NoAnswer::TooLong),
        true => Ok(()),
        false => Err(NoAnswer::Busy),
    }
}

const START: &[u8] =
    b"<?xml version=\"1.0\" encoding=\"utf-8\"?>\n<D:multistatus xmlns:D=\"DAV:\">\n";

/// WebDAV's own properties, as they are named.
const NAMES: &[&str] = &[
    "displayname",
    "getcontentlength",
    "getlastmodified",
    "getetag",
    "resourcetype",
    "lockdiscovery",
    "supportedlock",
];

fn response(out: &mut Vec<u8>, question: &Question, uri: &[u8], path: &Path, found: &Metadata) {
    out.extend_from_slice(b"<D:response>\n<D:href>");
    href(out, uri);
    out.extend_from_slice(b"</D:href>\n<D:propstat>\n<D:prop>\n");
    let mut unknown = Vec::new();
    let what = What { question, uri, path, found };
    match &question.wanted {
        Wanted::Names => {
            for name in NAMES.iter().filter(|name| what.has(name)) {
                tag(out, b"<D:", name.as_bytes(), b"/>\n");
            }
        }
        Wanted::All => NAMES.iter().for_each(|name| what.write(out, name)),
        Wanted::These(list) => {
            let is_known = |p: &&Property| p.dav().is_some_and(|name| what.has(name));
            let (known, others): (Vec<_>, Vec<_>) = list.iter().partition(is_known);
            known.iter().filter_map(|p| p.dav()).for_each(|name| what.write(out, name));
            unknown = others;
        }
    }
    out.extend_from_slice(b"</D:prop>\n<D:status>HTTP/1.1 200 OK</D:status>\n</D:propstat>\n");
    if !unknown.is_empty() {
        out.extend_from_slice(b"<D:propstat>\n<D:prop>\n");
        unknown.iter().for_each(|property| missing(out, property));
        out.extend_from_slice(
            b"</D:prop>\n<D:status>HTTP/1.1 404 Not Found</D:status>\n</D:propstat>\n",
        );
    }
    out.extend_from_slice(b"</D:response>\n");
}

/// A URI as XML.
pub(super) fn href(out: &mut Vec<u8>, uri: &[u8]) {
    let mut escaped = Vec::with_capacity(uri.len());
    escape_uri(&mut escaped, uri, EscapeKind::Uri);
    escape(out, &String::from_utf8_lossy(&escaped));
}

fn tag(out: &mut Vec<u8>, start: &[u8], name: &[u8], end: &[u8]) {
    [start, name, end].iter().for_each(|part| out.extend_from_slice(part));
}

fn missing(out: &mut Vec<u8>, property: &Property) {
    out.extend_from_slice(b"<");
    escape(out, &property.name);
    out.extend_from_slice(b" xmlns=\"");
    escape(out, &property.namespace);
    out.extend_from_slice(b"\"/>\n");
}

/// One file, as it is shown.
struct What<'a> {
    question: &'a Question,
    uri: &'a [u8],
    path: &'a Path,
    found: &'a Metadata,
}

impl What<'_> {
    fn has(&self, name: &str) -> bool {
        match name {
            "getcontentlength" | "getetag" => !self.found.is_dir(),
            "lockdiscovery" | "supportedlock" => self.question.supports_locks,
            name => NAMES.contains(&name),
        }
    }

    fn write(&self, out: &mut Vec<u8>, name: &str) {
        if !self.has(name) {
            return;
        }
        tag(out, b"<D:", name.as_bytes(), b">");
        match name {
            "displayname" => self.display_name(out),
            "getcontentlength" => fmt_u64(out, self.found.len()),
            "getlastmodified" => {
                out.extend_from_slice(&date::http_time(files::modified_secs(self.found)));
            }
            "getetag" => escape(out, &etag(self.found)),
            "resourcetype" if self.found.is_dir() => out.extend_from_slice(b"<D:collection/>"),
            "supportedlock" => out.extend_from_slice(
                b"<D:lockentry><D:lockscope><D:exclusive/></D:lockscope>\
                  <D:locktype><D:write/></D:locktype></D:lockentry>",
            ),
            "lockdiscovery" => {
                let path = super::key(self.path);
                if let Some(lock) = self.question.zone.as_ref().and_then(|z| z.of(&path)) {
                    active_lock(out, &lock);
                }
            }
            _ => {}
        }
        tag(out, b"</D:", name.as_bytes(), b">\n");
    }

    fn display_name(&self, out: &mut Vec<u8>) {
        let uri = self.uri.strip_suffix(b"/").unwrap_or(self.uri);
        let at = uri.iter().rposition(|b| *b == b'/').map_or(0, |at| at + 1);
        escape(out, &String::from_utf8_lossy(&uri[at..]));
    }
}

/// As the file is served with.
pub(super) fn etag(found: &Metadata) -> String {
    format!("\"{:x}-{:x}\"", files::modified_secs(found), found.len())
}

pub(super) fn active_lock(out: &mut Vec<u8>, lock: &Lock) {
    let depth: &[u8] = if lock.infinite { b"infinity" } else { b"0" };
    out.extend_from_slice(
        b"<D:activelock>\n<D:locktype><D:write/></D:locktype>\n\
          <D:lockscope><D:exclusive/></D:lockscope>\n<D:depth>",
    );
    out.extend_from_slice(depth);
    out.extend_from_slice(b"</D:depth>\n");
    if !lock.owner.is_empty() {
        tag(out, b"<D:owner>", &lock.owner, b"</D:owner>\n");
    }
    out.extend_from_slice(b"<D:timeout>Second-");
    fmt_u64(out, lock.left_secs());
    tag(
        out,
        b"</D:timeout>\n<D:locktoken><D:href>",
        lock.token.as_bytes(),
        b"</D:href></D:locktoken>\n",
    );
    out.extend_from_slice(b"<D:lockroot><D:href>");
    escape(out, &String::from_utf8_lossy(&lock.root));
    out.extend_from_slice(b"</D:href></D:lockroot>\n</D:activelock>\n");
}
