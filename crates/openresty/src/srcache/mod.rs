//! `srcache_fetch`, `srcache_store`: a cache behind subrequests, such as ones that memcached or Redis answer
//! (OpenResty's srcache).
//!
//! What is kept is a whole answer in text: status line, fields, body. It is fetched before the content is made,
//! and stored behind the answer by a request of its own, for which nobody waits. What is collected, or fetched,
//! for one answer has at most [`BODY_MAX_BYTES`] where the configuration says nothing less.

mod fetch;
mod room;
mod says;
mod store;

use std::sync::Arc;
use weir_core::eval::{is_true, with_value};
use weir_http::module::{Filter, HttpModule, Phase, PhaseHandler, Reach, VarArg, Variable};
use weir_http::vars::{template, template_of};
use weir_http::Request;
use weir_module::first::{flag, size};
use weir_module::{
    merge_values, set, slot, ArgsExt, Arity, Cf, ConfResult, ConfType, Context, Directive, Level,
    Row, SlotVtable, Slots, Val,
};
use weir_script::template::Template;
use weir_wire::http1::request::Method;

/// The most that is collected of a body where `srcache_store_max_size` is 0.
const BODY_MAX_BYTES: u64 = 16 * 1024 * 1024;
/// The fields of an answer that is fetched have fewer bytes than this.
const HEAD_MAX_BYTES: usize = 64 * 1024;
const PAGE_BYTES: u64 = 4096;

/// A subrequest as the configuration has it.
struct Ask {
    method: Method,
    uri: Template,
    args: Template,
}

#[derive(Default)]
struct SrcacheLoc {
    fetch: Val<Option<Arc<Ask>>>,
    store: Val<Option<Arc<Ask>>>,
    fetch_skip: Val<Option<Arc<Template>>>,
    store_skip: Val<Option<Arc<Template>>>,
    max_size: Val<u64>,
    /// None: the usual ones.
    statuses: Val<Option<Arc<Vec<u16>>>>,
    ranges: Val<bool>,
    header_buffer_size: Val<u64>,
    hide: Val<Arc<Vec<Vec<u8>>>>,
    pass: Val<Arc<Vec<Vec<u8>>>>,
    ignore_content_encoding: Val<bool>,
    request_cache_control: Val<bool>,
    response_cache_control: Val<bool>,
    store_no_store: Val<bool>,
    store_no_cache: Val<bool>,
    store_private: Val<bool>,
    default_expire_secs: Val<u64>,
    max_expire_secs: Val<u64>,
    methods: Val<u32>,
}

impl ConfType for SrcacheLoc {
    const LEVEL: Level = Level::Location;
    slot!();

    fn merge(&mut self, parent: &SrcacheLoc) -> ConfResult {
        merge_values!(self, parent;
            fetch = None,
            store = None,
            fetch_skip = None,
            store_skip = None,
            max_size = 0,
            statuses = None,
            ranges = false,
            header_buffer_size = PAGE_BYTES,
            hide = Arc::default(),
            pass = Arc::default(),
            ignore_content_encoding = false,
            request_cache_control = false,
            response_cache_control = true,
            store_no_store = false,
            store_no_cache = false,
            store_private = false,
            default_expire_secs = 60,
            max_expire_secs = 0,
            methods = 0,
        );
        self.methods.set(*self.methods | Method::Get.bit() | Method::Head.bit());
        Ok(())
    }
}

impl SrcacheLoc {
    /// The most of a body that is collected.
    fn body_max_bytes(&self) -> u64 {
        match *self.max_size {
            0 => BODY_MAX_BYTES,
            bytes => bytes,
        }
    }
}

const HSL: Context = Context::HSL;
const HSLI: Context = Context::HSL.or(Context::LIF);

const ROWS: &[Row] = &[
    Row::new("srcache_fetch", HSLI, Arity::TWO_THREE, "", "The subrequest (method, URI, arguments) that may have the answer.", set_fetch),
    Row::new("srcache_store", HSLI, Arity::TWO_THREE, "", "The subrequest (method, URI, arguments) that is given the answer to keep.", set_store)
        .note("it is made behind the answer, and neither the client's connection nor its next request waits for it; \
               with many under way (half of worker_connections, or 64m together in a worker, or \
               srcache_store_max_size if that is more) an answer is not stored; what is stored is the \
               whole answer, from which ranges are cut when it is fetched"),
    Row::new("srcache_fetch_skip", HSLI, Arity::ONE, "0", "When an answer is not looked for.", set_fetch_skip),
    Row::new("srcache_store_skip", HSLI, Arity::ONE, "0", "When an answer is not kept; asked with the header and at the end.", set_store_skip),
    Row::new("srcache_store_max_size", HSLI, Arity::ONE, "0", "The largest body that is kept.", set!(loc, max_size, size))
        .note("0: 16m, which is also the most that is fetched; in the module there is no bound"),
    Row::new("srcache_store_statuses", HSLI, Arity::ONE_MORE, "200 301 302 307 308", "The statuses of answers that are kept.", set_statuses),
    Row::new("srcache_store_ranges", HSLI, Arity::FLAG, "off", "Keeps parts (206) that a server has answered with.", set!(loc, ranges, flag)),
    Row::new("srcache_header_buffer_size", HSLI, Arity::ONE, "4k|8k", "The longest field of an answer that is kept.", set!(loc, header_buffer_size, size)),
    Row::new("srcache_store_hide_header", HSLI, Arity::ONE, "", "A field that is not kept with its answer.", set_hide),
    Row::new("srcache_store_pass_header", HSLI, Arity::ONE, "", "A field that is kept though others of its kind are not.", set_pass),
    Row::new("srcache_ignore_content_encoding", HSLI, Arity::FLAG, "off", "Keeps answers that are compressed.", set!(loc, ignore_content_encoding, flag)),
    Row::new("srcache_request_cache_control", HSL, Arity::FLAG, "off", "Listens to Cache-Control and Pragma of requests.", set!(loc, request_cache_control, flag)),
    Row::new("srcache_response_cache_control", HSL, Arity::FLAG, "on", "Listens to Cache-Control and Expires of answers.", set!(loc, response_cache_control, flag)),
    Row::new("srcache_store_no_store", HSL, Arity::FLAG, "off", "Keeps answers with no-store.", set!(loc, store_no_store, flag)),
    Row::new("srcache_store_no_cache", HSL, Arity::FLAG, "off", "Keeps answers with no-cache.", set!(loc, store_no_cache, flag)),
    Row::new("srcache_store_private", HSL, Arity::FLAG, "off", "Keeps answers that are private.", set!(loc, store_private, flag)),
    Row::new("srcache_default_expire", HSLI, Arity::ONE, "60s", "$srcache_expire of an answer that says nothing.", set!(loc, default_expire_secs, |d| d.sec(0))),
    Row::new("srcache_max_expire", HSLI, Arity::ONE, "0", "The most that $srcache_expire is; 0 for no limit.", set!(loc, max_expire_secs, |d| d.sec(0))),
    Row::new("srcache_methods", HSL, Arity::ONE_MORE, "GET HEAD", "The methods whose answers are looked for and kept.", set_methods),
];

/// Looks for answers, behind the access phase.
pub const MODULE: HttpModule = HttpModule {
    rows: ROWS,
    slots: &[SlotVtable::of::<SrcacheLoc>()],
    variables: VARIABLES,
    phases: &[PhaseHandler { phase: Phase::Precontent, handler: fetch::handler, active }],
    ..HttpModule::EMPTY
};

/// Keeps them, where bodies pass before anything is made of them.
pub const STORE: HttpModule = HttpModule {
    filter: Some(Filter {
        header: Some(store::header),
        body: Some(store::body),
        active: |slots| slots.get::<SrcacheLoc>().store.is_some(),
        reach: Reach::Main,
    }),
    body_on_demand: true,
    ..HttpModule::EMPTY
};

fn active(slots: &Slots) -> bool {
    let conf = slots.get::<SrcacheLoc>();
    conf.fetch.is_some() || conf.store.is_some()
}

fn loc(cf: &mut Cf) -> &mut SrcacheLoc {
    cf.get::<SrcacheLoc>()
}

fn ask(cf: &mut Cf, d: &Directive) -> ConfResult<Option<Arc<Ask>>> {
    let method = Method::from_bytes(d.arg(0));
    if method == Method::Other {
        return Err(d.invalid(0));
    }
    let uri = template(cf, d, 1)?;
    let args = match d.args.len() {
        3 => template(cf, d, 2)?,
        _ => template_of(cf, d, 1, b"")?,
    };
    Ok(Some(Arc::new(Ask { method, uri, args })))
}

fn set_fetch(cf: &mut Cf, d: &Directive) -> ConfResult {
    let ask = ask(cf, d)?;
    loc(cf).fetch.once(d, ask)
}

fn set_store(cf: &mut Cf, d: &Directive) -> ConfResult {
    let ask = ask(cf, d)?;
    loc(cf).store.once(d, ask)
}

fn set_fetch_skip(cf: &mut Cf, d: &Directive) -> ConfResult {
    let skip = Some(Arc::new(template(cf, d, 0)?));
    loc(cf).fetch_skip.once(d, skip)
}

fn set_store_skip(cf: &mut Cf, d: &Directive) -> ConfResult {
    let skip = Some(Arc::new(template(cf, d, 0)?));
    loc(cf).store_skip.once(d, skip)
}

fn set_statuses(cf: &mut Cf, d: &Directive) -> ConfResult {
    let status = |i: usize| {
        let n = d.num(i)?;
        u16::try_from(n).ok().filter(|n| *n > 0).ok_or_else(|| d.invalid(i))
    };
    let list = (0..d.args.len()).map(status).collect::<ConfResult<Vec<_>>>()?;
    loc(cf).statuses.once(d, Some(Arc::new(list)))
}

fn push(list: &mut Val<Arc<Vec<Vec<u8>>>>, name: &[u8]) {
    let mut all = list.as_option().map(|l| l.to_vec()).unwrap_or_default();
    all.push(name.to_vec());
    list.set(Arc::new(all));
}

fn set_hide(cf: &mut Cf, d: &Directive) -> ConfResult {
    push(&mut loc(cf).hide, d.arg(0));
    Ok(())
}

fn set_pass(cf: &mut Cf, d: &Directive) -> ConfResult {
    push(&mut loc(cf).pass, d.arg(0));
    Ok(())
}

fn set_methods(cf: &mut Cf, d: &Directive) -> ConfResult {
    let words = [
        ("GET", Method::Get.bit()),
        ("HEAD", Method::Head.bit()),
        ("POST", Method::Post.bit()),
        ("PUT", Method::Put.bit()),
        ("DELETE", Method::Delete.bit()),
    ];
    let mut bits = 0;
    for i in 0..d.args.len() {
        bits |= d.choice(i, &words)?;
    }
    loc(cf).methods.once(d, bits)
}

/// Whether a `…_skip` says so.
fn skips(r: &mut Request, skip: Option<&Template>) -> bool {
    skip.is_some_and(|skip| with_value(r, skip, |_, value| is_true(value)))
}

/// What has become of a request here; kept to its end.
#[derive(Default)]
struct State {
    /// `HIT` or `MISS`, once an answer was looked for.
    fetched: Option<&'static str>,
    /// The answer is stored.
    stores: bool,
    /// The request wants its answer not to be.
    no_store: bool,
}

/// Changes it.
fn note(r: &mut Request, change: impl FnOnce(&mut State)) {
    if let Some(state) = r.kept::<State>() {
        return change(state);
    }
    let mut state = State::default();
    change(&mut state);
    r.keep_state(state);
}

const VARIABLES: &[Variable] = &[
    Variable::new("srcache_fetch_status", fetch_status),
    Variable::new("srcache_store_status", store_status),
    Variable::new("srcache_expire", expire),
];

fn fetch_status(r: &mut Request, _: &VarArg, out: &mut Vec<u8>) -> bool {
    let fetched = r.kept::<State>().and_then(|s| s.fetched).unwrap_or("BYPASS");
    out.extend_from_slice(fetched.as_bytes());
    true
}

fn store_status(r: &mut Request, _: &VarArg, out: &mut Vec<u8>) -> bool {
    let stores = r.kept::<State>().is_some_and(|s| s.stores);
    out.extend_from_slice(if stores { b"STORE" } else { b"BYPASS" });
    true
}

fn expire(r: &mut Request, _: &VarArg, out: &mut Vec<u8>) -> bool {
    if r.out.status == 0 {
        return false;
    }
    let loc = std::rc::Rc::clone(r.loc());
    let conf = loc.conf::<SrcacheLoc>();
    let said = says::expire_secs(r).unwrap_or(*conf.default_expire_secs);
    let secs = match *conf.max_expire_secs {
        0 => said,
        max => said.min(max),
    };
    weir_base::bytes::fmt_u64(out, secs);
    true
}
