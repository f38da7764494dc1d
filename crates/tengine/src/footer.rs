//! `footer` (Tengine's `ngx_http_footer_filter_module`): a text behind the body of responses.

use std::rc::Rc;
use std::sync::Arc;
use weir_core::Session;
use weir_http::module::{Filter, FilterResult, HttpModule, Next, Reach};
use weir_http::vars::template;
use weir_http::{Buf, Chain, Request};
use weir_module::{
    merge_values, slot, ArgsExt, Arity, ConfResult, ConfType, Context, Level, Row, SlotVtable, Val,
};
use weir_modules::mime::MimeTypes;
use weir_script::template::Template;

#[derive(Default)]
struct FooterLoc {
    text: Val<Option<Arc<Template>>>,
    types: Val<Arc<MimeTypes>>,
}

impl ConfType for FooterLoc {
    const LEVEL: Level = Level::Location;
    slot!();

    fn merge(&mut self, parent: &FooterLoc) -> ConfResult {
        merge_values!(self, parent; text = None, types = MimeTypes::of(&["text/html"]));
        Ok(())
    }
}

pub const MODULE: HttpModule = HttpModule {
    rows: &[
        Row::new(
            "footer",
            Context::HSL,
            Arity::ONE,
            "\"\"",
            "A text behind the body of responses; may have variables. Empty: none.",
            |cf, d| {
                let text = template(cf, d, 0)?;
                let text = (!d.arg(0).is_empty()).then(|| Arc::new(text));
                cf.get::<FooterLoc>().text.once(d, text)
            },
        )
        .note("The entity tag becomes a weak one, because the body is another; Tengine leaves it."),
        Row::new(
            "footer_types",
            Context::HSL,
            Arity::ONE_MORE,
            "text/html",
            "MIME types of the responses that get the footer, besides text/html.",
            |cf, d| {
                MimeTypes::read(cf, d, |cf| &mut cf.get::<FooterLoc>().types);
                Ok(())
            },
        ),
    ],
    slots: &[SlotVtable::of::<FooterLoc>()],
    filter: Some(Filter {
        header: Some(header),
        body: Some(body),
        active: |slots| slots.get::<FooterLoc>().text.is_some(),
        reach: Reach::Main,
    }),
    body_on_demand: true,
    ..HttpModule::EMPTY
};

struct Footer(Vec<u8>);

fn header(r: &mut Request, next: Next) -> FilterResult {
    let loc = Rc::clone(r.loc());
    let conf = loc.conf::<FooterLoc>();
    let is_encoded = r.out.get(b"Content-Encoding").is_some_and(|v| !v.is_empty());
    // The end of a part is in the middle of the whole.
    let unfit = matches!(r.out.status, 204 | 206 | 304);
    let Some(text) = &*conf.text else { return next.header(r) };
    if unfit || is_encoded || !conf.types.match_response(r) {
        return next.header(r);
    }
    let text = r.eval(text);
    let length = r.out.content_length.map(|n| n + text.len() as u64);
    r.whole = None;
    r.out.clear_content_length();
    r.out.content_length = length;
    r.out.remove(b"Accept-Ranges");
    r.flags.allow_ranges = false;
    r.out.weaken_etag();
    r.set_ctx(Footer(text));
    next.header(r)
}

fn body(r: &mut Request, chain: Chain, next: Next) -> FilterResult {
    if !chain.has_last() {
        return next.body(r, chain);
    }
    let Some(footer) = r.take_ctx::<Footer>() else { return next.body(r, chain) };
    let mut out = Chain::new();
    for mut buf in chain {
        buf.last = false;
        if !buf.is_empty() || buf.flush {
            out.push(buf);
        }
    }
    out.push(Buf::mem(footer.0).and_last());
    next.body(r, out)
}
