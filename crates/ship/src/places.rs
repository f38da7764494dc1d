//! `ship_access`: which requests and sessions become events, of each protocol.

use crate::conf::{find, Ships};
use crate::running::Plan;
use std::marker::PhantomData;
use std::sync::{Arc, OnceLock};
use weir_core::eval::{is_true, with_value};
use weir_core::registry::template_of;
use weir_core::Session;
use weir_http::Request;
use weir_module::{
    distinct, merge_values, slot, ArgsExt, Arity, Cf, ConfResult, ConfType, Context, Directive,
    Level, Row, Slots, Val,
};
use weir_script::template::Template;

/// `ship_access` of a level.
#[derive(Clone)]
pub enum Places {
    Off,
    To(Arc<Vec<To>>),
}

/// One of them.
pub struct To {
    directive: Directive,
    filter: Option<Template>,
    /// Found when the configuration is built.
    plan: OnceLock<Arc<Plan>>,
}

#[derive(Default)]
pub struct ShipLoc {
    places: Val<Places>,
}

impl ConfType for ShipLoc {
    const LEVEL: Level = Level::Location;
    slot!();

    fn merge(&mut self, parent: &ShipLoc) -> ConfResult {
        merge_values!(self, parent; places = Places::Off);
        Ok(())
    }
}

/// The directive in the block of sessions `S`.
struct Rows<S>(PhantomData<S>);

impl<S: Session> Rows<S> {
    const fn row(contexts: Context) -> Row {
        Row::new(
            "ship_access",
            contexts,
            Arity::ONE_TWO,
            "off",
            "The receivers of requests that were answered, or of sessions: a name each, or off.",
            set_access::<S>,
        )
        .note("\"if=\" is as with access_log; mail, which has no variables, has none. Several at one level are all sent to; a level that has any does not inherit. An event that is more than 64k, or finds no room, is dropped and counted: a request never waits.")
    }
}

pub const HTTP: &[Row] = &[Rows::<Request>::row(Context::HSL.or(Context::LIF).or(Context::LMT))];
pub const STREAM: &[Row] = &[Rows::<weir_stream::Session>::row(Context::SS)];
pub const MAIL: &[Row] = &[Rows::<weir_mail::Session>::row(Context::MS)];

pub fn active(slots: &Slots) -> bool {
    matches!(slots.get::<ShipLoc>().places.as_option(), Some(Places::To(_)))
}

fn set_access<S: Session>(cf: &mut Cf, d: &Directive) -> ConfResult {
    if d.arg(0) == b"off" {
        if d.args.len() > 1 {
            return Err(d.invalid(1));
        }
        return cf.get::<ShipLoc>().places.once(d, Places::Off);
    }
    let mut filter = None;
    if d.args.len() > 1 {
        let text = d.keyed(1, "if").ok_or_else(|| d.invalid(1))?;
        if S::BLOCK == Context::MAIL {
            let mut e = d.bad(1, "\"if=\" is not for mail, which has no variables");
            e.hint = Some("take it away: a server ships all of its sessions, or none".into());
            return Err(e);
        }
        filter = Some(template_of::<S>(cf, d, 1, text)?);
    }
    let to = To { directive: d.clone(), filter, plan: OnceLock::new() };
    let places = &mut cf.get::<ShipLoc>().places;
    match places.as_mut() {
        None => places.set(Places::To(Arc::new(vec![to]))),
        Some(Places::Off) => return Err(d.fail("there is \"ship_access off\" at this level")),
        Some(Places::To(all)) => {
            // Nobody else has it while the level is read.
            if let Some(all) = Arc::get_mut(all) {
                all.push(to);
            }
        }
    }
    Ok(())
}

/// Finds the receivers of all places of a block.
pub fn build(cf: &mut Cf, levels: [&[Slots]; 2]) -> ConfResult {
    let plans = cf.get::<Ships>().built.plans.clone();
    for conf in levels.into_iter().flat_map(distinct::<ShipLoc>) {
        let Some(Places::To(all)) = conf.places.as_option() else { continue };
        for to in all.iter() {
            // Only this function sets it, to the same each time.
            let _ = to.plan.set(find(&plans, &to.directive)?);
        }
    }
    Ok(())
}

/// Calls with each receiver that is to have the session.
pub fn each<S: Session>(s: &mut S, mut ship: impl FnMut(&mut S, &Plan)) {
    s.with_conf::<ShipLoc, _>(|s, conf| {
        let Some(Places::To(targets)) = conf.places.as_option() else { return };
        for target in targets.iter() {
            let wanted = match &target.filter {
                // Nobody keeps a session out by an expression that cannot tell.
                Some(filter) => {
                    let (wanted, certain) =
                        s.certain(|s| with_value(s, filter, |_, value| is_true(value)));
                    wanted || !certain
                }
                None => true,
            };
            if let Some(plan) = target.plan.get().filter(|_| wanted) {
                ship(s, plan);
            }
        }
    });
}
