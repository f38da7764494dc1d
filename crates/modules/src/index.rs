//! Index files: nginx's `ngx_http_index_module`.

use crate::files;
use std::rc::Rc;
use std::sync::Arc;
use weir_core::logger::LogLevel;
use weir_core::os_text;
use weir_core::Session;
use weir_http::location::map_uri_into;
use weir_http::module::{Flow, HttpModule, PhaseHandler};
use weir_http::redirect::internal_redirect;
use weir_http::symlinks::metadata;
use weir_http::vars::template;
use weir_http::{Phase, Request};
use weir_module::{
    merge_values, slot, ArgsExt, Arity, Cf, ConfResult, ConfType, Context, Directive, Level, Row,
    SlotVtable, Val,
};
use weir_runtime::paths;
use weir_script::template::Template;
use weir_wire::http1::request::Method;

#[derive(Default)]
pub struct Conf {
    files: Val<Arc<Vec<Template>>>,
}

impl ConfType for Conf {
    const LEVEL: Level = Level::Location;
    slot!();
    fn merge(&mut self, parent: &Conf) -> ConfResult {
        merge_values!(self, parent; files = Arc::new(vec![Template::constant(b"index.html")]));
        Ok(())
    }
}

pub const MODULE: HttpModule = HttpModule {
    name: "index",
    rows: &[Row::new(
        "index",
        Context::HSL,
        Arity::ONE_MORE,
        "index.html",
        "Files that answer for a directory, the first that exists.",
        set_index,
    )],
    slots: &[SlotVtable::of::<Conf>()],
    phases: &[PhaseHandler { phase: Phase::Content, handler: handle, active: |_| true }],
    ..HttpModule::EMPTY
};

fn set_index(cf: &mut Cf, d: &Directive) -> ConfResult {
    let mut list = Vec::with_capacity(d.args.len());
    for i in 0..d.args.len() {
        if d.arg(i).first() == Some(&b'/') && i != d.args.len() - 1 {
            let shown = String::from_utf8_lossy(d.arg(i)).into_owned();
            cf.warn(
                d,
                format!(
                    "only the last index in \"index\" directive should be absolute: \"{shown}\""
                ),
            );
        }
        if d.arg(i).is_empty() {
            return Err(d.bad(i, "index \"\" in \"index\" directive is invalid"));
        }
        list.push(template(cf, d, i)?);
    }
    let conf = cf.get::<Conf>();
    if !conf.files.is_set() {
        conf.files.set(Arc::default());
    }
    if let Some(files) = conf.files.as_mut().and_then(Arc::get_mut) {
        files.extend(list);
    }
    Ok(())
}

fn handle(r: &mut Request) -> Flow {
    if r.uri.last() != Some(&b'/') || !matches!(r.method, Method::Get | Method::Head | Method::Post)
    {
        return Flow::Declined;
    }
    let loc = Rc::clone(r.loc());
    let conf = loc.conf::<Conf>();
    let mut dir = Vec::with_capacity(128);
    let uri = std::mem::take(&mut r.uri);
    map_uri_into(r, &uri, &mut dir);
    r.uri = uri;
    let mut dir_tested = false;
    for name in conf.files.iter() {
        let file = r.eval(name);
        if file.first() == Some(&b'/') {
            let args = r.args.clone();
            return internal_redirect(r, &file, &args);
        }
        let path = [dir.as_slice(), file.as_slice()].concat();
        if files::test(r, &path) == Some(false) {
            let uri = [r.uri.as_slice(), file.as_slice()].concat();
            let args = r.args.clone();
            return internal_redirect(r, &uri, &args);
        }
        if !dir_tested {
            dir_tested = true;
            if let Some(flow) = check_directory(r, &dir) {
                return flow;
            }
        }
    }
    Flow::Declined
}

/// A directory that is missing or closed is told now, not as a missing index.
fn check_directory(r: &mut Request, dir: &[u8]) -> Option<Flow> {
    let path = paths::path(dir);
    let e = metadata(r, dir).err()?;
    let shown = path.display();
    if e.kind() == std::io::ErrorKind::PermissionDenied {
        let text = format!("\"{shown}\" is forbidden ({})", os_text(&e));
        r.log(LogLevel::Error, &text);
        return Some(Flow::Status(403));
    }
    let trimmed = shown.to_string();
    let trimmed = trimmed.trim_end_matches('/');
    if *r.loc().core.log_not_found {
        r.log(LogLevel::Error, &format!("\"{trimmed}/index.html\" is not found ({})", os_text(&e)));
    }
    Some(Flow::Status(404))
}
