//! The commands, and those of them that are short: `echo`, `config`, `set`, `block`.

use bytes::Bytes;
use weir_base::escape::{escape_html, escape_uri, EscapeKind};
use weir_core::logger::LogLevel;
use weir_core::Session;
use weir_http::module::{FilterError, FilterResult, Next};
use weir_http::Request;
use weir_script::ssi::condition::in_lower_case;
use weir_script::ssi::Command;

use super::page::PageRef;
use super::{conditions, include, strings, Branch, Encoding, SsiLoc, State, TimeFormat};

/// Why a command was not carried out.
pub enum Fault {
    /// The page says so in its place.
    Command,
    /// As `Command`: a value could not be told. The log says which expression was given up.
    Unsure,
    /// The response cannot go on.
    Broken(FilterError),
}

impl Fault {
    /// A fault of the page's, with a line for the log.
    pub fn said(r: &Request, text: &[u8]) -> Fault {
        r.log_bytes(LogLevel::Error, text);
        Fault::Command
    }
}

/// The values of a command's parameters, in the order of its row.
pub struct Params<'a>([Option<&'a [u8]>; 5]);

impl<'a> Params<'a> {
    pub fn get(&self, n: usize) -> Option<&'a [u8]> {
        self.0.get(n).copied().flatten()
    }

    /// One that the row says must be there.
    pub fn must(&self, n: usize) -> &'a [u8] {
        self.get(n).unwrap_or_default()
    }
}

type Run = fn(&mut Request, &mut State, &Params<'_>, Next) -> Result<(), Fault>;

struct Spec {
    name: &'static [u8],
    /// Names, and whether they must be there.
    params: &'static [(&'static str, bool)],
    /// Which `if` it must be in, at most.
    within: Branch,
    run: Run,
}

const COMMANDS: &[Spec] = &[
    Spec {
        name: b"include",
        params: &[
            ("virtual", false),
            ("file", false),
            ("wait", false),
            ("set", false),
            ("stub", false),
        ],
        within: Branch::None,
        run: include::run,
    },
    Spec {
        name: b"echo",
        params: &[("var", true), ("default", false), ("encoding", false)],
        within: Branch::None,
        run: echo,
    },
    Spec {
        name: b"config",
        params: &[("errmsg", false), ("timefmt", false)],
        within: Branch::None,
        run: config,
    },
    Spec {
        name: b"set",
        params: &[("var", true), ("value", true)],
        within: Branch::None,
        run: set,
    },
    Spec { name: b"if", params: &[("expr", true)], within: Branch::None, run: conditions::begin },
    Spec { name: b"elif", params: &[("expr", true)], within: Branch::If, run: conditions::choose },
    Spec { name: b"else", params: &[], within: Branch::If, run: conditions::otherwise },
    Spec { name: b"endif", params: &[], within: Branch::Else, run: conditions::end },
    Spec { name: b"block", params: &[("name", true)], within: Branch::None, run: block },
    Spec { name: END_BLOCK, params: &[], within: Branch::None, run: end_block },
];

const END_BLOCK: &[u8] = b"endblock";

/// Carries out a command where it stands.
pub fn run(r: &mut Request, state: &mut State, command: &Command<'_>, next: Next) -> FilterResult {
    match try_run(r, state, command, next) {
        Ok(()) => Ok(()),
        Err(Fault::Broken(e)) => Err(e),
        Err(Fault::Command | Fault::Unsure) => {
            fail(r, state);
            Ok(())
        }
    }
}

/// Says in the page that a command has failed.
pub fn fail(r: &Request, state: &mut State) {
    if !*r.loc().conf::<SsiLoc>().silent_errors {
        state.out.copy(&state.error_text);
    }
}

fn try_run(
    r: &mut Request,
    state: &mut State,
    command: &Command<'_>,
    next: Next,
) -> Result<(), Fault> {
    let name = command.name();
    let Some(spec) = COMMANDS.iter().find(|spec| spec.name == name) else {
        if state.shown {
            return Err(wrong(r, "invalid SSI command:", command));
        }
        return Ok(());
    };
    if !state.shown && spec.name != END_BLOCK {
        if state.in_block {
            let mut text = Vec::new();
            command.write(&mut text);
            state.hidden(&text);
            return Ok(());
        }
        if spec.within == Branch::None {
            return Ok(());
        }
    }
    let within = spec.within;
    if within != Branch::None && (state.branch == Branch::None || state.branch > within) {
        return Err(wrong(r, "invalid context of SSI command:", command));
    }
    let params = params(r, spec, command)?;
    (spec.run)(r, state, &params, next)
}

fn wrong(r: &Request, text: &str, command: &Command<'_>) -> Fault {
    Fault::said(r, &[text.as_bytes(), b" \"", command.name(), b"\""].concat())
}

fn params<'a>(r: &Request, spec: &Spec, command: &Command<'a>) -> Result<Params<'a>, Fault> {
    let mut all = Params([None; 5]);
    let fault = |before: &[u8], name: &[u8], after: &[u8]| {
        let text = [before, b" \"", name, b"\" ", after, b"in \"", spec.name, b"\" SSI command"];
        Fault::said(r, &text.concat())
    };
    for (key, value) in command.params() {
        let Some(at) = spec.params.iter().position(|p| p.0.as_bytes() == key) else {
            return Err(fault(b"invalid parameter name:", key, b""));
        };
        if all.0[at].replace(value).is_some() {
            return Err(fault(b"duplicate", key, b"parameter "));
        }
    }
    match spec.params.iter().zip(all.0).find(|(p, value)| p.1 && value.is_none()) {
        Some((p, _)) => Err(fault(b"mandatory", p.0.as_bytes(), b"parameter is absent ")),
        None => Ok(all),
    }
}

fn echo(r: &mut Request, state: &mut State, params: &Params<'_>, _: Next) -> Result<(), Fault> {
    let named = match params.get(2) {
        None => Some(state.encoding),
        Some(b"none") => Some(Encoding::None),
        Some(b"url") => Some(Encoding::Url),
        Some(b"entity") => Some(Encoding::Entity),
        Some(_) => None,
    };
    let encoding = named.unwrap_or(state.encoding);
    let is_said = write_value(r, &state.page, params, encoding, state.out.room())?;
    match (is_said, named, params.get(2)) {
        (true, Some(named), _) => state.encoding = named,
        (true, None, Some(other)) => {
            let text = [b"unknown encoding \"", other, b"\" in the \"echo\" command"].concat();
            r.log_bytes(LogLevel::Error, &text);
        }
        _ => {}
    }
    Ok(())
}

/// Appends what `echo` shows; whether that is anything.
fn write_value(
    r: &mut Request,
    page: &PageRef,
    params: &Params<'_>,
    encoding: Encoding,
    out: &mut Vec<u8>,
) -> Result<bool, Fault> {
    let start = out.len();
    let (found, certain) = r.certain(|r| strings::variable(r, page, params.must(0), out));
    if !certain {
        out.truncate(start);
        return Err(Fault::Unsure);
    }
    if !found {
        out.extend_from_slice(params.get(1).unwrap_or(b"(none)"));
    }
    match encoding {
        Encoding::Url => {
            let value = out.split_off(start);
            escape_uri(out, &value, EscapeKind::Html);
        }
        Encoding::Entity if out[start..].iter().any(|b| matches!(b, b'<' | b'>' | b'&' | b'"')) => {
            let value = out.split_off(start);
            escape_html(out, &value);
        }
        Encoding::None | Encoding::Entity => {}
    }
    Ok(out.len() > start)
}

fn config(r: &mut Request, state: &mut State, params: &Params<'_>, _: Next) -> Result<(), Fault> {
    if let Some(text) = params.get(0) {
        state.error_text = Bytes::copy_from_slice(text);
    }
    if let Some(format) = params.get(1) {
        r.set_ctx(TimeFormat(format.to_vec()));
    }
    Ok(())
}

fn set(r: &mut Request, state: &mut State, params: &Params<'_>, _: Next) -> Result<(), Fault> {
    let name = in_lower_case(params.must(0));
    let value = strings::evaluate(r, &state.page, params.must(1)).inspect_err(|fault| {
        if matches!(fault, Fault::Unsure) {
            state.page.borrow_mut().set_unsure(&name);
        }
    })?;
    let set = state.page.borrow_mut().set(&name, value.into_owned());
    match set {
        true => Ok(()),
        false => Err(Fault::said(r, b"the page's variables hold too much")),
    }
}

fn block(_: &mut Request, state: &mut State, params: &Params<'_>, _: Next) -> Result<(), Fault> {
    state.page.borrow_mut().begin_block(params.must(0));
    state.shown = false;
    state.in_block = true;
    Ok(())
}

fn end_block(_: &mut Request, state: &mut State, _: &Params<'_>, _: Next) -> Result<(), Fault> {
    state.page.borrow_mut().end_block();
    state.shown = true;
    state.in_block = false;
    Ok(())
}
