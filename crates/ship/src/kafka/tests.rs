//! The producer against a broker that remembers producers as Kafka does, and misbehaves when it is told to.

use super::client::Producer;
use super::conf::Settings;
use crate::common::Address;
use crate::fake;
use crate::receiver::{Batch, Client, Kept, Outcome};
use std::collections::{HashMap, HashSet, VecDeque};
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;
use weir_shipping::kafka::codec::{Reader, Writer};
use weir_shipping::kafka::records::{Compression, HEAD_BYTES};

const PARTITIONS: i32 = 3;
/// So many batches of a producer are remembered.
const REMEMBERED: usize = 5;

/// What the broker does with a Produce request.
#[derive(Clone, Copy, Debug)]
enum Trick {
    Obey,
    /// The connection is closed and nothing is written.
    Hang,
    /// All is written, and the connection is closed in place of an answer.
    Write,
    /// All is written, and half of the answer is sent.
    Half,
    /// Nothing is written and this is answered.
    Error(i16),
    /// What is known of producers is lost first.
    Forget,
    /// A length that no answer has.
    Huge,
}

#[derive(Default)]
struct World {
    tricks: VecDeque<Trick>,
    /// Partition, key, value.
    log: Vec<(i32, Option<String>, String)>,
    /// By producer and partition: the last batches' first and last sequences.
    producers: HashMap<(i64, i32), VecDeque<(i32, i32)>>,
    ids: i64,
    /// Records that are refused, and bytes of a batch that are too many.
    poison: Option<&'static str>,
    most_bytes: usize,
    requests: usize,
    port: i32,
}

type Shared = Arc<Mutex<World>>;

fn broker() -> Shared {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = i32::from(listener.local_addr().unwrap().port());
    let world: Shared =
        Arc::new(Mutex::new(World { port, most_bytes: usize::MAX, ..World::default() }));
    let shared = Arc::clone(&world);
    thread::spawn(move || {
        for socket in listener.incoming().flatten() {
            let world = Arc::clone(&shared);
            thread::spawn(move || while serve(&socket, &world).is_some() {});
        }
    });
    world
}

fn serve(mut socket: &TcpStream, world: &Shared) -> Option<()> {
    let mut len = [0; 4];
    socket.read_exact(&mut len).ok()?;
    let mut request = vec![0; u32::from_be_bytes(len) as usize];
    socket.read_exact(&mut request).ok()?;
    let mut r = Reader::new(&request);
    let (api, version, correlation) = (r.i16()?, r.i16()?, r.i32()?);
    r.text()?;
    let mut w = Writer::default();
    w.i32(correlation);
    let mut world = world.lock().unwrap();
    let trick = match api {
        0 => {
            world.requests += 1;
            assert_eq!(version, 8);
            world.tricks.pop_front().unwrap_or(Trick::Obey)
        }
        _ => Trick::Obey,
    };
    match (api, trick) {
        (0, Trick::Hang) => return None,
        (0, Trick::Huge) => {
            socket.write_all(&[0x7f, 0xff, 0xff, 0xff, 1]).ok()?;
            return Some(());
        }
        (0, trick) => produce(&mut world, trick, &mut r, &mut w)?,
        (3, _) => metadata(&world, &mut w),
        (18, _) => {
            w.i16(0);
            w.len(3);
            for (api, most) in [(0, 11), (3, 12), (22, 5)] {
                w.i16(api);
                w.i16(0);
                w.i16(most);
            }
        }
        (22, _) => {
            world.ids += 1;
            w.i32(0);
            w.i16(0);
            w.i64(world.ids);
            w.i16(0);
        }
        _ => return None,
    }
    drop(world);
    let answer = [&(w.out.len() as u32).to_be_bytes()[..], &w.out].concat();
    match trick {
        Trick::Write => None,
        Trick::Half => socket.write_all(&answer[..answer.len() / 2]).ok().and(None),
        _ => socket.write_all(&answer).ok(),
    }
}

fn metadata(world: &World, w: &mut Writer) {
    w.i32(0);
    w.len(1);
    w.i32(4);
    w.text("127.0.0.1");
    w.i32(world.port);
    w.no_text();
    w.no_text();
    w.i32(4);
    w.len(1);
    w.i16(0);
    w.text("logs");
    w.bool(false);
    w.len(PARTITIONS as usize);
    for partition in 0..PARTITIONS {
        w.i16(0);
        w.i32(partition);
        w.i32(4);
        w.len(0);
        w.len(0);
    }
}

fn produce(world: &mut World, trick: Trick, r: &mut Reader<'_>, w: &mut Writer) -> Option<()> {
    if matches!(trick, Trick::Forget) {
        world.producers.clear();
    }
    r.text()?;
    assert_eq!(r.i16()?, -1, "all replicas in sync");
    r.i32()?;
    let batches = r.list(|r| {
        r.text()?;
        r.list(|r| Some((r.i32()?, r.bytes()?.to_vec())))
    })?;
    w.len(1);
    w.text("logs");
    let batches: Vec<_> = batches.into_iter().flatten().collect();
    w.len(batches.len());
    for (partition, batch) in batches {
        let error = match trick {
            Trick::Error(code) => code,
            _ => append(world, partition, &batch),
        };
        w.i32(partition);
        w.i16(error);
        w.i64(0);
        w.i64(-1);
        w.i64(0);
        w.len(0);
        w.text("so it is");
    }
    w.i32(0);
    Some(())
}

/// As `ProducerStateManager` does it.
fn append(world: &mut World, partition: i32, batch: &[u8]) -> i16 {
    let sum = weir_base::crc32c::crc32c(&batch[21..]);
    assert_eq!(batch[17..21], sum.to_be_bytes());
    let mut r = Reader::new(&batch[43..HEAD_BYTES]);
    let producer = r.i64().unwrap();
    let (_epoch, first, count) = (r.i16().unwrap(), r.i32().unwrap(), r.i32().unwrap());
    let last = first + count - 1;
    let records = records(&batch[HEAD_BYTES..]);
    assert_eq!(records.len(), count as usize);
    if batch.len() > world.most_bytes {
        return 10;
    }
    if world.poison.is_some_and(|p| records.iter().any(|(_, value)| value.contains(p))) {
        return 87;
    }
    let known = world.producers.entry((producer, partition)).or_default();
    if known.contains(&(first, last)) {
        return 0;
    }
    if known.back().is_some_and(|(_, last)| last + 1 != first) {
        return 45;
    }
    known.push_back((first, last));
    if known.len() > REMEMBERED {
        known.pop_front();
    }
    world.log.extend(records.into_iter().map(|(key, value)| (partition, key, value)));
    0
}

fn varint(bytes: &mut &[u8]) -> i64 {
    let (mut value, mut shift) = (0u64, 0);
    loop {
        let byte = bytes[0];
        *bytes = &bytes[1..];
        value |= u64::from(byte & 0x7f) << shift;
        shift += 7;
        if byte & 0x80 == 0 {
            return (value >> 1) as i64 ^ -((value & 1) as i64);
        }
    }
}

fn text(bytes: &mut &[u8]) -> Option<String> {
    let len = usize::try_from(varint(bytes)).ok()?;
    let text = String::from_utf8(bytes[..len].to_vec()).unwrap();
    *bytes = &bytes[len..];
    Some(text)
}

fn records(mut bytes: &[u8]) -> Vec<(Option<String>, String)> {
    let mut found = Vec::new();
    while !bytes.is_empty() {
        let len = varint(&mut bytes) as usize;
        let mut record = &bytes[1..len];
        bytes = &bytes[len..];
        varint(&mut record);
        varint(&mut record);
        let key = text(&mut record);
        let value = text(&mut record).unwrap();
        assert_eq!(varint(&mut record), 1);
        assert_eq!(text(&mut record).as_deref(), Some("event.id"));
        assert!(text(&mut record).is_some() && record.is_empty());
        found.push((key, value));
    }
    found
}

#[derive(Default)]
struct Memory(Vec<u8>);

impl Kept for Memory {
    fn bytes(&self) -> &[u8] {
        &self.0
    }

    fn keep(&mut self, bytes: &[u8]) -> std::io::Result<()> {
        assert!(bytes.len() <= crate::receiver::KEPT_MAX_BYTES);
        self.0 = bytes.to_vec();
        Ok(())
    }
}

fn settings(world: &Shared) -> Settings {
    let port = world.lock().unwrap().port as u16;
    Settings {
        brokers: vec![Address { scheme: "tcp".into(), host: "127.0.0.1".into(), port }],
        tls: None,
        topic: "logs".into(),
        key: None,
        chunk_bytes: 700,
        mechanism: None,
        user: String::new(),
        password: String::new(),
        compression: Compression::None,
        timeout: Duration::from_secs(5),
    }
}

fn producer(settings: Settings) -> Producer {
    Producer::new(Arc::new(settings), fake::ground())
}

fn event(n: u32) -> String {
    format!("{{\"n\":{n},\"host\":\"h{}\"}}", n % 7)
}

fn send(producer: &mut Producer, kept: &mut Memory, events: std::ops::Range<u32>) -> Outcome {
    let from = events.start;
    let texts: Vec<Vec<u8>> = events.map(|n| event(n).into_bytes()).collect();
    let entries = fake::entries(&texts, from);
    producer.send(&mut Batch { entries, kept, is_repeated: false })
}

/// What was sent, each once.
fn assert_log(world: &Shared, events: std::ops::Range<u32>) {
    let world = world.lock().unwrap();
    let values: Vec<&String> = world.log.iter().map(|(.., value)| value).collect();
    let all: HashSet<&String> = values.iter().copied().collect();
    assert_eq!(values.len(), all.len(), "some are there twice");
    let expected: Vec<String> = events.map(event).collect();
    assert_eq!(all, expected.iter().collect(), "some are missing, or nobody sent them");
}

#[test]
fn events_arrive_each_in_its_place() {
    let world = broker();
    let (mut producer, mut kept) = (producer(settings(&world)), Memory::default());
    for n in 0..4 {
        assert!(matches!(send(&mut producer, &mut kept, n * 30..n * 30 + 30), Outcome::All));
    }
    assert_log(&world, 0..120);
    let used: HashSet<i32> = world.lock().unwrap().log.iter().map(|(p, ..)| *p).collect();
    assert_eq!(used.len(), 3, "each batch has another partition");
}

/// Whatever happens to requests and to the process, each event is there once.
#[test]
fn killed_in_the_middle_again_and_again() {
    use Trick::*;
    let world = broker();
    let mut kept = Memory::default();
    let tricks =
        [Obey, Write, Hang, Half, Error(6), Write, Error(7), Huge, Obey, Half, Error(19), Write];
    for keyed in [false, true] {
        let by = |mut s: Settings| {
            s.key = keyed.then(|| "host".to_owned());
            s
        };
        world.lock().unwrap().log.clear();
        for n in 0..12u32 {
            let turned = tricks.iter().cycle().skip(n as usize).take(9).copied();
            world.lock().unwrap().tricks = turned.collect();
            let events = n * 40..n * 40 + 40;
            let mut tries = 0;
            // A new process for each try.
            while !matches!(
                send(&mut producer(by(settings(&world))), &mut kept, events.clone()),
                Outcome::All
            ) {
                tries += 1;
                assert!(tries < 30, "it never gets through");
            }
            // The cursor was not moved when the process was killed.
            let again = send(&mut producer(by(settings(&world))), &mut kept, events);
            assert!(matches!(again, Outcome::All));
        }
        assert_log(&world, 0..480);
    }
    assert_eq!(world.lock().unwrap().ids, 1, "one producer all the time");
}

#[test]
fn keys_choose_partitions() {
    let world = broker();
    let mut by_host = settings(&world);
    by_host.key = Some("host".into());
    let (mut producer, mut kept) = (producer(by_host), Memory::default());
    assert!(matches!(send(&mut producer, &mut kept, 0..100), Outcome::All));
    assert_log(&world, 0..100);
    let mut of: HashMap<String, i32> = HashMap::new();
    for (partition, key, _) in &world.lock().unwrap().log {
        let before = of.insert(key.clone().unwrap(), *partition);
        assert!(before.is_none_or(|p| p == *partition));
    }
    assert_eq!(of.len(), 7);
}

/// A broker that has forgotten the producer takes what comes; one that knows better gets a new one.
#[test]
fn brokers_that_forget() {
    let world = broker();
    let (mut producer, mut kept) = (producer(settings(&world)), Memory::default());
    world.lock().unwrap().tricks = [Trick::Obey, Trick::Error(59), Trick::Error(45)].into();
    assert!(matches!(send(&mut producer, &mut kept, 0..60), Outcome::All));
    assert_log(&world, 0..60);
    assert_eq!(world.lock().unwrap().ids, 3);
    world.lock().unwrap().tricks = [Trick::Forget].into();
    assert!(matches!(send(&mut producer, &mut kept, 60..90), Outcome::All));
    assert_log(&world, 0..90);
    world.lock().unwrap().tricks = vec![Trick::Error(45); 20].into();
    let outcome = send(&mut producer, &mut kept, 90..95);
    assert!(matches!(outcome, Outcome::Later { .. }), "not for ever: {outcome:?}");
    world.lock().unwrap().tricks.clear();
    assert!(matches!(send(&mut producer, &mut kept, 90..95), Outcome::All));
    assert_log(&world, 0..95);
}

#[test]
fn what_is_refused_is_found_and_the_rest_goes_through() {
    let world = broker();
    let (mut producer, mut kept) = (producer(settings(&world)), Memory::default());
    world.lock().unwrap().poison = Some("\"n\":13,");
    let Outcome::Some { done, refused, .. } = send(&mut producer, &mut kept, 0..30) else {
        panic!()
    };
    assert_eq!(refused.len(), 1);
    assert_eq!(refused[0].0, 13);
    assert!(refused[0].1.contains("INVALID_RECORD (87): so it is"), "{}", refused[0].1);
    assert!(!done[13] && done.iter().filter(|d| **d).count() == 29);
    world.lock().unwrap().poison = None;
    world.lock().unwrap().most_bytes = 300;
    assert!(matches!(send(&mut producer, &mut kept, 30..60), Outcome::All));
    let world = world.lock().unwrap();
    assert_eq!(world.log.len(), 59);
    assert!(world.requests > 10, "smaller batches");
}

#[test]
fn nothing_is_sent_to_nobody() {
    let world = broker();
    let mut down = settings(&world);
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    drop(listener);
    down.brokers.insert(0, Address { scheme: "tcp".into(), host: "127.0.0.1".into(), port });
    let (mut producer, mut kept) = (producer(down), Memory::default());
    let Outcome::Later { why, .. } = send(&mut producer, &mut kept, 0..5) else { panic!() };
    assert!(why.contains("cannot connect to"), "{why}");
    assert!(matches!(send(&mut producer, &mut kept, 0..5), Outcome::All), "the next address");
    assert_log(&world, 0..5);
}
