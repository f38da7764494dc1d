//! `server_tag`, `server_info` and `server_admin` of Tengine's core: what answers and error pages say of the server.

use std::sync::Arc;
use weir_base::date;
use weir_base::escape::escape_html;
use weir_http::lent::Lent;
use weir_http::module::{Filter, FilterResult, HttpModule, Next, Reach};
use weir_http::Request;
use weir_module::first::{bytes, flag};
use weir_module::{
    merge_values, set, slot, ArgsExt, Arity, Cf, ConfResult, ConfType, Context, Level, Row,
    SlotVtable, Val,
};
use weir_runtime::{clock, process, tz};

#[derive(Clone, Default)]
enum Tag {
    #[default]
    Usual,
    /// No word of the server.
    Off,
    Own(Arc<[u8]>),
}

#[derive(Default)]
struct InfoLoc {
    tag: Val<Tag>,
    info: Val<bool>,
    admin: Val<Vec<u8>>,
}

impl ConfType for InfoLoc {
    const LEVEL: Level = Level::Location;
    slot!();

    fn merge(&mut self, parent: &InfoLoc) -> ConfResult {
        merge_values!(self, parent; tag = Tag::Usual, info = false, admin = Vec::new());
        Ok(())
    }
}

pub const MODULE: HttpModule = HttpModule {
    rows: &[
        Row::new(
            "server_tag",
            Context::HSL,
            Arity::ONE,
            "",
            "What Server and error pages say; off: nothing, and there is no Server.",
            |cf, d| {
                if d.arg(0).iter().any(u8::is_ascii_control) {
                    return Err(d.bad(0, "a field's value is one line"));
                }
                let tag = match d.arg(0) {
                    off if off.eq_ignore_ascii_case(b"off") => Tag::Off,
                    own => Tag::Own(own.into()),
                };
                cf.get::<InfoLoc>().tag.once(d, tag)
            },
        )
        .note("Unset it is as server_tokens says; in Tengine it is Tengine's name."),
        Row::new(
            "server_info",
            Context::HSL,
            Arity::FLAG,
            "off",
            "Whether error pages say which URL it was, which server, and when.",
            set!(Cf::get::<InfoLoc>, info, flag),
        )
        .note("Off by default, as error pages are nginx's; Tengine's default is on."),
        Row::new(
            "server_admin",
            Context::HS,
            Arity::ONE,
            "",
            "Whom to turn to, as error pages with server_info say.",
            set!(Cf::get::<InfoLoc>, admin, bytes),
        )
        .note("It is shown as text; Tengine takes it as HTML."),
    ],
    slots: &[SlotVtable::of::<InfoLoc>()],
    build: Some(|b| {
        b.main.get_mut::<Lent>().error_page = error_page;
        Ok(())
    }),
    filter: Some(Filter {
        header: Some(header),
        body: None,
        active: |slots| !matches!(*slots.get::<InfoLoc>().tag, Tag::Usual),
        reach: Reach::Main,
    }),
    ..HttpModule::EMPTY
};

fn header(r: &mut Request, next: Next) -> FilterResult {
    if !r.out.has_server {
        let tag = Tag::clone(&r.loc().conf::<InfoLoc>().tag);
        r.out.has_server = true;
        if let Tag::Own(tag) = tag {
            r.out.add(b"Server", &tag);
        }
    }
    next.header(r)
}

/// What a built-in page says behind its headline, in front of `</body>`.
fn error_page(r: &Request, status: u16, usual: &str, page: &mut Vec<u8>) {
    let conf = r.loc().conf::<InfoLoc>();
    if *conf.info && status >= 400 {
        describe(r, &conf.admin, page);
    }
    let (before, name) = match &*conf.tag {
        Tag::Off => return,
        Tag::Usual => ("", usual.as_bytes()),
        Tag::Own(own) => ("Powered by ", &**own),
    };
    page.extend_from_slice(b"<hr><center>");
    page.extend_from_slice(before.as_bytes());
    escape_html(page, name);
    page.extend_from_slice(b"</center>\r\n");
}

fn describe(r: &Request, admin: &[u8], page: &mut Vec<u8>) {
    let secs = clock::wall_secs();
    let time = date::format_errlog(secs, tz::offset_minutes(secs));
    let host = process::hostname();
    let url = url(r);
    page.extend_from_slice(
        b"<p>Sorry. If you report this, please say what stands below.</p>\r\n<table>\r\n",
    );
    let rows: [(&str, &[u8]); 4] =
        [("URL", &url), ("Server", host.as_bytes()), ("Admin", admin), ("Date", &time)];
    for (name, value) in rows.into_iter().filter(|(_, value)| !value.is_empty()) {
        page.extend_from_slice(format!("<tr>\r\n<td>{name}:</td>\r\n<td>").as_bytes());
        escape_html(page, value);
        page.extend_from_slice(b"</td>\r\n</tr>\r\n");
    }
    page.extend_from_slice(b"</table>\r\n");
}

/// Scheme, host, port and URI, as the client has asked.
pub(crate) fn url(r: &Request) -> Vec<u8> {
    let is_tls = r.conn().is_tls();
    let mut url = Vec::with_capacity(64);
    url.extend_from_slice(if is_tls { b"https://" } else { b"http://" });
    match r.host() {
        [] => url.extend_from_slice(&r.server().core.reached.primary_name),
        host => url.extend_from_slice(host),
    }
    let usual = if is_tls { 443 } else { 80 };
    if let Some(port) = r.conn().local_addr().map(|a| a.port()).filter(|p| *p != usual) {
        url.extend_from_slice(format!(":{port}").as_bytes());
    }
    url.extend_from_slice(r.unparsed_uri());
    url
}
