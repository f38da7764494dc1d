//! The few messages a producer needs, in versions that every broker from 1.0 to 4.x takes: none of them is one
//! of the "flexible" versions, and all of them are beyond those that Kafka 4 has dropped (KIP-896).

use super::codec::{Reader, Writer};

/// A message's number, and the versions of it that are spoken here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Api {
    pub number: i16,
    pub name: &'static str,
    pub least: i16,
    pub most: i16,
}

const fn api(number: i16, name: &'static str, least: i16, most: i16) -> Api {
    Api { number, name, least, most }
}

pub const PRODUCE: Api = api(0, "Produce", 3, 8);
pub const METADATA: Api = api(3, "Metadata", 4, 4);
pub const SASL_HANDSHAKE: Api = api(17, "SaslHandshake", 1, 1);
pub const API_VERSIONS: Api = api(18, "ApiVersions", 0, 0);
pub const INIT_PRODUCER_ID: Api = api(22, "InitProducerId", 0, 1);
pub const SASL_AUTHENTICATE: Api = api(36, "SaslAuthenticate", 0, 0);

/// A message with its length and head; `body` writes the rest. Nothing if it is longer than a length can say.
pub fn request(
    api: Api,
    version: i16,
    correlation: i32,
    client: &str,
    body: impl FnOnce(&mut Writer),
) -> Vec<u8> {
    let mut writer = Writer::default();
    writer.i32(0);
    writer.i16(api.number);
    writer.i16(version);
    writer.i32(correlation);
    writer.text(client);
    body(&mut writer);
    let len = (writer.out.len() - 4) as u32;
    writer.out[..4].copy_from_slice(&len.to_be_bytes());
    writer.out
}

/// What stands behind an answer's correlation id, if it is the one that was asked for.
pub fn answer(bytes: &[u8], correlation: i32) -> Option<&[u8]> {
    let (id, body) = bytes.split_at_checked(4)?;
    (id == correlation.to_be_bytes()).then_some(body)
}

/// What a broker takes: its error code, and number, least and greatest version of each message.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Versions {
    pub error: i16,
    pub apis: Vec<(i16, i16, i16)>,
}

impl Versions {
    pub fn read(body: &[u8]) -> Option<Versions> {
        let mut r = Reader::new(body);
        let error = r.i16()?;
        let apis = r.list(|r| Some((r.i16()?, r.i16()?, r.i16()?)))?;
        Some(Versions { error, apis })
    }

    /// The greatest version that both sides know.
    pub fn of(&self, api: Api) -> Option<i16> {
        let (_, least, most) = self.apis.iter().find(|(number, ..)| *number == api.number)?;
        let version = api.most.min(*most);
        (version >= api.least.max(*least)).then_some(version)
    }
}

/// Asks for a topic, which the broker may make if it is configured so.
pub fn metadata(topic: &str, w: &mut Writer) {
    w.len(1);
    w.text(topic);
    w.bool(true);
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Broker {
    pub id: i32,
    pub host: String,
    pub port: i32,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Partition {
    pub error: i16,
    pub number: i32,
    /// Negative while it has none.
    pub leader: i32,
}

/// Who the brokers are, and what partitions the one topic has.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Metadata {
    pub brokers: Vec<Broker>,
    pub error: i16,
    pub partitions: Vec<Partition>,
}

impl Metadata {
    /// In order of the partitions' numbers.
    pub fn read(body: &[u8], topic: &str) -> Option<Metadata> {
        let mut r = Reader::new(body);
        let _throttled_ms = r.i32()?;
        let brokers = r.list(|r| {
            let broker = Broker { id: r.i32()?, host: r.text()?, port: r.i32()? };
            let _rack = r.text()?;
            Some(broker)
        })?;
        let _cluster = r.text()?;
        let _controller = r.i32()?;
        let topics = r.list(|r| {
            let error = r.i16()?;
            let name = r.text()?;
            let _internal = r.bool()?;
            let partitions = r.list(|r| {
                let error = r.i16()?;
                let partition = Partition { error, number: r.i32()?, leader: r.i32()? };
                r.list(Reader::i32)?;
                r.list(Reader::i32)?;
                Some(partition)
            })?;
            Some((name, error, partitions))
        })?;
        let (_, error, mut partitions) = topics.into_iter().find(|(name, ..)| name == topic)?;
        partitions.sort_unstable_by_key(|p| p.number);
        Some(Metadata { brokers, error, partitions })
    }

    pub fn broker(&self, id: i32) -> Option<&Broker> {
        self.brokers.iter().find(|b| b.id == id)
    }

    pub fn leader(&self, partition: i32) -> Option<&Broker> {
        let found = self.partitions.iter().find(|p| p.number == partition)?;
        self.broker(found.leader)
    }
}

/// Asks for a producer's number; without transactions.
pub fn init_producer_id(w: &mut Writer) {
    w.no_text();
    w.i32(i32::MAX);
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProducerId {
    pub error: i16,
    pub id: i64,
    pub epoch: i16,
}

impl ProducerId {
    pub fn read(body: &[u8]) -> Option<ProducerId> {
        let mut r = Reader::new(body);
        let _throttled_ms = r.i32()?;
        Some(ProducerId { error: r.i16()?, id: r.i64()?, epoch: r.i16()? })
    }
}

/// Batches of records for partitions of one topic, to be had by all replicas in sync before the answer.
pub fn produce(topic: &str, timeout_ms: i32, batches: &[(i32, Vec<u8>)], w: &mut Writer) {
    const ALL_IN_SYNC: i16 = -1;
    w.no_text();
    w.i16(ALL_IN_SYNC);
    w.i32(timeout_ms);
    w.len(1);
    w.text(topic);
    w.len(batches.len());
    for (partition, batch) in batches {
        w.i32(*partition);
        w.bytes(batch);
    }
}

/// What became of one partition's batch.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Produced {
    pub partition: i32,
    pub error: i16,
    pub offset: i64,
    /// Places in the batch of records that are to blame for the batch's refusal, and why.
    pub records: Vec<(i32, String)>,
    pub why: String,
}

/// The answer to [`produce`], and for how many ms the broker asks to be left alone.
pub fn produced(body: &[u8], version: i16, topic: &str) -> Option<(Vec<Produced>, i32)> {
    let mut r = Reader::new(body);
    let topics = r.list(|r| {
        let name = r.text()?;
        let partitions = r.list(|r| {
            let mut p = Produced { partition: r.i32()?, error: r.i16()?, ..Produced::default() };
            p.offset = r.i64()?;
            let _appended_ms = r.i64()?;
            if version >= 5 {
                let _log_start = r.i64()?;
            }
            if version >= 8 {
                p.records = r.list(|r| Some((r.i32()?, r.text()?)))?;
                p.why = r.text()?;
            }
            Some(p)
        })?;
        Some((name, partitions))
    })?;
    let throttled_ms = r.i32()?;
    let (_, partitions) = topics.into_iter().find(|(name, _)| name == topic)?;
    Some((partitions, throttled_ms.max(0)))
}

/// The answer to a SaslHandshake: the error, and the mechanisms that there are.
pub fn mechanisms(body: &[u8]) -> Option<(i16, Vec<String>)> {
    let mut r = Reader::new(body);
    Some((r.i16()?, r.list(Reader::text)?))
}

/// The answer to a SaslAuthenticate: the error, its words, and what the server says.
pub fn authenticated(body: &[u8]) -> Option<(i16, String, Vec<u8>)> {
    let mut r = Reader::new(body);
    Some((r.i16()?, r.text()?, r.bytes()?.to_vec()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_has_its_length_and_head() {
        let bytes = request(METADATA, 4, 7, "weir", |w| metadata("t", w));
        let expected = b"\0\0\0\x16\0\x03\0\x04\0\0\0\x07\0\x04weir\0\0\0\x01\0\x01t\x01";
        assert_eq!(bytes, expected);
    }

    #[test]
    fn versions_are_agreed_on() {
        let versions =
            Versions { error: 0, apis: vec![(0, 3, 11), (3, 0, 12), (22, 0, 5), (36, 1, 2)] };
        assert_eq!(versions.of(PRODUCE), Some(8));
        assert_eq!(versions.of(METADATA), Some(4));
        assert_eq!(versions.of(SASL_AUTHENTICATE), None, "too new for us");
        assert_eq!(versions.of(SASL_HANDSHAKE), None, "not there");
        let old = Versions { error: 0, apis: vec![(0, 0, 2)] };
        assert_eq!(old.of(PRODUCE), None, "too old for us");
    }

    #[test]
    fn partitions_and_their_leaders() {
        let mut w = Writer::default();
        w.i32(0);
        w.len(1);
        w.i32(5);
        w.text("h");
        w.i32(9092);
        w.no_text();
        w.no_text();
        w.i32(5);
        w.len(1);
        w.i16(0);
        w.text("t");
        w.bool(false);
        w.len(2);
        for (number, leader) in [(1, -1), (0, 5)] {
            w.i16(if leader < 0 { 5 } else { 0 });
            w.i32(number);
            w.i32(leader);
            w.len(1);
            w.i32(5);
            w.len(0);
        }
        let found = Metadata::read(&w.out, "t").unwrap();
        assert_eq!(found.leader(0).map(|b| (&b.host[..], b.port)), Some(("h", 9092)));
        assert_eq!(found.leader(1), None);
        assert_eq!(found.partitions.iter().map(|p| p.error).collect::<Vec<_>>(), [0, 5]);
        assert_eq!(Metadata::read(&w.out, "u"), None, "another topic");
        for len in 0..w.out.len() {
            assert_eq!(Metadata::read(&w.out[..len], "t"), None, "{len}");
        }
    }

    #[test]
    fn what_became_of_a_batch() {
        let mut w = Writer::default();
        w.len(1);
        w.text("t");
        w.len(1);
        w.i32(3);
        w.i16(87);
        w.i64(-1);
        w.i64(-1);
        w.i64(0);
        w.len(1);
        w.i32(2);
        w.text("bad");
        w.text("one is bad");
        w.i32(40);
        let (parts, throttled) = produced(&w.out, 8, "t").unwrap();
        assert_eq!(throttled, 40);
        assert_eq!((parts[0].partition, parts[0].error), (3, 87));
        assert_eq!(parts[0].records, [(2, "bad".to_owned())]);
        assert_eq!(parts[0].why, "one is bad");
    }
}
