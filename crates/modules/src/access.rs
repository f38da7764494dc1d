//! `allow` and `deny` by address (nginx's `ngx_http_access_module`).

use std::sync::Arc;
use weir_core::Session;

use weir_base::addr::Cidr;
use weir_core::logger::LogLevel;
use weir_core::ClientAddr;
use weir_http::conf::Satisfy;
use weir_http::module::{Flow, HttpModule, Phase, PhaseHandler};
use weir_http::Request;
use weir_module::{
    slot, ArgsExt, Arity, Cf, ConfResult, ConfType, Context, Directive, Level, Row, SlotVtable,
    Slots,
};

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

const CONTEXTS: Context = Context::HSL.or(Context::LMT);

const ROWS: &[Row] = &[
    Row::new("allow", CONTEXTS, Arity::ONE, "", "Lets an address or network in.", set_rule),
    Row::new("deny", CONTEXTS, Arity::ONE, "", "Keeps an address or network out.", set_rule),
];

pub const MODULE: HttpModule = HttpModule {
    name: "ngx_http_access_module",
    rows: ROWS,
    slots: &[SlotVtable::of::<AccessLoc>()],
    phases: &[PhaseHandler { phase: Phase::Access, handler, active }],
    ..HttpModule::EMPTY
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

fn handler(r: &mut Request) -> Flow {
    let loc = r.loc();
    let Some(rules) = &loc.conf::<AccessLoc>().rules else { return Flow::Declined };
    let client = r.client();
    match rules.iter().find(|(who, _)| who.matches(&client)) {
        None => Flow::Declined,
        Some((_, false)) => Flow::Ok,
        Some((_, true)) => {
            if *loc.core.satisfy == Satisfy::All {
                r.log(LogLevel::Error, "access forbidden by rule");
            }
            Flow::Status(403)
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
