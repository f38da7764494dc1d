//! A small writer of databases in MaxMind's format, for tests that ask one.

use std::net::IpAddr;

/// A value of a record.
pub enum Value {
    Text(&'static str),
    Number(u32),
    Double(f64),
    Bool(bool),
    Map(Vec<(&'static str, Value)>),
    Array(Vec<Value>),
}

/// `{ "en": text }`, as names stand there.
pub fn english(text: &'static str) -> Value {
    Value::Map(vec![("en", Value::Text(text))])
}

/// Where a bit leads.
#[derive(Clone, Copy)]
enum Child {
    Nowhere,
    Node(usize),
    Data(usize),
}

/// A file that calls itself `kind`, made at `build_epoch` (in seconds since 1970), in which each of these networks
/// (`ADDRESS/BITS`) has a record. They do not overlap.
pub fn file(kind: &'static str, build_epoch: u32, networks: &[(&str, Value)]) -> Vec<u8> {
    let mut nodes = vec![[Child::Nowhere; 2]];
    let mut data = Vec::new();
    for (network, value) in networks {
        let at = data.len();
        write(value, &mut data);
        insert(&mut nodes, network, at);
    }
    let count = nodes.len();
    let mut out = Vec::new();
    for node in &nodes {
        let [left, right] = node.map(|child| match child {
            Child::Nowhere => count,
            Child::Node(node) => node,
            Child::Data(at) => count + 16 + at,
        });
        // Records of 28 bits: the upper four of both share a byte.
        let (l, r) = ((left as u32).to_be_bytes(), (right as u32).to_be_bytes());
        out.extend_from_slice(&[l[1], l[2], l[3], l[0] << 4 | r[0], r[1], r[2], r[3]]);
    }
    out.extend_from_slice(&[0; 16]);
    out.extend(data);
    out.extend_from_slice(b"\xab\xcd\xefMaxMind.com");
    let about = Value::Map(vec![
        ("binary_format_major_version", Value::Number(2)),
        ("binary_format_minor_version", Value::Number(0)),
        ("build_epoch", Value::Number(build_epoch)),
        ("database_type", Value::Text(kind)),
        ("ip_version", Value::Number(6)),
        ("languages", Value::Array(vec![Value::Text("en")])),
        ("node_count", Value::Number(count as u32)),
        ("record_size", Value::Number(28)),
    ]);
    write(&about, &mut out);
    out
}

fn insert(nodes: &mut Vec<[Child; 2]>, network: &str, at: usize) {
    let (address, bits) = network.split_once('/').unwrap();
    let bits: u32 = bits.parse().unwrap();
    let (address, bits) = match address.parse().unwrap() {
        IpAddr::V4(v4) => (u128::from(v4.to_bits()), bits + 96),
        IpAddr::V6(v6) => (v6.to_bits(), bits),
    };
    let mut node = 0;
    for n in 0..bits {
        let side = (address >> (127 - n) & 1) as usize;
        if n + 1 == bits {
            nodes[node][side] = Child::Data(at);
            return;
        }
        let next = match nodes[node][side] {
            Child::Node(next) => next,
            _ => {
                nodes.push([Child::Nowhere; 2]);
                nodes.len() - 1
            }
        };
        nodes[node][side] = Child::Node(next);
        node = next;
    }
}

fn head(kind: u8, size: usize, out: &mut Vec<u8>) {
    let low = size.min(29) as u8;
    match kind {
        0..8 => out.push(kind << 5 | low),
        _ => out.extend([low, kind - 7]),
    }
    if low == 29 {
        out.push((size - 29) as u8);
    }
}

fn write(value: &Value, out: &mut Vec<u8>) {
    match value {
        Value::Text(text) => {
            head(2, text.len(), out);
            out.extend_from_slice(text.as_bytes());
        }
        Value::Number(n) => {
            head(6, 4, out);
            out.extend(n.to_be_bytes());
        }
        Value::Double(n) => {
            head(3, 8, out);
            out.extend(n.to_be_bytes());
        }
        Value::Bool(is) => head(14, usize::from(*is), out),
        Value::Map(entries) => {
            head(7, entries.len(), out);
            for (name, value) in entries {
                write(&Value::Text(name), out);
                write(value, out);
            }
        }
        Value::Array(values) => {
            head(11, values.len(), out);
            values.iter().for_each(|value| write(value, out));
        }
    }
}
