//! Variables, captures, and what `ngx.arg` is about.

use crate::crossing::{Answer, Args};
use crate::machine::{code, OpRow, State};
use crate::run::context::{ANY, BODY, REQUEST, SET};
use std::rc::Rc;
use weir_core::session::Part;
use weir_core::variables::{Named, VarArg};
use weir_core::Session;

pub(super) const OPS: &[OpRow] = &[
    OpRow::either("var", REQUEST, var, |s, args, answer| {
        crate::stream::count(s);
        var(s, args, answer)
    }),
    OpRow::either("set_var", REQUEST, set_var, set_var),
    OpRow::either("unset_var", REQUEST, unset_var, unset_var),
    OpRow::either("capture", REQUEST, capture, capture),
    OpRow::any("arg", SET | BODY, arg),
    OpRow::any("set_arg", BODY, set_arg),
    OpRow::any("set_args", ANY, set_args),
    OpRow::any("result", ANY, result),
];

fn var<S: Session>(r: &mut S, args: &Args<'_>, answer: &mut Answer) -> i32 {
    let found = match args.a.iter().any(u8::is_ascii_uppercase) {
        true => r.var_named(&args.a.to_ascii_lowercase(), &mut answer.text),
        false => r.var_named(args.a, &mut answer.text),
    };
    if found {
        code::TEXT
    } else {
        code::NIL
    }
}

fn set_var<S: Session>(r: &mut S, args: &Args<'_>, answer: &mut Answer) -> i32 {
    assign(r, args.a, Some(args.b), answer)
}

fn unset_var<S: Session>(r: &mut S, args: &Args<'_>, answer: &mut Answer) -> i32 {
    assign(r, args.a, None, answer)
}

fn assign<S: Session>(r: &mut S, name: &[u8], value: Option<&[u8]>, answer: &mut Answer) -> i32 {
    let shown = String::from_utf8_lossy(name);
    let name = name.to_ascii_lowercase();
    let part = Rc::clone(r.part());
    let vars = part.registry();
    match vars.find(&name) {
        Some(Named::Number(id)) => {
            if !vars.is_changeable(&name) {
                return answer.raise(format!("variable \"{shown}\" not changeable"));
            }
            match value {
                Some(value) => r.set_var(id, value),
                None => r.unset_var(id),
            }
            code::TRUE
        }
        Some(Named::Getter(..)) => if let Some(set) = vars.setter(&name) {
            set(r, &VarArg::default(), value.unwrap_or_default());
            code::TRUE
        } else { answer.raise(format!("variable \"{shown}\" not changeable")) },
        None => answer.raise(format!("variable \"{shown}\" not found for writing; maybe it is a built-in variable that is not changeable or you forgot to use \"set ${shown} '';\" in the config file to define it first")),
    }
}

fn capture<S: Session>(r: &mut S, args: &Args<'_>, answer: &mut Answer) -> i32 {
    match r.values().captures.get(args.i as usize) {
        Some(text) => answer.text(text),
        None => code::NIL,
    }
}

fn arg(state: &mut State<'_>, args: &Args<'_>, answer: &mut Answer) -> i32 {
    if state.run.context == BODY {
        return match args.i {
            1 => answer.text(&state.run.piece.text),
            2 if state.run.piece.last => code::TRUE,
            2 => code::FALSE,
            _ => code::NIL,
        };
    }
    match (args.i as usize).checked_sub(1).and_then(|at| state.run.args.get(at)) {
        Some(text) => answer.text(text),
        None => code::NIL,
    }
}

fn set_arg(state: &mut State<'_>, args: &Args<'_>, _: &mut Answer) -> i32 {
    let piece = &mut state.run.piece;
    piece.is_set = true;
    match args.i {
        1 => piece.text = args.a.to_vec(),
        _ => piece.last = !args.a.is_empty(),
    }
    code::TRUE
}

fn set_args(state: &mut State<'_>, _: &Args<'_>, answer: &mut Answer) -> i32 {
    let mut list = answer.list();
    for text in &state.run.args {
        list.text(text);
    }
    code::LIST
}

fn result(state: &mut State<'_>, args: &Args<'_>, _: &mut Answer) -> i32 {
    state.run.result = Some(args.a.to_vec());
    code::TRUE
}
