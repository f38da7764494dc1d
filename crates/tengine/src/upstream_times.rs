//! Tengine's `$upstream_stat_*` and `$upstream_first_pkg_time`: when a server was asked, and when it answered.
//!
//! All come of what is noted in any case, but for the end of sending, which is noted where a variable shows it.
//! Moments are milliseconds since 1970, as those of `$response_send_start_time`; Tengine's count from the
//! machine's start.

use weir_base::bytes::fmt_u64;
use weir_core::common::{number, push_seconds};
use weir_core::timing::UpstreamState;
use weir_core::variables::Variable;
use weir_http::module::HttpModule;
use weir_http::Request;
use weir_runtime::clock;

type Var = Variable<Request>;

pub const MODULE: HttpModule = HttpModule {
    variables: &[
        Var::new("upstream_stat_send_start_time", |r, _, out| {
            moments(r, out, |s| (s.begun_us > 0).then_some(0))
        })
        .weak(),
        Var::new("upstream_stat_send_finish_time", |r, _, out| moments(r, out, sent)).weak(),
        Var::new("upstream_stat_recv_start_time", |r, _, out| moments(r, out, |s| ms(s.header_us)))
            .weak(),
        Var::new("upstream_stat_recv_finish_time", |r, _, out| moments(r, out, received)).weak(),
        Var::new("upstream_stat_send_time", |r, _, out| {
            each(r, out, |s, out| push_seconds(out, sent(s).unwrap_or(0)))
        })
        .weak(),
        Var::new("upstream_stat_recv_time", |r, _, out| {
            each(r, out, |s, out| {
                let took =
                    received(s).zip(ms(s.header_us)).map(|(end, begin)| end.saturating_sub(begin));
                push_seconds(out, took.unwrap_or(0));
            })
        })
        .weak(),
        Var::new("upstream_first_pkg_time", |r, _, out| {
            let answered = r.upstream.iter().filter(|s| s.status != 0);
            let sum = answered.map(|s| ms(s.header_us).or(ms(s.response_us)).unwrap_or(0)).sum();
            !r.upstream.is_empty() && number(out, sum)
        })
        .weak(),
    ],
    ..HttpModule::EMPTY
};

/// Milliseconds, as logs have times.
fn ms(us: Option<u64>) -> Option<u64> {
    us.map(|us| us / 1000)
}

/// Until when a request was sent: at the latest when all was over.
fn sent(s: &UpstreamState) -> Option<u64> {
    ms(s.sent_us).or(ms(s.response_us)).filter(|_| s.begun_us > 0)
}

/// Until when an answer came, of which there has been something.
fn received(s: &UpstreamState) -> Option<u64> {
    ms(s.response_us).filter(|_| ms(s.header_us).is_some())
}

/// A moment that is so long after the server was turned to, 0 if it has not come.
fn moments(r: &Request, out: &mut Vec<u8>, after: fn(&UpstreamState) -> Option<u64>) -> bool {
    let (secs, ms) = clock::wall();
    let wall_ms = u64::try_from(secs).unwrap_or(0) * 1000 + u64::from(ms);
    let now = clock::mono_ms();
    each(r, out, |s, out| {
        let at = after(s).map(|ms| s.begun_us / 1000 + ms);
        fmt_u64(out, at.map_or(0, |at| (wall_ms + at).saturating_sub(now)));
    })
}

/// As `$upstream_addr` joins them; a minus for a server that has not answered.
fn each(r: &Request, out: &mut Vec<u8>, f: impl Fn(&UpstreamState, &mut Vec<u8>)) -> bool {
    for (i, state) in r.upstream.iter().enumerate() {
        if i > 0 {
            out.extend_from_slice(if state.new_group { b" : " } else { b", " });
        }
        match state.status {
            0 => out.push(b'-'),
            _ => f(state, out),
        }
    }
    !r.upstream.is_empty()
}
