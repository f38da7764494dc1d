//! OTLP logs over HTTP (protocol buffers) and gRPC.
//!
//! At least once: the protocol has nothing by which a receiver would know that it has a record already, so each carries
//! its event's id as `log.record.uid`.

mod conf;
#[cfg(test)]
mod tests;

pub use conf::{KIND, ROWS};

use crate::grpc::Caller;
use crate::http::{Http, HttpConf};
use crate::parts::{self, Part};
use crate::receiver::{Batch, Client, Entry, Ground, Outcome, Target};
use flate2::write::GzEncoder;
use flate2::Compression;
use std::io::Write;
use std::sync::Arc;
use std::time::Duration;
use weir_core::logger::LogLevel;
use weir_shipping::otlp::answer::{self, Verdict};
use weir_shipping::otlp::logs::{self, Record};

const PATH: &str = "/v1/logs";
const METHOD: &str = "/opentelemetry.proto.collector.logs.v1.LogsService/Export";

/// What a block has said.
pub struct Otlp {
    way: Way,
    /// What is said of us, with each batch.
    resource: Arc<[(String, String)]>,
}

enum Way {
    Http(Arc<HttpConf>),
    Grpc(Arc<conf::Grpc>),
}

impl Target for Otlp {
    fn client(&self, ground: Ground) -> Box<dyn Client> {
        let door = match &self.way {
            Way::Http(conf) => Door::Http(Http::new(Arc::clone(conf), Arc::clone(&ground.stop))),
            Way::Grpc(conf) => Door::Grpc(conf.callers(&ground.stop), 0),
        };
        Box::new(Exporter { door, resource: Arc::clone(&self.resource), ground })
    }
}

enum Door {
    Http(Http),
    /// One for each address, and which is asked next.
    Grpc(Vec<Caller>, usize),
}

struct Exporter {
    door: Door,
    resource: Arc<[(String, String)]>,
    ground: Ground,
}

impl Client for Exporter {
    fn send(&mut self, batch: &mut Batch<'_>) -> Outcome {
        parts::send(&batch.entries, |part| self.export(part))
    }
}

impl Exporter {
    fn export(&mut self, part: &[Entry<'_>]) -> Part {
        let ids: Vec<String> = part.iter().map(|e| e.id.to_string()).collect();
        let records = part.iter().zip(&ids).map(|(entry, id)| record(entry, id));
        let records: Vec<Record<'_>> = records.collect();
        let message = logs::request(&records, &self.resource);
        let (verdict, whom, after) = match self.door.export(&message) {
            Ok(answered) => answered,
            Err(why) => return Part::Later { why, after: None },
        };
        match verdict {
            Verdict::Taken(None) => Part::Taken,
            Verdict::Taken(Some(why)) => {
                (self.ground.say)(LogLevel::Warn, &format!("{whom} has a word of warning: {why}"));
                Part::Taken
            }
            Verdict::TooLarge(why) => Part::TooLarge(format!("{whom}: {why}")),
            Verdict::Refused(count, why) => Part::Refused(
                usize::try_from(count).unwrap_or(usize::MAX),
                format!("{whom}: {why}"),
            ),
            Verdict::Later(why) => {
                self.door.turn();
                Part::Later { why: format!("{whom} {why}"), after }
            }
        }
    }
}

fn record<'a>(entry: &Entry<'a>, id: &'a str) -> Record<'a> {
    Record {
        id,
        time_ms: entry.time_ms,
        kind: entry.kind.name(),
        severity: entry.severity as u8,
        json: entry.json,
    }
}

/// An answer, from whom, and when to come again.
type Answered = (Verdict, String, Option<Duration>);

impl Door {
    fn export(&mut self, message: &[u8]) -> Result<Answered, String> {
        match self {
            Door::Http(http) => {
                let answer = http.post(PATH, "application/x-protobuf", message)?;
                let verdict = answer::http(answer.status, &answer.body);
                Ok((verdict, http.whom(), answer.retry_after))
            }
            Door::Grpc(callers, turn) => {
                let at = *turn % callers.len();
                let caller = &mut callers[at];
                let whom = format!("{}:{}", caller.address.host, caller.address.port);
                let called = match caller.packed {
                    true => pack(message).and_then(|packed| caller.call(METHOD, &packed)),
                    false => caller.call(METHOD, message),
                };
                let reply = called.inspect_err(|_| *turn = turn.wrapping_add(1))?;
                let after = answer::retry_ms(&reply.details).map(Duration::from_millis);
                Ok((answer::grpc(reply.status, &reply.text, &reply.message), whom, after))
            }
        }
    }

    fn turn(&mut self) {
        match self {
            Door::Http(http) => http.turn(),
            Door::Grpc(_, turn) => *turn = turn.wrapping_add(1),
        }
    }
}

fn pack(message: &[u8]) -> Result<Vec<u8>, String> {
    let mut packer = GzEncoder::new(Vec::with_capacity(message.len() / 4), Compression::fast());
    packer.write_all(message).and_then(|()| packer.finish()).map_err(|e| e.to_string())
}
