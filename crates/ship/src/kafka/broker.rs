//! A connection to one broker: its versions, signing in, and one request at a time.

use super::conf::{Mechanism, Settings};
use crate::line::{dial, words, Line};
use crate::receiver::Stop;
use ring::rand::{self, SystemRandom};
use std::io::{Read, Write};
use std::sync::Arc;
use weir_shipping::kafka::codec::Writer;
use weir_shipping::kafka::message::{
    self, Api, Versions, API_VERSIONS, SASL_AUTHENTICATE, SASL_HANDSHAKE,
};
use weir_shipping::kafka::scram::{self, Scram};
use weir_shipping::kafka::{fault, ANSWER_MAX_BYTES};

/// As whom brokers' logs and quotas know us.
const CLIENT: &str = "weir";

pub struct Broker {
    line: Line,
    /// `host:port`, for messages.
    name: String,
    versions: Versions,
    correlation: i32,
}

impl Broker {
    /// Connects, asks what the broker can, and signs in.
    pub fn open(host: &str, port: u16, s: &Settings, stop: &Arc<Stop>) -> Result<Broker, String> {
        let line = dial(host, port, s.tls.as_ref(), s.timeout, stop)?;
        let name = format!("{host}:{port}");
        let mut broker = Broker { line, name, versions: Versions::default(), correlation: 0 };
        // Of itself each broker knows this one.
        let first = Versions { error: 0, apis: vec![(API_VERSIONS.number, 0, 0)] };
        broker.versions = first;
        let (_, body) = broker.ask(API_VERSIONS, s, |_, _| ())?;
        let found = Versions::read(&body).ok_or_else(|| broker.odd(API_VERSIONS))?;
        broker.check(API_VERSIONS, found.error, "")?;
        broker.versions = found;
        if let Some(mechanism) = s.mechanism {
            broker.sign_in(mechanism, s)?;
        }
        Ok(broker)
    }

    /// Whether it can still be asked something.
    pub fn is_stale(&self) -> bool {
        self.line.is_stale()
    }

    pub fn name(&self) -> &str {
        &self.name
    }

    /// The version that both sides know.
    pub fn version(&self, api: Api) -> Result<i16, String> {
        self.versions.of(api).ok_or_else(|| {
            let (name, least, most) = (api.name, api.least, api.most);
            format!(
                "{}: no {name} of versions {least} to {most}, as Kafka 1.0 and later have",
                self.name
            )
        })
    }

    /// Sends a request and waits for its answer. After an error nothing is known of either.
    pub fn ask(
        &mut self,
        api: Api,
        s: &Settings,
        body: impl FnOnce(&mut Writer, i16),
    ) -> Result<(i16, Vec<u8>), String> {
        let version = self.version(api)?;
        self.correlation = self.correlation.wrapping_add(1);
        let bytes = message::request(api, version, self.correlation, CLIENT, |w| body(w, version));
        self.line.begin(s.timeout);
        let failed = |what: &str, e: &std::io::Error| format!("{what}: {}", words(e));
        self.line
            .write_all(&bytes)
            .map_err(|e| failed(&format!("{}: cannot send", self.name), &e))?;
        self.line.flush().map_err(|e| failed(&format!("{}: cannot send", self.name), &e))?;
        let answer = self
            .read()
            .map_err(|e| failed(&format!("{}: no answer to {}", self.name, api.name), &e))?;
        match message::answer(&answer, self.correlation) {
            Some(body) => Ok((version, body.to_vec())),
            None => Err(self.odd(api)),
        }
    }

    fn read(&mut self) -> std::io::Result<Vec<u8>> {
        let mut len = [0; 4];
        self.line.read_exact(&mut len)?;
        let len = u32::from_be_bytes(len) as usize;
        if len > ANSWER_MAX_BYTES {
            return Err(std::io::Error::other(format!("an answer of {len} bytes")));
        }
        let mut answer = Vec::new();
        // What is promised takes no memory before it comes.
        let read = (&mut self.line).take(len as u64).read_to_end(&mut answer)?;
        match read == len {
            true => Ok(answer),
            false => Err(std::io::ErrorKind::UnexpectedEof.into()),
        }
    }

    /// What is said of an answer that cannot be understood.
    pub fn odd(&self, api: Api) -> String {
        format!("{}: the answer to {} cannot be understood", self.name, api.name)
    }

    pub fn check(&self, api: Api, error: i16, said: &str) -> Result<(), String> {
        match error {
            0 => Ok(()),
            _ => Err(format!("{}: {}: {}", self.name, api.name, fault::words(error, said))),
        }
    }

    fn sign_in(&mut self, mechanism: Mechanism, s: &Settings) -> Result<(), String> {
        let (_, body) = self.ask(SASL_HANDSHAKE, s, |w, _| w.text(mechanism.name()))?;
        let (error, known) = message::mechanisms(&body).ok_or_else(|| self.odd(SASL_HANDSHAKE))?;
        self.check(SASL_HANDSHAKE, error, &format!("there is {}", known.join(", ")))?;
        let Mechanism::Scram(hash) = mechanism else {
            return self.authenticate(s, scram::plain(&s.user, &s.password)).map(|_| ());
        };
        let mut nonce = Vec::new();
        let random = rand::generate::<[u8; 18]>(&SystemRandom::new());
        let random = random.map_err(|_| "the system gives no random bytes".to_owned())?.expose();
        weir_base::base64::encode(&mut nonce, &random);
        let nonce = String::from_utf8_lossy(&nonce);
        let mut scram = Scram::new(hash, &s.user, &s.password, &nonce);
        let name = self.name.clone();
        let failed = |e: &str| format!("{name}: {e}");
        let server = self.authenticate(s, scram.first())?;
        let answer = scram.answer(&server).map_err(failed)?;
        let server = self.authenticate(s, answer)?;
        scram.check(&server).map_err(failed)
    }

    fn authenticate(&mut self, s: &Settings, text: Vec<u8>) -> Result<Vec<u8>, String> {
        let (_, body) = self.ask(SASL_AUTHENTICATE, s, |w, _| w.bytes(&text))?;
        let (error, said, server) =
            message::authenticated(&body).ok_or_else(|| self.odd(SASL_AUTHENTICATE))?;
        self.check(SASL_AUTHENTICATE, error, &said)?;
        Ok(server)
    }
}
