//! `set` (nginx's `ngx_stream_set_module`): a variable gets a value when the connection is accepted and
//! again once its first bytes have been looked at.

use crate::module::{Flow, Phase, PhaseHandler, StreamModule};
use crate::Session;
use std::sync::Arc;
use weir_core::registry::{target, template};
use weir_core::Session as _;
use weir_module::{
    slot, Arity, Cf, ConfResult, ConfType, Context, Directive, Level, Row, SlotVtable, Slots,
};
use weir_script::template::{Template, VarId};

#[derive(Default)]
struct SetSrv {
    all: Arc<Vec<(VarId, Template)>>,
}

impl ConfType for SetSrv {
    const LEVEL: Level = Level::Server;
    slot!();
}

/// `set`: a variable gets a value.
pub const MODULE: StreamModule = StreamModule {
    rows: &[Row::new("set", Context::STREAM_SERVER, Arity::TWO, "", "Sets a variable.", set)],
    slots: &[SlotVtable::of::<SetSrv>()],
    phases: &[PhaseHandler { phase: Phase::Preaccess, handler, active }],
    ..StreamModule::EMPTY
};

fn set(cf: &mut Cf, d: &Directive) -> ConfResult {
    let var = target::<Session>(cf, d, 0)?;
    let value = template::<Session>(cf, d, 1)?;
    if let Some(all) = Arc::get_mut(&mut cf.get::<SetSrv>().all) {
        all.push((var, value));
    }
    Ok(())
}

fn active(slots: &Slots) -> bool {
    !slots.get::<SetSrv>().all.is_empty()
}

fn handler(s: &mut Session) -> Flow {
    let all = Arc::clone(&s.server().conf::<SetSrv>().all);
    for (var, template) in all.iter() {
        let value = s.eval(template);
        s.set_var(*var, &value);
    }
    Flow::Declined
}
