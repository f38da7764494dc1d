//! The way to the collector: what is sent to whom, and what is answered.

use crate::common::Address;
use crate::grpc::Caller;
use crate::http::{Http, HttpConf};
use crate::line::tls::Tls;
use crate::receiver::Stop;
use std::sync::Arc;
use std::time::Duration;
use weir_shipping::otlp::answer::{self, Verdict};

const METHOD: &str = "/opentelemetry.proto.collector.trace.v1.TraceService/Export";

/// As the configuration has it.
pub struct Target {
    pub way: Way,
    pub timeout: Duration,
}

pub enum Way {
    Grpc { host: String, port: u16, tls: Option<Tls>, fields: Vec<(String, String)> },
    Http(Arc<HttpConf>),
}

/// With its connection.
pub enum Door {
    Grpc(Box<Caller>),
    Http(Http),
}

impl Target {
    pub fn door(&self, stop: &Arc<Stop>) -> Door {
        match &self.way {
            Way::Grpc { host, port, tls, fields } => Door::Grpc(Box::new(Caller {
                address: Address { scheme: String::new(), host: host.clone(), port: *port },
                tls: tls.clone(),
                timeout: self.timeout,
                fields: fields.clone(),
                packed: false,
                stop: Arc::clone(stop),
                open: None,
            })),
            Way::Http(conf) => Door::Http(Http::new(Arc::clone(conf), Arc::clone(stop))),
        }
    }
}

impl Door {
    /// Between exports: what the collector has to say by a connection that is kept.
    pub fn look(&mut self) {
        match self {
            Door::Grpc(caller) => caller.look(),
            // HTTP/1 has nothing to say then.
            Door::Http(_) => {}
        }
    }

    /// Sends a request: what the collector says, and for how long it wants to be left alone.
    ///
    /// # Errors
    ///
    /// Nothing is known of what became of it.
    pub fn export(&mut self, message: &[u8]) -> Result<(Verdict, Option<Duration>), String> {
        match self {
            Door::Grpc(caller) => {
                let reply = caller.call(METHOD, message)?;
                let after = answer::retry_ms(&reply.details).map(Duration::from_millis);
                Ok((answer::grpc(reply.status, &reply.text, &reply.message), after))
            }
            Door::Http(http) => {
                let answer = http.post("", "application/x-protobuf", message)?;
                Ok((answer::http(answer.status, &answer.body), answer.retry_after))
            }
        }
    }
}
