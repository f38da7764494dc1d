//! What a User-Agent says that it is: browser, system, robot. Strings that were seen are remembered, so that a
//! table is gone through once for each.

mod tables;

use crate::sketch::ByHash;
use memchr::memmem::{self, Finder};
use std::sync::LazyLock;
use tables::{BOTS, BROWSERS, SYSTEMS};

/// What robots are for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum Kind {
    Search,
    Ai,
    Seo,
    Social,
    Monitor,
    Feed,
    Archive,
    Scanner,
    Tool,
    Other,
}

impl Kind {
    pub const ALL: [Kind; 10] = [
        Kind::Search,
        Kind::Ai,
        Kind::Seo,
        Kind::Social,
        Kind::Monitor,
        Kind::Feed,
        Kind::Archive,
        Kind::Scanner,
        Kind::Tool,
        Kind::Other,
    ];

    pub fn name(self) -> &'static str {
        match self {
            Kind::Search => "search engines",
            Kind::Ai => "language models",
            Kind::Seo => "link and keyword indexes",
            Kind::Social => "previews of links",
            Kind::Monitor => "monitors",
            Kind::Feed => "feed readers",
            Kind::Archive => "archives",
            Kind::Scanner => "scanners",
            Kind::Tool => "programs and libraries",
            Kind::Other => "other robots",
        }
    }
}

/// Who runs a robot, where its networks are known (`networks`).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Operator {
    Google,
    Microsoft,
    Apple,
    Yandex,
    Meta,
}

/// A robot's name.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Bot {
    /// Of the table.
    Known(u8),
    /// The part of the string that names it.
    Named { start: u16, len: u8 },
}

/// What a string says.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Agent {
    /// Numbers of [`browser_name`] and [`system_name`].
    pub browser: u8,
    pub system: u8,
    /// The browser's first number; 0: unknown.
    pub version: u16,
    pub bot: Option<Bot>,
}

/// What is no browser, behind the table's numbers, by GoAccess's names: robots; programs, and what only says `Mozilla`; the
/// rest.
const NO_BROWSERS: [&str; 3] = ["Crawlers", "Others", "Unknown"];
const CRAWLER: u8 = BROWSERS.len() as u8;
const OTHER: u8 = CRAWLER + 1;
const UNKNOWN: u8 = CRAWLER + 2;

pub fn browser_name(n: u8) -> &'static str {
    let n = usize::from(n);
    let no_browser = || NO_BROWSERS.get(n.saturating_sub(BROWSERS.len())).copied();
    BROWSERS.get(n).map(|b| b.name).or_else(no_browser).unwrap_or("Unknown")
}

pub fn system_name(n: u8) -> &'static str {
    SYSTEMS.get(usize::from(n)).map_or("Unknown", |s| s.1)
}

pub const BROWSERS_COUNT: usize = BROWSERS.len() + NO_BROWSERS.len();
/// One more than the table has, for what is unknown.
pub const SYSTEMS_COUNT: usize = SYSTEMS.len() + 1;

impl Bot {
    /// `agent` is the string that it was found in.
    pub fn name(self, agent: &[u8]) -> &[u8] {
        match self {
            Bot::Known(n) => BOTS.get(usize::from(n)).map_or(b"", |b| b.name.as_bytes()),
            Bot::Named { start, len } => {
                let start = usize::from(start);
                agent.get(start..start + usize::from(len)).unwrap_or(b"robot")
            }
        }
    }

    pub fn kind(self) -> Kind {
        match self {
            Bot::Known(n) => BOTS.get(usize::from(n)).map_or(Kind::Other, |b| b.kind),
            Bot::Named { .. } => Kind::Other,
        }
    }

    pub fn operator(self) -> Option<Operator> {
        match self {
            Bot::Known(n) => BOTS.get(usize::from(n))?.operator,
            Bot::Named { .. } => None,
        }
    }
}

/// Strings are looked at so far.
const LOOKED_AT_MAX_BYTES: usize = 1024;

struct Finders {
    bots: Vec<Finder<'static>>,
    browsers: Vec<Vec<Finder<'static>>>,
    systems: Vec<Finder<'static>>,
}

static FINDERS: LazyLock<Finders> = LazyLock::new(|| Finders {
    bots: BOTS.iter().map(|b| Finder::new(b.needle)).collect(),
    browsers: BROWSERS
        .iter()
        .map(|b| b.needles.iter().map(|n| Finder::new(*n)).collect())
        .collect(),
    systems: SYSTEMS.iter().map(|(needle, _)| Finder::new(*needle)).collect(),
});

impl Agent {
    pub const UNKNOWN: Agent =
        Agent { browser: UNKNOWN, system: SYSTEMS.len() as u8, version: 0, bot: None };

    /// Looks it up in all tables.
    pub fn read(text: &[u8]) -> Agent {
        let text = &text[..text.len().min(LOOKED_AT_MAX_BYTES)];
        let mut plain = Vec::new();
        // CloudFront's and IIS's logs have no spaces in it; the lengths only stay the same for the latter.
        let looked_at = match memchr::memchr(b' ', text) {
            Some(_) => text,
            None => {
                plain.extend(text.iter().map(|b| if *b == b'+' { b' ' } else { *b }));
                if memmem::find(text, b"%20").is_some() {
                    plain.clear();
                    let _ = weir_base::escape::unescape_uri(
                        &mut plain,
                        text,
                        weir_base::escape::Unescape::Uri,
                    );
                }
                &plain
            }
        };
        let bot = bot(looked_at);
        let (browser, version) = match bot {
            // Theirs call themselves browsers as well, as `Googlebot` does `Chrome`.
            Some(robot) if robot.operator().is_some() => (CRAWLER, 0),
            _ => browser(looked_at).unwrap_or((no_browser(looked_at, bot), 0)),
        };
        Agent { browser, system: system(looked_at), version, bot }
    }
}

fn no_browser(text: &[u8], bot: Option<Bot>) -> u8 {
    match bot.map(Bot::kind) {
        Some(Kind::Tool) => OTHER,
        Some(_) => CRAWLER,
        None if text.starts_with(b"Mozilla/") => OTHER,
        None => UNKNOWN,
    }
}

fn browser(text: &[u8]) -> Option<(u8, u16)> {
    for (n, finders) in FINDERS.browsers.iter().enumerate() {
        for (finder, needle) in finders.iter().zip(BROWSERS[n].needles) {
            if let Some(at) = finder.find(text) {
                return Some((n as u8, version(text, at + needle.len())));
            }
        }
    }
    None
}

/// Safari's is elsewhere: `Version/17.4 … Safari/605`.
fn version(text: &[u8], behind: usize) -> u16 {
    let from = match memmem::find(text, b"Version/") {
        Some(at) if text[..behind].ends_with(b"Safari/") => at + b"Version/".len(),
        _ => behind,
    };
    let digits = text[from..].iter().take_while(|b| b.is_ascii_digit()).take(4);
    digits.fold(0, |n, b| n * 10 + u16::from(b - b'0'))
}

fn system(text: &[u8]) -> u8 {
    let found = FINDERS.systems.iter().position(|finder| finder.find(text).is_some());
    found.unwrap_or(SYSTEMS.len()) as u8
}

fn bot(text: &[u8]) -> Option<Bot> {
    if let Some(n) = FINDERS.bots.iter().position(|finder| finder.find(text).is_some()) {
        return Some(Bot::Known(n as u8));
    }
    named(text)
}

/// A word that calls itself one, or that stands before an address to complain to.
fn named(text: &[u8]) -> Option<Bot> {
    const WORDS: [&[u8]; 6] = [b"bot", b"crawl", b"spider", b"scan", b"fetch", b"+http"];
    let lower = text.to_ascii_lowercase();
    let at = WORDS.iter().find_map(|word| memmem::find(&lower, word))?;
    let is_edge = |b: &u8| matches!(b, b' ' | b';' | b'(' | b')' | b',' | b'/' | b'"');
    let mut end = at;
    if lower[at..].starts_with(b"+http") {
        // `NameOfIt/1.0 (+http://…)`: the word before.
        end = text[..at].iter().rposition(|b| !is_edge(b) && *b != b'+')?;
        if text[end].is_ascii_digit() || text[end] == b'.' {
            end = text[..end].iter().rposition(|b| *b == b'/').unwrap_or(end).saturating_sub(1);
        }
    }
    let start = text[..end].iter().rposition(is_edge).map_or(0, |n| n + 1);
    let len = text[start..].iter().position(is_edge).unwrap_or(text.len() - start);
    if len == 0 || len > usize::from(u8::MAX) {
        return None;
    }
    Some(Bot::Named { start: start as u16, len: len as u8 })
}

/// Strings that were seen, by their hashes; forgotten all at once when they are many.
#[derive(Clone)]
pub struct Memo {
    seen: ByHash<Agent>,
    max: usize,
}

impl Memo {
    pub fn new(max: usize) -> Memo {
        Memo { seen: ByHash::default(), max }
    }

    /// What it takes.
    pub fn heap_bytes(&self) -> usize {
        self.seen.capacity() * (size_of::<Agent>() + 16)
    }

    pub fn read(&mut self, hash: u64, text: &[u8]) -> Agent {
        if let Some(agent) = self.seen.get(&hash) {
            return *agent;
        }
        if self.seen.len() >= self.max {
            self.seen.clear();
        }
        let agent = Agent::read(text);
        self.seen.insert(hash, agent);
        agent
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> (String, &'static str, String) {
        let agent = Agent::read(text.as_bytes());
        let bot = agent.bot.map(|b| String::from_utf8_lossy(b.name(text.as_bytes())).into_owned());
        let browser = format!("{} {}", browser_name(agent.browser), agent.version);
        (browser, system_name(agent.system), bot.unwrap_or_default())
    }

    #[test]
    fn browsers_and_systems() {
        for (text, browser, system) in [
            ("Mozilla/5.0 (Windows NT 10.0; Win64; x64) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/120.0.0.0 Safari/537.36", "Chrome 120", "Windows 10 or 11"),
            ("Mozilla/5.0 (Windows NT 10.0; Win64; x64) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/120.0.0.0 Safari/537.36 Edg/121.0", "Edge 121", "Windows 10 or 11"),
            ("Mozilla/5.0 (Macintosh; Intel Mac OS X 10_15_7) AppleWebKit/605.1.15 (KHTML, like Gecko) Version/17.4 Safari/605.1.15", "Safari 17", "macOS"),
            ("Mozilla/5.0 (iPhone; CPU iPhone OS 17_2 like Mac OS X) AppleWebKit/605.1.15 (KHTML, like Gecko) Version/17.2 Mobile/15E148 Safari/604.1", "Safari 17", "iOS"),
            ("Mozilla/5.0 (X11; Ubuntu; Linux x86_64; rv:121.0) Gecko/20100101 Firefox/121.0", "Firefox 121", "Linux"),
            ("Mozilla/5.0 (Linux; Android 10; K) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/119.0.0.0 Mobile Safari/537.36 OPR/79.0", "Opera 79", "Android"),
            ("Mozilla/5.0 (Windows NT 6.1; Trident/7.0; rv:11.0) like Gecko", "Internet Explorer 11", "Windows 7"),
            ("Mozilla/5.0+(Windows+NT+10.0)+Gecko/20100101+Firefox/121.0", "Firefox 121", "Windows 10 or 11"),
            ("Mozilla/5.0%20(Windows%20NT%2010.0)%20Firefox/121.0", "Firefox 121", "Windows 10 or 11"),
            ("curl/8.5.0", "curl 8", "Unknown"),
            ("", "Unknown 0", "Unknown"),
            ("-", "Unknown 0", "Unknown"),
            ("my own", "Unknown 0", "Unknown"),
            ("Mozilla/5.0 (compatible; bingbot/2.0; +http://www.bing.com/bingbot.htm)", "Crawlers 0", "Unknown"),
            ("Mozilla/5.0 (Linux; Android 6.0.1) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/120.0.0.0 Mobile Safari/537.36 (compatible; Googlebot/2.1)", "Crawlers 0", "Android"),
            ("FooBot/1.0", "Crawlers 0", "Unknown"),
            ("Mozilla/5.0 (Linux; Android 9; CUBOT X19) Chrome/120.0.0.0 Mobile Safari/537.36", "Chrome 120", "Android"),
            ("okhttp/4.12", "Others 0", "Unknown"),
            ("Mozilla/5.0", "Others 0", "Unknown"),
        ] {
            let (found_browser, found_system, _) = read(text);
            assert_eq!((&*found_browser, found_system), (browser, system), "{text}");
        }
    }

    #[test]
    fn robots() {
        for (text, name) in [
            ("Mozilla/5.0 (compatible; Googlebot/2.1; +http://www.google.com/bot.html)", "Googlebot"),
            ("Mozilla/5.0 AppleWebKit/537.36 (KHTML, like Gecko; compatible; GPTBot/1.2; +https://openai.com/gptbot)", "GPTBot"),
            ("FooBot/1.0", "FooBot"),
            ("Mozilla/5.0 (compatible; my-spider; http://x.example)", "my-spider"),
            ("Something/1.0 (+http://x.example/why)", "Something"),
            ("Something (+http://x.example/why)", "Something"),
            ("+http", ""),
            ("bot", "bot"),
            ("curl/8.5.0", "curl"),
            ("Mozilla/5.0 (X11; Linux x86_64; rv:121.0) Gecko/20100101 Firefox/121.0", ""),
        ] {
            assert_eq!(read(text).2, name, "{text}");
        }
        let google = Agent::read(b"Googlebot/2.1").bot.unwrap();
        assert_eq!((google.kind(), google.operator()), (Kind::Search, Some(Operator::Google)));
    }

    #[test]
    fn tables_fit_their_numbers() {
        assert!(BOTS.len() < 255 && BROWSERS.len() < 255 && SYSTEMS.len() < 255);
        let mut memo = Memo::new(2);
        for text in ["curl/1", "curl/2", "curl/3", "curl/1"] {
            let hash = crate::sketch::Seed::new(0).text(text.as_bytes());
            assert_eq!(memo.read(hash, text.as_bytes()), Agent::read(text.as_bytes()));
            assert!(memo.seen.len() <= 2);
        }
    }
}
