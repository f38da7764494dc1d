//! The formats of an nginx.conf, and which log has which.

use crate::shown;
use weir_analytics::format::{Escape, Format};
use weir_conf::{parse, Body, Directive, Loader, Options, Sources};
use weir_runtime::paths::last_name;

const COMBINED: &[u8] = b"combined";

#[derive(Default)]
pub struct LogFormats {
    /// Names, texts and how they escape.
    formats: Vec<(Vec<u8>, Vec<u8>, Escape)>,
    /// The last parts of logs' paths, and their formats' names.
    logs: Vec<(Vec<u8>, Vec<u8>)>,
}

impl LogFormats {
    pub fn read(loader: &dyn Loader, path: &[u8]) -> Result<LogFormats, String> {
        let mut sources = Sources::new();
        let parsed = parse(&mut sources, loader, path, &Options::for_main(path));
        let tree = parsed.map_err(|e| e.render(&sources, "weir analyze").trim_end().to_owned())?;
        let mut found = LogFormats::default();
        found.collect(&tree);
        Ok(found)
    }

    fn collect(&mut self, tree: &[Directive]) {
        for directive in tree {
            let args: Vec<&[u8]> = directive.args.iter().map(|w| w.as_bytes()).collect();
            match (&*directive.name.text, &*args) {
                (b"log_format", [name, texts @ ..]) => self.log_format(name, texts),
                (b"access_log", [path, rest @ ..])
                    if *path != b"off" && !path.starts_with(b"syslog:") =>
                {
                    let is_option = |word: &[u8]| word.contains(&b'=');
                    let name = rest.first().filter(|w| !is_option(w)).copied();
                    self.logs.push((last_name(path).to_vec(), name.unwrap_or(COMBINED).to_vec()));
                }
                _ => {}
            }
            if let Body::Block(inner) = &directive.body {
                self.collect(inner);
            }
        }
    }

    fn log_format(&mut self, name: &[u8], texts: &[&[u8]]) {
        let (escape, texts) = match texts {
            [b"escape=json", rest @ ..] => (Escape::Json, rest),
            [b"escape=none", rest @ ..] => (Escape::None, rest),
            [b"escape=default", rest @ ..] => (Escape::Default, rest),
            all => (Escape::Default, all),
        };
        self.formats.push((name.to_vec(), texts.concat(), escape));
    }

    /// The format of a log: the one that is named, or that of the `access_log` that is called so; a rotated or
    /// compressed one has something behind its name. `None`: the configuration does not say.
    pub fn of(&self, path: &[u8], named: Option<&[u8]>) -> Result<Option<Format>, String> {
        let file = last_name(path);
        let by_name = || {
            let mut logs: Vec<_> =
                self.logs.iter().filter(|(log, _)| file.starts_with(log)).collect();
            logs.sort_by_key(|(log, _)| std::cmp::Reverse(log.len()));
            logs.first().map(|(_, format)| &**format)
        };
        let Some(name) = named.or_else(by_name).or_else(|| self.only()) else { return Ok(None) };
        let format = match self.formats.iter().find(|(known, ..)| known == name) {
            Some((_, text, escape)) => {
                let failed = |e| format!("log_format {}: {e}", shown(name));
                Format::nginx(text, *escape).map_err(failed)
            }
            None if name == COMBINED => Format::given(COMBINED),
            None => Err(format!(
                "the configuration has no log_format \"{}\" ({})",
                shown(name),
                self.names()
            )),
        };
        format.map(Some)
    }

    /// Of a log that no `access_log` writes, and whose lines do not tell.
    pub fn unknown(&self, path: &[u8]) -> String {
        let names = self.names();
        format!("{}: its lines have no format that is known, and no access_log of the configuration is called so; --log says which log_format it has ({names})", shown(path))
    }

    /// The one that all logs have.
    fn only(&self) -> Option<&[u8]> {
        let (_, first) = self.logs.first()?;
        self.logs.iter().all(|(_, format)| format == first).then_some(&**first)
    }

    fn names(&self) -> String {
        let names: Vec<String> = self.formats.iter().map(|(name, ..)| shown(name)).collect();
        match names.is_empty() {
            true => "it has none".to_owned(),
            false => format!("it has {}", names.join(", ")),
        }
    }
}
