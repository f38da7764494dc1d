//! `weir top`: what running servers do, live. They are asked by their control sockets, or by their APIs.

mod api;
mod local;

use crate::load::Paths;
use api::Api;
use local::Local;
use std::io::{IsTerminal, Write};
use std::time::Duration;
use weir_module::Layout;
use weir_top::{Ask, Options};

/// A server is looked at no more often, and no more seldom.
const INTERVAL_MIN: Duration = Duration::from_millis(100);
const INTERVAL_MAX: Duration = Duration::from_secs(3600);
/// So many servers are added up.
const ADDRESSES_MAX: usize = 64;
/// A text that goes nowhere in particular is so wide, or as wide as `COLUMNS` says.
const COLUMNS: u16 = 120;
const COLUMNS_MAX: u16 = 1000;

#[derive(Clone, Copy, Default, PartialEq)]
pub enum Form {
    #[default]
    Live,
    Once,
    Json,
}

/// What the command line says.
pub struct Wanted {
    pub pid: Option<u32>,
    /// The configuration or its prefix is named.
    pub is_told_where: bool,
    pub form: Form,
    pub interval: Duration,
    /// `NAME:PASSWORD`
    pub user: Option<String>,
    pub urls: Vec<String>,
}

impl Default for Wanted {
    fn default() -> Wanted {
        Wanted {
            pid: None,
            is_told_where: false,
            form: Form::Live,
            interval: Duration::from_secs(1),
            user: None,
            urls: Vec::new(),
        }
    }
}

pub fn help() -> Result<(), String> {
    let name = Layout::here().name;
    let text = format!(
        "\
Usage: {name} top [-p PID | -c filename] [--once | --json] [--interval TIME]
       {name} top [--user NAME:PASSWORD] [--once | --json] [--interval TIME] URL...

Shows what running servers do while they do it: requests, statuses, latencies, traffic, servers, locations,
upstreams and their state, caches, limits, workers, stream, TLS, problems as they happen, and visitors where
they are counted (analytics_zone). The keys are told by \"?\"; \"q\" ends it.

A server on this machine is found by its configuration's pid file, by the number of its process, or, if
nothing is said and there is none, by looking for all that run; it is asked through PIDFILE.control, which
only root and the user who started the server may do. It needs no configuration.

  -c filename     : configuration of the server (-p prefix and -g as for serving)
  -p PID          : number of its process (--pid PID)
  URL             : an API instead (\"location /api/ {{ api; }}\"), as http://HOST/api/ or https://; the figures of
                    several are added up, and those that do not answer are left out and named. https needs
                    a certificate of an authority that this system trusts (or SSL_CERT_FILE names).
  --user N:P      : name and password for the URLs (or http://N:P@HOST/); others may see what stands here
  --interval TIME : between two looks, 100ms to 1h (default: 1s)
  --once          : one picture as text, after one interval
  --json          : one picture as JSON; what is not known is null; interval_seconds is of each of \"sources\",
                    and of all of them the mean

Colours are left out where NO_COLOR is set. It ends with 1 if no server answers (--once, --json).
"
    );
    std::io::stdout().write_all(text.as_bytes()).map_err(|e| format!("{e}\n"))
}

/// A time as directives have it: `500ms`, `2s`, `1m`.
pub fn interval(text: &[u8]) -> Result<Duration, String> {
    let found = weir_base::units::parse_msec(text).map(Duration::from_millis);
    found.filter(|t| (INTERVAL_MIN..=INTERVAL_MAX).contains(t)).ok_or_else(|| {
        let shown = String::from_utf8_lossy(text);
        format!("\"{shown}\" is no interval: write 100ms to 1h, as in \"--interval 2s\"")
    })
}

pub fn run(paths: &Paths, wanted: &Wanted) -> Result<u8, String> {
    show(paths, wanted).map_err(|e| format!("{}: {e}\n", crate::load::PROGRAM))
}

fn show(paths: &Paths, wanted: &Wanted) -> Result<u8, String> {
    let askers = askers(paths, wanted)?;
    let options = Options {
        interval: wanted.interval,
        is_coloured: std::env::var_os("NO_COLOR").is_none_or(|v| v.is_empty()),
    };
    if wanted.form == Form::Live {
        return weir_top::watch(askers, &options).map(|()| 0);
    }
    let sources = weir_top::look(askers, wanted.interval, wanted.form == Form::Once);
    let text = match wanted.form {
        Form::Json => weir_top::json(&sources),
        _ => weir_top::once(&sources, columns()),
    };
    std::io::stdout().write_all(text.as_bytes()).map_err(|e| e.to_string())?;
    Ok(u8::from(sources.are_lost()))
}

fn askers(paths: &Paths, wanted: &Wanted) -> Result<Vec<Box<dyn Ask>>, String> {
    if wanted.urls.len() > ADDRESSES_MAX {
        return Err(format!("there are more than {ADDRESSES_MAX} addresses"));
    }
    let mut askers: Vec<Box<dyn Ask>> = Vec::new();
    for url in &wanted.urls {
        askers.push(Box::new(Api::of(url, wanted.user.as_deref())?));
    }
    if askers.is_empty() {
        for local in Local::find(paths, wanted)? {
            askers.push(Box::new(local));
        }
    }
    Ok(askers)
}

fn columns() -> u16 {
    let of_screen = || weir_top::width().filter(|_| std::io::stdout().is_terminal());
    let told = || std::env::var("COLUMNS").ok()?.parse().ok();
    of_screen().or_else(told).unwrap_or(COLUMNS).clamp(20, COLUMNS_MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn intervals_have_bounds() {
        assert_eq!(interval(b"1s"), Ok(Duration::from_secs(1)));
        assert_eq!(interval(b"250ms"), Ok(Duration::from_millis(250)));
        for bad in [&b"0"[..], b"10ms", b"2h", b"x", b"", b"-1s"] {
            assert!(interval(bad).is_err(), "{bad:?}");
        }
    }
}
