//! W3C's trace context, and spans made of whatever clients send.

use super::Target;
use crate::random::Random;
use weir_shipping::otlp::proto::{Field, Fields};
use weir_shipping::otlp::traces::{self, Head};
use weir_wire::traceparent::{Context, SAMPLED};

pub const TARGET: Target = Target {
    name: "trace",
    seeds: &[
        b"00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
        b"01-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-00-more",
        b"congo=ucfJifl5GOE,rojo=00f067aa0ba902b7",
    ],
    pieces: &[b"-", b"00", b"ff", b"0000000000000000", b"\xff", b"\xe2\x82", b"\xc3\xa9"],
    check,
};

fn check(input: &[u8], _: &mut Random) {
    if let Some(context) = Context::parse(input) {
        assert!(context.trace != [0; 16] && context.span != [0; 8]);
        let text = context.text();
        let again = Context::parse(&text).expect("what is written is read");
        assert_eq!(again, Context { flags: context.flags & SAMPLED, ..context });
        assert_eq!(text[3..52], input[3..52]);
    }
    let head = Head {
        trace: &[1; 16],
        span: &[2; 8],
        parent: None,
        state: input,
        name: input,
        began_us: 1,
        ended_us: 2,
        is_error: false,
    };
    let mut out = Vec::new();
    traces::span(&mut out, &head, |all| all.text("a", input));
    let Some((2, Field::Bytes(span))) = Fields::of(&out).next() else { panic!("no span") };
    for (number, field) in Fields::of(span) {
        if let (3 | 5, Field::Bytes(text)) = (number, field) {
            assert!(std::str::from_utf8(text).is_ok());
            // Each byte that is none becomes a character of three.
            assert!(text.len() <= 3 * traces::VALUE_MAX_BYTES);
        }
    }
}
