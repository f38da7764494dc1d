//! `allow` and `deny` by address (nginx's `ngx_http_access_module` and `ngx_stream_access_module`).

use std::marker::PhantomData;
use std::sync::Arc;
use weir_base::addr::Cidr;
use weir_core::logger::LogLevel;
use weir_core::{ClientAddr, Session};
use weir_http::conf::Satisfy;
use weir_http::module::{Flow, HttpModule, Phase, PhaseHandler};
use weir_http::Request;
use weir_module::{
    slot, ArgsExt, Arity, Cf, ConfResult, ConfType, Context, Directive, Level, Row, SlotVtable,
    Slots,
};
use weir_stream::{self as stream, StreamModule};

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Who {
    All,
    Unix,
    Net(Cidr),
}

impl Who {
    fn matches(self, client: &ClientAddr) -> bool {
        match (self, client) {
            (Who::All, _) | (Who::Unix, ClientAddr::Unix) => true,
            (Who::Net(net), ClientAddr::Ip(addr)) => net.matches(addr.ip()),
            _ => false,
        }
    }

    /// Or so many of one family that several such are: no net of a network's own has a shorter prefix than `10.0.0.0/8` and
    /// `fc00::/7`.
    fn is_everybody(self) -> bool {
        match self {
            Who::All => true,
            Who::Unix => false,
            Who::Net(net) => net.prefix() < if net.base().is_ipv4() { 8 } else { 7 },
        }
    }
}

/// In the order they were written; the first that matches decides.
#[derive(Default)]
struct AccessLoc {
    rules: Option<Arc<Vec<(Who, Deny)>>>,
}

type Deny = bool;

impl ConfType for AccessLoc {
    const LEVEL: Level = Level::Location;
    slot!();

    fn merge(&mut self, parent: &AccessLoc) -> ConfResult {
        if self.rules.is_none() {
            self.rules.clone_from(&parent.rules);
        }
        Ok(())
    }
}

/// The directives in the block of sessions `S`.
struct Rows<S>(PhantomData<S>);

impl<S: Session> Rows<S> {
    /// What stands only in `http` does not stand in another protocol's levels.
    const CONTEXTS: Context = match S::BLOCK.has(Context::HTTP) {
        true => S::LEVELS.or(Context::LMT),
        false => S::LEVELS,
    };

    const ROWS: &'static [Row] = &[
        Row::new(
            "allow",
            Self::CONTEXTS,
            Arity::ONE,
            "",
            "Lets an address or network in.",
            set_rule,
        ),
        Row::new(
            "deny",
            Self::CONTEXTS,
            Arity::ONE,
            "",
            "Keeps an address or network out.",
            set_rule,
        ),
    ];
}

const SLOTS: &[SlotVtable] = &[SlotVtable::of::<AccessLoc>()];

pub const MODULE: HttpModule = HttpModule {
    rows: Rows::<Request>::ROWS,
    slots: SLOTS,
    phases: &[PhaseHandler { phase: Phase::Access, handler, active }],
    lets_in: Some(lets_in),
    ..HttpModule::EMPTY
};

pub const STREAM: StreamModule = StreamModule {
    rows: Rows::<weir_stream::Session>::ROWS,
    slots: SLOTS,
    phases: &[stream::PhaseHandler {
        phase: stream::Phase::Access,
        handler: stream_handler,
        active,
    }],
    ..StreamModule::EMPTY
};

fn set_rule(cf: &mut Cf, d: &Directive) -> ConfResult {
    let text = d.arg(0);
    let who = match text {
        b"all" => Who::All,
        b"unix:" => Who::Unix,
        _ => {
            let shown = String::from_utf8_lossy(text);
            let Some((net, low_bits)) = Cidr::parse(text) else {
                return Err(d.bad(0, format!("invalid parameter \"{shown}\"")));
            };
            if low_bits {
                cf.warn(d, format!("low address bits of {shown} are meaningless"));
            }
            Who::Net(net)
        }
    };
    let deny = d.name.as_bytes() == b"deny";
    let rules = cf.get::<AccessLoc>().rules.get_or_insert_with(Arc::default);
    if let Some(rules) = Arc::get_mut(rules) {
        rules.push((who, deny));
    }
    Ok(())
}

fn active(slots: &Slots) -> bool {
    slots.get::<AccessLoc>().rules.is_some()
}

/// Whether there are addresses that no rule is about, or that a rule for all lets in.
fn lets_in(slots: &Slots) -> bool {
    let rules = slots.get::<AccessLoc>().rules.as_deref();
    for (who, deny) in rules.into_iter().flatten() {
        match deny {
            true if *who == Who::All => return false,
            false if who.is_everybody() => return true,
            _ => {}
        }
    }
    true
}

/// Whether the first rule that is about the client keeps it out; nothing without such a rule.
fn is_denied<S: Session>(s: &mut S) -> Option<Deny> {
    s.with_conf::<AccessLoc, _>(|s, conf| {
        let client = s.client();
        let rules = conf.rules.as_deref()?;
        rules.iter().find(|(who, _)| who.matches(&client)).map(|(_, deny)| *deny)
    })
}

const FORBIDDEN: &str = "access forbidden by rule";

fn handler(r: &mut Request) -> Flow {
    match is_denied(r) {
        None => Flow::Declined,
        Some(false) => Flow::Ok,
        Some(true) => {
            if *r.loc().core.satisfy == Satisfy::All {
                r.log(LogLevel::Error, FORBIDDEN);
            }
            Flow::Status(403)
        }
    }
}

fn stream_handler(s: &mut weir_stream::Session) -> stream::Flow {
    match is_denied(s) {
        None => stream::Flow::Declined,
        Some(false) => stream::Flow::Ok,
        Some(true) => {
            s.log(LogLevel::Error, FORBIDDEN);
            stream::Flow::Status(weir_stream::FORBIDDEN)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rules() {
        let net = |text: &[u8]| Who::Net(Cidr::parse(text).unwrap().0);
        let client = |text: &str| ClientAddr::Ip(text.parse().unwrap());
        assert!(net(b"10.0.0.0/8").matches(&client("10.1.2.3:1")));
        assert!(!net(b"10.0.0.0/8").matches(&client("11.1.2.3:1")));
        assert!(net(b"10.0.0.0/8").matches(&client("[::ffff:10.1.2.3]:1")));
        assert!(net(b"2001:db8::/32").matches(&client("[2001:db8::1]:1")));
        assert!(!net(b"0.0.0.0/0").matches(&ClientAddr::Unix));
        assert!(Who::All.matches(&ClientAddr::Unix) && Who::Unix.matches(&ClientAddr::Unix));
        assert!(!Who::Unix.matches(&client("127.0.0.1:1")));
    }
}
