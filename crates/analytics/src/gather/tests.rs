use super::*;
use crate::privacy::{Privacy, Secret};
use crate::report::{Limits, Options};
use crate::sketch::{mix, Seed};

/// Numbers without a pattern, the same each time.
struct Chance(u64);

impl Chance {
    fn below(&mut self, n: u64) -> u64 {
        self.0 += 1;
        mix(self.0, 77) % n
    }
}

const AGENTS: [&str; 5] = [
    "Mozilla/5.0 (X11; Linux x86_64; rv:121.0) Gecko/20100101 Firefox/121.0",
    "Mozilla/5.0 (X11; Linux x86_64; rv:122.0) Gecko/20100101 Firefox/122.0",
    "Mozilla/5.0 (compatible; Googlebot/2.1; +http://www.google.com/bot.html)",
    "curl/8.5.0",
    "",
];
const STATUSES: [u16; 6] = [200, 200, 304, 404, 403, 500];
const METHODS: [Method; 3] = [Method::Get, Method::Head, Method::Post];

/// Some of all that there may be, mostly again and again.
fn request<'a>(chance: &mut Chance, secs: i64, room: &'a mut [String; 4]) -> Facts<'a> {
    let [uri, referrer, agent, host] = room;
    let page = chance.below(60);
    *uri = match chance.below(9) {
        0 => format!("/files/{page}.css"),
        1 => format!("/.env?{page}"),
        2 => format!("/long/{page}/{}", "x".repeat(1200 + chance.below(2) as usize)),
        3 => format!("/%7e{page}"),
        _ => format!("/{page}"),
    };
    *referrer = match chance.below(4) {
        0 => String::new(),
        n => format!("http://site{n}.example/{}", chance.below(3)),
    };
    *agent = AGENTS[chance.below(5) as usize].to_owned();
    *host = ["", "a.example", "b.example"][chance.below(3) as usize].to_owned();
    let client = u128::from(chance.below(20));
    let (family, address) = match chance.below(10) {
        0 => (0, 0),
        1 => (6, 0x2001_0db8 << 96 | client),
        _ => (4, 0xc000_0200 | client),
    };
    Facts {
        family,
        address,
        method: METHODS[chance.below(3) as usize],
        protocol: if chance.below(3) == 0 { Protocol::Http2 } else { Protocol::Http11 },
        status: STATUSES[chance.below(6) as usize],
        uri: uri.as_bytes(),
        referrer: referrer.as_bytes(),
        agent: agent.as_bytes(),
        host: host.as_bytes(),
        secs,
        bytes: chance.below(5000),
        took_ms: match chance.below(7) {
            0 => None,
            n => Some((n * n * n / 8 * 3) as u32),
        },
    }
}

/// As it would be counted by itself.
fn event<'a>(facts: &Facts<'a>, offset: i64) -> Event<'a> {
    Event {
        address: match facts.family {
            6 => IpAddr::V6(Ipv6Addr::from_bits(facts.address)),
            0 => IpAddr::V4(Ipv4Addr::LOCALHOST),
            _ => IpAddr::V4(Ipv4Addr::from_bits(facts.address as u32)),
        },
        time: Moment::from_unix(facts.secs + offset),
        method: facts.method,
        protocol: facts.protocol,
        uri: &facts.uri[..facts.uri.len().min(URI_MAX_BYTES)],
        status: facts.status,
        bytes: facts.bytes,
        referrer: facts.referrer,
        agent: facts.agent,
        host: facts.host,
        time_us: facts.took_ms.map(|ms| ms * 1000),
    }
}

fn options(privacy: Privacy) -> Options {
    // Room for all keys: what must be dropped depends on the order.
    Options { privacy, ..Options::new(Limits::offline(1), Seed::new(5)) }
}

fn take(gathered: &mut Gathered, batch: &mut Batch, report: &mut Report, offset: i64) {
    while {
        let is_more = gathered.take(batch);
        batch.tell(report, |_| offset);
        is_more
    } {}
}

fn shown(report: &Report) -> String {
    format!("{:#?} {:#?}", report.summary(), report.panels(1000))
}

#[test]
fn what_is_gathered_counts_as_one_by_one() {
    // Half an hour ahead of all quarters' hours, and over midnight.
    let offset = 5 * 3600 + 1800;
    for privacy in [Privacy::Plain, Privacy::Shortened, Privacy::Hashed(Secret::new(&[1; 32]))] {
        let (mut plain, mut told) =
            (Report::new(options(privacy.clone())), Report::new(options(privacy)));
        let (mut gathered, mut batch) = (Gathered::default(), Batch::default());
        let (mut chance, mut room) = (Chance(1), Default::default());
        let mut entries_most = 0;
        for n in 0..20_000_i64 {
            let facts = request(&mut chance, 1_700_000_000 + 3 * n, &mut room);
            plain.forget();
            plain.add(&event(&facts, offset));
            assert!(gathered.add(&facts));
            entries_most = entries_most.max(gathered.entries.len());
            match chance.below(700) {
                0 => take(&mut gathered, &mut batch, &mut told, offset),
                // Somebody looks, and only a part is taken before more comes.
                1 => {
                    gathered.rewind();
                    gathered.take(&mut batch);
                    batch.tell(&mut told, |_| offset);
                }
                _ => {}
            }
        }
        gathered.rewind();
        take(&mut gathered, &mut batch, &mut told, offset);
        assert!(entries_most > AT_ONCE, "{entries_most}");
        assert_eq!(plain.summary().valid, 20_000);
        assert_eq!(shown(&plain), shown(&told));
    }
}

#[test]
fn what_comes_again_takes_no_room() {
    let (mut chance, mut room) = (Chance(3), Default::default());
    let facts = request(&mut chance, 1_700_000_000, &mut room);
    let mut gathered = Gathered::default();
    for _ in 0..1000 {
        assert!(gathered.add(&facts));
    }
    assert_eq!(gathered.entries.len(), 1);
    // It is told once, and then only what has come since.
    let (mut batch, mut report) = (Batch::default(), Report::new(options(Privacy::Plain)));
    take(&mut gathered, &mut batch, &mut report, 0);
    gathered.add(&facts);
    take(&mut gathered, &mut batch, &mut report, 0);
    assert_eq!(report.summary().valid, 1000);
    gathered.rewind();
    take(&mut gathered, &mut batch, &mut report, 0);
    assert_eq!(report.summary().valid, 1001);
    // A quarter of an hour later it is another.
    gathered.add(&Facts { secs: facts.secs + QUARTER_SECS, ..facts });
    assert_eq!(gathered.entries.len(), 2);
}

#[test]
fn memory_is_bounded_whoever_comes() {
    let mut gathered = Gathered::default();
    let (mut batch, mut report) = (Batch::default(), Report::new(options(Privacy::Plain)));
    let (mut chance, mut room) = (Chance(9), Default::default());
    let like = request(&mut chance, 1_700_000_000, &mut room);
    let mut added = 0;
    for n in 0..200_000_u64 {
        let uri = format!("/{n:0300}");
        added += u64::from(gathered.add(&Facts { uri: uri.as_bytes(), ..like }));
        assert!(gathered.bytes() <= MAX_BYTES);
    }
    assert!((5000..10_000).contains(&added), "what has no room is refused: {added}");
    take(&mut gathered, &mut batch, &mut report, 0);
    assert_eq!(report.summary().valid, added);
    assert!(gathered.entries.is_empty() && gathered.bytes() == 0, "much is not kept");
    assert!(gathered.add(&like), "there is room again");
    take(&mut gathered, &mut batch, &mut report, 0);
    assert!(batch.texts.capacity() <= 2 * KEPT_MAX_BYTES);
}
