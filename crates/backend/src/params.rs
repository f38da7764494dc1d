//! `…_param`: what a CGI program finds in its environment, compiled once. The client's header fields
//! become `HTTP_…`, but for those that a parameter of that name replaces.

use crate::cache::conf::CacheConf;
use crate::cache::lookup::Condition;
use crate::cache::vars as cached;
use crate::rows::push;
use std::sync::Arc;
use weir_core::eval::with_scratch;
use weir_core::Session;
use weir_http::core_vars;
use weir_http::module::{Getter, VarArg};
use weir_http::vars::template;
use weir_http::Request;
use weir_module::{ArgsExt, Cf, ConfResult, Directive, Val};
use weir_script::template::Template;

/// One directive.
#[derive(Clone)]
pub(crate) struct Param {
    name: Vec<u8>,
    value: Template,
    if_not_empty: bool,
}

impl Param {
    fn is_range(&self) -> bool {
        self.name.eq_ignore_ascii_case(b"HTTP_RANGE")
    }
}

enum Value {
    Text(Vec<u8>),
    Template(Template),
    /// A parameter of our own, left out when it is empty.
    Own(Getter),
}

struct Item {
    name: Vec<u8>,
    value: Value,
    if_not_empty: bool,
    /// A 304 may be the answer to it.
    condition: Option<Condition>,
    /// It is the script's file.
    is_script: bool,
}

/// What a program opens.
const SCRIPT: &[u8] = b"SCRIPT_FILENAME";

/// The parameters of requests.
#[derive(Default)]
pub(crate) struct ParamPlan {
    items: Vec<Item>,
    /// Fields that stay here: in lower case, with `_` for `-`.
    drop: Vec<Vec<u8>>,
    /// Parts of answers are asked for.
    parts: bool,
}

/// Of a request whose answer may be kept: conditions and ranges are not the client's.
const OWN_CACHED: [(&[u8], Option<Getter>); 6] = [
    (b"HTTP_IF_MODIFIED_SINCE", Some(cached::last_modified)),
    (b"HTTP_IF_UNMODIFIED_SINCE", None),
    (b"HTTP_IF_NONE_MATCH", Some(cached::etag)),
    (b"HTTP_IF_MATCH", None),
    (b"HTTP_RANGE", None),
    (b"HTTP_IF_RANGE", None),
];

/// The same where parts of answers are kept.
const OWN_PARTS: [(&[u8], Option<Getter>); 2] =
    [(b"HTTP_RANGE", Some(cached::range)), (b"HTTP_IF_RANGE", Some(cached::if_range))];

const OWN: [(&[u8], Option<Getter>); 1] = [(b"HTTP_HOST", Some(core_vars::host_with_port))];

fn condition(name: &[u8]) -> Option<Condition> {
    Condition::of(&name.strip_prefix(b"HTTP_")?.to_ascii_lowercase())
}

impl ParamPlan {
    fn new(params: &[Param], for_cache: bool, parts: bool) -> ParamPlan {
        let mut plan = ParamPlan { parts, ..ParamPlan::default() };
        for p in params {
            let text = p.value.as_constant();
            if plan.replaces(&p.name) && text == Some(b"") {
                continue;
            }
            let value = match text {
                Some(text) => Value::Text(text.to_vec()),
                None => Value::Template(p.value.clone()),
            };
            if !(p.if_not_empty && text == Some(b"")) {
                plan.items.push(Item {
                    name: p.name.clone(),
                    value,
                    if_not_empty: p.if_not_empty,
                    condition: condition(&p.name).filter(|_| for_cache),
                    is_script: p.name == SCRIPT,
                });
            }
        }
        let more = if for_cache { &OWN_CACHED[..] } else { &[] };
        let parts = if parts { &OWN_PARTS[..] } else { &[] };
        for (name, getter) in OWN.iter().chain(more).chain(parts) {
            if params.iter().any(|p| p.name.eq_ignore_ascii_case(name)) {
                continue;
            }
            plan.replaces(name);
            if let Some(getter) = *getter {
                let value = Value::Own(getter);
                let condition = condition(name);
                plan.items.push(Item {
                    name: name.to_vec(),
                    value,
                    if_not_empty: true,
                    condition,
                    is_script: false,
                });
            }
        }
        plan
    }

    /// Notes that the client's field of that name stays here; whether it is one's name.
    fn replaces(&mut self, name: &[u8]) -> bool {
        let field = name.strip_prefix(b"HTTP_").filter(|f| !f.is_empty());
        self.drop.extend(field.map(<[u8]>::to_ascii_lowercase));
        field.is_some()
    }

    /// Hands over each parameter: its name, and its value in parts.
    pub(crate) fn write(
        &self,
        r: &mut Request,
        fields: bool,
        mut put: impl FnMut(&[u8], &[&[u8]]),
    ) {
        with_scratch(|value| {
            for item in &self.items {
                value.clear();
                match &item.value {
                    Value::Text(text) => {
                        if let Some(condition) = item.condition {
                            condition.sent(r, text);
                        }
                        put(&item.name, &[text]);
                        continue;
                    }
                    Value::Template(t) => r.eval_into(t, value),
                    Value::Own(getter) => {
                        if !getter(r, &VarArg::default(), value) {
                            value.clear();
                        }
                    }
                }
                if let Some(condition) = item.condition {
                    condition.sent(r, value);
                }
                if item.if_not_empty && value.is_empty() {
                    continue;
                }
                match item.is_script {
                    true => put(&item.name, &[&weir_runtime::paths::script(value)]),
                    false => put(&item.name, &[value]),
                }
            }
        });
        if fields {
            self.write_fields(r, put);
        }
    }

    fn write_fields(&self, r: &Request, mut put: impl FnMut(&[u8], &[&[u8]])) {
        let headers = &r.head.headers;
        let mut name = Vec::new();
        let mut parts: Vec<&[u8]> = Vec::new();
        for (i, h) in headers.iter().enumerate() {
            let field = h.name.of(&r.buf);
            let is_it = |other: &[u8]| other.eq_ignore_ascii_case(field);
            if headers[..i].iter().any(|h| is_it(h.name.of(&r.buf))) {
                continue;
            }
            name.clear();
            name.extend_from_slice(b"HTTP_");
            name.extend(
                field.iter().map(|b| if *b == b'-' { b'_' } else { b.to_ascii_uppercase() }),
            );
            if self.drop.iter().any(|d| d.eq_ignore_ascii_case(&name[5..])) {
                continue;
            }
            parts.clear();
            parts.push(h.value.of(&r.buf));
            let between: &[u8] = if is_it(b"Cookie") { b"; " } else { b", " };
            for more in headers[i + 1..].iter().filter(|h| is_it(h.name.of(&r.buf))) {
                parts.extend([between, more.value.of(&r.buf)]);
            }
            put(&name, &parts);
        }
    }
}

/// A location's parameters.
#[derive(Default)]
pub(crate) struct Params {
    list: Val<Arc<Vec<Param>>>,
    /// The plans are made.
    compiled: bool,
    plan: Arc<ParamPlan>,
    /// The same for a request whose answer may be kept.
    cache_plan: Option<Arc<ParamPlan>>,
}

impl Params {
    /// `cache` is asked whether answers are kept, and told whether parts of them may be.
    pub(crate) fn merge(&mut self, parent: &Params, cache: &mut CacheConf) {
        let has_range = self.list.as_option().or(parent.list.as_option());
        let has_range = has_range.is_some_and(|l| l.iter().any(Param::is_range));
        cache.takes_parts = cache.is_on() && *cache.standard && !has_range;

        let inherited = !self.list.is_set() && parent.compiled;
        self.list.merge(&parent.list, Arc::default);
        self.compiled = true;
        self.plan = match inherited {
            true => Arc::clone(&parent.plan),
            false => Arc::new(ParamPlan::new(&self.list, false, false)),
        };
        if cache.is_on() {
            let parts = cache.takes_parts;
            let known = parent.cache_plan.as_ref().filter(|plan| inherited && plan.parts == parts);
            let make = || Arc::new(ParamPlan::new(&self.list, true, parts));
            self.cache_plan = Some(known.map_or_else(make, Arc::clone));
        }
    }

    pub(crate) fn plan(&self, cached: bool) -> &ParamPlan {
        match &self.cache_plan {
            Some(plan) if cached => plan,
            _ => &self.plan,
        }
    }
}

/// `…_param`
pub(crate) fn set_param(
    cf: &mut Cf,
    d: &Directive,
    pick: fn(&mut Cf) -> &mut Params,
) -> ConfResult {
    let if_not_empty = match d.args.get(2).map(|w| &*w.text) {
        None => false,
        Some(b"if_not_empty") => true,
        Some(other) => {
            let shown = String::from_utf8_lossy(other);
            return Err(d.bad(2, format!("invalid parameter \"{shown}\"")));
        }
    };
    let param = Param { name: d.arg(0).to_vec(), value: template(cf, d, 1)?, if_not_empty };
    push(&mut pick(cf).list, param);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn param(name: &str, value: &str, if_not_empty: bool) -> Param {
        let value = Template::constant(value.as_bytes());
        Param { name: name.into(), value, if_not_empty }
    }

    #[test]
    fn what_replaces_a_field_of_the_client() {
        let list = [
            param("A", "", false),
            param("B", "", true),
            param("HTTP_X_Y", "", false),
            param("HTTP_", "1", false),
        ];
        let plan = ParamPlan::new(&list, false, false);
        let names: Vec<&[u8]> = plan.items.iter().map(|i| &*i.name).collect();
        assert_eq!(names, [&b"A"[..], b"HTTP_", b"HTTP_HOST"]);
        assert_eq!(plan.drop, [b"x_y".to_vec(), b"host".to_vec()]);
        let plan = ParamPlan::new(&[param("http_host", "h", false)], true, false);
        assert_eq!(plan.drop.len(), 6);
        assert_eq!(plan.items.len(), 3);
        let plan = ParamPlan::new(&[], true, true);
        let names: Vec<&[u8]> = plan.items.iter().map(|i| &*i.name).collect();
        assert_eq!(names[3..], [&b"HTTP_RANGE"[..], b"HTTP_IF_RANGE"]);
    }
}
