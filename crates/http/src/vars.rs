//! Variables of requests, as directives of the `http` block name and define them.

use crate::conf::CoreMain;
use crate::flow::Getter;
use crate::generation::Http;
use crate::request::Request;
use std::any::Any;
use std::rc::Rc;
use std::sync::Arc;
use weir_core::generation::{Generation, Virtual};
use weir_core::logger::ErrorLog;
use weir_core::registry::{self, NamedRegex, VarRegistry};
use weir_core::session::{Part, Session};
use weir_core::timing::UpstreamState;
use weir_core::values::Values;
use weir_core::variables::VarDef;
use weir_core::{ClientAddr, Connection};
use weir_module::{Cf, ConfType, Context, Diagnostic, Directive, Slots};
use weir_script::template::{Template, VarId};
use weir_upstream::{Asks, Until};

impl Part<Request> for Http {
    fn core(&self) -> &Arc<Generation> {
        &self.core
    }

    fn main(&self) -> &Slots {
        &self.shared.main
    }

    fn vars(&self) -> &[VarDef<Request>] {
        &self.shared.vars
    }

    fn registry(&self) -> &VarRegistry<Request> {
        &self.shared.main.get::<CoreMain>().vars
    }
}

impl Session for Request {
    type Part = Http;
    const BLOCK: Context = Context::HTTP;
    const LEVELS: Context = Context::HSL;

    fn registry(cf: &mut Cf) -> &mut VarRegistry<Request> {
        &mut cf.get::<CoreMain>().vars
    }

    fn part(&self) -> &Rc<Http> {
        self.gen()
    }

    #[inline]
    fn values(&self) -> &Values {
        &self.values
    }

    #[inline]
    fn values_mut(&mut self) -> &mut Values {
        &mut self.values
    }

    fn conn(&self) -> &Rc<Connection> {
        Request::conn(self)
    }

    fn base(&self) -> &Arc<Virtual> {
        &self.server().base
    }

    fn client(&self) -> ClientAddr {
        Request::client(self)
    }

    fn client_text(&self) -> &[u8] {
        Request::client_text(self)
    }

    fn set_client(&mut self, client: ClientAddr) {
        Request::set_client(self, client);
    }

    fn error_log(&self) -> &ErrorLog {
        &self.loc().error_log
    }

    fn write_log_context(&self, line: &mut Vec<u8>) {
        crate::request_log::write_context(self, line);
    }

    #[inline]
    fn with_conf<T: ConfType, R>(&mut self, f: impl FnOnce(&mut Request, &T) -> R) -> R {
        let location = Rc::clone(self.loc());
        f(self, location.conf())
    }

    fn kept<T: Any>(&mut self) -> Option<&mut T> {
        Request::kept(self)
    }

    fn keep_state<T: Any>(&mut self, value: T) {
        Request::keep_state(self, value);
    }

    fn is_answered(&self) -> bool {
        self.flags.header_sent || self.values.unknown.is_over()
    }
}

impl Asks for Request {
    const UPSTREAM: Context = Context::UPSTREAM;
    const USUAL_PORT: Option<u16> = Some(80);
    const STICKY: bool = true;
    const REUSES: bool = true;
    const HEADS: bool = true;
    const ZONE: &'static str = "upstream";
    const WITHOUT_SERVER: &'static str = "requests that need it get 502";
    const TIMES: &'static [(&'static str, Until)] =
        &[("header", Until::Header), ("last_byte", Until::LastByte)];

    fn asked(&self) -> &[UpstreamState] {
        &self.upstream
    }
}

/// The registry of the `http` block being read.
pub fn registry(cf: &mut Cf) -> &mut VarRegistry<Request> {
    Request::registry(cf)
}

/// Compiles an argument with variables.
pub fn template(cf: &mut Cf, d: &Directive, i: usize) -> Result<Template, Diagnostic> {
    registry::template::<Request>(cf, d, i)
}

/// Compiles part of an argument; errors point at the argument.
pub fn template_of(
    cf: &mut Cf,
    d: &Directive,
    i: usize,
    text: &[u8],
) -> Result<Template, Diagnostic> {
    registry::template_of::<Request>(cf, d, i, text)
}

/// A variable named as a directive's target: `$name`.
pub fn target(cf: &mut Cf, d: &Directive, i: usize) -> Result<VarId, Diagnostic> {
    registry::target::<Request>(cf, d, i)
}

/// Defines `$name` by a getter with a number of its own.
pub fn define(
    cf: &mut Cf,
    d: &Directive,
    i: usize,
    get: Getter,
    data: usize,
    cached: bool,
) -> Result<VarId, Diagnostic> {
    registry::define::<Request>(cf, d, i, get, data, cached)
}

/// Compiles a regular expression and numbers the variables of its named groups.
pub fn named_regex(
    cf: &mut Cf,
    d: &Directive,
    i: usize,
    pattern: &[u8],
    caseless: bool,
) -> Result<NamedRegex, Diagnostic> {
    registry::named_regex::<Request>(cf, d, i, pattern, caseless)
}
