//! Who may ask a running server, and what: a Unix socket (on Windows a pipe) beside the pid file, `PIDFILE.control`, which only root
//! and the user that the server was started as may open.
//!
//! One question a connection: a line of words (`profile seconds=10 frequency=99`), answered by `ok BYTES` and a
//! line's end with so many bytes behind it, or by `error TEXT`. Lengths, times and numbers have bounds. [`QUESTIONS`]
//! is the list; each is answered by a thread of its own, so that no worker waits for it.
//!
//! The process that writes the pid file makes the socket; a serving process has it from its master and answers.
//! Both processes of an upgrade or of a change of user have it for a while: one that is to end listens no more. The
//! file goes the pid file's way: it gets its new name by a reload or an upgrade, and is removed with it.

use crate::{asked, trace};
use std::io::{self, BufRead, BufReader, Read, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use weir_core::logger::{ErrorLog, LogLevel};
use weir_core::os_text;
use weir_doctor::checks::told::NO_ANSWER;
use weir_runtime::inquiry::{self, End, Link, Named};
use weir_runtime::process;

/// No question is longer.
const QUESTION_MAX_BYTES: u64 = 1024;
/// Neither side waits longer for the other to say or take something.
const PATIENCE: Duration = Duration::from_secs(5);
/// A server that says nothing for so long is stopped, or stuck.
const ANSWERS: Duration = Duration::from_secs(8);
/// Questions that are answered at once.
const ASKERS_MAX: usize = 4;
/// No answer is longer.
pub const ANSWER_MAX_BYTES: usize = 64 << 20;
/// What the socket is called beside its pid file.
pub const SUFFIX: &str = ".control";

/// Somebody who asks.
pub struct Asker<'a> {
    words: Vec<(&'a str, &'a str)>,
    link: &'a Link,
    pub uid: u32,
    pub log: &'a ErrorLog,
}

impl Asker<'_> {
    /// The value of a word `NAME=VALUE`.
    pub fn word(&self, name: &str) -> Option<&str> {
        self.words.iter().find(|(n, _)| *n == name).map(|(_, value)| *value)
    }

    /// Whether he still waits for the answer.
    pub fn is_there(&self) -> bool {
        inquiry::is_there(self.link)
    }
}

/// What may be asked.
pub struct Question {
    pub name: &'static str,
    /// The words that it may have.
    pub words: &'static [&'static str],
    /// An error is a text of one line.
    pub answer: fn(&Asker<'_>) -> Result<Vec<u8>, String>,
}

pub const QUESTIONS: &[Question] = &[
    Question { name: "version", words: &[], answer: |_| Ok(version()) },
    Question { name: "profile", words: asked::PROFILE_WORDS, answer: asked::profile },
    Question { name: "lua-profile", words: asked::LUA_PROFILE_WORDS, answer: asked::lua_profile },
    Question { name: "trace", words: trace::WORDS, answer: trace::answer },
    Question { name: "figures", words: &[], answer: |_| asked::figures() },
    Question { name: "visitors", words: &[], answer: |_| asked::visitors() },
    Question { name: "ship", words: &["form"], answer: crate::ship::answer },
];

fn version() -> Vec<u8> {
    format!("{} process {}\n", weir_http::output::SERVER_VERSION, process::pid()).into_bytes()
}

/// The socket of this process, and where it is.
struct Held {
    socket: Named,
    path: PathBuf,
    /// Who has made it, and may ask besides root.
    owner: u32,
    /// Dropped, it ends the thread that listens.
    end: Option<End>,
}

static HELD: Mutex<Option<Held>> = Mutex::new(None);

fn held() -> MutexGuard<'static, Option<Held>> {
    HELD.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Where the server of a pid file is asked.
pub fn path_of(pid_file: &Path) -> PathBuf {
    let mut name = pid_file.as_os_str().to_owned();
    name.push(SUFFIX);
    name.into()
}

/// Makes the socket. A server that cannot be asked serves all the same.
pub fn open(pid_file: &Path, log: &ErrorLog) {
    let path = path_of(pid_file);
    match inquiry::listen(&path) {
        Ok(socket) => {
            *held() = Some(Held { socket, path, owner: process::uid(), end: None });
        }
        Err(e) => {
            let text = format!(
                "\"{}\" cannot be listened on ({}): this server cannot be asked",
                path.display(),
                os_text(&e)
            );
            // Where no server can be asked, each start need not say so.
            let is_unsupported = e.kind() == io::ErrorKind::Unsupported;
            let level = if is_unsupported { LogLevel::Info } else { LogLevel::Notice };
            log.log(level, None, text.as_bytes());
        }
    }
}

/// The pid file has another name.
pub fn rename(pid_file: &Path) {
    if let Some(held) = &mut *held() {
        let path = path_of(pid_file);
        if held.socket.rename(&held.path, &path).is_ok() {
            held.path = path;
        }
    }
}

/// The pid file goes.
pub fn remove() {
    if let Some(held) = held().take() {
        held.socket.remove(&held.path);
    }
}

/// Answers from now on, in threads of its own.
pub fn listen(log: &Arc<ErrorLog>) {
    let mut held = held();
    let Some(held) = &mut *held else { return };
    let silent = {
        let path = held.path.clone();
        move |log: &ErrorLog, e: &io::Error| {
            let text = format!("\"{}\": this server cannot be asked ({e})", path.display());
            log.log(LogLevel::Alert, None, text.as_bytes());
        }
    };
    let (askers, end) = match held.socket.answering() {
        Ok(both) => both,
        Err(e) => return silent(log, &e),
    };
    let (owner, log) = (held.owner, Arc::clone(log));
    let run = move || {
        if let Err(e) = askers.begin() {
            silent(&log, &e);
        }
        let asking = Arc::<AtomicUsize>::default();
        while let Some(link) = askers.next() {
            let (asking, log) = (Arc::clone(&asking), Arc::clone(&log));
            if asking.fetch_add(1, Ordering::Relaxed) >= ASKERS_MAX {
                asking.fetch_sub(1, Ordering::Relaxed);
                let _ = say(&link, Err("too many ask at once".into()));
                continue;
            }
            let counted = Counted(asking);
            let answer = move || {
                // Who does not take his answer does without it.
                let _ = serve(&link, owner, &log);
                drop(counted);
            };
            // Without a thread the link is dropped, which tells him.
            let _ = std::thread::Builder::new().name("inquiry".into()).spawn(answer);
        }
    };
    if std::thread::Builder::new().name("inquiries".into()).spawn(run).is_ok() {
        held.end = Some(end);
    }
}

/// One of those who ask at once.
struct Counted(Arc<AtomicUsize>);

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Answers no more: another process does, or this one ends.
pub fn end() {
    if let Some(held) = &mut *held() {
        held.end = None;
    }
}

fn serve(link: &Link, owner: u32, log: &ErrorLog) -> io::Result<()> {
    link.set_nonblocking(false)?;
    link.set_read_timeout(Some(PATIENCE))?;
    link.set_write_timeout(Some(PATIENCE))?;
    let uid = inquiry::who(link)?;
    // The file's rights say so already.
    if uid != 0 && uid != owner {
        return say(link, Err("only root and the user who started the server may ask".into()));
    }
    let mut line = String::new();
    BufReader::new(link.take(QUESTION_MAX_BYTES)).read_line(&mut line)?;
    let answer = match line.strip_suffix('\n') {
        Some(line) => answer(line, link, uid, log),
        None => Err("a question is one line".into()),
    };
    say(link, answer)
}

fn answer(line: &str, link: &Link, uid: u32, log: &ErrorLog) -> Result<Vec<u8>, String> {
    let mut words = line.split_ascii_whitespace();
    let name = words.next().unwrap_or_default();
    let question = QUESTIONS.iter().find(|q| q.name == name);
    let question = question.ok_or_else(|| format!("there is no question \"{name}\""))?;
    let mut pairs = Vec::new();
    for word in words {
        let known = word.split_once('=').filter(|(name, _)| question.words.contains(name));
        pairs.push(known.ok_or_else(|| format!("\"{}\" has no word \"{word}\"", question.name))?);
    }
    (question.answer)(&Asker { words: pairs, link, uid, log })
}

fn say(mut link: &Link, answer: Result<Vec<u8>, String>) -> io::Result<()> {
    match answer {
        Ok(bytes) if bytes.len() <= ANSWER_MAX_BYTES => {
            link.write_all(format!("ok {}\n", bytes.len()).as_bytes())?;
            link.write_all(&bytes)
        }
        Ok(_) => link.write_all(b"error the answer is too long\n"),
        Err(text) => link.write_all(format!("error {}\n", text.replace('\n', " ")).as_bytes()),
    }
}

/// Asks a server. It may take so long for its answer, besides what talking takes.
///
/// # Errors
///
/// Why there is no answer, for people.
pub fn ask(path: &Path, line: &str, takes: Duration) -> Result<Vec<u8>, String> {
    ask_if(path, line, takes + ANSWERS, |_| Ok(true))
}

/// Asks a server that nobody has named: only root's and this user's own are believed, and none is waited for long.
///
/// # Errors
///
/// Why there is no answer, for people.
pub fn ask_found(path: &Path, line: &str) -> Result<Vec<u8>, String> {
    const WITHIN: Duration = Duration::from_secs(1);
    ask_if(path, line, WITHIN, inquiry::is_own)
}

/// Reads until a moment, however slowly it comes.
struct Until<'a> {
    link: &'a Link,
    end: Instant,
}

impl Read for Until<'_> {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        let left = self.end.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(io::ErrorKind::TimedOut.into());
        }
        self.link.set_read_timeout(Some(left))?;
        let mut link = self.link;
        link.read(buf)
    }
}

fn ask_if(
    path: &Path,
    line: &str,
    within: Duration,
    is_believed: impl FnOnce(&Link) -> io::Result<bool>,
) -> Result<Vec<u8>, String> {
    let failed = |e: io::Error| {
        if matches!(e.kind(), io::ErrorKind::TimedOut | io::ErrorKind::WouldBlock) {
            let secs = within.as_secs();
            return format!(
                "the server at \"{}\" {} {secs} s: it is stopped, or stuck",
                path.display(),
                NO_ANSWER
            );
        }
        let who = match e.kind() {
            io::ErrorKind::PermissionDenied => {
                "; only root and the user who started the server may ask it"
            }
            _ => "",
        };
        format!("asking the server at \"{}\" failed ({}){who}", path.display(), os_text(&e))
    };
    let end = Instant::now() + within;
    let mut link = inquiry::connect(path).map_err(failed)?;
    if !is_believed(&link).map_err(failed)? {
        return Err(format!("the server at \"{}\" is another user's", path.display()));
    }
    link.set_write_timeout(Some(PATIENCE.min(within))).map_err(failed)?;
    link.write_all(format!("{line}\n").as_bytes()).map_err(failed)?;
    let mut reader = BufReader::new(Until { link: &link, end });
    let mut head = String::new();
    reader.by_ref().take(QUESTION_MAX_BYTES * 4).read_line(&mut head).map_err(failed)?;
    let head = head.trim_end();
    if let Some(text) = head.strip_prefix("error ") {
        return Err(text.to_owned());
    }
    let bytes = head.strip_prefix("ok ").and_then(|n| n.parse::<usize>().ok());
    let bytes =
        bytes.filter(|n| *n <= ANSWER_MAX_BYTES).ok_or("the server has ended, or is no Weir")?;
    let mut answer = Vec::new();
    reader.take(bytes as u64).read_to_end(&mut answer).map_err(failed)?;
    match answer.len() == bytes {
        true => Ok(answer),
        false => Err("the answer was cut off".into()),
    }
}
