//! Clocks and dates.

use crate::crossing::{Answer, Args};
use crate::machine::{code, OpRow, State};
use crate::run::context::{ANY, REQUEST, WAITING};
use crate::run::{Reply, WaitFor};
use weir_base::date;
use weir_runtime::{clock, timer, tz};

pub(super) const OPS: &[OpRow] = &[
    OpRow::any("now", ANY, |_, _, answer| {
        let (secs, ms) = clock::wall();
        answer.number(secs as f64 + f64::from(ms) / 1000.0)
    }),
    OpRow::any("time", ANY, |_, _, answer| answer.number(clock::wall_secs() as f64)),
    OpRow::any("monotonic", ANY, |_, _, answer| answer.number(clock::mono_ms() as f64)),
    OpRow::any("update_time", ANY, |_, _, _| {
        clock::renew();
        code::TRUE
    }),
    OpRow::any("date", ANY, date_text),
    OpRow::any("cookie_time", ANY, |_, args, answer| {
        date::cookie_time(&mut answer.text, args.x as i64);
        code::TEXT
    }),
    OpRow::any("http_time", ANY, |_, args, answer| answer.text(&date::http_time(args.x as i64))),
    OpRow::any("parse_http_time", ANY, |_, args, answer| match date::parse_http_time(args.a) {
        Some(secs) => answer.number(secs as f64),
        None => code::NIL,
    }),
    OpRow::either(
        "start_time",
        REQUEST,
        |r, _, answer| since(r.elapsed_ms(), answer),
        |s, _, answer| since(clock::mono_ms().saturating_sub(s.conn().start_ms), answer),
    ),
    OpRow::any("sleep", WAITING, sleep),
];

/// When something began, so many milliseconds ago.
fn since(ago_ms: u64, answer: &mut Answer) -> i32 {
    let (secs, ms) = clock::wall();
    answer.number(((secs as f64 * 1000.0 + f64::from(ms)) - ago_ms as f64).round() / 1000.0)
}

/// 0: today, 1: local time, 2: UTC.
fn date_text(_: &mut State<'_>, args: &Args<'_>, answer: &mut Answer) -> i32 {
    let secs = clock::wall_secs();
    let offset = if args.i == 2 { 0 } else { tz::offset_minutes(secs) };
    let mut text = date::format_errlog(secs, offset);
    // The error log's dates have slashes.
    (text[4], text[7]) = (b'-', b'-');
    answer.text(if args.i == 0 { &text[..10] } else { &text[..] })
}

fn sleep(state: &mut State<'_>, args: &Args<'_>, answer: &mut Answer) -> i32 {
    let ms = (args.x * 1000.0).clamp(0.0, 1e12) as u64;
    let wait = WaitFor::Future(Box::pin(async move {
        match ms {
            0 => weir_runtime::event_loop::yield_now().await,
            // Not a moment too early by any clock: what was to last for as long is over by then.
            _ => timer::sleep_ms(ms + 1).await,
        }
        Reply::ok()
    }));
    state.wait(wait, answer)
}
