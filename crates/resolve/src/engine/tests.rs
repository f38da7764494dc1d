//! What must hold, by hand, and in ten thousand seeded turns against a server that misbehaves.

use super::*;
use simple_dns::rdata::{RData, A, AAAA, CNAME, SRV};
use simple_dns::{Name, Packet, ResourceRecord, CLASS, QTYPE, TYPE};
use std::net::{Ipv4Addr, Ipv6Addr};

fn counting() -> Random {
    let mut n = 0;
    Box::new(move || {
        n += 1;
        n
    })
}

fn engine(servers: usize, ipv6: bool) -> Engine {
    Engine::new(Settings { servers, ipv4: true, ipv6, valid_secs: None }, counting())
}

fn drain(e: &mut Engine) -> Vec<Output> {
    std::iter::from_fn(|| e.take()).collect()
}

fn sends(out: &[Output]) -> Vec<(Query, Vec<u8>)> {
    let send = |o: &Output| match o {
        Output::Send(q, b) => Some((q.clone(), b.clone())),
        _ => None,
    };
    out.iter().filter_map(send).collect()
}

fn done(out: &[Output]) -> Vec<(u64, Outcome)> {
    let done = |o: &Output| match o {
        Output::Done(t, r) => Some((*t, r.clone())),
        _ => None,
    };
    out.iter().filter_map(done).collect()
}

/// Answers a query with records of the name asked for.
fn answer(query: &[u8], ttl: u32, data: &[RData<'static>]) -> Vec<u8> {
    let mut packet = Packet::parse(query).unwrap().into_reply();
    for d in data {
        let name = packet.questions[0].qname.clone();
        packet.answers.push(ResourceRecord::new(name, CLASS::IN, ttl, d.clone()));
    }
    packet.build_bytes_vec().unwrap()
}

fn a(last: u8) -> RData<'static> {
    RData::A(A { address: Ipv4Addr::new(127, 0, 0, last).into() })
}

fn ips(outcome: &Outcome) -> Vec<String> {
    outcome.as_ref().unwrap().targets.iter().map(|t| format!("{}:{}", t.ip, t.port)).collect()
}

#[test]
fn one_query_for_all_who_wait_and_then_the_cache() {
    let mut e = engine(1, false);
    let (one, two) = (e.ask(0, Question::Name("A.test")), e.ask(1, Question::Name("a.test.")));
    let out = sends(&drain(&mut e));
    assert_eq!(out.len(), 1);
    e.response(2, &out[0].0, &answer(&out[0].1, 5, &[a(1)]));
    let got = done(&drain(&mut e));
    assert_eq!(got.iter().map(|g| g.0).collect::<Vec<_>>(), [one, two]);
    assert_eq!(
        (ips(&got[0].1), got[0].1.as_ref().unwrap().until_ms),
        (vec!["127.0.0.1:0".into()], 6000)
    );
    e.ask(5999, Question::Name("a.test"));
    assert_eq!(done(&drain(&mut e)).len(), 1);
    e.ask(6000, Question::Name("a.test"));
    assert_eq!(sends(&drain(&mut e)).len(), 1);
}

#[test]
fn what_is_not_to_be_kept_does_for_the_rest_of_the_second() {
    let mut e = engine(1, false);
    e.ask(7100, Question::Name("a.test"));
    let out = sends(&drain(&mut e));
    e.response(7200, &out[0].0, &answer(&out[0].1, 0, &[a(1)]));
    assert_eq!(done(&drain(&mut e))[0].1.as_ref().unwrap().until_ms, 8000);
    e.ask(7999, Question::Name("a.test"));
    assert_eq!(done(&drain(&mut e)).len(), 1);
    e.ask(8000, Question::Name("a.test"));
    assert_eq!(sends(&drain(&mut e)).len(), 1);
}

#[test]
fn valid_takes_the_place_of_what_answers_say_and_failures_are_not_kept() {
    let settings = Settings { servers: 1, ipv4: true, ipv6: false, valid_secs: Some(20) };
    let mut e = Engine::new(settings, counting());
    e.ask(0, Question::Name("a.test"));
    let out = sends(&drain(&mut e));
    e.response(500, &out[0].0, &answer(&out[0].1, 0, &[a(1)]));
    assert_eq!(done(&drain(&mut e))[0].1.as_ref().unwrap().until_ms, 21_000);
    e.ask(0, Question::Name("b.test"));
    let out = sends(&drain(&mut e));
    let mut failed = answer(&out[0].1, 9, &[]);
    failed[3] |= 3;
    e.response(500, &out[0].0, &failed);
    assert_eq!(done(&drain(&mut e))[0].1, Err(Failed { code: 3, until_ms: 21_000 }));
    e.ask(501, Question::Name("b.test"));
    assert_eq!(sends(&drain(&mut e)).len(), 1, "asked again, as in nginx");
}

#[test]
fn silence_is_met_by_the_next_server_and_nobody_by_nothing() {
    let mut e = engine(2, false);
    let token = e.ask(0, Question::Name("a.test"));
    assert_eq!(sends(&drain(&mut e))[0].0.server, 0);
    assert_eq!(e.deadline(), Some(RESEND_MS));
    e.tick(RESEND_MS);
    let again = sends(&drain(&mut e));
    assert_eq!(again[0].0.server, 1);
    e.unreachable(RESEND_MS + 1, &again[0].0);
    assert_eq!(sends(&drain(&mut e))[0].0.server, 0);
    e.cancel(token);
    e.tick(3 * RESEND_MS);
    assert!(drain(&mut e).is_empty() && e.is_idle() && e.deadline().is_none());
}

#[test]
fn both_families_are_waited_for_and_one_failure_is_enough() {
    let mut e = engine(1, true);
    let token = e.ask(0, Question::Name("a.test"));
    let out = sends(&drain(&mut e));
    let v6 = RData::AAAA(AAAA { address: Ipv6Addr::LOCALHOST.into() });
    e.response(1, &out[1].0, &answer(&out[1].1, 9, &[v6]));
    assert!(drain(&mut e).is_empty());
    e.response(2, &out[0].0, &answer(&out[0].1, 9, &[a(1)]));
    let got = done(&drain(&mut e));
    assert_eq!((got[0].0, ips(&got[0].1)), (token, vec!["127.0.0.1:0".into(), "::1:0".into()]));

    e.ask(0, Question::Name("b.test"));
    let out = sends(&drain(&mut e));
    e.response(1, &out[0].0, &answer(&out[0].1, 9, &[a(1)]));
    let mut failed = answer(&out[1].1, 9, &[]);
    failed[3] |= 2;
    e.response(2, &out[1].0, &failed);
    assert_eq!(done(&drain(&mut e))[0].1, Err(Failed { code: 2, until_ms: 11_000 }));
}

#[test]
fn truncated_comes_again_by_tcp() {
    let mut e = engine(1, false);
    e.ask(0, Question::Name("a.test"));
    let out = sends(&drain(&mut e));
    let mut cut = answer(&out[0].1, 9, &[]);
    cut[2] |= 2;
    e.response(1, &out[0].0, &cut);
    let again = sends(&drain(&mut e));
    assert!(again[0].0.tcp);
    e.response(2, &again[0].0, &answer(&again[0].1, 9, &[a(2)]));
    assert_eq!(ips(&done(&drain(&mut e))[0].1), ["127.0.0.2:0"]);
}

#[test]
fn a_service_is_its_hosts_addresses() {
    let mut e = engine(1, false);
    e.ask(0, Question::Service { service: "http", name: "a.test" });
    let out = sends(&drain(&mut e));
    assert_eq!(out[0].0.key.name, "_http._tcp.a.test");
    let srv = |priority, weight, port, target: &'static str| {
        RData::SRV(SRV { priority, weight, port, target: Name::new(target).unwrap() })
    };
    let data = [srv(2, 0, 81, "y.test"), srv(1, 5, 80, "x.test")];
    e.response(1, &out[0].0, &answer(&out[0].1, 9, &data));
    let hosts = sends(&drain(&mut e));
    assert_eq!(hosts[0].0.key.name, "x.test");
    e.response(2, &hosts[0].0, &answer(&hosts[0].1, 3, &[a(1)]));
    e.response(2, &hosts[1].0, &answer(&hosts[1].1, 9, &[]));
    let out = drain(&mut e);
    let line =
        "y.test could not be resolved (3: Host not found) while resolving service http of a.test";
    assert!(out.contains(&Output::Log(line.into())), "{out:?}");
    let found = done(&out)[0].1.clone().unwrap();
    assert_eq!((found.targets.len(), found.until_ms), (1, 4000));
    assert_eq!((found.targets[0].port, found.targets[0].weight), (80, 5));
    assert!(e.is_idle());
}

#[test]
fn aliases_have_an_end() {
    let mut e = engine(1, false);
    e.ask(0, Question::Name("n0.test"));
    for i in 1..=ALIASES_MAX + 1 {
        let out = sends(&drain(&mut e));
        let to = format!("n{i}.test");
        let to = Name::new(&to).unwrap().into_owned();
        e.response(1, &out[0].0, &answer(&out[0].1, 9, &[RData::CNAME(CNAME(to))]));
    }
    assert_eq!(done(&drain(&mut e))[0].1.clone().unwrap_err().code, 3);
}

#[test]
fn a_name_that_nobody_waits_for_any_more_is_asked_for_anew() {
    let mut e = engine(1, false);
    let token = e.ask(0, Question::Name("a.test"));
    let first = sends(&drain(&mut e));
    assert!(e.wants(&first[0].0));
    e.cancel(token);
    assert!(e.waits(&first[0].0) && !e.wants(&first[0].0));
    e.ask(1, Question::Name("a.test"));
    let again = sends(&drain(&mut e));
    assert!(e.wants(&again[0].0) && !e.waits(&first[0].0));
}

struct Dice(u64);

impl Dice {
    fn below(&mut self, n: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 11) % n
    }
}

/// A server's reply, or what comes in its place.
fn misbehave(dice: &mut Dice, query: &[u8]) -> Option<Vec<u8>> {
    let kind = Packet::parse(query).unwrap().questions[0].qtype;
    let to = |n: u64| Name::new(["a.t", "b.t", "c.t", "d.t"][n as usize]).unwrap();
    let ttl = dice.below(20) as u32;
    let mut data = Vec::new();
    for _ in 0..dice.below(3) {
        data.push(match (kind, dice.below(4)) {
            (_, 0) => RData::CNAME(CNAME(to(dice.below(4)))),
            (QTYPE::TYPE(TYPE::SRV), n) => {
                let target = to(dice.below(4));
                RData::SRV(SRV { priority: n as u16, weight: 1, port: 80, target })
            }
            (QTYPE::TYPE(TYPE::A), n) => a(n as u8),
            (_, n) => RData::AAAA(AAAA { address: u128::from(n) }),
        });
    }
    let mut bytes = answer(query, ttl, &data);
    match dice.below(12) {
        0 => return None,
        1 => bytes.truncate(dice.below(bytes.len() as u64) as usize),
        2 => bytes[2] |= 2,
        3 => bytes[3] |= dice.below(8) as u8,
        4 => bytes[0] ^= 1,
        5 => {
            let at = dice.below(bytes.len() as u64) as usize;
            bytes[at] ^= 1 << dice.below(8);
        }
        _ => {}
    }
    Some(bytes)
}

/// Whatever the servers do: each question gets one answer or is taken back, what is found has not
/// run out, and in the end nothing is left over.
#[test]
fn seeded_turns() {
    for seed in 1..200u64 {
        let mut dice = Dice(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
        let mut e = engine(1 + dice.below(3) as usize, dice.below(2) == 0);
        let (mut now, mut open, mut flying) = (0u64, Vec::new(), Vec::new());
        for turn in 0..400 {
            now += dice.below(300);
            match dice.below(6) {
                0 | 1 if turn < 300 => {
                    let name = ["a.t", "b.t", "c.t", "d.t", "-..-"][dice.below(5) as usize];
                    open.push(match dice.below(3) {
                        0 => e.ask(now, Question::Service { service: "s", name }),
                        _ => e.ask(now, Question::Name(name)),
                    });
                }
                2 if !open.is_empty() && dice.below(3) == 0 => {
                    let at = dice.below(open.len() as u64) as usize;
                    e.cancel(open.swap_remove(at));
                }
                3 => e.tick(now),
                _ if !flying.is_empty() => {
                    let at = dice.below(flying.len() as u64) as usize;
                    let (query, bytes): (Query, Vec<u8>) = flying.swap_remove(at);
                    match misbehave(&mut dice, &bytes) {
                        Some(bytes) => e.response(now, &query, &bytes),
                        None => e.unreachable(now, &query),
                    }
                }
                _ => {}
            }
            let out = drain(&mut e);
            flying.extend(sends(&out));
            for (token, outcome) in done(&out) {
                let at = open.iter().position(|t| *t == token).expect("each question, once");
                open.swap_remove(at);
                if let Ok(found) = outcome {
                    assert!(!found.targets.is_empty(), "seed {seed}");
                }
            }
        }
        open.drain(..).for_each(|t| e.cancel(t));
        (0..4).for_each(|i| e.tick(now + i * RESEND_MS * 2));
        assert!(e.is_idle() && e.deadline().is_none() && e.services.is_empty(), "seed {seed}");
    }
}

#[test]
fn names_of_addresses_are_asked_for_and_kept() {
    let mut e = engine(1, false);
    let ip = IpAddr::from([192, 0, 2, 7]);
    let one = e.ask(0, Question::Address(ip));
    let sent = sends(&drain(&mut e));
    assert_eq!(sent[0].0.key.name, "7.2.0.192.in-addr.arpa");
    // What is no name is no answer: others are waited for.
    e.response(1, &sent[0].0, &answer(&sent[0].1, 60, &[a(1)]));
    assert_eq!(drain(&mut e), [Output::Log("no PTR type in DNS response".into())]);
    let ptr = RData::PTR(simple_dns::rdata::PTR(Name::new("Host.test").unwrap()));
    e.response(2, &sent[0].0, &answer(&sent[0].1, 60, &[ptr]));
    let two = e.ask(3, Question::Address(ip));
    let told: Vec<_> = done(&drain(&mut e));
    assert_eq!(told.iter().map(|(token, _)| *token).collect::<Vec<_>>(), [one, two]);
    for (_, outcome) in told {
        let target = outcome.unwrap().targets.remove(0);
        assert_eq!((target.ip, target.name.as_str()), (ip, "host.test"));
    }
    // An address of that name is another question.
    e.ask(4, Question::Name("7.2.0.192.in-addr.arpa"));
    assert_eq!(sends(&drain(&mut e)).len(), 1);
}
