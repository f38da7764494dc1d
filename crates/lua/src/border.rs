//! The border to LuaJIT: the one file of this crate with `unsafe` in it.
//!
//! An [`Engine`] is one Lua state. Rust begins code in it ([`Engine::begin`], on a coroutine that is used again, or
//! [`Engine::call`], where the code does not wait) and lets it go on ([`Engine::resume`]); what is more than one
//! thread is Lua's own to order ([`Engine::enter`]). Lua calls back by functions of one operation each ([`native`]),
//! and by one function of C's for all of them, [`weir_call`], which the FFI compiles into traces. What Lua code may
//! ask for is lent for the time of one call: a [`Host`], which gets the words of the question and writes the answer.
//!
//! Rules that everything here keeps:
//! * a state never leaves its thread (`Engine` has a raw pointer and is neither `Send` nor `Sync`);
//! * an error of Lua's passes no frame of Rust's but those of functions that Lua calls (`extern "C-unwind"`), and
//!   those have nothing to drop where it does; what calls Lua is protected (`lua_pcall`, `lua_resume`, loading);
//! * no panic passes a frame of Lua's: [`weir_call`] and the allocator catch them;
//! * a host is used by one call at a time: it is taken away while it works;
//! * an operation may enter the state anew (an answer's filters run code) only if it was called by a function of
//!   Lua's own kind ([`native`], [`texts`]): LuaJIT allows that of no call by the FFI;
//! * what pushes values may collect garbage, and with it run code that asks for operations: the text that is being
//!   pushed is out of their reach, and finalizers have an answer of their own ([`turn`]).
#![allow(unsafe_code)]

use crate::api::dict::quick;
use crate::crossing::{
    self, kept, Answer, Args, Call, Entered, Failure, Host, Item, Items, Values, Went, BROKEN,
};
use crate::machine::code;
use crate::profile;
use crate::symbols;
use crate::watch::{Seat, Verdict};
use mlua_sys as lua;
use std::any::Any;
use std::cell::Cell;
use std::ffi::{c_char, c_int, c_void, CStr};
use std::io;
use std::mem::ManuallyDrop;
use std::panic::{catch_unwind, resume_unwind, AssertUnwindSafe};
use std::ptr;
use std::sync::Arc;
use weir_dict::Dict;
use weir_modules::split_clients::murmur2;
use weir_runtime::bounded::{allocate, Bounded};
use weir_runtime::{interrupt, stack};

/// Whether that is Lua, in a state of its own; an error is what the compiler says.
pub(crate) fn check_syntax(text: &[u8], name: &CStr) -> Result<(), String> {
    // SAFETY: a fresh state that nobody else has; loading is protected, and nothing is run.
    let state = unsafe { lua::luaL_newstate() };
    if state.is_null() {
        return Ok(());
    }
    let begin = text.as_ptr().cast::<c_char>();
    // SAFETY: the state is there; text and name outlive the call, which copies what it keeps.
    let status = unsafe { lua::luaL_loadbuffer(state, begin, text.len(), name.as_ptr()) };
    let done = match status {
        lua::LUA_OK => Ok(()),
        // SAFETY: the error is on top of the stack.
        _ => Err(unsafe { text_at(state, -1) }),
    };
    // SAFETY: the state is closed once, and not used behind this.
    unsafe { lua::lua_close(state) };
    done
}

/// As the Lua side declares it.
#[repr(C)]
struct Out {
    p: *const u8,
    n: usize,
    x: f64,
    /// Of the first: the number of the context (`ngx.ctx`) of what runs; 0 where it has not been asked for.
    context: f64,
}

/// So often garbage is collected where collecting makes more.
const COLLECTIONS_MAX: u32 = 16;
/// What an end may take beyond what code may.
const ROOM_BYTES: usize = 4 * 1024 * 1024;
/// What is kept of the memory for an answer.
const KEPT_BYTES: usize = 256 * 1024;

struct Shared {
    /// By [`turn`], as the answers that they are of.
    outs: [Out; 2],
    answers: [Answer; 2],
    /// The state's first coroutine.
    main: *mut lua::lua_State,
    /// The dictionaries that code knows by their numbers.
    dicts: Vec<Arc<Dict>>,
    memory: Bounded,
    /// A panic of a host, for who has entered.
    panic: Option<Box<dyn Any + Send>>,
    /// The coroutine that an operation was called by, if Lua may be entered from there.
    caller: *mut lua::lua_State,
    /// The first coroutine is at work in a call of its own.
    is_busy: bool,
    /// The registry's number of the coroutine that Rust goes on with.
    running: c_int,
    /// The registry's numbers of what Lua has given to be kept ([`kept`]).
    kept: Vec<c_int>,
    /// Coroutines that have ended and serve again.
    idle: Vec<Thread>,
    /// The registry's numbers that nobody needs any more.
    freed: Vec<c_int>,
    /// What [`texts`] puts together.
    scratch: Vec<u8>,
}

/// A coroutine that Rust goes on with.
pub(crate) struct Thread {
    state: *mut lua::lua_State,
    /// The registry's number, which keeps it from being collected.
    reference: c_int,
}

/// What a yield is for, as light userdata.
const MARK: *mut c_void = ptr::without_provenance_mut(1);
const LEAVE: *mut c_void = ptr::without_provenance_mut(2);

/// One Lua state.
pub(crate) struct Engine {
    state: *mut lua::lua_State,
    shared: *mut Shared,
    /// The registry's number of the function that all calls go to.
    entry: c_int,
    /// By which others see that Lua runs.
    seat: Arc<Seat>,
    /// Coroutines that are kept to be used again.
    idle_max: usize,
    /// Its memory was out, and hardly any of it was garbage.
    is_spent: Cell<bool>,
}

/// What a call from Rust is made on, and whether that is the state's first coroutine.
type Place = (*mut lua::lua_State, bool);
/// What a call was made on, the height of the stack before it, and what it has come to.
type Done = (*mut lua::lua_State, c_int, c_int);

/// Whether an entry was begun within another, and whether it is watched by itself.
type Running = (bool, bool);

thread_local! {
    /// Code is to end, wherever it catches that.
    static ENDS: Cell<bool> = const { Cell::new(false) };
    /// Who answers the engine that runs on this thread.
    static HOST: Cell<Option<(*mut dyn Host, *mut Shared)>> = const { Cell::new(None) };
}

unsafe fn slice<'a>(p: *const u8, n: usize) -> &'a [u8] {
    match n {
        0 => &[],
        // SAFETY: the caller has it from Lua, which keeps the text for as long as the call lasts.
        _ => unsafe { std::slice::from_raw_parts(p, n) },
    }
}

/// Has the host answer, and leaves the answer where Lua looks for it.
///
/// # Safety
///
/// `caller` is null, or the coroutine that runs and has called by a function of Lua's own kind.
unsafe fn answer(op: c_int, args: &Args<'_>, caller: *mut lua::lua_State) -> c_int {
    let Some((host, shared)) = HOST.take() else { return BROKEN };
    // SAFETY: both were put there by `enter`, which has not returned: Lua runs only within it. The host was taken
    // away, so that this is its only use. Of `shared` no reference is held while the host works, which may enter Lua.
    let code = unsafe {
        let before = std::mem::replace(&mut (*shared).caller, caller);
        let turn = turn(shared);
        let mut answer = std::mem::take(&mut (*shared).answers[turn]);
        answer.text.clear();
        answer.x = 0.0;
        let done = catch_unwind(AssertUnwindSafe(|| (*host).call(op, args, &mut answer)));
        (*shared).caller = before;
        let (p, n, x) = (answer.text.as_ptr(), answer.text.len(), answer.x);
        let out = &mut (*shared).outs[turn];
        (out.p, out.n, out.x) = (p, n, x);
        (*shared).answers[turn] = answer;
        done.unwrap_or_else(|panic| {
            (*shared).panic = Some(panic);
            BROKEN
        })
    };
    HOST.set(Some((host, shared)));
    code
}

/// Whose answer it is: 0 for code, 1 for a finalizer. That runs wherever memory is asked for and wherever compiled code
/// is left, also between an operation and what reads its answer.
///
/// # Safety
///
/// The engine's state is there.
unsafe fn turn(shared: *const Shared) -> usize {
    // SAFETY: as the caller says; a flag of the state is read.
    usize::from(unsafe { weir_in_finalizer((*shared).main) } != 0)
}

/// Of the last answer of an operation that was called by the FFI, 1: its text, 2: its values as a table and how many
/// these are, 3: its number. 4: whether there is room for the code of one more coroutine.
unsafe extern "C-unwind" fn said(l: *mut lua::lua_State) -> c_int {
    // SAFETY: the state is the running one. As in `give`, the text is taken away while it is pushed.
    unsafe {
        let what = lua::lua_tonumber(l, 1) as c_int;
        if what == 4 {
            lua::lua_pushboolean(l, c_int::from(stack::has_room()));
            return 1;
        }
        let Some((_, shared)) = HOST.get() else { return 0 };
        let turn = turn(shared);
        if what == 3 {
            return push_values(l, code::NUMBER, (*shared).outs[turn].x, &[]);
        }
        let text = ManuallyDrop::new(std::mem::take(&mut (*shared).answers[turn].text));
        let n = if what == 1 {
            push_values(l, code::TEXT, 0.0, &text)
        } else {
            push_items(l, &text);
            lua::lua_pushnumber(l, Items(&text).count() as f64);
            2
        };
        let text = ManuallyDrop::into_inner(text);
        // Of a large list there are values now; nobody reads it again.
        if what != 2 || text.capacity() <= KEPT_BYTES {
            (*shared).answers[turn].text = text;
        }
        n
    }
}

/// What Lua calls by the FFI: never raises, never unwinds.
#[allow(clippy::too_many_arguments)]
unsafe extern "C" fn weir_call(
    op: c_int,
    i: f64,
    a: *const u8,
    an: usize,
    b: *const u8,
    bn: usize,
    x: f64,
    y: f64,
) -> c_int {
    let args = |a, b| Args { i: i as i32, id: i as u64, a, b, x, y };
    // SAFETY: the texts are strings of Lua's that the caller holds. Lua is not entered from here.
    unsafe {
        let answered = answer(op, &args(slice(a, an), slice(b, bn)), ptr::null_mut());
        let late = match answered {
            code::TEXT => code::TEXT_LATE,
            code::NUMBER => code::NUMBER_LATE,
            code::PLACES => code::PLACES_LATE,
            _ => return answered,
        };
        match HOST.get() {
            Some((_, shared)) if turn(shared) == 1 => late,
            _ => answered,
        }
    }
}

// What loops ask dictionaries for goes to them without a host: it needs no request, and enters no state. What is not
// plain is answered by `OTHERWISE`, has done nothing, and is asked for by the operation of that name.

/// Has `f` use a dictionary, for who is no finalizer: its code.
///
/// # Safety
///
/// `shared` is that of the engine whose code calls.
unsafe fn with_dict(
    shared: *mut Shared,
    at: u32,
    f: impl FnOnce(&Dict, &mut Answer) -> i32,
) -> c_int {
    // SAFETY: as the caller says; nothing else refers to these fields while Lua runs, and `f` runs none of it.
    unsafe {
        if turn(shared) != 0 {
            return code::OTHERWISE;
        }
        let dicts = &(*shared).dicts;
        let Some(dict) = dicts.get(at as usize) else { return code::OTHERWISE };
        let answer = &mut (*shared).answers[0];
        answer.text.clear();
        let done = catch_unwind(AssertUnwindSafe(|| f(dict, answer)));
        let answer = &(*shared).answers[0];
        let (p, n, x) = (answer.text.as_ptr(), answer.text.len(), answer.x);
        let out = &mut (*shared).outs[0];
        (out.p, out.n, out.x) = (p, n, x);
        done.unwrap_or(code::OTHERWISE)
    }
}

unsafe extern "C" fn weir_dict_get(
    shared: *mut Shared,
    at: u32,
    key: *const u8,
    length: usize,
) -> c_int {
    // SAFETY: the engine's own place was given to its code; the key is a string of Lua's that the caller holds.
    unsafe { with_dict(shared, at, |dict, answer| quick::get(dict, slice(key, length), answer)) }
}

#[allow(clippy::too_many_arguments)]
unsafe extern "C" fn weir_dict_set(
    shared: *mut Shared,
    at: u32,
    kinds: u32,
    key: *const u8,
    length: usize,
    text: *const u8,
    text_length: usize,
    number: f64,
    exptime: f64,
) -> c_int {
    // SAFETY: the same.
    unsafe {
        with_dict(shared, at, |dict, _| {
            let (key, text) = (slice(key, length), slice(text, text_length));
            quick::set(dict, kinds, key, text, number, exptime)
        })
    }
}

unsafe extern "C" fn weir_dict_incr(
    shared: *mut Shared,
    at: u32,
    key: *const u8,
    length: usize,
    by: f64,
    init: f64,
    has_init: c_int,
) -> c_int {
    // SAFETY: the same.
    unsafe {
        with_dict(shared, at, |dict, answer| {
            let init = (has_init != 0).then_some(init);
            quick::incr(dict, slice(key, length), by, init, answer)
        })
    }
}

/// The text at a place of the stack, which stays there; empty where there is none.
unsafe fn text_arg<'a>(l: *mut lua::lua_State, at: c_int) -> &'a [u8] {
    // SAFETY: the value is on the stack as long as the function that was called with it lasts. A number is made a
    // string in its place, which may raise "not enough memory".
    unsafe {
        let mut length = 0;
        let text = lua::lua_tolstring(l, at, &mut length);
        slice(text.cast(), length)
    }
}

/// Pushes the values of an answer that has some; how many.
unsafe fn push_values(l: *mut lua::lua_State, code: c_int, x: f64, text: &[u8]) -> c_int {
    // SAFETY: the stack has room for `LUA_MINSTACK` values above a function's arguments, and more is asked for.
    // Nothing here is dropped when pushing raises.
    unsafe {
        match code {
            code::TEXT => lua::lua_pushlstring_(l, text.as_ptr().cast(), text.len()),
            code::NUMBER => lua::lua_pushnumber(l, x),
            code::TRUE => lua::lua_pushboolean(l, 1),
            code::FALSE => lua::lua_pushboolean(l, 0),
            code::LIST => return push_list(l, text),
            code::TABLE => push_table(l, text),
            code::CUT_TABLE => {
                push_table(l, text);
                lua::lua_pushlstring_(l, c"truncated".as_ptr(), 9);
                return 2;
            }
            code::FAILED => {
                lua::lua_pushnil(l);
                lua::lua_pushlstring_(l, text.as_ptr().cast(), text.len());
                return 2;
            }
            _ => lua::lua_pushnil(l),
        }
        1
    }
}

unsafe fn push_item(l: *mut lua::lua_State, item: Item<'_>) {
    // SAFETY: there is room for one value; see `push_values`.
    unsafe {
        match item {
            Item::Nil => lua::lua_pushnil(l),
            Item::Boolean(is) => lua::lua_pushboolean(l, c_int::from(is)),
            Item::Number(number) => lua::lua_pushnumber(l, number),
            Item::Text(text) => lua::lua_pushlstring_(l, text.as_ptr().cast(), text.len()),
            Item::Table(rest) => push_table(l, rest),
        }
    }
}

/// So many values of a list, and what making a table of the next takes, have room in any case.
const LIST_ROOM: c_int = 8;

unsafe fn push_list(l: *mut lua::lua_State, list: &[u8]) -> c_int {
    let mut n = 0;
    for item in Items(list) {
        // SAFETY: there is room for the first few, and more is asked for; see `push_values`.
        unsafe {
            if n >= LIST_ROOM && lua::lua_checkstack(l, 8) == 0 {
                break;
            }
            push_item(l, item);
        }
        n += 1;
    }
    n
}

/// The items of a list as one table.
unsafe fn push_items(l: *mut lua::lua_State, list: &[u8]) {
    // SAFETY: two values are pushed; see `push_values`.
    unsafe {
        lua::lua_createtable(l, 4, 0);
        for (at, item) in (1..).zip(Items(list)) {
            push_item(l, item);
            lua::lua_rawseti_(l, -2, at);
        }
    }
}

/// Names and values by turns as a table: several values of one name are an array.
unsafe fn push_table(l: *mut lua::lua_State, list: &[u8]) {
    let mut items = Items(list);
    let pairs = Items(list).count() / 2;
    // SAFETY: at most six values are pushed at a time; see `push_values`. Names are strings, so that no access raises
    // but for want of memory.
    unsafe {
        lua::lua_createtable(l, 0, pairs as c_int);
        let table = lua::lua_gettop(l);
        while let (Some(name), Some(value)) = (items.next(), items.next()) {
            push_item(l, name);
            lua::lua_pushvalue(l, -1);
            lua::lua_rawget(l, table);
            if lua::lua_type(l, -1) == lua::LUA_TNIL {
                lua::lua_settop(l, -2);
                push_item(l, value);
            } else {
                if lua::lua_type(l, -1) != lua::LUA_TTABLE {
                    lua::lua_createtable(l, 2, 0);
                    lua::lua_insert(l, -2);
                    lua::lua_rawseti_(l, -2, 1);
                }
                push_item(l, value);
                let n = lua::lua_objlen(l, -2) as c_int;
                lua::lua_rawseti_(l, -2, n + 1);
            }
            lua::lua_rawset(l, table);
        }
    }
}

/// Leaves what an operation has answered on the stack of the function that has asked for it, for what that returns.
/// Errors name the place at that level.
unsafe fn give(l: *mut lua::lua_State, answered: c_int, level: c_int) -> c_int {
    // SAFETY: `shared` is that of the engine that runs, and no reference to it is held. The answer's text is taken
    // away while it is pushed; where pushing raises, it is lost and nothing is dropped.
    unsafe {
        let Some((_, shared)) = HOST.get() else {
            lua::lua_pushnil(l);
            return 1;
        };
        let turn = turn(shared);
        let x = (*shared).outs[turn].x;
        match answered {
            code::NIL | code::TRUE | code::FALSE | code::NUMBER => {
                return push_values(l, answered, x, &[]);
            }
            code::WAITS => {
                lua::lua_pushlightuserdata(l, MARK);
                lua::lua_pushnumber(l, x);
                return lua::lua_yield(l, 2);
            }
            code::LEAVES => {
                lua::lua_pushlightuserdata(l, LEAVE);
                return lua::lua_yield(l, 1);
            }
            _ => {}
        }
        let text = ManuallyDrop::new(std::mem::take(&mut (*shared).answers[turn].text));
        let n = match answered {
            code::TEXT | code::LIST | code::TABLE | code::CUT_TABLE | code::FAILED => {
                push_values(l, answered, x, &text)
            }
            _ => push_error(l, answered, level, &text),
        };
        (*shared).answers[turn].text = ManuallyDrop::into_inner(text);
        if n == 0 && !matches!(answered, code::LIST) {
            lua::lua_error(l);
        }
        n
    }
}

/// Pushes the message of an operation that was refused; 0.
unsafe fn push_error(l: *mut lua::lua_State, answered: c_int, level: c_int, text: &[u8]) -> c_int {
    let words = crossing::refusal(answered);
    // SAFETY: three values are pushed; see `push_values`.
    unsafe {
        lua::luaL_where(l, level);
        lua::lua_pushlstring_(l, words.as_ptr().cast(), words.len());
        lua::lua_pushlstring_(l, text.as_ptr().cast(), text.len());
        lua::lua_concat(l, 3);
    }
    0
}

/// A [`native`] function keeps its operation and its level as one number.
const OP_SHIFT: c_int = 16;
const OP_BITS: c_int = (1 << OP_SHIFT) - 1;

/// A function of one operation: of a number, two texts and two more numbers, each of which may be missing.
unsafe extern "C-unwind" fn native(l: *mut lua::lua_State) -> c_int {
    // SAFETY: the state is the running one, the upvalues are those that `make_native` has given. The texts are on its
    // stack for as long as this lasts. There is nothing to drop in this frame.
    unsafe {
        let both = lua::lua_tonumber(l, lua::lua_upvalueindex(1)) as c_int;
        let mut args = Args { i: 0, id: 0, a: &[], b: &[], x: 0.0, y: 0.0 };
        let n = lua::lua_gettop(l);
        if n > 0 {
            let i = lua::lua_tonumber(l, 1);
            (args.i, args.id) = (i as i32, i as u64);
            args.a = text_arg(l, 2);
        }
        if n > 2 {
            args.b = text_arg(l, 3);
            (args.x, args.y) = (lua::lua_tonumber(l, 4), lua::lua_tonumber(l, 5));
        }
        let answered = answer(both & OP_BITS, &args, l);
        give(l, answered, both >> OP_SHIFT)
    }
}

/// A function of one operation whose text is that of all arguments, one behind the other; what is neither a text nor
/// a number nor a boolean nor nil is left to a function of Lua's, which makes one text of all.
unsafe extern "C-unwind" fn texts(l: *mut lua::lua_State) -> c_int {
    // SAFETY: as in `native`. The text that is put together is out of reach meanwhile, and lost where a call raises.
    unsafe {
        let op = lua::lua_tonumber(l, lua::lua_upvalueindex(1)) as c_int;
        let Some((_, shared)) = HOST.get() else { return 0 };
        let mut text = ManuallyDrop::new(std::mem::take(&mut (*shared).scratch));
        text.clear();
        let n = lua::lua_gettop(l);
        for at in 1..=n {
            match lua::lua_type(l, at) {
                lua::LUA_TNUMBER => {
                    if !crossing::put_whole(&mut text, lua::lua_tonumber(l, at)) {
                        text.extend_from_slice(text_arg(l, at));
                    }
                }
                lua::LUA_TSTRING => text.extend_from_slice(text_arg(l, at)),
                lua::LUA_TBOOLEAN if lua::lua_toboolean(l, at) == 0 => {
                    text.extend_from_slice(b"false");
                }
                lua::LUA_TBOOLEAN => text.extend_from_slice(b"true"),
                lua::LUA_TNIL => text.extend_from_slice(b"nil"),
                lua::LUA_TLIGHTUSERDATA if lua::lua_touserdata(l, at).is_null() => {
                    text.extend_from_slice(b"null");
                }
                _ => {
                    if lua::lua_checkstack(l, n + 4) == 0 {
                        break;
                    }
                    lua::lua_pushvalue(l, lua::lua_upvalueindex(3));
                    lua::lua_pushnumber(l, f64::from(n));
                    for each in 1..=n {
                        lua::lua_pushvalue(l, each);
                    }
                    lua::lua_call(l, n + 1, 1);
                    text.clear();
                    text.extend_from_slice(text_arg(l, -1));
                    break;
                }
            }
        }
        text.extend_from_slice(text_arg(l, lua::lua_upvalueindex(2)));
        let args = Args { i: 0, id: 0, a: &text, b: &[], x: 0.0, y: 0.0 };
        let answered = answer(op, &args, l);
        if text.capacity() <= KEPT_BYTES {
            (*shared).scratch = ManuallyDrop::into_inner(text);
        } else {
            drop(ManuallyDrop::into_inner(text));
        }
        give(l, answered, 1)
    }
}

/// Given an operation and the level at which errors have their place: its function as of [`native`]. Given an
/// operation, what its text ends with, and the function for other values: its function as of [`texts`].
unsafe extern "C-unwind" fn make(l: *mut lua::lua_State) -> c_int {
    // SAFETY: the state is the running one, and has two arguments or three.
    unsafe {
        match lua::lua_gettop(l) {
            2 => {
                let (op, level) = (lua::lua_tonumber(l, 1), lua::lua_tonumber(l, 2));
                lua::lua_pushnumber(l, op + level * f64::from(1 << OP_SHIFT));
                lua::lua_pushcclosure(l, native, 1);
            }
            _ => lua::lua_pushcclosure(l, texts, 3),
        }
        1
    }
}

/// Keeps a value for Rust, at a place of [`kept`].
unsafe extern "C-unwind" fn keep(l: *mut lua::lua_State) -> c_int {
    // SAFETY: the state is the running one and has both arguments; `shared` is its engine's.
    unsafe {
        let at = lua::lua_tonumber(l, 1) as usize;
        lua::lua_settop(l, 2);
        let fresh = lua::luaL_ref(l, lua::LUA_REGISTRYINDEX);
        let Some((_, shared)) = HOST.get() else { return 0 };
        let known = &mut (*shared).kept;
        if known.len() <= at {
            known.resize(at + 1, 0);
        }
        let before = std::mem::replace(&mut known[at], fresh);
        if before != 0 {
            lua::luaL_unref(l, lua::LUA_REGISTRYINDEX, before);
        }
        0
    }
}

/// The coroutine that Rust goes on with.
unsafe extern "C-unwind" fn running(l: *mut lua::lua_State) -> c_int {
    // SAFETY: the state is the running one; `shared` is its engine's.
    unsafe {
        match HOST.get() {
            Some((_, shared)) => {
                lua::lua_rawgeti_(l, lua::LUA_REGISTRYINDEX, (*shared).running);
            }
            None => lua::lua_pushnil(l),
        }
        1
    }
}

/// A coroutine that is made, and where it is told.
struct Making {
    entries: c_int,
    state: *mut lua::lua_State,
    reference: c_int,
}

unsafe extern "C-unwind" fn make_thread(l: *mut lua::lua_State) -> c_int {
    // SAFETY: called by `lua_cpcall` with a `Making` that its caller holds; there is nothing to drop.
    unsafe {
        let with = &mut *lua::lua_touserdata(l, 1).cast::<Making>();
        with.state = lua::lua_newthread(l);
        lua::lua_rawgeti_(l, lua::LUA_REGISTRYINDEX, with.entries);
        lua::lua_pushvalue(l, -2);
        lua::lua_pushboolean(l, 1);
        lua::lua_rawset(l, -3);
        lua::lua_settop(l, -2);
        with.reference = lua::luaL_ref(l, lua::LUA_REGISTRYINDEX);
        0
    }
}

/// Pushes the values of an answer, for who has called it protected.
unsafe extern "C-unwind" fn push_protected(l: *mut lua::lua_State) -> c_int {
    // SAFETY: called with the place of `Values` that its caller holds; there is nothing to drop.
    unsafe {
        let values = &*lua::lua_touserdata(l, 1).cast::<Values<'_>>();
        push_values(l, values.code, values.x, values.text)
    }
}

/// What is done within `lua_cpcall`, where running out of memory is an error of Lua's and no more.
struct Boot<'a> {
    text: &'a [u8],
    name: &'a [u8],
    shared: *mut Shared,
    entry: c_int,
}

unsafe extern "C-unwind" fn boot(l: *mut lua::lua_State) -> c_int {
    // SAFETY: called by `lua_cpcall` with a `Boot` that its caller holds. There is nothing to drop in this frame
    // when Lua leaves it by an error.
    unsafe {
        let with = &mut *lua::lua_touserdata(l, 1).cast::<Boot<'_>>();
        lua::luaL_openlibs(l);
        let text = with.text.as_ptr().cast::<c_char>();
        let status = lua::luaL_loadbuffer(l, text, with.text.len(), with.name.as_ptr().cast());
        if status != lua::LUA_OK {
            lua::lua_error(l);
        }
        lua::lua_pushlightuserdata(l, weir_call as *mut c_void);
        lua::lua_pushlightuserdata(l, ptr::addr_of_mut!((*with.shared).outs).cast());
        lua::lua_pushlightuserdata(l, ptr::null_mut());
        lua::lua_pushcclosure(l, make, 0);
        lua::lua_pushcclosure(l, keep, 0);
        lua::lua_pushcclosure(l, running, 0);
        lua::lua_pushlightuserdata(l, MARK);
        lua::lua_pushlightuserdata(l, LEAVE);
        lua::lua_pushcclosure(l, said, 0);
        lua::lua_pushlightuserdata(l, with.shared.cast());
        lua::lua_pushlightuserdata(l, weir_dict_get as *mut c_void);
        lua::lua_pushlightuserdata(l, weir_dict_set as *mut c_void);
        lua::lua_pushlightuserdata(l, weir_dict_incr as *mut c_void);
        lua::lua_call(l, 13, 1);
        with.entry = lua::luaL_ref(l, lua::LUA_REGISTRYINDEX);
        0
    }
}

/// Within `lua_cpcall`: collects garbage, and has more of it collected from now on.
unsafe extern "C-unwind" fn collect(l: *mut lua::lua_State) -> c_int {
    const PAUSE_PERCENT: c_int = 100;
    // SAFETY: called with a number in the place of a pointer. There is nothing to drop in this frame.
    unsafe {
        let how = lua::lua_touserdata(l, 1).addr() as c_int;
        lua::lua_gc(l, lua::LUA_GCSETPAUSE, PAUSE_PERCENT);
        lua::lua_gc(l, how, 0);
    }
    0
}

unsafe fn text_at(l: *mut lua::lua_State, at: c_int) -> String {
    // SAFETY: the state is the caller's. Only what is a string is asked for its text, which makes nothing.
    unsafe {
        if lua::lua_type(l, at) != lua::LUA_TSTRING {
            return String::from("an error that is no text");
        }
        let mut length = 0;
        let text = lua::lua_tolstring(l, at, &mut length);
        String::from_utf8_lossy(slice(text.cast(), length)).into_owned()
    }
}

/// nginx's text, as its functions are given it.
#[repr(C)]
struct Str {
    length: usize,
    at: *const u8,
}

// What code calls by the FFI under nginx's names, which `crates/weir/build.rs` shows in the program. They trust their
// callers as nginx's do: where a text ends and how much room there is, is theirs to know.

#[no_mangle]
unsafe extern "C" fn ngx_hex_dump(to: *mut u8, from: *const u8, length: usize) -> *mut u8 {
    // SAFETY: the caller has so many bytes, and room for twice as many.
    unsafe {
        for at in 0..length {
            let digits = symbols::hex(from.add(at).read());
            to.add(2 * at).cast::<[u8; 2]>().write_unaligned(digits);
        }
        to.add(2 * length)
    }
}

#[no_mangle]
unsafe extern "C" fn ngx_atoi(text: *const u8, length: usize) -> isize {
    // SAFETY: the caller has so many bytes.
    symbols::atoi(unsafe { slice(text, length) })
}

#[no_mangle]
unsafe extern "C" fn ngx_hextoi(text: *const u8, length: usize) -> isize {
    // SAFETY: the caller has so many bytes.
    symbols::hextoi(unsafe { slice(text, length) })
}

#[no_mangle]
unsafe extern "C" fn ngx_parse_time(text: *const Str, is_sec: usize) -> isize {
    // SAFETY: the caller has the text, and the bytes that it tells of.
    symbols::parse_time(unsafe { slice((*text).at, (*text).length) }, is_sec != 0)
}

/// Where there is no place to write to, how many bytes are to be escaped, of which each will be three.
#[no_mangle]
unsafe extern "C" fn ngx_escape_uri(
    to: *mut u8,
    from: *const u8,
    length: usize,
    kind: usize,
) -> usize {
    // SAFETY: the caller has so many bytes, and the room that an earlier call has told of.
    unsafe {
        let escaped = symbols::escaped(slice(from, length), kind);
        if to.is_null() {
            return (escaped.len() - length) / 2;
        }
        ptr::copy_nonoverlapping(escaped.as_ptr(), to, escaped.len());
        to.add(escaped.len()).addr()
    }
}

#[no_mangle]
unsafe extern "C" fn ngx_murmur_hash2(data: *const u8, length: usize) -> u32 {
    // SAFETY: the caller has so many bytes.
    murmur2(unsafe { slice(data, length) })
}

/// A line of the log; which request it is of is known.
#[no_mangle]
unsafe extern "C" fn ngx_http_lua_ffi_raw_log(
    _: *mut c_void,
    level: c_int,
    text: *const u8,
    length: usize,
) -> c_int {
    if !(0..=8).contains(&level) {
        return -1;
    }
    // SAFETY: the caller has so many bytes.
    number_of("report", level, unsafe { slice(text, length) });
    0
}

#[no_mangle]
unsafe extern "C" fn ngx_stream_lua_ffi_raw_log(
    of: *mut c_void,
    level: c_int,
    text: *const u8,
    n: usize,
) -> c_int {
    // SAFETY: the same.
    unsafe { ngx_http_lua_ffi_raw_log(of, level, text, n) }
}

/// What the operation of a name has answered to who calls by nginx's names, if that is a number.
fn number_of(op: &str, i: c_int, text: &[u8]) -> Option<c_int> {
    let args = Args { i, id: 0, a: text, b: &[], x: 0.0, y: 0.0 };
    // SAFETY: Lua is not entered from here; the answer is there until the next one.
    unsafe {
        match (answer(crate::api::number_of(op), &args, ptr::null_mut()), HOST.get()) {
            (code::NUMBER, Some((_, shared))) => Some((*shared).outs[turn(shared)].x as c_int),
            _ => None,
        }
    }
}

/// The number of the context in `ngx_lua_ctx_tables` of the registry; below 0 where there is none.
#[no_mangle]
unsafe extern "C" fn ngx_http_lua_ffi_get_ctx_ref(
    _: *mut c_void,
    is_handshake: *mut c_int,
    of_handshake: *mut c_int,
) -> c_int {
    const NONE: c_int = -2;
    // SAFETY: each place is the caller's, or null.
    unsafe {
        if !is_handshake.is_null() && !of_handshake.is_null() {
            (*is_handshake, *of_handshake) = (0, NONE);
        }
    }
    number_of("ctx_ref", 0, &[]).unwrap_or(NONE)
}

#[no_mangle]
unsafe extern "C" fn ngx_stream_lua_ffi_get_ctx_ref(
    of: *mut c_void,
    is_handshake: *mut c_int,
    of_handshake: *mut c_int,
) -> c_int {
    // SAFETY: the same.
    unsafe { ngx_http_lua_ffi_get_ctx_ref(of, is_handshake, of_handshake) }
}

#[no_mangle]
extern "C" fn ngx_http_lua_ffi_set_ctx_ref(_: *mut c_void, number: c_int) -> c_int {
    let done = number_of("ctx_put", number, &[]).unwrap_or(-1);
    if let (0, Some((_, shared))) = (done, HOST.get()) {
        // SAFETY: no reference to it is held; Lua asks for the number anew.
        unsafe { (*shared).outs[0].context = 0.0 };
    }
    done
}

#[no_mangle]
extern "C" fn ngx_stream_lua_ffi_set_ctx_ref(of: *mut c_void, number: c_int) -> c_int {
    ngx_http_lua_ffi_set_ctx_ref(of, number)
}

/// lua-resty-events' own: this worker takes no connections of a Unix socket.
#[no_mangle]
unsafe extern "C" fn ngx_lua_ffi_disable_listening_unix_socket(name: *const Str) -> c_int {
    // SAFETY: the caller has the text, and the bytes that it tells of.
    let name = unsafe { slice((*name).at, (*name).length) };
    number_of("leave_to_others", 0, name).unwrap_or(-1)
}

/// The functions above, so that there is something that uses them.
fn shown() -> [*const c_void; 13] {
    [
        ngx_hex_dump as *const c_void,
        ngx_atoi as *const c_void,
        ngx_hextoi as *const c_void,
        ngx_parse_time as *const c_void,
        ngx_escape_uri as *const c_void,
        ngx_murmur_hash2 as *const c_void,
        ngx_http_lua_ffi_raw_log as *const c_void,
        ngx_http_lua_ffi_get_ctx_ref as *const c_void,
        ngx_http_lua_ffi_set_ctx_ref as *const c_void,
        ngx_stream_lua_ffi_raw_log as *const c_void,
        ngx_stream_lua_ffi_get_ctx_ref as *const c_void,
        ngx_stream_lua_ffi_set_ctx_ref as *const c_void,
        ngx_lua_ffi_disable_listening_unix_socket as *const c_void,
    ]
}

extern "C" {
    /// The hook at work is over, although it has not returned (`luajit/build/hook.c`).
    fn weir_leave_hook(l: *mut lua::lua_State);
    /// The line of the call that code has come back from before the instruction at hand; 0 if it has not.
    fn weir_called_line(l: *mut lua::lua_State) -> c_int;
    /// Whether a finalizer is at work.
    fn weir_in_finalizer(l: *mut lua::lua_State) -> c_int;
}

/// So many calls of a sample are counted, from the innermost.
const SAMPLE_CALLS: c_int = 64;
/// So many calls of a place are shown.
const PLACE_CALLS: c_int = 16;
/// The chunk whose code keeps the accounts of runs (`lua/prelude.lua`).
const ACCOUNTS: &CStr = c"=weir";
/// What is raised in code that has run for too long.
const TOO_LONG: &str = "it has run for longer than lua_max_run_time without waiting";

/// Has code that runs on threads which are interrupted look at itself.
///
/// # Errors
///
/// The system has no such thing.
pub(crate) fn install_interrupts() -> io::Result<()> {
    // SAFETY: what is called calls what LuaJIT says may be called from the handler of a signal.
    unsafe { interrupt::install(on_interrupt) }
}

/// Between two instructions of the thread: the state that runs there is given a hook, which comes before its next instruction.
/// Where this has interrupted LuaJIT itself in the same thing, the hook may be lost; whoever interrupts does so again.
extern "C" fn on_interrupt(state: *mut c_void) {
    let state = state.cast::<lua::lua_State>();
    // SAFETY: the state is the one that runs on a thread which does nothing else meanwhile; `lua_sethook` may be called
    // from handlers: it writes to the state, and neither allocates nor locks.
    unsafe {
        // All over again, whatever was there.
        lua::lua_sethook(state, None, 0, 0);
        lua::lua_sethook(state, Some(hook), lua::LUA_MASKCOUNT, 1);
    }
}

/// Takes the hook away. Every part of the dispatch tables changes twice, so that none is left as a signal in the
/// midst of their making had left it.
///
/// # Safety
///
/// The state is this thread's; not to be called by a handler.
unsafe fn disarm(l: *mut lua::lua_State) {
    const ALL: c_int =
        lua::LUA_MASKCALL | lua::LUA_MASKRET | lua::LUA_MASKLINE | lua::LUA_MASKCOUNT;
    interrupt::forget();
    ENDS.set(false);
    // SAFETY: as the caller says. No code runs between the two.
    unsafe {
        lua::lua_sethook(l, Some(hook), ALL, 1);
        lua::lua_sethook(l, None, 0, 0);
    }
}

/// Called before an instruction of code that has a hook. Once it is to end, all of it does: an error that it catches
/// comes again at the next instruction. Only what keeps the accounts of runs is left to do so.
unsafe extern "C-unwind" fn hook(l: *mut lua::lua_State, _: *mut lua::lua_Debug) {
    // SAFETY: the state is the running one. Errors leave a frame with nothing to drop.
    unsafe {
        if !ENDS.get() {
            take_samples(l);
            match judge_overdue(l) {
                Verdict::Ends => ENDS.set(true),
                Verdict::GoesOn => return disarm(l),
            }
        }
        if keeps_accounts(l) {
            return;
        }
        lua::luaL_where(l, 0);
        lua::lua_pushlstring(l, TOO_LONG.as_ptr().cast(), TOO_LONG.len());
        lua::lua_concat(l, 2);
        // What handles the error has a hook, too.
        weir_leave_hook(l);
        lua::lua_error(l);
    }
}

/// Whether it runs what no entry may be without.
unsafe fn keeps_accounts(l: *mut lua::lua_State) -> bool {
    // SAFETY: plain data, which is read only where it was filled; the names are the state's.
    unsafe {
        let mut at: lua::lua_Debug = std::mem::zeroed();
        lua::lua_getstack(l, 0, &mut at) != 0
            && lua::lua_getinfo(l, c"S".as_ptr(), &mut at) != 0
            && !at.source.is_null()
            && CStr::from_ptr(at.source) == ACCOUNTS
    }
}

/// Asks the host about the entry, if it is the one that has run for long.
unsafe fn judge_overdue(l: *mut lua::lua_State) -> Verdict {
    let Some(ms) = Seat::of_thread().accused_ms() else { return Verdict::GoesOn };
    let Some((host, shared)) = HOST.take() else { return Verdict::GoesOn };
    // SAFETY: as in `answer`: the host is there until `enter` returns, and was taken away. The state is the running one.
    let verdict = unsafe {
        let place = crossing::place(&calls_of(l, PLACE_CALLS - 1));
        let done = catch_unwind(AssertUnwindSafe(|| (*host).overdue(ms, &place)));
        done.unwrap_or_else(|panic| {
            (*shared).panic = Some(panic);
            Verdict::Ends
        })
    };
    HOST.set(Some((host, shared)));
    verdict
}

/// Tells the host of samples that a profile wants of this entry.
unsafe fn take_samples(l: *mut lua::lua_State) {
    let turns = Seat::of_thread().take_turns();
    if turns == 0 {
        return;
    }
    let Some((host, shared)) = HOST.take() else { return };
    // SAFETY: as in `judge_overdue`.
    unsafe {
        let stack = profile::stack(calls_of(l, SAMPLE_CALLS), SAMPLE_CALLS as usize);
        let told = catch_unwind(AssertUnwindSafe(|| (*host).sampled(turns, &stack)));
        if let Err(panic) = told {
            (*shared).panic = Some(panic);
        }
    }
    HOST.set(Some((host, shared)));
}

/// The calls of a coroutine from the innermost, and one more than so many if there are.
unsafe fn calls_of(l: *mut lua::lua_State, most: c_int) -> Vec<Call> {
    let mut calls = Vec::new();
    for level in 0..=most {
        // SAFETY: plain data, which is read only where it was filled; texts are the state's, and end with a zero.
        unsafe {
            let mut at: lua::lua_Debug = std::mem::zeroed();
            if lua::lua_getstack(l, level, &mut at) == 0
                || lua::lua_getinfo(l, c"Sln".as_ptr(), &mut at) == 0
            {
                break;
            }
            let shown = |text: *const c_char| CStr::from_ptr(text).to_string_lossy().into_owned();
            calls.push(Call {
                file: shown(at.short_src.as_ptr()),
                name: (!at.name.is_null()).then(|| shown(at.name)),
                line: at.currentline,
                begins: at.linedefined,
                back_from: if level == 0 { weir_called_line(l) } else { 0 },
            });
        }
    }
    calls
}

impl Engine {
    /// Begins a state that may take so many bytes and keeps so many coroutines. `text` is Lua code that is given the function to call, the place
    /// of its answers, a null pointer and the functions above; it answers the function that [`Engine::enter`] calls.
    pub(crate) fn new(
        (max_bytes, idle_max): (usize, usize),
        dicts: &[Arc<Dict>],
        text: &[u8],
        host: &mut dyn Host,
    ) -> Entered<Engine> {
        let memory = Bounded::new(max_bytes);
        let out = || Out { p: ptr::null(), n: 0, x: 0.0, context: 0.0 };
        let (answers, caller) = (Default::default(), ptr::null_mut());
        let shared = Shared {
            outs: [out(), out()],
            answers,
            main: ptr::null_mut(),
            dicts: dicts.to_vec(),
            memory,
            panic: None,
            caller,
            is_busy: false,
            running: lua::LUA_REFNIL,
            kept: Vec::new(),
            idle: Vec::new(),
            freed: Vec::new(),
            scratch: Vec::new(),
        };
        let shared = Box::into_raw(Box::new(shared));
        // SAFETY: the memory's place is given to the state, which is closed before it is freed (`Drop`).
        let state = unsafe {
            let memory = ptr::addr_of_mut!((*shared).memory).cast::<c_void>();
            lua::lua_newstate(allocate, memory)
        };
        // SAFETY: nobody else has it yet.
        unsafe { (*shared).main = state };
        let mut engine = Engine {
            state,
            shared,
            entry: 0,
            seat: Seat::of_thread(),
            idle_max,
            is_spent: Cell::new(false),
        };
        if state.is_null() {
            return Err(Failure::Memory);
        }
        std::hint::black_box(shown());
        let mut with = Boot { text, name: b"=weir\0", shared, entry: 0 };
        // SAFETY: the state is this engine's and not in use; `with` outlives the call.
        let boot = || unsafe { lua::lua_cpcall(state, boot, ptr::addr_of_mut!(with).cast()) };
        let status = engine.lend(host, boot);
        engine.judge(state, status)?;
        engine.entry = with.entry;
        Ok(engine)
    }

    /// Calls `f` with the host lent to what Lua calls.
    fn lend<T>(&self, host: &mut dyn Host, f: impl FnOnce() -> T) -> T {
        let host: *mut dyn Host = host;
        // SAFETY: only the lifetime is taken away. The pointer is gone from `HOST` before this function returns,
        // and the host is borrowed until then.
        let host: *mut (dyn Host + 'static) = unsafe { std::mem::transmute(host) };
        let before = HOST.replace(Some((host, self.shared)));
        // SAFETY: no reference to it is held here; Lua knows where it is.
        let context = unsafe { ptr::addr_of_mut!((*self.shared).outs[0].context) };
        // SAFETY: it lives as long as the engine.
        let context_before = unsafe { context.replace(0.0) };
        let value = f();
        // SAFETY: the same.
        unsafe { context.write(context_before) };
        HOST.set(before);
        value
    }

    /// What a protected call has come to. An error is on top of the stack.
    fn judge(&self, l: *mut lua::lua_State, status: c_int) -> Entered<()> {
        // SAFETY: no operation is at work, so that nobody else uses `shared`.
        if let Some(panic) = unsafe { (*self.shared).panic.take() } {
            resume_unwind(panic);
        }
        match status {
            lua::LUA_OK => Ok(()),
            lua::LUA_ERRMEM => Err(Failure::Memory),
            // SAFETY: the state is the one that was called.
            _ => Err(Failure::Error(unsafe { text_at(l, -1) })),
        }
    }

    /// Calls the entry with three numbers; the number that it answers. Texts are asked for by Lua.
    ///
    /// # Errors
    ///
    /// Lua has failed, or runs and cannot be entered from where it has called.
    pub(crate) fn enter(&self, host: &mut dyn Host, what: i32, x: f64, y: f64) -> Entered<i32> {
        let place = self.place()?;
        let entry = self.entry;
        let call = |l| {
            // SAFETY: `l` has room. Numbers take no memory, and the call is protected.
            unsafe {
                lua::lua_rawgeti_(l, lua::LUA_REGISTRYINDEX, entry);
                lua::lua_pushnumber(l, f64::from(what));
                lua::lua_pushnumber(l, x);
                lua::lua_pushnumber(l, y);
                lua::lua_pcall(l, 3, 1, 0)
            }
        };
        let done = self.protected(host, place, call);
        Ok(self.taken(done)? as i32)
    }

    /// The coroutine that a call from Rust is made on.
    fn place(&self) -> Entered<Place> {
        // SAFETY: fields are read; no reference to `shared` is held elsewhere.
        let (caller, is_busy) = unsafe { ((*self.shared).caller, (*self.shared).is_busy) };
        match (Engine::runs_here(), caller.is_null()) {
            (true, true) => Err(Failure::Error("Lua runs already".to_owned())),
            // Code of a filter, or of a subrequest.
            (true, _) if !stack::has_room() => Err(Failure::Error("C stack overflow".to_owned())),
            (true, false) if is_busy => Ok((caller, false)),
            // The first coroutine has nothing to do, or Lua does not run.
            _ => Ok((self.state, true)),
        }
    }

    /// Lua runs from now on; whether it has done so before. Code of a subrequest runs on its own account.
    #[inline]
    fn begin_running(&self) -> Running {
        let is_within = Engine::runs_here();
        let on_account = !is_within || self.seat.is_left();
        if on_account {
            self.seat.begin();
        }
        if !is_within {
            interrupt::begin(self.state.cast());
        }
        (is_within, on_account)
    }

    /// It has returned to where it was called from. After an error the run is still there, and all that it has.
    #[inline]
    fn end_running(&self, (is_within, on_account): Running, is_well: bool) {
        if is_within {
            if on_account {
                self.seat.end();
            }
            return;
        }
        if is_well {
            self.make_room(false);
        }
        interrupt::end();
        self.seat.end();
        if interrupt::is_told() {
            // SAFETY: the state is this engine's and not in use.
            unsafe { disarm(self.state) };
        }
    }

    /// A run has failed: what it has had is garbage.
    pub(crate) fn recover(&self) {
        self.let_go();
        if !Engine::runs_here() {
            self.make_room(true);
        }
    }

    /// Calls `f`, which leaves one value or an error on top of the stack.
    fn protected(
        &self,
        host: &mut dyn Host,
        (l, is_first): Place,
        f: impl FnOnce(*mut lua::lua_State) -> c_int,
    ) -> Done {
        let runs = self.begin_running();
        // SAFETY: the coroutine is this engine's: not in use, or the one that has called the operation at work by a
        // function of Lua's own kind and waits for it. `shared` is not borrowed.
        let (top, status) = unsafe {
            let was_busy = (*self.shared).is_busy;
            (*self.shared).is_busy |= is_first;
            let done = match lua::lua_checkstack(l, 16) {
                0 => (lua::lua_gettop(l), lua::LUA_ERRMEM),
                _ => (lua::lua_gettop(l), self.lend(host, || f(l))),
            };
            (*self.shared).is_busy = was_busy;
            done
        };
        self.end_running(runs, status == lua::LUA_OK);
        (l, top, status)
    }

    /// The number that a call has left, and the stack as it was before.
    fn taken(&self, (l, top, status): Done) -> Entered<f64> {
        let judged = self.judge(l, status);
        self.tidy();
        // SAFETY: the one result, or an error, is on top of the stack, and is taken off it.
        let answer = unsafe {
            let answer = lua::lua_tonumber(l, -1);
            lua::lua_settop(l, top);
            answer
        };
        judged.map(|()| answer)
    }

    fn tidy(&self) {
        // SAFETY: no operation of this entry is at work; one around it has its answer with it.
        let answers = unsafe { &mut (*self.shared).answers };
        for kept in answers.iter_mut().filter(|kept| kept.text.capacity() > KEPT_BYTES) {
            kept.text = Vec::new();
        }
    }

    /// The registry's number of what is kept there; 0 for nothing.
    pub(crate) fn kept(&self, at: usize) -> c_int {
        // SAFETY: `shared` lives as long as the engine, and is not borrowed while Lua does not run.
        unsafe {
            let all = &(*self.shared).kept;
            all.get(at).copied().unwrap_or(0)
        }
    }

    /// Calls code that does not wait; what it returns as a number, if it does and nothing is set by it. An error of it is
    /// told by what is kept for that.
    ///
    /// # Errors
    ///
    /// There was no memory, or Lua cannot be entered from here.
    pub(crate) fn call(&self, host: &mut dyn Host, code: usize, sets: bool) -> Entered<f64> {
        let place = self.place()?;
        let (code, failed) = (self.kept(code), self.kept(kept::FAILED));
        let (set, result) = (self.kept(kept::SET), self.kept(kept::RESULT));
        // SAFETY: `l` has room, the calls are protected, and the values are there as long as Lua is.
        let call = |l| unsafe {
            lua::lua_rawgeti_(l, lua::LUA_REGISTRYINDEX, failed);
            let handler = lua::lua_gettop(l);
            if sets {
                lua::lua_rawgeti_(l, lua::LUA_REGISTRYINDEX, set);
            }
            lua::lua_rawgeti_(l, lua::LUA_REGISTRYINDEX, code);
            let status = lua::lua_pcall(l, c_int::from(sets), 1, handler);
            if !sets || status != lua::LUA_OK || lua::lua_type(l, -1) == lua::LUA_TNIL {
                return status;
            }
            lua::lua_rawgeti_(l, lua::LUA_REGISTRYINDEX, result);
            lua::lua_insert(l, -2);
            lua::lua_pcall(l, 1, 0, handler)
        };
        let (l, top, mut status) = self.protected(host, place, call);
        // SAFETY: what has told of an error has left `true`.
        if status == lua::LUA_ERRRUN && unsafe { lua::lua_toboolean(l, -1) } == 1 {
            status = lua::LUA_OK;
        }
        self.taken((l, top, status))
    }

    /// A coroutine that nothing runs on.
    fn thread(&self, host: &mut dyn Host) -> Entered<Thread> {
        // SAFETY: `shared` is not borrowed.
        if let Some(idle) = unsafe { (*self.shared).idle.pop() } {
            return Ok(idle);
        }
        let place = self.place()?;
        let entries = self.kept(kept::ENTRIES);
        let mut with = Making { entries, state: ptr::null_mut(), reference: 0 };
        let place_of = ptr::addr_of_mut!(with).cast();
        // SAFETY: the call is protected, and `with` outlives it.
        let call = |l| unsafe { lua::lua_cpcall(l, make_thread, place_of) };
        let done = self.protected(host, place, call);
        self.taken(done)?;
        Ok(Thread { state: with.state, reference: with.reference })
    }

    /// Begins code on a coroutine, and goes on until it first waits.
    pub(crate) fn begin(
        &self,
        host: &mut dyn Host,
        code: usize,
    ) -> Entered<(Thread, Entered<Went>)> {
        self.let_go();
        self.place()?;
        let thread = self.thread(host)?;
        let code = self.kept(code);
        // SAFETY: the coroutine is new or has ended, and has room.
        unsafe {
            lua::lua_settop(thread.state, 0);
            lua::lua_rawgeti_(thread.state, lua::LUA_REGISTRYINDEX, code);
        }
        let went = self.go_on(host, &thread, 0);
        Ok((thread, went))
    }

    /// Lets a coroutine go on that has waited, with the values of an answer.
    pub(crate) fn resume(
        &self,
        host: &mut dyn Host,
        thread: &Thread,
        values: Option<&Values<'_>>,
    ) -> Entered<Went> {
        let co = thread.state;
        // SAFETY: what it has yielded has been looked at.
        unsafe { lua::lua_settop(co, 0) };
        let Some(values) = values else { return self.go_on(host, thread, 0) };
        if matches!(values.code, code::NIL | code::TRUE | code::FALSE | code::NUMBER) {
            // SAFETY: these take no memory, and the coroutine has room for one.
            let n = unsafe { push_values(co, values.code, values.x, &[]) };
            return self.go_on(host, thread, n);
        }
        let place = self.place()?;
        let of = ptr::from_ref(values).cast_mut().cast::<c_void>();
        let mut n = 0;
        // SAFETY: the call is protected; `values` outlives it. What it leaves goes to the coroutine, if there is room.
        let call = |l| unsafe {
            let top = lua::lua_gettop(l);
            lua::lua_pushcclosure(l, push_protected, 0);
            lua::lua_pushlightuserdata(l, of);
            let status = lua::lua_pcall(l, 1, lua::LUA_MULTRET, 0);
            if status != lua::LUA_OK {
                return status;
            }
            n = lua::lua_gettop(l) - top;
            if lua::lua_checkstack(co, n + 1) == 0 {
                return lua::LUA_ERRMEM;
            }
            lua::lua_xmove(l, co, n);
            lua::LUA_OK
        };
        let done = self.protected(host, place, call);
        self.taken(done)?;
        self.go_on(host, thread, n)
    }

    fn go_on(&self, host: &mut dyn Host, thread: &Thread, n: c_int) -> Entered<Went> {
        // Who runs and cannot be entered is not left either.
        self.place()?;
        let co = thread.state;
        let runs = self.begin_running();
        // SAFETY: the coroutine is this engine's and does not run; resuming is protected. Nothing of `shared` is
        // borrowed meanwhile.
        let status = unsafe {
            let before = std::mem::replace(&mut (*self.shared).running, thread.reference);
            let status = self.lend(host, || lua::lua_resume_(co, n));
            (*self.shared).running = before;
            status
        };
        self.end_running(runs, matches!(status, lua::LUA_OK | lua::LUA_YIELD));
        self.tidy();
        // SAFETY: no operation is at work, so that nobody else uses `shared`.
        if let Some(panic) = unsafe { (*self.shared).panic.take() } {
            resume_unwind(panic);
        }
        match status {
            lua::LUA_OK => Ok(Went::Ended),
            // SAFETY: values that it has yielded are looked at.
            lua::LUA_YIELD => Ok(unsafe {
                match lua::lua_type(co, 1) {
                    lua::LUA_TLIGHTUSERDATA if lua::lua_touserdata(co, 1) == MARK => {
                        Went::Waits(lua::lua_tonumber(co, 2) as u64)
                    }
                    lua::LUA_TLIGHTUSERDATA if lua::lua_touserdata(co, 1) == LEAVE => Went::Left,
                    _ => Went::Yielded,
                }
            }),
            lua::LUA_ERRMEM => Err(Failure::Memory),
            _ => Ok(Went::Failed),
        }
    }

    /// Calls a function that is kept with a coroutine, a number, and its error if it has one; or the entry with a
    /// number and those.
    fn call_with(
        &self,
        host: &mut dyn Host,
        function: c_int,
        numbers: &[f64],
        thread: &Thread,
        has_failed: bool,
    ) -> Entered<i32> {
        let place = self.place()?;
        // SAFETY: `l` has room; the call is protected. The error is on top of the coroutine's stack.
        let call = |l| unsafe {
            lua::lua_rawgeti_(l, lua::LUA_REGISTRYINDEX, function);
            for number in numbers {
                lua::lua_pushnumber(l, *number);
            }
            lua::lua_rawgeti_(l, lua::LUA_REGISTRYINDEX, thread.reference);
            match has_failed {
                true => lua::lua_xmove(thread.state, l, 1),
                false => lua::lua_pushnil(l),
            }
            lua::lua_pcall(l, numbers.len() as c_int + 2, 1, 0)
        };
        let done = self.protected(host, place, call);
        Ok(self.taken(done)? as i32)
    }

    /// Has Lua tell of the error that has ended a coroutine.
    pub(crate) fn tell_aborted(&self, host: &mut dyn Host, thread: &Thread) -> Entered<()> {
        self.call_with(host, self.kept(kept::ABORTED), &[], thread, true).map(drop)
    }

    /// Lua goes on with a coroutine, and with what its code has begun besides; what it answers.
    pub(crate) fn hand_over(
        &self,
        host: &mut dyn Host,
        what: i32,
        run: u64,
        thread: &Thread,
        went: Went,
    ) -> Entered<i32> {
        let numbers = [f64::from(what), went.number(), run as f64];
        self.call_with(host, self.entry, &numbers, thread, went == Went::Failed)
    }

    /// A coroutine has ended: it serves again.
    pub(crate) fn put_back(&self, thread: Thread) {
        // SAFETY: `shared` is not borrowed.
        let idle = unsafe { &mut (*self.shared).idle };
        if idle.len() < self.idle_max {
            idle.push(thread);
        } else {
            self.release(thread);
        }
    }

    /// Nobody goes on with a coroutine any more.
    pub(crate) fn release(&self, thread: Thread) {
        // SAFETY: `shared` is not borrowed. The registry is left alone until Lua does not run.
        unsafe { (*self.shared).freed.push(thread.reference) };
    }

    /// Has what nobody needs collected, if Lua does not run.
    fn let_go(&self) {
        // SAFETY: Lua does not run; taking an entry out of the registry takes no memory.
        unsafe {
            while let (false, Some(reference)) = (Engine::runs_here(), (*self.shared).freed.pop()) {
                lua::luaL_unref(self.state, lua::LUA_REGISTRYINDEX, reference);
            }
        }
    }

    /// The context of that number is of no use any more. Lua must not run.
    pub(crate) fn forget_context(&self, id: i64) {
        let (l, contexts) = (self.state, self.kept(kept::CONTEXTS));
        if contexts == 0 || Engine::runs_here() {
            return;
        }
        // SAFETY: Lua does not run; there is room for four values. What is there is taken out, which takes no memory.
        unsafe {
            let top = lua::lua_gettop(l);
            lua::lua_rawgeti_(l, lua::LUA_REGISTRYINDEX, contexts);
            lua::lua_pushnumber(l, id as f64);
            lua::lua_rawget(l, -2);
            if lua::lua_type(l, -1) != lua::LUA_TNIL {
                lua::lua_settop(l, -2);
                lua::lua_pushnumber(l, id as f64);
                lua::lua_pushnil(l);
                lua::lua_rawset(l, -3);
            }
            lua::lua_settop(l, top);
        }
    }

    /// Calls the entry for an end that must not fail: however little memory there is.
    pub(crate) fn enter_at_end(&self, host: &mut dyn Host, what: i32, id: f64) {
        // SAFETY: it lives as long as the engine; a cell of it is read and written.
        let memory = unsafe { &(*self.shared).memory };
        let before = memory.max();
        memory.set_max(before.saturating_add(ROOM_BYTES));
        let _ = self.enter(host, what, id, id);
        memory.set_max(before);
        if !Engine::runs_here() {
            self.make_room(false);
        }
    }

    /// Whether it has no memory to go on with: code keeps what there was.
    pub(crate) fn is_spent(&self) -> bool {
        self.is_spent.get()
    }

    /// Whether Lua runs on this thread.
    pub(crate) fn runs_here() -> bool {
        interrupt::runs_here()
    }

    /// LuaJIT fails where memory is refused, however much of it is garbage, and by itself collects that only when
    /// there is twice as much as was left the last time. Where that may be more than there is, it is helped.
    fn make_room(&self, has_failed: bool) {
        // SAFETY: cells are read and written; no operation is at work.
        let memory = unsafe { &(*self.shared).memory };
        let max = memory.max();
        if max == usize::MAX {
            return;
        }
        let how = match memory.take_refused() || has_failed && memory.used() > max / 2 {
            true => lua::LUA_GCCOLLECT,
            false if memory.used() > max / 2 => lua::LUA_GCSTEP,
            false => return,
        };
        // The call itself takes some; finalizers of code's must not take all there is.
        memory.set_max(max.saturating_add(ROOM_BYTES));
        for _ in 0..COLLECTIONS_MAX {
            // SAFETY: the state is this engine's and not in use; an error of a finalizer's stays within. There is
            // nothing to be done about one, nor left of it.
            unsafe {
                let how_at = ptr::without_provenance_mut(how as usize);
                let top = lua::lua_gettop(self.state);
                lua::lua_cpcall(self.state, collect, how_at);
                lua::lua_settop(self.state, top);
            }
            // An error of a finalizer has ended it, and what that has made is garbage as well.
            if !memory.take_refused() {
                break;
            }
        }
        memory.set_max(max);
        if how == lua::LUA_GCCOLLECT {
            self.is_spent.set(memory.used() > max / 4 * 3);
        }
    }
}

impl Drop for Engine {
    fn drop(&mut self) {
        if !self.state.is_null() {
            let state = self.state;
            // SAFETY: the state is not in use; errors of finalizers stay within.
            self.lend(&mut crossing::Nobody, || unsafe { lua::lua_close(state) });
        }
        // SAFETY: made by `Box::into_raw`; the state that knew of it is closed.
        drop(unsafe { Box::from_raw(self.shared) });
    }
}
