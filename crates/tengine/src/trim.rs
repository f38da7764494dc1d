//! `trim` (Tengine's `ngx_http_trim_filter_module`): HTML, and the scripts and styles in it, without comments and
//! most blanks.
//!
//! A body is trimmed as it comes; a few bytes at most wait for what follows. Differences from Tengine are on the side
//! of leaving alone: template literals, expressions behind words such as `return`, a blank in front of a selector's `:`.

mod html;
mod script;
mod sink;
mod style;

use html::Html;
use std::rc::Rc;
use std::sync::Arc;
use weir_core::common::number;
use weir_core::variables::Variable;
use weir_core::Session;
use weir_http::core_vars::query_arg;
use weir_http::module::{Filter, FilterError, FilterResult, HttpModule, Next, Reach};
use weir_http::vars::template;
use weir_http::{Buf, Chain, Request};
use weir_module::{
    merge_values, slot, Arity, Cf, ConfResult, ConfType, Context, Directive, Level, Row,
    SlotVtable, Val,
};
use weir_modules::mime::MimeTypes;
use weir_modules::util::text_of;
use weir_script::template::Template;

type Switch = Val<Option<Arc<Template>>>;

#[derive(Default)]
struct TrimLoc {
    html: Switch,
    js: Switch,
    css: Switch,
    types: Val<Arc<MimeTypes>>,
}

impl ConfType for TrimLoc {
    const LEVEL: Level = Level::Location;
    slot!();

    fn merge(&mut self, parent: &TrimLoc) -> ConfResult {
        merge_values!(self, parent;
            html = None,
            js = None,
            css = None,
            types = MimeTypes::of(&["text/html"]),
        );
        Ok(())
    }
}

const ROWS: &[Row] = &[
    Row::new(
        "trim",
        Context::HSL,
        Arity::ONE,
        "off",
        "Whether HTML is sent without comments and most blanks; may have variables.",
        |cf, d| set_switch(cf, d, |conf| &mut conf.html),
    )
    .note("Requests with http_trim=off in the URI get it as it is, as in Tengine."),
    Row::new(
        "trim_js",
        Context::HSL,
        Arity::ONE,
        "off",
        "Whether trim takes comments and blanks out of scripts, too; may have variables.",
        |cf, d| set_switch(cf, d, |conf| &mut conf.js),
    )
    .note("Template literals are left alone, which Tengine does not know."),
    Row::new(
        "trim_css",
        Context::HSL,
        Arity::ONE,
        "off",
        "Whether trim takes comments and blanks out of styles, too; may have variables.",
        |cf, d| set_switch(cf, d, |conf| &mut conf.css),
    )
    .note("A blank in front of a selector's \":\" stays, because it means something; Tengine takes it away."),
    Row::new(
        "trim_types",
        Context::HSL,
        Arity::ONE_MORE,
        "text/html",
        "MIME types of the responses that are trimmed, besides text/html.",
        |cf, d| {
            MimeTypes::read(cf, d, |cf| &mut cf.get::<TrimLoc>().types);
            Ok(())
        },
    ),
];

pub const MODULE: HttpModule = HttpModule {
    rows: ROWS,
    slots: &[SlotVtable::of::<TrimLoc>()],
    variables: &[
        Variable::new("trim_bytes", |r, _, out| {
            r.ctx::<Trimmed>().is_some_and(|t| number(out, t.came.saturating_sub(t.left)))
        }),
        Variable::new("trim_original_bytes", |r, _, out| {
            r.ctx::<Trimmed>().is_some_and(|t| number(out, t.came))
        }),
    ],
    filter: Some(Filter {
        header: Some(header),
        body: Some(body),
        active: |slots| slots.get::<TrimLoc>().html.is_some(),
        reach: Reach::Part,
    }),
    body_on_demand: true,
    ..HttpModule::EMPTY
};

fn set_switch(cf: &mut Cf, d: &Directive, of: fn(&mut TrimLoc) -> &mut Switch) -> ConfResult {
    let value = template(cf, d, 0)?;
    // What is constant and not "on" needs no filter at all.
    let value = (value.as_constant().is_none_or(|text| text == b"on")).then(|| Arc::new(value));
    of(cf.get::<TrimLoc>()).once(d, value)
}

/// A response that is trimmed, and the bytes that have come and were left.
struct Trimmed {
    html: Html,
    came: u64,
    left: u64,
}

fn is_on(r: &mut Request, switch: &Switch) -> bool {
    switch.as_ref().is_some_and(|value| r.eval(value) == b"on")
}

fn header(r: &mut Request, next: Next) -> FilterResult {
    let loc = Rc::clone(r.loc());
    let conf = loc.conf::<TrimLoc>();
    let is_encoded = r.out.get(b"Content-Encoding").is_some_and(|v| !v.is_empty());
    if r.out.status != 200
        || r.out.content_length == Some(0)
        || is_encoded
        || !conf.types.match_response(r)
        || query_arg(&r.args, b"http_trim") == Some(b"off")
        || !is_on(r, &conf.html)
    {
        return next.header(r);
    }
    let (js, css) = (is_on(r, &conf.js), is_on(r, &conf.css));
    r.set_ctx(Trimmed { html: Html::new(js, css), came: 0, left: 0 });
    r.whole = None;
    r.flags.filter_needs_memory = true;
    r.out.clear_content_length();
    r.out.remove(b"Accept-Ranges");
    r.flags.allow_ranges = false;
    r.out.weaken_etag();
    next.header(r)
}

fn body(r: &mut Request, chain: Chain, next: Next) -> FilterResult {
    let Some(trimmed) = r.ctx::<Trimmed>() else { return next.body(r, chain) };
    let mut out = Chain::new();
    for mut buf in chain {
        let text = text_of(&buf.data).map_err(|_| FilterError::Broken)?;
        let mut left = trimmed.html.trim(&text);
        if buf.last {
            left.extend(trimmed.html.finish());
        }
        trimmed.came += text.len() as u64;
        trimmed.left += left.len() as u64;
        let (last, flush) = (std::mem::take(&mut buf.last), std::mem::take(&mut buf.flush));
        if !left.is_empty() {
            out.push(Buf { last, flush, ..Buf::mem(left) });
        } else if last || flush {
            out.push(Buf { last, flush, ..Buf::last() });
        }
    }
    match out.is_empty() {
        true => Ok(()),
        false => next.body(r, out),
    }
}

/// All of a text at once, cut into pieces of so many bytes.
pub fn trimmed(text: &[u8], js: bool, css: bool, piece_bytes: usize) -> Vec<u8> {
    let mut html = Html::new(js, css);
    let mut out: Vec<u8> = text.chunks(piece_bytes.max(1)).flat_map(|t| html.trim(t)).collect();
    out.extend(html.finish());
    out
}

#[cfg(test)]
mod tests {
    use super::trimmed;

    #[track_caller]
    fn check(text: &str, expected: &str) {
        for piece_bytes in [1, 2, 3, 7, text.len()] {
            let left = trimmed(text.as_bytes(), true, true, piece_bytes);
            assert_eq!(String::from_utf8_lossy(&left), expected, "pieces of {piece_bytes}");
        }
    }

    #[test]
    fn blanks_of_html() {
        for (text, expected) in [
            ("a  b\t\tc", "a b c"),
            ("a \r\n\n  b", "a\nb"),
            ("<p>a<!-- x --> b</p>", "<p>a b</p>"),
            ("<!-- a --->\n<!---->b", "\nb"),
            ("<a  href = \"x  y\"  >", "<a href=\"x  y\">"),
            ("<br />", "<br />"),
            ("<img src=a   alt=b>", "<img src=a alt=b>"),
            ("<      <PRE>a   b</pre>", "< <PRE>a   b</pre>"),
            ("<x    <<pre>a   b</pre>", "<x <<pre>a b</pre>"),
            ("<     <<<!doctype   html>", "< <<<!doctype html>"),
            ("<!DOCTYPE html PUBLIC  \"a  b\">", "<!DOCTYPE html PUBLIC \"a  b\">"),
            ("1 < 2  and <", "1 < 2 and <"),
            ("<title   >a</title  >", "<title>a</title>"),
            ("<textarea  >\n a  b\n</textarea  >", "<textarea>\n a  b\n</textarea>"),
            (
                "<!--# ssi  --><!--esi  --> <!--[if  IE]>  <![endif]-->",
                "<!--# ssi  --><!--esi  --> <!--[if  IE]>  <![endif]-->",
            ),
            ("<!--[x  -->a", "a"),
            ("<pre>a  <pre  >b  </pre  >  c</pre>  d", "<pre>a  <pre>b  </pre>  c</pre> d"),
            ("<pre>a  </prex>  </pre>", "<pre>a  </prex>  </pre>"),
            ("a <!-- never  ended", "a"),
        ] {
            check(text, expected);
        }
    }

    #[test]
    fn scripts() {
        for (text, expected) in [
            ("// a\nf( a,  b );  // c\n\ng()\nh()\n", "f(a,b );g()\nh()\n"),
            ("/* a\n b */ x  =  1", "x =1"),
            ("a/**/b", "a b"),
            ("s = 'a  // b';  t = \"c\\\"  /* d\"", "s ='a  // b';t =\"c\\\"  /* d\""),
            ("x = /a  \\/[/]  /g ; y", "x =/a  \\/[/]  /g ;y"),
            ("return  /a  b/", "return /a  b/"),
            ("x = a  /  b  /  c", "x =a / b / c"),
            ("i++  /  2", "i++ / 2"),
            ("if (a) /x  y/.test(b)", "if (a) /x  y/.test(b)"),
            ("while(f(a)) /x  y/.test(b)", "while(f(a)) /x  y/.test(b)"),
            ("(a) / b  / c", "(a) / b / c"),
            ("f(if_(a))  /  b  /  c", "f(if_(a)) / b / c"),
            ("x.if (a)  /  b  /  c", "x.if (a) / b / c"),
            ("if ((a))  b = (c)  /  d  /  e", "if ((a)) b =(c) / d / e"),
            ("`a  ${ b ? `c  ${ d }  ` : '' }  e`", "`a  ${b ?`c  ${d }  ` :'' }  e`"),
            ("'a'\n'b'", "'a'\n'b'"),
            ("// a </script >  b", "</script> b"),
            ("a</scripts>\nb  c", "a</scripts>b c"),
        ] {
            let ended = if text.contains("</script >") { "" } else { "</script >" };
            let kept = if ended.is_empty() { "" } else { "</script>" };
            check(&format!("<script>{text}{ended}"), &format!("<script>{expected}{kept}"));
        }
        check(
            "<script type=\" text/javascript \">a  =  1</script>",
            "<script type=\" text/javascript \">a =1</script>",
        );
        check("<script type=x>a  =  1</script>", "<script type=x>a  =  1</script>");
    }

    #[test]
    fn styles() {
        for (text, expected) in [
            (
                "body { font-size : 20px ; line-height : 150%; }",
                "body{font-size:20px;line-height:150%;}",
            ),
            ("a , b > c {\n color: red }\n", "a,b>c{color:red}"),
            ("/* x */ html >/**/ body p { a: b }", "html>/**/ body p{a:b}"),
            ("div :first-child { a : b }", "div :first-child{a:b}"),
            (
                "@media (min-width : 1px) { a :hover { b : c } }",
                "@media (min-width :1px){a :hover{b:c}}",
            ),
            ("/* x \\*/ a  { b }\n/* y */ c", "/*\\*/ a  { b }\n/**/ c"),
            ("a { b: '  x /* ' }", "a{b:'  x /* '}"),
            ("a{margin:1px/* x */2px}", "a{margin:1px/**/2px}"),
            ("a/* x */.b{}", "a.b{}"),
            ("a { background: url(a/b) }", "a{background:url(a/b)}"),
        ] {
            check(&format!("<style>{text}</style>"), &format!("<style>{expected}</style>"));
        }
        check("<style media=x>a  b</style>", "<style media=x>a  b</style>");
    }

    #[test]
    fn switches() {
        let text = b"<script> // a\n</script><style> /* b */ </style>";
        assert_eq!(trimmed(text, false, false, 9), text);
    }
}
