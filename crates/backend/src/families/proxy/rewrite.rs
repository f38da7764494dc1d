//! `proxy_redirect` and `proxy_cookie_*`: what a backend says of itself, in the client's terms.

use crate::target::Pass;
use weir_base::bytes::find_ignore_case;
use weir_core::registry::NamedRegex;
use weir_core::unknown::regex_match;
use weir_core::Session;
use weir_http::Request;
use weir_script::template::Template;
use weir_wire::http1::set_cookie::{edit_flags, parse, write, FLAGS};

enum Pattern {
    /// The text must begin with it.
    Prefix(Template),
    /// The whole text, a leading dot apart, in either letter case.
    Domain(Template),
    Regex(Box<NamedRegex>),
}

/// One rule.
pub(crate) struct Rewrite {
    pattern: Pattern,
    replacement: Template,
}

impl Rewrite {
    pub(crate) fn prefix(from: &[u8], to: &[u8]) -> Rewrite {
        Rewrite::with_prefix(Template::constant(from), Template::constant(to))
    }

    pub(crate) fn with_prefix(from: Template, to: Template) -> Rewrite {
        Rewrite { pattern: Pattern::Prefix(from), replacement: to }
    }

    pub(crate) fn domain(from: Template, to: Template) -> Rewrite {
        Rewrite { pattern: Pattern::Domain(from), replacement: to }
    }

    pub(crate) fn regex(regex: NamedRegex, to: Template) -> Rewrite {
        Rewrite { pattern: Pattern::Regex(Box::new(regex)), replacement: to }
    }

    /// The text behind `skip`, rewritten; `None` when the rule does not fit. (An expression that
    /// cannot tell ends the request, which then sends neither text.)
    fn apply(&self, r: &mut Request, value: &[u8], skip: usize) -> Option<Vec<u8>> {
        let text = &value[skip..];
        let (from, to) = match &self.pattern {
            Pattern::Prefix(t) => {
                let prefix = r.eval(t);
                (0, text.starts_with(&prefix).then_some(prefix.len())?)
            }
            Pattern::Domain(t) => {
                let wanted = r.eval(t);
                let from = usize::from(text.first() == Some(&b'.'));
                text[from..].eq_ignore_ascii_case(&wanted).then_some((from, text.len()))?
            }
            Pattern::Regex(regex) => {
                let hit = regex_match(r, &regex.0, &regex.1, text);
                matches!(hit, Ok(true)).then_some((0, text.len()))?
            }
        };
        let mut out = value[..skip + from].to_vec();
        r.eval_into(&self.replacement, &mut out);
        out.extend_from_slice(&text[to..]);
        Some(out)
    }
}

/// The first rule that fits.
fn first(r: &mut Request, rules: &[Rewrite], value: &[u8], skip: usize) -> Option<Vec<u8>> {
    rules.iter().find_map(|rule| rule.apply(r, value, skip))
}

pub(crate) fn location(r: &mut Request, rules: &[Rewrite], value: &[u8]) -> Option<Vec<u8>> {
    first(r, rules, value, 0)
}

/// `Refresh: 5; url=…`
pub(crate) fn refresh(r: &mut Request, rules: &[Rewrite], value: &[u8]) -> Option<Vec<u8>> {
    let at = find_ignore_case(value, b"url=")? + 4;
    first(r, rules, value, at)
}

pub(crate) enum CookieName {
    Exact(Template),
    Regex(Box<NamedRegex>),
}

/// One `proxy_cookie_flags`.
pub(crate) struct CookieFlags {
    pub(crate) cookie: CookieName,
    pub(crate) flags: Vec<Template>,
}

impl CookieFlags {
    fn fits(&self, r: &mut Request, name: &[u8]) -> bool {
        match &self.cookie {
            CookieName::Exact(t) => r.eval(t).eq_ignore_ascii_case(name),
            CookieName::Regex(regex) => {
                matches!(regex_match(r, &regex.0, &regex.1, name), Ok(true))
            }
        }
    }

    /// A value that is no flag is passed over, as in nginx.
    fn mask(&self, r: &mut Request) -> u32 {
        let mut mask = 0;
        for t in &self.flags {
            let text = r.eval(t);
            let known = FLAGS.iter().find(|(n, _)| text.eq_ignore_ascii_case(n));
            mask |= known.map_or(0, |(_, bit)| *bit);
        }
        mask
    }
}

/// The rules for a `Set-Cookie`.
pub(crate) struct CookieRules<'a> {
    pub(crate) domains: &'a [Rewrite],
    pub(crate) paths: &'a [Rewrite],
    pub(crate) flags: &'a [CookieFlags],
}

/// Rewrites a `Set-Cookie`; `None` when nothing fits.
pub(crate) fn cookie(r: &mut Request, rules: &CookieRules, value: &[u8]) -> Option<Vec<u8>> {
    let mut attrs = parse(value);
    attrs.first()?.value.as_ref()?;
    let mut changed = false;
    for a in attrs.iter_mut().skip(1) {
        let list = match () {
            () if a.is(b"Domain") => rules.domains,
            () if a.is(b"Path") => rules.paths,
            () => continue,
        };
        let Some(old) = &a.value else { continue };
        if let Some(new) = first(r, list, old, 0) {
            a.value = Some(new);
            changed = true;
        }
    }
    let name = attrs.first()?.name.clone();
    if let Some(f) = rules.flags.iter().find(|f| f.fits(r, &name)) {
        let mask = f.mask(r);
        if mask != 0 {
            edit_flags(&mut attrs, mask);
            changed = true;
        }
    }
    changed.then(|| write(&attrs))
}

/// `proxy_redirect default`.
pub(crate) fn default_rule(pass: &Pass, location: &[u8]) -> Option<Rewrite> {
    let Pass::Fixed(fixed) = pass else { return None };
    Some(match fixed.parts.uri.is_empty() {
        false => Rewrite::prefix(&fixed.url, location),
        true => Rewrite::prefix(&[&fixed.url, &b"/"[..]].concat(), b"/"),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn t(text: &str) -> Template {
        Template::constant(text.as_bytes())
    }

    fn shown(v: Option<Vec<u8>>) -> Option<String> {
        v.map(|v| String::from_utf8(v).unwrap())
    }

    #[test]
    fn redirects() {
        let mut r = Request::default();
        let rules = [Rewrite::prefix(b"http://app:8080/two/", b"/one/")];
        let got = shown(location(&mut r, &rules, b"http://app:8080/two/x?y"));
        assert_eq!(got.as_deref(), Some("/one/x?y"));
        assert_eq!(location(&mut r, &rules, b"http://other/"), None);
        let got = shown(refresh(&mut r, &rules, b"5; URL=http://app:8080/two/x"));
        assert_eq!(got.as_deref(), Some("5; URL=/one/x"));
        assert_eq!(refresh(&mut r, &rules, b"5"), None);
    }

    #[test]
    fn cookies() {
        let mut r = Request::default();
        let domains = [Rewrite::domain(t("localhost"), t("example.org"))];
        let paths = [Rewrite::with_prefix(t("/two/"), t("/"))];
        let flags = [CookieFlags {
            cookie: CookieName::Exact(t("id")),
            flags: vec![t("secure"), t("nohttponly"), t("samesite=lax")],
        }];
        let rules = CookieRules { domains: &domains, paths: &paths, flags: &flags };
        let mut run = |text: &str| shown(cookie(&mut r, &rules, text.as_bytes()));
        assert_eq!(
            run("id=1; Domain=.LocalHost; path=/two/x; HttpOnly").as_deref(),
            Some("id=1; Domain=.example.org; path=/x; Secure; SameSite=Lax")
        );
        assert_eq!(
            run("id=1; secure; samesite=lax").as_deref(),
            Some("id=1; secure; samesite=lax")
        );
        assert_eq!(run("other=1; path=/"), None);
        assert_eq!(run("novalue; path=/two/"), None);
    }
}
