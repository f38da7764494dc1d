//! `weir analyze FILE…`: what access logs say, without a server.
//!
//! Files are cut into parts at line ends and read by several threads, each with a report of its own; in the end
//! the reports are merged. What is compressed, or comes in a pipe, is read by one thread, and its lines by all.

mod args;
mod blocks;
mod conf;
mod follow;
mod gzip;
mod output;
mod progress;
mod source;
mod stop;
mod work;

use args::{Anonymize, Args};
use std::io::{self, IsTerminal, Write};
use weir_analytics::places::Databases;
use weir_analytics::privacy::{Privacy, Secret};
use weir_analytics::report::{Limits, Options};
use weir_analytics::sketch::Seed;
use weir_conf::Loader;
use weir_runtime::paths;
use weir_script::mmdb::Mmdb;

/// Databases of addresses are read whole.
const DATABASE_MAX_BYTES: u64 = 1 << 30;

pub use args::help;

/// What follows the word `analyze`; `loader` reads configurations.
///
/// # Errors
///
/// What is to be said on standard error, with its line end.
pub fn run(words: Vec<Vec<u8>>, loader: &dyn Loader) -> Result<(), String> {
    analyze(words, loader).map_err(|e| format!("weir analyze: {e}\n"))
}

fn analyze(words: Vec<Vec<u8>>, loader: &dyn Loader) -> Result<(), String> {
    let args = match Args::parse(words)? {
        Some(args) => args,
        None => return write_out(help().as_bytes()),
    };
    let log_formats = match &args.conf {
        Some(path) => Some(conf::LogFormats::read(loader, path)?),
        None => None,
    };
    stop::listen();
    let threads = args.threads();
    let chosen = |path: &[u8]| match (&args.format, &log_formats) {
        (Some(format), _) => Ok(Some(format.clone())),
        (None, Some(formats)) => formats.of(path, args.log.as_deref()),
        (None, None) => Ok(None),
    };
    let names = args.files.iter().map(|f| shown(f)).collect::<Vec<_>>();
    let mut sources = Vec::new();
    for path in &args.files {
        let format = chosen(path)?;
        sources.push(source::Source::open(path, format, args.follow, log_formats.as_ref())?);
    }
    let mut options = options(&args, threads, seed(&sources))?;
    if options.site.is_empty() {
        options.site = sources.iter().find_map(source::Source::likely_site).unwrap_or_default();
        if !options.site.is_empty() {
            let site = shown(&options.site);
            let _ = writeln!(
                io::stderr(),
                "weir analyze: \"{site}\" is taken for the site's own name; --site says another"
            );
        }
    }
    let bar = progress::Progress::new(args.progress(), &sources);
    let (report, failed) = work::read(&sources, threads, &options, &bar);
    bar.end();
    let out = output::Out::new(&args, names);
    if args.follow {
        return follow::follow(sources, report, &args, &out);
    }
    out.write(&report, false)?;
    match failed.is_empty() {
        true => Ok(()),
        false => Err(failed.join("\nweir analyze: ")),
    }
}

/// The same logs have the same estimates whenever they are read. Who writes lines into one rarely knows with which it
/// begins, and so not what falls together.
fn seed(sources: &[source::Source]) -> Seed {
    let first = sources.iter().map(source::Source::first_line);
    Seed::new(first.fold(0, |seed, line| Seed::new(seed).text(line)))
}

fn options(args: &Args, threads: usize, seed: Seed) -> Result<Options, String> {
    let mut options = Options::new(Limits::offline(threads), seed);
    options.privacy = match args.anonymize {
        None => Privacy::Plain,
        Some(Anonymize::Shorten) => Privacy::Shortened,
        Some(Anonymize::Hash) => Privacy::Hashed(Secret::new(&random::<32>()?)),
    };
    let mut databases = Vec::new();
    for path in &args.databases {
        let failed = |e: &dyn std::fmt::Display| format!("{}: {e}", shown(path));
        let bytes = weir_runtime::files::read_at_most(&paths::path(path), DATABASE_MAX_BYTES);
        databases.push(Mmdb::new(bytes.map_err(|e| failed(&e))?).map_err(|e| failed(&e))?);
    }
    options.databases = Databases::new(databases);
    (options.from, options.to) = (args.from, args.to);
    options.site.clone_from(&args.site);
    options.extensions.clone_from(&args.extensions);
    Ok(options)
}

fn random<const N: usize>() -> Result<[u8; N], String> {
    let found = ring::rand::generate::<[u8; N]>(&ring::rand::SystemRandom::new());
    found.map(ring::rand::Random::expose).map_err(|_| "the system has no random numbers".to_owned())
}

/// A file's name, for people.
fn shown(path: &[u8]) -> String {
    match path {
        b"-" => "standard input".to_owned(),
        path => weir_analytics::shown::visible(path),
    }
}

/// On standard output; who stopped reading it does not want more.
fn write_out(text: &[u8]) -> Result<(), String> {
    let mut out = io::stdout().lock();
    match out.write_all(text).and_then(|()| out.flush()) {
        Err(e) if e.kind() != io::ErrorKind::BrokenPipe => Err(format!("standard output: {e}")),
        _ => Ok(()),
    }
}

fn is_terminal() -> bool {
    io::stdout().is_terminal()
}
