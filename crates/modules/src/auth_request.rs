//! Access by the answer to a subrequest: nginx's `ngx_http_auth_request_module`.

use std::rc::Rc;
use std::sync::Arc;
use weir_core::logger::LogLevel;
use weir_core::LocalFuture;
use weir_core::Session;
use weir_http::client_watch::unless_client_goes;
use weir_http::module::{Flow, HttpModule, Phase, PhaseHandler};
use weir_http::subrequest::{self, Output};
use weir_http::vars::{self, template};
use weir_http::Request;
use weir_module::{
    slot, ArgsExt, Arity, Cf, ConfResult, ConfType, Context, Directive, Level, Row, SlotVtable,
    Slots, Val,
};
use weir_script::template::{Template, VarId};

type Assignments = Arc<Vec<(VarId, Template)>>;

#[derive(Default)]
struct AuthRequestLoc {
    uri: Val<Option<Vec<u8>>>,
    set: Val<Assignments>,
}

impl ConfType for AuthRequestLoc {
    const LEVEL: Level = Level::Location;
    slot!();

    fn merge(&mut self, parent: &AuthRequestLoc) -> ConfResult {
        self.uri.merge(&parent.uri, || None);
        self.set.merge(&parent.set, Assignments::default);
        Ok(())
    }
}

const ROWS: &[Row] = &[
    Row::new(
        "auth_request",
        Context::HSL,
        Arity::ONE,
        "off",
        "Where a subrequest goes whose status decides on access: 2xx grants it, 401 and 403 refuse.",
        |cf, d| {
            let uri = (d.arg(0) != b"off").then(|| d.arg(0).to_vec());
            cf.get::<AuthRequestLoc>().uri.once(d, uri)
        },
    ),
    Row::new(
        "auth_request_set",
        Context::HSL,
        Arity::TWO,
        "",
        "Gives a variable a value once the subrequest for access has been answered.",
        set_variable,
    ),
];

pub const MODULE: HttpModule = HttpModule {
    rows: ROWS,
    slots: &[SlotVtable::of::<AuthRequestLoc>()],
    phases: &[PhaseHandler { phase: Phase::Access, handler, active }],
    ..HttpModule::EMPTY
};

fn set_variable(cf: &mut Cf, d: &Directive) -> ConfResult {
    let var = vars::target(cf, d, 0)?;
    let value = template(cf, d, 1)?;
    let list = &mut cf.get::<AuthRequestLoc>().set;
    if !list.is_set() {
        list.set(Assignments::default());
    }
    if let Some(list) = list.as_mut().and_then(Arc::get_mut) {
        list.push((var, value));
    }
    Ok(())
}

fn active(slots: &Slots) -> bool {
    slots.get::<AuthRequestLoc>().uri.is_some()
}

/// With a name, for who traces.
fn handler(_: &mut Request) -> Flow {
    Flow::Wait(ask)
}

fn ask(r: &mut Request) -> LocalFuture<'_, Flow> {
    Box::pin(async move {
        let loc = Rc::clone(r.loc());
        let conf = loc.conf::<AuthRequestLoc>();
        let Some(uri) = conf.uri.as_deref() else { return Flow::Declined };
        let Some(mut part) = subrequest::new(r, uri, b"", Output::Drop) else {
            return Flow::Status(500);
        };
        // The body is for the request itself.
        part.body.nothing();
        part.flags.header_only = true;
        let run = subrequest::run(&mut part);
        if unless_client_goes(r, false, run).await.is_none() {
            return Flow::Status(499);
        }
        for (var, value) in conf.set.iter() {
            let (value, certain) = part.certain(|part| part.eval(value));
            if !certain {
                r.fail_again();
            }
            r.set_var(*var, &value);
        }
        let flow = judge(r, &part);
        subrequest::give_back(part);
        flow
    })
}

fn judge(r: &mut Request, part: &Request) -> Flow {
    match part.out.status {
        200..=299 => Flow::Ok,
        403 => Flow::Status(403),
        401 => {
            let challenges =
                part.out.iter().filter(|f| f.0.eq_ignore_ascii_case(b"WWW-Authenticate"));
            challenges.for_each(|(name, value)| r.out.add(name, value));
            Flow::Status(401)
        }
        status => {
            r.log(LogLevel::Error, &format!("auth request unexpected status: {status}"));
            Flow::Status(500)
        }
    }
}
