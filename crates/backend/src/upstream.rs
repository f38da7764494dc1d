//! `upstream { … }` of the `http` block, and what requests show of the servers they have asked.

use weir_core::resolver::look_up;
use weir_core::worker::AtWorker;
use weir_http::build::Build;
use weir_http::conf::CoreLoc;
use weir_http::module::{VarArg, Variable};
use weir_http::{HttpModule, Request};
use weir_module::first::flag;
use weir_module::{
    joined_rows, merge_values, set, slot, ArgsExt, Arity, Cf, ConfResult, ConfType, Context, Level,
    Row, SlotVtable, Val,
};
use weir_upstream::{Outer, Rows, UpstreamMain, Variables};

/// The directives that upstreams of every protocol have, and what requests show of theirs.
pub const MODULE: HttpModule = HttpModule {
    rows: joined_rows!(Rows::<Request>::COMMON, RETRY),
    slots: &[SlotVtable::of::<UpstreamMain>(), SlotVtable::of::<RetryLoc>()],
    variables: VARIABLES,
    build: Some(build),
    start: Some(|gen, http| weir_upstream::start(&http.main, &gen.error_log)),
    // Connections to servers of all protocols are kept together.
    at_worker: AtWorker {
        spare: Some(weir_upstream::close_spare),
        ends: Some(weir_upstream::close_idle),
        ..AtWorker::NOTHING
    },
    reports: &[weir_upstream::report::<Request>(), weir_upstream::zones_report()],
    ..HttpModule::EMPTY
};

/// What stream's upstreams do not have.
pub const HTTP_ONLY: [HttpModule; 3] = [
    HttpModule { rows: Rows::<Request>::REUSED, ..HttpModule::EMPTY },
    HttpModule { rows: Rows::<Request>::FURTHER, ..HttpModule::EMPTY },
    HttpModule { rows: Rows::<Request>::IP_HASH, ..HttpModule::EMPTY },
];

/// What becomes of a request whose connection has waited, and failed.
#[derive(Default)]
pub(crate) struct RetryLoc {
    /// It is no try: the servers are asked as often as otherwise.
    pub(crate) retry: Val<bool>,
}

impl ConfType for RetryLoc {
    const LEVEL: Level = Level::Location;
    slot!();

    fn merge(&mut self, parent: &RetryLoc) -> ConfResult {
        merge_values!(self, parent; retry = true);
        Ok(())
    }
}

const RETRY: &[Row] = &[
    Row::new(
        "retry_cached_connection",
        Context::HSL,
        Arity::FLAG,
        "on",
        "A kept connection that fails is not counted among the tries.",
        set!(Cf::get::<RetryLoc>, retry, flag),
    )
    .note("It is Tengine's; nginx does as with on."),
    Row::new(
        "upstream_change_no_server_status",
        Context::HTTP,
        Arity::FLAG,
        "off",
        "An upstream without any server answers 502 and not 500.",
        |_, d| d.flag().map(|_| ()),
    )
    .once()
    .note("It is Tengine's. Not needed: without a server the answer is 502 either way."),
];

static VARIABLES: &[Variable] = &[
    Variables::<Request>::ADDR,
    Variables::<Request>::STATUS,
    Variables::<Request>::CONNECT_TIME,
    Variables::<Request>::QUEUE_TIME,
    Variables::<Request>::header_time("upstream_header_time"),
    Variables::<Request>::response_time("upstream_response_time"),
    Variables::<Request>::RESPONSE_LENGTH,
    Variables::<Request>::BYTES_RECEIVED,
    Variables::<Request>::BYTES_SENT,
    Variable::prefixed("upstream_http_", header),
    Variable::prefixed("upstream_trailer_", trailer),
    Variable::prefixed("upstream_cookie_", cookie),
];

/// Looks up all name servers of the block, and makes its groups.
fn build(b: &mut Build) -> ConfResult {
    let here = b.outer.find::<CoreLoc>();
    let resolver = here.and_then(|c| c.resolver.as_option()).and_then(Clone::clone);
    let inner = b.locations.iter().filter_map(|slots| {
        let core = slots.find::<CoreLoc>()?;
        core.resolver.as_option()?.as_ref()
    });
    for r in inner.chain(&resolver) {
        look_up(r)?;
    }
    let timeout_ms = here.and_then(|c| c.resolver_timeout.as_option().copied());
    weir_upstream::build::<Request>(b.cf, b.main, &Outer { resolver, timeout_ms })
}

/// Whether a field's name is the variable's: letters in either case, `-` for `_`.
fn names(field: &[u8], variable: &[u8]) -> bool {
    let same = |(f, v): (&u8, &u8)| match f {
        b'-' => *v == b'_',
        f => f.to_ascii_lowercase() == *v,
    };
    field.len() == variable.len() && field.iter().zip(variable).all(same)
}

fn join<'a>(
    fields: impl Iterator<Item = (&'a [u8], &'a [u8])>,
    name: &[u8],
    out: &mut Vec<u8>,
) -> bool {
    let mut found = false;
    for (_, value) in fields.filter(|(n, _)| names(n, name)) {
        if found {
            out.extend_from_slice(b", ");
        }
        out.extend_from_slice(value);
        found = true;
    }
    found
}

fn header(r: &mut Request, arg: &VarArg, out: &mut Vec<u8>) -> bool {
    r.exchange.answered && join(r.exchange.fields(), &arg.name, out)
}

fn trailer(r: &mut Request, arg: &VarArg, out: &mut Vec<u8>) -> bool {
    let fields = r.exchange.trailers.iter().map(|(n, v)| (n.as_slice(), v.as_slice()));
    join(fields, &arg.name, out)
}

/// The value that a `Set-Cookie` of the answer gives the cookie.
fn cookie(r: &mut Request, arg: &VarArg, out: &mut Vec<u8>) -> bool {
    if !r.exchange.answered {
        return false;
    }
    let set = r.exchange.fields().filter(|(n, _)| n.eq_ignore_ascii_case(b"Set-Cookie"));
    for (_, value) in set {
        let pair = value.split(|b| *b == b';').next().unwrap_or_default();
        let Some((name, value)) = weir_base::bytes::split_once(pair, b'=') else { continue };
        if trim(name).eq_ignore_ascii_case(&arg.name) {
            out.extend_from_slice(trim(value));
            return true;
        }
    }
    false
}

fn trim(text: &[u8]) -> &[u8] {
    weir_base::bytes::trim_with(text, |b| b == b' ')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_by_the_names_of_variables() {
        assert!(names(b"X-Foo-Bar", b"x_foo_bar"));
        assert!(!names(b"X-Foo", b"x_foo_bar") && !names(b"X+Foo", b"x_foo"));
    }
}
