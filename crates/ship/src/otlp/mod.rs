//! OTLP logs and metrics over HTTP (protocol buffers) and gRPC.
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
use crate::receiver::{Batch, Client, Entry, Ground, Kind, Outcome, Target};
use flate2::write::GzEncoder;
use flate2::Compression;
use std::io::Write;
use std::sync::Arc;
use std::time::Duration;
use weir_core::logger::LogLevel;
use weir_shipping::otlp::answer::{self, Verdict};
use weir_shipping::otlp::logs::{self, Record};
use weir_shipping::otlp::metrics;

/// What is exported: where over HTTP, and by which call of gRPC.
#[derive(Clone, Copy)]
struct Signal {
    path: &'static str,
    method: &'static str,
}

const LOGS: Signal = Signal {
    path: "/v1/logs",
    method: "/opentelemetry.proto.collector.logs.v1.LogsService/Export",
};
const METRICS: Signal = Signal {
    path: "/v1/metrics",
    method: "/opentelemetry.proto.collector.metrics.v1.MetricsService/Export",
};

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
        let entries = &batch.entries;
        let (metrics, logs): (Vec<usize>, Vec<usize>) =
            (0..entries.len()).partition(|n| is_metric(&entries[*n]));
        if metrics.is_empty() {
            return parts::send(entries, |part| self.export_logs(part));
        }
        let of = |places: &[usize]| places.iter().map(|n| entries[*n]).collect::<Vec<_>>();
        let sent = parts::send(&of(&metrics), |part| self.export_metrics(part));
        if logs.is_empty() {
            return sent;
        }
        let other = parts::send(&of(&logs), |part| self.export_logs(part));
        together(entries.len(), [(&metrics, sent), (&logs, other)])
    }
}

/// Those of versions before are JSON, and logs.
fn is_metric(entry: &Entry<'_>) -> bool {
    entry.kind == Kind::Metric && entry.json.first() == Some(&metrics::FIRST_BYTE)
}

/// What became of a batch by what became of two halves of it, each with the places of its entries.
fn together(len: usize, halves: [(&[usize], Outcome); 2]) -> Outcome {
    let (mut done, mut refused, mut again_after) = (vec![false; len], Vec::new(), None);
    let mut later = Vec::new();
    for (places, outcome) in halves {
        match outcome {
            Outcome::All => places.iter().for_each(|n| done[*n] = true),
            Outcome::Some { done: some, refused: of, again_after: after } => {
                places.iter().zip(some).for_each(|(n, is_done)| done[*n] = is_done);
                refused.extend(of.into_iter().map(|(n, why)| (places[n], why)));
                again_after = again_after.max(after);
            }
            Outcome::Later { why, after } => {
                again_after = again_after.max(after);
                later.push(why);
            }
        }
    }
    match later.pop() {
        Some(why) if !later.is_empty() => Outcome::Later { why, after: again_after },
        _ => Outcome::Some { done, refused, again_after },
    }
}

impl Exporter {
    fn export_metrics(&mut self, part: &[Entry<'_>]) -> Part {
        let message = metrics::request(part.iter().map(|entry| entry.json), &self.resource);
        self.export(METRICS, &message)
    }

    fn export_logs(&mut self, part: &[Entry<'_>]) -> Part {
        let ids: Vec<String> = part.iter().map(|e| e.id.to_string()).collect();
        let records = part.iter().zip(&ids).map(|(entry, id)| record(entry, id));
        let records: Vec<Record<'_>> = records.collect();
        let message = logs::request(&records, &self.resource);
        self.export(LOGS, &message)
    }

    fn export(&mut self, signal: Signal, message: &[u8]) -> Part {
        let (verdict, whom, after) = match self.door.export(signal, message) {
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
    fn export(&mut self, signal: Signal, message: &[u8]) -> Result<Answered, String> {
        match self {
            Door::Http(http) => {
                let answer = http.post(signal.path, "application/x-protobuf", message)?;
                let verdict = answer::http(answer.status, &answer.body);
                Ok((verdict, http.whom(), answer.retry_after))
            }
            Door::Grpc(callers, turn) => {
                let at = *turn % callers.len();
                let caller = &mut callers[at];
                let whom = format!("{}:{}", caller.address.host, caller.address.port);
                let called = match caller.packed {
                    true => pack(message).and_then(|packed| caller.call(signal.method, &packed)),
                    false => caller.call(signal.method, message),
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
