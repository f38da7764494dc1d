//! Elasticsearch and OpenSearch: data streams, or an index, by the bulk interface.

use crate::conf::{draft, Draft};
use crate::http::{self, Answer, Http, HttpConf};
use crate::kinds::KindOf;
use crate::receiver::{Batch, Client, Entry, Ground, Kind, Outcome, Target};
use serde_json::Value;
use std::sync::Arc;
use std::time::Duration;
use weir_module::{ArgsExt, Arity, Cf, ConfResult, Context, Row, Val};
use weir_shipping::elastic::{self, Item};

/// Of an answer's items only what says what became of them.
const BULK: &str =
    "/_bulk?filter_path=error,items.*.status,items.*.error.type,items.*.error.reason";

#[derive(Default)]
struct Said {
    index: Val<String>,
    pipeline: Val<String>,
}

pub const ROWS: &[Row] = &[Row::new(
    "index",
    Context::SHIP,
    Arity::ONE,
    "",
    "The index that events go to, in place of data streams.",
    |cf, d| {
        let name = d.text(0)?.to_owned();
        if !elastic::is_index_name(&name) {
            return Err(d.bad(0, format!("\"{name}\" is no name of an index: it has small letters, digits, \"-\", \"_\" and \".\"")));
        }
        draft(cf).settings::<Said>().index.once(d, name)
    },
), Row::new(
    "pipeline",
    Context::SHIP,
    Arity::ONE,
    "",
    "The ingest pipeline that all events go through (filebeat's output.elasticsearch.pipeline).",
    |cf, d| {
        let name = d.text(0)?.to_owned();
        if !elastic::is_pipeline_name(&name) {
            return Err(d.bad(0, format!("\"{name}\" is no name of a pipeline: it has letters, digits, \"-\", \"_\" and \".\"")));
        }
        draft(cf).settings::<Said>().pipeline.once(d, name)
    },
)
.note("Without it the pipeline that the data stream's template names is used. While there is no pipeline of that name events wait.")];

const TAKES: &[&str] = &{
    let mut all = ["index"; http::NAMES.len() + 2];
    all[http::NAMES.len() + 1] = "pipeline";
    let mut i = 0;
    while i < http::NAMES.len() {
        all[i] = http::NAMES[i];
        i += 1;
    }
    all
};

pub const ELASTICSEARCH: KindOf =
    KindOf { name: "elasticsearch", takes: TAKES, check, build: elasticsearch };
pub const OPENSEARCH: KindOf =
    KindOf { name: "opensearch", takes: TAKES, check, build: opensearch };

fn check(draft: &mut Draft) -> ConfResult {
    http::check(draft)
}

fn elasticsearch(cf: &mut Cf, draft: &Draft) -> ConfResult<Arc<dyn Target>> {
    build(cf, draft, false)
}

fn opensearch(cf: &mut Cf, draft: &Draft) -> ConfResult<Arc<dyn Target>> {
    build(cf, draft, true)
}

fn build(cf: &mut Cf, draft: &Draft, is_opensearch: bool) -> ConfResult<Arc<dyn Target>> {
    let http = Arc::new(HttpConf::build(cf, draft, "ApiKey ")?);
    let index = draft.said::<Said>().and_then(|s| s.index.as_option()).cloned();
    let namespace = draft.namespace();
    let stream = |dataset: &str| match (&index, dataset) {
        (Some(index), _) => index.clone(),
        (None, "metrics") => format!("metrics-nginx.metrics-{namespace}"),
        (None, dataset) => format!("logs-nginx.{dataset}-{namespace}"),
    };
    let streams = Kind::ALL.map(|kind| match kind {
        Kind::Access => stream("access"),
        Kind::Error => stream("error"),
        Kind::Metric => stream("metrics"),
        Kind::Session => stream("session"),
    });
    let pipeline = draft.said::<Said>().and_then(|s| s.pipeline.as_option());
    let bulk = BULK.to_owned() + &pipeline.map(|p| format!("&pipeline={p}")).unwrap_or_default();
    let namespace = namespace.to_owned();
    Ok(Arc::new(Elastic { http, bulk, streams, namespace, is_opensearch }))
}

struct Elastic {
    http: Arc<HttpConf>,
    /// Where batches are sent.
    bulk: String,
    /// By the kinds of events.
    streams: [String; 4],
    namespace: String,
    is_opensearch: bool,
}

impl Target for Elastic {
    fn client(&self, ground: Ground) -> Box<dyn Client> {
        let http = Http::new(Arc::clone(&self.http), ground.stop);
        let (path, streams) = (self.bulk.clone(), self.streams.clone());
        Box::new(Bulk { http, path, streams, body: Vec::new(), most: usize::MAX })
    }

    fn install(&self, ground: Ground, dashboards: Option<&str>) -> Result<String, String> {
        let mut http = Http::new(Arc::clone(&self.http), Arc::clone(&ground.stop));
        let mut done = crate::install::templates(&mut http, &self.namespace)?;
        if let Some(url) = dashboards {
            let conf = self.http.at(url).ok_or_else(|| format!("\"{url}\" is no address"))?;
            let mut http = Http::new(Arc::new(conf), ground.stop);
            done += &crate::install::dashboards(&mut http, self.is_opensearch)?;
        }
        Ok(done)
    }
}

struct Bulk {
    http: Http,
    path: String,
    streams: [String; 4],
    /// Used again.
    body: Vec<u8>,
    /// So many events at once are not too much, as far as is known.
    most: usize,
}

const TOO_LARGE: u16 = 413;

/// More than a batch's is not kept.
const BODY_KEPT_BYTES: usize = 8 * 1024 * 1024;

impl Client for Bulk {
    fn send(&mut self, batch: &mut Batch<'_>) -> Outcome {
        let all = batch.entries.len();
        let (mut done, mut refused, mut again_after) = (vec![false; all], Vec::new(), None);
        let mut at = 0;
        while at < all {
            let behind = all.min(at + self.most);
            match self.push(&batch.entries[at..behind]) {
                Pushed::TooLarge(why) if behind == at + 1 => refused.push((at, why)),
                Pushed::TooLarge(_) => {
                    self.most = (behind - at) / 2;
                    continue;
                }
                Pushed::All => done[at..behind].fill(true),
                Pushed::Some(items, after) => {
                    again_after = again_after.max(after);
                    for (n, item) in (at..).zip(items) {
                        match item {
                            Item::Refused(why) => refused.push((n, why)),
                            item => done[n] = item == Item::Done,
                        }
                    }
                }
                Pushed::Later { why, after } if at == 0 => return Outcome::Later { why, after },
                Pushed::Later { after, .. } => {
                    return Outcome::Some { done, refused, again_after: after }
                }
            }
            // Little by little: what was too much once may have been one large event.
            self.most = self.most.saturating_add(self.most / 8 + 1);
            at = behind;
        }
        match done.iter().all(|done| *done) {
            true => Outcome::All,
            false => Outcome::Some { done, refused, again_after },
        }
    }
}

/// What became of some of a batch.
enum Pushed {
    All,
    Some(Vec<Item>, Option<Duration>),
    /// It was too much at once.
    TooLarge(String),
    Later {
        why: String,
        after: Option<Duration>,
    },
}

impl Bulk {
    fn push(&mut self, entries: &[Entry<'_>]) -> Pushed {
        self.body.clear();
        for entry in entries {
            elastic::push_document(
                &mut self.body,
                &self.streams[entry.kind as usize],
                entry.id,
                entry.json,
            );
        }
        let answer = self.http.post(&self.path, "application/x-ndjson", &self.body);
        if self.body.capacity() > BODY_KEPT_BYTES {
            self.body = Vec::new();
        }
        match answer {
            Ok(answer) if answer.is_good() => outcome(&answer, entries.len()),
            Ok(answer) if answer.status == TOO_LARGE => {
                Pushed::TooLarge(refusal(&self.http.whom(), &answer))
            }
            Ok(answer) => {
                let why = refusal(&self.http.whom(), &answer);
                // Another node may have less to do, or more rights.
                self.http.turn();
                Pushed::Later { why, after: answer.retry_after }
            }
            // It has words about each document: of fewer there are fewer.
            Err(why) if entries.len() > 1 && http::is_too_long(&why) => Pushed::TooLarge(why),
            Err(why) => Pushed::Later { why, after: None },
        }
    }
}

/// The words of an answer that is no success.
pub fn refusal(whom: &str, answer: &Answer) -> String {
    let words = serde_json::from_slice::<Value>(&answer.body).map(|v| elastic::reason(&v));
    format!("{whom} answers {} {}", answer.status, words.unwrap_or_default()).trim_end().to_owned()
}

fn outcome(answer: &Answer, n: usize) -> Pushed {
    match elastic::read_answer(&answer.body, n) {
        Ok(items) if items.iter().all(|item| *item == Item::Done) => Pushed::All,
        Ok(items) => Pushed::Some(items, answer.retry_after),
        Err(why) => Pushed::Later { why, after: answer.retry_after },
    }
}
