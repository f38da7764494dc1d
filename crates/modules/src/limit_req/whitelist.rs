//! `limit_req_whitelist`: requests for which a variable has a value are not limited (Tengine's).

use std::sync::Arc;
use weir_core::Session;
use weir_http::vars::template_of;
use weir_http::Request;
use weir_module::{ArgsExt, Cf, ConfResult, Directive, Val};
use weir_script::template::Template;

use super::LimitReqLoc;

#[derive(Default)]
pub(super) struct Whitelist(Val<Option<Arc<Listed>>>);

struct Listed {
    variable: Template,
    value: Box<[u8]>,
}

impl Whitelist {
    pub(super) fn merge(&mut self, parent: &Whitelist) {
        self.0.merge(&parent.0, || None);
    }

    pub(super) fn has(&self, r: &mut Request) -> bool {
        let Some(listed) = &*self.0 else { return false };
        r.eval(&listed.variable) == *listed.value
    }
}

pub(super) fn set(cf: &mut Cf, d: &Directive) -> ConfResult {
    let (mut name, mut value) = (None, None);
    for i in 0..d.args.len() {
        if let Some(text) = d.keyed(i, "geo_var_name").filter(|text| !text.is_empty()) {
            let text = [b"$", text.strip_prefix(b"$").unwrap_or(text)].concat();
            name = Some(template_of(cf, d, i, &text)?);
        } else if let Some(text) = d.keyed(i, "geo_var_value") {
            value = Some(text.into());
        } else {
            let shown = String::from_utf8_lossy(d.arg(i)).into_owned();
            return Err(d.bad(i, format!("invalid parameter \"{shown}\"")));
        }
    }
    let Some((variable, value)) = name.zip(value) else {
        return Err(d.error("must have both \"geo_var_name\" and \"geo_var_value\""));
    };
    cf.get::<LimitReqLoc>().whitelist.0.once(d, Some(Arc::new(Listed { variable, value })))
}
