//! `weir_welcome`: the page of the embedded default configuration. nginx has no such module.
//!
//! One self-contained page. Its numbers and its plot come from `/dashboard/`, where the embedded configuration
//! has `dashboard`, and it leads there. Its policy names the page's one style and one script by their digests,
//! so nothing else can run in it.

use std::path::Path;
use weir_http::buf::Buf;
use weir_http::conf::CoreLoc;
use weir_http::module::{Flow, HttpModule};
use weir_http::output::SERVER_VERSION;
use weir_http::{body, special, Request};
use weir_module::{Arity, Cf, ConfResult, Context, Directive, Layout, Row};
use weir_wire::http1::request::Method;

const ROWS: &[Row] = &[Row::new(
    "weir_welcome",
    Context::LOCATION,
    Arity::NONE,
    "",
    "Answers with Weir's welcome page; made for the embedded default configuration.",
    set_welcome,
)
.note("Weir's own; its live numbers need dashboard at /dashboard/, and stub_status at /status is asked by its button.")];

pub const MODULE: HttpModule = HttpModule { rows: ROWS, ..HttpModule::EMPTY };

const PAGE: &str = include_str!("welcome.html");

const STYLE_DIGEST: &str = "8MfA6FMD4JfsAVWjr7cM6vGqiLtoP3rJJxNDauit9nE=";
const SCRIPT_DIGEST: &str = "j4fzUV/DUEbt0lHPXAQBpgGI8myEKa5ja5IxiN+KyUI=";

fn set_welcome(cf: &mut Cf, _: &Directive) -> ConfResult {
    cf.get::<CoreLoc>().handler = Some(handler);
    Ok(())
}

fn handler(r: &mut Request) -> Flow {
    if !matches!(r.method, Method::Get | Method::Head) {
        return Flow::Status(405);
    }
    if let Err(flow) = body::discard(r) {
        return flow;
    }
    let text = page(r.conn().worker.all.workers());
    r.out.status = 200;
    r.out.set_content_type(b"text/html; charset=utf-8");
    r.out.content_length = Some(text.len() as u64);
    r.out.add(b"Cache-Control", b"no-store");
    r.out.add(b"Content-Security-Policy", policy().as_bytes());
    r.out.add(b"X-Content-Type-Options", b"nosniff");
    special::finish(r, Buf::mem(text.into_bytes()).and_last())
}

fn page(workers: usize) -> String {
    let workers = match workers {
        1 => "1 worker".to_owned(),
        n => format!("{n} workers"),
    };
    PAGE.replace("{{version}}", SERVER_VERSION)
        .replace("{{pid}}", &std::process::id().to_string())
        .replace("{{workers}}", &workers)
        .replace("{{conf}}", &conf_path())
}

/// Where the program looks for a configuration when it is given none.
fn conf_path() -> String {
    let here = Layout::here();
    Path::new(here.prefix).join(here.conf_path).display().to_string()
}

fn policy() -> String {
    format!(
        "default-src 'none'; style-src 'sha256-{STYLE_DIGEST}'; \
         script-src 'sha256-{SCRIPT_DIGEST}'; connect-src 'self'; base-uri 'none'; \
         form-action 'none'; frame-ancestors 'none'"
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use sha2::{Digest, Sha256};

    fn digest_of(element: &str) -> String {
        let (_, rest) = PAGE.split_once(&format!("<{element}>")).unwrap();
        let (content, _) = rest.split_once(&format!("</{element}>")).unwrap();
        let mut out = Vec::new();
        weir_base::base64::encode(&mut out, &Sha256::digest(content));
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn the_policy_names_what_the_page_holds() {
        assert_eq!(digest_of("style"), STYLE_DIGEST);
        assert_eq!(digest_of("script"), SCRIPT_DIGEST);
    }

    #[test]
    fn the_page_is_whole_and_small() {
        let text = page(2);
        assert!(text.contains(" · 2 workers") && page(1).contains(" · 1 worker<"));
        assert!(!text.contains("{{") && text.len() < 8 * 1024, "{}", text.len());
    }
}
