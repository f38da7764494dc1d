//! Loki's push API (JSON over HTTP), by which others take lines, too.
//!
//! An event that is sent again is the same line of the same stream at the same time, which Loki keeps once.

#[cfg(test)]
mod tests;

use crate::conf::{draft, Draft};
use crate::http::{self, Http, HttpConf};
use crate::kinds::KindOf;
use crate::parts::{self, Part};
use crate::receiver::{Batch, Client, Entry, Ground, Outcome, Target};
use std::sync::Arc;
use weir_module::{ArgsExt, Arity, Cf, ConfResult, Context, Row, Val};
use weir_shipping::loki::{self, is_label, Line, Source, Verdict};

const PATH: &str = "/loki/api/v1/push";
/// Loki takes 15 labels of a stream unless told otherwise.
const LABELS_MAX: usize = 32;
const TENANT_MAX_BYTES: usize = 150;

#[derive(Default)]
struct Said {
    labels: Vec<(String, Source)>,
    tenant: Val<String>,
}

fn said(cf: &mut Cf) -> &mut Said {
    draft(cf).settings()
}

pub const ROWS: &[Row] = &[
    Row::new("label", Context::SHIP, Arity::TWO, "job weir", "A label of Loki's streams: a text, or field:NAME for that field of the event.", |cf, d| {
        let (name, value) = (d.text(0)?.to_owned(), d.text(1)?.to_owned());
        if !is_label(&name) {
            let mut e = d.bad(0, format!("\"{name}\" cannot be a label's name"));
            e.hint = Some("it has letters, digits and \"_\", and begins with no digit".into());
            return Err(e);
        }
        let labels = &mut said(cf).labels;
        if labels.iter().any(|(n, _)| *n == name) {
            return Err(d.bad(0, format!("duplicate label \"{name}\"")));
        }
        if labels.len() == LABELS_MAX {
            return Err(d.fail(format!("more than {LABELS_MAX} labels")));
        }
        let source = match value.strip_prefix("field:") {
            Some("") => return Err(d.bad(1, "a field without a name")),
            Some(field) => Source::Field(field.to_owned()),
            None => Source::Text(value),
        };
        labels.push((name, source));
        Ok(())
    })
    .note("events without the field have no such label; each set of values is a stream, so that a field should have few"),
    Row::new("tenant", Context::SHIP, Arity::ONE, "", "Loki's tenant (X-Scope-OrgID).", |cf, d| {
        let tenant = d.text(0)?.to_owned();
        let good = !tenant.is_empty() && tenant.bytes().all(|b| b.is_ascii_graphic());
        if !good || tenant.len() > TENANT_MAX_BYTES {
            return Err(d.bad(0, format!("a tenant has 1 to {TENANT_MAX_BYTES} printable characters")));
        }
        said(cf).tenant.once(d, tenant)
    }),
];

const TAKES: &[&str] = &{
    let mut all = ["label"; http::NAMES.len() + 2];
    all[1] = "tenant";
    let mut i = 0;
    while i < http::NAMES.len() {
        all[i + 2] = http::NAMES[i];
        i += 1;
    }
    all
};

pub const KIND: KindOf = KindOf { name: "loki", takes: TAKES, check, build };

fn check(draft: &mut Draft) -> ConfResult {
    http::check(draft)
}

fn build(cf: &mut Cf, draft: &Draft) -> ConfResult<Arc<dyn Target>> {
    let http = Arc::new(HttpConf::build(cf, draft, "Bearer ")?);
    let said = draft.said::<Said>();
    let mut labels = said.map(|s| s.labels.clone()).unwrap_or_default();
    if labels.is_empty() {
        // A stream has a label at least.
        labels.push(("job".into(), Source::Text("weir".into())));
    }
    let tenant = said.and_then(|s| s.tenant.as_option());
    let fields = tenant.map(|t| format!("X-Scope-OrgID: {t}\r\n")).unwrap_or_default();
    Ok(Arc::new(Loki { http, labels: labels.into(), fields: fields.into() }))
}

struct Loki {
    http: Arc<HttpConf>,
    labels: Arc<[(String, Source)]>,
    /// Of the head of each request.
    fields: Arc<str>,
}

impl Target for Loki {
    fn client(&self, ground: Ground) -> Box<dyn Client> {
        let (labels, fields) = (Arc::clone(&self.labels), Arc::clone(&self.fields));
        let http = Http::new(Arc::clone(&self.http), ground.stop);
        Box::new(Pusher { http, labels, fields })
    }
}

struct Pusher {
    http: Http,
    labels: Arc<[(String, Source)]>,
    fields: Arc<str>,
}

impl Client for Pusher {
    fn send(&mut self, batch: &mut Batch<'_>) -> Outcome {
        parts::send(&batch.entries, |part| self.push(part))
    }
}

impl Pusher {
    fn push(&mut self, part: &[Entry<'_>]) -> Part {
        const TOO_LARGE: u16 = 413;
        let lines = part.iter().map(|e| Line { time_ms: e.time_ms, json: e.json });
        let lines: Vec<Line<'_>> = lines.collect();
        let body = loki::push(&lines, &self.labels);
        let answer = match self.http.post_with(PATH, "application/json", &self.fields, &body) {
            Ok(answer) => answer,
            Err(why) => return Part::Later { why, after: None },
        };
        let whom = self.http.whom();
        match loki::verdict(answer.status, &answer.body, lines.len()) {
            Verdict::Taken => Part::Taken,
            Verdict::Refused(_, why) if answer.status == TOO_LARGE => Part::TooLarge(why),
            Verdict::Refused(count, why) => Part::Refused(count, format!("{whom}: {why}")),
            Verdict::Later(why) => {
                self.http.turn();
                Part::Later { why: format!("{whom} {why}"), after: answer.retry_after }
            }
        }
    }
}
