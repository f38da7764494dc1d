//! What stands in for HTTP/3 (nginx's `ngx_http_v3_module`) until it is there: a configuration that has it is
//! served by HTTP/2 and HTTP/1.1, with warnings that say so.

use crate::module::{HttpModule, Variable};
use weir_module::first::{flag, num, size};
use weir_module::{ArgsExt, Arity, Cf, ConfResult, Context, Directive, Row};

const HS: Context = Context::HS;
const NOTE: &str = "Weir has no HTTP/3 yet: taken with a warning, and without effect";

/// Taken if its value is one.
macro_rules! taken {
    ($name:literal, $contexts:expr, $arity:expr, $default:literal, $doc:literal, $check:expr) => {
        Row::new($name, $contexts, $arity, $default, $doc, |cf, d| {
            $check(d)?;
            warn(cf, d)
        })
        .note(NOTE)
    };
}

/// `http3…`, `quic_…`
pub const MODULE: HttpModule = HttpModule {
    rows: &[
        taken!("http3", HS, Arity::FLAG, "on", "HTTP/3 on addresses that listen by QUIC.", flag),
        taken!("http3_hq", HS, Arity::FLAG, "off", "HTTP/0.9 over QUIC, for tests.", flag),
        taken!(
            "http3_max_concurrent_streams",
            HS,
            Arity::ONE,
            "128",
            "Most requests at a time.",
            num
        ),
        taken!("http3_stream_buffer_size", HS, Arity::ONE, "64k", "Buffer of a stream.", size),
        taken!(
            "quic_retry",
            HS,
            Arity::FLAG,
            "off",
            "Clients show that their address is theirs.",
            flag
        ),
        taken!("quic_gso", HS, Arity::FLAG, "off", "Many datagrams are sent by one call.", flag),
        taken!("quic_host_key", HS, Arity::ONE, "", "A file with the key of tokens.", any),
        taken!(
            "quic_active_connection_id_limit",
            HS,
            Arity::ONE,
            "2",
            "Connection ids at a time.",
            num
        ),
    ],
    variables: &[Variable::new("http3", |_, _, _| true)],
    ..HttpModule::EMPTY
};

fn any(_: &Directive) -> ConfResult {
    Ok(())
}

fn warn(cf: &mut Cf, d: &Directive) -> ConfResult {
    let name = d.name.to_str().into_owned();
    // Whoever turns it off has what is asked for.
    if d.arg(0) != b"off" {
        cf.warn(d, format!("\"{name}\" has no effect: this version of Weir has no HTTP/3 yet"));
    }
    Ok(())
}
