//! `split_clients` (nginx's `ngx_http_split_clients_module` and `ngx_stream_…`): shares of clients by a hash.

use std::marker::PhantomData;
use std::rc::Rc;
use std::sync::Arc;
use weir_base::units;
use weir_core::eval::{guarded, with_value};
use weir_core::registry::{define, template};
use weir_core::session::Part as _;
use weir_core::variables::VarArg;
use weir_core::Session;
use weir_http::{HttpModule, Request};
use weir_module::{
    slot, ArgsExt, Arity, Cf, ConfResult, ConfType, Directive, Level, Row, SlotVtable,
};
use weir_script::template::Template;
use weir_stream::StreamModule;

#[derive(Default)]
struct SplitMain {
    splits: Vec<Arc<Split>>,
}

impl ConfType for SplitMain {
    const LEVEL: Level = Level::Main;
    slot!();
}

struct Split {
    source: Template,
    parts: Vec<Part>,
}

struct Part {
    /// Hashes below this are in the share; none for the rest.
    below: Option<u32>,
    value: Box<[u8]>,
}

/// The whole, in hundredths of a percent.
const WHOLE: u64 = 10_000;

/// The directive in the block of sessions `S`.
struct Rows<S>(PhantomData<S>);

impl<S: Session> Rows<S> {
    const ROWS: &'static [Row] = &[Row::block(
        "split_clients",
        S::BLOCK,
        Arity::TWO,
        "A variable whose value is drawn by a hash of a string, in given shares.",
        set_split::<S>,
    )];
}

const SLOTS: &[SlotVtable] = &[SlotVtable::of::<SplitMain>()];

pub const MODULE: HttpModule =
    HttpModule { rows: Rows::<Request>::ROWS, slots: SLOTS, ..HttpModule::EMPTY };

pub const STREAM: StreamModule =
    StreamModule { rows: Rows::<weir_stream::Session>::ROWS, slots: SLOTS, ..StreamModule::EMPTY };

fn set_split<S: Session>(cf: &mut Cf, d: &Directive) -> ConfResult {
    let source = template::<S>(cf, d, 0)?;
    let mut parts = Vec::new();
    let (mut sum, mut last) = (0u64, 0u64);
    for entry in d.children() {
        let share = share(entry)?;
        sum = share.map_or(WHOLE, |n| sum + n);
        if sum > WHOLE {
            return Err(d.fail("percent total is greater than 100%"));
        }
        let below = share.filter(|_| sum < WHOLE).map(|n| {
            last += n * u64::from(u32::MAX) / WHOLE;
            last as u32
        });
        parts.push(Part { below, value: entry.arg(0).into() });
    }
    let splits = &mut cf.get::<SplitMain>().splits;
    let number = splits.len();
    splits.push(Arc::new(Split { source, parts }));
    define::<S>(cf, d, 1, value, number, true).map(|_| ())
}

/// Hundredths of a percent; none for `*`.
fn share(entry: &Directive) -> ConfResult<Option<u64>> {
    if entry.is_block() {
        return Err(entry.fail("unexpected \"{\""));
    }
    if entry.args.len() != 1 {
        let mut e = entry.fail("invalid number of the split_clients parameters");
        e.hint = Some("write a share and a value: \"0.5% value;\"".into());
        return Err(e);
    }
    let text = entry.name.as_bytes();
    if text == b"*" {
        return Ok(None);
    }
    let number = text.strip_suffix(b"%").and_then(|n| units::parse_fixed(n, 2));
    match number.filter(|n| *n > 0) {
        Some(n) => Ok(Some(n)),
        None => Err(entry.fail(format!("invalid percent value \"{}\"", entry.name.to_str()))),
    }
}

fn value<S: Session>(s: &mut S, arg: &VarArg, out: &mut Vec<u8>) -> bool {
    let conf = Rc::clone(s.part());
    let split = &conf.main().get::<SplitMain>().splits[arg.data];
    guarded(s, &arg.name, |s| {
        let hash = with_value(s, &split.source, |_, text| murmur2(text));
        let part = split.parts.iter().find(|p| p.below.is_none_or(|below| hash < below));
        if let Some(part) = part {
            out.extend_from_slice(&part.value);
        }
        true
    })
}

/// MurmurHash2, 32 bits, seed 0.
pub fn murmur2(data: &[u8]) -> u32 {
    const M: u32 = 0x5bd1_e995;
    let mut hash = data.len() as u32;
    let mut chunks = data.chunks_exact(4);
    for chunk in &mut chunks {
        let mut k = u32::from_le_bytes([chunk[0], chunk[1], chunk[2], chunk[3]]);
        k = k.wrapping_mul(M);
        k ^= k >> 24;
        k = k.wrapping_mul(M);
        hash = hash.wrapping_mul(M) ^ k;
    }
    let rest = chunks.remainder();
    if !rest.is_empty() {
        for (i, byte) in rest.iter().enumerate() {
            hash ^= u32::from(*byte) << (8 * i);
        }
        hash = hash.wrapping_mul(M);
    }
    hash ^= hash >> 13;
    hash = hash.wrapping_mul(M);
    hash ^ (hash >> 15)
}

#[cfg(test)]
mod tests {
    use super::murmur2;

    /// Values of the reference implementation.
    #[test]
    fn hashes() {
        assert_eq!(murmur2(b""), 0);
        assert_eq!(murmur2(b"a"), 0x9268_5f5e);
        assert_ne!(murmur2(b"127.0.0.1"), murmur2(b"127.0.0.2"));
    }
}
