//! `expires`: the moment, and the `Cache-Control` that goes with it.

use weir_base::bytes::fmt_u64;
use weir_base::{date, units};
use weir_core::eval::with_value;
use weir_http::vars::template;
use weir_http::Request;
use weir_module::{ArgsExt, Cf, ConfResult, Directive};
use weir_runtime::{clock, tz};
use weir_script::template::Template;

const DAY_SECS: i64 = 24 * 60 * 60;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum When {
    Off,
    Epoch,
    Max,
    /// So many seconds after the request.
    Access(i64),
    /// So many seconds after the file's change.
    Modified(i64),
    /// The next time the local clock shows so many seconds of the day.
    Daily(i64),
}

#[derive(Clone, Debug)]
pub enum Expires {
    Off,
    Fixed(When),
    Computed { value: Template, modified: bool },
}

impl Expires {
    pub fn read(cf: &mut Cf, d: &Directive) -> ConfResult<Expires> {
        let modified = d.args.len() == 2;
        if modified && d.arg(0) != b"modified" {
            return Err(d.error("invalid value"));
        }
        Expires::read_at(cf, d, usize::from(modified), modified)
    }

    /// The time is that argument.
    pub fn read_at(cf: &mut Cf, d: &Directive, at: usize, modified: bool) -> ConfResult<Expires> {
        let value = template(cf, d, at)?;
        let Some(text) = value.as_constant() else {
            return Ok(Expires::Computed { value, modified });
        };
        let when = parse(text, modified).map_err(|e| d.error(e))?;
        Ok(if when == When::Off { Expires::Off } else { Expires::Fixed(when) })
    }

    pub fn apply(&self, r: &mut Request) {
        match self {
            Expires::Off => {}
            Expires::Fixed(when) => {
                let no_cache = matches!(when, When::Access(n) | When::Modified(n) if *n < 0);
                write(r, *when, no_cache);
            }
            Expires::Computed { value, modified } => {
                // A value that is none adds nothing, as in nginx.
                let when = with_value(r, value, |_, text| parse(text, *modified));
                if let Ok(when) = when {
                    write(r, when, false);
                }
            }
        }
    }
}

fn parse(text: &[u8], modified: bool) -> Result<When, &'static str> {
    if !modified {
        match text {
            b"epoch" => return Ok(When::Epoch),
            b"max" => return Ok(When::Max),
            b"off" => return Ok(When::Off),
            _ => {}
        }
    }
    let (sign, rest) = match text.split_first() {
        Some((b'@', _)) if modified => {
            return Err("daily time cannot be used with \"modified\" parameter")
        }
        Some((b'@', rest)) => return daily(rest),
        Some((b'+', rest)) => (1, rest),
        Some((b'-', rest)) => (-1, rest),
        _ => (1, text),
    };
    let secs = sign * units::parse_sec(rest).ok_or("invalid value")? as i64;
    Ok(if modified { When::Modified(secs) } else { When::Access(secs) })
}

fn daily(text: &[u8]) -> Result<When, &'static str> {
    let secs = units::parse_sec(text).ok_or("invalid value")? as i64;
    if secs > DAY_SECS {
        return Err("daily time value must be less than 24 hours");
    }
    Ok(When::Daily(secs))
}

fn write(r: &mut Request, when: When, no_cache: bool) {
    let now = clock::wall_secs();
    let (at, max_age) = match when {
        When::Off => return,
        When::Epoch => return put(r, b"Thu, 01 Jan 1970 00:00:01 GMT", b"no-cache"),
        // Ten years.
        When::Max => return put(r, b"Thu, 31 Dec 2037 23:55:55 GMT", b"max-age=315360000"),
        When::Access(0) | When::Modified(0) => (now, 0),
        When::Access(secs) => (now + secs, secs),
        When::Modified(secs) => match r.out.changed() {
            Some(changed) => (changed + secs, changed + secs - now),
            None => (now + secs, secs),
        },
        When::Daily(secs) => {
            let at = next_time(now, secs, i64::from(tz::offset_minutes(now)) * 60);
            (at, at - now)
        }
    };
    if no_cache || max_age < 0 {
        return put(r, &date::http_time(at), b"no-cache");
    }
    let mut control = b"max-age=".to_vec();
    fmt_u64(&mut control, max_age as u64);
    put(r, &date::http_time(at), &control);
}

/// When the local clock next shows that second of the day.
fn next_time(now: i64, second: i64, offset_secs: i64) -> i64 {
    let local = now + offset_secs;
    let at = local - local.rem_euclid(DAY_SECS) + second - offset_secs;
    if at > now {
        at
    } else {
        at + DAY_SECS
    }
}

fn put(r: &mut Request, expires: &[u8], control: &[u8]) {
    r.out.set(b"Expires", expires);
    r.out.set(b"Cache-Control", control);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values() {
        let late = "daily time cannot be used with \"modified\" parameter";
        for (text, modified, expected) in [
            ("epoch", false, Ok(When::Epoch)),
            ("max", false, Ok(When::Max)),
            ("off", false, Ok(When::Off)),
            ("30d", false, Ok(When::Access(30 * DAY_SECS))),
            ("-1", false, Ok(When::Access(-1))),
            ("+24h", true, Ok(When::Modified(DAY_SECS))),
            ("@15h30m", false, Ok(When::Daily(55_800))),
            ("@15h", true, Err(late)),
            ("epoch", true, Err("invalid value")),
            ("@25h", false, Err("daily time value must be less than 24 hours")),
            ("soon", false, Err("invalid value")),
            ("", false, Err("invalid value")),
        ] {
            assert_eq!(parse(text.as_bytes(), modified), expected, "{text}");
        }
    }

    #[test]
    fn days() {
        // 1970-01-02 00:00:00 UTC.
        assert_eq!(next_time(DAY_SECS, 3600, 0), DAY_SECS + 3600);
        assert_eq!(next_time(DAY_SECS + 3600, 3600, 0), 2 * DAY_SECS + 3600);
        // East of Greenwich it is later there.
        assert_eq!(next_time(DAY_SECS, 3 * 3600, 2 * 3600), DAY_SECS + 3600);
    }
}
