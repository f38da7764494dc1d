//! What `limit_conn` and `limit_req` have in common: how a refusal is answered and logged, and the
//! keys of their zones.

use weir_core::counts::{Count, Fields, Near, Part};
use weir_core::figures::Figures;
use weir_core::logger::LogLevel;
use weir_core::{Session, Worker};
use weir_module::{
    merge_values, ArgsExt, Arity, ConfResult, ConfType, Diagnostic, Directive, Row, Val,
};
use weir_script::template::Template;

/// What became of who came to a zone, each under a number of its own.
#[derive(Default)]
pub struct Outcomes([Count; 7]);

impl Part for Outcomes {
    fn each(&self, fields: &mut Fields<'_>) {
        fields.counts("outcomes", &self.0);
    }
}

impl Outcomes {
    /// Counts one in the worker's part.
    pub fn count(all: &Near<Outcomes>, worker: &Worker, which: usize) {
        if let Some(part) = all.part(worker) {
            part.0[which].add(1);
        }
    }

    /// One was counted too early.
    pub fn take_back(all: &Near<Outcomes>, worker: &Worker, which: usize) {
        if let Some(part) = all.part(worker) {
            part.0[which].sub(1);
        }
    }

    /// Notes them under their names.
    pub fn put(all: &Near<Outcomes>, names: &[&'static str], figures: &mut Figures) {
        for (n, name) in names.iter().enumerate() {
            figures.put(*name, all.all().sum(|part| part.0[n].get()));
        }
    }
}

/// `…_log_level`, `…_status` and `…_dry_run`.
#[derive(Default)]
pub struct Refusal {
    pub log_level: Val<LogLevel>,
    pub status: Val<u16>,
    pub dry_run: Val<bool>,
}

impl Refusal {
    pub fn merge(&mut self, parent: &Refusal) {
        merge_values!(self, parent; log_level = LogLevel::Error, status = 503, dry_run = false);
    }
}

/// A location's configuration that has them.
pub trait Refuses: ConfType {
    fn refusal(&mut self) -> &mut Refusal;
}

const LEVELS: &[(&str, LogLevel)] = &[
    ("info", LogLevel::Info),
    ("notice", LogLevel::Notice),
    ("warn", LogLevel::Warn),
    ("error", LogLevel::Error),
];

pub const fn log_level_row<S: Session, L: Refuses>(name: &'static str, doc: &'static str) -> Row {
    Row::new(name, S::LEVELS, Arity::ONE, "error", doc, |cf, d| {
        let level = d.choice(0, LEVELS)?;
        cf.get::<L>().refusal().log_level.once(d, level)
    })
}

pub const fn status_row<S: Session, L: Refuses>(name: &'static str) -> Row {
    Row::new(name, S::LEVELS, Arity::ONE, "503", "The status of refusals.", |cf, d| {
        let status = match d.num(0)? {
            n @ 400..=599 => n as u16,
            _ => return Err(d.bad(0, "value must be between 400 and 599")),
        };
        cf.get::<L>().refusal().status.once(d, status)
    })
}

pub const fn dry_run_row<S: Session, L: Refuses>(name: &'static str, doc: &'static str) -> Row {
    Row::new(name, S::LEVELS, Arity::FLAG, "off", doc, |cf, d| {
        let on = d.flag()?;
        cf.get::<L>().refusal().dry_run.once(d, on)
    })
}

fn lossy(text: &[u8]) -> std::borrow::Cow<'_, str> {
    String::from_utf8_lossy(text)
}

pub fn already_bound(d: &Directive, name: &[u8], key: &Template) -> Diagnostic {
    let (name, key) = (lossy(name), lossy(key.source()));
    d.fail(format!("{} \"{name}\" is already bound to key \"{key}\"", d.name()))
}

/// A zone that lives on over a reload must keep its key; `what` is nginx's word for it.
pub fn same_key(what: &str, name: &[u8], key: &[u8], old: &[u8]) -> ConfResult {
    if key == old {
        return Ok(());
    }
    Err(Diagnostic::emerg(format!(
        "{what} \"{}\" uses the \"{}\" key while previously it used the \"{}\" key",
        lossy(name),
        lossy(key),
        lossy(old),
    )))
}

pub fn too_long<S: Session>(s: &S, key: &Template, value: &[u8], max: usize) {
    let (key, value) = (lossy(key.source()), lossy(value));
    let text = format!("the value of the \"{key}\" key is more than {max} bytes: \"{value}\"");
    s.log(LogLevel::Error, &text);
}
