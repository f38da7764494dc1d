//! DNS messages (RFC 1035; SRV is RFC 2782): queries are written, responses checked and read.
//!
//! A response is believed when its id and its question are those of the query, and of its answers
//! those that belong to the name asked for or to a name that it is an alias of.

use simple_dns::rdata::RData;
use simple_dns::{Name, Packet, PacketFlag, Question, CLASS, QCLASS, QTYPE, TYPE};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// The longest name as text.
const NAME_MAX_BYTES: usize = 253;
const LABEL_MAX_BYTES: usize = 63;
const HEADER_BYTES: usize = 12;
/// The least an answer takes: a pointer for its name and the fixed part.
const ANSWER_MIN_BYTES: usize = 12;
/// Aliases followed from name to name.
pub const ALIASES_MAX: u32 = 50;

/// Codes of responses that are told to whoever asked.
pub const FORMERR: u8 = 1;
pub const NXDOMAIN: u8 = 3;
pub const REFUSED: u8 = 5;

/// What is asked about a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    A,
    Aaaa,
    Srv,
    Ptr,
}

impl Kind {
    fn code(self) -> TYPE {
        match self {
            Kind::A => TYPE::A,
            Kind::Aaaa => TYPE::AAAA,
            Kind::Srv => TYPE::SRV,
            Kind::Ptr => TYPE::PTR,
        }
    }
}

/// One place where a service is given.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Srv {
    pub priority: u16,
    pub weight: u16,
    pub port: u16,
    pub name: String,
}

/// A response that belongs to its query.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Reply {
    pub truncated: bool,
    pub code: u8,
    pub ttl_secs: u32,
    pub addresses: Vec<IpAddr>,
    pub services: Vec<Srv>,
    /// Names of an address.
    pub hosts: Vec<String>,
    /// The last of the aliases the name stands for.
    pub alias: Option<String>,
    /// There were answers.
    pub any: bool,
}

/// The name by which an address is asked for (RFC 1035, section 3.5; RFC 3596, section 2.5).
pub fn name_of(ip: IpAddr) -> String {
    match ip.to_canonical() {
        IpAddr::V4(ip) => {
            let [a, b, c, d] = ip.octets();
            format!("{d}.{c}.{b}.{a}.in-addr.arpa")
        }
        IpAddr::V6(ip) => {
            let halves = ip.octets().into_iter().rev().flat_map(|b| [b & 15, b >> 4]);
            let labels: String = halves.map(|half| format!("{half:x}.")).collect();
            format!("{labels}ip6.arpa")
        }
    }
}

/// Whether a name, in lower case, can be asked for.
pub fn is_name(name: &str) -> bool {
    let label = |l: &str| (1..=LABEL_MAX_BYTES).contains(&l.len()) && !l.contains('\\');
    name.len() <= NAME_MAX_BYTES && name.split('.').all(label)
}

/// The query for a name; `None` when there is no such name.
pub fn query(id: u16, name: &str, kind: Kind) -> Option<Vec<u8>> {
    if !is_name(name) {
        return None;
    }
    let mut packet = Packet::new_query(id);
    packet.set_flags(PacketFlag::RECURSION_DESIRED);
    let name = Name::new(name).ok()?;
    let class = QCLASS::CLASS(CLASS::IN);
    packet.questions.push(Question::new(name, QTYPE::TYPE(kind.code()), class, false));
    packet.build_bytes_vec().ok()
}

/// Reads the response to a query; an error is the line for the log, and the response is no answer.
pub fn read(bytes: &[u8], id: u16, name: &str, kind: Kind, tcp: bool) -> Result<Reply, String> {
    let short = || "short DNS response".to_owned();
    let word = |at: usize| u16::from_be_bytes([bytes[at], bytes[at + 1]]);
    if bytes.len() < HEADER_BYTES {
        return Err(short());
    }
    let (got, flags, answers) = (word(0), word(2), usize::from(word(6)));
    let truncated = flags & 0x0200 != 0;
    if flags & 0xf870 != 0x8000 || (truncated && tcp) {
        let over = if tcp { "TCP" } else { "UDP" };
        return Err(format!("invalid {over} DNS response {got} fl:{flags:04X}"));
    }
    let code = (flags & 0xf) as u8;
    if code == FORMERR || code > REFUSED {
        let text = error_text(u16::from(code));
        let whose = if got == id { format!(", name:\"{name}\"") } else { String::new() };
        return Err(format!("DNS error ({code}: {text}), query id:{got}{whose}"));
    }
    if got != id {
        return Err(format!("wrong ident {got} in DNS response for {name}, expect {id}"));
    }
    let reply = Reply { truncated, code, ..Reply::default() };
    if answers * ANSWER_MIN_BYTES > bytes.len() {
        return Err(short());
    }
    // Neither a truncated message's answers nor the other sections are looked at.
    let mut message = bytes.to_vec();
    message[8..HEADER_BYTES].fill(0);
    if truncated || code != 0 {
        message[6..8].fill(0);
    }
    let packet = Packet::parse(&message).map_err(|_| short())?;
    check_question(&packet, name, kind)?;
    let reply = answer(&packet, name, kind, reply);
    // As in nginx that is no answer, and others are waited for.
    if kind == Kind::Ptr && reply.any && reply.hosts.is_empty() && reply.alias.is_none() {
        return Err("no PTR type in DNS response".to_owned());
    }
    Ok(reply)
}

fn check_question(packet: &Packet, name: &str, kind: Kind) -> Result<(), String> {
    let [question] = &packet.questions[..] else {
        return Err("invalid number of questions in DNS response".to_owned());
    };
    let asked = text_of(&question.qname);
    let class = question.qclass == QCLASS::CLASS(CLASS::IN);
    match asked == name && class && question.qtype == QTYPE::TYPE(kind.code()) {
        true => Ok(()),
        false => Err(format!("unexpected DNS response for {asked}")),
    }
}

fn text_of(name: &Name) -> String {
    name.to_string().to_ascii_lowercase()
}

fn answer(packet: &Packet, name: &str, kind: Kind, mut reply: Reply) -> Reply {
    let mine = |r: &&simple_dns::ResourceRecord| r.class == CLASS::IN;
    let records: Vec<_> = packet.answers.iter().filter(mine).collect();
    let owners: Vec<String> = records.iter().map(|r| text_of(&r.name)).collect();
    reply.any = !records.is_empty();
    reply.ttl_secs = u32::MAX;
    let mut names = vec![name.to_owned()];
    while names.len() <= ALIASES_MAX as usize {
        let last = &names[names.len() - 1];
        let alias = records.iter().zip(&owners).find_map(|(r, owner)| match &r.rdata {
            RData::CNAME(c) if owner == last => Some((text_of(&c.0), r.ttl)),
            _ => None,
        });
        let Some((alias, ttl)) = alias.filter(|(a, _)| !names.contains(a)) else { break };
        reply.ttl_secs = reply.ttl_secs.min(positive(ttl));
        names.push(alias);
    }
    for (record, _) in records.iter().zip(&owners).filter(|(_, owner)| names.contains(owner)) {
        match (&record.rdata, kind) {
            (RData::A(a), Kind::A) => reply.addresses.push(Ipv4Addr::from(a.address).into()),
            (RData::AAAA(a), Kind::Aaaa) => reply.addresses.push(Ipv6Addr::from(a.address).into()),
            (RData::SRV(s), Kind::Srv) => reply.services.push(Srv {
                priority: s.priority,
                weight: s.weight.max(1),
                port: s.port,
                name: text_of(&s.target),
            }),
            (RData::PTR(p), Kind::Ptr) => reply.hosts.push(text_of(&p.0)),
            _ => continue,
        }
        reply.ttl_secs = reply.ttl_secs.min(positive(record.ttl));
    }
    reply.alias = (names.len() > 1).then(|| names.pop()).flatten();
    reply
}

/// RFC 2181, 8: a time with its highest bit set is none.
fn positive(ttl: u32) -> u32 {
    i32::try_from(ttl).map_or(0, |_| ttl)
}

/// nginx's words for a code.
pub fn error_text(code: u16) -> &'static str {
    match code {
        1 => "Format error",
        2 => "Server failure",
        3 => "Host not found",
        4 => "Unimplemented",
        5 => "Operation refused",
        110 => "Operation timed out",
        _ => "Unknown error",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use simple_dns::rdata::{A, CNAME};
    use simple_dns::ResourceRecord;

    fn response(id: u16, answers: &[(&'static str, u32, RData<'static>)]) -> Vec<u8> {
        let query = query(id, "a.test", Kind::A).unwrap();
        let mut packet = Packet::parse(&query).unwrap().into_reply();
        for (name, ttl, data) in answers {
            let name = Name::new(name).unwrap();
            packet.answers.push(ResourceRecord::new(name, CLASS::IN, *ttl, data.clone()));
        }
        packet.build_bytes_vec_compressed().unwrap()
    }

    fn a(last: u8) -> RData<'static> {
        RData::A(A { address: Ipv4Addr::new(127, 0, 0, last).into() })
    }

    fn alias(to: &'static str) -> RData<'static> {
        RData::CNAME(CNAME(Name::new(to).unwrap()))
    }

    #[test]
    fn answers_of_the_name_and_its_aliases_count() {
        let bytes = response(
            7,
            &[
                ("c.test", 50, a(1)),
                ("a.test", 60, alias("B.test")),
                ("b.test", 40, alias("c.test")),
                ("x.test", 1, a(9)),
            ],
        );
        let reply = read(&bytes, 7, "a.test", Kind::A, false).unwrap();
        assert_eq!(reply.addresses, [IpAddr::from([127, 0, 0, 1])]);
        assert_eq!((reply.ttl_secs, reply.alias.as_deref()), (40, Some("c.test")));
    }

    #[test]
    fn others_answers_are_refused() {
        let bytes = response(7, &[("a.test", 60, a(1))]);
        let text = read(&bytes, 8, "a.test", Kind::A, false).unwrap_err();
        assert_eq!(text, "wrong ident 7 in DNS response for a.test, expect 8");
        for (name, kind) in [("b.test", Kind::A), ("a.test", Kind::Aaaa)] {
            let text = read(&bytes, 7, name, kind, false).unwrap_err();
            assert_eq!(text, "unexpected DNS response for a.test");
        }
        assert_eq!(
            read(&bytes[..20], 7, "a.test", Kind::A, false).unwrap_err(),
            "short DNS response"
        );
        let mut failed = bytes.clone();
        failed[3] |= 1;
        let text = read(&failed, 7, "a.test", Kind::A, false).unwrap_err();
        assert_eq!(text, "DNS error (1: Format error), query id:7, name:\"a.test\"");
    }

    #[test]
    fn names_of_addresses() {
        let name = |ip: &str| name_of(ip.parse().unwrap());
        assert_eq!(name("192.0.2.1"), "1.2.0.192.in-addr.arpa");
        assert_eq!(name("::ffff:192.0.2.1"), "1.2.0.192.in-addr.arpa");
        let zeros = "0.".repeat(23);
        assert_eq!(name("2001:db8::a"), format!("a.{zeros}8.b.d.0.1.0.0.2.ip6.arpa"));
        assert!(is_name(&name("2001:db8::a")));
    }

    #[test]
    fn a_circle_of_aliases_ends() {
        let bytes =
            response(7, &[("a.test", 60, alias("b.test")), ("b.test", 60, alias("a.test"))]);
        let reply = read(&bytes, 7, "a.test", Kind::A, false).unwrap();
        assert_eq!(reply.alias.as_deref(), Some("b.test"));
        assert!(!is_name("a..b") && !is_name("") && !is_name(&"a".repeat(64)));
    }
}
