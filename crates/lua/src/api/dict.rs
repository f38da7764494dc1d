//! `ngx.shared`

use crate::crossing::{Answer, Args};
use crate::machine::{code, List, OpRow, State};
use crate::run::context::ANY;
use std::sync::Arc;
use weir_dict::{Dict, Mode, Refused, ValueRef};
use weir_runtime::clock;

pub(super) const OPS: &[OpRow] = &[
    OpRow::any("dict_names", ANY, names),
    OpRow::any("dict_get", ANY, get),
    OpRow::any("dict_get_stale", ANY, get_stale),
    OpRow::any("dict_set", ANY, set),
    OpRow::any("dict_flags", ANY, |state, args, _| {
        state.run.flags = args.x as u32;
        code::TRUE
    }),
    OpRow::any("dict_delete", ANY, |state, args, _| {
        if let Some(dict) = dict(state, args) {
            dict.delete(args.a, now_ms());
        }
        code::TRUE
    }),
    OpRow::any("dict_incr", ANY, incr),
    OpRow::any("dict_push", ANY, push),
    OpRow::any("dict_pop", ANY, pop),
    OpRow::any("dict_llen", ANY, llen),
    OpRow::any("dict_ttl", ANY, ttl),
    OpRow::any("dict_expire", ANY, expire),
    OpRow::any("dict_flush_all", ANY, |state, args, _| {
        if let Some(dict) = dict(state, args) {
            dict.flush_all();
        }
        code::TRUE
    }),
    OpRow::any("dict_flush_expired", ANY, |state, args, answer| {
        let Some(dict) = dict(state, args) else { return code::NIL };
        answer.number(dict.flush_expired(args.x as usize, now_ms()) as f64)
    }),
    OpRow::any("dict_keys", ANY, keys),
    OpRow::any("dict_space", ANY, |state, args, answer| {
        let Some(dict) = dict(state, args) else { return code::NIL };
        let bytes = if args.x == 0.0 { dict.capacity() } else { dict.free_space() };
        answer.number(bytes as f64)
    }),
];

/// Wall time: an entry's end outlives the process.
fn now_ms() -> u64 {
    let (secs, ms) = clock::wall();
    secs as u64 * 1000 + u64::from(ms)
}

/// The same, for who may not need it.
const NOW: fn() -> u64 = now_ms;

/// The lower half of the number that goes along says which.
fn dict(state: &State<'_>, args: &Args<'_>) -> Option<Arc<Dict>> {
    let at = (args.i & 0xffff) as usize;
    state.vm.dicts.get(at).map(Arc::clone)
}

fn names(state: &mut State<'_>, _: &Args<'_>, answer: &mut Answer) -> i32 {
    let mut list = answer.list();
    for dict in state.vm.main().map(|main| main.dicts.as_slice()).unwrap_or_default() {
        list.text(&dict.name);
    }
    code::LIST
}

/// A value as an answer of its own.
fn answer_with(answer: &mut Answer, value: ValueRef<'_>) -> i32 {
    match value {
        ValueRef::Boolean(true) => code::TRUE,
        ValueRef::Boolean(false) => code::FALSE,
        ValueRef::Number(number) => answer.number(number),
        ValueRef::Text(text) => answer.text(text),
    }
}

fn list_with<'l, 'a>(list: &'l mut List<'a>, value: ValueRef<'_>) -> &'l mut List<'a> {
    match value {
        ValueRef::Boolean(is) => list.boolean(is),
        ValueRef::Number(number) => list.number(number),
        ValueRef::Text(text) => list.text(text),
    }
}

/// The value, and its flags where it has some.
fn get(state: &mut State<'_>, args: &Args<'_>, answer: &mut Answer) -> i32 {
    let at = (args.i & 0xffff) as usize;
    let Some(dict) = state.vm.dicts.get(at) else { return code::NIL };
    let found = dict.get_with(args.a, NOW, |value, flags| match flags {
        0 => answer_with(answer, value),
        flags => {
            list_with(&mut answer.list(), value).number(f64::from(flags));
            code::LIST
        }
    });
    match found {
        Ok(Some(done)) => done,
        Ok(None) => code::NIL,
        Err(e) => answer.fail(e.to_string()),
    }
}

fn get_stale(state: &mut State<'_>, args: &Args<'_>, answer: &mut Answer) -> i32 {
    let Some(dict) = dict(state, args) else { return code::NIL };
    match dict.get_stale(args.a, now_ms()) {
        Ok(Some((value, flags, is_stale))) => {
            let mut list = answer.list();
            list_with(&mut list, ValueRef::from(&value));
            match flags {
                0 => list.nil(),
                flags => list.number(f64::from(flags)),
            }
            .boolean(is_stale);
            code::LIST
        }
        Ok(None) => code::NIL,
        Err(e) => answer.fail(e.to_string()),
    }
}

/// What there is no host for: the plain cases, of which there are most. What is refused is asked for once more, by the
/// operation that says why.
pub(crate) mod quick {
    use super::*;

    pub(crate) fn get(dict: &Dict, key: &[u8], answer: &mut Answer) -> i32 {
        let found = dict.get_with(key, NOW, |value, flags| match flags {
            0 => answer_with(answer, value),
            _ => code::OTHERWISE,
        });
        match found {
            Ok(Some(done)) => done,
            Ok(None) => code::NIL,
            Err(_) => code::OTHERWISE,
        }
    }

    pub(crate) fn set(
        dict: &Dict,
        kinds: u32,
        key: &[u8],
        text: &[u8],
        number: f64,
        exptime: f64,
    ) -> i32 {
        let (mode, value) = kinds_of(kinds as i32, text, number);
        match dict.set(key, value, ms_of(exptime), 0, mode, NOW) {
            Ok(stored) if stored.forcible => code::FORCED,
            Ok(_) => code::TRUE,
            Err(_) => code::OTHERWISE,
        }
    }

    pub(crate) fn incr(
        dict: &Dict,
        key: &[u8],
        by: f64,
        init: Option<f64>,
        answer: &mut Answer,
    ) -> i32 {
        match dict.incr(key, by, init, 0, NOW) {
            Ok((value, forcible)) => {
                answer.x = value;
                if forcible {
                    code::FORCED
                } else {
                    code::NUMBER
                }
            }
            Err(_) => code::OTHERWISE,
        }
    }
}

/// How something is stored, and as what: the lower four bits, and those above.
fn kinds_of(kinds: i32, text: &[u8], number: f64) -> (Mode, ValueRef<'_>) {
    let mode = match kinds & 0xf {
        0 => Mode::Set,
        1 => Mode::SafeSet,
        2 => Mode::Add,
        3 => Mode::SafeAdd,
        _ => Mode::Replace,
    };
    let value = match kinds >> 4 & 0xf {
        0 => ValueRef::Text(text),
        1 => ValueRef::Number(number),
        2 => ValueRef::Boolean(true),
        _ => ValueRef::Boolean(false),
    };
    (mode, value)
}

fn ms_of(secs: f64) -> u64 {
    (secs * 1000.0).clamp(0.0, 1e15) as u64
}

/// Bits above the dictionary's number: how, and of what type the value is.
fn set(state: &mut State<'_>, args: &Args<'_>, answer: &mut Answer) -> i32 {
    let flags = std::mem::take(&mut state.run.flags);
    let Some(dict) = dict(state, args) else { return code::NIL };
    let (mode, value) = kinds_of(args.i >> 16, args.b, args.x);
    let exptime_ms = ms_of(args.y);
    match dict.set(args.a, value, exptime_ms, flags, mode, now_ms()) {
        Ok(stored) if !stored.forcible => return code::TRUE,
        Ok(_) => answer.list().boolean(true).nil().boolean(true),
        Err(e) => {
            let forcible = matches!(e, Refused::NoMemory { forcible: true });
            let text = e.to_string();
            answer.list().boolean(false).text(text.as_bytes()).boolean(forcible)
        }
    };
    code::LIST
}

/// Bit 8: where there is nothing, it begins with `y`, for `b` seconds.
fn incr(state: &mut State<'_>, args: &Args<'_>, answer: &mut Answer) -> i32 {
    let Some(dict) = state.vm.dicts.get((args.i & 0xffff) as usize) else { return code::NIL };
    let init = (args.i >> 16 & 1 == 1).then_some(args.y);
    let ttl = std::str::from_utf8(args.b).ok().and_then(|ttl| ttl.parse::<f64>().ok());
    let ttl_ms = (ttl.unwrap_or_default() * 1000.0).clamp(0.0, 1e15) as u64;
    match dict.incr(args.a, args.x, init, ttl_ms, now_ms()) {
        Ok((value, true)) if init.is_some() => {
            answer.list().number(value).nil().boolean(true);
            code::LIST
        }
        Ok((value, _)) => answer.number(value),
        Err(e) => answer.fail(e.to_string()),
    }
}

/// Bit 8: on the left; bit 12: a number.
fn push(state: &mut State<'_>, args: &Args<'_>, answer: &mut Answer) -> i32 {
    let Some(dict) = dict(state, args) else { return code::NIL };
    let value = match args.i >> 20 & 1 {
        0 => ValueRef::Text(args.b),
        _ => ValueRef::Number(args.x),
    };
    match dict.push(args.a, value, args.i >> 16 & 1 == 1, now_ms()) {
        Ok(length) => answer.number(length as f64),
        Err(e) => answer.fail(e.to_string()),
    }
}

fn pop(state: &mut State<'_>, args: &Args<'_>, answer: &mut Answer) -> i32 {
    let Some(dict) = dict(state, args) else { return code::NIL };
    match dict.pop(args.a, args.i >> 16 & 1 == 1, now_ms()) {
        Ok(Some(value)) => answer_with(answer, ValueRef::from(&value)),
        Ok(None) => code::NIL,
        Err(e) => answer.fail(e.to_string()),
    }
}

fn llen(state: &mut State<'_>, args: &Args<'_>, answer: &mut Answer) -> i32 {
    let Some(dict) = dict(state, args) else { return code::NIL };
    match dict.llen(args.a, now_ms()) {
        Ok(length) => answer.number(length as f64),
        Err(e) => answer.fail(e.to_string()),
    }
}

fn ttl(state: &mut State<'_>, args: &Args<'_>, answer: &mut Answer) -> i32 {
    let Some(dict) = dict(state, args) else { return code::NIL };
    match dict.ttl(args.a, now_ms()) {
        Some(ms) => answer.number(ms as f64 / 1000.0),
        None => answer.fail("not found"),
    }
}

fn expire(state: &mut State<'_>, args: &Args<'_>, answer: &mut Answer) -> i32 {
    let Some(dict) = dict(state, args) else { return code::NIL };
    let ms = (args.x * 1000.0).clamp(0.0, 1e15) as u64;
    match dict.expire(args.a, ms, now_ms()) {
        true => code::TRUE,
        false => answer.fail("not found"),
    }
}

/// `x`: how many at the most; 0: all. What is too much for a state is refused before it is made.
fn keys(state: &mut State<'_>, args: &Args<'_>, answer: &mut Answer) -> i32 {
    // What a key takes in a table of Lua's besides its bytes.
    const KEY_BYTES: usize = 40;
    let Some(dict) = dict(state, args) else { return code::NIL };
    let keys = dict.get_keys(args.x as usize, now_ms());
    let bytes: usize = keys.iter().map(|key| key.len() + KEY_BYTES).sum();
    if bytes > state.vm.text_max_bytes() {
        return answer
            .raise(format!("{} keys are more than lua_vm_memory has room for", keys.len()));
    }
    let mut list = answer.list();
    for key in keys {
        list.text(&key);
    }
    code::LIST
}
