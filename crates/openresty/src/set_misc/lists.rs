//! `upstream_list`: names of upstreams to choose from.

use super::MiscMain;
use std::sync::Arc;
use weir_base::units::parse_int;
use weir_module::{ArgsExt, Cf, ConfResult, Directive};

/// How often a name may count, and all of a list together.
const WEIGHT_MAX: u64 = 65_536;

/// A list: each name as often as it counts.
pub(super) type List = Arc<Vec<Arc<[u8]>>>;

#[derive(Default)]
pub(super) struct Lists(Vec<(Vec<u8>, List)>);

impl Lists {
    /// A list by its name, letter case apart.
    pub(super) fn find(&self, name: &[u8]) -> Option<&List> {
        self.0.iter().find(|(n, _)| n.eq_ignore_ascii_case(name)).map(|(_, list)| list)
    }
}

pub(super) fn set_list(cf: &mut Cf, d: &Directive) -> ConfResult {
    let name = d.arg(0);
    if cf.get::<MiscMain>().lists.find(name).is_some() {
        let shown = String::from_utf8_lossy(name);
        return Err(d.bad(0, format!("duplicate upstream list name \"{shown}\"")));
    }
    let mut list = Vec::new();
    for at in 1..d.args.len() {
        let (weight, upstream) = weighted(d, at)?;
        if list.len() as u64 + weight > WEIGHT_MAX {
            return Err(d.bad(at, format!("the upstream list counts more than {WEIGHT_MAX}")));
        }
        let upstream: Arc<[u8]> = upstream.into();
        list.extend((0..weight).map(|_| Arc::clone(&upstream)));
    }
    let name = name.to_vec();
    cf.get::<MiscMain>().lists.0.push((name, Arc::new(list)));
    Ok(())
}

/// `name`, or `3:name`.
fn weighted(d: &Directive, at: usize) -> ConfResult<(u64, &[u8])> {
    let text = d.arg(at);
    let digits = text.iter().take_while(|b| b.is_ascii_digit()).count();
    if digits == 0 {
        return Ok((1, text));
    }
    let shown = String::from_utf8_lossy(text);
    let invalid = || d.bad(at, format!("invalid upstream \"{shown}\" in the list")).of_itself();
    let name = text[digits..].strip_prefix(b":").ok_or_else(invalid)?;
    Ok((parse_int(&text[..digits]).ok_or_else(invalid)?, name))
}
