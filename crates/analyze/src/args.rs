//! The command line of `weir analyze`. Each option is one row, from which its help comes.

use std::io::IsTerminal;
use weir_analytics::event::Moment;
use weir_analytics::format::{time, Format, NAMED};

const THREADS_MAX: usize = 64;
/// Rows of a list.
const TOP: usize = 20;
const TOP_MAX: usize = 10_000;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Output {
    Terminal,
    Html,
    Json,
    Csv,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Anonymize {
    Shorten,
    Hash,
}

pub struct Args {
    pub files: Vec<Vec<u8>>,
    pub format: Option<Format>,
    pub conf: Option<Vec<u8>>,
    pub log: Option<Vec<u8>>,
    pub from: Option<Moment>,
    pub to: Option<Moment>,
    pub top: usize,
    pub databases: Vec<Vec<u8>>,
    pub anonymize: Option<Anonymize>,
    pub site: Vec<u8>,
    pub extensions: Vec<Vec<u8>>,
    pub output: Output,
    pub write: Option<Vec<u8>>,
    pub follow: bool,
    pub every_ms: u64,
    threads: Option<usize>,
    progress: Option<bool>,
}

/// Name, what its value is called (none: it has no value), what it does.
const OPTIONS: &[(&str, &str, &str)] = &[
    ("--format", "FORMAT", "how lines are written: a name (see below), or the text of a log_format ($) or LogFormat (%)"),
    ("--conf", "FILE", "take the format from this nginx.conf: that of the access_log that is called like the file"),
    ("--log", "NAME", "with --conf: the log_format of this name"),
    ("--from", "TIME", "only requests from then on, by the log's clock: 2026-10-10, or 2026-10-10T13:55[:36]"),
    ("--to", "TIME", "only requests until then, with the last second of what is not said"),
    ("--top", "N", "so many rows in each list (20)"),
    ("--geoip", "FILE", "countries and networks from this .mmdb; may be given several times"),
    ("--anonymize", "HOW", "shorten: addresses by their networks alone; hash: by a name that changes daily"),
    ("--site", "NAME", "the site's own name, where lines have none: links from it are no entry points"),
    ("--static", "LIST", "further extensions of static files, as .webp,.avif"),
    ("--output", "KIND", "terminal (default), html, json or csv"),
    ("--write", "FILE", "write there and not to standard output; the file is replaced when all is written"),
    ("--follow", "", "go on with what is added, also when the log is rotated, until interrupted"),
    ("--every", "SECONDS", "with --follow: look so often, 0.05 to 3600 (1)"),
    ("--threads", "N", "threads (as many as there are processors, 16 at most)"),
    ("--progress", "", "show how far it is, also where standard error is no terminal"),
    ("--no-progress", "", "do not show it"),
    ("--help", "", "this help"),
];

pub fn help() -> String {
    let mut text = "\
Usage: weir analyze [OPTION]... FILE...

Says what access logs say: visitors, requests, files, what was not found, hosts, referrers, browsers, robots.
FILE may be compressed by gzip or zstd; - is standard input.

Options:
"
    .to_owned();
    for (name, value, about) in OPTIONS {
        text.push_str(&format!("  {:<22} {about}\n", format!("{name} {value}").trim_end()));
    }
    text.push_str(&format!(
        "
The format is found by itself where it is one of: {}, or W3C's extended one.

What counts: a visitor is an address with a user agent on one day, and nobody becomes one by errors 4xx; each URL
is one for each method and protocol. Memory is bounded: counts of different things are exact up to 65536, then
within a standard error of 0.4 % (visitors of one row: exact up to 128, then 3.3 %; of a day, a browser and the
like: up to 1024, then 0.8 %). Lists with more names than fit say how many requests a name may have beside those
that are shown (a + behind the number, may_have_more in JSON and CSV). The same files give the same report each
time, but for the names of --anonymize=hash. With another number of threads only lists differ that have more names
than fit; those of what is compressed or piped may do so from run to run where there is more than one thread.

ctrl-C ends reading, and what was read so far is told (a second one ends at once).
",
        NAMED.join(", ")
    ));
    text
}

fn text(word: &[u8]) -> String {
    String::from_utf8_lossy(word).into_owned()
}

impl Args {
    /// `None`: help is wanted.
    pub fn parse(words: Vec<Vec<u8>>) -> Result<Option<Args>, String> {
        let mut args = Args {
            files: Vec::new(),
            format: None,
            conf: None,
            log: None,
            from: None,
            to: None,
            top: TOP,
            databases: Vec::new(),
            anonymize: None,
            site: Vec::new(),
            extensions: Vec::new(),
            output: Output::Terminal,
            write: None,
            follow: false,
            every_ms: 1000,
            threads: None,
            progress: None,
        };
        let mut words = words.into_iter();
        let mut is_over = false;
        while let Some(word) = words.next() {
            if is_over || word == b"-" || !word.starts_with(b"-") {
                args.files.push(word);
                continue;
            }
            if word == b"--" {
                is_over = true;
                continue;
            }
            if word == b"--help" || word == b"-h" {
                return Ok(None);
            }
            let equals = word.iter().position(|b| *b == b'=');
            let name = text(&word[..equals.unwrap_or(word.len())]);
            let glued = equals.map(|at| word[at + 1..].to_vec());
            let row = OPTIONS.iter().find(|(known, ..)| *known == name);
            let Some((name, value, _)) = row else {
                return Err(format!("there is no option \"{name}\"; --help shows them"));
            };
            match (value.is_empty(), glued) {
                (true, Some(_)) => return Err(format!("option \"{name}\" takes no value")),
                (true, None) => args.flag(name),
                (false, glued) => {
                    let value = glued.or_else(|| words.next());
                    let value = value.ok_or_else(|| format!("option \"{name}\" needs a value"))?;
                    args.value(name, value)?;
                }
            }
        }
        args.check().map(Some)
    }

    fn flag(&mut self, name: &str) {
        match name {
            "--follow" => self.follow = true,
            _ => self.progress = Some(name == "--progress"),
        }
    }

    fn value(&mut self, name: &str, value: Vec<u8>) -> Result<(), String> {
        let wrong = |what: &str| format!("{name}: \"{}\" is not {what}", text(&value));
        let moment = |at_end| {
            let found = time::given(&value, at_end);
            found.map(Some).ok_or_else(|| wrong("a time as 2026-10-10 or 2026-10-10T13:55"))
        };
        let number = |most: usize| {
            let found = text(&value).parse::<usize>().ok().filter(|n| (1..=most).contains(n));
            found.ok_or_else(|| wrong(&format!("a number from 1 to {most}")))
        };
        match name {
            "--format" => {
                self.format = Some(Format::given(&value).map_err(|e| format!("--format: {e}"))?)
            }
            "--conf" => self.conf = Some(value),
            "--log" => self.log = Some(value),
            "--from" => self.from = moment(false)?,
            "--to" => self.to = moment(true)?,
            "--top" => self.top = number(TOP_MAX)?,
            "--geoip" => self.databases.push(value),
            "--anonymize" => {
                self.anonymize = Some(match &*value {
                    b"shorten" => Anonymize::Shorten,
                    b"hash" => Anonymize::Hash,
                    _ => return Err(wrong("\"shorten\" or \"hash\"")),
                })
            }
            "--site" => self.site = value,
            "--static" => {
                let words = value.split(|b| *b == b',').filter(|w| !w.is_empty());
                let with_dot = |w: &[u8]| match w.starts_with(b".") {
                    true => w.to_vec(),
                    false => [b".", w].concat(),
                };
                self.extensions.extend(words.map(with_dot));
            }
            "--output" => {
                self.output = match &*value {
                    b"terminal" => Output::Terminal,
                    b"html" => Output::Html,
                    b"json" => Output::Json,
                    b"csv" => Output::Csv,
                    _ => return Err(wrong("\"terminal\", \"html\", \"json\" or \"csv\"")),
                }
            }
            "--write" => self.write = Some(value),
            "--every" => {
                let secs = text(&value).parse::<f64>().ok().filter(|s| (0.05..=3600.0).contains(s));
                let secs = secs.ok_or_else(|| wrong("seconds from 0.05 to 3600"))?;
                self.every_ms = (secs * 1000.0) as u64;
            }
            _ => self.threads = Some(number(THREADS_MAX)?),
        }
        Ok(())
    }

    fn check(mut self) -> Result<Args, String> {
        if self.files.is_empty() {
            if std::io::stdin().is_terminal() {
                return Err("which FILE? --help shows what can be said".into());
            }
            self.files.push(b"-".to_vec());
        }
        if self.files.iter().filter(|f| *f == b"-").count() > 1 {
            return Err("standard input can be read once".into());
        }
        if self.log.is_some() && self.conf.is_none() {
            return Err("option \"--log\" goes with --conf".into());
        }
        if self.conf.is_some() && self.format.is_some() {
            return Err("either --conf or --format says how lines are written".into());
        }
        if self.follow && self.files.iter().any(|f| f == b"-") {
            return Err("files can be followed; standard input is read until it ends".into());
        }
        if self.follow && self.write.is_none() && matches!(self.output, Output::Html | Output::Csv)
        {
            return Err(
                "with --follow, html and csv need --write FILE, which is replaced again and again"
                    .into(),
            );
        }
        Ok(self)
    }

    pub fn threads(&self) -> usize {
        const DEFAULT_MAX: usize = 16;
        self.threads.unwrap_or_else(|| {
            std::thread::available_parallelism().map_or(1, |n| n.get().min(DEFAULT_MAX))
        })
    }

    pub fn progress(&self) -> bool {
        self.progress.unwrap_or_else(|| std::io::stderr().is_terminal())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(line: &str) -> Result<Option<Args>, String> {
        Args::parse(line.split(' ').map(|w| w.as_bytes().to_vec()).collect())
    }

    #[test]
    fn options_are_taken() {
        let args =
            parse("--top 5 a.log --output=json --static webp,.avif -- --b").unwrap().unwrap();
        assert_eq!((args.top, args.output), (5, Output::Json));
        assert_eq!(args.files, [b"a.log".to_vec(), b"--b".to_vec()]);
        assert_eq!(args.extensions, [b".webp".to_vec(), b".avif".to_vec()]);
        assert!(parse("--help").unwrap().is_none());
        let help = help();
        assert!(OPTIONS.iter().all(|(name, ..)| help.contains(name)));
    }

    #[test]
    fn what_is_wrong_is_said() {
        for (line, why) in [
            ("--nosuch", "no option"),
            ("--top", "needs a value"),
            ("--top 0 x", "number from 1"),
            ("--top=x y", "number from 1"),
            ("--follow=1 x", "no value"),
            ("--follow -", "standard input"),
            ("--follow --output html x", "--write"),
            ("--log x y", "--conf"),
            ("--conf x --format combined y", "either"),
            ("--from yesterday x", "a time"),
            ("--anonymize no x", "shorten"),
            ("--output pdf x", "terminal"),
            ("--every 0 x", "seconds"),
            ("--format nosuch x", "combined"),
            ("- -", "once"),
        ] {
            let error = parse(line).err().unwrap_or_default();
            assert!(error.contains(why), "{line}: {error}");
        }
    }
}
