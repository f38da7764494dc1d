//! A receiver with Elasticsearch's bulk interface, as far as shipping uses it, that may be told to fail in many ways.

use crate::expect_soon;
use crate::message::Request;
use crate::origin::{Conn, Next, Origin};
use flate2::read::GzDecoder;
use serde_json::{json, Value};
use std::collections::BTreeMap;
use std::io::Read;
use std::sync::{Arc, Mutex};

/// What it does with a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mood {
    Good,
    /// 503, and nothing is kept.
    Unavailable,
    /// 429 to all of it.
    TooMany,
    /// Half of the documents are kept, and the connection is closed without an answer.
    Dropped,
    /// All are kept, and the connection is reset before the answer.
    Unanswered,
    /// 413 to bodies of more bytes than that.
    AtMost(usize),
    /// Every other document is kept, the others are told 429.
    Partial,
    /// Each document is refused with so many bytes of words.
    Wordy(usize),
    /// The connection is closed at once.
    Down,
}

/// What it does with a request, by its number.
type Moods = Box<dyn FnMut(usize) -> Mood + Send>;

/// A document that was created.
#[derive(Clone, Debug)]
pub struct Document {
    pub index: String,
    pub source: Value,
}

#[derive(Default)]
struct Kept {
    documents: BTreeMap<String, Document>,
    requests: usize,
    conflicts: usize,
}

pub struct Bulk {
    origin: Origin,
    kept: Arc<Mutex<Kept>>,
    mood: Arc<Mutex<Moods>>,
}

impl Bulk {
    /// One that asks `mood` what to do with each request, by its number.
    pub fn start(mood: impl FnMut(usize) -> Mood + Send + 'static) -> Bulk {
        let kept: Arc<Mutex<Kept>> = Arc::default();
        let mood: Arc<Mutex<Moods>> = Arc::new(Mutex::new(Box::new(mood)));
        let (docs, moods) = (Arc::clone(&kept), Arc::clone(&mood));
        let origin = Origin::start(move |request, conn| {
            let mut kept = docs.lock().unwrap();
            let mood = moods.lock().unwrap()(kept.requests);
            kept.requests += 1;
            kept.answer(request, conn, mood)
        });
        Bulk { origin, kept, mood }
    }

    pub fn good() -> Bulk {
        Bulk::start(|_| Mood::Good)
    }

    pub fn set_mood(&self, mood: Mood) {
        *self.mood.lock().unwrap() = Box::new(move |_| mood);
    }

    pub fn port(&self) -> u16 {
        self.origin.port()
    }

    pub fn requests(&self) -> Vec<Request> {
        self.origin.requests()
    }

    /// How many documents came that were there already.
    pub fn conflicts(&self) -> usize {
        self.kept.lock().unwrap().conflicts
    }

    pub fn documents(&self) -> Vec<Document> {
        self.kept.lock().unwrap().documents.values().cloned().collect()
    }

    /// `url.original` of all documents that have one, in order.
    pub fn urls(&self) -> Vec<String> {
        let of = |d: Document| d.source["url"]["original"].as_str().map(str::to_owned);
        let mut urls: Vec<String> = self.documents().into_iter().filter_map(of).collect();
        urls.sort();
        urls
    }

    #[track_caller]
    pub fn expect(&self, count: usize) -> Vec<Document> {
        expect_soon(&format!("{count} documents"), || self.documents().len() >= count);
        self.documents()
    }
}

impl Kept {
    fn answer(&mut self, request: &Request, conn: &mut Conn, mood: Mood) -> Next {
        let mut body = request.body.clone();
        if request.header("Content-Encoding") == Some("gzip") {
            let mut plain = Vec::new();
            GzDecoder::new(&body[..]).read_to_end(&mut plain).expect("a body of gzip");
            body = plain;
        }
        let text = String::from_utf8(body).expect("a body of text");
        if !request.line().contains("/_bulk") {
            conn.reply("200 OK", "", "{\"acknowledged\":true}");
            return Next::Keep;
        }
        let lines: Vec<&str> = text.lines().collect();
        match mood {
            Mood::Down => return Next::Close,
            Mood::Unavailable => {
                conn.reply("503 Service Unavailable", "", "{\"error\":{\"type\":\"unavailable\"}}");
                return Next::Keep;
            }
            Mood::TooMany => {
                conn.reply("429 Too Many Requests", "Retry-After: 0\r\n", "");
                return Next::Keep;
            }
            Mood::AtMost(bytes) if text.len() > bytes => {
                conn.reply("413 Content Too Large", "", "");
                return Next::Keep;
            }
            _ => {}
        }
        let count = lines.len() / 2;
        let mut items = Vec::new();
        for (n, pair) in lines.chunks(2).enumerate() {
            let status = match mood {
                Mood::Dropped if n >= count / 2 => continue,
                Mood::Partial if n % 2 == 1 => 429,
                Mood::Wordy(_) => 400,
                _ => self.create(pair),
            };
            items.push(match status {
                201 => json!({"create": {"status": 201}}),
                status => {
                    let words = if let Mood::Wordy(bytes) = mood { bytes } else { 1 };
                    let error = json!({"type": "t", "reason": "r".repeat(words)});
                    json!({"create": {"status": status, "error": error}})
                }
            });
        }
        match mood {
            Mood::Dropped => Next::Close,
            Mood::Unanswered => {
                conn.will_reset();
                Next::Close
            }
            _ => {
                let answer = json!({"items": items}).to_string();
                conn.reply("200 OK", "Content-Type: application/json\r\n", &answer);
                Next::Keep
            }
        }
    }

    fn create(&mut self, pair: &[&str]) -> u64 {
        let action: Value = serde_json::from_str(pair[0]).expect("an action");
        let source: Value = serde_json::from_str(pair[1]).expect("a document");
        let create = &action["create"];
        let id = create["_id"].as_str().expect("an id").to_owned();
        let index = create["_index"].as_str().expect("an index").to_owned();
        if source["url"]["original"].as_str().is_some_and(|u| u.starts_with("/refused")) {
            return 400;
        }
        if self.documents.contains_key(&id) {
            self.conflicts += 1;
            return 409;
        }
        self.documents.insert(id, Document { index, source });
        201
    }
}
