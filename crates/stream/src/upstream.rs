//! Upstreams of `stream`: what their servers are asked for, and what is told of it.

use crate::build::Build;
use crate::module::StreamModule;
use crate::Session;
use weir_core::block::{self, Place};
use weir_core::timing::UpstreamState;
use weir_core::variables::Variable;
use weir_module::{ConfResult, Context, SlotVtable};
use weir_upstream::{Asks, Outer, Rows, Until, UpstreamMain, Variables};

impl Asks for Session {
    const UPSTREAM: Context = Context::STREAM_UPSTREAM;
    const USUAL_PORT: Option<u16> = None;
    const STICKY: bool = false;
    const REUSES: bool = false;
    const HEADS: bool = false;
    const ZONE: &'static str = "upstream of stream";
    const WITHOUT_SERVER: &'static str = "sessions that need it are closed";
    const TIMES: &'static [(&'static str, Until)] = &[
        ("connect", Until::Connected),
        ("first_byte", Until::Header),
        ("last_byte", Until::LastByte),
    ];

    fn asked(&self) -> &[UpstreamState] {
        &self.upstream
    }
}

static VARIABLES: &[Variable<Session>] = &[
    Variables::<Session>::ADDR,
    Variables::<Session>::CONNECT_TIME,
    Variables::<Session>::header_time("upstream_first_byte_time"),
    Variables::<Session>::response_time("upstream_session_time"),
    Variables::<Session>::BYTES_RECEIVED,
    Variables::<Session>::BYTES_SENT,
];

/// `upstream`, and the variables of servers that were asked.
pub const MODULE: StreamModule = StreamModule {
    rows: Rows::<Session>::COMMON,
    slots: &[SlotVtable::of::<UpstreamMain>()],
    variables: VARIABLES,
    build: Some(build),
    start: Some(|gen, stream| weir_upstream::start(&stream.main, &gen.error_log)),
    reports: &[weir_upstream::report::<Session>(), weir_upstream::zones_report()],
    ..StreamModule::EMPTY
};

/// Looks up all name servers of the block, and makes its groups.
fn build(b: &mut Build) -> ConfResult {
    block::look_up_resolvers(b)?;
    let core = b.outer.get::<Place>();
    let outer = Outer {
        resolver: core.resolver.as_option().cloned().flatten(),
        timeout_ms: core.resolver_timeout.as_option().copied(),
    };
    weir_upstream::build::<Session>(b.cf, b.main, &outer)
}
