//! What serves one client's question: an HTTP request, a stream session.
//!
//! What several protocols have (variables, strings with variables, regular expressions, lines of the
//! error log) is written once over [`Session`]. Everything is monomorphic: over a request a getter is
//! called as if it had been written for requests.

use crate::generation::{Generation, Virtual};
use crate::logger::{ErrorLog, LogLevel};
use crate::registry::VarRegistry;
use crate::unknown::{FAILED, GUESSED, SUBJECT_SHOWN_BYTES};
use crate::values::{Slot, Values};
use crate::variables::{Named, VarDef};
use crate::{ClientAddr, Connection};
use std::any::Any;
use std::rc::Rc;
use std::sync::Arc;
use weir_module::{Cf, ConfType, Context, Slots};
use weir_script::regex::{MatchError, Regex};
use weir_script::template::{Env, Template, VarId};

/// What a worker holds of one protocol's part of a generation.
pub trait Part<S> {
    /// The generation that it is a part of.
    fn core(&self) -> &Arc<Generation>;
    /// The slots of the protocol's outermost block.
    fn main(&self) -> &Slots;
    /// The variables by their numbers.
    fn vars(&self) -> &[VarDef<S>];
    /// Finds variables by their names, which a session may bring along.
    fn registry(&self) -> &VarRegistry<S>;
}

/// One client's question, and what is known for it.
pub trait Session: Sized + 'static {
    /// What its worker has of the protocol's part of a generation.
    type Part: Part<Self>;

    /// The protocol's outermost block (`http`, `stream`), where the rows of its main level stand.
    const BLOCK: Context;

    /// All of its levels that sessions are served by: `http`, `server` and `location`, or `stream` and
    /// its `server`. A slot of the location level stands at each of them.
    const LEVELS: Context;

    /// The registry of the block being read.
    fn registry(cf: &mut Cf) -> &mut VarRegistry<Self>;

    /// The part of the configuration that serves it.
    fn part(&self) -> &Rc<Self::Part>;

    /// Its variables' kept values.
    fn values(&self) -> &Values;
    /// For who changes them; getters and setters do it by the functions below.
    fn values_mut(&mut self) -> &mut Values;

    /// The connection that it is on.
    fn conn(&self) -> &Rc<Connection>;

    /// The server that answers, as far as its connection is concerned.
    fn base(&self) -> &Arc<Virtual>;

    /// The client's address as the session sees it.
    fn client(&self) -> ClientAddr;

    /// The same as text: `$remote_addr`.
    fn client_text(&self) -> &[u8];

    /// Another address than the connection's.
    fn set_client(&mut self, client: ClientAddr);

    /// The error log in force for it.
    fn error_log(&self) -> &ErrorLog;

    /// What nginx writes behind the text of a line about it: `, client: …`.
    fn write_log_context(&self, line: &mut Vec<u8>);

    /// Hands on what a module is told where the session is: in its location, or its server.
    fn with_conf<T: ConfType, R>(&mut self, f: impl FnOnce(&mut Self, &T) -> R) -> R;

    /// What a module has kept with the session until it is over.
    fn kept<T: Any>(&mut self) -> Option<&mut T>;
    /// Keeps it, in the place of another of the same type.
    fn keep_state<T: Any>(&mut self, value: T);

    /// Whether nothing can fail any more: it is answered, or being logged.
    fn is_answered(&self) -> bool;

    // --- the error log ---

    /// To be asked before a line is made that costs something.
    fn log_enabled(&self, level: LogLevel) -> bool {
        self.error_log().enabled(level)
    }

    /// Logs with the session's context behind the text, as nginx does.
    #[cold]
    fn log(&self, level: LogLevel, text: &str) {
        if self.log_enabled(level) {
            self.log_bytes(level, text.as_bytes());
        }
    }

    /// The same.
    #[cold]
    fn log_bytes(&self, level: LogLevel, text: &[u8]) {
        if !self.log_enabled(level) {
            return;
        }
        let mut line = text.to_vec();
        self.write_log_context(&mut line);
        self.error_log().log(level, Some(self.conn().serial), &line);
    }

    /// The same of a text of several lines, whose line ends stay.
    #[cold]
    fn log_lines(&self, level: LogLevel, text: &[u8]) {
        if !self.log_enabled(level) {
            return;
        }
        let mut line = text.to_vec();
        self.write_log_context(&mut line);
        self.error_log().log_lines(level, Some(self.conn().serial), &line);
    }

    // --- variables ---

    /// Appends a variable's value; `false` when it has none.
    fn var(&mut self, id: VarId, out: &mut Vec<u8>) -> bool {
        self.values_mut().is_computed = true;
        let n = id.0 as usize;
        match self.values().get(n) {
            Slot::Value { start, len } => {
                out.extend_from_slice(self.values().text(start, len));
                return true;
            }
            Slot::Missing => return false,
            Slot::Unknown => {
                self.fail_again();
                return false;
            }
            Slot::Guess { start, len } => {
                out.extend_from_slice(self.values().text(start, len));
                self.values().unknown.note(GUESSED);
                return true;
            }
            Slot::Empty => {}
        }
        let part = Rc::clone(self.part());
        let def = &part.vars()[n];
        let start = out.len();
        let before = self.values().unknown.take();
        let found = (def.get)(self, &def.arg, out);
        let certainty = self.values().unknown.put_back(before);
        if def.cached {
            self.values_mut().keep(n, found.then_some(&out[start..]), certainty);
        }
        found
    }

    /// Appends the value of a variable that is named at run time, in lower case; `false` when there
    /// is none.
    fn var_named(&mut self, name: &[u8], out: &mut Vec<u8>) -> bool {
        self.values_mut().is_computed = true;
        let part = Rc::clone(self.part());
        match part.registry().find(name) {
            Some(Named::Number(id)) => self.var(id, out),
            Some(Named::Getter(get, arg)) => get(self, &arg, out),
            None => false,
        }
    }

    /// A variable's value; `None` when it has none.
    fn var_value(&mut self, id: VarId) -> Option<Vec<u8>> {
        let mut out = Vec::new();
        self.var(id, &mut out).then_some(out)
    }

    /// Sets a variable: by its own setter when it has one, otherwise by keeping the value.
    fn set_var(&mut self, id: VarId, value: &[u8]) {
        let part = Rc::clone(self.part());
        let def = &part.vars()[id.0 as usize];
        match def.set {
            Some(set) => set(self, &def.arg, value),
            None => self.store_var(id.0 as usize, Some(value)),
        }
    }

    /// Takes a variable's value away; one with a setter is set to nothing.
    fn unset_var(&mut self, id: VarId) {
        match self.part().vars()[id.0 as usize].set {
            Some(_) => self.set_var(id, b""),
            None => self.store_var(id.0 as usize, None),
        }
    }

    /// Keeps a value without asking the variable's setter.
    fn store_var(&mut self, n: usize, value: Option<&[u8]>) {
        let slot = match value {
            _ if self.match_failed() && !self.is_answered() => Slot::Unknown,
            None => Slot::Missing,
            Some(value) => {
                let (start, len) = self.values_mut().store(value);
                Slot::Value { start, len }
            }
        };
        self.values_mut().set(n, slot);
    }

    /// Forgets a kept value, so that the next use evaluates it again.
    fn flush_var(&mut self, id: VarId) {
        self.values_mut().flush(id.0 as usize);
    }

    /// Whether a variable was evaluated: only then may text that it brought along be anywhere.
    fn is_computed(&self) -> bool {
        self.values().is_computed
    }

    // --- strings with variables ---

    /// Evaluates a compiled string onto the end of `out`.
    fn eval_into(&mut self, template: &Template, out: &mut Vec<u8>) {
        template.eval(&mut Evaluated(self), out);
    }

    /// [`Session::eval_into`] a buffer of its own.
    fn eval(&mut self, template: &Template) -> Vec<u8> {
        let mut out = Vec::new();
        self.eval_into(template, &mut out);
        out
    }

    /// nginx's truth: a value that is neither empty nor `0`.
    fn is_true(&mut self, template: &Template) -> bool {
        let value = self.eval(template);
        !(value.is_empty() || value == b"0")
    }

    /// A size from a string with variables; what is no size is told of and counts as none.
    #[inline(never)]
    fn eval_size(&mut self, template: &Template) -> u64 {
        let text = self.eval(template);
        weir_base::units::parse_size(&text).unwrap_or_else(|| {
            self.log_bytes(LogLevel::Error, &[b"invalid size \"", &text[..], b"\""].concat());
            0
        })
    }

    // --- matches that are given up ---

    /// Whether a match was given up and the session has not been ended for it yet.
    #[inline]
    fn match_failed(&self) -> bool {
        self.values().unknown.is_failed()
    }

    /// Notes that a value could not be told: asked for again, or made in another session.
    #[cold]
    fn fail_again(&self) {
        self.values().unknown.note(FAILED);
    }

    /// What `f` makes, and whether it could be told: neither was a match given up, nor a default
    /// taken in place of one. What was given up is noted no further: that is the caller's now.
    fn certain<T>(&mut self, f: impl FnOnce(&mut Self) -> T) -> (T, bool) {
        let before = self.values().unknown.take();
        let value = f(self);
        (value, self.values().unknown.replace(before))
    }

    /// The result of a match; that it was given up is logged and noted.
    ///
    /// # Errors
    ///
    /// As `found`.
    fn judge_match(
        &self,
        found: Result<bool, MatchError>,
        regex: &Regex,
        subject: &[u8],
    ) -> Result<bool, MatchError> {
        found.inspect_err(|e| fail_match(self, &e.to_string(), regex, subject))
    }
}

#[cold]
fn fail_match<S: Session>(s: &S, why: &str, regex: &Regex, subject: &[u8]) {
    s.values().unknown.note(FAILED);
    let shown = &subject[..subject.len().min(SUBJECT_SHOWN_BYTES)];
    let more: &[u8] = if shown.len() < subject.len() { b"..." } else { b"" };
    let parts = [why.as_bytes(), b" on \"", shown, more, b"\" using \"", regex.pattern(), b"\""];
    s.log_bytes(LogLevel::Alert, &parts.concat());
}

/// A session as strings see it.
pub(crate) struct Evaluated<'a, S>(pub &'a mut S);

impl<S: Session> Env for Evaluated<'_, S> {
    fn var(&mut self, id: VarId, out: &mut Vec<u8>) {
        self.0.var(id, out);
    }

    fn capture(&mut self, n: usize, out: &mut Vec<u8>) {
        self.0.values_mut().is_computed = true;
        if let Some(text) = self.0.values().captures.get(n) {
            out.extend_from_slice(text);
        }
    }
}
