//! `weir trace URL`: one request to a running server, and what it went through there.
//!
//! Who may ask the server (`inquiry`) gets a word from it that nobody can guess, sends a request that shows it, and asks
//! what came of it. The word is good for one request, and for a minute.

mod fetch;
mod show;

use crate::inquiry::{self, Asker};
use crate::load::Paths;
use crate::profile::socket;
use fetch::Target;
use std::collections::hash_map::RandomState;
use std::hash::BuildHasher;
use std::io::Write;
use std::time::{Duration, Instant};
use weir_core::logger::LogLevel;
use weir_http::trace::{self as traces, Name};
use weir_module::Layout;

/// What the command line says.
pub struct Wanted {
    pub pid: Option<u32>,
    pub url: String,
    pub json: bool,
    /// Where the server is reached, if that is not what the URL says.
    pub to: Option<String>,
    pub method: String,
    /// `NAME: VALUE`
    pub fields: Vec<String>,
}

impl Default for Wanted {
    fn default() -> Wanted {
        let (url, method, fields) = (String::new(), "GET".to_string(), Vec::new());
        Wanted { pid: None, url, json: false, to: None, method, fields }
    }
}

pub fn help() -> Result<(), String> {
    let name = Layout::here().name;
    let text = format!(
        "\
Usage: {name} trace [-p PID | -c filename] [--json] [--to ADDRESS] [-X METHOD] [-H FIELD] URL

Sends a request to a running server and shows what it went through there, and when: phases and their
handlers, waits, subrequests, servers that were asked, the cache, the handshake. The server is found by
its configuration's pid file, or by the number of its process, and asked through PIDFILE.control: that
only root and the user who started the server may do. Other requests are served as ever.

  URL         : http://HOST[:PORT]/PATH, or https:// (its certificate is not looked at)
  -c filename : configuration of the server (-p prefix and -g as for serving)
  -p PID      : number of its process
  --to ADDRESS: HOST:PORT to connect to, if that is not what the URL says
  -X METHOD   : instead of GET
  -H FIELD    : a further header field, \"Name: value\"; may be given several times
  --json      : as JSON, times in microseconds
"
    );
    std::io::stdout().write_all(text.as_bytes()).map_err(|e| format!("{e}\n"))
}

pub const WORDS: &[&str] = &["word"];
/// What was traced is told when the request has been logged: a moment behind its answer.
const PATIENCE: Duration = Duration::from_secs(5);
const LOOK: Duration = Duration::from_millis(5);

/// `trace`: a word; `trace word=WORD`: what came of it, as JSON.
pub fn answer(asker: &Asker<'_>) -> Result<Vec<u8>, String> {
    let Some(word) = asker.word("word") else {
        let keys = [RandomState::new(), RandomState::new()];
        let word: String = keys.iter().map(|key| format!("{:016x}", key.hash_one(1u8))).collect();
        traces::offer(word.clone()).ok_or("too many requests are traced at once")?;
        let text = format!("a request is traced, asked for by user {}", asker.uid);
        asker.log.log(LogLevel::Notice, None, text.as_bytes());
        return Ok(word.into_bytes());
    };
    let end = Instant::now() + PATIENCE;
    let told = loop {
        match traces::take(word) {
            Some(told) => break told,
            None if Instant::now() > end || !asker.is_there() => {
                return Err("the request has not come to this server, or not to its end".into());
            }
            None => std::thread::sleep(LOOK),
        }
    };
    let mut addresses: Vec<usize> = told
        .spans
        .iter()
        .filter_map(|span| match span.name {
            Name::Handler(at) => Some(at),
            Name::Text(_) => None,
        })
        .collect();
    addresses.sort_unstable();
    addresses.dedup();
    let names = weir_profile::names(&addresses);
    let name_of = |at: usize| match addresses.binary_search(&at) {
        Ok(n) => names.get(n).map(|name| short(name)).unwrap_or_default(),
        Err(_) => String::new(),
    };
    let mut text = Vec::new();
    told.figures(name_of).write_json(&mut text);
    text.push(b'\n');
    Ok(text)
}

/// `weir_modules::limit_req::handler` is `limit_req::handler`; what passes requests on says so. A closure that is
/// called as a function has no name of its own.
fn short(name: &str) -> String {
    let name =
        name.strip_prefix('<').map_or(name, |rest| rest.split(" as ").next().unwrap_or(rest));
    if name.starts_with("core::ops::function::") {
        return String::new();
    }
    if name.starts_with("weir_backend::run::") {
        return "passed on".into();
    }
    let words: Vec<&str> = name.split("::").filter(|word| !word.starts_with("{closure")).collect();
    match words.first() {
        Some(first) if first.starts_with("weir_") && words.len() > 1 => words[1..].join("::"),
        _ => words.join("::"),
    }
}

pub fn run(paths: &Paths, wanted: &Wanted) -> Result<(), String> {
    make(paths, wanted).map_err(|e| format!("{}: {e}\n", crate::load::PROGRAM))
}

fn make(paths: &Paths, wanted: &Wanted) -> Result<(), String> {
    let target = Target::of(&wanted.url, wanted.to.as_deref())?;
    for (what, text) in
        wanted.fields.iter().map(|f| ("field", f)).chain([("method", &wanted.method)])
    {
        if text.chars().any(char::is_control) {
            return Err(format!(
                "the {what} \"{}\" has characters that none may have",
                text.escape_debug()
            ));
        }
    }
    let socket = socket(paths, wanted.pid)?;
    let word = inquiry::ask(&socket, "trace", Duration::ZERO)?;
    let word = String::from_utf8(word).map_err(|_| "the answer is no word")?;
    fetch::fetch(&target, wanted, &word)?;
    let told = inquiry::ask(&socket, &format!("trace word={word}"), PATIENCE)?;
    let text = match wanted.json {
        true => told,
        false => show::show(&told)?.into_bytes(),
    };
    std::io::stdout().write_all(&text).map_err(|e| e.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_short() {
        for (name, expected) in [
            ("weir_modules::limit_req::handler", "limit_req::handler"),
            ("weir_backend::run::handler::{closure#0}", "passed on"),
            ("core::ops::function::FnOnce::call_once", ""),
            (
                "<weir_backend::families::proxy::Proxy as weir_backend::family::Family>::run",
                "families::proxy::Proxy",
            ),
            ("main", "main"),
            ("0x12", "0x12"),
        ] {
            assert_eq!(short(name), expected);
        }
    }
}
